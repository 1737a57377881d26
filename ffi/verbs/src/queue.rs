//! Completion queues, shared receive queues, queue pairs, address handles.

use crate::device::Opened;
use crate::{Device, Gid, Sge, VerbsError, Wc, raw};
use std::ffi::c_void;
use std::os::fd::RawFd;
use std::sync::Arc;

/// Wakes whoever sleeps on its descriptor when a completion arrives in one of its queues that was armed.
pub struct Channel {
    channel: *mut raw::CompChannel,
    device: Arc<Opened>,
}

// SAFETY: libibverbs is thread-safe for channels.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Channel {
    /// A channel that does not block.
    ///
    /// # Errors
    /// When descriptors ran out.
    pub fn new(device: &Device) -> Result<Arc<Channel>, VerbsError> {
        let opened = Arc::clone(&device.opened);
        // SAFETY: an open context.
        let channel = unsafe { (opened.symbols.create_comp_channel)(opened.context) };
        if channel.is_null() {
            return Err(VerbsError::last("ibv_create_comp_channel"));
        }
        let channel = Channel { channel, device: opened };
        device.make_nonblocking(channel.fd())?;
        Ok(Arc::new(channel))
    }

    /// Its descriptor; open as long as the channel.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        // SAFETY: a channel that exists.
        unsafe { (*self.channel).fd }
    }

    /// Takes all events, so that the descriptor is quiet again.
    pub fn drain(&self) {
        let (mut cq, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: a channel that does not block; the queue of an event exists until it is acknowledged.
        unsafe {
            while (self.device.symbols.get_cq_event)(self.channel, &mut cq, &mut context) == 0 {
                (self.device.symbols.ack_cq_events)(cq, 1);
            }
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: its queues hold it, so none is left.
        unsafe { (self.device.symbols.destroy_comp_channel)(self.channel) };
    }
}

/// A completion queue.
pub struct CompletionQueue {
    cq: *mut raw::Cq,
    poll: raw::PollCq,
    notify: raw::ReqNotify,
    device: Arc<Opened>,
    _channel: Arc<Channel>,
}

// SAFETY: libibverbs is thread-safe for completion queues.
unsafe impl Send for CompletionQueue {}
// SAFETY: as above.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// Room for at least `entries` completions.
    ///
    /// # Errors
    /// When that is more than the device has.
    pub fn new(
        device: &Device,
        channel: &Arc<Channel>,
        entries: u32,
    ) -> Result<Arc<CompletionQueue>, VerbsError> {
        let opened = Arc::clone(&device.opened);
        let entries = i32::try_from(entries).unwrap_or(i32::MAX);
        let nothing = std::ptr::null_mut();
        // SAFETY: an open context and a channel of it.
        let cq = unsafe {
            (opened.symbols.create_cq)(opened.context, entries, nothing, channel.channel, 0)
        };
        if cq.is_null() {
            return Err(VerbsError::last("ibv_create_cq"));
        }
        // SAFETY: the context of a queue is its device's; the table is constant.
        let ops = unsafe { &(*(*cq).context).ops };
        let (poll, notify) = (ops.poll_cq, ops.req_notify_cq);
        let _channel = Arc::clone(channel);
        Ok(Arc::new(CompletionQueue { cq, poll, notify, device: opened, _channel }))
    }

    /// Takes completions: how many, at most `into.len()`. `None` when the queue is broken.
    #[inline]
    pub fn poll(&self, into: &mut [Wc]) -> Option<usize> {
        // SAFETY: a queue that exists, and room for as many entries as it is told.
        let count = unsafe { (self.poll)(self.cq, into.len() as i32, into.as_mut_ptr()) };
        usize::try_from(count).ok()
    }

    /// Has the next completion make the channel readable.
    ///
    /// # Errors
    /// When the device refuses.
    pub fn arm(&self) -> Result<(), VerbsError> {
        // SAFETY: a queue that exists.
        VerbsError::check("ibv_req_notify_cq", unsafe { (self.notify)(self.cq, 0) })
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: its queue pairs hold it, so none is left; all events were acknowledged when they were got.
        unsafe { (self.device.symbols.destroy_cq)(self.cq) };
    }
}

/// Receives shared by many queue pairs.
pub struct SharedQueue {
    srq: *mut raw::Srq,
    post: raw::PostSrqRecv,
    device: Arc<Opened>,
}

