//! The only door to the operating system. Every `unsafe` of the workspace that talks to the kernel is here.
// Models are checked of the rings alone; the port above them is left out there.
#![cfg_attr(loom, allow(dead_code))]

pub mod accounting;
pub mod addresses;
pub mod affinity;
#[cfg(not(loom))]
pub mod afxdp;
pub mod channel;
pub mod clock;
pub mod contention;
pub mod datagrams;
pub mod inherited;
pub mod lab;
#[cfg(not(loom))]
mod netlink;
pub mod network;
mod passing;
pub mod probe;
pub mod queue;
pub mod region;
pub mod relay;
pub mod remote;
pub mod rendezvous;
pub mod ring;
pub mod scheduling;
pub mod shield;
#[cfg(not(loom))]
pub mod shm;
pub mod signal;
mod sync;
pub mod terminal;
pub mod udp;
pub mod warden;
#[cfg(not(loom))]
pub mod xdp;
