//! Description of a host: quantities, topology, sites, ports, controls and sensors; read from this host or from an
//! archive.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod accounting;
pub mod archive;
pub mod availability;
mod body;
pub mod bounds;
pub mod budget;
pub mod capability;
pub mod channel;
pub mod choice;
mod control;
mod cores;
pub mod costs;
pub mod count;
pub mod cpuset;
pub mod description;
mod dilation;
pub mod fault;
pub mod figure;
pub mod frequency;
pub mod here;
pub mod interface;
#[cfg(unix)]
pub mod lock;
mod logical;
mod minimax;
pub mod named;
pub mod nesting;
pub mod optional;
mod page;
mod place;
pub mod port;
pub mod power;
mod printable;
pub mod privileges;
mod probe;
pub mod processor;
pub mod quantity;
pub mod quota;
pub mod reading;
pub mod refusal;
pub mod seat;
mod sensor;
pub mod shell;
pub mod site;
pub mod source;
pub mod spelling;
pub mod steering;
pub mod text;
pub mod topology;

pub use body::BodyKind;
pub use budget::Budget;
pub use capability::CoreCapability;
pub use cores::Cores;
pub use costs::Costs;
pub use cpuset::CpuSet;
pub use description::Machine;
pub use dilation::Dilation;
pub use fault::{Fault, FaultKind, Result};
pub use minimax::{Minimax, minimax};
pub use page::page;
pub use place::single_copy;
pub use port::{Capabilities, NetworkKind, Notice, PeerIndex, Port, Sent};
pub use printable::printable;
pub use probe::Probe;
pub use quantity::{BitsPerSecond, Bytes, BytesPerSecond, Hertz, Joules, Nanoseconds, Watts};
pub use reading::Reading;
pub use seat::{Seat, Seats};
pub use site::{CoreId, Site, SiteInMode, SiteKind, XdpMode};
pub use source::Source;
pub use steering::Steering;
