//! The contract's suite on this transport: as it is opened by default, and with the rarer choices.

use ironweave_btl::{Address, Peer};
use ironweave_btl_conformance::{Harness, Injected, Place, Site};
use ironweave_btl_shm::{Shm, ShmConfig, SingleCopy, Stores};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketType};

fn config(site: &Site) -> ShmConfig {
    ShmConfig::new(site.me, site.job.clone(), site.secret)
}

/// A stranger on the socket: noise, greetings that go wrong, silence.
fn inject(site: &Site, address: &Address, round: u64) -> Injected {
    let Some(name) = address.bytes.get(33..) else { return Injected::Unsupported };
    let connect = || {
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).ok()?;
        rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name).ok()?).ok()?;
        Some(socket)
    };
    let Some(socket) = connect() else { return Injected::Done };
    let mut hello = b"IWs\x03\x01\0\0\0".to_vec();
    hello.extend(Peer(site.me.0 ^ 1).0.to_le_bytes());
    hello.extend(0_u32.to_le_bytes());
    hello.extend([round as u8; 32]);
    let mut offer = b"IWs\x03\x03\0\0\0".to_vec();
    offer.extend([0x55; 32]);
    offer.extend([0; 24]);
    let noise: Vec<u8> = (0..round * 37 % 500).map(|i| (i * round) as u8).collect();
    let packets: &[&[u8]] = match round % 6 {
        0 => &[&noise],
        1 => &[&hello, &noise],
        2 => &[&hello, &offer],
        3 => &[&hello],
        4 => &[&offer],
        _ => &[],
    };
    for packet in packets {
        if !packet.is_empty() {
            let _ = rustix::net::send(&socket, packet, SendFlags::NOSIGNAL); // it may have hung up
        }
    }
    Injected::Done
}

mod default {
    use super::*;

    struct Default;

    impl Harness for Default {
        type Btl = Shm;
        type World = ();
        const PLACE: Place = Place::Processes;

        fn world(_: &Site) {}

        fn open((): &(), site: &Site) -> Result<Shm, String> {
            Shm::open(config(site)).map_err(|error| error.to_string())
        }

        fn inject(site: &Site, address: &Address, round: u64) -> Injected {
            inject(site, address, round)
        }
    }

    ironweave_btl_conformance::suite!(Default);
}

mod rare_choices {
    use super::*;

    struct Rare;

    impl Harness for Rare {
        type Btl = Shm;
        type World = ();
        const PLACE: Place = Place::Processes;

        fn world(_: &Site) {}

        fn open((): &(), site: &Site) -> Result<Shm, String> {
            let config = ShmConfig {
                ring_bytes: 16 << 10,
                bulk_bytes: 64 << 10,
                single_copy: SingleCopy::Cma,
                stores: Stores::Streaming,
                oversubscribed: true,
                ..config(site)
            };
            Shm::open(config).map_err(|error| error.to_string())
        }

        fn inject(site: &Site, address: &Address, round: u64) -> Injected {
            inject(site, address, round)
        }

        fn many() -> u32 {
            200
        }
    }

    ironweave_btl_conformance::suite!(Rare);
}

/// Single copy, by both sides.
mod single_copy {
    use super::*;

    struct Single;

    impl Harness for Single {
        type Btl = Shm;
        type World = ();
        const PLACE: Place = Place::Processes;

        fn world(_: &Site) {}

        fn open((): &(), site: &Site) -> Result<Shm, String> {
            let config = ShmConfig { single_copy: SingleCopy::Cma, ..config(site) };
            Shm::open(config).map_err(|error| error.to_string())
        }

        fn inject(site: &Site, address: &Address, round: u64) -> Injected {
            inject(site, address, round)
        }
    }

    ironweave_btl_conformance::suite!(Single);
}

/// Every process tries by itself which way is faster where its launcher did not, and two may find differently.
mod unlike_choices {
    use super::*;

    struct Unlike;

    impl Harness for Unlike {
        type Btl = Shm;
        type World = ();
        const PLACE: Place = Place::Processes;

        fn world(_: &Site) {}

        fn open((): &(), site: &Site) -> Result<Shm, String> {
            let alone = site.me == Peer(0);
            let single_copy = if alone { SingleCopy::Cma } else { SingleCopy::None };
            let config = ShmConfig { single_copy, ..config(site) };
            Shm::open(config).map_err(|error| error.to_string())
        }

        fn inject(site: &Site, address: &Address, round: u64) -> Injected {
            inject(site, address, round)
        }
    }

    ironweave_btl_conformance::suite!(Unlike);
}
