//! Channels between sites that share memory (Weinsberg et al., "HYDRA: A Novel Framework for Making High-Performance
//! Computing Offload Capable", section 1.3): between threads, and between processes of one user.
//!
//! | | a message is | no buffer free |
//! |---|---|---|
//! | unicast, reliable | written and read in place | `Full` |
//! | unicast, unreliable | written and read in place | `Dropped`, counted at the writer |
//! | multicast, reliable | written once, read in place by each reader | `Full` until the slowest living reader has read |
//! | multicast, unreliable | copied in once, and out once by each reader, which knows thereby that it is whole | never: a reader that was lapped counts what it lost |
//!
//! Messages of up to 48 bytes, so calls with up to 32 bytes of arguments, travel in one cache line together with the
//! word that announces them; larger ones lie in a buffer beside it.
//!
//! An end is used by one thread at a time and can be handed to another process. When it is dropped or its process is
//! killed the others are told: at once inside a process, else within a tick of the kernel's coarse clock (1 to 10 ms)
//! when they poll or find no room, or 50 ms when they sleep. Messages written before can still be read.
//!
//! A peer that breaks the rules garbles messages and nothing else: no address, index or loop depends on what it writes,
//! and each length is read once and cut to the buffer. Since messages are read in place, `deliver` may see them change
//! while the other process, which is of the same user, misbehaves.

mod lapping;
mod track;
mod word;

// Models are checked of the three modules above alone.
#[cfg(not(loom))]
mod bells;
#[cfg(not(loom))]
mod held_end;
#[cfg(not(loom))]
mod layout;
#[cfg(not(loom))]
mod multicast;
#[cfg(not(loom))]
mod open;
#[cfg(not(loom))]
mod passing;
#[cfg(not(loom))]
mod refusals;
#[cfg(not(loom))]
mod sleep;
#[cfg(not(loom))]
mod unicast;

#[cfg(not(loom))]
pub use self::{
    layout::MOST_READERS,
    multicast::{Reader, Writer},
    open::{Endpoint, accept, check, multicast, unicast},
    unicast::Memory,
};

#[cfg(all(test, not(loom)))]
mod tests;
