//! The machine's cores as hwloc orders them: neighbours in the list share caches, packages and NUMA
//! nodes, whatever numbers the kernel gave them. hwloc 2 is opened at run time and asked once, for a
//! topology that is destroyed again; it never binds anything, ours or its own.
//! (Issue "The data plane runs", shm: hardware placement from hwloc where present.)
#![allow(unsafe_code)] // Calls a C library through its documented types.

use crate::library::{Library, LibraryError};
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};
use std::mem::offset_of;
use std::ptr::NonNull;

/// The soname of every release of hwloc 2.
const SONAME: &str = "libhwloc.so.15";

/// One core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Core {
    /// Its hardware threads, by the operating system's numbers, ascending; never empty.
    pub cpus: Vec<u32>,
    /// The NUMA node it is close to, by the operating system's number; the first where there are
    /// several, none where hwloc knows none.
    pub numa_node: Option<u32>,
}

/// The cores of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cores {
    /// In hwloc's logical order; only what the process's cgroup allows, whatever its affinity mask.
    pub cores: Vec<Core>,
    /// Major and minor version of the API that the library tells. It lags behind the version of
    /// the release: 2.9.0 tells 2.8.
    pub api: (u32, u32),
}

/// Why hwloc tells nothing.
#[derive(Debug, thiserror::Error)]
pub enum HwlocError {
    /// No library, or a symbol is missing.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// Another generation of the API than this file is written for.
    #[error("{SONAME} has API {}.{}, and only 2 is known here", .0.0, .0.1)]
    Version((u32, u32)),
    /// A function of it failed.
    #[error("{0} failed")]
    Call(&'static str),
    /// The user gave hwloc another machine's topology.
    #[error("it describes another machine (HWLOC_XMLFILE, HWLOC_SYNTHETIC or HWLOC_FSROOT is set)")]
    Foreign,
    /// Objects do not hold their sets where the header of hwloc 2 says.
    #[error("{SONAME} lays its objects out in another way than hwloc 2")]
    Layout,
    /// No object that is a core or a hardware thread.
    #[error("it finds no cores")]
    Empty,
}

/// Asks hwloc for this machine's cores. Takes a millisecond or so, more on large machines; the
/// library stays open.
///
/// # Errors
/// In words: there is no hwloc 2 here, or it cannot tell.
pub fn cores() -> Result<Cores, HwlocError> {
    let api = Api::open()?;
    let topology = Topology::load(&api, None)?;
    match topology.is_this_machine() {
        true => Ok(Cores { cores: topology.cores()?, api: api.version }),
        false => Err(HwlocError::Foreign),
    }
}

/// `hwloc_topology_t`.
type RawTopology = *mut c_void;
/// `hwloc_const_bitmap_t`.
type RawBitmap = *const c_void;

/// `enum hwloc_obj_type_t`: the values that all of hwloc 2 shares (new ones were added at its end).
const OBJ_CORE: c_int = 2;
const OBJ_PU: c_int = 3;
/// `HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING`, known from API 2.5 on.
const DONT_CHANGE_BINDING: c_ulong = 1 << 6;

/// `struct hwloc_obj` of hwloc 2 as far as its sets; hwloc.h may only append to it within a soname.
#[repr(C)]
struct Object {
    kind: c_int,
    subtype: *const c_char,
    os_index: c_uint,
    name: *const c_char,
    total_memory: u64,
    attr: *const c_void,
    depth: c_int,
    logical_index: c_uint,
    cousins: [*const Object; 2],
    parent: *const Object,
    sibling_rank: c_uint,
    siblings: [*const Object; 2],
    arity: c_uint,
    children: *const *const Object,
    first_and_last_child: [*const Object; 2],
    symmetric_subtree: c_int,
    memory_arity: c_uint,
    memory_first_child: *const Object,
    io_arity: c_uint,
    io_first_child: *const Object,
    misc_arity: c_uint,
    misc_first_child: *const Object,
    cpuset: RawBitmap,
    complete_cpuset: RawBitmap,
    nodeset: RawBitmap,
}

// As gcc's offsetof prints them for the header of Debian's libhwloc-dev 2.9.0 on x86-64. That the
// library at hand agrees is checked on the root object of every topology, see `Topology::load`.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(
    offset_of!(Object, os_index) == 16
        && offset_of!(Object, cpuset) == 184
        && offset_of!(Object, nodeset) == 200
);

