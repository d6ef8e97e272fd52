//! Buffers that are taken back while their requests are in progress.

use crate::buffer::Buffer;
use crate::engine::Engine;
use crate::outgoing::write_again;
use crate::request::{Request, SendKey, Status};

/// Makes a buffer of the same length to take another's place; where the second argument is true, with a copy of its
/// bytes.
pub type StandIn<B> = fn(&B, bool) -> B;

impl<B: Buffer> Engine<B> {
    /// Takes the buffer of a request in progress back: the engine neither reads nor writes it any more. What it would still
    /// have moved is lost: a receive ends as it would have, without the bytes; a rendezvous ends at its receiver as
    /// [`Status::Withdrawn`]. Of an eager message that has left in part, the rest is copied. A receiver that reads the
    /// sender's memory by itself is not kept from it. False if the request has ended.
    pub fn take_back(&mut self, request: Request, stand_in: StandIn<B>) -> bool {
        match request {
            Request::Receive(key) => {
                let Some(receive) = self.receives.get_mut(key) else { return false };
                receive.buffer = Some(stand_in(receive.buffer(), false));
                true
            }
            Request::Send(key) => self.take_back_send(key, stand_in),
            Request::Short(_) => false,
        }
    }

    fn take_back_send(&mut self, key: SendKey, stand_in: StandIn<B>) -> bool {
        let Some(send) = self.sends.get_mut(key) else { return false };
        let peer = send.peer;
        let link = &mut self.peers[peer.0 as usize];
        match (send.requested, send.receiver) {
            (false, _) if send.written == 0 => return self.cancel(Request::Send(key)),
            (false, _) => send.buffer = stand_in(&send.buffer, true),
            (true, 0) => {
                send.buffer = stand_in(&send.buffer, false);
                send.withdrawn = true;
            }
            (true, receiver) => {
                if let Some(reliability) = &mut link.reliability {
                    reliability.keep(key, &mut self.spares, |stored, into| write_again(send, stored, into));
                }
                let cut_short = send.written < send.length();
                if cut_short {
                    self.stop_streaming(peer, key, receiver);
                }
                self.finish_send(key, if cut_short { Status::Cancelled } else { Status::Done });
            }
        }
        true
    }
}