// SAFETY: libibverbs is thread-safe for shared receive queues.
unsafe impl Send for SharedQueue {}
// SAFETY: as above.
unsafe impl Sync for SharedQueue {}

impl SharedQueue {
    /// Room for at least `entries` receives of one piece.
    ///
    /// # Errors
    /// When that is more than the device has.
    pub fn new(device: &Device, entries: u32) -> Result<Arc<SharedQueue>, VerbsError> {
        let opened = Arc::clone(&device.opened);
        let mut attr = raw::SrqInitAttr {
            srq_context: std::ptr::null_mut(),
            max_wr: entries,
            max_sge: 1,
            srq_limit: 0,
        };
        // SAFETY: an open protection domain.
        let srq = unsafe { (opened.symbols.create_srq)(opened.pd, &mut attr) };
        if srq.is_null() {
            return Err(VerbsError::last("ibv_create_srq"));
        }
        // SAFETY: as for completion queues.
        let post = unsafe { (*(*srq).context).ops.post_srq_recv };
        Ok(Arc::new(SharedQueue { srq, post, device: opened }))
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// `ENOMEM` when the queue is full.
    ///
    /// # Safety
    /// The piece's memory is registered, and nobody reads or writes it, until the receive completes or the queue
    /// and its queue pairs are gone.
    pub unsafe fn post(&self, id: u64, piece: &Sge) -> Result<(), VerbsError> {
        let mut request =
            raw::RecvWr { wr_id: id, next: std::ptr::null_mut(), sg_list: piece, num_sge: 1 };
        let mut bad = std::ptr::null_mut();
        // SAFETY: a queue that exists; the request is read during the call; the memory by contract.
        let code = unsafe { (self.post)(self.srq, &mut request, &mut bad) };
        VerbsError::check("ibv_post_srq_recv", code)
    }
}

impl Drop for SharedQueue {
    fn drop(&mut self) {
        // SAFETY: its queue pairs hold it, so none is left.
        unsafe { (self.device.symbols.destroy_srq)(self.srq) };
    }
}

/// The two kinds of queue pairs in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Reliable connection.
    Reliable,
    /// Unreliable datagrams.
    Datagram,
}

/// What a request does.
#[derive(Clone, Copy)]
pub enum Operation<'a> {
    /// To a receive of the other side.
    Send,
    /// The same, with four bytes beside it ([`Wc::beside`]). Not over iWARP.
    SendBeside(u32),
    /// A datagram to that queue pair; only [`Kind::Datagram`].
    Datagram {
        /// Where to.
        to: &'a AddressHandle,
        /// Which queue pair there.
        number: u32,
        /// Its key.
        key: u32,
    },
    /// Into the other side's memory.
    Write {
        /// Where.
        address: u64,
        /// By which right.
        rkey: u32,
    },
    /// Out of the other side's memory.
    Read {
        /// Where.
        address: u64,
        /// By which right.
        rkey: u32,
    },
    /// Adds to the eight bytes there; what was there before comes to the piece, which has eight bytes, too. Atomic among the
    /// operations of that device; with its processors only where the device says so. Both are native words.
    FetchAdd {
        /// Where; a multiple of 8.
        address: u64,
        /// By which right: one with [`Access::RemoteAtomic`](crate::Access).
        rkey: u32,
        /// What to add; it wraps.
        add: u64,
    },
    /// As that, but puts `swap` there if `compare` is there.
    CompareSwap {
        /// Where; a multiple of 8.
        address: u64,
        /// By which right.
        rkey: u32,
        /// What must be there.
        compare: u64,
        /// What is there then.
        swap: u64,
    },
}

/// The way to a peer's port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// Our port.
    pub port: u8,
    /// The entry of our GID table to send from.
    pub gid_index: u8,
    /// Whether to send a global header: always over Ethernet, over routers on InfiniBand.
    pub global: bool,
    /// The peer's GID.
    pub gid: Gid,
    /// The peer's LID.
    pub lid: u16,
    /// Service level.
    pub service_level: u8,
    /// Traffic class.
    pub traffic_class: u8,
}

