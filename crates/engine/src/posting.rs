//! From the application's receives to requests.

use crate::buffer::Buffer;
use crate::engine::{Engine, Refusal};
use crate::request::{ReceiveKey, ReceiveRequest, ReceiveState, Request, Status};
use crate::tag::{Envelope, Source, TagSelector};

impl<B: Buffer> Engine<B> {
    /// Receives into `buffer` the first message that `source` and `selector` take.
    // In the caller, where the request's parts are in registers: to pass it on in memory costs more than all the rest.
    #[inline(always)]
    pub fn receive(
        &mut self,
        source: Source,
        selector: TagSelector,
        buffer: B,
        context: u64,
    ) -> Result<Request, Refusal<B>> {
        let link = match source {
            Source::Peer(peer) => match self.peers.get(peer.0 as usize) {
                Some(link) => Some(link),
                None => return Err(Refusal { peer, buffer }),
            },
            Source::Any => None,
        };
        let is_plain = link.is_none_or(|link| link.alive && link.reliability.is_none());
        let key = self.new_receive(source, selector, buffer, context);
        if is_plain && self.unexpected.is_empty() {
            self.posted.post(source, selector, key);
            self.relieve_senders(source);
        } else {
            self.receive_listed(key);
        }
        Ok(Request::Receive(key))
    }

    #[inline(always)]
    pub(crate) fn new_receive(&mut self, source: Source, selector: TagSelector, buffer: B, context: u64) -> ReceiveKey {
        let (key, request) = self.receives.take();
        request.context = context;
        request.source = source;
        // Part by part: copied as a whole out of memory that has just been written, it waits for that.
        let TagSelector { tag, mask, space } = selector;
        request.selector.tag = tag;
        request.selector.mask = mask;
        request.selector.space = space;
        request.buffer = Some(buffer);
        request.state = ReceiveState::Posted;
        key
    }

    /// A fresh receive where messages wait, or whose sender is dead or at the end of an unreliable port.
    #[inline(never)]
    fn receive_listed(&mut self, key: ReceiveKey) {
        let ReceiveRequest { source, selector, .. } = self.receives[key];
        if let Some(node) = self.unexpected.find(source, selector) {
            return self.take_unexpected(key, node);
        }
        if matches!(source, Source::Peer(peer) if !self.peers[peer.0 as usize].alive) {
            return self.finish_receive(key, Envelope::nothing(source, selector.space), Status::PeerDead);
        }
        self.posted.post(source, selector, key);
        self.relieve_senders(source);
        // The peer's silence counts from now, though it was never heard of before.
        if let Source::Peer(peer) = source
            && self.peers[peer.0 as usize].reliability.as_ref().is_some_and(|link| !link.is_engaged())
        {
            self.mark_ready(peer);
        }
    }
}
