//! Which rank belongs on which core.
//!
//! Pure: no clock but the caller's, no socket, thread or file.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod decision;
