//! The one bench that a `plimsoll serve` was started for: it alone is answered, and the server ends with it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use machine::Result;

use crate::control::{Connection, Request};
use crate::secret::digest;

/// Time to wait for the owner.
const COMES: Duration = Duration::from_secs(60);

/// Longest hold, beyond any bench.
const HELD: Duration = Duration::from_secs(30 * 24 * 3600);

/// The owner, known by the digest of its secret: any user of a host can read a command line.
#[derive(Debug)]
pub struct Owner {
    digest: String,
    since: Instant,
    came: AtomicBool,
    left: AtomicBool,
}

impl Owner {
    /// `digest` is the secret's SHA-256 in hexadecimal digits.
    pub fn new(digest: &str) -> Owner {
        let never = AtomicBool::default;
        Owner { digest: digest.to_owned(), since: Instant::now(), came: never(), left: never() }
    }

    pub(crate) fn knows(&self, secret: &str) -> bool {
        digest(secret) == self.digest
    }

    /// Holds the server; returns with the end of the connection.
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
