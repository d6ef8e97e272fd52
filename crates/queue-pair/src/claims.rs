//! Messages taken out of the matching for one receive (MPI's matched probe).

use engine::{Buffer, Claim, Envelope, Request, Source, TagSelector, unknown_claim};
use machine::{Port, Result};

use crate::connection::Waiting;
use crate::endpoint::Endpoint;
use crate::request::{Claimed, ReceiveRequest, Unexpected};

impl<P: Port, B: Buffer> Endpoint<P, B> {
    /// Takes the message that a receive of `source` and `selector` would take out of the matching.
    pub fn claim(&mut self, source: Source, selector: TagSelector) -> Option<(Envelope, Claim)> {
        let node = self.unexpected.find(source, selector)?;
        let (peer, label, message) = self.unexpected.remove(node);
        let envelope = Envelope::new(peer, label, message.length());
        Some((envelope, self.claimed.insert(Claimed { peer, label, message })))
    }

    /// Receives the claimed message.
    ///
    /// # Errors
    /// The claim was received or discarded before.
    pub fn receive_claimed(&mut self, claim: Claim, buffer: B, context: u64) -> Result<Request> {
        let Claimed { peer, label, message } = self.claimed.remove(claim).ok_or_else(unknown_claim)?;
        let key = self.receives.insert(ReceiveRequest::new(context, Source::Peer(peer), Some(buffer)));
        self.give(key, peer, label, message)?;
        Ok(Request::Receive(key))
    }

    /// Drops the claimed message; its sender takes it for received.
    pub fn discard(&mut self, claim: Claim) -> Result<()> {
        let Some(Claimed { peer, message, .. }) = self.claimed.remove(claim) else { return Ok(()) };
        match message {
            Unexpected::Eager(bytes) => self.unexpected_bytes -= bytes.len() as u64,
            Unexpected::Rendezvous { sender, .. } if self.connections[peer.0 as usize].alive => {
                // Receiver 0 stands for no receive, and nothing is written.
                self.wait(peer, Waiting::ClearToSend { sender, receiver: 0, key: 0, length: 0 });
                self.post_waiting(peer)?;
            }
            Unexpected::Rendezvous { .. } => {}
        }
        Ok(())
    }
}
