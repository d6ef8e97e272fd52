//! Carries a placement out: the engine in the caller's thread (`app`) or on a core of its own (`core:N`), over any
//! port, behind one [`Endpoint`]. An application is written once; where its messages are processed is one argument.
#![forbid(unsafe_code)]

pub mod closure;
mod dedicated;
mod driver;
mod endpoint;
pub mod layout;
mod link;
mod placement;
pub mod site;

pub use driver::Buffer;
pub use endpoint::{Completion, Endpoint, Request};
pub use engine::{Counters, Direction, Envelope, LinkConfig, Source, Status, Tag, TagSelector};
pub use link::{shm_links, udp_links};
pub use placement::Placed;
