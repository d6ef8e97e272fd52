//! What is kept of packets in flight, to send lost ones again.

use machine::port::Shared;

use crate::request::SendKey;

/// How to make a packet again.
#[derive(Debug)]
pub(crate) enum Stored {
    Copy(Vec<u8>),
    /// A packet that the port may still hold.
    Shared(Shared),
    /// Bytes of an eager message of several packets, still in the sender's buffer.
    Eager {
        send: SendKey,
        offset: usize,
    },
    /// Bytes of a rendezvous message, still in the sender's buffer. `last`: the message ends here.
    Data {
        send: SendKey,
        offset: usize,
        last: bool,
    },
}

impl Stored {
    /// The send in whose buffer the packet's bytes are.
    pub fn in_buffer_of(&self) -> Option<SendKey> {
        match self {
            Stored::Copy(_) | Stored::Shared(_) => None,
            Stored::Eager { send, .. } | Stored::Data { send, .. } => Some(*send),
        }
    }

    /// Whether the acknowledgement of this packet ends a send, for which somebody waits.
    pub fn ends_a_message(&self) -> bool {
        matches!(self, Stored::Data { last: true, .. })
    }
}
