//! What tests on devices share.

use ironweave_hwtests::fabric::Fabric;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One test at a time has the devices.
static ALONE: Mutex<()> = Mutex::new(());

/// The devices, for this test alone; says that it is skipped where there are none.
pub fn given(test: &str) -> Option<(Fabric, MutexGuard<'static, ()>)> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let fabric = Fabric::given();
    if fabric.is_none() {
        println!("SKIP verbs/{test}: no devices are given (IRONWEAVE_VERBS_HOSTS)");
    }
    Some((fabric?, alone))
}
