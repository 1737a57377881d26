//! Which of the library's transports jobs take, which they take where one is named, and what the others lack: one list, for
//! the transport above and for people.

use crate::attributes::Attributes;
use crate::library::{Resource, Uct, UctError};
use crate::port::Port;

/// The transport between processes of one host that is taken when none is named.
pub const MEMORY: &str = "posix";
/// What copies by way of the kernel, beside transports of shared memory: it has no keys, and carries no messages.
pub const KERNEL: &str = "cma";
/// Networks taken when none is named: the first of these that is there.
pub const NETWORKS: [&str; 4] = ["rc_mlx5", "dc_mlx5", "rc_verbs", "tcp"];
/// Longest message of the smallest transport that can be used, in bytes.
pub const MESSAGE_MIN: usize = 2048;
/// Longest address of an endpoint that is exchanged, in bytes.
pub const ADDRESS_MAX: usize = 128;

/// Whether jobs use a transport.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Where uct is named.
    Default,
    /// Where it is named itself.
    Named,
    /// Where it is named beside one of shared memory: it moves memory, and carries no messages.
    Beside,
    /// Never: why.
    Unfit(String),
}

/// A transport and the devices it runs on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transport {
    /// UCX's name for it.
    pub name: String,
    /// Devices, in the library's order.
    pub devices: Vec<String>,
    /// Whether jobs use it.
    pub standing: Standing,
}

impl Transport {
    /// Its standing in words for people.
    #[must_use]
    pub fn verdict(&self) -> String {
        match &self.standing {
            Standing::Default => String::from("taken where uct is named (--mca btl self,uct)"),
            Standing::Named => {
                format!("taken where it is named (--mca btl_uct_transports {})", self.name)
            }
            Standing::Beside => {
                format!("taken beside posix or sysv (--mca btl_uct_transports posix,{})", self.name)
            }
            Standing::Unfit(why) => format!("not used: {why}"),
        }
    }
}

/// The names of what is taken when nothing is named.
#[must_use]
pub fn defaults(resources: &[Resource]) -> Vec<&'static str> {
    let has = |name: &&str| resources.iter().any(|resource| resource.transport == **name);
    let network = NETWORKS.into_iter().find(|name| has(name));
    [MEMORY].into_iter().filter(has).chain(network).collect()
}

/// Looks at every transport: opens an interface of each on its first device, and closes it again.
///
/// # Errors
/// When the library cannot list them.
pub fn survey(uct: &'static Uct) -> Result<Vec<Transport>, UctError> {
    let resources = uct.resources()?;
    let defaults = defaults(&resources);
    let mut found: Vec<Transport> = Vec::new();
    for resource in &resources {
        let name = &resource.transport;
        let at = found.iter().position(|known| known.name == *name).unwrap_or_else(|| {
            let standing = look(uct, resource, &defaults).unwrap_or_else(Standing::Unfit);
            found.push(Transport { name: name.clone(), devices: Vec::new(), standing });
            found.len() - 1
        });
        found[at].devices.push(resource.device.clone());
    }
    Ok(found)
}

fn look(uct: &'static Uct, resource: &Resource, defaults: &[&str]) -> Result<Standing, String> {
    let mut port = Port::open(uct).map_err(|error| error.to_string())?;
    let iface = port.add(resource, &[]).map_err(|error| error.to_string())?;
    let attributes = port.attributes(iface);
    if resource.transport == KERNEL && attributes.max_get > 0 && !attributes.need_rkey {
        return Ok(Standing::Beside);
    }
    match attributes.unfit() {
        Some(why) => Err(why.to_owned()),
        None if defaults.contains(&resource.transport.as_str()) => Ok(Standing::Default),
        None => Ok(Standing::Named),
    }
}

impl Attributes {
    /// What an interface lacks to carry frames; `None` when nothing.
    #[must_use]
    pub fn unfit(&self) -> Option<&'static str> {
        if self.max_bcopy == 0 {
            return Some("it carries no messages, only puts and gets");
        }
        if self.max_bcopy < MESSAGE_MIN {
            return Some("its messages are shorter than a greeting");
        }
        if self.duplicates {
            return Some("it may carry a message twice");
        }
        match (self.to_iface, self.to_ep) {
            (false, false) => Some("its endpoints can only be connected by a connection manager"),
            (false, true) if self.ep_addr_len > ADDRESS_MAX => {
                Some("the addresses of its endpoints are too long to be exchanged")
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_transport_has_a_verdict() {
        let uct = match Uct::open() {
            Ok(uct) => uct,
            Err(error) => return println!("SKIP uct/survey: {error}"),
        };
        let found = survey(uct).unwrap();
        let of = |name: &str| found.iter().find(|transport| transport.name == name);
        assert_eq!(of("posix").unwrap().standing, Standing::Default);
        assert_eq!(of("self").unwrap().standing, Standing::Named);
        assert!(of("tcp").unwrap().devices.iter().any(|device| device == "lo"));
        if let Some(cma) = of("cma") {
            let words = "taken beside posix or sysv (--mca btl_uct_transports posix,cma)";
            assert_eq!(cma.verdict(), words);
        }
    }
}
