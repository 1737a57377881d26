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
