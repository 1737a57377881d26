//! What each status of the library means here: one table, whose default is that the rail to this peer is lost (law 3).

use ironweave_btl::Cause;
use ironweave_ffi_uct::Status;

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Nothing is wrong: try again when there is room.
    Later,
    /// The endpoint is lost.
    Rail(Cause),
}

/// The verdict on an error, wherever it came from: a call, the error handler, a completion.
pub(crate) fn judge(status: Status) -> Verdict {
    Verdict::Rail(match status {
        Status::NO_RESOURCE | Status::BUSY | Status::IN_PROGRESS | Status::OK => {
            return Verdict::Later;
        }
        Status::CONNECTION_RESET | Status::NOT_CONNECTED => Cause::Disconnected,
        Status::REJECTED => Cause::ConnectionRefused,
        Status::ENDPOINT_TIMEOUT | Status::TIMED_OUT => Cause::TimedOut,
        Status::UNREACHABLE | Status::INVALID_ADDR => Cause::Unreachable,
        Status::CANCELED => Cause::Invalidated,
        Status::NO_MEMORY => Cause::Exhausted("memory"),
        Status::EXCEEDS_LIMIT => Cause::Exhausted("endpoints"),
        Status::NO_DEVICE => Cause::Device("it is gone"),
        Status::IO_ERROR => Cause::Device("input/output error"),
        Status::SHMEM_SEGMENT => Cause::Device("shared memory cannot be attached"),
        Status::MESSAGE_TRUNCATED => Cause::Malformed("a truncated message"),
        _ => Cause::Device("UCX reports an error of its own"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_a_verdict_and_errors_never_mean_later() {
        for number in i8::MIN..=i8::MAX {
            let status = Status(number);
            let later = judge(status) == Verdict::Later;
            let room = [Status::NO_RESOURCE, Status::BUSY].contains(&status);
            if status.is_error() {
                assert_eq!(later, room, "{status:?}");
            }
        }
    }
}
