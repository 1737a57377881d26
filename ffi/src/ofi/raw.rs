//! The part of libfabric's C interface that Ironweave uses, as of symbol version `FABRIC_1.3`. Layouts and numbers only;
//! nothing here is called but by the safe layer beside it.
//!
//! libfabric exports a handful of functions; everything hot is a table of functions that the library hands out. Tables and
//! structures grow at their end from release to release, and what `FABRIC_1.3` hands out keeps these offsets, so the tables
//! are written only as far as they are used. Enums are plain integers: a library may know more values than this file.

use libc::{iovec, ssize_t};
use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

/// `fi_addr_t`: a peer, as an address vector names it.
pub type FiAddr = u64;
/// `FI_ADDR_UNSPEC`: from anybody. The same number says that an address could not be inserted.
pub const ADDR_UNSPEC: FiAddr = u64::MAX;

/// The interface that callers are written for, in `fi_getinfo`: 1.17, or what an older library has.
pub const API: u32 = version(1, 17);
/// The oldest release whose `fi_getinfo` has symbol version `FABRIC_1.3`.
pub const OLDEST: u32 = version(1, 9);

/// `FI_VERSION`.
#[must_use]
pub const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

// Capabilities and flags.
pub const MSG: u64 = 1 << 1;
pub const RMA: u64 = 1 << 2;
pub const TAGGED: u64 = 1 << 3;
pub const ATOMIC: u64 = 1 << 4;
pub const READ: u64 = 1 << 8;
pub const WRITE: u64 = 1 << 9;
pub const RECV: u64 = 1 << 10;
pub const SEND: u64 = 1 << 11;
pub const TRANSMIT: u64 = SEND;
pub const REMOTE_READ: u64 = 1 << 12;
pub const REMOTE_WRITE: u64 = 1 << 13;
pub const MULTI_RECV: u64 = 1 << 16;
/// `FI_INJECT_COMPLETE`: a send is over when its buffer may be used again.
pub const INJECT_COMPLETE: u64 = 1 << 26;
/// `FI_ORDER_SAS`: sends after sends arrive in their order.
pub const ORDER_SAS: u64 = 1 << 8;
// Modes: what the application does for the provider.
pub const CONTEXT: u64 = 1 << 59;
pub const CONTEXT2: u64 = 1 << 52;
// Registration modes.
pub const MR_LOCAL: c_int = 1 << 2;
pub const MR_VIRT_ADDR: c_int = 1 << 4;
pub const MR_ALLOCATED: c_int = 1 << 5;
pub const MR_PROV_KEY: c_int = 1 << 6;
pub const MR_RMA_EVENT: c_int = 1 << 8;
pub const MR_ENDPOINT: c_int = 1 << 9;
// Enums.
pub const EP_RDM: c_int = 3;
pub const THREAD_DOMAIN: c_int = 3;
pub const RM_ENABLED: c_int = 2;
pub const AV_TABLE: c_int = 2;
pub const CQ_FORMAT_DATA: c_int = 3;
pub const WAIT_NONE: c_int = 0;
pub const WAIT_FD: c_int = 3;
pub const GETWAIT: c_int = 5;
pub const ENABLE: c_int = 6;
pub const OPT_ENDPOINT: c_int = 0;
pub const OPT_MIN_MULTI_RECV: c_int = 0;
pub const FORMAT_SOCKADDR_IN: u32 = 2;
pub const FORMAT_SOCKADDR_IN6: u32 = 3;
pub const FORMAT_STR: u32 = 9;

#[repr(C)]
pub struct Info {
    pub next: *mut Info,
    pub caps: u64,
    pub mode: u64,
    pub addr_format: u32,
    pub src_addrlen: usize,
    pub dest_addrlen: usize,
    pub src_addr: *mut c_void,
    pub dest_addr: *mut c_void,
    pub handle: *mut Fid,
    pub tx_attr: *mut TxAttr,
    pub rx_attr: *mut RxAttr,
    pub ep_attr: *mut EpAttr,
    pub domain_attr: *mut DomainAttr,
    pub fabric_attr: *mut FabricAttr,
}

#[repr(C)]
pub struct TxAttr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub inject_size: usize,
    pub size: usize,
    pub iov_limit: usize,
}

#[repr(C)]
pub struct RxAttr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub total_buffered_recv: usize,
    pub size: usize,
}

#[repr(C)]
pub struct EpAttr {
    pub kind: c_int,
    pub protocol: u32,
    pub protocol_version: u32,
    pub max_msg_size: usize,
}

#[repr(C)]
pub struct DomainAttr {
    pub domain: *mut Domain,
    pub name: *mut c_char,
    pub threading: c_int,
    pub control_progress: c_int,
    pub data_progress: c_int,
    pub resource_mgmt: c_int,
    pub av_type: c_int,
    pub mr_mode: c_int,
    pub mr_key_size: usize,
}

#[repr(C)]
pub struct FabricAttr {
    pub fabric: *mut Fabric,
    pub name: *mut c_char,
    pub prov_name: *mut c_char,
    pub prov_version: u32,
    pub api_version: u32,
}

