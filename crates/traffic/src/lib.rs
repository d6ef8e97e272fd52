//! The traffic generator, an application of offcodes (HYDRA section 2).
#![forbid(unsafe_code)]

pub mod body;
pub mod control;
pub mod hog;
pub mod kernel_sender;
pub mod receiver;
pub mod stamp;
