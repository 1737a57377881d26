//! What an interface can do, out of what the library says of it and of its memory domain. Pure.

use crate::raw::{self, event_flag, flag, md_flag};

/// What an interface may ask for as a packed remote key, in bytes.
pub const RKEY_MAX: usize = 64;
/// What it takes to sleep on it.
const WAITABLE: u64 = event_flag::FD | event_flag::RECV;

/// What an interface can do.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    /// Longest message, in bytes: short, packed, out of user memory.
    pub max_short: usize,
    /// See `max_short`.
    pub max_bcopy: usize,
    /// See `max_short`; 0 where there is none.
    pub max_zcopy: usize,
    /// Longest part of such a message that is not user memory, and how many pieces of it there may be.
    pub zcopy_header: usize,
    /// See `zcopy_header`.
    pub zcopy_pieces: usize,
    /// Longest put and get out of and into user memory, in bytes; 0 where there is none.
    pub max_put: usize,
    /// See `max_put`.
    pub max_get: usize,
    /// Shortest get, in bytes.
    pub min_get: usize,
    /// Shortest put, in bytes.
    pub min_put: usize,
    /// Length of the two parts of its name, and of an endpoint's address.
    pub device_addr_len: usize,
    /// See `device_addr_len`.
    pub iface_addr_len: usize,
    /// See `device_addr_len`.
    pub ep_addr_len: usize,
    /// Endpoints are connected to an interface's name.
    pub to_iface: bool,
    /// Endpoints are connected to an endpoint's address.
    pub to_ep: bool,
    /// The error handler is called when a peer fails.
    pub peer_failure: bool,
    /// Endpoints can be asked whether their peer is there.
    pub ep_check: bool,
    /// A descriptor can tell when there is something.
    pub waitable: bool,
    /// Endpoints can tell when they have room.
    pub pending: bool,
    /// Messages may come twice.
    pub duplicates: bool,
    /// One-way, in nanoseconds.
    pub latency_ns: u32,
    /// In megabytes a second.
    pub bandwidth_mbs: u32,
    /// Local memory must be registered for puts, gets and messages out of it.
    pub need_memory: bool,
    /// The key of remote memory is needed.
    pub need_rkey: bool,
    /// Length of a packed remote key, in bytes.
    pub rkey_len: usize,
}

pub(crate) fn attributes(attr: &raw::IfaceAttr, md: &raw::MdAttr) -> Attributes {
    let has = |flag: u64| attr.flags & flag != 0;
    let if_has = |flag: u64, size: usize| if has(flag) { size } else { 0 };
    let rkey_len = md.rkey_packed_size;
    let keys = md.flags & md_flag::NEED_RKEY == 0
        || (md.flags & md_flag::REG != 0 && rkey_len <= RKEY_MAX);
    let latency = attr.latency[0] + attr.overhead;
    let bandwidth = attr.bandwidth[0] + attr.bandwidth[1];
    Attributes {
        max_short: if_has(flag::AM_SHORT, attr.am.max_short),
        max_bcopy: if_has(flag::AM_BCOPY, attr.am.max_bcopy),
        max_zcopy: if_has(flag::AM_ZCOPY, attr.am.max_zcopy),
        zcopy_header: if_has(flag::AM_ZCOPY, attr.am.max_hdr),
        zcopy_pieces: if_has(flag::AM_ZCOPY, attr.am.max_iov),
        max_put: if keys { if_has(flag::PUT_ZCOPY, attr.put.max_zcopy) } else { 0 },
        max_get: if keys { if_has(flag::GET_ZCOPY, attr.get.max_zcopy) } else { 0 },
        min_get: attr.get.min_zcopy,
        min_put: attr.put.min_zcopy,
        device_addr_len: attr.device_addr_len,
        iface_addr_len: attr.iface_addr_len,
        ep_addr_len: attr.ep_addr_len,
        to_iface: has(flag::CONNECT_TO_IFACE),
        to_ep: has(flag::CONNECT_TO_EP),
        peer_failure: has(flag::PEER_FAILURE),
        ep_check: has(flag::EP_CHECK),
        waitable: attr.event_flags & WAITABLE == WAITABLE,
        pending: has(flag::PENDING),
        duplicates: has(flag::AM_DUP),
        latency_ns: (latency * 1e9).clamp(1.0, 1e9) as u32,
        bandwidth_mbs: (bandwidth / 1e6).clamp(1.0, 1e6) as u32,
        need_memory: md.flags & md_flag::NEED_MEMH != 0,
        need_rkey: md.flags & md_flag::NEED_RKEY != 0,
        rkey_len,
    }
}
