//! HYDRA's programming model (Weinsberg et al., "HYDRA: A Novel Framework for Making High-Performance Computing Offload
//! Capable", sections 1.1 to 1.5): an author writes an *offcode* once, states what it needs in a *manifest*, and the
//! runtime finds the *site*, starts the group and proves where it runs.
//!
//! An offcode is sans-IO: the site calls it with what happened (a call, a message, a turn) and a [`Context`] through
//! which it acts. It holds no socket, thread or clock, so the same source runs linked in, and as a sandboxed wasm body
//! that imports nothing.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

// The attributes name this crate by its name, also inside it.
extern crate self as offcode;

pub mod abi;
pub mod attribute;
pub mod call;
#[cfg(not(target_family = "wasm"))]
pub mod caller;
mod common_interface;
pub mod context;
#[cfg(not(target_family = "wasm"))]
pub mod depot;
pub mod encoding;
pub mod guest;
pub mod guid;
mod interface;
pub mod lifecycle;
pub mod manifest;
pub mod map;
#[cfg(not(target_family = "wasm"))]
pub mod odf;
pub mod registry;
pub mod service;
mod signature;
pub mod state;
mod typed_map;

pub use attribute::{Attributes, OBSOLETE_TIME, OFFLOAD_PRIORITY};
pub use call::{Call, Incoming, Refusal};
#[cfg(not(target_family = "wasm"))]
pub use caller::{Caller, Pending};
pub use common_interface::{Activity, Offcode};
pub use context::{ChannelId, Context};
pub use guid::Guid;
pub use interface::Interface;
pub use lifecycle::Lifecycle;
pub use machine::channel::{self, Cast, Channel, Delivery, Specification, Written};
pub use machine::{Fault, Result};
pub use manifest::Manifest;
pub use map::{MapId, Put, Shape};
pub use offcode_macros::{interface, offcode};
pub use registry::{Constructor, Described, Registry};
pub use service::{Service, Wake};
pub use signature::signature;
pub use state::State;
pub use typed_map::Map;

/// Names that the attributes' expansions use.
#[doc(hidden)]
pub mod expansion {
    pub use machine::{Bytes, Nanoseconds, Result, SiteKind, XdpMode};

    /// The range of a peer's `version`, which the attribute has checked.
    pub fn versions(text: &str) -> crate::manifest::VersionReq {
        text.parse().unwrap_or_else(|error| unreachable!("{text}: {error}"))
    }
}