/// The functions used, with the types that hwloc.h, bitmap.h and helper.h document.
struct Api {
    version: (u32, u32),
    topology_init: unsafe extern "C" fn(*mut RawTopology) -> c_int,
    topology_set_flags: unsafe extern "C" fn(RawTopology, c_ulong) -> c_int,
    topology_set_synthetic: unsafe extern "C" fn(RawTopology, *const c_char) -> c_int,
    topology_load: unsafe extern "C" fn(RawTopology) -> c_int,
    topology_destroy: unsafe extern "C" fn(RawTopology),
    topology_is_thissystem: unsafe extern "C" fn(RawTopology) -> c_int,
    topology_cpuset: unsafe extern "C" fn(RawTopology) -> RawBitmap,
    topology_nodeset: unsafe extern "C" fn(RawTopology) -> RawBitmap,
    get_type_depth: unsafe extern "C" fn(RawTopology, c_int) -> c_int,
    get_nbobjs_by_depth: unsafe extern "C" fn(RawTopology, c_int) -> c_uint,
    get_obj_by_depth: unsafe extern "C" fn(RawTopology, c_int, c_uint) -> *const Object,
    bitmap_weight: unsafe extern "C" fn(RawBitmap) -> c_int,
    bitmap_next: unsafe extern "C" fn(RawBitmap, c_int) -> c_int,
}

impl Api {
    fn open() -> Result<Api, HwlocError> {
        let library = Library::open(SONAME)?;
        // SAFETY: documented as `unsigned hwloc_get_api_version(void)` in every generation.
        let get_api_version: unsafe extern "C" fn() -> c_uint =
            unsafe { function(&library, "hwloc_get_api_version")? };
        // SAFETY: it takes nothing and returns a constant.
        let number = unsafe { get_api_version() };
        // X << 16 | Y << 8 | Z, as the header says of HWLOC_API_VERSION.
        let version = (number >> 16, (number >> 8) & 0xff);
        if version.0 != 2 {
            return Err(HwlocError::Version(version));
        }
        // SAFETY: the API is version 2, and each field has the type its function has there.
        unsafe {
            Ok(Api {
                version,
                topology_init: function(&library, "hwloc_topology_init")?,
                topology_set_flags: function(&library, "hwloc_topology_set_flags")?,
                topology_set_synthetic: function(&library, "hwloc_topology_set_synthetic")?,
                topology_load: function(&library, "hwloc_topology_load")?,
                topology_destroy: function(&library, "hwloc_topology_destroy")?,
                topology_is_thissystem: function(&library, "hwloc_topology_is_thissystem")?,
                topology_cpuset: function(&library, "hwloc_topology_get_topology_cpuset")?,
                topology_nodeset: function(&library, "hwloc_topology_get_topology_nodeset")?,
                get_type_depth: function(&library, "hwloc_get_type_depth")?,
                get_nbobjs_by_depth: function(&library, "hwloc_get_nbobjs_by_depth")?,
                get_obj_by_depth: function(&library, "hwloc_get_obj_by_depth")?,
                bitmap_weight: function(&library, "hwloc_bitmap_weight")?,
                bitmap_next: function(&library, "hwloc_bitmap_next")?,
            })
        }
    }
}

/// The function `symbol`.
///
/// # Safety
/// `F` is the type of a C function pointer, and `symbol` names a function of that type.
unsafe fn function<F: Copy>(library: &Library, symbol: &str) -> Result<F, LibraryError> {
    const { assert!(size_of::<F>() == size_of::<NonNull<c_void>>()) };
    let address = library.symbol(symbol)?;
    // SAFETY: not null, of the size of a function pointer, and by the caller's word of this type.
    Ok(unsafe { std::mem::transmute_copy(&address) })
}

/// A loaded topology; destroyed when dropped. Its objects and bitmaps live as long as it does.
struct Topology<'a> {
    api: &'a Api,
    raw: RawTopology,
}

