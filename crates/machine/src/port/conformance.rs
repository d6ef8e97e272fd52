//! The contract of every port, as checks that each implementation runs in its own tests (feature `conformance`).
//!
//! A check panics with what was broken. Each port implements [`Bench`], which wires it up.

use super::{Notice, PeerIndex, Port, Sent};

/// Wires ports of one implementation together.
pub trait Bench {
    /// The implementation that is checked.
    type Port: Port;

    /// One port joined to `count` others: the hub, its index for each of them in order, and each of them with its index
    /// for the hub.
    fn star(&mut self, count: usize) -> Star<Self::Port>;

    /// Makes the process or port behind a leaf end. The hub must come to know it, where the port can know at all.
    fn end(&mut self, leaf: Self::Port);

    /// Whether the end of a peer is noticed without sending to it.
    fn notices_ends(&self) -> bool {
        true
    }
}

/// A hub and its leaves.
pub struct Star<P> {
    /// The port that all others are joined to.
    pub hub: P,
    /// The leaves in the order of the hub's indices for them.
    pub leaves: Vec<Leaf<P>>,
}

/// A port joined to the hub.
pub struct Leaf<P> {
    /// The leaf's own port.
    pub port: P,
    /// The hub as this leaf numbers it.
    pub hub: PeerIndex,
    /// This leaf as the hub numbers it.
    pub index: PeerIndex,
}

/// How often an expected packet or notice is looked for before the check fails; long, because hosts may be busy.
const POLLS: u32 = 200_000;

/// Runs every check.
pub fn all(bench: &mut impl Bench) {
    sizes(bench);
    order(bench);
    full_and_recovery(bench);
    interleaved_peers(bench);
    budgets(bench);
    refusals(bench);
    remote_reads(bench);
    ends(bench);
}

/// Repeated contents of packets, by salt: each byte depends on the packet's number and the position.
static CONTENTS: [[u8; 256]; 256] = {
    let mut all = [[0; 256]; 256];
    let mut at = 0;
    while at < 1 << 16 {
        all[at >> 8][at & 255] = (at >> 8) as u8 ^ (at as u8).wrapping_mul(31);
        at += 1;
    }
    all
};

fn contents(number: u64) -> &'static [u8; 256] {
    &CONTENTS[(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize]
}

fn put<P: Port>(port: &mut P, peer: PeerIndex, number: u64, length: usize) -> Sent {
    let mut filled = false;
    let sent = port.send(peer, length, |into| {
        assert_eq!(into.len(), length, "`fill` gets exactly the length asked for");
        let repeated = contents(number);
        into.chunks_mut(repeated.len()).for_each(|part| part.copy_from_slice(&repeated[..part.len()]));
        filled = true;
    });
    let sent = sent.expect("a packet of at most the mtu to a known peer");
    assert_eq!(filled, sent == Sent::Taken, "`fill` is called if and only if the packet is taken");
    sent
}

fn is_packet(packet: &[u8], number: u64, length: usize) -> bool {
    let repeated = contents(number);
    packet.len() == length && packet.chunks(repeated.len()).all(|part| part == &repeated[..part.len()])
}

/// Receives until `enough` packets came; panics where they do not.
fn collect<P: Port>(port: &mut P, enough: usize, mut deliver: impl FnMut(PeerIndex, &[u8])) {
    let mut came = 0;
    for look in 0..POLLS {
        came += port.receive(enough - came, &mut deliver).expect("receiving");
        if came == enough {
            return;
        }
        if look > 1000 {
            std::thread::yield_now();
        }
    }
    panic!("{came} of {enough} packets came");
}

fn mtu<P: Port>(port: &P) -> usize {
    usize::try_from(port.capabilities().mtu.0).expect("an mtu that fits in memory")
}

/// Packets of every size class arrive whole, empty ones too.
pub fn sizes(bench: &mut impl Bench) {
    let Star { mut hub, mut leaves } = bench.star(1);
    let leaf = &mut leaves[0];
    let mtu = mtu(&hub);
    for (number, length) in [0, 1, 2, 55, 56, 57, 63, 64, 65, 1000, mtu / 2, mtu - 1, mtu].into_iter().enumerate() {
        for _ in 0..3 {
            assert_eq!(put(&mut hub, leaf.index, number as u64, length), Sent::Taken);
            hub.flush().unwrap();
            collect(&mut leaf.port, 1, |from, packet| {
                assert_eq!(from, leaf.hub);
                assert!(is_packet(packet, number as u64, length), "a packet of {length} B arrives changed");
            });
            assert_eq!(put(&mut leaf.port, leaf.hub, number as u64, length), Sent::Taken);
            leaf.port.flush().unwrap();
            collect(&mut hub, 1, |from, packet| {
                assert_eq!(from, leaf.index);
                assert!(is_packet(packet, number as u64, length), "a packet of {length} B comes back changed");
            });
        }
    }
}

