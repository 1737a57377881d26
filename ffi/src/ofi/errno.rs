//! Error numbers of libfabric: the system's below 256, its own from 256 on. A plain number, so that no value a library may
//! ever return is missing.

use std::fmt;

/// A positive error number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Errno(pub i32);

macro_rules! numbers {
    ($($name:ident = $value:expr;)*) => {
        #[allow(missing_docs)] // The header's names, less `FI_E`.
        impl Errno {
            $(pub const $name: Errno = Errno($value);)*

            /// The header's name, where this file knows it.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                $(if self.0 == $value { return Some(concat!("FI_E", stringify!($name))); })*
                None
            }
        }
    };
}

numbers! {
    NOENT = libc::ENOENT;
    IO = libc::EIO;
    AGAIN = libc::EAGAIN;
    NOMEM = libc::ENOMEM;
    ACCES = libc::EACCES;
    FAULT = libc::EFAULT;
    BUSY = libc::EBUSY;
    NODEV = libc::ENODEV;
    INVAL = libc::EINVAL;
    MFILE = libc::EMFILE;
    NOSPC = libc::ENOSPC;
    PIPE = libc::EPIPE;
    NOSYS = libc::ENOSYS;
    NODATA = libc::ENODATA;
    MSGSIZE = libc::EMSGSIZE;
    OPNOTSUPP = libc::EOPNOTSUPP;
    ADDRINUSE = libc::EADDRINUSE;
    ADDRNOTAVAIL = libc::EADDRNOTAVAIL;
    NETDOWN = libc::ENETDOWN;
    NETUNREACH = libc::ENETUNREACH;
    CONNABORTED = libc::ECONNABORTED;
    CONNRESET = libc::ECONNRESET;
    NOBUFS = libc::ENOBUFS;
    NOTCONN = libc::ENOTCONN;
    SHUTDOWN = libc::ESHUTDOWN;
    TIMEDOUT = libc::ETIMEDOUT;
    CONNREFUSED = libc::ECONNREFUSED;
    HOSTDOWN = libc::EHOSTDOWN;
    HOSTUNREACH = libc::EHOSTUNREACH;
    REMOTEIO = libc::EREMOTEIO;
    CANCELED = libc::ECANCELED;
    KEYREJECTED = libc::EKEYREJECTED;
    OTHER = 256;
    TOOSMALL = 257;
    OPBADSTATE = 258;
    AVAIL = 259;
    BADFLAGS = 260;
    NOEQ = 261;
    DOMAIN = 262;
    NOCQ = 263;
    CRC = 264;
    TRUNC = 265;
    NOKEY = 266;
    NOAV = 267;
    OVERRUN = 268;
    NORX = 269;
}

impl Errno {
    /// What a call returned: a count, or a negated error number.
    pub(super) fn check(returned: isize) -> Result<usize, Errno> {
        match usize::try_from(returned) {
            Ok(count) => Ok(count),
            Err(_) => Err(Errno(i32::try_from(-returned).unwrap_or(Errno::OTHER.0))),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) if self.0 >= 256 => f.write_str(name),
            Some(name) => write!(f, "{name} ({})", std::io::Error::from_raw_os_error(self.0)),
            None => write!(f, "error {}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_are_counts_or_errors() {
        assert_eq!(Errno::check(7), Ok(7));
        assert_eq!(Errno::check(-11), Err(Errno::AGAIN));
        assert_eq!(Errno::check(-259).unwrap_err().to_string(), "FI_EAVAIL");
        assert_eq!(Errno::check(isize::MIN + 1), Err(Errno::OTHER));
        assert_eq!(Errno(9999).to_string(), "error 9999");
    }
}
