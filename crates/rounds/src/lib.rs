//! Measuring in rounds: blocks, their order, and what their figures say. No clock, file or thread of its own, but for
//! [`parallel`].
//!
//! A [`point`] is what one block measures, a [`sample`] what the block gave. [`sitting`] is the loop that every experiment runs;
//! [`blocks`] is the experiment whose figures are printed at once. [`comparison`] pairs blocks of a round, [`contrast`] decides
//! at which looks.
#![forbid(unsafe_code)]

pub mod blocks;
pub mod bound;
pub mod clocks;
pub mod comparison;
pub mod conformal;
pub mod contrast;
pub mod cost;
pub mod estimate;
pub mod nearness;
pub mod order;
pub mod parallel;
pub mod point;
pub mod random;
pub mod sample;
pub mod sitting;
pub mod statistics;
