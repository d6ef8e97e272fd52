//! All use of the operating system. Every `unsafe` of the workspace that talks to the kernel is here.
//!
//! Models (`--cfg loom`) are checked of the lock-free parts alone, which need nothing of the rest nor of its dependencies.
#![cfg_attr(loom, allow(dead_code))]

mod bulk;
pub mod channel;
mod packets;
pub mod ring;
mod sync;

#[cfg(not(loom))]
pub mod accounting;
#[cfg(not(loom))]
pub mod addresses;
#[cfg(not(loom))]
pub mod affinity;
#[cfg(not(loom))]
pub mod afxdp;
#[cfg(not(loom))]
pub mod clock;
#[cfg(not(loom))]
pub mod contention;
#[cfg(not(loom))]
pub mod credentials;
#[cfg(not(loom))]
pub mod datagrams;
#[cfg(not(loom))]
pub mod inherited;
#[cfg(not(loom))]
pub mod lab;
#[cfg(not(loom))]
pub mod mask;
#[cfg(not(loom))]
mod netlink;
#[cfg(not(loom))]
pub mod network;
#[cfg(not(loom))]
pub mod output;
#[cfg(not(loom))]
mod passing;
#[cfg(not(loom))]
pub mod probe;
#[cfg(not(loom))]
pub mod region;
#[cfg(not(loom))]
pub mod relay;
#[cfg(not(loom))]
pub mod remote;
#[cfg(not(loom))]
pub mod rendezvous;
#[cfg(not(loom))]
pub mod scheduling;
#[cfg(not(loom))]
pub mod shield;
#[cfg(not(loom))]
pub mod shm;
#[cfg(not(loom))]
pub mod shortage;
#[cfg(not(loom))]
pub mod signal;
#[cfg(not(loom))]
pub mod terminal;
#[cfg(not(loom))]
pub mod udp;
#[cfg(not(loom))]
pub mod warden;
#[cfg(not(loom))]
pub mod xdp;
