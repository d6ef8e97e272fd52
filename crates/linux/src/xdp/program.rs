//! A verified program, and the kernel's counters of it.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use machine::{Fault, Nanoseconds, Result};

use super::syscall::{self, Command};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramKind {
    /// Runs for a frame.
    Xdp,
    /// Runs for a packet that has a kernel buffer.
    Tc,
    /// Runs when called ([`Program::call`]).
    Syscall,
    /// Runs at a kernel tracepoint ([`Program::trace`]).
    RawTracepoint,
}

/// A program that the kernel has verified. It runs nowhere until it is attached or called.
#[derive(Debug)]
pub struct Program {
    name: String,
    kind: ProgramKind,
    id: u32,
    descriptor: OwnedFd,
}

/// The kernel's counters of a program, kept while some [`RunStatistics`] lives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Runs {
    pub count: u64,
    pub time: Nanoseconds,
}

/// The longest context of [`Program::call`], from `linux/filter.h`.
const LONGEST_CONTEXT: usize = u16::MAX as usize;

impl Program {
    pub(super) fn new(name: &str, kind: ProgramKind, descriptor: OwnedFd) -> Result<Program> {
        let information = syscall::program_information(descriptor.as_fd())
            .map_err(|error| Fault::because(format!("BPF program {name}"), error, "run as root, or with CAP_BPF"))?;
        Ok(Program { name: name.into(), kind, id: information.id, descriptor })
    }

    /// A second handle of the same program.
    pub(super) fn again(&self) -> Result<Program> {
        let copied = self.descriptor.try_clone();
        let descriptor = copied.map_err(|error| {
            Fault::because(format!("BPF program {}", self.name), error, "raise the limit of descriptors")
        })?;
        Ok(Program { name: self.name.clone(), kind: self.kind, id: self.id, descriptor })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn kind(&self) -> ProgramKind {
        self.kind
    }

    /// The number by which the kernel and `bpftool` know the program.
    pub fn id(&self) -> u32 {
        self.id
    }

    pub fn runs(&self) -> Result<Runs> {
        let information = syscall::program_information(self.as_fd()).map_err(|error| {
            Fault::because(format!("BPF program {}", self.name), error, "run as root, or with CAP_BPF")
        })?;
        Ok(Runs { count: information.run_count, time: Nanoseconds(information.run_time_ns) })
    }

    /// Runs a `syscall` program once, in the calling thread. It reads and writes `context`; the result is its return value.
    pub fn call(&self, context: &mut [u8]) -> Result<i32> {
        let fault = |cause: String| {
            Fault::new(
                format!("BPF program {}", self.name),
                cause,
                "put it into SEC(\"syscall\") with a smaller context",
            )
        };
        if self.kind != ProgramKind::Syscall {
            return Err(fault("it is no program to call".into()));
        }
        if context.len() > LONGEST_CONTEXT {
            return Err(fault(format!("a context of {} bytes is longer than {LONGEST_CONTEXT}", context.len())));
        }
        let mut attributes = syscall::ProgramRun {
            program: syscall::number(self.as_fd()),
            context_in_size: context.len() as u32,
            // The kernel copies the context back to its origin.
            context_in: if context.is_empty() { 0 } else { context.as_mut_ptr() as u64 },
            ..Default::default()
        };
        match syscall::run(Command::ProgramRun, &mut attributes) {
            Ok(()) => Ok(attributes.returned as i32),
            Err(error) => Err(fault(error.to_string())),
        }
    }
}

impl Program {
    /// Runs an `xdp` program once on a copy of `frame`, without carrying its verdict out; returns the verdict.
    pub fn try_frame(&self, frame: &[u8]) -> Result<u32> {
        Ok(self.test(frame, 1)?.returned)
    }

    /// Runs it `count` times; returns the time of one run as measured by the kernel, in whole nanoseconds.
    pub fn time_frames(&self, frame: &[u8], count: u32) -> Result<Nanoseconds> {
        Ok(Nanoseconds(self.test(frame, count)?.duration.into()))
    }

    fn test(&self, frame: &[u8], count: u32) -> Result<syscall::ProgramRun> {
        let mut attributes = syscall::ProgramRun {
            program: syscall::number(self.as_fd()),
            data_in_size: frame.len() as u32,
            data_in: frame.as_ptr() as u64,
            repeat: count,
            ..Default::default()
        };
        syscall::run(Command::ProgramRun, &mut attributes)
            .map_err(|error| Fault::because(format!("BPF program {}", self.name), error, "give it a whole frame"))?;
        Ok(attributes)
    }
}

impl Program {
    /// Runs a program for tracepoints at the kernel's tracepoint `name`, until the descriptor is closed.
    pub(crate) fn trace(&self, name: &str) -> Result<OwnedFd> {
        let text = CString::new(name).unwrap_or_default();
        let mut attributes =
            syscall::TracepointOpen { name: text.as_ptr() as u64, program: syscall::number(self.as_fd()), padding: 0 };
        syscall::make(Command::TracepointOpen, &mut attributes).map_err(|error| {
            super::refused(format!("tracepoint {name}"), error.to_string(), &error, "use a kernel that traces it")
        })
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// While one lives, the kernel counts the runs of every program and their time. Costs each run about 40 ns.
#[derive(Debug)]
pub struct RunStatistics(#[allow(dead_code, reason = "held open")] OwnedFd);

impl RunStatistics {
    pub fn enable() -> Result<RunStatistics> {
        // BPF_STATS_RUN_TIME
        let made: io::Result<OwnedFd> =
            syscall::make(Command::EnableStatistics, &mut syscall::Descriptor { descriptor: 0 });
        made.map(RunStatistics).map_err(|error| {
            Fault::because("run counters of BPF programs", error, "run as root, on Linux 5.8 or newer")
        })
    }
}
