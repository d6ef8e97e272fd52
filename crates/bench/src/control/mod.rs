//! The control connection between the two ends: JSON lines, bounded in length and in time.

mod connection;
mod initiator;
mod message;

pub use connection::Connection;
pub use initiator::SERVE_PORT;
pub(crate) use initiator::{ANSWER, answer, ask, connect, greet, host_of, reach, unexpected};
pub use message::{Finished, Grant, MAX_JOBS, Reply, Request, Serving, VERSION};
