//! Send work requests of a queue pair, from posting to acknowledgement.

use crate::completion::Opcode;
use crate::memory::Segment;
use crate::wire::{PSN_SPAN, advanced, distance};

/// Most bytes that a work request itself can hold.
pub const INLINE_MOST: usize = 128;

/// The transfer of a work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transfer {
    /// Sends into a receive that the peer has posted.
    Send(Segment),
    /// Writes into the peer's registered memory, by its key and the offset there.
    Write { from: Segment, key: u64, offset: u64 },
}

/// A work request for a send queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendWork {
    /// The id in its completion.
    pub id: u64,
    /// Whether a completion is wanted at success too; a failure is always told.
    pub signaled: bool,
    pub transfer: Transfer,
}

#[derive(Clone, Copy)]
pub(crate) enum Bytes {
    Inline,
    Registered(Segment),
}

/// A work queue element.
#[derive(Clone, Copy)]
pub(crate) struct Element {
    pub id: u64,
    pub opcode: Opcode,
    pub signaled: bool,
    pub bytes: Bytes,
    pub length: u64,
    /// The peer's key and offset of an RDMA write.
    pub key: u64,
    pub offset: u64,
    pub first_psn: u32,
    pub packets: u32,
    pub inline: [u8; INLINE_MOST],
}

const BLANK: Element = Element {
    id: 0,
    opcode: Opcode::Send,
    signaled: false,
    bytes: Bytes::Inline,
    length: 0,
    key: 0,
    offset: 0,
    first_psn: 0,
    packets: 0,
    inline: [0; INLINE_MOST],
};

/// A ring of elements; positions count up and are taken modulo its size.
pub(crate) struct SendQueue {
    elements: Box<[Element]>,
    /// The oldest element not yet acknowledged as a whole.
    head: u32,
    /// The position of the next element.
    tail: u32,
    /// The next packet to transmit: its element, and its number in that.
    at: u32,
    packet: u32,
    /// Sequence number for the next element posted.
    next_psn: u32,
    /// The oldest packet not acknowledged.
    oldest_psn: u32,
    /// The packet after the last that ever left.
    sent_psn: u32,
}

impl SendQueue {
    pub fn new(depth: u32, first_psn: u32) -> Self {
        let elements = vec![BLANK; depth.next_power_of_two() as usize].into_boxed_slice();
        SendQueue {
            elements,
            head: 0,
            tail: 0,
            at: 0,
            packet: 0,
            next_psn: first_psn,
            oldest_psn: first_psn,
            sent_psn: first_psn,
        }
    }

    #[inline]
    fn element(&mut self, position: u32) -> &mut Element {
        let mask = self.elements.len() - 1;
        &mut self.elements[position as usize & mask]
    }

    #[inline]
    pub fn used(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    /// Number of elements that can be posted, each of up to half of the span of packets.
    #[inline]
    pub fn room(&self) -> u32 {
        if self.ahead() > PSN_SPAN / 2 { 0 } else { self.elements.len() as u32 - self.used() }
    }

    /// Number of packets from the oldest unacknowledged one to the next element's.
    #[inline]
    fn ahead(&self) -> u32 {
        distance(self.next_psn, self.oldest_psn) as u32
    }

    /// Posts an element of so many packets that `fill` describes; false where there is no room.
    #[inline]
    pub fn post(&mut self, packets: u32, fill: impl FnOnce(&mut Element)) -> bool {
        if self.room() == 0 || packets > PSN_SPAN - self.ahead() {
            return false;
        }
        let (tail, psn) = (self.tail, self.next_psn);
        let element = self.element(tail);
        fill(element);
        element.first_psn = psn;
        element.packets = packets;
        self.tail = tail.wrapping_add(1);
        self.next_psn = advanced(psn, packets);
        true
    }

    /// The next packet to transmit: its element, its number in it, its sequence number. `None` if there is none.
    #[inline]
    pub fn next_packet(&mut self, window: u32) -> Option<(&Element, u32, u32)> {
        if self.at == self.tail {
            return None;
        }
        let (packet, oldest) = (self.packet, self.oldest_psn);
        let element = self.element(self.at);
        let psn = advanced(element.first_psn, packet);
        (distance(psn, oldest) < window as i32).then_some((&*element, packet, psn))
    }

    /// Packets that have left and are not acknowledged.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        distance(self.sent_psn, self.oldest_psn) as u32
    }

