//! Two ports of one process talk over each transport of each version of UCX that is installed. One library for each
//! process, so under `cargo nextest`; what is not there is skipped by name.

#![allow(clippy::unwrap_used)] // tests

use ironweave_ffi_uct::{Direction, EpId, Event, IfaceId, Name, Port, Resource, Status, Uct};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Debian's, and what `ci/setup` gets from the registry of Python packages.
fn library(version: &str) -> Option<String> {
    if version == "debian" {
        return Some(String::from("libuct.so.0"));
    }
    let lib =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../.venv").join(version).join("lib");
    let python = std::fs::read_dir(lib).ok()?.next()?.ok()?.path();
    let file = python.join("site-packages/libucx/lib/libuct.so.0");
    file.exists().then(|| file.display().to_string())
}

fn resource(test: &str, version: &str, transport: &str) -> Option<(&'static Uct, Resource)> {
    let uct = library(version).ok_or_else(|| format!("{version} is not installed"));
    let uct = uct.and_then(|name| Uct::open_named(&name).map_err(|error| error.to_string()));
    let found = uct.and_then(|uct| {
        let resources = uct.resources().map_err(|error| error.to_string())?;
        let wanted = |resource: &Resource| {
            resource.transport == transport && (transport != "tcp" || resource.device == "lo")
        };
        let found = resources.into_iter().find(wanted);
        found.map(|found| (uct, found)).ok_or_else(|| format!("no {transport}"))
    });
    match found {
        Ok(found) => Some(found),
        Err(why) => {
            println!("SKIP ffi_uct/{test}: {why}");
            None
        }
    }
}

struct Side {
    port: Port,
    iface: IfaceId,
    name: Name,
    heard: Vec<Vec<u8>>,
    broke: Vec<(u64, Status)>,
    /// Endpoints that told that they have room.
    room: Vec<u64>,
    /// Operations that are over.
    done: Vec<(u64, Status)>,
}

impl Side {
    fn open(uct: &'static Uct, resource: &Resource) -> Side {
        let mut port = Port::open(uct).unwrap();
        let size = || String::from("20000");
        let mut settings = vec![("NO_SUCH_SETTING", String::from("1"))];
        match resource.transport.as_str() {
            "tcp" => settings.extend([("TX_SEG_SIZE", size()), ("RX_SEG_SIZE", size())]),
            _ => settings.extend([("SEG_SIZE", size()), ("RX_BUFS_GROW", String::from("300"))]),
        }
        let iface = port.add(resource, &settings).unwrap();
        let max = port.attributes(iface).max_bcopy;
        assert!((19_900..=20_000).contains(&max), "the setting is not taken: {max}");
        let name = port.name(iface).unwrap();
        Side {
            port,
            iface,
            name,
            heard: Vec::new(),
            broke: Vec::new(),
            room: Vec::new(),
            done: Vec::new(),
        }
    }

    fn turn(&mut self) {
        self.port.tend();
        let Side { heard, broke, room, done, .. } = self;
        self.port.poll(|event| match event {
            Event::Arrived(message) => heard.push(message.to_vec()),
            Event::Broke { mark, status } => broke.push((mark, status)),
            Event::Room { mark } => room.push(mark),
            Event::Done { cookie, status } => done.push((cookie, status)),
        });
    }
}