impl<'a> Topology<'a> {
    /// Loads this machine's topology, or the one that `synthetic` describes.
    fn load(api: &'a Api, synthetic: Option<&CStr>) -> Result<Topology<'a>, HwlocError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is written on success and left alone otherwise.
        if unsafe { (api.topology_init)(&mut raw) } != 0 || raw.is_null() {
            return Err(HwlocError::Call("hwloc_topology_init"));
        }
        let topology = Topology { api, raw };
        // Without it hwloc hops over all cores to ask each by cpuid, which takes long on busy ones.
        // What has no such flag refuses it, and works as well.
        // SAFETY: initialised and not yet loaded.
        let _ = unsafe { (api.topology_set_flags)(raw, DONT_CHANGE_BINDING) };
        if let Some(description) = synthetic {
            // SAFETY: as above; the text is terminated, and copied.
            if unsafe { (api.topology_set_synthetic)(raw, description.as_ptr()) } != 0 {
                return Err(HwlocError::Call("hwloc_topology_set_synthetic"));
            }
        }
        // SAFETY: initialised and not yet loaded.
        if unsafe { (api.topology_load)(raw) } != 0 {
            return Err(HwlocError::Call("hwloc_topology_load"));
        }
        match topology.layout_agrees() {
            true => Ok(topology),
            false => Err(HwlocError::Layout),
        }
    }

    /// Whether the root's sets are, pointer by pointer, those that exported functions return for the
    /// whole machine ("equivalent to retrieving the root object", says helper.h).
    fn layout_agrees(&self) -> bool {
        let Ok(root) = self.object(0, 0) else { return false };
        // SAFETY: the topology is loaded; the pointers are compared, not followed.
        let sets = unsafe {
            ((self.api.topology_cpuset)(self.raw), (self.api.topology_nodeset)(self.raw))
        };
        !sets.0.is_null() && !sets.1.is_null() && sets == (root.cpuset, root.nodeset)
    }

    fn is_this_machine(&self) -> bool {
        // SAFETY: the topology is loaded.
        unsafe { (self.api.topology_is_thissystem)(self.raw) == 1 }
    }

    /// All cores in logical order; hardware threads where the kernel tells nothing of cores.
    fn cores(&self) -> Result<Vec<Core>, HwlocError> {
        // SAFETY: the topology is loaded. A negative depth is no depth ("unknown", "multiple").
        let depth = |kind| unsafe { (self.api.get_type_depth)(self.raw, kind) };
        let depth = [OBJ_CORE, OBJ_PU].map(depth).into_iter().find(|depth| *depth > 0);
        let depth = depth.ok_or(HwlocError::Empty)?;
        // SAFETY: the topology is loaded and has this depth.
        let count = unsafe { (self.api.get_nbobjs_by_depth)(self.raw, depth) };
        let mut cores = Vec::new();
        for index in 0..count {
            let object = self.object(depth, index)?;
            let cpus = self.indices(object.cpuset);
            if !cpus.is_empty() {
                cores.push(Core { cpus, numa_node: self.indices(object.nodeset).first().copied() });
            }
        }
        if cores.is_empty() { Err(HwlocError::Empty) } else { Ok(cores) }
    }

    fn object(&self, depth: c_int, index: c_uint) -> Result<&Object, HwlocError> {
        // SAFETY: the topology is loaded; it returns null for what is not there.
        let object = unsafe { (self.api.get_obj_by_depth)(self.raw, depth, index) };
        // SAFETY: null or an object of API 2 that lives, unchanged, as long as the topology, which
        // `self` borrows.
        unsafe { object.as_ref() }.ok_or(HwlocError::Call("hwloc_get_obj_by_depth"))
    }

    /// The members of a bitmap of this topology, ascending; none of an infinite one.
    fn indices(&self, bitmap: RawBitmap) -> Vec<u32> {
        if bitmap.is_null() {
            return Vec::new();
        }
        // SAFETY: a bitmap in an object of this topology, whose layout has been checked.
        let weight = unsafe { (self.api.bitmap_weight)(bitmap) };
        let mut last = -1;
        let next = (0..weight).map_while(|_| {
            // SAFETY: as above; -1 asks for the first, and is returned after the last.
            last = unsafe { (self.api.bitmap_next)(bitmap, last) };
            u32::try_from(last).ok()
        });
        next.collect()
    }
}

