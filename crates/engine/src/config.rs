//! Settings of one peer's link, derived from the port's capabilities.

use machine::bounds::{ENGINE_BYTES, ENGINE_BYTES_NEAR, ENGINE_MESSAGES};
use machine::{Bytes, Capabilities, Nanoseconds};

/// Settings of the path to one peer. Both ends must agree on `session` and on the credits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkConfig {
    /// Largest packet that the port takes.
    pub mtu: Bytes,
    /// Largest message sent eagerly; longer ones wait for the receiver (rendezvous).
    pub eager_limit: Bytes,
    /// Largest eager message while copies into the port's memory are fast, where they are timed
    /// ([`crate::Engine::times_copy`]).
    pub eager_near: Option<Bytes>,
    /// Whether the port reads the peer's memory, so that a rendezvous is a single copy.
    pub remote_read: bool,
    /// Messages of the peer that may be unmatched here before the peer must wait.
    pub credit_messages: u32,
    /// Payload of those messages. Beyond it short messages wait as well; long ones, and those that somebody waits for,
    /// become rendezvous.
    pub credit_bytes: Bytes,
    /// Set where the port may lose, duplicate or reorder packets.
    pub reliability: Option<ReliabilityConfig>,
}

/// Settings of the reliability layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReliabilityConfig {
    /// Names this conversation; packets of another one are dropped. Agreed out of band.
    pub session: u32,
    /// Most packets in flight; they must fit the peer's socket buffer.
    pub window: u32,
    /// How long an acknowledgement waits for a packet that can carry it before it is sent alone.
    pub acknowledge_after: Nanoseconds,
    /// Least time before an unacknowledged packet is sent again.
    pub timeout_least: Nanoseconds,
    /// Greatest time before an unacknowledged packet is sent again.
    pub timeout_most: Nanoseconds,
    /// After this much silence the peer is asked for a sign of life.
    pub ping_after: Nanoseconds,
    /// After this much silence the peer counts as dead. Long, since a peer at placement `app` is silent while it
    /// computes; the end of its process is noticed sooner, by its host's refusals.
    pub silence_limit: Nanoseconds,
}

impl ReliabilityConfig {
    /// Default times and window, for the conversation `session`.
    pub fn new(session: u32) -> Self {
        ReliabilityConfig {
            session,
            window: 256,
            acknowledge_after: Nanoseconds(200_000),
            timeout_least: Nanoseconds(4_000_000),
            timeout_most: Nanoseconds(1_000_000_000),
            ping_after: Nanoseconds(1_000_000_000),
            silence_limit: Nanoseconds(60_000_000_000),
        }
    }

    /// The number of the first packet each way, where a port that checks sequences starts. Both ends know it from the session, so
    /// that packets of another conversation seldom fall into the window.
    pub fn first_sequence(&self) -> u32 {
        self.session.wrapping_mul(0x9E37_79B1)
    }
}

/// The longest message that is worth two copies by the processors.
const EAGER_PACKETS: Bytes = Bytes(256 << 10);

impl LinkConfig {
    /// The settings of memory shared with a peer, if each end copies between it and its own process's buffers.
    pub fn for_shared_memory(capabilities: &Capabilities) -> Self {
        LinkConfig {
            eager_near: Some(EAGER_PACKETS),
            credit_bytes: ENGINE_BYTES_NEAR.each.bytes(),
            ..LinkConfig::for_port(capabilities, 0)
        }
    }

    /// The settings that suit a port. `session` matters on unreliable ports only.
    pub fn for_port(capabilities: &Capabilities, session: u32) -> Self {
        let reliable = capabilities.ordered && capabilities.reliable;
        // With single copy, rendezvous pays early; with packets only once the eager copy costs more than a round trip.
        let eager_limit = if capabilities.remote_read { Bytes(8 << 10) } else { EAGER_PACKETS };
        LinkConfig {
            mtu: capabilities.mtu,
            eager_limit,
            eager_near: None,
            remote_read: capabilities.remote_read,
            credit_messages: ENGINE_MESSAGES.each.count() as u32,
            credit_bytes: ENGINE_BYTES.each.bytes(),
            reliability: (!reliable).then(|| ReliabilityConfig::new(session)),
        }
    }
}
