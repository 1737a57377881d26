//! The C structures of `infiniband/verbs.h`, as far as they are used here, and the functions of `libibverbs.so.1`.
//!
//! Written from the header of rdma-core 44; the layouts are the library's stable ABI (`IBVERBS_1.1`, since 2009) and
//! the sizes below were printed by a C compiler. Nothing here is safe or does anything.
#![allow(missing_docs)] // names and meanings are those of verbs.h

use std::ffi::{c_char, c_int, c_uint, c_void};

macro_rules! layout {
    ($($type:ty: $size:literal $(, $field:ident @ $offset:literal)*;)*) => {
        $(const _: () = assert!(size_of::<$type>() == $size);
          $(const _: () = assert!(std::mem::offset_of!($type, $field) == $offset);)*)*
    };
}

layout! {
    Wc: 48, qp_num @ 28, wc_flags @ 36;
    SendWr: 128, opcode @ 28, wr @ 40;
    QpAttr: 144, cap @ 36, ah_attr @ 56, timeout @ 130;
    Context: 328, ops @ 8, cmd_fd @ 264, async_fd @ 268;
    ContextOps: 256, poll_cq @ 88, req_notify_cq @ 96, post_srq_recv @ 160, post_send @ 200, post_recv @ 208;
    DeviceAttr: 232, max_qp @ 108, max_sge @ 120, max_cqe @ 132, max_qp_rd_atom @ 144, max_srq_wr @ 216;
    DeviceAttrEx: 400, odp_general @ 240, odp_rc @ 248;
    ExtendedContext: 432, sz @ 96, context @ 104;
    PortAttr: 52, gid_tbl_len @ 12, max_msg_sz @ 20, lid @ 34, link_layer @ 46;
    QpInitAttr: 64;
    Mr: 48, lkey @ 36, rkey @ 40;
    AhAttr: 32, dlid @ 24;
    RecvWr: 32;
    Sge: 16;
    SrqInitAttr: 24;
    AsyncEvent: 16, event_type @ 8;
}

#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Wc {
    pub wr_id: u64,
    pub status: c_uint,
    pub opcode: c_uint,
    pub vendor_err: u32,
    pub byte_len: u32,
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

impl Wc {
    /// What was sent beside the bytes that were received.
    #[inline]
    #[must_use]
    pub fn beside(&self) -> Option<u32> {
        (self.wc_flags & WC_WITH_IMM != 0).then_some(u32::from_be(self.imm_data))
    }
}

