//! Layouts and calls of UCT, as UCX's public headers have them (`uct.h`, `tl.h`, `uct_def.h`), written by hand.
//!
//! They are the same from 1.13 to 1.22, but for two: what follows the fields used here in `uct_ep_params`, and the stride of
//! the worker's progress queue, which is found out at run time (`library.rs`). The test of this file asks a C compiler
//! where there are headers. Nothing here decides anything.

use crate::status::Status;
use std::ffi::{c_char, c_int, c_uint, c_void};

/// A handle that only the library looks into.
pub type Handle = *mut c_void;

/// `uct_component_attr_t`.
#[repr(C)]
pub struct ComponentAttr {
    pub field_mask: u64,
    pub name: [c_char; 16],
    pub md_resource_count: c_uint,
    pub md_resources: *mut MdResource,
    pub flags: u64,
}

pub const COMPONENT_NAME: u64 = 1;
pub const COMPONENT_MD_COUNT: u64 = 2;
pub const COMPONENT_MDS: u64 = 4;

/// `uct_md_resource_desc_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MdResource {
    pub name: [c_char; 16],
}

/// `uct_tl_resource_desc_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TlResource {
    pub transport: [c_char; 10],
    pub device: [c_char; 32],
    pub kind: c_uint,
    pub sys_device: u8,
}

/// `put`, `get` of `uct_iface_attr_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RmaCap {
    pub max_short: usize,
    pub max_bcopy: usize,
    pub min_zcopy: usize,
    pub max_zcopy: usize,
    pub opt_zcopy_align: usize,
    pub align_mtu: usize,
    pub max_iov: usize,
}

/// `am` of `uct_iface_attr_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AmCap {
    pub max_short: usize,
    pub max_bcopy: usize,
    pub min_zcopy: usize,
    pub max_zcopy: usize,
    pub opt_zcopy_align: usize,
    pub align_mtu: usize,
    pub max_hdr: usize,
    pub max_iov: usize,
}

/// `uct_iface_attr_t`, with room behind it for what later versions may add.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IfaceAttr {
    pub put: RmaCap,
    pub get: RmaCap,
    pub am: AmCap,
    pub tag: [usize; 11],
    pub atomics: [u64; 4],
    pub flags: u64,
    pub event_flags: u64,
    pub device_addr_len: usize,
    pub iface_addr_len: usize,
    pub ep_addr_len: usize,
    pub max_conn_priv: usize,
    pub listen_sockaddr: [u64; 16],
    /// Seconds for each message.
    pub overhead: f64,
    /// Bytes in a second: a process's own, and shared by all.
    pub bandwidth: [f64; 2],
    /// Seconds; and for each endpoint.
    pub latency: [f64; 2],
    pub priority: u8,
    pub max_num_eps: usize,
    pub dev_num_paths: c_uint,
    pub later: [u64; 64],
}

/// `UCT_IFACE_FLAG_…`.
pub mod flag {
    pub const AM_SHORT: u64 = 1;
    pub const AM_BCOPY: u64 = 1 << 1;
    pub const AM_ZCOPY: u64 = 1 << 2;
    pub const PENDING: u64 = 1 << 3;
    pub const PUT_ZCOPY: u64 = 1 << 6;
    pub const GET_ZCOPY: u64 = 1 << 10;
    pub const PEER_FAILURE: u64 = 1 << 38;
    pub const EP_CHECK: u64 = 1 << 39;
    pub const CONNECT_TO_IFACE: u64 = 1 << 40;
    pub const CONNECT_TO_EP: u64 = 1 << 41;
    pub const AM_DUP: u64 = 1 << 43;
}

/// `UCT_IFACE_FLAG_EVENT_…`: of `event_flags`.
pub mod event_flag {
    pub const RECV: u64 = 1 << 1;
    pub const FD: u64 = 1 << 3;
}

/// `uct_md_attr_t`, with room behind it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MdAttr {
    pub max_alloc: u64,
    pub max_reg: usize,
    pub flags: u64,
    pub mem_types: [u64; 4],
    pub reg_cost: [f64; 2],
    pub component: [c_char; 16],
    pub rkey_packed_size: usize,
    pub local_cpus: [u64; 16],
    pub later: [u64; 64],
}

