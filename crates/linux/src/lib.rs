//! The only door to the operating system. Every `unsafe` of the workspace that talks to the kernel is here.

pub mod lab;
pub mod udp;
