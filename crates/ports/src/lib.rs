//! What moves packets between processes and hosts, and calls between offcodes: the ports `shm`, `udp`, `afxdp` and `xdp`, the
//! channels, and the rings under them.
//!
//! Models (`--cfg loom`) are checked of the lock-free parts alone, which need nothing of the rest nor of its dependencies.
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
