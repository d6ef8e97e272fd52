//! A `plimsoll serve` on another node of this job's allocation, started for one bench, which alone it answers and with which
//! it ends, however that ends.

use std::io::{Read, Seek, SeekFrom};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use launch::allocation::Allocation;
use launch::nodes::telling;
use machine::{Fault, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::control::{Connection, Reply, Request, connect};
use crate::secret::{digest, secret};

/// Time for the batch system to start it, and for it to answer.
const ANSWERS: Duration = Duration::from_secs(60);

/// Time for it to end by itself once its owner is gone.
const ENDS: Duration = Duration::from_secs(5);

/// Candidates for its port: below those that the kernel gives to connections.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// The node, held for as long as this value lives.
#[derive(Debug)]
pub struct SecondHost {
    node: String,
    address: SocketAddr,
    secret: String,
    launcher: Child,
    /// The connection that holds it; `None` until it has answered, and after its end.
    hold: Option<Connection>,
}

impl SecondHost {
    /// Starts `program serve` on `node` of `allocation` and waits until it answers.
    ///
    /// # Errors
    /// The batch system does not start it, or it cannot be reached.
    pub fn start(allocation: &Allocation, node: &str, program: &Path) -> Result<SecondHost> {
        let secret = secret()?;
        let random = u64::from_str_radix(&digest(&secret)[..8], 16).unwrap_or_default();
        let port = PORTS.start + (random % PORTS.len() as u64) as u16;
        let address = SocketAddr::new(allocation.address(node)?, port);
        let arguments = ["serve", "--listen", &address.to_string(), "--owner", &digest(&secret)].map(Into::into);
        let mut command = allocation.on(node, program, &arguments)?;
        let launcher = command.get_program().to_string_lossy().into_owned();
        let subject = format!("plimsoll serve on {node}");
        let next = format!(
            "start plimsoll from a folder that all nodes have and see that `{launcher}` works, or serve there by hand: \
             `plimsoll serve`, --path {node}"
        );
        let failed = |e: std::io::Error| Fault::because(subject.clone(), e, next.clone());
        let mut said = tempfile::tempfile().map_err(failed)?;
        // A process group of its own: Ctrl-C at the terminal is for the bench, which then ends this.
        command.process_group(0).stdout(Stdio::null()).stderr(said.try_clone().map_err(failed)?);
        let child = command.spawn().map_err(failed)?;
        let mut second = SecondHost { node: node.to_owned(), address, secret, launcher: child, hold: None };
        let until = Instant::now() + ANSWERS;
        let (refused, ended) = loop {
            let refused = match second.take_hold() {
                Ok(()) => return Ok(second),
                Err(fault) => fault,
            };
            if linux::signal::interrupted() {
                return Err(Fault::new(subject, "a signal came before it answered", "run again"));
            }
            let ended = second.launcher.try_wait().map_err(failed)?;
            if Instant::now() > until || ended.is_some() {
                break (refused, ended);
            }
            sleep(Duration::from_millis(50));
        };
        let mut text = String::new();
        let _ = said.seek(SeekFrom::Start(0)).and_then(|_| said.read_to_string(&mut text));
        let said = telling(&text).map(|line| format!(": {line}")).unwrap_or_default();
        Err(match ended {
            Some(status) => Fault::new(subject, format!("{launcher} ended with {status}{said}"), next),
            None => {
                let waited = ANSWERS.as_secs();
                let cause = format!("no answer from {address} within {waited} s ({}){said}", refused.cause());
                let next =
                    "see whether a firewall is between the nodes; --path ADDRESS takes another network of theirs";
                Fault::new(subject, cause, next)
            }
        })
    }

    pub fn node(&self) -> &str {
        &self.node
    }

    /// A connection for one session.
    pub(crate) fn reach(&self) -> Result<(Connection, IpAddr)> {
        let mut connection = connect(self.address, &self.node)?;
        connection.send(&Request::Secret(self.secret.clone()), ANSWERS)?;
        Ok((connection, self.address.ip()))
    }

    fn take_hold(&mut self) -> Result<()> {
        let (mut connection, _) = self.reach()?;
        connection.send(&Request::Hold, ANSWERS)?;
        match connection.receive(ANSWERS)? {
            Reply::Held => self.hold = Some(connection),
            _ => return Err(Fault::new(connection.peer(), "another program answers there", "run again")),
        }
        Ok(())
    }
}

impl Drop for SecondHost {
    fn drop(&mut self) {
        let until = Instant::now() + if self.hold.take().is_some() { ENDS } else { Duration::ZERO };
        while matches!(self.launcher.try_wait(), Ok(None)) {
            if Instant::now() > until {
                // The batch system ends the processes of its launcher.
                let _ = kill_process(Pid::from_child(&self.launcher), Signal::TERM);
                let _ = self.launcher.wait();
                return;
            }
            sleep(Duration::from_millis(10));
        }
    }
}