#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Rdma {
    pub remote_addr: u64,
    pub rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Ud {
    pub ah: *mut c_void,
    pub remote_qpn: u32,
    pub remote_qkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub union Target {
    pub rdma: Rdma,
    pub ud: Ud,
    pub atomic: [u64; 4],
}

#[repr(C)]
pub struct SendWr {
    pub wr_id: u64,
    pub next: *mut SendWr,
    pub sg_list: *const Sge,
    pub num_sge: c_int,
    pub opcode: c_uint,
    pub send_flags: c_uint,
    pub imm_data: u32,
    pub wr: Target,
    pub qp_type: u64,
    pub bind_or_tso: [u64; 6],
}

#[repr(C)]
pub struct RecvWr {
    pub wr_id: u64,
    pub next: *mut RecvWr,
    pub sg_list: *const Sge,
    pub num_sge: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct QpCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct AhAttr {
    pub dgid: [u64; 2], // sixteen bytes, aligned as the header's union is
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct QpAttr {
    pub qp_state: c_uint,
    pub cur_qp_state: c_uint,
    pub path_mtu: c_uint,
    pub path_mig_state: c_uint,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: c_uint,
    pub cap: QpCap,
    pub ah_attr: AhAttr,
    pub alt_ah_attr: AhAttr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

#[repr(C)]
pub struct QpInitAttr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: *mut Srq,
    pub cap: QpCap,
    pub qp_type: c_uint,
    pub sq_sig_all: c_int,
}

#[repr(C)]
pub struct SrqInitAttr {
    pub srq_context: *mut c_void,
    pub max_wr: u32,
    pub max_sge: u32,
    pub srq_limit: u32,
}

#[repr(C)]
pub struct DeviceAttr {
    pub fw_ver: [c_char; 64],
    pub guids: [u64; 2],
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor: [u32; 3],
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub device_cap_flags: c_uint,
    pub max_sge: c_int,
    pub max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    pub max_qp_rd_atom: c_int,
    pub max_ee_rd_atom: c_int,
    pub max_res_rd_atom: c_int,
    pub max_qp_init_rd_atom: c_int,
    pub max_ee_init_rd_atom: c_int,
    pub atomic_cap: c_uint,
    pub unused: [c_int; 11],
    pub max_srq: c_int,
    pub max_srq_wr: c_int,
    pub max_srq_sge: c_int,
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}

#[repr(C)]
pub struct DeviceAttrEx {
    pub orig_attr: DeviceAttr,
    pub comp_mask: u32,
    pub odp_general: u64,
    pub odp_rc: u32,
    pub after: [u32; 37],
}

#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct PortAttr {
    pub state: c_uint,
    pub max_mtu: c_uint,
    pub active_mtu: c_uint,
    pub gid_tbl_len: c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub max_vl_num: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub phys_state: u8,
    pub link_layer: u8,
    pub flags: u8,
    pub port_cap_flags2: u16,
}

#[repr(C)]
pub struct AsyncEvent {
    pub element: *mut c_void,
    pub event_type: c_uint,
}

#[repr(C)]
pub struct Mr {
    pub context: *mut Context,
    pub pd: *mut Pd,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

/// The beginning of `struct ibv_qp`.
#[repr(C)]
pub struct Qp {
    pub context: *mut Context,
    pub qp_context: *mut c_void,
    pub pd: *mut Pd,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: *mut Srq,
    pub handle: u32,
    pub qp_num: u32,
}

/// The beginning of `struct ibv_cq`.
#[repr(C)]
pub struct Cq {
    pub context: *mut Context,
}

/// The beginning of `struct ibv_srq`.
#[repr(C)]
pub struct Srq {
    pub context: *mut Context,
}

#[repr(C)]
pub struct CompChannel {
    pub context: *mut Context,
    pub fd: c_int,
    pub refcnt: c_int,
}

/// Opaque.
#[repr(C)]
pub struct Pd {
    _private: [u8; 0],
}

/// Opaque.
#[repr(C)]
pub struct Device {
    _private: [u8; 0],
}

pub type PollCq = unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int;
pub type ReqNotify = unsafe extern "C" fn(*mut Cq, c_int) -> c_int;
pub type PostSrqRecv = unsafe extern "C" fn(*mut Srq, *mut RecvWr, *mut *mut RecvWr) -> c_int;
pub type PostSend = unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int;
pub type PostRecv = unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int;

/// What the header's inline functions call.
#[repr(C)]
pub struct ContextOps {
    pub before_poll: [*mut c_void; 11],
    pub poll_cq: PollCq,
    pub req_notify_cq: ReqNotify,
    pub between: [*mut c_void; 7],
    pub post_srq_recv: PostSrqRecv,
    pub between2: [*mut c_void; 4],
    pub post_send: PostSend,
    pub post_recv: PostRecv,
    pub after: [*mut c_void; 5],
}

#[repr(C)]
pub struct Context {
    pub device: *mut Device,
    pub ops: ContextOps,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    pub mutex: [u64; 5],
    pub abi_compat: *mut c_void,
}

/// The end of `struct verbs_context`, from `query_device_ex` on: what lies before a [`Context`] whose `abi_compat` is
/// [`EXTENDED`]. It grows at its other end, by what `sz` says.
#[repr(C)]
pub struct ExtendedContext {
    pub query_device_ex: Option<QueryDeviceEx>,
    pub between: [*mut c_void; 11],
    pub sz: usize,
    pub context: Context,
}

pub type QueryDeviceEx =
    unsafe extern "C" fn(*mut Context, *const c_void, *mut DeviceAttrEx, usize) -> c_int;

pub const EXTENDED: *mut c_void = std::ptr::without_provenance_mut(usize::MAX);

pub const ODP_SUPPORT: u64 = 1;
pub const ODP_SUPPORT_WRITE: u32 = 1 << 2;
pub const ODP_SUPPORT_READ: u32 = 1 << 3;

pub const PORT_ACTIVE: c_uint = 4;
pub const LINK_LAYER_ETHERNET: u8 = 2;

pub const QPT_RC: c_uint = 2;
pub const QPT_UD: c_uint = 4;

pub const QPS_INIT: c_uint = 1;
pub const QPS_RTR: c_uint = 2;
pub const QPS_RTS: c_uint = 3;
pub const QPS_ERR: c_uint = 6;

pub const QP_STATE: c_int = 1 << 0;
pub const QP_ACCESS_FLAGS: c_int = 1 << 3;
pub const QP_PKEY_INDEX: c_int = 1 << 4;
pub const QP_PORT: c_int = 1 << 5;
pub const QP_QKEY: c_int = 1 << 6;
pub const QP_AV: c_int = 1 << 7;
pub const QP_PATH_MTU: c_int = 1 << 8;
pub const QP_TIMEOUT: c_int = 1 << 9;
pub const QP_RETRY_CNT: c_int = 1 << 10;
pub const QP_RNR_RETRY: c_int = 1 << 11;
pub const QP_RQ_PSN: c_int = 1 << 12;
pub const QP_MAX_QP_RD_ATOMIC: c_int = 1 << 13;
pub const QP_MIN_RNR_TIMER: c_int = 1 << 15;
pub const QP_SQ_PSN: c_int = 1 << 16;
pub const QP_MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
pub const QP_DEST_QPN: c_int = 1 << 20;

pub const ATOMIC_NONE: c_uint = 0;

pub const WR_RDMA_WRITE: c_uint = 0;
pub const WR_SEND: c_uint = 2;
pub const WR_SEND_WITH_IMM: c_uint = 3;
pub const WC_WITH_IMM: c_uint = 1 << 1;
pub const WR_RDMA_READ: c_uint = 4;
pub const WR_COMPARE_SWAP: c_uint = 5;
pub const WR_FETCH_ADD: c_uint = 6;

pub const SEND_SIGNALED: c_uint = 1 << 1;
pub const SEND_INLINE: c_uint = 1 << 3;

pub const ACCESS_LOCAL_WRITE: c_int = 1;
pub const ACCESS_REMOTE_WRITE: c_int = 2;
pub const ACCESS_REMOTE_READ: c_int = 4;
pub const ACCESS_REMOTE_ATOMIC: c_int = 8;
pub const ACCESS_ON_DEMAND: c_int = 1 << 6;

macro_rules! library {
    ($($(#[$doc:meta])* $name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the library, looked up once.
        pub struct Symbols {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Symbols {
            /// Looks all of them up.
            ///
            /// # Errors
            /// Names the first that is missing.
            pub fn find(library: &ironweave_ffi::Library) -> Result<Symbols, ironweave_ffi::LibraryError> {
                Ok(Symbols {
                    $($name: {
                        let address = library.symbol(concat!("ibv_", stringify!($name)))?;
                        // SAFETY: the default version of this symbol has the type that verbs.h declares, written
                        // out below; function pointers and data pointers have the same representation.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                                address.as_ptr(),
                            )
                        }
                    },)*
                })
            }
        }
    };
}

library! {
    get_device_list: fn(*mut c_int) -> *mut *mut Device;
    free_device_list: fn(*mut *mut Device);
    get_device_name: fn(*mut Device) -> *const c_char;
    open_device: fn(*mut Device) -> *mut Context;
    close_device: fn(*mut Context) -> c_int;
    query_device: fn(*mut Context, *mut DeviceAttr) -> c_int;
    query_port: fn(*mut Context, u8, *mut PortAttr) -> c_int;
    query_gid: fn(*mut Context, u8, c_int, *mut [u8; 16]) -> c_int;
    alloc_pd: fn(*mut Context) -> *mut Pd;
    dealloc_pd: fn(*mut Pd) -> c_int;
    reg_mr: fn(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr;
    dereg_mr: fn(*mut Mr) -> c_int;
    create_comp_channel: fn(*mut Context) -> *mut CompChannel;
    destroy_comp_channel: fn(*mut CompChannel) -> c_int;
    create_cq: fn(*mut Context, c_int, *mut c_void, *mut CompChannel, c_int) -> *mut Cq;
    destroy_cq: fn(*mut Cq) -> c_int;
    get_cq_event: fn(*mut CompChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
    ack_cq_events: fn(*mut Cq, c_uint);
    create_srq: fn(*mut Pd, *mut SrqInitAttr) -> *mut Srq;
    destroy_srq: fn(*mut Srq) -> c_int;
    create_qp: fn(*mut Pd, *mut QpInitAttr) -> *mut Qp;
    modify_qp: fn(*mut Qp, *mut QpAttr, c_int) -> c_int;
    destroy_qp: fn(*mut Qp) -> c_int;
    create_ah: fn(*mut Pd, *mut AhAttr) -> *mut c_void;
    destroy_ah: fn(*mut c_void) -> c_int;
    get_async_event: fn(*mut Context, *mut AsyncEvent) -> c_int;
    ack_async_event: fn(*mut AsyncEvent);
}
