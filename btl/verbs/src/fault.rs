//! What the device says, as causes: total, and never a process's death (law 3).

use crate::config::is_shortage;
use ironweave_btl::Cause;
use ironweave_ffi_verbs::{Status, VerbsError};

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
        VerbsError::Call { call, errno } => match rustix::io::Errno::from_raw_os_error(*errno) {
            rustix::io::Errno::HOSTUNREACH
            | rustix::io::Errno::NETUNREACH
            | rustix::io::Errno::ADDRNOTAVAIL => Cause::Unreachable,
            rustix::io::Errno::TIMEDOUT => Cause::TimedOut,
            _ => Cause::Os { call, errno: *errno },
        },
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
