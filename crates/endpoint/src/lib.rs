//! The message engine at a placement, behind one [`Endpoint`], which an application holds. An application is written once; the
//! placement of message processing is one argument.
//!
//! [`Endpoint::open`] takes a port whose peers are known. [`Endpoint::join`] finds its peers by [`Name`] and reaches each
//! by the port that suits it: shared memory on the same host, a network port to others.
#![forbid(unsafe_code)]

mod dilated;
mod dilation;
mod driver;
mod endpoint;
pub mod faults;
pub mod introduction;
mod join;
mod link;
mod name;
mod network;
pub mod node;
pub mod paths;
mod poll_schedule;
mod report;
mod semantics;
mod setbacks;
mod settings;
mod settle;
mod verbs;
mod wire;
mod yield_policy;

pub use dilation::Dilated;
pub use driver::{Buffer, Driver};
pub use endpoint::Endpoint;
pub use engine::{
    Claim, Completion, Counters, Direction, Envelope, Label, LinkConfig, Request, Source, Space, StandIn, Status, Tag,
    TagSelector, Take, TakeNothing,
};
pub use faults::WireFaults;
pub use link::{shm_links, udp_links};
pub use name::Name;
pub use network::NetworkPath;
pub use paths::Paths;
pub use report::{AdapterTime, Report};
pub use semantics::Semantics;
pub use settings::{Network, Settings};
pub use settle::{Placed, settle};
