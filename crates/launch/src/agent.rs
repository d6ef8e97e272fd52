//! The command by which a launcher starts its daemons on other hosts, of a lab or of an allocation, instead of ssh.
//!
//! A launcher calls `AGENT [OPTIONS] HOST COMMAND...`, as it would call ssh; the command is for a shell.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use linux::lab::Door;
use machine::{Fault, Result};

use crate::allocation;

/// Options of ssh and rsh that take a value of their own.
const WITH_VALUE: &[u8] = b"bcDEeFIiJLlmOopQRSWw";

/// A host of the lab: its address for launchers, and the door by which to enter it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entrance {
    pub address: String,
    pub door: Door,
}

impl std::fmt::Display for Entrance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}", self.address, self.door)
    }
}

impl std::str::FromStr for Entrance {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Entrance> {
        let bad = || Fault::new(format!("entrance '{text}'"), "it is not ADDRESS=DOOR", "write it as plimsoll does");
        let (address, door) = text.split_once('=').ok_or_else(bad)?;
        Ok(Entrance { address: address.to_owned(), door: door.parse()? })
    }
}

/// Variables that a process on another node needs to find the launcher's programs. Slurm passes the environment on, PBS
/// does not.
const CARRIED: [&str; 2] = ["PATH", "LD_LIBRARY_PATH"];

/// The command to run on the host that `arguments` name: a host of the lab behind one of `entrances` or, without
/// entrances, a node of the allocation around this process.
///
/// # Errors
/// There is no such host; the batch system's launcher is not in PATH.
pub fn command(entrances: &[Entrance], arguments: &[OsString]) -> Result<Command> {
    let subject = "agent of a launcher";
    let (host, words) = host_and_command(arguments)
        .ok_or_else(|| Fault::new(subject, "it was called without a host", "call it as ssh: [OPTIONS] HOST COMMAND"))?;
    // As with ssh, the words after the host are joined by blanks and left to a shell.
    let mut script = words.join(OsStr::new(" "));
    if entrances.is_empty() {
        let allocation = allocation::around()
            .ok_or_else(|| Fault::new(subject, "it is in no job of Slurm or PBS", "let plimsoll call it"))?;
        let carried = CARRIED.iter().filter_map(|name| Some(allocation::export(name, &std::env::var_os(name)?)));
        script = carried.chain([script]).collect::<Vec<_>>().join(OsStr::new("; "));
        return allocation.on(&host.to_string_lossy(), Path::new("/bin/sh"), &["-c".into(), script]);
    }
    let entrance = entrances
        .iter()
        .find(|entrance| host == OsStr::new(&entrance.address) || host == OsStr::new(entrance.door.hostname()));
    let entrance = entrance.ok_or_else(|| {
        let known: Vec<_> = entrances.iter().map(|entrance| entrance.address.as_str()).collect();
        Fault::new(
            format!("host {}", host.display()),
            format!("this lab has {}", known.join(" and ")),
            "leave hosts out of the options for mpirun: --lab chooses them",
        )
    })?;
    let mut command = Command::new("sh");
    command.arg("-c").arg(script);
    entrance.door.enter(&mut command)?;
    Ok(command)
}

/// Host and command of an ssh command line.
fn host_and_command(arguments: &[OsString]) -> Option<(&OsStr, &[OsString])> {
    let mut rest = arguments;
    while let [first, after @ ..] = rest {
        match first.as_bytes() {
            b"--" => rest = after,
            [b'-', flag] if WITH_VALUE.contains(flag) => rest = after.get(1..)?,
            [b'-', _, ..] => rest = after,
            _ => return Some((first, after)),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn arguments_are_read_as_ssh_reads_them() {
        for (text, host, command) in [
            ("-x 198.18.0.2 orted -mca x y", "198.18.0.2", "orted -mca x y"),
            ("-o Batch=yes -l me -x host PATH=/x; orted", "host", "PATH=/x; orted"),
            ("-- host", "host", ""),
        ] {
            let all = words(text);
            let (found, rest) = host_and_command(&all).unwrap();
            assert_eq!((found, rest), (OsStr::new(host), &words(command)[..]), "{text}");
        }
        for text in ["", "-x", "-l", "-l me"] {
            assert_eq!(host_and_command(&words(text)), None, "{text}");
        }
    }

    #[test]
    fn only_hosts_of_the_lab_are_entered() {
        let entrance: Entrance = "198.18.0.1=a,plimsoll-a,/proc/1/fd/3".parse().unwrap();
        assert_eq!(entrance.to_string().parse::<Entrance>().unwrap(), entrance);
        let fault = command(std::slice::from_ref(&entrance), &words("-x elsewhere true")).unwrap_err();
        assert!(fault.to_string().contains("this lab has 198.18.0.1"), "{fault}");
        assert!(command(&[entrance], &words("-x")).is_err());
        if allocation::around().is_none() {
            assert!(command(&[], &words("n2 true")).unwrap_err().to_string().contains("in no job of Slurm or PBS"));
        }
    }
}
