//! The harness for the contract's suite over libfabric: which library, which provider, and a stranger who makes noise.

mod libraries;

pub use libraries::{DEBIAN, V1_22, V2_5, library};

use ironweave_btl::Address;
use ironweave_btl_conformance::{Injected, Site};
use ironweave_btl_ofi::{Ofi, OfiConfig, endpoint_name};
use ironweave_ffi::ofi::{Errno, Ofi as Library, Options, Port};
use std::time::{Duration, Instant};

fn config(site: &Site, at: &str, provider: &str) -> OfiConfig {
    OfiConfig {
        me: site.me,
        secret: site.secret,
        job: site.job.clone(),
        library: Some(library(at)),
        include: vec![provider.to_owned()],
        refused_too: true,
        domains: ["lo", "127.0.0.1/32", "shm", "sm2"].map(str::to_owned).to_vec(),
        rails: 1,
        peers: 16,
        connect_timeout: Duration::from_secs(20),
        waitable: true,
        ..OfiConfig::default()
    }
}

/// The rail, if this machine has such a thing. A part of the suite may ask for exactly this provider.
pub fn open(site: &Site, at: &str, provider: &str) -> Result<Ofi, String> {
    let config = config(site, at, provider);
    let mut rails = Ofi::open_all(&config).map_err(|error| error.to_string())?;
    Ok(rails.remove(0))
}

/// A stranger with an endpoint of its own: noise, and messages that look a little like ours.
pub fn inject(at: &str, provider: &str, address: &Address, round: u64) -> Injected {
    let Some(name) = endpoint_name(&address.bytes) else { return Injected::Unsupported };
    let port = Library::open_named(&library(at)).and_then(|library| {
        let mut offers = library.offers(provider)?;
        offers.retain(|way| {
            way.provider() == provider && ["lo", "shm", "sm2"].contains(&&*way.domain())
        });
        let way = offers.swap_remove(0);
        let options = Options {
            buffers: vec![(4, 4096)],
            receives: 2,
            receive_len: 8192,
            longest: 4096,
            multi_recv: true,
            peers: 1,
            waitable: false,
            close_busy: true,
            early_completions: false,
        };
        Port::open(way, options)
    });
    let Ok(mut port) = port else { return Injected::Unsupported };
    let Ok(to) = port.insert(&name) else { return Injected::Unsupported };
    let len = (round * 37 % 4000) as usize;
    let mut noise: Vec<u8> = (0..len as u64).map(|i| (i * round / 7) as u8).collect();
    if !round.is_multiple_of(3) && noise.len() > 16 {
        noise[0] = 0xB0 + (round % 14) as u8;
        noise[1] = (round % 80) as u8;
        noise[8..11].fill(0);
    }
    let since = Instant::now();
    let mut slot = port.buffer(len);
    if let Some(slot) = &slot {
        port.bytes_mut(slot)[..len].copy_from_slice(&noise);
    }
    while let Some(full) = slot.take() {
        match port.send(full, len, to, 1) {
            Err((Errno::AGAIN, full)) if since.elapsed() < Duration::from_secs(5) => {
                slot = Some(full);
            }
            _ => {}
        }
        let _ = port.poll(|_| {});
    }
    while port.under_way() > 0 && since.elapsed() < Duration::from_secs(5) {
        let _ = port.poll(|_| {});
        std::thread::yield_now();
    }
    Injected::Done
}

/// A module with the whole suite for each library and provider.
#[macro_export]
macro_rules! providers {
    ($($module:ident: $library:expr, $provider:expr $(, cannot $cannot:expr)?;)*) => {
        $(
            mod $module {
                use super::*;
                use $crate::support::{inject, open};
                use ironweave_btl::Address;
                use ironweave_btl_conformance::{Harness, Injected, Place, Site};
                use ironweave_btl_ofi::Ofi;

                struct Here;

                impl Harness for Here {
                    type Btl = Ofi;
                    type World = ();
                    const PLACE: Place = Place::Processes;

                    fn world(_: &Site) {}

                    fn open((): &(), site: &Site) -> Result<Ofi, String> {
                        open(site, $library, $provider)
                    }

                    fn inject(_: &Site, address: &Address, round: u64) -> Injected {
                        inject($library, $provider, address, round)
                    }

                    fn many() -> u32 {
                        12
                    }

                    fn cannot(test: &str) -> Option<&'static str> {
                        let lists: &[&[(&str, &'static str)]] = &[$($cannot)?];
                        let mut all = lists.iter().flat_map(|list| list.iter());
                        all.find(|(name, _)| *name == test).map(|(_, why)| *why)
                    }
                }

                ironweave_btl_conformance::suite!(Here);
            }
        )*
    };
}
