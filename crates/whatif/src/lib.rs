//! Prediction: what a program would take under another placement, clock or network, held against measurement and the papers.
//!
//! A recorded timeline becomes a [`graph`] of computation, calls, messages and collective operations. [`replay`] runs it under
//! the costs of a [`model`]; what the model does not explain of a call is its residual, which stays. A [`lever`] changes the
//! costs; an [`answer`] is the difference of two replays, over all that is not known; an [`outcome`] says how far such answers are
//! off. [`path`] walks back along what was
//! waited for, [`gradient`] says what a small change of costs does, [`work`] sums what messages cost by what does it. [`causal`]
//! delays the program itself and measures what that costs. [`goal`] reads a program that nobody recorded.
#![forbid(unsafe_code)]

pub mod answer;
pub mod candidate;
pub mod causal;
pub mod clock;
pub mod goal;
pub mod gradient;
pub mod graph;
pub mod lever;
pub mod model;
pub mod outcome;
pub mod path;
pub mod replay;
pub mod sockets;
pub mod work;
