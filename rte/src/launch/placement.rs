//! Which host runs which ranks, and which cores a host binds its ranks to.
//!
//! What may be used comes from `sched_getaffinity`, so a batch system's restriction is kept. What is
//! a core, and which cores are neighbours, comes from hwloc where it is present: consecutive ranks
//! then share caches and NUMA nodes however the kernel numbers them. Otherwise /sys tells cores from
//! their hardware threads, and their order is the kernel's. Decides only; binding is done where a
//! rank is started. (Issue "The data plane runs", shm: hardware placement.)

use super::messages::Bind;
use ironweave_ffi::hwloc;
use rustix::thread::{CpuSet, sched_getaffinity};
use std::collections::BTreeSet;
use std::fmt;

/// The cores this process may run on.
#[derive(Debug, Clone)]
pub struct Cores {
    /// Each as the set of its hardware threads that are allowed; consecutive ones are close.
    pub sets: Vec<CpuSet>,
    /// Who told the order.
    pub order: Order,
}

/// Who told what is a core and in which order they come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// hwloc: by package, cache and NUMA node.
    Hwloc {
        /// Major and minor version of its API.
        api: (u32, u32),
        /// How many NUMA nodes the cores are on.
        numa_nodes: usize,
    },
    /// The kernel's numbers, with the reason why not hwloc.
    Kernel(String),
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::Hwloc { api: (major, minor), numa_nodes } => {
                let s = if *numa_nodes == 1 { "" } else { "s" };
                write!(f, "hwloc {major}.{minor} (API), {numa_nodes} NUMA node{s}")
            }
            Order::Kernel(why) => write!(f, "the kernel (hwloc: {why})"),
        }
    }
}

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

/// The cores this process may run on; none where `sched_getaffinity` tells none.
pub fn cores() -> Cores {
    let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    match hwloc::cores() {
        Ok(found) => {
            let (sets, numa_nodes) = cores_by_hwloc(&allowed, &found.cores);
            Cores { sets, order: Order::Hwloc { api: found.api, numa_nodes } }
        }
        Err(why) => {
            Cores { sets: cores_by_kernel(&allowed), order: Order::Kernel(why.to_string()) }
        }
    }
}

/// How many cores this thread may run on. Asks the kernel alone: who was bound by our launcher may want to know in a hurry.
#[must_use]
pub fn own_cores() -> usize {
    sched_getaffinity(None).map_or(1, |allowed| cores_by_kernel(&allowed).len())
}

/// hwloc's cores in its order, as far as allowed, and how many NUMA nodes these are on. What is
/// allowed and unknown to hwloc (brought online since it looked) follows at the end.
fn cores_by_hwloc(allowed: &CpuSet, cores: &[hwloc::Core]) -> (Vec<CpuSet>, usize) {
    let mut left = *allowed;
    let mut nodes = BTreeSet::new();
    let mut sets = Vec::new();
    for core in cores {
        let mut set = CpuSet::new();
        for cpu in core.cpus.iter().map(|cpu| *cpu as usize) {
            if cpu < CpuSet::MAX_CPU && left.is_set(cpu) {
                set.set(cpu);
                left.unset(cpu);
            }
        }
        if set.count() > 0 {
            sets.push(set);
            nodes.extend(core.numa_node);
        }
    }
    sets.extend(cores_by_kernel(&left));
    (sets, nodes.len())
}

