//! Settings of queue pairs, on which both ends must agree.

use machine::{Bytes, Capabilities, Nanoseconds};

/// The queues of receive work requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveQueues {
    /// Each queue pair has its own, `depth` deep; a peer sends only while it holds credit for one of them.
    PerPeer { depth: u32 },
    /// One shared receive queue for all. Which peer needs it next is unknown: there is no credit, and a sender that finds it
    /// empty is told to try again (receiver not ready).
    Shared { depth: u32 },
}

impl ReceiveQueues {
    pub fn depth(&self) -> u32 {
        match *self {
            ReceiveQueues::PerPeer { depth } | ReceiveQueues::Shared { depth } => depth,
        }
    }
}

/// Properties of one queue pair's packet path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// The longest packet.
    pub mtu: Bytes,
    /// Whether nothing is lost, duplicated or reordered, so that no timer runs.
    pub reliable: bool,
    /// Most packets in flight; they must fit the peer's buffer.
    pub window: u32,
}

const WINDOW: u32 = 128;

impl Link {
    pub fn of(port: &Capabilities) -> Link {
        Link { mtu: port.mtu, reliable: port.reliable && port.ordered, window: WINDOW }
    }
}

/// Settings of an endpoint over queue pairs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub receive: ReceiveQueues,
    /// Work requests that one send queue holds.
    pub send_depth: u32,
    /// Length of a registered buffer, of which every posted receive has one; a message that fits beside its header is eager.
    pub buffer: Bytes,
    /// Largest send whose bytes are put into the work request itself, at most [`crate::INLINE_MOST`].
    pub inline: u32,
    /// One of so many inline sends asks for a completion. MPI libraries of the paper's time asked for all; one of several is
    /// today's habit and in favour of queue pairs.
    pub signal_every: u32,
    /// Room of the completion queue, for all queue pairs.
    pub completion_depth: u32,
    /// Packets after which the responder acknowledges, unless asked earlier.
    pub acknowledge_every: u32,
    /// Whether a send waits until the peer has a receive posted.
    pub honour_credits: bool,
    /// Retries of a sender after 'receiver not ready'; 7 stands for unlimited.
    pub rnr_retry: u8,
    /// Pause before such a retry.
    pub rnr_timer: Nanoseconds,
    /// Retries of an unacknowledged packet, up to 7 on an adapter of its own, and the time before each. An adapter that has
    /// only its application's core acknowledges nothing while that computes.
    pub retry: u8,
    pub timeout: Nanoseconds,
}

impl Default for Settings {
    /// Depths as MVAPICH had them by default (64 posted receives a peer), a buffer that holds most small messages.
    fn default() -> Self {
        Settings {
            receive: ReceiveQueues::PerPeer { depth: 64 },
            send_depth: 64,
            buffer: Bytes(2 << 10),
            inline: 128,
            signal_every: 16,
            completion_depth: 8 << 10,
            acknowledge_every: 16,
            honour_credits: true,
            rnr_retry: 7,
            rnr_timer: Nanoseconds(640_000),
            retry: 7,
            timeout: Nanoseconds(67_000_000),
        }
    }
}

impl Settings {
    pub fn shared(depth: u32) -> Settings {
        Settings { receive: ReceiveQueues::Shared { depth }, ..Settings::default() }
    }

    /// Most completions of one queue pair at once, when it is flushed: what its own queues hold, and the receive that
    /// was being filled.
    pub(crate) fn most_flushed(&self) -> u32 {
        let receives = match self.receive {
            ReceiveQueues::PerPeer { depth } => 2 * depth,
            ReceiveQueues::Shared { .. } => 0,
        };
        self.send_depth.next_power_of_two() + receives + 16
    }
}
