//! Credit: bounds on a peer's unmatched messages that are held here, in number and in bytes.
//!
//! A message without credit waits at its sender, except that one that is long, or of another space than [`Space::Tagged`],
//! needs none for its bytes: it is announced. Once nothing is in flight, a tagged message waits only while no receive waits:
//! a receive or a probe in vain tells the sender of all freed credit, and asks for announcements if that does not suffice.

use machine::PeerIndex;

use crate::buffer::Buffer;
use crate::engine::Engine;
use crate::peer::{Control, MOST_MESSAGES, Peer, Violation};
use crate::tag::{Source, Space};
use crate::unexpected::Unexpected;

/// Messages up to this part of the credit for bytes wait for it; longer ones are announced at once, since their copies cost
/// more than the announcement.
const PATIENT: u64 = 128;

impl Peer {
    /// The longest message that waits for credit for its bytes; both ends have the same, as they agree on the credit.
    #[inline]
    fn patient(&self) -> u64 {
        self.config.credit_bytes.0 / PATIENT
    }

    /// Whether the first message, of `length`, waits for credit for its bytes instead of being announced. Those of other
    /// spaces are what progress inside the receiver may depend on, so that none of them waits, nor anything before them.
    #[inline]
    pub fn waits_for_bytes(&self, length: u64) -> bool {
        !self.announce && self.untagged == 0 && length <= self.patient()
    }

    /// Whether the peer may have no credit left for another message, as far as is known here.
    #[inline]
    pub fn lacks_messages(&self) -> bool {
        self.held_messages + self.freed_messages >= self.allowance
    }

    /// Whether a message of the peer may be waiting for credit for its bytes, as far as is known here.
    #[inline]
    pub fn lacks_bytes(&self) -> bool {
        !self.asked && self.is_filled_by(self.held_bytes + self.freed_bytes)
    }

    #[inline]
    fn is_filled_by(&self, bytes: u64) -> bool {
        bytes > self.config.credit_bytes.0 - self.patient()
    }

    /// Whether enough credit was freed to tell the peer of it.
    #[inline]
    pub fn is_credit_due(&self) -> bool {
        self.freed_messages >= self.due_messages || self.freed_bytes >= self.due_bytes
    }

    /// Tells the peer of the freed credit and of `more` messages. `waited`: a receive waits for a message; the peer is
    /// then asked to announce, unless the freed bytes are enough for it.
    pub fn tell_credit(&mut self, more: u32, waited: bool) {
        let announce = waited && self.is_filled_by(self.held_bytes);
        let (freed_messages, freed_bytes) = (self.freed_messages + more, self.freed_bytes);
        (self.freed_messages, self.freed_bytes, self.asked) = (0, 0, announce);
        if let Some(Control::Credit { messages, bytes, announce: asked }) = self.control.back_mut() {
            *messages = messages.saturating_add(freed_messages);
            *bytes = bytes.saturating_add(freed_bytes);
            *asked = announce;
        } else {
            self.control.push_back(Control::Credit { messages: freed_messages, bytes: freed_bytes, announce });
        }
    }

    /// Helps a receive that waits behind held messages: doubles the allowance where it is used up, by at most `left`,
    /// and tells the peer of all that it may send. Returns how many messages were added.
    pub fn relieve(&mut self, left: u32) -> u32 {
        let doubled = if self.lacks_messages() { self.allowance } else { 0 };
        let more = doubled.min(MOST_MESSAGES.saturating_sub(self.allowance)).min(left);
        self.allowance += more;
        if self.freed_messages + more > 0 || self.lacks_bytes() {
            self.tell_credit(more, true);
        }
        more
    }
}

impl<B: Buffer> Engine<B> {
    /// Frees the credit of a message of `space` that has left the unexpected state, or never entered it. The peer is
    /// told once a quarter of its credit was freed, or a receive waits.
    #[inline(always)]
    pub(crate) fn free_credit(&mut self, peer: PeerIndex, space: Space, bytes: u64) {
        let link = &mut self.peers[peer.0 as usize];
        link.freed_messages += 1;
        link.freed_bytes += bytes;
        // Of less than a quarter of the credit, with nothing held, the peer lacks nothing.
        if link.held_messages > 0 || link.is_credit_due() {
            self.freed(peer, space);
        }
    }