fn talk(test: &str, version: &str, transport: &str) {
    let Some((uct, resource)) = resource(test, version, transport) else { return };
    let mut sides = [Side::open(uct, &resource), Side::open(uct, &resource)];
    let to = usize::from(transport != "self"); // which reaches its own interface only
    let name = sides[to].name.clone();
    assert!(sides[0].port.reaches(sides[0].iface, &name));
    let wrong = Name { device: name.device.clone(), iface: vec![1; name.iface.len() + 1] };
    assert!(!sides[0].port.reaches(sides[0].iface, &wrong), "an address of another length");
    let ep = sides[0].port.connect(sides[0].iface, &name, 77).unwrap();
    let attributes = *sides[0].port.attributes(sides[0].iface);
    let long = attributes.max_bcopy.min(8000);
    let since = Instant::now();
    let mut sent = 0_u64;
    while sides[to].heard.len() < 400 {
        assert!(since.elapsed() < Duration::from_secs(30), "{:?}", sides[0].port);
        if sent < 400 {
            let done = match sent % 2 {
                0 => sides[0].port.send_short(ep, sent, &[7; 5]).map_err(|status| (status, false)),
                _ => sides[0].port.send_packed(ep, long, |bytes| {
                    bytes.fill(3);
                    bytes[..8].copy_from_slice(&sent.to_ne_bytes());
                }),
            };
            match done {
                Ok(()) => sent += 1,
                Err((Status::NO_RESOURCE, false)) => {}
                other => panic!("{other:?}"),
            }
        }
        sides.iter_mut().for_each(Side::turn);
    }
    for (number, message) in sides[to].heard.iter().enumerate() {
        let len = if number % 2 == 0 { 13 } else { long };
        assert_eq!((message.len(), &message[..8]), (len, &(number as u64).to_ne_bytes()[..]));
    }
    while !sides[0].port.is_flushed(ep) {
        assert!(since.elapsed() < Duration::from_secs(30), "{:?}", sides[0].port);
        sides.iter_mut().for_each(Side::turn);
    }
    sides[0].port.check(ep).unwrap();
    sides[0].port.close(ep);
    assert_eq!(sides[0].port.send_short(ep, 1, b""), Err(Status::NOT_CONNECTED), "it was closed");
    let again: EpId = sides[0].port.connect(sides[0].iface, &name, 78).unwrap();
    assert_ne!(again, ep);
}

/// Turns both until `done`.
fn until(sides: &mut [Side; 2], what: &str, mut done: impl FnMut(&mut [Side; 2]) -> bool) {
    let since = Instant::now();
    while !done(sides) {
        assert!(since.elapsed() < Duration::from_secs(30), "{what}: {:?}", sides[0].port);
        sides.iter_mut().for_each(Side::turn);
    }
}

/// Fills an endpoint, whose peer does not read, until it takes nothing more.
fn fill(side: &Side, ep: EpId) {
    let len = side.port.attributes(side.iface).max_bcopy;
    for _ in 0..100_000 {
        match side.port.send_packed(ep, len, |bytes| bytes.fill(5)) {
            Ok(()) => {}
            Err((Status::NO_RESOURCE, false)) => return,
            other => panic!("{other:?}"),
        }
    }
    panic!("it takes everything");
}

/// An endpoint that is closed takes its request for room along, whatever stage that is in; its neighbours go on.
fn purge(test: &str, version: &str, transport: &str) {
    let Some((uct, resource)) = resource(test, version, transport) else { return };
    let mut sides = [Side::open(uct, &resource), Side::open(uct, &resource)];
    let name = sides[1].name.clone();
    for stage in 0..5_u64 {
        let iface = sides[0].iface;
        let ep = sides[0].port.connect(iface, &name, 100 + stage).unwrap();
        let neighbour = sides[0].port.connect(iface, &name, 200 + stage).unwrap();
        for ep in [ep, neighbour] {
            let heard = sides[1].heard.len();
            until(&mut sides, "the first message", |sides| {
                let _ = sides[0].port.send_short(ep, stage, b"");
                sides[1].heard.len() > heard
            });
        }
        let drain = |sides: &mut [Side; 2]| {
            until(sides, "room", |sides| sides[0].room.contains(&(100 + stage)));
        };
        if stage > 0 {
            fill(&sides[0], ep);
        }
        match stage {
            0 => assert!(!sides[0].port.wish(ep), "there is room"),
            1 => {}
            2 => assert!(
                sides[0].port.wish(ep) && sides[0].port.wish(ep),
                "asked twice is asked once"
            ),
            _ => {
                assert!(sides[0].port.wish(ep));
                drain(&mut sides);
            }
        }
        if stage == 4 {
            fill(&sides[0], ep);
            assert!(sides[0].port.wish(ep), "asked again");
        }
        let told = sides[0].room.iter().filter(|&&mark| mark == 100 + stage).count();
        sides[0].port.close(ep);
        assert!(!sides[0].port.wish(ep) && sides[0].port.is_flushed(ep), "nothing of it is left");
        let heard = sides[1].heard.len();
        let mark = 1000 + stage;
        let mut sent = false;
        until(&mut sides, "the neighbour's message", |sides| {
            sent = sent || sides[0].port.send_short(neighbour, mark, b"on").is_ok();
            sides[1].heard[heard..].iter().any(|message| message[..8] == mark.to_ne_bytes())
        });
        let now = sides[0].room.iter().filter(|&&mark| mark == 100 + stage).count();
        assert_eq!(now, told, "stage {stage}: a closed endpoint told of room");
        assert!(sides[0].broke.is_empty(), "{:?}", sides[0].broke);
        sides[0].port.close(neighbour);
    }
}

