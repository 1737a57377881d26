//! The suite that every byte transport passes, over loopback between real processes.

use ironweave_btl::Address;
use ironweave_btl_conformance::{Harness, Injected, Place, Site};
use ironweave_btl_tcp::{Tcp, TcpConfig};

struct Loopback;

impl Harness for Loopback {
    type Btl = Tcp;
    type World = ();
    const PLACE: Place = Place::Processes;

    fn world(_: &Site) {}

    fn open((): &(), site: &Site) -> Result<Tcp, String> {
        let config = TcpConfig {
            me: site.me,
            secret: site.secret,
            job: site.job.clone(),
            include: vec!["127.0.0.0/8".parse().expect("a network")],
            ..TcpConfig::default()
        };
        let mut rails = Tcp::open_all(config).map_err(|error| error.to_string())?;
        Ok(rails.remove(0))
    }

    fn inject(_: &Site, _: &Address, _: u64) -> Injected {
        Injected::Unsupported
    }
}

ironweave_btl_conformance::suite!(Loopback);
