//! The message engine: tagged messages between addressed peers, matched in MPI order, moved eagerly or by rendezvous,
//! held back by credits, made reliable where the port is not.
//!
//! Sans-IO: the engine has no clock, socket, thread or file. A driver feeds it packets and the time, and carries out
//! what it asks for. One iteration of a driver:
//!
//! 1. for every packet that the port delivers: [`Engine::handle_packet`];
//! 2. [`Engine::handle_timeout`] once the clock has reached [`Engine::next_timeout`] (never, on reliable ports);
//! 3. [`Engine::carry_out_reads`], where the port can read a peer's memory;
//! 4. for every peer from [`Engine::next_ready`]: while [`Engine::plan`] names a packet's length, give
//!    [`Engine::write`] that much of the port's memory;
//! 5. hand [`Engine::next_completion`] to the application.
//!
//! The same code runs in the caller (`app`), on a core of its own (`core:N`), in tests and in the simulator.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod announced;
mod buffer;
mod config;
mod copies;
mod credit;
mod engine;
mod incoming;
pub mod matching;
mod outgoing;
mod peer;
mod posting;
mod reliability;
mod rendezvous;
mod request;
pub mod slots;
mod spares;
mod stored;
mod tag;
mod unexpected;
mod window;
mod wire;
mod withdrawal;

pub use buffer::{Buffer, copy};
pub use config::{LinkConfig, ReliabilityConfig};
pub use engine::{Counters, Engine, Refusal};
pub use incoming::{Take, TakeNothing};
pub use outgoing::{Apart, write_bytes};
pub use request::{Completion, Direction, ReceiveKey, Request, SendKey, Status, from_wire, to_wire, unknown_peer};
pub use tag::{Envelope, Label, Source, Space, Tag, TagSelector};
pub use unexpected::{Claim, unknown_claim};
pub use wire::{LARGEST_HEADER, RELIABILITY_HEADER};
pub use withdrawal::StandIn;
