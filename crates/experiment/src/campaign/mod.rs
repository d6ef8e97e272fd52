//! Studies that a file describes: a program at every point of a grid, repeated, on one machine or many.

pub mod analysis;
mod builds;
pub mod chunk;
pub mod conduct;
pub mod definition;
pub mod file;
pub mod merge;
pub mod plan;
pub mod results;
pub mod simulated;
mod stop;
pub mod store;
pub mod terminal;