/// `struct fid`: the head of every object.
#[repr(C)]
pub struct Fid {
    class: usize,
    context: *mut c_void,
    pub ops: *const Ops,
}

#[repr(C)]
pub struct Ops {
    size: usize,
    pub close: unsafe extern "C" fn(*mut Fid) -> c_int,
    pub bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    pub control: unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int,
}

#[repr(C)]
pub struct Fabric {
    pub fid: Fid,
    pub ops: *const FabricOps,
}

#[repr(C)]
pub struct FabricOps {
    size: usize,
    pub domain:
        unsafe extern "C" fn(*mut Fabric, *mut Info, *mut *mut Domain, *mut c_void) -> c_int,
    passive_ep: *const c_void,
    eq_open: *const c_void,
    wait_open: *const c_void,
    pub trywait: unsafe extern "C" fn(*mut Fabric, *mut *mut Fid, c_int) -> c_int,
}

#[repr(C)]
pub struct Domain {
    pub fid: Fid,
    pub ops: *const DomainOps,
    pub mr: *const MrOps,
}

#[repr(C)]
pub struct DomainOps {
    size: usize,
    pub av_open: unsafe extern "C" fn(*mut Domain, *mut AvAttr, *mut *mut Av, *mut c_void) -> c_int,
    pub cq_open: unsafe extern "C" fn(*mut Domain, *mut CqAttr, *mut *mut Cq, *mut c_void) -> c_int,
    pub endpoint: unsafe extern "C" fn(*mut Domain, *mut Info, *mut *mut Ep, *mut c_void) -> c_int,
}

#[repr(C)]
pub struct MrOps {
    size: usize,
    #[allow(clippy::type_complexity)] // as the C header has it
    pub reg: unsafe extern "C" fn(
        *mut Fid,
        *const c_void,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut Mr,
        *mut c_void,
    ) -> c_int,
}

#[repr(C)]
pub struct Mr {
    pub fid: Fid,
    pub desc: *mut c_void,
    pub key: u64,
}

#[repr(C)]
pub struct AvAttr {
    pub kind: c_int,
    pub rx_ctx_bits: c_int,
    pub count: usize,
    pub ep_per_node: usize,
    pub name: *const c_char,
    pub map_addr: *mut c_void,
    pub flags: u64,
}

#[repr(C)]
pub struct Av {
    pub fid: Fid,
    pub ops: *const AvOps,
}

#[repr(C)]
pub struct AvOps {
    size: usize,
    pub insert:
        unsafe extern "C" fn(*mut Av, *const c_void, usize, *mut FiAddr, u64, *mut c_void) -> c_int,
    insertsvc: *const c_void,
    insertsym: *const c_void,
    pub remove: unsafe extern "C" fn(*mut Av, *mut FiAddr, usize, u64) -> c_int,
}

#[repr(C)]
pub struct CqAttr {
    pub size: usize,
    pub flags: u64,
    pub format: c_int,
    pub wait_obj: c_int,
    pub signaling_vector: c_int,
    pub wait_cond: c_int,
    pub wait_set: *mut c_void,
}

#[repr(C)]
pub struct Cq {
    pub fid: Fid,
    pub ops: *const CqOps,
}

