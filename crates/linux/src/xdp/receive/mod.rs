//! Receiving at the driver hook: a program checks the sequence of the engine's packets, writes them into memory that
//! the endpoint polls, and acknowledges them. Everything else comes by the kernel's UDP socket, as without it.
//!
//! A [`Hook`] is the program at one interface; it serves a lane to each endpoint. [`XdpPort`] is the port over both.

mod hook;
mod lane;
mod layout;
mod ownership;
mod port;
#[cfg(test)]
mod tests;

pub use hook::{Hook, Seat, possible};
pub use lane::LaneCounters;
pub use port::XdpPort;
