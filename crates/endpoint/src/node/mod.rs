//! Placement `core:N` for processes: one engine process on a host turns the engines of all its ranks on one core.
//!
//! A rank reaches it over a pair of shared-memory rings. Short messages travel in them; of longer ones the engine's process
//! reads and writes the rank's memory, so that the copying too is off the application's core. Each rank has an engine and
//! ways of its own in there: to other endpoints it looks like any other.
//!
//! The process is found by an abstract socket whose name holds user and core, takes processes of its own user only, and ends
//! when the last of its ranks has gone.

mod client;
mod greeting;
mod launch;
mod memory;
mod protocol;
mod seat;
mod server;

pub(crate) use client::NodeClient;
pub use launch::detach;
pub use server::serve;

use machine::CoreId;

/// Where the engine on `core` takes ranks of this user.
fn meeting_name(core: CoreId) -> String {
    format!("plimsoll/engine/{}/{}", rustix::process::geteuid().as_raw(), core.0)
}
