//! What is known of each provider, as plain data, and the one table that says what an error means (law 3).
//!
//! The table is total: whatever number a library returns, at whatever place, has a verdict. What no row names is a rail
//! fault: the message or the connection is lost, other rails may work, and nobody is declared dead by it. No provider
//! tells that a peer died, so none of these errors ever counts as that.

use ironweave_btl::Cause;
use ironweave_ffi::ofi::{Closes, Errno};

/// What a provider is like, as it was seen to behave where it could be run (see `tests/conformance.rs`), and as its
/// documentation says where not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Provider {
    /// Its name, or the first part of it (before `;`).
    pub name: &'static str,
    /// It drives a fabric device, not the system's sockets or memory.
    pub hardware: bool,
    /// Who answers peers' reads of registered memory.
    pub answers: Answers,
    /// When an endpoint may be closed.
    pub closes: Closes,
    /// Its atomic operations are asked for. They are done where progress is made, so none reaches memory after it was taken back; `sockets`
    /// has a thread that might.
    pub atomics: bool,
    /// Addresses where nobody is any more may be removed from the vector, and inserted again: so a vector does not grow with every
    /// restart of a peer (tcp has connections for its first 65,536 addresses only). Seen to be harmless with messages on their way, the peer alive, killed or
    /// restarted (`tests/faults`, `vectors` and `restarts`).
    pub remove: bool,
    /// Many messages may land in one posted buffer.
    pub multi_recv: MultiRecv,
    /// Longest message in bytes that goes in one piece.
    pub one_piece: usize,
    /// Frames whose payload is longer go in pieces of at most so many bytes (`pieces`): worth it where the kernel copies, too.
    pub pieces: usize,
    /// Longer ones go over the lanes, where there are such (`leads`).
    pub leads: bool,
    /// How many bytes to read at once where reads go by way of buffers: each asks the peer once.
    pub read_piece: usize,
    /// Its completion queues can be waited on. Asking shm of 1.17 is not harmless: it closes badly after it said no.
    pub waits: bool,
    /// Its sends must be over when their buffers are free: sockets keeps completions that a peer has to confirm in one
    /// list, where those of a dead peer hold up all others for ever.
    pub early_completions: bool,
    /// It looks at what a socket has until a whole header is there, and takes nothing before (`MSG_PEEK`). Where
    /// segments are long (64 KiB on a loopback), the last of a segment keeps all of its memory in use, and the system
    /// opens no window for the rest of the header: then nothing ever comes again, unless the socket has more room.
    pub peeks: bool,
    /// Its connections within a host are the system's, which may pace them (`lanes::unpace`).
    pub paced: bool,
    /// Its endpoints are files in /dev/shm, named by their address, that a killed process leaves there.
    pub files: bool,
    /// Rough one-way latency in nanoseconds.
    pub latency_ns: u32,
    /// Rough bandwidth in MB/s.
    pub bandwidth_mbs: u32,
}

/// Who answers peers' reads of registered memory, which decides whether a source can be taken back from them (law 2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answers {
    /// The device, which stops when the registration ends.
    ByDevice,
    /// Software, out of the memory itself and at its leisure, whatever becomes of the registration; closing its endpoint ends it,
    /// so memory is lent to each peer over an endpoint of its own (`lanes`).
    ByLanes,
    /// Software that cannot be stopped for one peer, or a device that was never seen to stop: no memory is lent. With ofi_rxm
    /// endpoints cannot be closed under way (1.17 crashed after that), and 1.17 crashed when it answered out of memory that was
    /// gone.
    Never,
}

/// Whether a provider can be trusted with buffers for many messages: it must not say that it is done with one while a
/// message still lands in it.
///
/// ofi_rxm does, where messages are long. So do `net` and, before 1.20, `tcp` (`xnet_alter_mrecv` marks whichever message
/// takes the buffer's last piece, though another peer's may still be on its way into an earlier one), and of the peers that
/// wait for a buffer `net` lets one go on where it is given one (`a_long_message_is_not_written_over`).
///
/// And it must be able to post one whatever waits. `shm` and `sm2` before 1.19 take one of 1,024 entries for it, of which
/// messages that wait for a receive may hold all; a receive for one message takes over the entry of a message that waits
/// (`more_wait_than_the_provider_has_entries_for`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MultiRecv {
    /// In no version.
    Never,
    /// In that version of libfabric and later ones.
    Since(u32, u32),
}

impl MultiRecv {
    /// Whether it is to be trusted in `version` of libfabric.
    pub fn holds(self, version: (u32, u32)) -> bool {
        match self {
            MultiRecv::Never => false,
            MultiRecv::Since(major, minor) => version >= (major, minor),
        }
    }
}

const DEVICE: Provider = Provider {
    name: "",
    hardware: true,
    answers: Answers::Never,
    closes: Closes::Idle,
    atomics: false,
    // Never tried: there is no such device here.
    remove: false,
    multi_recv: MultiRecv::Since(0, 0),
    one_piece: usize::MAX,
    pieces: usize::MAX,
    leads: false,
    read_piece: 64 << 10,
    waits: true,
    early_completions: false,
    peeks: false,
    paced: false,
    files: false,
    latency_ns: 2_000,
    bandwidth_mbs: 12_500,
};

