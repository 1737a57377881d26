//! The RDMA ports of this host and whether verbs uses them, for `ironweave info` and `ironweave doctor`. The kernel lists
//! them also where the library or the right to open them is missing, so what is missing can be said. Changes nothing.

use crate::params::Params;
use ironweave_ffi_verbs::Device;
use std::fmt;
use std::path::Path;

/// Where the kernel lists RDMA devices.
const CLASS: &str = "/sys/class/infiniband";
/// The value of `btl_verbs_gid_index` that leaves the choice to verbs.
const CHOSEN: u64 = 255;

/// One port of an RDMA device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// The device and the port's number: `mlx5_0:1`.
    pub name: String,
    /// What carries it.
    pub link: &'static str,
    /// The kernel's words for its speed.
    pub rate: String,
    /// Whether its device says that it pages memory on demand.
    pub on_demand: bool,
    /// Why verbs does not use it; `None` when it does.
    pub unused: Option<String>,
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {}): ", self.name, self.link, self.rate)?;
        match &self.unused {
            None if self.on_demand => f.write_str("used by verbs, pages on demand"),
            None => f.write_str("used by verbs"),
            Some(why) => write!(f, "not used: {why}"),
        }
    }
}

/// The ports of this host, in order; none where there is no RDMA device.
pub fn ports(params: &Params) -> Vec<Port> {
    let mut ports = Vec::new();
    for device in entries(Path::new(CLASS)) {
        let root = Path::new(CLASS).join(&device);
        let iwarp = word(&root.join("node_type")).starts_with("4");
        let opened = Device::open(&device).map_err(|error| error.to_string());
        for number in entries(&root.join("ports")) {
            let directory = root.join("ports").join(&number);
            let name = format!("{device}:{number}");
            let link = match (iwarp, word(&directory.join("link_layer")).as_str()) {
                (true, _) => "iWARP",
                (false, "InfiniBand") => "InfiniBand",
                (false, _) => "RoCE",
            };
            let listed = |list: &str| {
                params.list(list).iter().any(|entry| *entry == device || *entry == name)
            };
            let unused = if !params.selection("btl").allows("verbs") {
                Some(String::from("verbs is not among the transports (btl)"))
            } else if listed("btl_verbs_exclude") {
                Some(String::from("btl_verbs_exclude names it"))
            } else if !params.list("btl_verbs_include").is_empty() && !listed("btl_verbs_include") {
                Some(String::from("btl_verbs_include does not name it"))
            } else {
                unusable(&word(&directory.join("state")), &opened).or_else(|| {
                    let gid = Some(params.number("btl_verbs_gid_index"));
                    let gid = gid.filter(|&index| index != CHOSEN && !iwarp);
                    lacking(&directory, gid, params.number("btl_verbs_pkey_index"))
                })
            };
            let on_demand = opened.as_ref().is_ok_and(|device| device.limits().on_demand);
            ports.push(Port { name, link, rate: word(&directory.join("rate")), on_demand, unused });
        }
    }
    ports
}

/// Why a port that may be used cannot be.
fn unusable(state: &str, opened: &Result<Device, String>) -> Option<String> {
    if !state.ends_with("ACTIVE") {
        let state = state.rsplit(' ').next().unwrap_or_default();
        return Some(format!(
            "it is {state}, not ACTIVE (cable, subnet manager, or its interface is down)"
        ));
    }
    match opened {
        Err(error) => Some(format!("it cannot be opened: {error}")),
        Ok(device) if device.limits().shared == 0 => {
            Some(String::from("it has no shared receive queues"))
        }
        Ok(_) => None,
    }
}

/// What a port has no entry for, of those that parameters ask for; the kernel reads an unused one as nothing or as zeros.
fn lacking(port: &Path, gid: Option<u64>, partition: u64) -> Option<String> {
    let there = |table: &str, index: u64| {
        let entry = word(&port.join(table).join(index.to_string()));
        entry.trim_start_matches("0x").contains(|c: char| c != '0' && c != ':')
    };
    match gid {
        Some(index) if !there("gids", index) => {
            Some(format!("it has no GID {index} (btl_verbs_gid_index)"))
        }
        // Entry 0 is there also where the kernel shows no table.
        _ if partition != 0 && !there("pkeys", partition) => {
            Some(format!("it has no partition {partition} (btl_verbs_pkey_index)"))
        }
        _ => None,
    }
}

/// The names in a directory, in order; none when it cannot be read.
fn entries(directory: &Path) -> Vec<String> {
    let Ok(read) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut names: Vec<String> =
        read.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The one line of a file of the kernel's; empty when it cannot be read.
fn word(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_down_says_what_it_is() {
        let opened = Err(String::from("no"));
        assert!(unusable("1: DOWN", &opened).unwrap().starts_with("it is DOWN, not ACTIVE"));
        assert_eq!(unusable("4: ACTIVE", &opened).unwrap(), "it cannot be opened: no");
    }

    // What real ports say is seen where there are some: `hwtests/tests/tools.rs`.
    #[test]
    fn a_port_says_who_uses_it_or_why_nobody_does() {
        let mut port = Port {
            name: String::from("mlx5_0:1"),
            link: "RoCE",
            rate: String::from("100 Gb/sec (4X EDR)"),
            on_demand: false,
            unused: None,
        };
        assert_eq!(port.to_string(), "mlx5_0:1 (RoCE, 100 Gb/sec (4X EDR)): used by verbs");
        port.on_demand = true;
        assert!(port.to_string().ends_with(": used by verbs, pages on demand"));
        port.unused = Some(String::from("btl_verbs_exclude names it"));
        assert!(port.to_string().ends_with(": not used: btl_verbs_exclude names it"));
    }

    #[test]
    fn entries_that_are_asked_for_and_not_there_are_named() {
        let port = std::env::temp_dir().join(format!("ironweave-port-{}", std::process::id()));
        for (file, text) in [
            ("gids/0", "fe80:0000:0000:0000:14e8:ffff:feb3:c090\n"),
            ("gids/1", "0000:0000:0000:0000:0000:0000:0000:0000\n"),
            ("pkeys/0", "0xffff\n"),
            ("pkeys/1", "0x0000\n"),
        ] {
            let file = port.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        assert_eq!(lacking(&port, None, 0), None);
        assert_eq!(lacking(&port, Some(0), 0), None);
        for index in [1, 99] {
            let words = format!("it has no GID {index} (btl_verbs_gid_index)");
            assert_eq!(lacking(&port, Some(index), 0), Some(words));
            let words = format!("it has no partition {index} (btl_verbs_pkey_index)");
            assert_eq!(lacking(&port, Some(0), index), Some(words));
        }
        std::fs::remove_dir_all(port).unwrap();
    }
}
