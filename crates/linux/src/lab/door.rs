//! A way into a host for a process that another program starts, as `mpirun` starts its daemon on the other host.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;

use machine::{Fault, Result};

use super::Host;
use super::namespace::Namespace;

/// Names a host of a lab, valid while the lab's owner lives. Written as one word, which can be an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Door {
    host: Host,
    hostname: String,
    path: PathBuf,
}

impl Door {
    pub(super) fn new(host: Host, hostname: &str, path: PathBuf) -> Door {
        Door { host, hostname: hostname.to_owned(), path }
    }

    pub fn host(&self) -> Host {
        self.host
    }

    /// The host's own name, inside of it.
    pub fn hostname(&self) -> &str {
        &self.hostname
    }

    /// Makes `command` run in the host, as [`super::Lab::enter`] does. Fails where the lab is gone.
    pub fn enter<'c>(&self, command: &'c mut Command) -> Result<&'c mut Command> {
        let gone = || Fault::new(self.host.to_string(), "its lab is gone: its owner has ended", "start the job again");
        Namespace::bound_to(self.host, &self.hostname, &self.path)?.ok_or_else(gone)?.enter(command)
    }
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.host.letter(), self.hostname, self.path.display())
    }
}

impl FromStr for Door {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Door> {
        let parts: Vec<&str> = text.splitn(3, ',').collect();
        match parts[..] {
            [host, hostname, path] => Ok(Door::new(host.parse()?, hostname, path.into())),
            _ => Err(Fault::new(
                format!("door '{text}'"),
                "it is not HOST,HOSTNAME,PATH",
                "take it as Lab::door gave it",
            )),
        }
    }
}
