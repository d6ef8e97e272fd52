//! Ports that move packets between processes and hosts (`shm`, `udp`, `afxdp`, `xdp`), channels for calls between
//! offcodes, and the rings under both.
//!
//! Models (`--cfg loom`) cover the lock-free parts alone, which need neither the rest nor its dependencies.
#![cfg_attr(loom, allow(dead_code))]

mod bulk;
pub mod channel;
mod packets;
pub mod ring;
mod sync;

#[cfg(not(loom))]
pub mod afxdp;
#[cfg(not(loom))]
pub mod network;
#[cfg(not(loom))]
pub mod probe;
#[cfg(not(loom))]
pub mod shm;
#[cfg(not(loom))]
pub mod udp;
#[cfg(not(loom))]
pub mod xdp;
