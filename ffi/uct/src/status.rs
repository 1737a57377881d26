//! What UCT's calls return (`ucs_status_t`): a signed byte, any value of which can be held and printed.

use std::fmt;

/// A status. Zero and above are not errors.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Status(pub i8);

macro_rules! statuses {
    ($($name:ident = $number:literal, $words:literal;)*) => {
        impl Status {
            $(#[doc = $words] pub const $name: Status = Status($number);)*

            fn words(self) -> Option<&'static str> {
                match self {
                    $(Status::$name => Some($words),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    OK = 0, "success";
    IN_PROGRESS = 1, "in progress";
    NO_MESSAGE = -1, "no message";
    NO_RESOURCE = -2, "no resources are available now";
    IO_ERROR = -3, "input/output error";
    NO_MEMORY = -4, "out of memory";
    INVALID_PARAM = -5, "invalid parameter";
    UNREACHABLE = -6, "destination is unreachable";
    INVALID_ADDR = -7, "invalid address";
    NOT_IMPLEMENTED = -8, "not implemented";
    MESSAGE_TRUNCATED = -9, "message truncated";
    NO_PROGRESS = -10, "no progress";
    BUFFER_TOO_SMALL = -11, "buffer too small";
    NO_ELEM = -12, "no such element";
    SOME_CONNECTS_FAILED = -13, "some connects failed";
    NO_DEVICE = -14, "no such device";
    BUSY = -15, "busy";
    CANCELED = -16, "canceled";
    SHMEM_SEGMENT = -17, "shared memory error";
    ALREADY_EXISTS = -18, "already exists";
    OUT_OF_RANGE = -19, "out of range";
    TIMED_OUT = -20, "timed out";
    EXCEEDS_LIMIT = -21, "exceeds a limit";
    UNSUPPORTED = -22, "unsupported";
    REJECTED = -23, "rejected";
    NOT_CONNECTED = -24, "not connected";
    CONNECTION_RESET = -25, "connection reset by the peer";
    ENDPOINT_TIMEOUT = -80, "endpoint timeout";
}

impl Status {
    /// Whether it says that something went wrong.
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.0 < 0
    }

    /// `Err` when it is an error.
    ///
    /// # Errors
    /// Itself.
    pub const fn check(self) -> Result<Status, Status> {
        if self.is_error() { Err(self) } else { Ok(self) }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.words() {
            Some(words) => f.write_str(words),
            None => write!(f, "UCX status {}", self.0),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({}: {self})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_a_status_with_words() {
        for number in i8::MIN..=i8::MAX {
            let status = Status(number);
            assert!(!status.to_string().is_empty());
            assert_eq!(status.check().is_err(), number < 0);
        }
        assert_eq!(Status::CONNECTION_RESET.to_string(), "connection reset by the peer");
    }
}