/// Where a port promises order, mixed sizes keep it; where it promises delivery, none is missing or duplicated.
pub fn order(bench: &mut impl Bench) {
    let Star { mut hub, mut leaves } = bench.star(1);
    let leaf = &mut leaves[0];
    let capabilities = hub.capabilities();
    if !(capabilities.ordered && capabilities.reliable) {
        return;
    }
    let mtu = mtu(&hub);
    let length = |number: u64| [8, 40, 56, 57, 300, mtu, 4, mtu / 3][(number % 8) as usize];
    let count = 5_000;
    let (mut sent, mut came) = (0, 0);
    for _ in 0..POLLS {
        // Bursts of changing length, so that the ring is empty, full and in between.
        for _ in 0..1 + sent % 97 {
            if sent == count || put(&mut hub, leaf.index, sent, length(sent)) != Sent::Taken {
                break;
            }
            sent += 1;
        }
        hub.flush().unwrap();
        let budget = 1 + (came % 61) as usize;
        leaf.port
            .receive(budget, |_, packet| {
                assert!(is_packet(packet, came, length(came)), "packet {came} is not what comes next");
                came += 1;
            })
            .unwrap();
        if came == count {
            return;
        }
    }
    panic!("{came} of {count} packets came");
}

/// A port that says full takes packets again once the peer has received, and lost none of those it took.
pub fn full_and_recovery(bench: &mut impl Bench) {
    for length in [8usize, 2000] {
        let Star { mut hub, mut leaves } = bench.star(1);
        let leaf = &mut leaves[0];
        let length = length.min(mtu(&hub));
        for _ in 0..3 {
            let mut taken = 0;
            while taken < 100_000 && put(&mut hub, leaf.index, taken, length) == Sent::Taken {
                taken += 1;
            }
            hub.flush().unwrap();
            if taken == 100_000 || !hub.capabilities().reliable {
                // A port that drops packets instead of being full has nothing to show here.
                while leaf.port.receive(1000, |_, _| ()).unwrap() > 0 {}
                continue;
            }
            assert!(taken > 0);
            assert_eq!(put(&mut hub, leaf.index, 0, length), Sent::Full, "full stays full until somebody receives");
            let mut next = 0;
            collect(&mut leaf.port, taken as usize, |_, packet| {
                assert!(is_packet(packet, next, length), "packet {next} of those taken");
                next += 1;
            });
            assert_eq!(leaf.port.receive(1, |_, _| ()).unwrap(), 0, "no packet comes that was not taken");
        }
    }
}

/// Packets of many peers are told apart, and one that floods does not shut out another.
pub fn interleaved_peers(bench: &mut impl Bench) {
    let Star { mut hub, mut leaves } = bench.star(3);
    let indices: Vec<PeerIndex> = leaves.iter().map(|leaf| leaf.index).collect();
    for (one, index) in indices.iter().enumerate() {
        assert!(!indices[..one].contains(index), "every peer has its own number");
    }
    for leaf in &mut leaves {
        for _ in 0..50 {
            assert_eq!(put(&mut leaf.port, leaf.hub, u64::from(leaf.index.0), 20), Sent::Taken);
        }
        leaf.port.flush().unwrap();
    }
    let mut came = vec![0; leaves.len()];
    collect(&mut hub, 150, |from, packet| {
        assert!(is_packet(packet, u64::from(from.0), 20), "a packet comes under another peer's number");
        came[indices.iter().position(|&index| index == from).expect("a known peer")] += 1;
    });
    assert_eq!(came, [50; 3]);

    // Leaf 0 refills before each look; the packet of leaf 2 must come through all the same.
    let [flooding, _, quiet] = &mut leaves[..] else { unreachable!("three leaves") };
    assert_eq!(put(&mut quiet.port, quiet.hub, 99, 8), Sent::Taken);
    quiet.port.flush().unwrap();
    let mut came = false;
    for _ in 0..POLLS {
        for _ in 0..16 {
            put(&mut flooding.port, flooding.hub, 1, 8);
        }
        flooding.port.flush().unwrap();
        hub.receive(8, |from, _| came |= from == quiet.index).unwrap();
        if came {
            return;
        }
    }
    panic!("a flooding peer shuts out another");
}

