//! Tests on real devices, and on Soft-RoCE inside a small virtual machine. What cannot run on a machine says
//! `SKIP name: reason`.
//!
//! * [`vm`] is the machine: any command runs in it, `iw-vm -- COMMAND…`.
//! * [`fabric`] is what a test finds there: two hosts of two rails each, and wires to cut. On a cluster, the devices
//!   that `iw-hwtest --device` names take the hosts' place, and what needs a wire is skipped by name.
//! * [`job`] runs whole jobs over it.
//! * [`processes`] ends what does not end.
//!
//! The tests themselves are in `tests/` here, and in the transports' crates: the conformance suite.

pub mod fabric;
pub mod job;
pub mod processes;
pub mod vm;

use std::path::Path;

/// RDMA devices of this machine, by the kernel's names, in order.
///
/// # Errors
/// When the kernel's list exists but cannot be read.
pub fn rdma_devices() -> std::io::Result<Vec<String>> {
    devices_under(Path::new("/sys/class/infiniband"))
}

/// The names of the entries of `class`; none when there is no such class.
fn devices_under(class: &Path) -> std::io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(class) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<std::io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_without_entries_or_without_a_directory_has_no_devices() {
        assert_eq!(devices_under(Path::new("/nonexistent/class")).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn devices_are_listed_in_order() {
        // The loopback interface is the one device that every machine has.
        let names = devices_under(Path::new("/sys/class/net")).unwrap();
        assert!(names.contains(&String::from("lo")));
        assert!(names.is_sorted());
    }
}
