//! Processes of this host, as `/proc` shows them.

use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;

use linux::accounting::{process_time, user_time};
use machine::Nanoseconds;
use machine::bounds::WATCHED_ENVIRONMENT;
use mapping::decision::Process;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The process that has this number; `None` where there is none, or only a zombie.
pub fn identify(pid: u32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold blanks and parentheses; the state, the third field, follows it.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let is_over = matches!(fields.next()?, "Z" | "X");
    let started = fields.nth(18)?.parse().ok()?;
    (!is_over).then_some(Process { pid, started })
}

/// Whether the process still exists; its number may belong to another process.
pub fn is_there(process: Process) -> bool {
    identify(process.pid) == Some(process)
}

/// A process that is followed; its descriptor shows whether it still exists, without reading `/proc`.
#[derive(Debug)]
pub struct Held {
    process: Process,
    /// `None` where this process may open no more files.
    descriptor: Option<OwnedFd>,
}

impl Held {
    pub fn new(process: Process) -> Held {
        let open = |pid| pidfd_open(pid, PidfdFlags::empty()).ok();
        let descriptor = i32::try_from(process.pid).ok().and_then(Pid::from_raw).and_then(open);
        // The number may have been reused since it was identified.
        Held { process, descriptor: descriptor.filter(|_| is_there(process)) }
    }

    pub fn is_there(&self) -> bool {
        let Some(descriptor) = &self.descriptor else { return is_there(self.process) };
        let mut ended = [PollFd::new(descriptor, PollFlags::IN)];
        matches!(poll(&mut ended, Some(&Timespec::default())), Ok(0))
    }
}

/// The threads of a process, by number; none once it has ended.
pub fn threads(process: Process) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{}/task", process.pid)).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The user of a process; `None` where it has ended, or has rights of several users. The owner of its folder in `/proc` does
/// not serve: root owns that of a process which hides its memory.
pub fn user(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let mut users = users.split_ascii_whitespace().map(|user| user.parse::<u32>().ok());
    let user = users.next()?;
    users.all(|other| other == user).then_some(user).flatten()
}

/// The numbers of all processes.
pub fn all() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The environment that a process was started with; `None` where this user may not see it.
pub struct Environment(Vec<u8>);

impl Environment {
    pub fn of(pid: u32) -> Option<Environment> {
        let mut text = Vec::new();
        let file = fs::File::open(format!("/proc/{pid}/environ")).ok()?;
        // A process may name any part of its memory as its environment.
        file.take(WATCHED_ENVIRONMENT.each.bytes().0).read_to_end(&mut text).ok()?;
        (!text.is_empty()).then_some(Environment(text))
    }

    pub fn get(&self, name: &str) -> Option<String> {
        let value = |variable: &[u8]| {
            let value = variable.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            Some(String::from_utf8_lossy(value).into_owned())
        };
        self.0.split(|byte| *byte == 0).find_map(value)
    }
}

/// Processor time of a process, and how it was kept from its cores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    pub cpu: Nanoseconds,
    /// The part of it outside of the kernel.
    pub user: Nanoseconds,
    /// `None` where the kernel does not count this.
    pub denied: Option<Denied>,
}

/// Time for which threads were runnable while others had their cores, and how often threads were put on a core.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Denied {
    pub time: Nanoseconds,
    pub turns: u64,
}

impl Used {
    /// `None` once the process has ended. The denied time takes a file for each thread, so it is read only if `wanted`.
    pub fn of(process: Process, wanted: bool) -> Option<Used> {
        let all = || {
            threads(process).into_iter().try_fold(Denied::default(), |sum, thread| {
                let denied = denied(process, thread)?;
                Some(Denied { time: sum.time + denied.time, turns: sum.turns + denied.turns })
            })
        };
        let (cpu, user) = (process_time(process.pid)?, user_time(process.pid)?);
        Some(Used { cpu, user, denied: wanted.then(all).flatten() })
    }
}

/// `schedstat`: time on a core, time waiting for one, time slices. Without statistics all are 0, also for a thread that has run.
fn denied(process: Process, thread: i32) -> Option<Denied> {
    let text = fs::read_to_string(format!("/proc/{}/task/{thread}/schedstat", process.pid)).ok()?;
    let mut numbers = text.split_ascii_whitespace().map(|word| word.parse::<u64>().ok());
    let (ran, denied, turns) = (numbers.next()??, numbers.next()??, numbers.next()??);
    ((ran, denied, turns) != (0, 0, 0)).then_some(Denied { time: Nanoseconds(denied), turns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_number_and_start() {
        let own = identify(std::process::id()).unwrap();
        assert!(is_there(own) && !is_there(Process { started: own.started + 1, ..own }));
        assert!(threads(own).contains(&linux::accounting::current_thread()));
        assert!(Environment::of(own.pid).unwrap().get("PATH").is_some());
        assert_eq!(user(own.pid), Some(rustix::process::geteuid().as_raw()));
        assert!(Used::of(own, true).unwrap().cpu > Nanoseconds(0));
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id();
        let held = Held::new(identify(pid).unwrap());
        let of_another = Held::new(Process { started: own.started + 1, ..own });
        assert!(held.is_there() && !of_another.is_there() && Held::new(own).is_there());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!held.is_there());
        assert_eq!(identify(pid), None);
    }
}
