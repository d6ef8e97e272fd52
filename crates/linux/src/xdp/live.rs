//! Live frames: a program is run on copies of one frame, and its verdicts are carried out as if they had just arrived.
//! `XDP_TX` sends the frame out of the interface (BPF_PROG_RUN with BPF_F_TEST_XDP_LIVE_FRAMES, Linux 5.18).
//!
//! Success of the call does not mean that frames leave: a veth drops them silently where its peer has neither a native
//! program nor merging (GRO). Count where they arrive.

use std::io;
use std::os::fd::AsFd;

use machine::{Fault, Result};

use super::interface::Interface;
use super::program::{Program, ProgramKind};
use super::syscall::{self, Command};

const LIVE_FRAMES: u32 = 1 << 1;
const MOST_IN_A_BATCH: u32 = 256;

/// Size of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveRun {
    /// Frames to run the program on.
    pub frames: u32,
    /// Number of frames processed before any is passed on, 1 to 256.
    pub batch: u32,
}

/// A program, a frame and an interface. The running thread must be in the interface's namespace ([`Interface::enter`]);
/// its core does all the work.
#[derive(Debug)]
pub struct LiveFrames<'a> {
    program: &'a Program,
    frame: &'a [u8],
    /// `struct xdp_md`
    context: [u32; 6],
}

impl<'a> LiveFrames<'a> {
    /// `frame` starts with its Ethernet header; its pages are copied once, and keep the program's changes.
    pub fn new(program: &'a Program, interface: &Interface, frame: &'a [u8]) -> Result<LiveFrames<'a>> {
        let subject = || format!("live frames of program {}", program.name());
        if program.kind() != ProgramKind::Xdp {
            return Err(Fault::new(subject(), "it is no program for frames", "name one of SEC(\"xdp\")"));
        }
        // A page holds the headroom, the frame, and the kernel's metadata of both.
        if frame.len() < 14 || frame.len() > 3000 {
            let cause = format!("a frame of {} bytes is not from 14 to 3000", frame.len());
            return Err(Fault::new(subject(), cause, "choose another size"));
        }
        Ok(LiveFrames { program, frame, context: [0, frame.len() as u32, 0, interface.index(), 0, 0] })
    }

    /// Runs the program `run.frames` times. [`io::ErrorKind::Interrupted`] where a signal ended it early.
    pub fn run(&self, run: LiveRun) -> io::Result<()> {
        let mut attributes = syscall::ProgramRun {
            program: syscall::number(self.program.as_fd()),
            data_in_size: self.frame.len() as u32,
            data_in: self.frame.as_ptr() as u64,
            repeat: run.frames,
            context_in_size: std::mem::size_of_val(&self.context) as u32,
            context_in: self.context.as_ptr() as u64,
            flags: LIVE_FRAMES,
            batch: run.batch.clamp(1, MOST_IN_A_BATCH),
            ..Default::default()
        };
        syscall::run(Command::ProgramRun, &mut attributes)
    }
}