impl Path {
    fn attr(&self) -> raw::AhAttr {
        let (high, low) = self.gid.split_at(8);
        let word = |bytes: &[u8]| {
            u64::from_ne_bytes(bytes.try_into().expect("half of sixteen bytes is eight"))
        };
        raw::AhAttr {
            dgid: [word(high), word(low)],
            flow_label: 0,
            sgid_index: self.gid_index,
            hop_limit: 64,
            traffic_class: self.traffic_class,
            dlid: self.lid,
            sl: self.service_level,
            src_path_bits: 0,
            static_rate: 0,
            is_global: u8::from(self.global),
            port_num: self.port,
        }
    }
}

/// When a queue pair gives up. Never infinite: 7 tries of a busy receiver, or a timeout of 0, would be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timers {
    /// Wait for an acknowledgement: 4.096 µs · 2^this; 1 to 31.
    pub timeout: u8,
    /// Tries after that; 0 to 6 (7 never ends on Soft-RoCE).
    pub retries: u8,
    /// Tries when the receiver is not ready; 0 to 6.
    pub busy_retries: u8,
    /// How long a peer waits between those, as the device counts; 0 to 31.
    pub busy_wait: u8,
}

impl Timers {
    /// How long a request may be repeated: the wait for each try, which devices may make four times as long.
    #[must_use]
    pub fn longest(self) -> std::time::Duration {
        let once = std::time::Duration::from_nanos(4096 << self.timeout.min(31));
        once * 4 * (u32::from(self.retries) + 1)
    }

    /// Within the limits above.
    #[must_use]
    pub fn finite(self) -> Timers {
        Timers {
            timeout: self.timeout.clamp(1, 31),
            retries: self.retries.min(6),
            busy_retries: self.busy_retries.min(6),
            busy_wait: self.busy_wait.min(31),
        }
    }

    /// As a queue pair is told them: within the limits, whatever they are.
    fn attr(self) -> raw::QpAttr {
        let finite = self.finite();
        raw::QpAttr {
            min_rnr_timer: finite.busy_wait,
            timeout: finite.timeout,
            retry_cnt: finite.retries,
            rnr_retry: finite.busy_retries,
            ..raw::QpAttr::default()
        }
    }
}

/// An address to send datagrams to.
pub struct AddressHandle {
    handle: *mut c_void,
    device: Arc<Opened>,
}

// SAFETY: libibverbs is thread-safe for address handles.
unsafe impl Send for AddressHandle {}

impl AddressHandle {
    /// May ask the network for the peer's hardware address.
    ///
    /// # Errors
    /// When there is no way there.
    pub fn new(device: &Device, path: &Path) -> Result<AddressHandle, VerbsError> {
        let opened = Arc::clone(&device.opened);
        let mut attr = path.attr();
        // SAFETY: an open protection domain.
        let handle = unsafe { (opened.symbols.create_ah)(opened.pd, &mut attr) };
        if handle.is_null() {
            return Err(VerbsError::last("ibv_create_ah"));
        }
        Ok(AddressHandle { handle, device: opened })
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        // SAFETY: destroyed once; requests that were posted have their own copy of what it says, in the device.
        unsafe { (self.device.symbols.destroy_ah)(self.handle) };
    }
}

/// A queue pair. Dropping it takes the device's hands off all memory that its requests name.
pub struct QueuePair {
    qp: *mut raw::Qp,
    send: raw::PostSend,
    receive: raw::PostRecv,
    number: u32,
    inline: u32,
    device: Arc<Opened>,
    _queues: (Arc<CompletionQueue>, Arc<CompletionQueue>, Option<Arc<SharedQueue>>),
}

// SAFETY: libibverbs is thread-safe for queue pairs.
unsafe impl Send for QueuePair {}

