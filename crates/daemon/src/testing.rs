//! Processes for tests to move.

use std::process::{Child, Command};

use linux::affinity;
use machine::CpuSet;
use mapping::decision::Process;

use crate::{mover, process};

/// A process that sleeps until its test ends.
pub struct Sleeper {
    child: Child,
    pub process: Process,
    /// The initial mask.
    pub before: CpuSet,
}

impl Sleeper {
    pub fn start() -> Sleeper {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let process = process::identify(child.id()).unwrap();
        Sleeper { child, process, before: mover::seat(process).unwrap().unwrap() }
    }

    pub fn seat(&self) -> CpuSet {
        mover::seat(self.process).unwrap().unwrap()
    }

    pub fn settle(&self, to: &CpuSet) {
        mover::settle(self.process, &self.seat(), to).unwrap();
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A seat on each of two cores; `None` where this host has only one.
pub fn two_cores() -> Option<[CpuSet; 2]> {
    match affinity::allowed().unwrap()[..] {
        [one, two, ..] => Some([one, two].map(|core| [core].into_iter().collect())),
        _ => {
            skip::test("a daemon needs two cores to move ranks between");
            None
        }
    }
}
