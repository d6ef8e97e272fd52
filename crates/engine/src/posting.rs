//! Receives: posting, and matching with messages that wait.

use crate::buffer::Buffer;
use crate::engine::{Engine, Refusal};
use crate::request::{ReceiveKey, ReceiveRequest, Request, Status};
use crate::tag::{Envelope, Source, TagSelector};

impl<B: Buffer> Engine<B> {
    /// Receives into `buffer` the first message that `source` and `selector` take.
    // Inlined, so that the request's parts stay in registers: passing them in memory costs more than all the rest.
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
            self.posted.post(&mut self.receives, source, selector, key);
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
        // Part by part: a copy of the whole would stall on memory that has just been written.
        let TagSelector { tag, mask, space } = selector;
        request.selector.tag = tag;
        request.selector.mask = mask;
        request.selector.space = space;
        // A vacant slot counts as posted and has no buffer; an assignment would compile in the drop of one.
        std::mem::forget(request.buffer.replace(buffer));
        key
    }

    /// Gives a fresh receive a waiting message, ends it if its sender is dead, or else posts it.
    #[inline(never)]
    fn receive_listed(&mut self, key: ReceiveKey) {
        let ReceiveRequest { source, selector, .. } = self.receives[key];
        if let Some(node) = self.unexpected.find(source, selector) {
            return self.take_unexpected(key, node);
        }
        if matches!(source, Source::Peer(peer) if !self.peers[peer.0 as usize].alive) {
            return self.finish_receive(key, Envelope::nothing(source, selector.space), Status::PeerDead);
        }
        self.posted.post(&mut self.receives, source, selector, key);
        self.relieve_senders(source);
        // The peer's silence counts from now, even if it was never heard of.
        if let Source::Peer(peer) = source
            && self.peers[peer.0 as usize].reliability.as_ref().is_some_and(|link| !link.is_engaged())
        {
            self.mark_ready(peer);
        }
    }
}