/// The allowed cores in the order of their first hardware thread, by /sys.
fn cores_by_kernel(allowed: &CpuSet) -> Vec<CpuSet> {
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
        let cores = cores().sets;
        let count = cores.len() as u32;
        assert!(count > 0);
        assert!(bindings(&cores, count, None).is_some());
        assert!(bindings(&cores, count + 1, None).is_none());
        let round = bindings(&cores, count + 1, Some(Bind::Core)).unwrap();
        assert_eq!((round.len() as u32, round[count as usize]), (count + 1, cores[0]));
        assert!(bindings(&cores, 1, Some(Bind::None)).is_none());
        assert!(bindings(&[], 1, Some(Bind::Core)).is_none());
    }

    fn set(cpus: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        cpus.iter().for_each(|cpu| set.set(*cpu));
        set
    }

    /// Two packages whose cores the kernel numbers round-robin, as many machines do.
    fn round_robin() -> Vec<hwloc::Core> {
        let core = |cpus: [u32; 2], node| hwloc::Core { cpus: cpus.into(), numa_node: Some(node) };
        vec![core([0, 4], 0), core([2, 6], 0), core([1, 5], 1), core([3, 7], 1)]
    }

    #[test]
    fn hwlocs_order_is_kept_within_the_affinity_mask() {
        let all = set(&[0, 1, 2, 3, 4, 5, 6, 7]);
        let expected = vec![set(&[0, 4]), set(&[2, 6]), set(&[1, 5]), set(&[3, 7])];
        assert_eq!(cores_by_hwloc(&all, &round_robin()), (expected, 2));
        // One thread of a core, none of another, and one node only.
        let some = set(&[2, 4, 6]);
        let expected = vec![set(&[4]), set(&[2, 6])];
        assert_eq!(cores_by_hwloc(&some, &round_robin()), (expected, 1));
        assert_eq!(cores_by_hwloc(&CpuSet::new(), &round_robin()), (vec![], 0));
    }

    #[test]
    fn what_hwloc_does_not_know_is_not_lost() {
        let last = CpuSet::MAX_CPU - 1;
        let (sets, _) = cores_by_hwloc(&set(&[3, last]), &round_robin());
        assert_eq!(sets, [set(&[3]), set(&[last])]);
        // A number beyond what a mask can hold is passed over.
        let beyond = hwloc::Core { cpus: vec![CpuSet::MAX_CPU as u32], numa_node: None };
        assert_eq!(cores_by_hwloc(&set(&[3]), &[beyond]), (vec![set(&[3])], 0));
    }

    #[test]
    fn more_ranks_than_a_restricted_mask_has_cores_go_round() {
        let (sets, _) = cores_by_hwloc(&set(&[1, 2]), &round_robin());
        let bound = bindings(&sets, 5, Some(Bind::Core)).unwrap();
        let expected = [2, 1, 2, 1, 2].map(|cpu| set(&[cpu]));
        assert_eq!(bound, expected);
    }

    #[test]
    fn hwloc_and_the_kernel_agree_on_this_machine() {
        let found = match hwloc::cores() {
            Ok(found) => found,
            Err(why) => {
                println!("SKIP hwloc: {why}");
                return;
            }
        };
        let allowed = sched_getaffinity(None).unwrap();
        let ours = cores();
        assert!(matches!(ours.order, Order::Hwloc { api, .. } if api == found.api), "{ours:?}");
        let by_kernel = cores_by_kernel(&allowed);
        assert_eq!(ours.sets.len(), by_kernel.len());
        assert!(by_kernel.iter().all(|core| ours.sets.contains(core)), "{ours:?} {by_kernel:?}");
        // In the same order too, where one package and one last-level cache hold all cores.
        let value = |cpu: usize, name: &str| {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/{name}");
            std::fs::read_to_string(path).unwrap_or_default()
        };
        let cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
        let places: BTreeSet<_> = cpus
            .map(|cpu| {
                let package = value(cpu, "topology/physical_package_id");
                (package, value(cpu, "cache/index3/shared_cpu_list"))
            })
            .collect();
        match places.len() {
            1 => assert_eq!(ours.sets, by_kernel),
            _ => println!("SKIP same_order: several packages or last-level caches: {places:?}"),
        }
    }

    #[test]
    fn the_order_names_its_source() {
        let hwloc = Order::Hwloc { api: (2, 8), numa_nodes: 1 };
        assert_eq!(hwloc.to_string(), "hwloc 2.8 (API), 1 NUMA node");
        let kernel = Order::Kernel("it finds no cores".into());
        assert_eq!(kernel.to_string(), "the kernel (hwloc: it finds no cores)");
    }
}
