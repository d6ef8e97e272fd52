//! Placement `core:N`: one process per host runs the engines of all its ranks on one core, or a thread of the application runs
//! that of one endpoint. Both are reached in the same way and run the same loop.
//!
//! A rank reaches its engine over a pair of shared-memory rings. Short messages travel in them; longer ones the engine reads
//! and writes in the rank's memory, so that the copying too is off the application's core. Each rank has an engine and paths
//! of its own there: to other endpoints it looks like any other.
//!
//! The engine's process is found by an abstract socket whose name holds user and core, takes processes of its own user only, and ends
//! when the last of its ranks has gone.

mod client;
mod greeting;
mod launch;
mod memory;
mod protocol;
mod remains;
mod round;
mod seat;
mod server;
mod thread;
mod waiting;

pub(crate) use client::NodeClient;
pub use launch::detach;
pub(crate) use seat::ByName;
pub use server::serve;
pub(crate) use thread::EngineThread;

use machine::CoreId;
use ports::shm::{Geometry, ShmPort};

/// Rings between a rank and its engine, at either end.
fn rings() -> ShmPort {
    ShmPort::new(Geometry { slots: 128, mtu: protocol::LARGEST.next_multiple_of(64), ..Geometry::default() })
}

/// Name of the abstract socket where the engine on `core` takes ranks of this user.
fn meeting_name(core: CoreId) -> String {
    format!("plimsoll/engine/{}/{}", linux::user::word(), core.0)
}
