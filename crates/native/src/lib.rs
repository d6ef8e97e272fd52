//! Native bodies in shared libraries: what crosses the border between a library and the program that hosts it.
//!
//! A library exports one symbol, [`SYMBOL`], a [`Table`] of C functions over an opaque instance. The host passes a [`Host`]
//! with each call, through which the offcode acts. Bytes travel as pointer and length, memory is freed by the side that
//! took it, and no panic leaves a library: what panicked refuses, and is not called again.
//!
//! Authors write `offcode::export!(Type)`; [`guest`] is behind it. The host's side is [`Library`].
#![warn(missing_docs)]

#[cfg(feature = "load")]
mod functions;
pub mod guest;
#[cfg(feature = "load")]
mod host;
#[cfg(feature = "load")]
mod hosted;
#[cfg(feature = "load")]
mod inspection;
#[cfg(feature = "load")]
mod library;
mod table;

#[cfg(feature = "load")]
pub use inspection::{TARGET, inspect};
#[cfg(feature = "load")]
pub use library::{Description, Library};
pub use table::{Host, HostTable, Room, Sink, Slice, Table};

/// The one symbol of a library.
pub const SYMBOL: &str = "offcode_native";

/// The version of the border. Functions are added at the end of the tables, which say their size; what else changes is
/// another version. Since 2 an attribute may be refused.
pub const VERSION: u32 = 2;

/// The oldest version of a library that hosts take.
pub const OLDEST: u32 = 1;

/// What a function of [`Table`] returns.
pub mod outcome {
    /// Done; of a turn: there was nothing to do.
    pub const DONE: u32 = 0;
    /// A turn that found work; of a map: there is, or was, something under the key.
    pub const WORKED: u32 = 1;
    /// Refused: the sentence is in the sink.
    pub const REFUSED: u32 = 2;
    /// Panicked: the sentence is in the sink, and nothing but `delete` may be called any more.
    pub const PANICKED: u32 = 3;
    /// A map has no room for another key.
    pub const FULL: u32 = 4;
}
