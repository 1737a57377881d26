//! The `self` transport under the suite.

use ironweave_btl::{Address, Loopback};
use ironweave_btl_conformance::{Harness, Injected, Place, Site, suite};

struct ToSelf;

impl Harness for ToSelf {
    type Btl = Loopback;
    type World = ();
    const PLACE: Place = Place::Alone;

    fn world(_: &Site) {}

    fn open((): &(), site: &Site) -> Result<Loopback, String> {
        Ok(Loopback::new(site.me))
    }

    fn inject(_: &Site, _: &Address, _: u64) -> Injected {
        Injected::Unsupported
    }
}

suite!(ToSelf);
