//! The suite that every byte transport passes, over loopback between real processes.

mod common;

use ironweave_btl::Address;
use ironweave_btl_conformance::{Harness, Injected, Place, Site};
use ironweave_btl_tcp::{Tcp, TcpConfig, wire};
use std::io::Write;
use std::net::TcpStream;

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

    /// Strangers with the right address and without the secret; `strangers.rs` has those who overheard something.
    fn inject(_: &Site, address: &Address, round: u64) -> Injected {
        let mut socket = TcpStream::connect(common::listener(address)).expect("somebody listens");
        let mut bytes = common::pattern(round, 1 + round as usize % 5000);
        match round % 4 {
            0 => {}
            1 => bytes[..1].fill(b'G'),
            2 => {
                // A greeting of the right form, sealed by nobody.
                bytes.resize(96, 0);
                bytes[..10].copy_from_slice(b"IWtcpHEL\x01\x00");
            }
            _ => bytes.splice(0..0, wire::data_prefix(8, 1 << 20)).for_each(drop),
        }
        // It may be thrown out before it said all this.
        let _ = socket.write_all(&bytes);
        Injected::Done
    }
}

ironweave_btl_conformance::suite!(Loopback);
