//! Random bytes, and digests by which a secret is recognized.

use std::io;

use machine::{Fault, Result};
use sha2::{Digest, Sha256};

/// # Errors
/// The kernel gives no random bytes.
pub(crate) fn random<const BYTES: usize>() -> Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())
        .map_err(|e| Fault::because("random bytes", io::Error::from(e), "run again"))?;
    Ok(bytes)
}

/// A secret of 128 bits in hexadecimal digits.
///
/// # Errors
/// As for [`random`].
pub(crate) fn secret() -> Result<String> {
    random::<16>().map(|bytes| hexadecimal(&bytes))
}

/// The secret's SHA-256 in hexadecimal digits.
pub(crate) fn digest(secret: &str) -> String {
    hexadecimal(&Sha256::digest(secret))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
