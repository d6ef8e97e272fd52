//! Verbs, the semantics that paper 004 contrasts with matched messages: a connected queue pair for each peer, work
//! requests, completion queues, receive buffers posted before anything comes; and MPI above them, as Open MPI's
//! openib transport and MVAPICH put it there: matching headers, credits, eager copies, rendezvous by RDMA write.
//!
//! Words and rules are those of the InfiniBand Architecture Specification, volume 1 (release 1.3), chapters 9 (the
//! reliable connected transport), 10 and 11 (queue pairs and verbs).
//!
//! | layer | module | on real hardware |
//! |---|---|---|
//! | MPI: requests, matching, credits, rendezvous | [`Endpoint`] | the host, in the MPI library |
//! | verbs: queue pairs, work requests, completions, registered memory | [`Adapter`] | the host, in the provider's library |
//! | reliable transport: packet sequence numbers, acknowledgements, receiver not ready | [`Adapter`] | the channel adapter |
//! | bytes to the peer | any [`machine::Port`] | the channel adapter and the wire |
//!
//! Real here: every queue, every work request written and read, every completion polled, every registered buffer and every
//! copy in or out of it. Emulated: the channel adapter's part runs on the caller's core; a doorbell is a call, not a write to
//! a device; registering memory touches its pages and enters it in a table, but pins nothing. Absent: RDMA read and atomics,
//! unreliable services, send queue drain, path migration.
//!
//! Matching is the engine's own ([`engine::matching`]), so that a difference between the two is one of semantics.
#![forbid(unsafe_code)]

mod adapter;
mod address;
mod claims;
mod completion;
mod connecting;
mod connection;
mod endpoint;
mod header;
mod memory;
mod meter;
mod progress;
mod queue_pair;
mod receive_queue;
mod rendezvous;
mod request;
mod requester;
mod responder;
mod send_queue;
mod sending;
mod settings;
mod state;
mod wire;

pub use adapter::{Adapter, AdapterCounters};
pub use address::{Address, QueuePairNumber};
pub use completion::{Opcode, WorkCompletion, WorkStatus};
pub use endpoint::{Counters, Endpoint};
pub use memory::{MemoryKey, Segment};
pub use meter::Metered;
pub use send_queue::{INLINE_MOST, SendWork, Transfer};
pub use settings::{Link, ReceiveQueues, Settings};
pub use state::State;
