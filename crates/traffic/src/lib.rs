//! The traffic generator, an application of offcodes (HYDRA section 2).
#![forbid(unsafe_code)]
