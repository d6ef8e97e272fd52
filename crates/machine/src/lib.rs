//! What a host is: quantities, sites, ports, and later its controls and sensors.
#![forbid(unsafe_code)]

pub mod accounting;
pub mod fault;
pub mod port;
pub mod quantity;
pub mod reading;
pub mod site;

pub use fault::{Fault, Result};
pub use port::{Capabilities, Notice, PeerIndex, Port, Sent};
pub use quantity::{Bytes, BytesPerSecond, Hertz, Nanoseconds, Watts};
pub use reading::Reading;
pub use site::{CoreId, Site};
