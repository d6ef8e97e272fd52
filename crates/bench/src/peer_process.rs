//! The peer as a child process: its control connection is its standard input, and it ends when that closes.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use linux::affinity;
use machine::bounds::BENCH_INBOX;
use machine::{Fault, Result};

use crate::control::Connection;
use crate::peer::{Limits, respond};

/// A child that acts as the responder. It ends with its owner, in whatever way the owner ends.
#[derive(Debug)]
pub struct PeerProcess {
    child: Child,
}

impl PeerProcess {
    /// Starts `command`, which must end up in [`serve_parent`].
    pub fn start(mut command: Command) -> Result<(PeerProcess, Connection)> {
        let failed = |e: std::io::Error| Fault::because("peer process", e, "see whether this program may start itself");
        let (near, far) = UnixStream::pair().map_err(failed)?;
        affinity::inherit_allowed(&mut command)?;
        let child = command.stdin(Stdio::from(OwnedFd::from(far))).stdout(Stdio::null()).spawn().map_err(failed)?;
        let name = format!("peer process {}", child.id());
        let process = PeerProcess { child };
        Ok((process, Connection::new(near, name, BENCH_INBOX.each.bytes())?))
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How the child ended, if it has, or does so within `time`.
    pub fn ended(&mut self, time: Duration) -> Option<String> {
        let until = Instant::now() + time;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(describe(status)),
                Ok(None) if Instant::now() < until => sleep(Duration::from_millis(1)),
                _ => return None,
            }
        }
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        if self.ended(Duration::from_millis(500)).is_none() {
            // Both fail only if the child has ended already.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("it was killed by signal {signal}"),
        (None, Some(code)) => format!("it ended with exit code {code}"),
        (None, None) => "it ended".to_owned(),
    }
}

/// Serves on standard input until the parent says `Bye` or is gone. A fault only if the process was not started as a peer; any
/// other is told over the control connection, and gives `false`.
pub fn serve_parent() -> Result<bool> {
    let bad = |e: std::io::Error| {
        Fault::because(
            "plimsoll peer",
            e,
            "do not call it by hand: plimsoll bench starts it with its control connection",
        )
    };
    let socket = std::io::stdin().as_fd().try_clone_to_owned().map_err(bad)?;
    rustix::net::sockopt::socket_type(&socket).map_err(|e| bad(e.into()))?;
    let parent = Connection::new(socket, "the program that started this peer", BENCH_INBOX.each.bytes())?;
    respond(parent, &Limits::trusted()).map(|()| true).or(Ok(false))
}
