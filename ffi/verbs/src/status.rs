//! What devices say: completion statuses and asynchronous events, as closed types with words for people.

/// The status of a completion, total: what no version of the library is known to say is [`Status::Other`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// It worked.
    Success,
    /// The queue pair was in error before it came to this request.
    Flushed,
    /// The other side did not answer any of the tries.
    RetryExceeded,
    /// The other side had no receive posted, in any of the tries.
    ReceiverNotReady,
    /// The other side refused access to its memory: wrong key, range or right.
    RemoteAccess,
    /// The other side could not do it, or says that the request makes no sense.
    RemoteOperation,
    /// Our own request was wrong: length, key, memory.
    Local,
    /// The device is broken.
    Fatal,
    /// Another number.
    Other(u32),
}

impl Status {
    /// The meaning of `enum ibv_wc_status`.
    #[must_use]
    pub fn of(code: u32) -> Status {
        match code {
            0 => Status::Success,
            1 | 2 | 3 | 4 | 6 | 8 => Status::Local,
            5 => Status::Flushed,
            7 | 9 | 11 | 15 | 16 => Status::RemoteOperation,
            10 => Status::RemoteAccess,
            12 | 20 => Status::RetryExceeded,
            13 => Status::ReceiverNotReady,
            19 => Status::Fatal,
            other => Status::Other(other),
        }
    }

    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Status::Success => "success",
            Status::Flushed => "flushed: the queue pair was in error",
            Status::RetryExceeded => "no answer to any of the tries",
            Status::ReceiverNotReady => "the receiver was not ready in any of the tries",
            Status::RemoteAccess => "the other side refused access to its memory",
            Status::RemoteOperation => "the other side could not do the operation",
            Status::Local => "the device refused the request (length, key or memory)",
            Status::Fatal => "the device is broken",
            Status::Other(_) => "an error without a name",
        }
    }
}

/// An asynchronous event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A queue pair went into error; its number.
    QueuePair(u32),
    /// A port is no longer active.
    PortDown(u8),
    /// A port is active (again).
    PortUp(u8),
    /// A port's addresses changed: LID, GID, partition keys, subnet manager.
    PortChanged(u8),
    /// A completion queue or shared receive queue overran or broke: nothing of this device can be trusted.
    QueueBroken,
    /// The device is broken or was removed.
    DeviceFatal,
    /// Nothing to act upon.
    Note(u32),
}