/// The state modifications that take no address, and their names.
impl QueuePair {
    /// A queue pair for `sends` requests of up to `pieces` pieces and, if the device can, `inline` bytes inline. It
    /// receives from `shared`, or has room for `receives` of its own.
    ///
    /// # Errors
    /// When the device has no more.
    #[allow(clippy::too_many_arguments)] // what a queue pair is made of
    pub fn new(
        device: &Device,
        kind: Kind,
        send_queue: &Arc<CompletionQueue>,
        receive_queue: &Arc<CompletionQueue>,
        shared: Option<&Arc<SharedQueue>>,
        (sends, receives): (u32, u32),
        pieces: u32,
        inline: u32,
    ) -> Result<QueuePair, VerbsError> {
        let opened = Arc::clone(&device.opened);
        // Devices differ in how much they take inline, and say so only by refusing.
        let mut inline = inline;
        let (qp, granted) = loop {
            let mut attr = raw::QpInitAttr {
                qp_context: std::ptr::null_mut(),
                send_cq: send_queue.cq,
                recv_cq: receive_queue.cq,
                srq: shared.map_or(std::ptr::null_mut(), |shared| shared.srq),
                cap: raw::QpCap {
                    max_send_wr: sends,
                    max_recv_wr: receives,
                    max_send_sge: pieces,
                    max_recv_sge: 1,
                    max_inline_data: inline,
                },
                qp_type: match kind {
                    Kind::Reliable => raw::QPT_RC,
                    Kind::Datagram => raw::QPT_UD,
                },
                sq_sig_all: 0,
            };
            // SAFETY: an open protection domain and queues of the same device.
            let qp = unsafe { (opened.symbols.create_qp)(opened.pd, &mut attr) };
            if !qp.is_null() {
                break (qp, attr.cap.max_inline_data);
            }
            let error = VerbsError::last("ibv_create_qp");
            let refused =
                matches!(error, VerbsError::Call { errno: libc::EINVAL | libc::ENOMEM, .. });
            if !refused || inline == 0 {
                return Err(error);
            }
            inline /= 2;
        };
        // SAFETY: a queue pair that exists; its number and its context's table are constant.
        let (number, send, receive) = unsafe {
            let ops = &(*(*qp).context).ops;
            ((*qp).qp_num, ops.post_send, ops.post_recv)
        };
        let queues = (Arc::clone(send_queue), Arc::clone(receive_queue), shared.cloned());
        Ok(QueuePair {
            qp,
            send,
            receive,
            number,
            inline: granted,
            device: opened,
            _queues: queues,
        })
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Bytes that it takes inline.
    #[must_use]
    pub fn inline(&self) -> u32 {
        self.inline
    }

    fn modify(
        &self,
        call: &'static str,
        attr: &mut raw::QpAttr,
        mask: i32,
    ) -> Result<(), VerbsError> {
        // SAFETY: a queue pair that exists and a structure of the right layout.
        VerbsError::check(call, unsafe { (self.device.symbols.modify_qp)(self.qp, attr, mask) })
    }

    /// To INIT, for a reliable connection that the other side may write and read through, and have atomic operations where
    /// the device has them.
    ///
    /// # Errors
    /// When the device refuses.
    pub fn prepare(&self, port: u8, pkey_index: u16) -> Result<(), VerbsError> {
        let mut attr = raw::QpAttr {
            qp_state: raw::QPS_INIT,
            pkey_index,
            port_num: port,
            qp_access_flags: (raw::ACCESS_REMOTE_READ
                | raw::ACCESS_REMOTE_WRITE
                | if self.device.atomics { raw::ACCESS_REMOTE_ATOMIC } else { 0 })
                as u32,
            ..raw::QpAttr::default()
        };
        let mask = raw::QP_STATE | raw::QP_PKEY_INDEX | raw::QP_PORT | raw::QP_ACCESS_FLAGS;
        self.modify("ibv_modify_qp (INIT)", &mut attr, mask)
    }

    /// To INIT on iWARP, which has no ports' partitions; the connection manager does the rest.
    ///
    /// # Errors
    /// When the device refuses.
    pub fn prepare_for_manager(&self) -> Result<(), VerbsError> {
        let mut attr = raw::QpAttr {
            qp_state: raw::QPS_INIT,
            qp_access_flags: (raw::ACCESS_REMOTE_READ
                | raw::ACCESS_REMOTE_WRITE
                | raw::ACCESS_LOCAL_WRITE) as u32,
            ..raw::QpAttr::default()
        };
        let mask = raw::QP_STATE | raw::QP_ACCESS_FLAGS;
        self.modify("ibv_modify_qp (INIT)", &mut attr, mask)
    }

    /// To RTS through RTR: connected with the queue pair `number` at `path`. May ask the network for the peer's
    /// hardware address.
    ///
    /// # Errors
    /// When there is no way there.
    pub fn connect(
        &self,
        path: &Path,
        number: u32,
        (our_psn, their_psn): (u32, u32),
        mtu: u8,
        reads: u8,
        timers: Timers,
    ) -> Result<(), VerbsError> {
        let timers = timers.attr();
        let mut attr = raw::QpAttr {
            qp_state: raw::QPS_RTR,
            path_mtu: mtu.into(),
            dest_qp_num: number,
            rq_psn: their_psn,
            max_dest_rd_atomic: reads,
            ah_attr: path.attr(),
            ..timers
        };
        let mask = raw::QP_STATE
            | raw::QP_AV
            | raw::QP_PATH_MTU
            | raw::QP_DEST_QPN
            | raw::QP_RQ_PSN
            | raw::QP_MAX_DEST_RD_ATOMIC
            | raw::QP_MIN_RNR_TIMER;
        self.modify("ibv_modify_qp (RTR)", &mut attr, mask)?;
        let mut attr =
            raw::QpAttr { qp_state: raw::QPS_RTS, sq_psn: our_psn, max_rd_atomic: reads, ..timers };
        let mask = raw::QP_STATE
            | raw::QP_SQ_PSN
            | raw::QP_TIMEOUT
            | raw::QP_RETRY_CNT
            | raw::QP_RNR_RETRY
            | raw::QP_MAX_QP_RD_ATOMIC;
        self.modify("ibv_modify_qp (RTS)", &mut attr, mask)
    }

    /// A datagram queue pair to RTS.
    ///
    /// # Errors
    /// When the device refuses.
    pub fn open_for_datagrams(
        &self,
        port: u8,
        pkey_index: u16,
        key: u32,
    ) -> Result<(), VerbsError> {
        let mut attr = raw::QpAttr {
            qp_state: raw::QPS_INIT,
            pkey_index,
            port_num: port,
            qkey: key,
            ..raw::QpAttr::default()
        };
        let mask = raw::QP_STATE | raw::QP_PKEY_INDEX | raw::QP_PORT | raw::QP_QKEY;
        self.modify("ibv_modify_qp (INIT)", &mut attr, mask)?;
        let mut attr = raw::QpAttr { qp_state: raw::QPS_RTR, ..raw::QpAttr::default() };
        self.modify("ibv_modify_qp (RTR)", &mut attr, raw::QP_STATE)?;
        let mut attr = raw::QpAttr { qp_state: raw::QPS_RTS, ..raw::QpAttr::default() };
        self.modify("ibv_modify_qp (RTS)", &mut attr, raw::QP_STATE | raw::QP_SQ_PSN)
    }

    /// To RESET: as new, under the same number. Requests that were out do not come back.
    ///
    /// # Errors
    /// When the device refuses.
    pub fn reset(&self) -> Result<(), VerbsError> {
        self.modify("ibv_modify_qp (RESET)", &mut raw::QpAttr::default(), raw::QP_STATE)
    }

    /// To ERR: nothing more is sent or received, every request completes as flushed.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn fail(&self) -> Result<(), VerbsError> {
        let mut attr = raw::QpAttr { qp_state: raw::QPS_ERR, ..raw::QpAttr::default() };
        self.modify("ibv_modify_qp (ERR)", &mut attr, raw::QP_STATE)
    }

