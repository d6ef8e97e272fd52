//! The one bench that a `plimsoll serve` was started for: it alone is answered, and the server ends with it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use machine::Result;
use sha2::{Digest, Sha256};

use crate::control::{Connection, Request};
use crate::key::random;

/// For the owner to come.
const COMES: Duration = Duration::from_secs(60);

/// Longer than any bench takes.
const HELD: Duration = Duration::from_secs(30 * 24 * 3600);

/// Known by the digest of its secret: a command line can be read by every user of its host.
#[derive(Debug)]
pub struct Owner {
    digest: String,
    since: Instant,
    came: AtomicBool,
    left: AtomicBool,
}

impl Owner {
    /// `digest` is [`digest`] of the secret.
    pub fn new(digest: &str) -> Owner {
        let never = AtomicBool::default;
        Owner { digest: digest.to_owned(), since: Instant::now(), came: never(), left: never() }
    }

    pub(crate) fn knows(&self, secret: &str) -> bool {
        digest(secret) == self.digest
    }

    /// Returns with the end of the connection, and so of the server.
    pub(crate) fn hold(&self, connection: &mut Connection) -> Result<()> {
        self.came.store(true, Ordering::Relaxed);
        let _ = connection.receive::<Request>(HELD);
        self.left.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether the owner has gone, in whatever way, or does not come.
    pub fn is_gone(&self) -> bool {
        let waits = || !self.came.load(Ordering::Relaxed) && self.since.elapsed() < COMES;
        self.left.load(Ordering::Relaxed) || !(self.came.load(Ordering::Relaxed) || waits())
    }
}

/// 128 bits that nobody else can guess, in hexadecimal digits.
///
/// # Errors
/// The kernel gives no random bytes.
pub(crate) fn secret() -> Result<String> {
    random::<16>().map(|bytes| hexadecimal(&bytes))
}

pub(crate) fn digest(secret: &str) -> String {
    hexadecimal(&Sha256::digest(secret))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
