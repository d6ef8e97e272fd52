//! Carries a placement out: the engine in the caller's thread (`app`) or on a core of its own (`core:N`), over any
//! port, behind one [`Endpoint`]. An application is written once; where its messages are processed is one argument.
#![forbid(unsafe_code)]

pub mod agent;
pub mod app_file;
pub mod application;
pub mod assembly;
pub mod catalogue;
pub mod channels;
pub mod closure;
pub mod control;
mod create;
mod dedicated;
pub mod draft;
mod driver;
mod endpoint;
mod gang;
pub mod grounds;
pub mod layout;
mod link;
pub mod prices;
mod settle;
pub mod site;
mod switchboard;

pub use application::{OffcodeId, Running, Runtime};
pub use catalogue::Catalogue;
pub use channels::Pathway;
pub use create::{Decided, Wanted};
pub use driver::Buffer;
pub use endpoint::{Completion, Endpoint, Request};
pub use engine::{Counters, Direction, Envelope, LinkConfig, Source, Status, Tag, TagSelector};
pub use link::{shm_links, udp_links};
pub use settle::Placed;