impl Drop for Topology<'_> {
    fn drop(&mut self) {
        // SAFETY: initialised once, destroyed once, and nothing borrowed from it is left.
        unsafe { (self.api.topology_destroy)(self.raw) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The library, or `None` after saying that it is not here. Everything but its absence fails.
    fn api() -> Option<Api> {
        match Api::open() {
            Ok(api) => Some(api),
            Err(HwlocError::Library(LibraryError::Open(reason))) => {
                println!("SKIP hwloc: {reason}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn read_list(path: &str) -> Option<BTreeSet<u32>> {
        let text = std::fs::read_to_string(path).ok()?;
        let range = |item: &str| {
            let (first, last) = item.split_once('-').unwrap_or((item, item));
            first.parse::<u32>().unwrap()..=last.parse::<u32>().unwrap()
        };
        Some(text.trim().split(',').filter(|item| !item.is_empty()).flat_map(range).collect())
    }

    fn affinity() -> BTreeSet<u32> {
        // SAFETY: an all-zero cpu_set_t is the empty set, and the kernel fills at most its size.
        let set = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
            set
        };
        // SAFETY: the index is below CPU_SETSIZE.
        let is_set = |cpu: &u32| unsafe { libc::CPU_ISSET(*cpu as usize, &set) };
        (0..libc::CPU_SETSIZE as u32).filter(is_set).collect()
    }

    #[test]
    fn this_machine_is_as_the_kernel_tells() {
        if api().is_none() {
            return;
        }
        let found = cores().unwrap();
        assert_eq!(found.api.0, 2);
        let mut seen = BTreeSet::new();
        for core in &found.cores {
            assert!(core.cpus.is_sorted() && !core.cpus.is_empty(), "{core:?}");
            for cpu in &core.cpus {
                assert!(seen.insert(*cpu), "cpu {cpu} is in two cores: {found:?}");
            }
            let first = core.cpus[0];
            let path = format!("/sys/devices/system/cpu/cpu{first}/topology/thread_siblings_list");
            if let Some(siblings) = read_list(&path) {
                assert!(core.cpus.iter().all(|cpu| siblings.contains(cpu)), "{core:?}");
            }
            if let Some(node) = core.numa_node {
                let path = format!("/sys/devices/system/node/node{node}/cpulist");
                if let Some(cpus) = read_list(&path).filter(|cpus| !cpus.is_empty()) {
                    assert!(core.cpus.iter().all(|cpu| cpus.contains(cpu)), "{core:?}");
                }
            }
        }
        assert!(affinity().is_subset(&seen), "{:?} are not all in {found:?}", affinity());
    }

    #[test]
    fn asking_leaves_the_affinity_mask_alone() {
        let before = affinity();
        if api().is_some() {
            cores().unwrap();
        }
        assert_eq!(affinity(), before);
    }

    #[test]
    fn logical_order_goes_by_package_and_tells_the_node_and_the_threads() {
        let Some(api) = api() else { return };
        // Two packages of two cores of two threads, numbered round-robin as many machines are:
        // cpu 0 in package 0, cpu 1 in package 1, …, second threads from 4 on.
        let text = c"package:2 [numa] core:2 pu:2(indexes=0,4,2,6,1,5,3,7)";
        let topology = Topology::load(&api, Some(text)).unwrap();
        assert!(!topology.is_this_machine());
        let core = |cpus: [u32; 2], node| Core { cpus: cpus.to_vec(), numa_node: Some(node) };
        assert_eq!(
            topology.cores().unwrap(),
            [core([0, 4], 0), core([2, 6], 0), core([1, 5], 1), core([3, 7], 1)]
        );
    }

    #[test]
    fn numbers_above_a_word_and_machines_without_cores_are_read() {
        let Some(api) = api() else { return };
        let topology = Topology::load(&api, Some(c"numa:4 core:64 pu:1")).unwrap();
        let cores = topology.cores().unwrap();
        assert_eq!(cores.len(), 256);
        assert_eq!(cores[255], Core { cpus: vec![255], numa_node: Some(3) });
        let topology = Topology::load(&api, Some(c"numa:1 pu:3")).unwrap();
        let threads: Vec<_> = topology.cores().unwrap().into_iter().map(|core| core.cpus).collect();
        assert_eq!(threads, [[0], [1], [2]]);
    }

    #[test]
    fn what_cannot_be_described_is_an_error_in_words() {
        let Some(api) = api() else { return };
        let error = Topology::load(&api, Some(c"no such thing")).err().map(|e| e.to_string());
        assert_eq!(error.as_deref(), Some("hwloc_topology_set_synthetic failed"));
        let error = HwlocError::Version((3, 0)).to_string();
        assert_eq!(error, "libhwloc.so.15 has API 3.0, and only 2 is known here");
    }
}
