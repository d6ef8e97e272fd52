//! The sender's bodies that run in user space: native offcodes that follow one control block.
//!
//! [`SocketSender`] is for `app`, [`FrameSender`] for `core:N`. Each turn sends what is due and returns; how they wait
//! for the next deadline is what they differ in. The third body is BPF and follows the same block.

mod addresses;
mod frames;
mod sockets;

#[cfg(test)]
mod tests;

use machine::{Fault, Nanoseconds};

pub use frames::{FrameSender, OpenFrames};
pub use sockets::{OpenSocket, SocketSender, Transmit, Waiting};

/// A deadline this near is waited for within the poll; for a later one the site gets its thread back.
const NEAR: Nanoseconds = Nanoseconds(20_000);

/// Most frames of one poll, so that the site looks at its channels now and then.
const FRAMES_A_TURN: usize = 64;

fn fault(cause: impl Into<String>, next: &str) -> Fault {
    Fault::new("traffic: sender", cause, next)
}
