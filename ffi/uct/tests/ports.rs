//! Two ports of one process talk over each transport of each version of UCX that is installed. One library for each
//! process, so under `cargo nextest`; what is not there is skipped by name.

#![allow(clippy::unwrap_used)] // tests

use ironweave_ffi_uct::{EpId, Event, IfaceId, Name, Port, Resource, Status, Uct};
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
}

impl Side {
    fn open(uct: &'static Uct, resource: &Resource) -> Side {
        let mut port = Port::open(uct).unwrap();
        let iface = port.add(resource, &[("NO_SUCH_SETTING", String::from("1"))]).unwrap();
        let name = port.name(iface).unwrap();
        Side { port, iface, name, heard: Vec::new(), broke: Vec::new() }
    }

    fn turn(&mut self) {
        self.port.tend();
        let (heard, broke) = (&mut self.heard, &mut self.broke);
        self.port.poll(|event| match event {
            Event::Arrived(message) => heard.push(message.to_vec()),
            Event::Broke { mark, status } => broke.push((mark, status)),
            Event::Room { .. } | Event::Done { .. } => {}
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

macro_rules! talks {
    ($($name:ident: $version:literal, $transport:literal;)*) => {
        $(
            #[test]
            fn $name() {
                talk(stringify!($name), $version, $transport);
            }
        )*
    };
}

talks! {
    tcp_of_debian: "debian", "tcp";
    posix_of_debian: "debian", "posix";
    sysv_of_debian: "debian", "sysv";
    self_of_debian: "debian", "self";
    tcp_of_1_22: "ucx-1.22", "tcp";
    posix_of_1_22: "ucx-1.22", "posix";
    sysv_of_1_22: "ucx-1.22", "sysv";
    self_of_1_22: "ucx-1.22", "self";
}
