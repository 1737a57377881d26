//! The suite that every byte transport passes, between real processes on the devices that are given: in the virtual
//! machine, on Soft-RoCE between two hosts (`ci/hwtests`).
#![allow(unsafe_code)] // a stranger posts datagrams by hand

use ironweave_btl::Address;
use ironweave_btl_conformance::{Harness, Injected, Place, Site};
use ironweave_btl_verbs::{Ip, OnDemand, Ring, Verbs, VerbsConfig};
use ironweave_ffi_verbs::{
    Access, AddressHandle, Channel, CompletionQueue, Device, Kind, Operation, Path, QueuePair, Sge,
    Slab, VerbsError, Wc,
};
use ironweave_hwtests::fabric::{Fabric, PAGING, is_ipv4};

struct FirstRail;

impl Harness for FirstRail {
    type Btl = Verbs;
    type World = ();
    const PLACE: Place = Place::Processes;

    fn world(_: &Site) {}

    fn open((): &(), site: &Site) -> Result<Verbs, String> {
        let fabric = Fabric::given().ok_or("no devices are given (IRONWEAVE_VERBS_HOSTS)")?;
        let mut config = VerbsConfig {
            me: site.me,
            secret: site.secret,
            job: site.job.clone(),
            include: vec![fabric.device(site.me.0 as usize, 0).to_owned()],
            ip: if over_ipv6() { Ip::V6 } else { Ip::Any },
            on_demand: on_demand(),
            ..VerbsConfig::default()
        };
        if by_ring() {
            (config.ring, config.ring_after, config.ring_size) = (Ring::On, 1, 4096);
        }
        let mut rails = Verbs::open_all(config).map_err(|error| error.to_string())?;
        Ok(rails.remove(0))
    }

    fn inject(site: &Site, address: &Address, round: u64) -> Injected {
        let Some(fabric) = Fabric::given() else { return Injected::Unsupported };
        let device = fabric.device(site.me.0 as usize, 0);
        match address.bytes[19] {
            3 => stranger_over_ip(address, round).expect("a stranger can send datagrams"),
            _ => stranger(device, address, round).expect("a stranger can send datagrams"),
        }
        Injected::Done
    }

    fn many() -> u32 {
        16
    }
}

/// Whether this run is to use the IPv6 addresses of the virtual machine.
fn over_ipv6() -> bool {
    std::env::var_os("IRONWEAVE_VERBS_IPV6").is_some()
}

/// Whether in this run all memory is paged on demand that can be.
fn on_demand() -> OnDemand {
    match std::env::var_os(PAGING) {
        Some(_) => OnDemand::Always,
        None => OnDemand::Auto,
    }
}

/// Whether in this run all frames are to go by ring that can.
fn by_ring() -> bool {
    std::env::var_os("IRONWEAVE_VERBS_RING").is_some()
}

/// Noise, or what looks like a greeting.
fn letter(round: u64) -> Vec<u8> {
    let mut letter: Vec<u8> = (0..64 + round % 200).map(|at| ((at * round) >> 3) as u8).collect();
    if round.is_multiple_of(2) {
        // Of the right form and length, sealed by nobody.
        letter.resize(ironweave_btl_verbs::wire::GREETING, 0);
        letter[..8].copy_from_slice(&[b'I', b'W', b'v', b'G', 1 + (round / 2 % 6) as u8, 3, 0, 0]);
        letter[8..16].copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]); // from 1 to 0
    }
    letter
}

/// On iWARP: noise to the socket for greetings.
fn stranger_over_ip(address: &Address, round: u64) -> std::io::Result<()> {
    let bytes = &address.bytes;
    let port = |at: usize| u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"));
    let gid: [u8; 16] = bytes[1..17].try_into().expect("sixteen bytes");
    let host = std::net::Ipv6Addr::from(gid).to_canonical();
    let letter = letter(round);
    let socket = std::net::UdpSocket::bind(("0.0.0.0", 0))?;
    // Not to where connections are made: noise there was seen to bring down siw, and the kernel with it.
    socket.send_to(&letter, (host, port(21)))?;
    Ok(())
}

/// Sends noise, and what looks like a greeting, to the datagram queue pair at `address`.
fn stranger(device: &str, address: &Address, round: u64) -> Result<(), VerbsError> {
    // version, GID, LID, link, MTU, queue pair, key: see `address.rs`.
    let bytes = &address.bytes;
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let gid = bytes[1..17].try_into().expect("sixteen bytes");
    let (number, key) = (word(21), word(25));
    let device = Device::open(device)?;
    let channel = Channel::new(&device)?;
    let completions = CompletionQueue::new(&device, &channel, 16)?;
    let queue_pair =
        QueuePair::new(&device, Kind::Datagram, &completions, &completions, None, (4, 4), 1, 0)?;
    queue_pair.open_for_datagrams(1, 0, 0x1234)?;
    // The entry of the same family.
    let same =
        |ours: &[u8; 16]| is_ipv4(ours) == is_ipv4(&gid) && ours[0] != 0xfe && *ours != [0; 16];
    let index = (0..8).find(|&index| device.gid(1, index).is_ok_and(|ours| same(&ours)));
    let path = Path {
        port: 1,
        gid_index: index.unwrap_or(0) as u8,
        global: true,
        gid,
        lid: 0,
        service_level: 0,
        traffic_class: 0,
    };
    let to = AddressHandle::new(&device, &path)?;
    let letter = letter(round);
    let slab = Slab::new(&device, 4096, Access::LocalRead)?;
    // SAFETY: nothing was posted yet.
    unsafe { slab.bytes_mut(0, letter.len()) }.copy_from_slice(&letter);
    let piece = Sge {
        addr: slab.address(0),
        length: letter.len() as u32,
        lkey: slab.registration().lkey(),
    };
    // SAFETY: the slab outlives the queue pair's request, which is waited for.
    unsafe {
        queue_pair.post(1, Operation::Datagram { to: &to, number, key }, &[piece], true, false)?;
    }
    let mut done = [Wc::default()];
    while completions.poll(&mut done) == Some(0) {
        std::thread::yield_now();
    }
    drop(queue_pair);
    Ok(())
}

ironweave_btl_conformance::suite!(FirstRail);
