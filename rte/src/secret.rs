//! Secrets and nonces from the kernel. They travel by inherited descriptors and by PMI, never in
//! an argument list or an environment, which other users or children could read.

use crate::error::{Result, RteError};
use rustix::rand::{GetRandomFlags, getrandom};

/// A job's secret, or a nonce.
pub type Secret = [u8; 32];

/// Fresh random bytes.
///
/// # Errors
/// The kernel has no random bytes.
pub fn fresh() -> Result<Secret> {
    let mut bytes = [0u8; 32];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())
            .map_err(|error| RteError::system("no random bytes", error))?;
    }
    Ok(bytes)
}

/// A fresh name of 16 hexadecimal digits: unique in practice, no secret.
///
/// # Errors
/// As [`fresh`].
pub fn fresh_name() -> Result<String> {
    Ok(crate::pmi::text::encode(&fresh()?[..8]))
}
