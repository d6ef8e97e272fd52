//! Requests of the rank that its engine holds, and their memory.

use engine::{Direction, Request};
use slotmap::Key;

use crate::driver::Buffer;

slotmap::new_key_type! {
    /// The rank's number of a request.
    pub(super) struct Ticket;
}

impl Ticket {
    /// The ticket of a request; that of a send that ended at once names nothing.
    pub(super) fn of(request: Request) -> Ticket {
        match request {
            Request::Send(key) => key.data().into(),
            Request::Receive(key) => key.data().into(),
            Request::Short(_) => Ticket::null(),
        }
    }

    #[inline]
    pub(super) fn request(self, direction: Direction) -> Request {
        match direction {
            Direction::Send => Request::Send(self.data().into()),
            Direction::Receive => Request::Receive(self.data().into()),
        }
    }
}

pub(super) struct Waiting<B> {
    pub(super) context: u64,
    pub(super) buffer: B,
    /// Copy of a buffer that does not lie in one piece, for the engine's process to read or write.
    pub(super) staging: Option<Vec<u8>>,
}

impl<B: Buffer> Waiting<B> {
    /// A send, whose bytes are there (`send`), or a receive.
    pub(super) fn new(context: u64, mut buffer: B, send: bool) -> Self {
        let mut staging = None;
        if buffer.length() > 0 && buffer.as_mut_slice().is_none() {
            let mut bytes = vec![0; buffer.length()];
            if send {
                buffer.read(0, &mut bytes);
            }
            staging = Some(bytes);
        }
        Waiting { context, buffer, staging }
    }

    pub(super) fn address(&self) -> u64 {
        self.staging.as_ref().map_or_else(|| self.buffer.address(), |bytes| bytes.as_ptr() as u64)
    }
}