const SOCKETS: Provider = Provider {
    hardware: false,
    closes: Closes::Busy,
    remove: true,
    latency_ns: 12_000,
    bandwidth_mbs: 2_000,
    ..DEVICE
};

/// The longest name that fits comes first.
const PROVIDERS: &[Provider] = &[
    Provider { name: "cxi", answers: Answers::ByDevice, bandwidth_mbs: 25_000, ..DEVICE },
    Provider { name: "efa", latency_ns: 15_000, ..DEVICE },
    Provider { name: "psm3", ..DEVICE },
    Provider { name: "psm2", ..DEVICE },
    Provider { name: "opx", ..DEVICE },
    // Seen: a read after `deregister` came back well, with what was in the memory by then (1.17, verbs;ofi_rxm on Soft-RoCE,
    // `moves_registered_memory`). Perhaps a cache of registrations; not found out.
    Provider { name: "verbs", ..DEVICE },
    Provider {
        name: "tcp",
        answers: Answers::ByLanes,
        multi_recv: MultiRecv::Since(1, 20),
        pieces: 32 << 10,
        leads: true,
        paced: true,
        latency_ns: 5_000,
        bandwidth_mbs: 5_000,
        ..SOCKETS
    },
    Provider {
        name: "net",
        multi_recv: MultiRecv::Never,
        latency_ns: 5_000,
        bandwidth_mbs: 5_000,
        ..SOCKETS
    },
    Provider {
        name: "udp",
        // What it has for a dead peer stays in its queues and names the address.
        remove: false,
        multi_recv: MultiRecv::Never,
        latency_ns: 20_000,
        bandwidth_mbs: 500,
        ..SOCKETS
    },
    Provider { name: "sockets", early_completions: true, peeks: true, ..SOCKETS },
    Provider {
        name: "shm",
        // Its addresses are places in memory that a killed peer may have left locked.
        remove: false,
        multi_recv: MultiRecv::Since(1, 19),
        one_piece: 4096,
        files: true,
        waits: false,
        closes: Closes::Idle,
        latency_ns: 400,
        bandwidth_mbs: 8_000,
        ..SOCKETS
    },
    Provider {
        name: "sm2",
        // As shm.
        remove: false,
        multi_recv: MultiRecv::Since(1, 19),
        one_piece: 4096,
        files: true,
        waits: false,
        closes: Closes::Idle,
        latency_ns: 400,
        bandwidth_mbs: 8_000,
        ..SOCKETS
    },
    // Over other providers, or over all devices of a host at once: one of ours would hide several.
    Provider { name: "lnx", ..DEVICE },
    Provider { name: "ofi_mrail", ..DEVICE },
];

impl Provider {
    /// What is known of the provider that libfabric calls `name`, as this process has it; the cautious defaults when it is
    /// unknown.
    pub fn of(name: &str) -> Provider {
        let shared = std::env::var(SHARED_RECEIVES).is_ok_and(|value| is_yes(&value));
        Self::with(name, shared)
    }

    fn with(name: &str, shared: bool) -> Provider {
        let mut layers = name.split(';');
        let core = layers.next().unwrap_or(name);
        let row = PROVIDERS.iter().copied().find(|row| row.name == core).unwrap_or(DEVICE);
        match layers.next() {
            // Beyond its 16 KiB buffers it asks first, and later messages overtake. Reads it hands to what is below.
            Some("ofi_rxm") => {
                let multi_recv = MultiRecv::Never;
                let (one_piece, read_piece) = (15 << 10, 256 << 10);
                let answers = match row.answers {
                    Answers::ByDevice => Answers::ByDevice,
                    Answers::ByLanes | Answers::Never => Answers::Never,
                };
                // Closing a connection, it takes what arrived by it out of the queue and posts receives to it again, though
                // it is freed by then (1.17; 1.22 and 2.5 read the same): a crash where a peer sends at that moment. Over
                // tcp, and where it is told so, receives are posted for all connections together.
                let closes = match row.closes {
                    Closes::Busy => Closes::Busy,
                    Closes::Idle | Closes::Never if shared => Closes::Idle,
                    Closes::Idle | Closes::Never => Closes::Never,
                };
                let (pieces, leads) = (usize::MAX, false);
                let atomics = matches!(row.name, "tcp" | "verbs");
                Provider {
                    atomics,
                    multi_recv,
                    answers,
                    closes,
                    one_piece,
                    pieces,
                    leads,
                    read_piece,
                    ..row
                }
            }
            _ => row,
        }
    }
}

/// Tells ofi_rxm to post receives for all connections together.
const SHARED_RECEIVES: &str = "FI_OFI_RXM_USE_SRX";

/// What libfabric takes for a yes.
fn is_yes(value: &str) -> bool {
    ["1", "true", "yes", "on"].iter().any(|yes| value.eq_ignore_ascii_case(yes))
}

/// Where an error showed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Returned by the call that starts a send or a read.
    Call,
    /// The completion of a send.
    Sent,
    /// The completion of a read.
    Read,
    /// The completion of a receive, which names no peer.
    Received,
    /// Reading the completion queue.
    Queue,
}

