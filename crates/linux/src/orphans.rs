//! Orphans: the kernel makes this process, in place of init, the parent of processes whose parent has ended. So
//! processes that a run leaves behind are found and ended even if they cleared their environment.

use std::fs;
use std::io;
use std::process::{Child, Command, id};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process, set_child_subreaper, waitid, waitpid,
};

use crate::output::tell;

static WANTED: AtomicBool = AtomicBool::new(false);

/// Children that other code waits for.
static AWAITED: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Time for orphans to end when asked, and time after which those that do not die are left.
const GRACE: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_secs(10);

/// Makes this process adopt the orphans of its later runs. For programs whose other children are known here during a
/// run: started before it, [`Awaited`], or by [`crate::answer`].
pub fn adopt() {
    WANTED.store(true, Ordering::Relaxed);
}

fn awaited() -> MutexGuard<'static, Vec<u32>> {
    AWAITED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Marks a child that its owner waits for, as long as this lives.
#[derive(Debug)]
pub struct Awaited(u32);

impl Awaited {
    pub fn new(child: &Child) -> Awaited {
        awaited().push(child.id());
        Awaited(child.id())
    }

    /// Starts such a child, which no other thread takes for an orphan meanwhile.
    pub(crate) fn spawn(command: &mut Command) -> io::Result<(Child, Awaited)> {
        let mut awaited = awaited();
        let child = command.spawn()?;
        awaited.push(child.id());
        let own = Awaited(child.id());
        Ok((child, own))
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        let mut all = awaited();
        if let Some(at) = all.iter().position(|process| *process == self.0) {
            all.swap_remove(at);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Orphans {
    /// The children of this process at the run's begin.
    before: Vec<u32>,
}

impl Orphans {
    /// Begins a run; `None` where this process does not adopt orphans.
    pub fn of_a_run() -> Option<Orphans> {
        if !WANTED.load(Ordering::Relaxed) {
            return None;
        }
        set_child_subreaper(Some(getpid())).ok()?;
        Some(Orphans { before: children() })
    }

    /// The present orphans. `awaited` is the locked content of [`AWAITED`].
    fn now(&self, awaited: &[u32]) -> Vec<Pid> {
        let is_one = |process: &u32| !self.before.contains(process) && !awaited.contains(process);
        let raw = children().into_iter().filter(is_one).filter_map(|process| i32::try_from(process).ok());
        raw.filter_map(Pid::from_raw).collect()
    }

    /// Collects orphans that have ended, as init would.
    pub fn reap(&self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if let Ok(Some(_)) = waitid(WaitId::All, options) {
            let awaited = awaited();
            self.now(&awaited).into_iter().for_each(|orphan| _ = waitpid(Some(orphan), WaitOptions::NOHANG));
        }
    }

    /// Asks orphans to end, kills those that do not, and repeats until there are none, since the children of an orphan
    /// become orphans too.
    pub fn end(&self) {
        let begun = Instant::now();
        let (mut asked, mut refused) = (Vec::new(), Vec::new());
        let mut pause = Duration::from_millis(1);
        while begun.elapsed() < TIMEOUT {
            let found = {
                let awaited = awaited();
                let mut found = self.now(&awaited);
                found.retain(|orphan| !refused.contains(orphan));
                if found.is_empty() {
                    break;
                }
                found.retain(|orphan| matches!(waitpid(Some(*orphan), WaitOptions::NOHANG), Ok(None)));
                found
            };
            let signal = if begun.elapsed() < GRACE { Signal::TERM } else { Signal::KILL };
            for orphan in found {
                if signal == Signal::TERM && asked.contains(&orphan) {
                    continue;
                }
                asked.push(orphan);
                if kill_process(orphan, signal).is_err() {
                    refused.push(orphan);
                }
            }
            sleep(pause);
            pause = (2 * pause).min(Duration::from_millis(50));
        }
        if !refused.is_empty() {
            let numbers: Vec<String> = refused.iter().map(|orphan| orphan.as_raw_nonzero().to_string()).collect();
            tell(&format!("plimsoll: a run left processes that this user may not end: {}\n", numbers.join(", ")));
        }
    }
}

/// The children of this process, zombies included.
fn children() -> Vec<u32> {
    let names = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    processes.filter(|process| parent(*process) == Some(id())).collect()
}

fn parent(process: u32) -> Option<u32> {
    let stat = fs::read(format!("/proc/{process}/stat")).ok()?;
    // The name may have any bytes, not just UTF-8.
    let stat = String::from_utf8_lossy(&stat);
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}