/// `UCT_MD_FLAG_…`.
pub mod md_flag {
    pub const REG: u64 = 1 << 1;
    pub const NEED_MEMH: u64 = 1 << 2;
    pub const NEED_RKEY: u64 = 1 << 3;
}

/// `UCT_MD_MEM_…`: what registered memory is for.
pub mod access {
    pub const REMOTE_PUT: c_uint = 1 << 5;
    pub const REMOTE_GET: c_uint = 1 << 6;
    pub const LOCAL_READ: c_uint = 1 << 8;
    pub const LOCAL_WRITE: c_uint = 1 << 9;
    use std::ffi::c_uint;
}

/// `uct_iface_params_t`, opened on a device.
#[repr(C)]
pub struct IfaceParams {
    pub field_mask: u64,
    pub cpu_mask: [u64; 16],
    pub open_mode: u64,
    pub transport: *const c_char,
    pub device: *const c_char,
    pub rest_of_mode: [u64; 3],
    pub stats_root: Handle,
    pub rx_headroom: usize,
    pub err_handler_arg: *mut c_void,
    pub err_handler: Option<ErrorHandler>,
    pub err_handler_flags: u32,
    pub tag: [Handle; 4],
    pub async_event: [Handle; 2],
    pub keepalive_interval: u64,
    pub am_alignment: usize,
    pub am_align_offset: usize,
    pub features: u64,
}

/// `UCT_IFACE_PARAM_FIELD_…`.
pub mod iface_field {
    pub const CPU_MASK: u64 = 1;
    pub const OPEN_MODE: u64 = 1 << 1;
    pub const DEVICE: u64 = 1 << 2;
    pub const STATS_ROOT: u64 = 1 << 4;
    pub const RX_HEADROOM: u64 = 1 << 5;
    pub const ERR_HANDLER_ARG: u64 = 1 << 6;
    pub const ERR_HANDLER: u64 = 1 << 7;
    pub const ERR_HANDLER_FLAGS: u64 = 1 << 8;
    pub const FEATURES: u64 = 1 << 18;
}

pub const OPEN_MODE_DEVICE: u64 = 1;
/// `UCT_IFACE_FEATURE_AM`, `_PUT`, `_GET`.
pub const FEATURES: u64 = 1 | 1 << 1 | 1 << 2;

/// The part of `uct_ep_params_t` that is used; what follows is not looked at without its bit in the mask.
#[repr(C)]
pub struct EpParams {
    pub field_mask: u64,
    pub iface: *mut Iface,
    pub user_data: *mut c_void,
    pub dev_addr: *const u8,
    pub iface_addr: *const u8,
    pub rest: [u64; 15],
}

/// `UCT_EP_PARAM_FIELD_…`.
pub mod ep_field {
    pub const IFACE: u64 = 1;
    pub const DEV_ADDR: u64 = 1 << 2;
    pub const IFACE_ADDR: u64 = 1 << 3;
}

/// `uct_iov_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Iov {
    pub buffer: *mut c_void,
    pub length: usize,
    pub memh: Handle,
    pub stride: usize,
    pub count: c_uint,
}

/// `uct_completion_t`.
#[repr(C)]
pub struct Completion {
    pub func: unsafe extern "C" fn(*mut Completion),
    pub count: c_int,
    pub status: Status,
}

/// `uct_pending_req_t`.
#[repr(C)]
pub struct PendingReq {
    pub func: unsafe extern "C" fn(*mut PendingReq) -> Status,
    pub private: [u64; 5],
}

/// `uct_rkey_bundle_t`.
#[repr(C)]
pub struct RkeyBundle {
    pub rkey: usize,
    pub handle: Handle,
    pub kind: Handle,
}

pub type ErrorHandler = unsafe extern "C" fn(*mut c_void, *mut Ep, Status) -> Status;
pub type AmHandler = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, c_uint) -> Status;
pub type Pack = unsafe extern "C" fn(*mut c_void, *mut c_void) -> usize;
pub type Purge = unsafe extern "C" fn(*mut PendingReq, *mut c_void);
/// `ucs_callback_t`: an element of the worker's progress queue.
pub type Progress = unsafe extern "C" fn(*mut c_void) -> c_uint;

/// A call that is not used.
type Unused = *const c_void;