#[repr(C)]
pub struct CqOps {
    size: usize,
    pub read: unsafe extern "C" fn(*mut Cq, *mut c_void, usize) -> ssize_t,
    readfrom: *const c_void,
    pub readerr: unsafe extern "C" fn(*mut Cq, *mut CqErrEntry, u64) -> ssize_t,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct CqEntry {
    pub context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
}

#[repr(C)]
pub struct CqErrEntry {
    pub context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
    pub olen: usize,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
    /// Later interfaces write more (`src_addr`); room for them.
    pub later: [u64; 8],
}

#[repr(C)]
pub struct Ep {
    pub fid: Fid,
    pub ops: *const EpOps,
    pub cm: *const CmOps,
    pub msg: *const MsgOps,
    pub rma: *const RmaOps,
    pub tagged: *const TaggedOps,
    pub atomic: *const AtomicOps,
}

#[repr(C)]
pub struct EpOps {
    size: usize,
    pub cancel: unsafe extern "C" fn(*mut Fid, *mut c_void) -> ssize_t,
    getopt: *const c_void,
    pub setopt: unsafe extern "C" fn(*mut Fid, c_int, c_int, *const c_void, usize) -> c_int,
}

#[repr(C)]
pub struct CmOps {
    size: usize,
    setname: *const c_void,
    pub getname: unsafe extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int,
}

#[repr(C)]
pub struct MsgOps {
    size: usize,
    pub recv: unsafe extern "C" fn(
        *mut Ep,
        *mut c_void,
        usize,
        *mut c_void,
        FiAddr,
        *mut c_void,
    ) -> ssize_t,
    recvv: *const c_void,
    pub recvmsg: unsafe extern "C" fn(*mut Ep, *const Msg, u64) -> ssize_t,
    pub send: unsafe extern "C" fn(
        *mut Ep,
        *const c_void,
        usize,
        *mut c_void,
        FiAddr,
        *mut c_void,
    ) -> ssize_t,
    pub sendv: unsafe extern "C" fn(
        *mut Ep,
        *const iovec,
        *mut *mut c_void,
        usize,
        FiAddr,
        *mut c_void,
    ) -> ssize_t,
    sendmsg: *const c_void,
    pub inject: unsafe extern "C" fn(*mut Ep, *const c_void, usize, FiAddr) -> ssize_t,
}

/// `struct fi_param`: only given back.
#[repr(C)]
pub struct Param {
    opaque: [u8; 0],
}

#[repr(C)]
pub struct TaggedOps {
    size: usize,
    pub recv: unsafe extern "C" fn(
        *mut Ep,
        *mut c_void,
        usize,
        *mut c_void,
        FiAddr,
        u64,
        u64,
        *mut c_void,
    ) -> ssize_t,
    recvv: *const c_void,
    recvmsg: *const c_void,
    pub send: unsafe extern "C" fn(
        *mut Ep,
        *const c_void,
        usize,
        *mut c_void,
        FiAddr,
        u64,
        *mut c_void,
    ) -> ssize_t,
}

#[repr(C)]
pub struct RmaOps {
    size: usize,
    pub read: unsafe extern "C" fn(
        *mut Ep,
        *mut c_void,
        usize,
        *mut c_void,
        FiAddr,
        u64,
        u64,
        *mut c_void,
    ) -> ssize_t,
}

#[repr(C)]
pub struct AtomicOps {
    size: usize,
    unused: [*const c_void; 4], // write, writev, writemsg, inject
    pub readwrite: unsafe extern "C" fn(
        *mut Ep,
        *const c_void,
        usize,
        *mut c_void,
        *mut c_void,
        *mut c_void,
        FiAddr,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> ssize_t,
    unused_too: [*const c_void; 2], // readwritev, readwritemsg
    pub compwrite: unsafe extern "C" fn(
        *mut Ep,
        *const c_void,
        usize,
        *mut c_void,
        *const c_void,
        *mut c_void,
        *mut c_void,
        *mut c_void,
        FiAddr,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> ssize_t,
    unused_either: [*const c_void; 3], // compwritev, compwritemsg, writevalid
    pub readwritevalid: unsafe extern "C" fn(*mut Ep, c_int, c_int, *mut usize) -> c_int,
    pub compwritevalid: unsafe extern "C" fn(*mut Ep, c_int, c_int, *mut usize) -> c_int,
}

pub const UINT64: c_int = 7;
pub const SUM: c_int = 2;
pub const CSWAP: c_int = 12;

#[repr(C)]
pub struct Msg {
    pub iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: FiAddr,
    pub context: *mut c_void,
    pub data: u64,
}

// As gcc's offsetof prints them for the headers of Debian's libfabric-dev 1.17.0 on x86-64.
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(offset_of!(Info, addr_format) == 24 && offset_of!(Info, src_addr) == 48);
    assert!(offset_of!(Info, tx_attr) == 72 && offset_of!(Info, fabric_attr) == 104);
    assert!(offset_of!(TxAttr, inject_size) == 40 && offset_of!(TxAttr, iov_limit) == 56);
    assert!(offset_of!(RxAttr, msg_order) == 24 && offset_of!(RxAttr, size) == 48);
    assert!(offset_of!(EpAttr, protocol_version) == 8 && offset_of!(EpAttr, max_msg_size) == 16);
    assert!(offset_of!(DomainAttr, threading) == 16 && offset_of!(DomainAttr, mr_mode) == 36);
    assert!(offset_of!(DomainAttr, mr_key_size) == 40);
    assert!(offset_of!(FabricAttr, prov_name) == 16 && offset_of!(FabricAttr, api_version) == 28);
    assert!(size_of::<Fid>() == 24 && offset_of!(Ops, control) == 24);
    assert!(offset_of!(FabricOps, trywait) == 40 && offset_of!(Domain, mr) == 32);
    assert!(offset_of!(DomainOps, endpoint) == 24 && offset_of!(MrOps, reg) == 8);
    assert!(offset_of!(Mr, desc) == 24 && offset_of!(Mr, key) == 32);
    assert!(size_of::<AvAttr>() == 48 && offset_of!(AvAttr, flags) == 40);
    assert!(offset_of!(AvOps, remove) == 32);
    assert!(size_of::<CqAttr>() == 40 && offset_of!(CqAttr, wait_set) == 32);
    assert!(offset_of!(CqOps, readerr) == 24 && size_of::<CqEntry>() == 40);
    assert!(offset_of!(CqErrEntry, err) == 56 && offset_of!(CqErrEntry, later) == 80);
    assert!(offset_of!(Ep, rma) == 48 && offset_of!(EpOps, setopt) == 24);
    assert!(offset_of!(CmOps, getname) == 16);
    assert!(offset_of!(MsgOps, recvmsg) == 24 && offset_of!(MsgOps, inject) == 56);
    assert!(size_of::<Msg>() == 48 && offset_of!(Msg, context) == 32);
};
