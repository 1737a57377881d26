//! Which host runs which ranks, and which cores a host binds its ranks to.
//!
//! Cores come from `sched_getaffinity`, so a batch system's restriction is kept, and are told apart
//! from their hardware threads by /sys. Decides only; binding is done where a rank is started.

use super::messages::Bind;
use rustix::thread::{CpuSet, sched_getaffinity};

/// A host and how many ranks it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its name, as given to the launch agent.
    pub name: String,
    /// How many ranks it takes.
    pub slots: u32,
}

/// Reads `h1:2,h2:2`; a host without a number takes one rank, a host named twice takes the sum.
///
/// # Errors
/// In words: an empty name, a number that is none or zero.
pub fn parse_hosts(text: &str) -> Result<Vec<Host>, String> {
    let mut hosts: Vec<Host> = Vec::new();
    for item in text.split(',').map(str::trim) {
        // A name may hold colons (IPv6 in brackets): the slots are after the last one.
        let (name, slots) = match item.rsplit_once(':') {
            Some((name, slots)) if !slots.contains(']') => {
                let slots = slots.parse().ok().filter(|slots| *slots > 0);
                (name, slots.ok_or_else(|| format!("{item:?}: slots are a number from 1"))?)
            }
            _ => (item, 1),
        };
        if name.is_empty() || name.starts_with('-') {
            return Err(format!("{item:?} is not HOST or HOST:SLOTS"));
        }
        match hosts.iter_mut().find(|host| host.name == name) {
            Some(host) => host.slots = host.slots.saturating_add(slots),
            None => hosts.push(Host { name: name.to_owned(), slots }),
        }
    }
    Ok(hosts)
}

/// How many of `size` ranks each host runs, filling hosts in order; hosts that get none are dropped.
///
/// # Errors
/// In words: the hosts have fewer slots than there are ranks.
pub fn fill(hosts: Vec<Host>, size: u32) -> Result<Vec<(String, u32)>, String> {
    let slots = hosts.iter().fold(0u32, |sum, host| sum.saturating_add(host.slots));
    if slots < size {
        return Err(format!(
            "-n {size} asks for more ranks than the hosts have slots ({slots}); \
             give more as --hosts NAME:SLOTS"
        ));
    }
    let mut left = size;
    let filled = hosts.into_iter().map(|host| {
        let count = host.slots.min(left);
        left -= count;
        (host.name, count)
    });
    Ok(filled.filter(|(_, count)| *count > 0).collect())
}

/// The CPU set of each of `count` ranks over `cores`, round-robin; `None` leaves them unbound.
pub fn bindings(cores: &[CpuSet], count: u32, bind: Option<Bind>) -> Option<Vec<CpuSet>> {
    let bind = bind.unwrap_or(match count as usize <= cores.len() {
        true => Bind::Core,
        false => Bind::None,
    });
    match bind {
        Bind::None => None,
        Bind::Core if cores.is_empty() => None,
        Bind::Core => Some((0..count as usize).map(|index| cores[index % cores.len()]).collect()),
    }
}

/// The cores this process may run on, each as the set of its hardware threads.
pub fn cores() -> Vec<CpuSet> {
    let Ok(allowed) = sched_getaffinity(None) else { return Vec::new() };
    let mut cores: Vec<CpuSet> = Vec::new();
    for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)) {
        if cores.iter().any(|core| core.is_set(cpu)) {
            continue;
        }
        let mut core = CpuSet::new();
        core.set(cpu);
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        let siblings = std::fs::read_to_string(path).unwrap_or_default();
        for sibling in parse_cpu_list(&siblings).filter(|sibling| *sibling < CpuSet::MAX_CPU) {
            if allowed.is_set(sibling) {
                core.set(sibling);
            }
        }
        cores.push(core);
    }
    cores
}

/// Reads the kernel's list form, `0,4-6`; what is no number is skipped.
fn parse_cpu_list(text: &str) -> impl Iterator<Item = usize> + '_ {
    text.trim().split(',').flat_map(|item| {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        match (first.trim().parse::<usize>(), last.trim().parse::<usize>()) {
            (Ok(first), Ok(last)) => first..last.saturating_add(1),
            _ => 0..0,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, slots: u32) -> Host {
        Host { name: name.into(), slots }
    }

    #[test]
    fn hosts_have_names_and_slots() {
        assert_eq!(parse_hosts("a:2, b").unwrap(), [host("a", 2), host("b", 1)]);
        assert_eq!(parse_hosts("a,b,a:3").unwrap(), [host("a", 4), host("b", 1)]);
        assert_eq!(
            parse_hosts("[::1]:2,[fe80::1]").unwrap(),
            [host("[::1]", 2), host("[fe80::1]", 1)]
        );
        for wrong in ["", "a,,b", "a:0", "a:x", ":2", "-oProxyCommand=x"] {
            assert!(parse_hosts(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn hosts_fill_in_order_and_too_few_slots_is_an_error() {
        let hosts = || vec![host("a", 2), host("b", 2), host("c", 1)];
        assert_eq!(fill(hosts(), 3).unwrap(), [("a".into(), 2), ("b".into(), 1)]);
        let error = fill(hosts(), 6).unwrap_err();
        assert!(error.contains("-n 6") && error.contains("(5)"), "{error}");
    }

    #[test]
    fn cpu_lists_are_read() {
        assert_eq!(parse_cpu_list("0,4-6\n").collect::<Vec<_>>(), [0, 4, 5, 6]);
        assert_eq!(parse_cpu_list("").count(), 0);
    }

    #[test]
    fn more_ranks_than_cores_are_unbound_unless_asked() {
        let cores = cores();
        let count = cores.len() as u32;
        assert!(count > 0);
        assert!(bindings(&cores, count, None).is_some());
        assert!(bindings(&cores, count + 1, None).is_none());
        let round = bindings(&cores, count + 1, Some(Bind::Core)).unwrap();
        assert_eq!((round.len() as u32, round[count as usize]), (count + 1, cores[0]));
        assert!(bindings(&cores, 1, Some(Bind::None)).is_none());
        assert!(bindings(&[], 1, Some(Bind::Core)).is_none());
    }
}