    #[inline(never)]
    fn freed(&mut self, peer: PeerIndex, space: Space) {
        let link = &mut self.peers[peer.0 as usize];
        if link.is_credit_due() {
            link.tell_credit(0, self.posted.waits_within(Space::Tagged));
            self.mark_ready(peer);
        } else {
            self.relieve_behind_receives(peer, space);
        }
    }

    /// Counts an unmatched message; a violation where the peer has no credit for it.
    pub(crate) fn hold(&mut self, peer: PeerIndex, bytes: u64) -> Result<(), Violation> {
        let link = &mut self.peers[peer.0 as usize];
        let messages = link.held_messages + 1;
        let held = link.held_bytes.checked_add(bytes).ok_or(Violation)?;
        if messages > link.allowance || held > link.config.credit_bytes.0 {
            return Err(Violation);
        }
        link.held_messages = messages;
        self.set_held(peer, held);
        Ok(())
    }

    pub(crate) fn set_held(&mut self, peer: PeerIndex, bytes: u64) {
        let link = &mut self.peers[peer.0 as usize];
        let half = link.config.credit_bytes.0 / 2;
        self.half_filled = self.half_filled + usize::from(bytes > half) - usize::from(link.held_bytes > half);
        link.held_bytes = bytes;
    }

    /// Frees the credit of a held message that leaves the queue.
    pub(crate) fn release_held(&mut self, peer: PeerIndex, space: Space, message: &Unexpected) {
        let link = &mut self.peers[peer.0 as usize];
        link.held_messages -= 1;
        let bytes = match message {
            Unexpected::Eager { length, .. } => *length,
            Unexpected::Request { .. } | Unexpected::Lost { .. } => 0,
        };
        let held = link.held_bytes - bytes;
        self.set_held(peer, held);
        self.free_credit(peer, space, bytes);
    }

    /// MPI's progress rule: a receive that waits must get its message, however many unwanted ones come before it. `space`: that
    /// of the message that has just taken or freed credit. Only tagged messages wait for credit for their bytes.
    #[inline]
    pub(crate) fn relieve_behind_receives(&mut self, peer: PeerIndex, space: Space) {
        let link = &self.peers[peer.0 as usize];
        if (link.lacks_messages() && self.posted.waits_within(space))
            || (link.lacks_bytes() && self.posted.waits_within(Space::Tagged))
        {
            self.relieve(peer);
        }
    }

    #[cold]
    fn relieve(&mut self, peer: PeerIndex) {
        let link = &mut self.peers[peer.0 as usize];
        if !link.alive {
            return;
        }
        let more = link.relieve(self.widening);
        self.widening -= more;
        self.counters.widened += u64::from(more > 0);
        self.mark_ready(peer);
    }

    /// Tells senders of freed credit where a receive or a probe waits and held messages may have used up their credit.
    #[inline]
    pub(crate) fn relieve_senders(&mut self, source: Source) {
        // Less than a quarter of either credit is freed and untold, so that more than half of a used-up one is held.
        if self.unexpected.len() as u32 >= self.half_credit || self.half_filled > 0 {
            self.relieve_all(source);
        }
    }

    #[cold]
    fn relieve_all(&mut self, source: Source) {
        let peers = match source {
            Source::Peer(peer) => peer.0..peer.0 + 1,
            Source::Any => 0..self.peers.len() as u32,
        };
        for peer in peers {
            if self.peers.get(peer as usize).is_some_and(|link| link.lacks_messages() || link.lacks_bytes()) {
                self.relieve(PeerIndex(peer));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use machine::Bytes;

    use super::*;
    use crate::config::LinkConfig;
    use crate::peer::MOST_WIDENED;

    #[test]
    fn what_peers_may_leave_unmatched_grows_within_a_total() {
        let credit_messages = 1000;
        let config = LinkConfig {
            mtu: Bytes(1500),
            eager_limit: Bytes(500),
            eager_near: None,
            remote_read: false,
            credit_messages,
            credit_bytes: Bytes(4000),
            reliability: None,
        };
        let mut left = MOST_WIDENED;
        let mut peers: Vec<Peer> = (0..40).map(|_| Peer::new(config.clone())).collect();
        for _ in 0..20 {
            for peer in &mut peers {
                peer.held_messages = peer.allowance;
                left -= peer.relieve(left);
            }
        }
        assert_eq!(left, 0);
        assert!(peers.iter().all(|peer| peer.allowance <= MOST_MESSAGES));
        let widened: u32 = peers.iter().map(|peer| peer.allowance - credit_messages).sum();
        assert_eq!(widened, MOST_WIDENED);
    }
}