/// What an error means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Not now; the endpoint's deadline runs.
    Later,
    /// A message that could not be taken; its sender, if it is one of ours, will miss it.
    Discard,
    /// The rail to that peer is lost.
    Rail(Cause),
    /// The whole rail is.
    Device(Cause),
}

/// What `error` at `place` means.
pub fn judge(place: Place, error: Errno) -> Verdict {
    use Errno as E;
    let cause = match error {
        E::CONNRESET
        | E::CONNABORTED
        | E::PIPE
        | E::SHUTDOWN
        | E::NOTCONN
        | E::CANCELED
        | E::REMOTEIO
        | E::IO => Cause::Disconnected,
        E::CONNREFUSED => Cause::ConnectionRefused,
        E::TIMEDOUT => Cause::TimedOut,
        E::HOSTUNREACH
        | E::NETUNREACH
        | E::NETDOWN
        | E::HOSTDOWN
        | E::ADDRNOTAVAIL
        | E::NOENT
        | E::NODEV => Cause::Unreachable,
        E::NOMEM | E::NOBUFS | E::NOSPC => Cause::Exhausted("memory of the provider"),
        E::OVERRUN => Cause::Exhausted("room in the completion queue"),
        error if names_the_key(error) => Cause::Malformed("the memory's key is void"),
        Errno(errno) => Cause::Os { call: call(place), errno },
    };
    match (place, error) {
        (Place::Call, E::AGAIN | E::NOMEM | E::NOBUFS) => Verdict::Later,
        (Place::Received, _) => Verdict::Discard,
        (Place::Queue, _) | (_, E::OVERRUN) => Verdict::Device(cause),
        (Place::Call | Place::Sent | Place::Read, _) => Verdict::Rail(cause),
    }
}

/// Whether `error` is a peer's answer that memory of that key is not there, or not for this.
pub(crate) fn names_the_key(error: Errno) -> bool {
    matches!(error, Errno::KEYREJECTED | Errno::NOKEY | Errno::ACCES)
}

const fn call(place: Place) -> &'static str {
    match place {
        Place::Call => "libfabric call",
        Place::Sent => "libfabric send",
        Place::Read => "libfabric read",
        Place::Received => "libfabric receive",
        Place::Queue => "libfabric completion queue",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_verdict_and_the_default_is_a_rail_fault() {
        for number in 0..1000 {
            for place in [Place::Call, Place::Sent, Place::Read, Place::Received, Place::Queue] {
                let verdict = judge(place, Errno(number));
                match place {
                    Place::Queue => assert!(matches!(verdict, Verdict::Device(_))),
                    Place::Received => assert_eq!(verdict, Verdict::Discard),
                    _ if number > 300 => assert_eq!(
                        verdict,
                        Verdict::Rail(Cause::Os { call: call(place), errno: number })
                    ),
                    _ => {}
                }
                let dead = matches!(
                    verdict,
                    Verdict::Rail(Cause::ProcessGone) | Verdict::Device(Cause::ProcessGone)
                );
                assert!(!dead, "{number}: an error of a provider is no proof of death");
            }
        }
        assert_eq!(judge(Place::Call, Errno::AGAIN), Verdict::Later);
        assert_eq!(judge(Place::Sent, Errno::CONNRESET), Verdict::Rail(Cause::Disconnected));
    }

    #[test]
    fn layered_providers_are_known_by_what_is_below() {
        assert_eq!(Provider::of("tcp;ofi_rxm").name, "tcp");
        assert_eq!(Provider::of("verbs;ofi_rxm").name, "verbs");
        let many = |name, version| Provider::of(name).multi_recv.holds(version);
        assert!(many("verbs", (1, 17)) && !many("verbs;ofi_rxm", (2, 5)));
        assert!(many("tcp", (1, 20)) && many("tcp", (2, 5)) && !many("tcp", (1, 19)));
        assert!(!many("net", (1, 17)) && !many("tcp;ofi_rxm", (1, 22)));
        assert_eq!(Provider::of("a-new-one").closes, Closes::Idle);
        let closes = |name| [false, true].map(|shared| Provider::with(name, shared).closes);
        assert_eq!(closes("verbs;ofi_rxm"), [Closes::Never, Closes::Idle]);
        assert_eq!(closes("tcp;ofi_rxm"), [Closes::Busy; 2]);
        assert_eq!(closes("verbs"), [Closes::Idle; 2]);
        assert_eq!(
            ["1", "YES", "on", "0", "", "2"].map(is_yes),
            [true, true, true, false, false, false]
        );
        let answers = |name| Provider::of(name).answers;
        assert_eq!([answers("tcp"), answers("cxi")], [Answers::ByLanes, Answers::ByDevice]);
        let never = ["tcp;ofi_rxm", "verbs;ofi_rxm", "a-new-one"];
        assert_eq!(never.map(answers), [Answers::Never; 3]);
        for row in PROVIDERS {
            assert!(row.bandwidth_mbs > 0 && row.latency_ns > 0, "{}", row.name);
        }
    }
}