/// Whether the descriptor becomes readable in that time.
fn wakes(fd: i32, millis: i32) -> bool {
    let mut fds = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, alive through the call.
    #[allow(unsafe_code)]
    let ready = unsafe { libc::poll(&mut fds, 1, millis) };
    ready == 1
}

/// A message wakes who sleeps, into the interface and into an endpoint's queue.
fn sleep(test: &str, version: &str, transport: &str) {
    let Some((uct, resource)) = resource(test, version, transport) else { return };
    let mut sides = [Side::open(uct, &resource), Side::open(uct, &resource)];
    let shared = transport != "tcp";
    let (iface, name) = (sides[0].iface, sides[1].name.clone());
    let mut eps = vec![sides[0].port.connect(iface, &name, 1).unwrap()];
    if shared {
        let like = sides[1].iface;
        let [ours, theirs] = [
            sides[0].port.prepare_queue(iface, 2).unwrap(),
            sides[1].port.prepare_queue(like, 3).unwrap(),
        ];
        assert_eq!(sides[0].port.send_short(ours, 1, b""), Err(Status::NOT_CONNECTED));
        assert!(sides[0].port.join(ours, &name.device, b"wrong").is_err());
        let address = sides[1].port.ep_address(theirs).unwrap();
        sides[0].port.join(ours, &name.device, &address).unwrap();
        eps.push(ours);
    }
    let hour = Duration::from_secs(3600);
    for round in 0..20_u64 {
        for &ep in &eps {
            let heard = sides[1].heard.len();
            if round > 0 {
                let mut fd = None;
                until(&mut sides, "to fall asleep", |sides| {
                    fd = sides[1].port.arm(hour).unwrap();
                    fd.is_some()
                });
                let fd = fd.unwrap();
                assert!(!wakes(fd, 0), "nothing is there");
                sides[0].port.send_short(ep, round, b"wake up").unwrap();
                sides[0].turn();
                assert!(wakes(fd, 10_000), "slept through a message, round {round}");
            } else {
                until(&mut sides, "a connection", |sides| {
                    sides[0].port.send_short(ep, round, b"connects").is_ok()
                });
            }
            until(&mut sides, "the message", |sides| sides[1].heard.len() > heard);
        }
    }
    until(&mut sides, "to fall asleep", |sides| {
        sides[1].port.arm(Duration::from_millis(1)).unwrap().is_some()
    });
    let fd = sides[1].port.arm(Duration::from_millis(1)).unwrap().unwrap();
    assert!(wakes(fd, 10_000), "the timer");
    let fd = sides[1].port.arm(hour).unwrap().unwrap();
    assert!(!wakes(fd, 0), "it was set anew");
}

/// What a get over cma, which has no messages, ends with.
fn over(side: &mut Side, cookie: u64) -> Status {
    let since = Instant::now();
    loop {
        let mut ended = None;
        side.port.poll(|event| {
            if let Event::Done { cookie: of, status } = event {
                assert_eq!(of, cookie);
                ended = Some(status);
            }
        });
        if let Some(status) = ended {
            return status;
        }
        assert!(since.elapsed() < Duration::from_secs(30), "{:?}", side.port);
    }
}