    /// Posts a request. With `inline` the pieces are copied during the call and need no registration.
    ///
    /// # Errors
    /// `ENOMEM` when the queue is full.
    ///
    /// # Safety
    /// Unless `inline`, the memory of `pieces` stays registered and is left alone (a `Read` and the atomic operations write it) until the
    /// request, or a later one of the same queue pair, completes, or the queue pair is gone.
    #[inline]
    pub unsafe fn post(
        &self,
        id: u64,
        operation: Operation<'_>,
        pieces: &[Sge],
        signalled: bool,
        inline: bool,
    ) -> Result<(), VerbsError> {
        let (opcode, target) = match operation {
            Operation::Send => (raw::WR_SEND, raw::Target { atomic: [0; 4] }),
            Operation::SendBeside(_) => (raw::WR_SEND_WITH_IMM, raw::Target { atomic: [0; 4] }),
            Operation::Datagram { to, number, key } => {
                let ud = raw::Ud { ah: to.handle, remote_qpn: number, remote_qkey: key };
                (raw::WR_SEND, raw::Target { ud })
            }
            Operation::Write { address, rkey } => {
                let rdma = raw::Rdma { remote_addr: address, rkey };
                (raw::WR_RDMA_WRITE, raw::Target { rdma })
            }
            Operation::Read { address, rkey } => {
                let rdma = raw::Rdma { remote_addr: address, rkey };
                (raw::WR_RDMA_READ, raw::Target { rdma })
            }
            Operation::FetchAdd { address, rkey, add } => {
                (raw::WR_FETCH_ADD, raw::Target { atomic: [address, add, 0, rkey.into()] })
            }
            Operation::CompareSwap { address, rkey, compare, swap } => (
                raw::WR_COMPARE_SWAP,
                raw::Target { atomic: [address, compare, swap, rkey.into()] },
            ),
        };
        let beside = match operation {
            Operation::SendBeside(word) => word.to_be(),
            _ => 0,
        };
        let flag = |on: bool, flag| if on { flag } else { 0 };
        let mut request = raw::SendWr {
            wr_id: id,
            next: std::ptr::null_mut(),
            sg_list: pieces.as_ptr(),
            num_sge: pieces.len() as i32,
            opcode,
            send_flags: flag(signalled, raw::SEND_SIGNALED) | flag(inline, raw::SEND_INLINE),
            imm_data: beside,
            wr: target,
            qp_type: 0,
            bind_or_tso: [0; 6],
        };
        let mut bad = std::ptr::null_mut();
        // SAFETY: a queue pair that exists; the request is read during the call; the memory by contract.
        let code = unsafe { (self.send)(self.qp, &mut request, &mut bad) };
        VerbsError::check("ibv_post_send", code)
    }

