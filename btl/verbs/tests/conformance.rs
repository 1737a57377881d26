//! The suite that every byte transport passes, between real processes on the devices that are given: in the virtual
//! machine, on Soft-RoCE between two hosts (`ci/hwtests`).

use ironweave_btl_conformance::{Harness, Place, Site};
use ironweave_btl_verbs::{Verbs, VerbsConfig};
use ironweave_hwtests::fabric::Fabric;

struct FirstRail;

impl Harness for FirstRail {
    type Btl = Verbs;
    type World = ();
    const PLACE: Place = Place::Processes;

    fn world(_: &Site) {}

    fn open((): &(), site: &Site) -> Result<Verbs, String> {
        let fabric = Fabric::given().ok_or("no devices are given (IRONWEAVE_VERBS_HOSTS)")?;
        let config = VerbsConfig {
            me: site.me,
            secret: site.secret,
            job: site.job.clone(),
            include: vec![fabric.device(site.me.0 as usize, 0).to_owned()],
            ..VerbsConfig::default()
        };
        let mut rails = Verbs::open_all(config).map_err(|error| error.to_string())?;
        Ok(rails.remove(0))
    }

    fn many() -> u32 {
        16
    }
}

ironweave_btl_conformance::suite!(FirstRail);