/// Memory of the process that an interface of cma belongs to is read; an endpoint that is fenced or closed leaves the
/// reader's memory alone from then on.
fn read(test: &str, version: &str, transport: &str) {
    let Some((uct, resource)) = resource(test, version, transport) else { return };
    let mut port = Port::open(uct).unwrap();
    let iface = port.add(&resource, &[]).unwrap();
    let name = port.name(iface).unwrap();
    let (heard, broke, room, done) = (vec![], vec![], vec![], vec![]);
    let mut side = Side { port, iface, name, heard, broke, room, done };
    let name = side.name.clone();
    assert!(side.port.reaches(iface, &name));
    assert!(side.port.attributes(iface).max_get > 0 && !side.port.attributes(iface).need_rkey);
    let source: Vec<u8> = (0..5 << 20).map(|at: u32| (at / 7) as u8).collect();
    let (mut target, mut small) = (vec![0; source.len()], vec![0; 64]);
    #[allow(unsafe_code)]
    let get = |side: &mut Side, ep, target: &mut [u8], from: u64, cookie| {
        let to = (target.as_mut_ptr(), target.len());
        // SAFETY: the vectors are alive and touched by nobody else until the operation is over, or fenced.
        let begun = unsafe { side.port.rma(ep, Direction::Get, to, None, from, None, cookie) };
        begun.unwrap()
    };
    let ep = side.port.connect(iface, &name, 1).unwrap();
    let at = source.as_ptr() as u64;
    assert!(!get(&mut side, ep, &mut target, at, 7), "it takes several turns");
    assert!(!side.port.is_quiet(ep));
    assert_eq!(over(&mut side, 7), Status::OK);
    assert!(target == source && side.port.is_quiet(ep));
    // Memory that is not there.
    get(&mut side, ep, &mut target[..4096], 4096, 8);
    assert!(over(&mut side, 8).is_error());
    for close in [false, true] {
        let ep = side.port.connect(iface, &name, 2).unwrap();
        target.fill(9);
        get(&mut side, ep, &mut target, at, 9);
        get(&mut side, ep, &mut small, at, 10);
        if close {
            side.port.close(ep);
        } else {
            assert!(side.port.fence(ep, Duration::from_secs(20)));
        }
        target.fill(8);
        let mut told = Vec::new();
        for _ in 0..100 {
            side.port.poll(|event| match event {
                Event::Done { cookie, .. } => told.push(cookie),
                other => panic!("{other:?}"),
            });
        }
        assert_eq!(told, [9, 10], "each is told, once");
        assert!(target.iter().all(|&byte| byte == 8), "written after it came back");
    }
    assert_eq!(side.port.under_way(), 0);
}

/// How a message that is half out ends.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Half {
    /// The peer takes it.
    Taken,
    /// It is taken back.
    Fenced,
    /// The same, by the end of its endpoint.
    Closed,
    /// The peer is gone.
    Broken,
}

