//! What libfabric offers on this machine, for `ironweave info` and `ironweave doctor`. Asks the library, opens no device.

use ironweave_ffi::ofi::{Ofi, OfiError, Standing, standing};
use std::path::PathBuf;

/// A provider and where it works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// libfabric's name for it.
    pub name: String,
    /// Its own version, major and minor.
    pub version: (u32, u32),
    /// Its domains: devices, interfaces.
    pub domains: Vec<String>,
    /// Whether jobs use it.
    pub standing: Standing,
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
            let (version, standing) = (way.provider_version(), standing(&name));
            providers.push(Provider { name, version, domains: Vec::new(), standing });
            providers.len() - 1
        });
        if !providers[at].domains.contains(&domain) {
            providers[at].domains.push(domain);
        }
    }
    Ok(Fabrics { version: ofi.version(), path: ofi.path(), providers })
}

impl Fabrics {
    /// The provider that a job takes when none is named: the library's first that is trusted.
    #[must_use]
    pub fn taken(&self) -> Option<&Provider> {
        self.providers.iter().find(|provider| provider.standing == Standing::Default)
    }

    /// Whether jobs use `provider`, and if not why, in words. A job uses one.
    #[must_use]
    pub fn verdict(&self, provider: &Provider) -> String {
        let named = "used where btl_ofi_provider_include names it";
        match (provider.standing, self.taken()) {
            (Standing::Default, Some(first)) if first.name != provider.name => {
                format!("{named}: {} comes first", first.name)
            }
            (Standing::Default, _) => String::from("used where ofi is (--mca btl self,ofi)"),
            (Standing::Named, _) => String::from(named),
            (Standing::Refused(why), _) => format!("refused: {why}"),
        }
    }
}

impl std::fmt::Display for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Provider { name, version, domains, .. } = self;
        write!(f, "{name} {}.{} on {}", version.0, version.1, domains.join(", "))
    }
}

impl std::fmt::Display for Fabrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "libfabric {}.{} ({})", self.version.0, self.version.1, self.path.display())?;
        if self.providers.is_empty() {
            return f.write_str(": no provider of reliable datagrams");
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
                provider("shm", &["shm"]),
                provider("verbs;ofi_rxm", &["mlx5_0"]),
                provider("tcp;ofi_rxm", &["eth0", "lo"]),
            ],
        };
        assert_eq!(fabrics.to_string(), "libfabric 1.17 (/lib/libfabric.so.1)");
        let taken = fabrics.taken().expect("verbs is trusted");
        assert_eq!(taken.to_string(), "verbs;ofi_rxm 117.0 on mlx5_0");
        let verdicts: Vec<String> =
            fabrics.providers.iter().map(|provider| fabrics.verdict(provider)).collect();
        assert!(verdicts[0].starts_with("refused: a process that is killed"), "{verdicts:?}");
        assert_eq!(verdicts[1], "used where ofi is (--mca btl self,ofi)");
        let beside = "used where btl_ofi_provider_include names it: verbs;ofi_rxm comes first";
        assert_eq!(verdicts[2], beside);
    }

    fn provider(name: &str, domains: &[&str]) -> Provider {
        let domains = domains.iter().map(|&domain| domain.to_owned()).collect();
        Provider { name: name.into(), version: (117, 0), domains, standing: standing(name) }
    }
}