/// `uct_iface_ops_t`: what the header's inline functions call.
#[repr(C)]
pub struct Ops {
    pub put_short: Unused,
    pub put_bcopy: Unused,
    pub put_zcopy: RmaCall,
    pub get_short: Unused,
    pub get_bcopy: Unused,
    pub get_zcopy: RmaCall,
    pub am_short: unsafe extern "C" fn(*mut Ep, u8, u64, *const c_void, c_uint) -> Status,
    pub am_short_iov: Unused,
    pub am_bcopy: unsafe extern "C" fn(*mut Ep, u8, Pack, *mut c_void, c_uint) -> isize,
    pub am_zcopy: unsafe extern "C" fn(
        *mut Ep,
        u8,
        *const c_void,
        c_uint,
        *const Iov,
        usize,
        c_uint,
        *mut Completion,
    ) -> Status,
    pub atomics: [Unused; 6],
    pub ep_tag: [Unused; 6],
    pub iface_tag: [Unused; 2],
    pub pending_add: unsafe extern "C" fn(*mut Ep, *mut PendingReq, c_uint) -> Status,
    pub pending_purge: unsafe extern "C" fn(*mut Ep, Purge, *mut c_void),
    pub ep_flush: unsafe extern "C" fn(*mut Ep, c_uint, *mut Completion) -> Status,
    pub ep_fence: Unused,
    pub ep_check: unsafe extern "C" fn(*mut Ep, c_uint, *mut Completion) -> Status,
    pub ep_calls: [Unused; 9],
    pub iface_flush: Unused,
    pub iface_fence: Unused,
    pub progress_enable: unsafe extern "C" fn(*mut Iface, c_uint),
    pub progress_disable: unsafe extern "C" fn(*mut Iface, c_uint),
    pub iface_progress: unsafe extern "C" fn(*mut Iface) -> c_uint,
    pub event_fd_get: Unused,
    pub event_arm: Unused,
    pub close: Unused,
    pub query: Unused,
    pub addresses: [Unused; 2],
    pub is_reachable: Unused,
}

/// `put_zcopy` and `get_zcopy`.
pub type RmaCall =
    unsafe extern "C" fn(*mut Ep, *const Iov, usize, u64, usize, *mut Completion) -> Status;

/// `uct_iface_t` begins with its calls.
#[repr(C)]
pub struct Iface {
    pub ops: Ops,
}

/// `uct_ep_t` begins with its interface.
#[repr(C)]
pub struct Ep {
    pub iface: *mut Iface,
}