impl Event {
    /// The meaning of `enum ibv_event_type`, total: what no version of the library is known to say is [`Event::Note`]. `port` is
    /// what the event names if it is about a port; `queue_pair` is asked only if it is about one.
    #[must_use]
    pub fn of(code: u32, port: u8, queue_pair: impl FnOnce() -> u32) -> Event {
        match code {
            0 | 14 => Event::QueueBroken,
            1..=3 => Event::QueuePair(queue_pair()),
            8 => Event::DeviceFatal,
            9 => Event::PortUp(port),
            10 => Event::PortDown(port),
            11..=13 | 17 | 18 => Event::PortChanged(port),
            other => Event::Note(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `enum ibv_wc_status` of rdma-core 44, by its names, and what we take each for.
    const STATUSES: [(&str, Status); 24] = [
        ("SUCCESS", Status::Success),
        ("LOC_LEN_ERR", Status::Local),
        ("LOC_QP_OP_ERR", Status::Local),
        ("LOC_EEC_OP_ERR", Status::Local),
        ("LOC_PROT_ERR", Status::Local),
        ("WR_FLUSH_ERR", Status::Flushed),
        ("MW_BIND_ERR", Status::Local),
        ("BAD_RESP_ERR", Status::RemoteOperation),
        ("LOC_ACCESS_ERR", Status::Local),
        ("REM_INV_REQ_ERR", Status::RemoteOperation),
        ("REM_ACCESS_ERR", Status::RemoteAccess),
        ("REM_OP_ERR", Status::RemoteOperation),
        ("RETRY_EXC_ERR", Status::RetryExceeded),
        ("RNR_RETRY_EXC_ERR", Status::ReceiverNotReady),
        // Of reliable datagrams, which no device has, as 17 and 18.
        ("LOC_RDD_VIOL_ERR", Status::Other(14)),
        ("REM_INV_RD_REQ_ERR", Status::RemoteOperation),
        ("REM_ABORT_ERR", Status::RemoteOperation),
        ("INV_EECN_ERR", Status::Other(17)),
        ("INV_EEC_STATE_ERR", Status::Other(18)),
        ("FATAL_ERR", Status::Fatal),
        ("RESP_TIMEOUT_ERR", Status::RetryExceeded),
        ("GENERAL_ERR", Status::Other(21)),
        // Of tag matching, which we do not use.
        ("TM_ERR", Status::Other(22)),
        ("TM_RNDV_INCOMPLETE", Status::Other(23)),
    ];

    /// Codes that nothing is known of: the next ones, and what a broken driver might say.
    const UNKNOWN: [u32; 5] = [24, 255, 256, u32::MAX / 2, u32::MAX];

    #[test]
    fn every_status_has_its_meaning() {
        for (code, (name, meaning)) in STATUSES.into_iter().enumerate() {
            assert_eq!(Status::of(code as u32), meaning, "IBV_WC_{name}");
        }
        for code in UNKNOWN {
            assert_eq!(Status::of(code), Status::Other(code), "never success");
        }
    }

    #[test]
    fn nothing_but_success_is_success_and_all_have_words() {
        for code in (0..=0xffff).chain(UNKNOWN) {
            let status = Status::of(code);
            assert_eq!(status == Status::Success, code == 0, "{code}");
            assert!(!status.words().is_empty());
        }
    }

    /// `enum ibv_event_type` of rdma-core 44, by its names, for port 3 and queue pair 77.
    const EVENTS: [(&str, Event); 20] = [
        ("CQ_ERR", Event::QueueBroken),
        ("QP_FATAL", Event::QueuePair(77)),
        ("QP_REQ_ERR", Event::QueuePair(77)),
        ("QP_ACCESS_ERR", Event::QueuePair(77)),
        ("COMM_EST", Event::Note(4)),
        ("SQ_DRAINED", Event::Note(5)),
        // There is never an alternate path.
        ("PATH_MIG", Event::Note(6)),
        ("PATH_MIG_ERR", Event::Note(7)),
        ("DEVICE_FATAL", Event::DeviceFatal),
        ("PORT_ACTIVE", Event::PortUp(3)),
        ("PORT_ERR", Event::PortDown(3)),
        ("LID_CHANGE", Event::PortChanged(3)),
        ("PKEY_CHANGE", Event::PortChanged(3)),
        ("SM_CHANGE", Event::PortChanged(3)),
        ("SRQ_ERR", Event::QueueBroken),
        // Asked for by a limit that is never set.
        ("SRQ_LIMIT_REACHED", Event::Note(15)),
        ("QP_LAST_WQE_REACHED", Event::Note(16)),
        ("CLIENT_REREGISTER", Event::PortChanged(3)),
        ("GID_CHANGE", Event::PortChanged(3)),
        // Of work queues, which we do not make.
        ("WQ_FATAL", Event::Note(19)),
    ];

    #[test]
    fn every_event_has_its_meaning() {
        for (code, (name, meaning)) in EVENTS.into_iter().enumerate() {
            assert_eq!(Event::of(code as u32, 3, || 77), meaning, "IBV_EVENT_{name}");
        }
        for code in [20].into_iter().chain(UNKNOWN) {
            assert_eq!(Event::of(code, 3, || 77), Event::Note(code));
        }
    }

    /// What an event is about shares one place in C: reading a port's number as a queue pair's address would be wild.
    #[test]
    fn only_events_of_a_queue_pair_ask_for_it() {
        for code in (0..=0xffff).chain(UNKNOWN).filter(|code| !(1..=3).contains(code)) {
            let told = Event::of(code, 3, || unreachable!("event {code} is about no queue pair"));
            assert!(!matches!(told, Event::QueuePair(_)));
        }
    }
}
