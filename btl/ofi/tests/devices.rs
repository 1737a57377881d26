//! The suite over libfabric's provider for RDMA devices, between real processes on the devices that are given: in the virtual
//! machine, on Soft-RoCE (`ci/hwtests`).
//!
//! The library is what the machine has; `IRONWEAVE_OFI_LIB` names another one.

#[path = "support/stranger.rs"]
mod stranger;

use ironweave_btl::Address;
use ironweave_btl_conformance::{Harness, Injected, Place, Site};
use ironweave_btl_ofi::{Ofi, OfiConfig};
use ironweave_ffi::ofi::Ofi as Library;
use ironweave_hwtests::fabric::Fabric;
use std::time::Duration;

/// As libfabric calls it.
const PROVIDER: &str = "verbs;ofi_rxm";

mod verbs_rxm {
    use super::*;

    struct FirstRail;

    impl Harness for FirstRail {
        type Btl = Ofi;
        type World = ();
        const PLACE: Place = Place::Processes;

        fn world(_: &Site) {}

        fn open((): &(), site: &Site) -> Result<Ofi, String> {
            let fabric = Fabric::given().ok_or("no devices are given (IRONWEAVE_VERBS_HOSTS)")?;
            let config = OfiConfig {
                me: site.me,
                secret: site.secret,
                job: site.job.clone(),
                include: vec![PROVIDER.to_owned()],
                domains: vec![fabric.device(site.me.index(), 0).to_owned()],
                rails: 1,
                peers: 16,
                connect_timeout: Duration::from_secs(40),
                waitable: true,
                ..OfiConfig::default()
            };
            let mut rails = Ofi::open_all(&config).map_err(|error| error.to_string())?;
            Ok(rails.remove(0))
        }

        fn inject(site: &Site, address: &Address, round: u64) -> Injected {
            let Some(fabric) = Fabric::given() else { return Injected::Unsupported };
            let near = |domain: &str| domain == fabric.device(site.me.index(), 0);
            stranger::speak(Library::open(), PROVIDER, near, address, round)
        }

        fn many() -> u32 {
            8
        }
    }

    ironweave_btl_conformance::suite!(FirstRail);
}