    /// Notes that the packet of [`SendQueue::next_packet`] has left.
    #[inline]
    pub fn sent(&mut self, psn: u32) {
        let next = advanced(psn, 1);
        if distance(next, self.sent_psn) > 0 {
            self.sent_psn = next;
        }
        self.packet += 1;
        if self.packet == self.element(self.at).packets {
            self.packet = 0;
            self.at = self.at.wrapping_add(1);
        }
    }

    /// Notes that all packets before `psn` have arrived; `ended` gets every finished element. False if this cannot be, since
    /// such packets were never sent.
    #[inline]
    pub fn arrived_before(&mut self, psn: u32, mut ended: impl FnMut(&Element)) -> bool {
        if distance(psn, self.sent_psn) > 0 {
            return false;
        }
        if distance(psn, self.oldest_psn) <= 0 {
            return true;
        }
        self.oldest_psn = psn;
        while self.head != self.tail {
            let head = self.head;
            let element = self.element(head);
            if distance(psn, advanced(element.first_psn, element.packets)) < 0 {
                break;
            }
            ended(element);
            self.head = head.wrapping_add(1);
        }
        // Packets to be sent again have arrived meanwhile.
        if (self.at.wrapping_sub(self.head) as i32) < 0 {
            self.at = self.head;
            self.packet = 0;
        }
        if self.at == self.head && self.at != self.tail {
            let behind = distance(psn, self.element(self.at).first_psn);
            self.packet = self.packet.max(behind.max(0) as u32);
        }
        true
    }

    /// Whether the peer has acknowledged the packet of this number.
    #[inline]
    pub fn has_arrived(&self, psn: u32) -> bool {
        distance(psn, self.oldest_psn) < 0
    }

    /// Goes back: the oldest unacknowledged packet is the next to transmit.
    pub fn rewind(&mut self) {
        self.at = self.head;
        self.packet = if self.head == self.tail {
            0
        } else {
            distance(self.oldest_psn, self.element(self.head).first_psn).max(0) as u32
        };
    }

    /// Removes all posted elements, oldest first.
    pub fn flush(&mut self, mut flushed: impl FnMut(&Element)) {
        while self.head != self.tail {
            let head = self.head;
            flushed(self.element(head));
            self.head = head.wrapping_add(1);
        }
        self.at = self.tail;
        self.packet = 0;
        self.oldest_psn = self.next_psn;
        self.sent_psn = self.next_psn;
    }

    pub fn bytes(&self) -> usize {
        self.elements.len() * size_of::<Element>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::PSN_MASK;

    #[test]
    fn sequence_numbers_wrap_between_posting_and_acknowledgement() {
        fn leave(queue: &mut SendQueue) -> Vec<u32> {
            let mut left = Vec::new();
            while let Some((_, _, psn)) = queue.next_packet(8) {
                left.push(psn);
                queue.sent(psn);
            }
            left
        }
        let mut queue = SendQueue::new(4, PSN_MASK - 1);
        let mut ended = Vec::new();
        for id in 0..40u64 {
            let first = advanced(PSN_MASK - 1, 3 * id as u32);
            assert!(queue.post(3, |element| element.id = id));
            assert_eq!(leave(&mut queue), [0, 1, 2].map(|n| advanced(first, n)));
            // The first packet has arrived, the others are sent again.
            assert!(queue.arrived_before(advanced(first, 1), |_| unreachable!("a part has arrived")));
            assert!(queue.has_arrived(first) && !queue.has_arrived(advanced(first, 1)));
            queue.rewind();
            assert_eq!(leave(&mut queue), [1, 2].map(|n| advanced(first, n)));
            assert_eq!(queue.in_flight(), 2);
            assert!(!queue.arrived_before(advanced(first, 4), |_| ()), "it was never sent");
            assert!(queue.arrived_before(advanced(first, 3), |element| ended.push(element.id)));
        }
        assert_eq!(ended, (0..40).collect::<Vec<u64>>());
    }
}