/// Messages out of the sender's memory over a stream between two endpoints whose receiver does not look: the one that is half out comes
/// to its end once, whatever becomes of it, and nobody reads its memory any more.
fn half(test: &str, version: &str, transport: &str) {
    let Some((uct, resource)) = resource(test, version, transport) else { return };
    for end in [Half::Taken, Half::Fenced, Half::Closed, Half::Broken] {
        let mut sides = [Side::open(uct, &resource), Side::open(uct, &resource)];
        let mut line = |at: usize| {
            let Side { port, iface, .. } = &mut sides[at];
            let ep = port.prepare(*iface, at as u64).unwrap();
            (ep, port.ep_address(ep).unwrap())
        };
        let ends = [line(0), line(1)];
        for at in [0, 1] {
            let (device, address) = (sides[1 - at].name.device.clone(), &ends[1 - at].1);
            sides[at].port.join(ends[at].0, &device, address).unwrap();
        }
        let ep = ends[0].0;
        until(&mut sides, "the first message", |sides| {
            let _ = sides[0].port.send_short(ep, 1, b"");
            !sides[1].heard.is_empty()
        });
        let mut memory: Vec<u8> = (0..19_000).map(|at: u32| (at / 3) as u8).collect();
        let right = memory.clone();
        let mut sent = 0;
        let half = loop {
            sent += 1;
            assert!(sent < 100_000, "the socket takes everything");
            let piece = (memory.as_ptr(), memory.len(), None);
            let header = u64::to_ne_bytes(sent);
            #[allow(unsafe_code)]
            // SAFETY: the memory is written when the message is over only.
            match unsafe { sides[0].port.send_pieces(ep, &header, &[piece], sent) } {
                Ok(true) => {}
                Ok(false) => break sent,
                other => panic!("{other:?}"),
            }
        };
        assert!(!sides[0].port.is_quiet(ep));
        let [mut sender, mut receiver] = sides;
        for _ in 0..100 {
            sender.turn();
        }
        assert_eq!(sender.done, [], "nobody takes it");
        let hour = Duration::from_secs(3600);
        let bed = sender.port.arm(hour).unwrap().expect("nothing to do before there is room");
        assert!(!wakes(bed, 20), "nobody made room");
        let mut receiver = match end {
            Half::Taken => {
                let since = Instant::now();
                while !wakes(bed, 0) {
                    assert!(since.elapsed() < Duration::from_secs(30), "room wakes nobody");
                    receiver.turn();
                }
                Some(receiver)
            }
            Half::Fenced => {
                assert!(sender.port.fence(ep, Duration::ZERO), "at once");
                sender.turn();
                assert!(sender.port.is_quiet(ep));
                memory.fill(99);
                sender.port.close(ep);
                Some(receiver)
            }
            Half::Closed => {
                sender.port.close(ep);
                memory.fill(99);
                Some(receiver)
            }
            Half::Broken => {
                receiver.turn();
                drop(receiver);
                None
            }
        };
        let since = Instant::now();
        let is_told = |sender: &Side, receiver: &Option<Side>| match receiver {
            _ if sender.done.is_empty() => false,
            Some(receiver) if end == Half::Taken => receiver.heard.len() > half as usize,
            Some(receiver) => !receiver.broke.is_empty(),
            None => !sender.broke.is_empty(),
        };
        while !is_told(&sender, &receiver) {
            let at = (&sender.done, &sender.broke, receiver.as_ref().map(|it| it.heard.len()));
            assert!(since.elapsed() < Duration::from_secs(30), "{end:?}: {at:?}");
            sender.turn();
            receiver.iter_mut().for_each(Side::turn);
        }
        for _ in 0..100 {
            sender.turn();
        }
        assert!(
            matches!(sender.done[..], [(of, status)] if of == half && status.is_error() == (end != Half::Taken))
        );
        assert_eq!(sender.port.under_way(), 0);
        for message in
            receiver.iter().flat_map(|receiver| &receiver.heard).skip_while(|it| it.len() == 8)
        {
            assert!(message[8..] == right, "{end:?}: a whole message of other bytes");
        }
        sender.port.close(ep);
    }
}

macro_rules! each {
    ($what:ident: $($name:ident: $version:literal, $transport:literal;)*) => {
        $(
            #[test]
            fn $name() {
                $what(stringify!($name), $version, $transport);
            }
        )*
    };
}

each! { talk:
    tcp_of_debian: "debian", "tcp";
    posix_of_debian: "debian", "posix";
    sysv_of_debian: "debian", "sysv";
    self_of_debian: "debian", "self";
    tcp_of_1_22: "ucx-1.22", "tcp";
    posix_of_1_22: "ucx-1.22", "posix";
    sysv_of_1_22: "ucx-1.22", "sysv";
    self_of_1_22: "ucx-1.22", "self";
}

each! { read:
    reads_over_cma_of_debian: "debian", "cma";
    reads_over_cma_of_1_22: "ucx-1.22", "cma";
}

each! { half:
    half_a_message_over_tcp_of_debian: "debian", "tcp";
    half_a_message_over_tcp_of_1_22: "ucx-1.22", "tcp";
}

each! { purge:
    purges_tcp_of_debian: "debian", "tcp";
    purges_posix_of_debian: "debian", "posix";
    purges_sysv_of_debian: "debian", "sysv";
    purges_tcp_of_1_22: "ucx-1.22", "tcp";
    purges_posix_of_1_22: "ucx-1.22", "posix";
    purges_sysv_of_1_22: "ucx-1.22", "sysv";
}

each! { sleep:
    sleeps_on_tcp_of_debian: "debian", "tcp";
    sleeps_on_posix_of_debian: "debian", "posix";
    sleeps_on_sysv_of_debian: "debian", "sysv";
    sleeps_on_tcp_of_1_22: "ucx-1.22", "tcp";
    sleeps_on_posix_of_1_22: "ucx-1.22", "posix";
    sleeps_on_sysv_of_1_22: "ucx-1.22", "sysv";
}
