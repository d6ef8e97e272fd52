//! The traffic generator, an application of offcodes (HYDRA section 2).
#![forbid(unsafe_code)]

pub mod control;
pub mod stamp;
