//! The suite over UCX's transports of RDMA devices, between real processes on the devices that are given: in the virtual
//! machine, on Soft-RoCE (`ci/hwtests`).
//!
//! The library is what the machine has; `IRONWEAVE_UCT_LIB` names another one.

mod full;
mod stranger;

use ironweave_btl::Address;
use ironweave_btl_conformance::{Harness, Injected, Place, Site};
use ironweave_btl_uct::{Uct, UctConfig};
use ironweave_ffi_uct::Uct as Library;
use ironweave_hwtests::fabric::Fabric;
use std::time::Duration;

/// A process's device as UCX names it: with the port.
fn device(fabric: &Fabric, site: &Site) -> String {
    format!("{}:1", fabric.device(site.me.index(), 0))
}

fn open(site: &Site, transport: &str) -> Result<Uct, String> {
    let fabric = Fabric::given().ok_or("no devices are given (IRONWEAVE_VERBS_HOSTS)")?;
    let config = UctConfig {
        me: site.me,
        secret: site.secret,
        job: site.job.clone(),
        transports: vec![transport.to_owned()],
        devices: vec![device(&fabric, site)],
        rails: 1,
        connect_timeout: Duration::from_secs(40),
        ..UctConfig::default()
    };
    let mut rails = Uct::open_all(&config).map_err(|error| error.to_string())?;
    Ok(rails.remove(0))
}

macro_rules! devices {
    ($($module:ident)*) => {
        $(
            mod $module {
                use super::*;

                struct FirstRail;

                impl Harness for FirstRail {
                    type Btl = Uct;
                    type World = ();
                    const PLACE: Place = Place::Processes;

                    fn world(_: &Site) {}

                    fn open((): &(), site: &Site) -> Result<Uct, String> {
                        open(site, stringify!($module))
                    }

                    fn inject(site: &Site, address: &Address, round: u64) -> Injected {
                        let Some(fabric) = Fabric::given() else { return Injected::Unsupported };
                        let device = device(&fabric, site);
                        let library = Library::open().expect("the rail opened it");
                        stranger::speak(library, "ud_verbs", Some(&device), address, round)
                            .expect("a stranger can send");
                        Injected::Done
                    }

                    fn many() -> u32 {
                        8
                    }
                }

                ironweave_btl_conformance::suite!(FirstRail);
            }
        )*
    };
}

devices! { rc_verbs ud_verbs }
