//! What a process holds of the system: descriptors, mappings, files in /dev/shm (law 8).

use std::collections::BTreeSet;
use std::fs;

/// A count at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Holdings {
    /// What each open descriptor names.
    pub descriptors: Vec<String>,
    /// Mappings of anything but this program, its libraries, heap and stacks.
    pub mappings: Vec<String>,
    /// All mappings.
    pub all_mappings: usize,
}

impl Holdings {
    pub(crate) fn now() -> std::io::Result<Self> {
        let mut descriptors = Vec::new();
        for entry in fs::read_dir("/proc/self/fd")? {
            // The descriptor that reads this directory is gone when it is looked up.
            if let Ok(target) = fs::read_link(entry?.path()) {
                let name = target.to_string_lossy().into_owned();
                // Numbers of sockets and pipes differ each time.
                descriptors.push(name.split(":[").next().unwrap_or_default().to_owned());
            }
        }
        descriptors.sort();
        let maps = fs::read_to_string("/proc/self/maps")?;
        let names = maps.lines().map(|line| line.splitn(6, ' ').nth(5).unwrap_or("").trim_start());
        let mut mappings: Vec<String> = names
            .filter(|name| {
                name.starts_with("/memfd")
                    || name.starts_with("/dev/")
                    || name.contains("(deleted)")
            })
            .map(str::to_owned)
            .collect();
        mappings.sort();
        Ok(Holdings { descriptors, mappings, all_mappings: maps.lines().count() })
    }
}

/// Files in /dev/shm whose name contains `job` or ours.
pub(crate) fn shared_files(job: &str) -> BTreeSet<String> {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.contains(job) || name.contains("ironweave"))
        .collect()
}