/// A receive delivers no more than its budget and keeps the rest.
pub fn budgets(bench: &mut impl Bench) {
    let Star { mut hub, mut leaves } = bench.star(2);
    for leaf in &mut leaves {
        for number in 0..20 {
            assert_eq!(put(&mut leaf.port, leaf.hub, number, 8), Sent::Taken);
        }
        leaf.port.flush().unwrap();
    }
    assert_eq!(hub.receive(0, |_, _| panic!("a budget of 0")).unwrap(), 0);
    let mut came = 0;
    for _ in 0..POLLS {
        let mut delivered = 0;
        let told = hub.receive(7, |_, _| delivered += 1).unwrap();
        assert_eq!(told, delivered, "the count is what was delivered");
        assert!(told <= 7, "{told} packets for a budget of 7");
        came += told;
        if came == 40 {
            return;
        }
    }
    panic!("{came} of 40 packets came");
}

/// Over-size packets and unknown peers are faults, and the port goes on.
pub fn refusals(bench: &mut impl Bench) {
    let Star { mut hub, mut leaves } = bench.star(1);
    let leaf = &mut leaves[0];
    for (peer, length) in [(leaf.index, mtu(&hub) + 1), (leaf.index, usize::MAX), (PeerIndex(7_777), 8)] {
        let fault = hub.send(peer, length, |_| panic!("nothing to fill")).expect_err("a packet that cannot be sent");
        assert!(!fault.next().is_empty());
    }
    assert!(hub.read_remote(PeerIndex(7_777), 0, &mut [0]).is_err());
    assert_eq!(put(&mut hub, leaf.index, 3, 8), Sent::Taken);
    hub.flush().unwrap();
    collect(&mut leaf.port, 1, |_, packet| assert!(is_packet(packet, 3, 8)));
}

/// A remote read brings the bytes where it is promised, and is refused where not. Only for leaves in this process.
pub fn remote_reads(bench: &mut impl Bench) {
    let Star { mut hub, leaves } = bench.star(1);
    let repeated = contents(5);
    let source: Vec<u8> = repeated.iter().copied().cycle().take(100_001).collect();
    let mut copy = vec![0; source.len()];
    let read = hub.read_remote(leaves[0].index, source.as_ptr() as u64, &mut copy);
    if hub.capabilities().remote_read {
        read.expect("a promised remote read");
        assert_eq!(copy, source);
    }
    let fault = hub.read_remote(leaves[0].index, 8, &mut copy).expect_err("nothing is mapped at 8");
    assert!(!fault.next().is_empty());
}

/// The end of a peer is told once and after its last packet; it can no longer be sent to; others are not disturbed.
pub fn ends(bench: &mut impl Bench) {
    let Star { mut hub, mut leaves } = bench.star(2);
    hub.notices(|notice| panic!("{notice:?} while all live")).unwrap();
    let mut ending = leaves.remove(0);
    assert_eq!(put(&mut ending.port, ending.hub, 11, 8), Sent::Taken);
    ending.port.flush().unwrap();
    bench.end(ending.port);
    let told = |notice| match notice {
        Notice::Dead(peer) | Notice::Closed(peer) | Notice::Refused(peer) => peer,
    };
    let mut ends = Vec::new();
    if bench.notices_ends() && hub.capabilities().reliable {
        for _ in 0..100 {
            hub.notices(|notice| ends.push(notice)).unwrap();
        }
        assert!(ends.is_empty(), "no end is told while packets wait: {ends:?}");
    }
    collect(&mut hub, 1, |from, packet| assert!(from == ending.index && is_packet(packet, 11, 8)));
    for _ in 0..POLLS {
        if !bench.notices_ends() {
            put(&mut hub, ending.index, 0, 8);
            hub.flush().unwrap();
        }
        hub.notices(|notice| ends.push(notice)).unwrap();
        if !ends.is_empty() {
            break;
        }
        std::thread::yield_now();
    }
    assert_eq!(ends.iter().map(|&notice| told(notice)).collect::<Vec<_>>(), [ending.index], "the end is told, once");
    hub.notices(|notice| assert_ne!(told(notice), ending.index, "the end is told once")).unwrap();
    if bench.notices_ends() {
        assert_eq!(put(&mut hub, ending.index, 0, 8), Sent::Gone);
    }
    let other = &mut leaves[0];
    assert_eq!(put(&mut hub, other.index, 12, 8), Sent::Taken);
    hub.flush().unwrap();
    collect(&mut other.port, 1, |_, packet| assert!(is_packet(packet, 12, 8)));
}
