//! The harness for the contract's suite over libfabric: which library, which provider, and a stranger who makes noise.

mod libraries;
mod stranger;

pub use libraries::{DEBIAN, V1_22, V2_5, library};

use ironweave_btl::Address;
use ironweave_btl_conformance::{Injected, Site};
use ironweave_btl_ofi::{Ofi, OfiConfig};
use ironweave_ffi::ofi::Ofi as Library;
use std::time::Duration;

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
        heads: true, // read so on some processors only
        ..OfiConfig::default()
    }
}

/// The rail, if this machine has such a thing. A part of the suite may ask for exactly this provider.
pub fn open(site: &Site, at: &str, provider: &str) -> Result<Ofi, String> {
    let config = config(site, at, provider);
    let mut rails = Ofi::open_all(&config).map_err(|error| error.to_string())?;
    Ok(rails.remove(0))
}

/// A stranger with an endpoint of its own on loopback.
pub fn inject(at: &str, provider: &str, address: &Address, round: u64) -> Injected {
    let near = |domain: &str| ["lo", "shm", "sm2"].contains(&domain);
    stranger::speak(Library::open_named(&library(at)), provider, near, address, round)
}

/// A module with the whole suite for each library and provider.
#[macro_export]
macro_rules! providers {
    ($($module:ident: $library:expr, $provider:expr $(, prepare $prepare:expr)? $(, cannot $cannot:expr)?;)*) => {
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

                    fn prepare() -> Result<(), String> {
                        $($prepare()?;)?
                        Ok(())
                    }

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
