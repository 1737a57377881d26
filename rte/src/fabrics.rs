//! What libfabric offers on this machine, for `ironweave info` and `ironweave doctor`. Asks the library, opens no device.

use ironweave_ffi::ofi::{Ofi, OfiError};
use std::path::PathBuf;

/// A provider and where it works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// libfabric's name for it.
    pub name: String,
    /// Its domains: devices, interfaces.
    pub domains: Vec<String>,
}

/// The library and its providers of reliable datagrams, in the library's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fabrics {
    /// Major and minor version.
    pub version: (u32, u32),
    /// The file.
    pub path: PathBuf,
    /// What it offers.
    pub providers: Vec<Provider>,
}

/// Asks the library that a job would use (`IRONWEAVE_OFI_LIB`, or libfabric.so.1). Takes up to a second: providers look
/// for their devices.
///
/// # Errors
/// In words: there is none, or it is too old.
pub fn fabrics() -> Result<Fabrics, OfiError> {
    let ofi = Ofi::open()?;
    let mut providers: Vec<Provider> = Vec::new();
    for way in ofi.offers("")? {
        let (name, domain) = (way.provider(), way.domain());
        let at = providers.iter().position(|known| known.name == name).unwrap_or_else(|| {
            providers.push(Provider { name, domains: Vec::new() });
            providers.len() - 1
        });
        if !providers[at].domains.contains(&domain) {
            providers[at].domains.push(domain);
        }
    }
    Ok(Fabrics { version: ofi.version(), path: ofi.path(), providers })
}

impl std::fmt::Display for Fabrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "libfabric {}.{} ({}): ", self.version.0, self.version.1, self.path.display())?;
        if self.providers.is_empty() {
            return f.write_str("no provider of reliable datagrams");
        }
        for (at, Provider { name, domains }) in self.providers.iter().enumerate() {
            let comma = if at == 0 { "" } else { "; " };
            let name = name.replace(';', "+"); // as people read a list
            write!(f, "{comma}{name} on {}", domains.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_are_listed_with_their_domains() {
        let fabrics = Fabrics {
            version: (1, 17),
            path: "/lib/libfabric.so.1".into(),
            providers: vec![
                Provider { name: "tcp;ofi_rxm".into(), domains: vec!["eth0".into(), "lo".into()] },
                Provider { name: "shm".into(), domains: vec!["shm".into()] },
            ],
        };
        assert_eq!(
            fabrics.to_string(),
            "libfabric 1.17 (/lib/libfabric.so.1): tcp+ofi_rxm on eth0, lo; shm on shm"
        );
    }
}
