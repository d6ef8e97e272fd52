//! The control connection between the two ends: JSON lines, bounded in length and in time.

mod connection;
mod message;

pub use connection::Connection;
pub use message::{Finished, MAX_JOBS, Reply, Request, Serving, VERSION};
