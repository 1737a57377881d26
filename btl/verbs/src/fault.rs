//! What the device says, as causes: total, and never a process's death (law 3).

use crate::config::is_shortage;
use ironweave_btl::Cause;
use ironweave_ffi_verbs::{Event, Status, VerbsError};
use rustix::io::Errno;

/// A call that failed.
pub fn cause(error: &VerbsError) -> Cause {
    match error {
        VerbsError::Call { call, errno } if is_shortage(*errno) => Cause::Exhausted(match *call {
            "ibv_reg_mr" => "memory that may be registered (ulimit -l)",
            "ibv_create_qp" => "queue pairs of the device",
            "ibv_create_ah" => "address handles of the device",
            "ibv_post_send" => "places in the send queue",
            crate::meet::RECEIVES => "receives for another peer",
            crate::meet::COMPLETIONS => "places in the completion queue for another peer",
            _ => "memory that the device may use",
        }),
        VerbsError::Call { call, errno } => {
            // A library may say any number, also one that is no error's.
            let is = |known: Errno| known.raw_os_error() == *errno;
            if is(Errno::HOSTUNREACH) || is(Errno::NETUNREACH) || is(Errno::ADDRNOTAVAIL) {
                Cause::Unreachable
            } else if is(Errno::TIMEDOUT) {
                Cause::TimedOut
            } else {
                Cause::Os { call, errno: *errno }
            }
        }
        VerbsError::Library(_) | VerbsError::NoDevice { .. } => Cause::Device("it is gone"),
    }
}

/// A completion that is no success.
pub fn of_status(status: Status) -> Cause {
    match status {
        Status::RetryExceeded => Cause::TimedOut,
        other => Cause::Device(other.words()),
    }
}

/// What an asynchronous event means to a rail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The connection by this queue pair ends.
    Connection(u32),
    /// All connections end, if it stays so.
    PortDown,
    /// They need not.
    PortUp,
    /// All connections end, and no more are made.
    Device,
    /// Nothing.
    None,
}

/// Of the rail on `port`.
pub fn of_event(event: Event, port: u8) -> Verdict {
    match event {
        Event::QueuePair(number) => Verdict::Connection(number),
        Event::PortDown(its) if its == port => Verdict::PortDown,
        Event::PortUp(its) if its == port => Verdict::PortUp,
        Event::QueueBroken | Event::DeviceFatal => Verdict::Device,
        Event::PortDown(_) | Event::PortUp(_) | Event::PortChanged(_) | Event::Note(_) => {
            Verdict::None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironweave_btl::{Fault, Peer};

    #[test]
    fn every_failed_completion_is_a_fault_and_none_proves_a_death() {
        for code in (1..=0xffff).chain([u32::MAX / 2, u32::MAX]) {
            let status = Status::of(code);
            let cause = of_status(status);
            let wanted = match code {
                12 | 20 => Cause::TimedOut, // no answer to any try, none in time
                _ => Cause::Device(status.words()),
            };
            assert_eq!(cause, wanted, "{code}");
            assert!(!Fault::rail(Peer(1), cause).is_proof(), "{code}");
        }
    }

    /// By `enum ibv_event_type`; the events are about port 1 and queue pair 77.
    #[test]
    fn every_event_has_its_verdict() {
        let verdict = |code: u32, rail: u8| of_event(Event::of(code, 1, || 77), rail);
        for code in (0..=0xffff).chain([u32::MAX / 2, u32::MAX]) {
            let (here, other_port) = match code {
                0 | 8 | 14 => (Verdict::Device, Verdict::Device), // CQ_ERR, DEVICE_FATAL, SRQ_ERR
                1..=3 => (Verdict::Connection(77), Verdict::Connection(77)), // QP_…
                9 => (Verdict::PortUp, Verdict::None),            // PORT_ACTIVE
                10 => (Verdict::PortDown, Verdict::None),         // PORT_ERR
                _ => (Verdict::None, Verdict::None),
            };
            assert_eq!((verdict(code, 1), verdict(code, 2)), (here, other_port), "{code}");
        }
    }

    #[test]
    fn every_refused_call_is_a_fault_and_none_proves_a_death() {
        let calls = ["ibv_reg_mr", "ibv_create_qp", "ibv_create_ah", "ibv_post_send", "another"];
        for call in calls {
            for errno in (-1..=4096).chain([i32::MIN, i32::MAX]) {
                let cause = cause(&VerbsError::Call { call, errno });
                assert!(!Fault::rail(Peer(1), cause).is_proof(), "{call}: {errno}");
            }
        }
    }
}
