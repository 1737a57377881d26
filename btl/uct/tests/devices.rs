//! The suite over UCX's transports of RDMA devices, between real processes on the devices that are given: in the virtual
//! machine, on Soft-RoCE (`ci/hwtests`).
//!
//! The library is what the machine has; `IRONWEAVE_UCT_LIB` names another one.

use ironweave_btl::Address;
use ironweave_btl_conformance::{Harness, Injected, Place, Site};
use ironweave_btl_uct::{Uct, UctConfig};
use ironweave_hwtests::fabric::Fabric;
use std::time::Duration;

fn open(site: &Site, transport: &str) -> Result<Uct, String> {
    let fabric = Fabric::given().ok_or("no devices are given (IRONWEAVE_VERBS_HOSTS)")?;
    let config = UctConfig {
        me: site.me,
        secret: site.secret,
        job: site.job.clone(),
        transports: vec![transport.to_owned()],
        // UCX names the port too.
        devices: vec![format!("{}:1", fabric.device(site.me.index(), 0))],
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

                    fn inject(_: &Site, _: &Address, _: u64) -> Injected {
                        Injected::Unsupported
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