    /// Posts a receive to its own queue.
    ///
    /// # Errors
    /// `ENOMEM` when the queue is full.
    ///
    /// # Safety
    /// As [`SharedQueue::post`].
    pub unsafe fn post_receive(&self, id: u64, piece: &Sge) -> Result<(), VerbsError> {
        let mut request =
            raw::RecvWr { wr_id: id, next: std::ptr::null_mut(), sg_list: piece, num_sge: 1 };
        let mut bad = std::ptr::null_mut();
        // SAFETY: as `SharedQueue::post`.
        let code = unsafe { (self.receive)(self.qp, &mut request, &mut bad) };
        VerbsError::check("ibv_post_recv", code)
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: destroyed once; events of it were acknowledged when they were got.
        unsafe { (self.device.symbols.destroy_qp)(self.qp) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any value in each place, with the worst in the others: 0 is an endless timeout, 7 are endless tries, and what has more
    /// bits than the device's fields would be one of those there (32 as 0, 15 as 7).
    fn all_timers() -> impl Iterator<Item = Timers> {
        let with = |others: u8| Timers {
            timeout: others,
            retries: others,
            busy_retries: others,
            busy_wait: others,
        };
        [0, 7, 32, 255].into_iter().map(with).flat_map(|rest| {
            (0..=u8::MAX).flat_map(move |value| {
                [
                    Timers { timeout: value, ..rest },
                    Timers { retries: value, ..rest },
                    Timers { busy_retries: value, ..rest },
                    Timers { busy_wait: value, ..rest },
                ]
            })
        })
    }

    #[test]
    fn no_device_is_ever_told_to_wait_or_try_for_ever() {
        for timers in all_timers() {
            let told = timers.attr();
            assert!((1..=31).contains(&told.timeout), "{timers:?}: timeout {}", told.timeout);
            assert!(told.retry_cnt <= 6, "{timers:?}: {} tries", told.retry_cnt);
            assert!(told.rnr_retry <= 6, "{timers:?}: {} tries when busy", told.rnr_retry);
            assert!(told.min_rnr_timer <= 31, "{timers:?}: wait {}", told.min_rnr_timer);
            assert!(timers.longest() > std::time::Duration::ZERO); // nor does it overflow
        }
    }

    #[test]
    fn what_is_within_the_limits_stays_as_it_is() {
        let within = |timers: &Timers| {
            (1..=31).contains(&timers.timeout)
                && timers.retries.max(timers.busy_retries) <= 6
                && timers.busy_wait <= 31
        };
        let least = Timers { timeout: 1, retries: 0, busy_retries: 0, busy_wait: 0 };
        let most = Timers { timeout: 31, retries: 6, busy_retries: 6, busy_wait: 31 };
        for timers in all_timers().filter(within).chain([least, most]) {
            assert_eq!(timers.finite(), timers);
        }
        for timers in all_timers() {
            assert!(within(&timers.finite()), "{timers:?}");
        }
    }
}
