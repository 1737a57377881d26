//! The contract's suite, once for each version of UCX and transport: real processes, killed for real.
//!
//! Versions: Debian's 1.13, and the 1.22 of a Python wheel (`ci/setup`). What is not installed is skipped by name.

mod stranger;

use ironweave_btl::{Address, Btl};
use ironweave_btl_conformance::{Harness, Injected, Place, Site};
use ironweave_btl_uct::{Connect, Uct, UctConfig};
use ironweave_ffi_uct::Uct as Library;
use std::path::PathBuf;
use std::time::Duration;

/// A library by where it comes from.
fn library(version: &str) -> Result<String, String> {
    if version == "debian" {
        return Ok(String::from("libuct.so.0"));
    }
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../.venv").join(version);
    let missing = || format!("{version} is not installed");
    let python = std::fs::read_dir(folder.join("lib")).ok().and_then(|mut all| all.next()?.ok());
    let file = python.ok_or_else(missing)?.path().join("site-packages/libucx/lib/libuct.so.0");
    if file.exists() { Ok(file.display().to_string()) } else { Err(missing()) }
}

fn open(site: &Site, version: &str, transport: &str, connect: Connect) -> Result<Uct, String> {
    let config = UctConfig {
        me: site.me,
        secret: site.secret,
        job: site.job.clone(),
        library: Some(library(version)?),
        transports: transport.split('+').map(str::to_owned).collect(),
        devices: if transport == "tcp" { vec![String::from("lo")] } else { Vec::new() },
        rails: 1,
        connect_timeout: Duration::from_secs(20),
        connect,
        ..UctConfig::default()
    };
    let mut rails = Uct::open_all(&config).map_err(|error| error.to_string())?;
    Ok(rails.remove(0))
}

macro_rules! rails {
    (@suite $harness:ty,) => {
        ironweave_btl_conformance::suite!($harness);
    };
    (@suite $harness:ty, $($test:ident)+) => {
        ironweave_btl_conformance::suite!(@tests $harness, $($test)+);
    };
    ($($module:ident: $version:expr, $transport:expr, $place:expr, $connect:expr $(, $test:ident)*;)*) => {
        $(
            mod $module {
                use super::*;

                struct Here;

                impl Harness for Here {
                    type Btl = Uct;
                    type World = ();
                    const PLACE: Place = $place;

                    fn world(_: &Site) {}

                    fn open((): &(), site: &Site) -> Result<Uct, String> {
                        open(site, $version, $transport, $connect)
                    }

                    fn inject(_: &Site, address: &Address, round: u64) -> Injected {
                        if $place == Place::Alone {
                            return Injected::Unsupported; // it hears nobody else
                        }
                        let library = library($version).expect("the rail opened it");
                        let library = Library::open_named(&library).expect("it is open");
                        let device = ($transport == "tcp").then_some("lo");
                        stranger::speak(library, $transport, device, address, round)
                            .expect("a stranger can send");
                        Injected::Done
                    }

                    fn many() -> u32 {
                        12
                    }
                }

                rails!(@suite Here, $($test)*);
            }
        )*
    };
}

rails! {
    tcp_1_13: "debian", "tcp", Place::Processes, Connect::Best;
    posix_1_13: "debian", "posix", Place::Processes, Connect::Best;
    sysv_1_13: "debian", "sysv", Place::Processes, Connect::Best;
    self_1_13: "debian", "self", Place::Alone, Connect::Best;
    tcp_to_interfaces_1_13: "debian", "tcp", Place::Processes, Connect::Interfaces;
    tcp_1_22: "ucx-1.22", "tcp", Place::Processes, Connect::Best;
    posix_1_22: "ucx-1.22", "posix", Place::Processes, Connect::Best;
    sysv_1_22: "ucx-1.22", "sysv", Place::Processes, Connect::Best;
}

// Beside them, memory is read by way of the kernel: the promises that are about memory, once more.
rails! {
    posix_cma_1_13: "debian", "posix+cma", Place::Processes, Connect::Best,
        connects_once_and_reports_up, gives_everything_back_when_invalidated,
        comes_back_after_invalidation, survives_the_death_of_a_peer, moves_registered_memory,
        sleeps_and_wakes, leaves_nothing_behind;
    sysv_cma_1_13: "debian", "sysv+cma", Place::Processes, Connect::Best,
        connects_once_and_reports_up, gives_everything_back_when_invalidated,
        comes_back_after_invalidation, survives_the_death_of_a_peer, moves_registered_memory,
        sleeps_and_wakes, leaves_nothing_behind;
    posix_cma_1_22: "ucx-1.22", "posix+cma", Place::Processes, Connect::Best,
        connects_once_and_reports_up, gives_everything_back_when_invalidated,
        comes_back_after_invalidation, survives_the_death_of_a_peer, moves_registered_memory,
        sleeps_and_wakes, leaves_nothing_behind;
}

/// What goes over a rail that is never lost is kept nowhere: a network must not count as one.
#[test]
fn only_memory_is_never_lost() {
    for (transport, lossless) in [("tcp", false), ("posix", true), ("sysv", true), ("self", true)] {
        let config = UctConfig {
            library: Some(library("debian").expect("a name")),
            transports: vec![transport.to_owned()],
            devices: if transport == "tcp" { vec![String::from("lo")] } else { Vec::new() },
            rails: 1,
            ..UctConfig::default()
        };
        match Uct::open_all(&config) {
            Ok(rails) => assert_eq!(rails[0].caps().lossless, lossless, "{transport}"),
            Err(error) => println!("SKIP uct/only_memory_is_never_lost: {transport}: {error}"),
        }
    }
}
