//! Paper 002's situation (section 3): two ranks with unequal work, and other work that takes a part of a core.

use std::process::{Child, Command, Stdio};

use linux::affinity;
use machine::CoreId;
use rustix::process::{Pid, Signal, kill_process};

/// A C program of two ranks. In each step rank 0 takes 10 ms of processor time and rank 1 takes 1 ms; then they exchange a
/// message. It makes as many steps as its first argument says; without one it goes on until there is a file `stop`.
pub const UNEQUAL: &str = include_str!("unequal.c");

/// A process that spins, until this is dropped or the process that started it ends.
pub struct Hog(Child);

const BUSY: &str = "while kill -0 $PPID; do n=0; while [ $n -lt 100000 ]; do n=$((n+1)); done; done";

impl Hog {
    pub fn on(core: CoreId) -> Hog {
        let mut command = Command::new("sh");
        command.args(["-c", BUSY]).stdin(Stdio::null()).stderr(Stdio::null());
        affinity::pin_child(&mut command, core).unwrap();
        Hog(command.spawn().unwrap())
    }

    /// Stops the process or lets it continue.
    pub fn is_to_go_on(&self, goes_on: bool) {
        kill_process(Pid::from_child(&self.0), if goes_on { Signal::CONT } else { Signal::STOP }).unwrap();
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
