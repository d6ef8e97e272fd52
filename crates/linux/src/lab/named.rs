//! Labs that outlive the command that made them, kept by names in `/run/netns`, where `ip netns` finds them too.

use std::path::PathBuf;
use std::time::Duration;

use machine::lock::Lock;
use machine::{Fault, Result};

use super::namespace::Namespace;
use super::{Host, Lab, Options, link, residents};
use crate::ownership;

/// Longer than making several labs takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How a lab was brought up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Raised {
    Made,
    /// It existed, whole; its options were set again.
    Kept,
    /// It existed in part; it was completed, or taken down and made anew.
    Repaired,
}

/// The result of taking a lab down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Whether any part of it existed.
    pub was_there: bool,
    /// Number of processes in its hosts that were ended.
    pub processes: usize,
}

impl Lab {
    /// Brings the lab `name` up, from whatever state it is in, with exactly these options.
    ///
    /// Unlike [`Lab::owned`], it stays when the returned value is dropped.
    pub fn up(name: &str, options: &Options) -> Result<(Lab, Raised)> {
        check_name(name)?;
        options.check()?;
        let _lock = lock()?;
        if let Some(lab) = find(name)?
            && link::joined(&lab.hosts)?
        {
            let raised = if link::configured(&lab.hosts)? { Raised::Kept } else { Raised::Repaired };
            link::configure(&lab.hosts, options)?;
            return Ok((lab, raised));
        }
        let raised = if remove(name)?.was_there { Raised::Repaired } else { Raised::Made };
        match make(name, options) {
            Ok(lab) => Ok((lab, raised)),
            Err(fault) => {
                // The cause of the failure is more useful than that of a failed removal.
                let _ = remove(name);
                Err(fault)
            }
        }
    }

    /// Takes the lab `name` down, whole or not: ends processes in its hosts, removes link and hosts.
    pub fn down(name: &str) -> Result<Ended> {
        check_name(name)?;
        let _lock = lock()?;
        remove(name)
    }

    /// The lab `name`, if it is up and whole.
    pub fn find(name: &str) -> Result<Option<Lab>> {
        check_name(name)?;
        match find(name)? {
            Some(lab) if link::joined(&lab.hosts)? && link::configured(&lab.hosts)? => Ok(Some(lab)),
            Some(_) => Err(broken(name)),
            None if Host::BOTH.iter().any(|host| path(name, *host).exists()) => Err(broken(name)),
            None => Ok(None),
        }
    }
}

fn broken(name: &str) -> Fault {
    let next = "repair it with `plimsoll lab up` or remove it with `plimsoll lab down`";
    Fault::new(format!("lab {name}"), "it is not whole: its maker was stopped, or a part was taken away", next)
}

fn find(name: &str) -> Result<Option<Lab>> {
    let open = |host| Namespace::bound_to(host, &host_name(name, host), &path(name, host));
    Ok(open(Host::A)?.zip(open(Host::B)?).map(|(a, b)| Lab { hosts: [a, b], warden: None }))
}

fn make(name: &str, options: &Options) -> Result<Lab> {
    for host in Host::BOTH {
        link::ip_netns("add", &host_name(name, host))?;
    }
    let lab = find(name)?.ok_or_else(|| {
        Fault::new(format!("lab {name}"), "`ip netns add` made no namespace", "check that /run is writable")
    })?;
    link::make(&lab.hosts)?;
    link::configure(&lab.hosts, options)?;
    Ok(lab)
}

fn remove(name: &str) -> Result<Ended> {
    let mut ended = Ended { was_there: false, processes: 0 };
    for host in Host::BOTH {
        let path = path(name, host);
        if !path.exists() {
            continue;
        }
        ended.was_there = true;
        if let Some(namespace) = Namespace::bound_to(host, &host_name(name, host), &path)? {
            ended.processes += residents::end(std::slice::from_ref(&namespace))?;
        }
        link::ip_netns("delete", &host_name(name, host))?;
    }
    Ok(ended)
}

fn host_name(lab: &str, host: Host) -> String {
    format!("{lab}-{}", host.letter())
}

fn path(lab: &str, host: Host) -> PathBuf {
    PathBuf::from("/run/netns").join(host_name(lab, host))
}

/// Names become file and host names, so they have letters, digits and dashes only.
fn check_name(name: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if (1..=40).contains(&name.len()) && name.chars().all(fits) && !name.starts_with('-') {
        return Ok(());
    }
    let cause = "a name has 1 to 40 letters, digits and dashes and starts with none of the dashes";
    Err(Fault::new(format!("lab '{name}'"), cause, "choose another --name"))
}

/// Excludes other makers of labs.
fn lock() -> Result<Lock> {
    ownership::take("labs", "labs", TIMEOUT, "wait until that has made its own")
}