pub const FLUSH_CANCEL: c_uint = 1;
/// `UCT_PROGRESS_SEND | UCT_PROGRESS_RECV`.
pub const PROGRESS_ALL: c_uint = 3;
/// `UCT_EVENT_SEND_COMP | UCT_EVENT_RECV`.
pub const EVENTS_ALL: c_uint = 3;
/// `UCS_ASYNC_MODE_POLL`.
pub const ASYNC_POLL: c_uint = 3;
/// `UCS_THREAD_MODE_SINGLE`.
pub const THREAD_SINGLE: c_uint = 0;
/// `UCS_CALLBACKQ_FLAG_FAST`.
pub const CALLBACK_FAST: c_uint = 1;
/// Elements of the worker's progress queue, the sentinel included.
pub const PROGRESS_ELEMENTS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;
    use std::process::Command;

    /// The same numbers, out of the C compiler and out of here.
    #[test]
    fn layouts_are_those_of_the_headers() {
        let ours = [
            ("uct_iface_attr_t,cap.am", offset_of!(IfaceAttr, am)),
            ("uct_iface_attr_t,cap.flags", offset_of!(IfaceAttr, flags)),
            ("uct_iface_attr_t,cap.event_flags", offset_of!(IfaceAttr, event_flags)),
            ("uct_iface_attr_t,device_addr_len", offset_of!(IfaceAttr, device_addr_len)),
            ("uct_iface_attr_t,overhead", offset_of!(IfaceAttr, overhead)),
            ("uct_iface_attr_t,dev_num_paths", offset_of!(IfaceAttr, dev_num_paths)),
            ("uct_md_attr_t,cap.flags", offset_of!(MdAttr, flags)),
            ("uct_md_attr_t,rkey_packed_size", offset_of!(MdAttr, rkey_packed_size)),
            ("uct_md_attr_t,local_cpus", offset_of!(MdAttr, local_cpus)),
            ("uct_component_attr_t,md_resources", offset_of!(ComponentAttr, md_resources)),
            ("uct_tl_resource_desc_t,dev_name", offset_of!(TlResource, device)),
            ("uct_tl_resource_desc_t,sys_device", offset_of!(TlResource, sys_device)),
            ("uct_iface_params_t,mode", offset_of!(IfaceParams, transport)),
            ("uct_iface_params_t,err_handler", offset_of!(IfaceParams, err_handler)),
            ("uct_iface_params_t,err_handler_flags", offset_of!(IfaceParams, err_handler_flags)),
            ("uct_iface_params_t,features", offset_of!(IfaceParams, features)),
            ("uct_ep_params_t,iface_addr", offset_of!(EpParams, iface_addr)),
            ("uct_iov_t,count", offset_of!(Iov, count)),
            ("uct_completion_t,status", offset_of!(Completion, status)),
            ("uct_rkey_bundle_t,type", offset_of!(RkeyBundle, kind)),
            ("uct_iface_ops_t,ep_am_short", offset_of!(Ops, am_short)),
            ("uct_iface_ops_t,ep_am_zcopy", offset_of!(Ops, am_zcopy)),
            ("uct_iface_ops_t,ep_pending_add", offset_of!(Ops, pending_add)),
            ("uct_iface_ops_t,ep_check", offset_of!(Ops, ep_check)),
            ("uct_iface_ops_t,iface_progress_enable", offset_of!(Ops, progress_enable)),
            ("uct_iface_ops_t,iface_progress", offset_of!(Ops, iface_progress)),
            ("uct_iface_ops_t,iface_is_reachable", offset_of!(Ops, is_reachable)),
        ];
        let sizes = [
            ("uct_tl_resource_desc_t", size_of::<TlResource>()),
            ("uct_iface_params_t", size_of::<IfaceParams>()),
            ("uct_iov_t", size_of::<Iov>()),
            ("uct_completion_t", size_of::<Completion>()),
            ("uct_pending_req_t", size_of::<PendingReq>()),
            ("uct_iface_ops_t", size_of::<Ops>()),
            ("ucs_status_t", size_of::<Status>()),
        ];
        let mut source = String::from(
            "#include <stddef.h>\n#include <stdio.h>\n#include <uct/api/uct.h>\nint main(void) {\n",
        );
        for (place, _) in ours {
            source.push_str(&format!("printf(\"%zu\\n\", offsetof({place}));\n"));
        }
        for (name, _) in sizes {
            source.push_str(&format!("printf(\"%zu\\n\", sizeof({name}));\n"));
        }
        source.push_str("return 0; }\n");
        let folder = std::env::temp_dir().join(format!("iw-uct-layouts-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (file, program) = (folder.join("layouts.c"), folder.join("layouts"));
        std::fs::write(&file, source).unwrap();
        let venv = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.venv/ucx-1.22/lib");
        let python = std::fs::read_dir(venv).ok().and_then(|mut all| all.next()?.ok());
        let wheel = python.map(|python| python.path().join("site-packages/libucx/include"));
        let mut checked = 0;
        for headers in [None, wheel] {
            let mut compiler = Command::new("cc");
            compiler.arg(&file).arg("-o").arg(&program);
            if let Some(headers) = &headers {
                compiler.arg("-I").arg(headers);
            }
            if !compiler.output().is_ok_and(|output| output.status.success()) {
                continue;
            }
            let output = Command::new(&program).output().unwrap();
            let theirs: Vec<usize> = String::from_utf8(output.stdout)
                .unwrap()
                .lines()
                .map(|line| line.parse().unwrap())
                .collect();
            for ((what, ours), theirs) in ours.iter().chain(&sizes).zip(theirs) {
                assert_eq!(*ours, theirs, "{what} with {headers:?}");
            }
            println!("compared with {headers:?}");
            checked += 1;
        }
        std::fs::remove_dir_all(&folder).unwrap();
        if checked == 0 {
            println!("SKIP uct/layouts_are_those_of_the_headers: no UCX headers, or no C compiler");
        }
    }
}
