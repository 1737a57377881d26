//! Every `errno` of every call on a socket, classified in one total function (law 3).
//!
//! A reset connection is a lost rail, never proof that a process died; silence, and a port nobody listens on
//! any more, are a reason to suspect the process.

use ironweave_btl::{Cause, Fault, Peer, Scope};
use rustix::io::Errno;

/// During which call it happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// `socket`, its options, `bind`.
    Open,
    /// `connect` and its outcome.
    Connect,
    /// `recv`, `readv`.
    Receive,
    /// `send`, `sendmsg`.
    Send,
}

impl Call {
    const fn name(self) -> &'static str {
        match self {
            Call::Open => "socket",
            Call::Connect => "connect",
            Call::Receive => "recv",
            Call::Send => "send",
        }
    }
}

/// What to do about an error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Class {
    /// Nothing is wrong: again when the socket is ready.
    Later,
    /// Nothing is wrong: again at once.
    Again,
    /// The endpoint is lost: how far it reaches, and why.
    Lost(Scope, Cause),
}

/// What `errno` of `call` means.
pub fn classify(call: Call, errno: Errno) -> Class {
    use Class::{Again, Later, Lost};
    match errno {
        Errno::INTR => Again,
        Errno::AGAIN | Errno::INPROGRESS | Errno::ALREADY => Later,
        // The kernel has no buffer at the moment; a new socket is another matter.
        Errno::NOBUFS | Errno::NOMEM if call != Call::Open => Later,
        Errno::NOBUFS | Errno::NOMEM => Lost(Scope::Rail, Cause::Exhausted("socket memory")),
        Errno::MFILE | Errno::NFILE => Lost(Scope::Rail, Cause::Exhausted("file descriptors")),
        Errno::ADDRNOTAVAIL if call == Call::Connect => {
            Lost(Scope::Rail, Cause::Exhausted("local ports or addresses"))
        }
        Errno::CONNREFUSED => Lost(Scope::Peer, Cause::ConnectionRefused),
        Errno::TIMEDOUT => Lost(Scope::Peer, Cause::TimedOut),
        Errno::HOSTDOWN => Lost(Scope::Peer, Cause::Unreachable),
        Errno::HOSTUNREACH
        | Errno::NETUNREACH
        | Errno::NETDOWN
        | Errno::NONET
        | Errno::ADDRNOTAVAIL
        | Errno::AFNOSUPPORT
        | Errno::ACCESS
        | Errno::PERM => Lost(Scope::Rail, Cause::Unreachable),
        Errno::CONNRESET
        | Errno::PIPE
        | Errno::CONNABORTED
        | Errno::NETRESET
        | Errno::NOTCONN
        | Errno::SHUTDOWN => Lost(Scope::Rail, Cause::Disconnected),
        other => Lost(Scope::Rail, Cause::Os { call: call.name(), errno: other.raw_os_error() }),
    }
}

/// The fault that a lost endpoint to `peer` is reported with; an error that should have been retried counts as
/// one of the operating system.
pub fn fault(peer: Peer, call: Call, errno: Errno) -> Fault {
    match classify(call, errno) {
        Class::Lost(scope, cause) => Fault { scope, peer: Some(peer), cause },
        Class::Later | Class::Again => {
            Fault::rail(peer, Cause::Os { call: call.name(), errno: errno.raw_os_error() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table() {
        use Call::{Connect, Open, Receive, Send};
        let lost = Class::Lost;
        for (call, errno, class) in [
            (Receive, Errno::AGAIN, Class::Later),
            (Send, Errno::AGAIN, Class::Later),
            (Send, Errno::INTR, Class::Again),
            (Connect, Errno::INPROGRESS, Class::Later),
            (Send, Errno::NOBUFS, Class::Later),
            (Open, Errno::NOBUFS, lost(Scope::Rail, Cause::Exhausted("socket memory"))),
            (Open, Errno::MFILE, lost(Scope::Rail, Cause::Exhausted("file descriptors"))),
            (Connect, Errno::CONNREFUSED, lost(Scope::Peer, Cause::ConnectionRefused)),
            (Connect, Errno::TIMEDOUT, lost(Scope::Peer, Cause::TimedOut)),
            (Receive, Errno::TIMEDOUT, lost(Scope::Peer, Cause::TimedOut)),
            (Connect, Errno::NETUNREACH, lost(Scope::Rail, Cause::Unreachable)),
            (Send, Errno::HOSTUNREACH, lost(Scope::Rail, Cause::Unreachable)),
            (Send, Errno::NETDOWN, lost(Scope::Rail, Cause::Unreachable)),
            (
                Connect,
                Errno::ADDRNOTAVAIL,
                lost(Scope::Rail, Cause::Exhausted("local ports or addresses")),
            ),
            (Receive, Errno::CONNRESET, lost(Scope::Rail, Cause::Disconnected)),
            (Send, Errno::CONNRESET, lost(Scope::Rail, Cause::Disconnected)),
            (Send, Errno::PIPE, lost(Scope::Rail, Cause::Disconnected)),
            (Receive, Errno::BADF, lost(Scope::Rail, Cause::Os { call: "recv", errno: 9 })),
        ] {
            assert_eq!(classify(call, errno), class, "{call:?} {errno:?}");
        }
    }

    #[test]
    fn it_is_total_and_nothing_is_proof_of_death() {
        for raw in 1..200 {
            let errno = Errno::from_raw_os_error(raw);
            for call in [Call::Open, Call::Connect, Call::Receive, Call::Send] {
                assert!(!fault(Peer(1), call, errno).is_proof(), "{call:?} {errno:?}");
            }
        }
    }
}
