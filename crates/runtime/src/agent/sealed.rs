//! A port whose packets only the holder of a key can make or read: AES-256-GCM around the packets of any port.
//!
//! ```text
//! | number, 8 bytes | packet, encrypted | tag, 16 bytes |
//! ```
//!
//! Each direction has a key of its own, made for one channel and sent over TLS. The number is the nonce: it is used once
//! under its key. What does not open is dropped and counted, and so is what opens once more: a packet that somebody caught and
//! sends again shows nobody that its maker lives, and is never data, however many came since.

use machine::{Bytes, Capabilities, Notice, PeerIndex, Port, Result, Sent};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use super::replay::Window;

const NUMBER: usize = 8;
const TAG: usize = 16;
pub(crate) const OVERHEAD: usize = NUMBER + TAG;

pub(crate) struct SealedPort<P> {
    port: P,
    outward: LessSafeKey,
    inward: LessSafeKey,
    number: u64,
    opened: Vec<u8>,
    came: Window,
    dropped: Dropped,
}

/// Packets that were dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// Packets that did not open.
    pub forged: u64,
    /// Packets that had come before, or came too late to tell.
    pub replayed: u64,
}

fn key(bytes: &[u8; 32]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, bytes).expect("a key of this cipher has 32 bytes"))
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[..NUMBER].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

impl<P: Port> SealedPort<P> {
    pub fn new(port: P, outward: &[u8; 32], inward: &[u8; 32]) -> Self {
        let (outward, inward) = (key(outward), key(inward));
        let (came, dropped) = (Window::default(), Dropped::default());
        SealedPort { port, outward, inward, number: 0, opened: Vec::new(), came, dropped }
    }

    pub fn dropped(&self) -> Dropped {
        self.dropped
    }
}

impl<P: Port> Port for SealedPort<P> {
    fn capabilities(&self) -> Capabilities {
        let inner = self.port.capabilities();
        let mtu = Bytes(inner.mtu.0.saturating_sub(OVERHEAD as u64));
        Capabilities { mtu, remote_read: false, ..inner }
    }

    fn send(&mut self, peer: PeerIndex, length: usize, fill: impl FnOnce(&mut [u8])) -> Result<Sent> {
        let SealedPort { port, outward, number, .. } = self;
        port.send(peer, length + OVERHEAD, |packet| {
            let (head, rest) = packet.split_at_mut(NUMBER);
            let (body, tag) = rest.split_at_mut(length);
            fill(body);
            head.copy_from_slice(&number.to_le_bytes());
            // 2^64 packets do not fit in a lifetime, nor a packet in more than the cipher takes.
            let made = outward.seal_in_place_separate_tag(nonce(*number), Aad::empty(), body);
            tag.copy_from_slice(made.expect("a packet is shorter than the cipher's limit").as_ref());
            *number += 1;
        })
    }

    fn flush(&mut self) -> Result<()> {
        self.port.flush()
    }

    fn receive(&mut self, budget: usize, mut deliver: impl FnMut(PeerIndex, &[u8])) -> Result<usize> {
        let SealedPort { port, inward, opened, came, dropped, .. } = self;
        let mut delivered = 0;
        port.receive(budget, |peer, packet| {
            let Some((head, body)) = packet.split_first_chunk::<NUMBER>() else {
                dropped.forged += 1;
                return;
            };
            opened.clear();
            opened.extend_from_slice(body);
            let number = u64::from_le_bytes(*head);
            match inward.open_in_place(nonce(number), Aad::empty(), opened) {
                Ok(plain) if came.take(number) => {
                    delivered += 1;
                    deliver(peer, plain);
                }
                Ok(_) => dropped.replayed += 1,
                Err(_) => dropped.forged += 1,
            }
        })?;
        Ok(delivered)
    }

    fn notices(&mut self, report: impl FnMut(Notice)) -> Result<()> {
        self.port.notices(report)
    }

