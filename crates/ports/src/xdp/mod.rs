//! Receiving at the driver hook: a program checks the sequence of the engine's packets, writes them into memory that
//! the endpoint polls, and acknowledges them. Everything else comes by the kernel's UDP socket, as without it.
//!
//! A [`Hook`] is the program at one interface; it has a lane for each endpoint. The first process that opens an
//! [`XdpPort`] there owns the hook and lends lanes to others of its user ([`Service`]). When it ends, the next one
//! takes its place; until then their packets come by their sockets.

mod hook;
mod lane;
mod layout;
mod membership;
mod ownership;
mod port;
mod service;
#[cfg(test)]
mod tests;

pub use hook::{Hook, LentLane, possible};
pub use lane::LaneCounters;
pub use port::XdpPort;
pub use service::Service;
