//! Prediction: what a program would take under another placement, clock or network, held against measurement and the papers.
#![forbid(unsafe_code)]

pub mod causal;