    fn read_remote(&mut self, peer: PeerIndex, address: u64, into: &mut [u8]) -> Result<()> {
        self.port.read_remote(peer, address, into)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use ports::udp::UdpPort;

    use super::*;

    fn ports() -> (UdpPort, UdpPort) {
        let local: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let (mut a, mut b) = (UdpPort::open(local).unwrap(), UdpPort::open(local).unwrap());
        a.add_peer(b.local_address()).unwrap();
        b.add_peer(a.local_address()).unwrap();
        (a, b)
    }

    fn pair(keys: [[u8; 32]; 4]) -> (SealedPort<UdpPort>, SealedPort<UdpPort>) {
        let (a, b) = ports();
        (SealedPort::new(a, &keys[0], &keys[1]), SealedPort::new(b, &keys[2], &keys[3]))
    }

    fn sealed(with: &[u8; 32], number: u64, payload: &[u8]) -> Vec<u8> {
        let mut body = payload.to_vec();
        let tag = key(with).seal_in_place_separate_tag(nonce(number), Aad::empty(), &mut body).unwrap();
        [&number.to_le_bytes()[..], &body, tag.as_ref()].concat()
    }

    fn send(port: &mut impl Port, packet: &[u8]) {
        assert_eq!(port.send(PeerIndex(0), packet.len(), |into| into.copy_from_slice(packet)).unwrap(), Sent::Taken);
        port.flush().unwrap();
    }

    fn receive(port: &mut SealedPort<UdpPort>, enough: impl Fn(u64, usize) -> bool) -> Vec<Vec<u8>> {
        let mut got = Vec::new();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !enough(port.dropped().forged, got.len()) && std::time::Instant::now() < deadline {
            port.receive(64, |_, packet| got.push(packet.to_vec())).unwrap();
        }
        got
    }

    #[test]
    fn packets_open_with_the_key_and_only_with_it() {
        let (one, two) = ([1; 32], [2; 32]);
        let (mut a, mut b) = pair([one, two, two, one]);
        let mtu = a.capabilities().mtu.0 as usize;
        for length in [0, 1, 17, mtu] {
            send(&mut a, &vec![length as u8; length]);
            assert_eq!(receive(&mut b, |_, n| n == 1), [vec![length as u8; length]]);
        }
        let (mut a, mut b) = pair([one, two, two, two]);
        send(&mut a, &[1; 5]);
        assert!(receive(&mut b, |forged, _| forged == 1).is_empty());
        assert_eq!(b.dropped(), Dropped { forged: 1, replayed: 0 });
    }

    #[test]
    fn changed_and_cut_packets_are_dropped() {
        let keys = [3; 32];
        let (mut a, b) = ports();
        let mut b = SealedPort::new(b, &keys, &keys);
        let good = sealed(&keys, 9, b"payload");
        let mut packets = vec![Vec::new(), good[..5].to_vec(), good[..good.len() - 1].to_vec()];
        packets.extend((0..good.len()).map(|at| {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            bad
        }));
        let forged = packets.len() as u64;
        packets.push(good);
        packets.iter().for_each(|packet| send(&mut a, packet));
        assert_eq!(receive(&mut b, |_, n| n == 1), [b"payload".to_vec()]);
        assert_eq!(b.dropped(), Dropped { forged, replayed: 0 });
    }

    #[test]
    fn a_packet_that_is_sent_again_is_neither_data_nor_a_sign_of_life() {
        const FAR: u64 = 1 << 32;
        let keys = [3; 32];
        let (mut a, b) = ports();
        let mut b = SealedPort::new(b, &keys, &keys);
        let mut all_of = |numbers: &[u64]| {
            numbers.iter().for_each(|number| send(&mut a, &sealed(&keys, *number, &number.to_le_bytes())));
        };
        let mut comes = |new: &[u64]| {
            let new: Vec<Vec<u8>> = new.iter().map(|number| number.to_le_bytes().to_vec()).collect();
            assert_eq!(receive(&mut b, |_, n| n == new.len()), new);
            b.dropped()
        };
        all_of(&[0, 1, 5, 3, 0, 1, 5, 3, 2]);
        assert_eq!(comes(&[0, 1, 5, 3, 2]), Dropped { forged: 0, replayed: 4 });
        // Packet 4 was held back, until it cannot be told from one that came.
        all_of(&[FAR, FAR - 1, FAR, 0, 1, 2, 3, 4, 5, FAR + 1]);
        assert_eq!(comes(&[FAR, FAR - 1, FAR + 1]), Dropped { forged: 0, replayed: 4 + 7 });
    }

    #[test]
    fn numbers_go_on_beyond_32_bits() {
        let (one, two) = ([1; 32], [2; 32]);
        let (mut a, mut b) = pair([one, two, two, one]);
        send(&mut a, b"first");
        a.number = (1 << 32) - 1;
        ["last", "next", "then"].iter().for_each(|packet| send(&mut a, packet.as_bytes()));
        assert_eq!(receive(&mut b, |_, n| n == 4), [&b"first"[..], b"last", b"next", b"then"]);
        assert_eq!((a.number, b.dropped()), ((1 << 32) + 2, Dropped::default()));
    }
}
