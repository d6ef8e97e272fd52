use std::net::UdpSocket;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

const V4: &str = "127.0.0.1:0";
const V6: &str = "[::1]:0";

fn open(at: &str) -> UdpPort {
    UdpPort::open(at.parse().unwrap()).unwrap()
}

fn open_with(at: &str, features: impl FnOnce(UdpFeatures) -> UdpFeatures) -> UdpPort {
    let (socket, local) = socket::open(at.parse().unwrap()).unwrap();
    let found = socket::probe(&socket, local.is_ipv6());
    UdpPort::assemble(socket, local, features(found)).unwrap()
}

fn pair(at: &str) -> (UdpPort, UdpPort, PeerIndex) {
    let (mut a, mut b) = (open(at), open(at));
    let to_b = a.add_peer(b.local_address()).unwrap();
    b.add_peer(a.local_address()).unwrap();
    (a, b, to_b)
}

fn send(port: &mut UdpPort, to: PeerIndex, packet: &[u8]) -> Sent {
    port.send(to, packet.len(), |room| room.copy_from_slice(packet)).unwrap()
}

/// A kernel thread may deliver late on a busy machine; this is long enough for it to run.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Receives until `count` packets have come or none has come for too long.
fn collect(port: &mut UdpPort, count: usize) -> Vec<(PeerIndex, Vec<u8>)> {
    let mut all = Vec::new();
    let mut patience = Instant::now() + TIMEOUT;
    while all.len() < count && Instant::now() < patience {
        if port.receive(7, |from, packet| all.push((from, packet.to_vec()))).unwrap() > 0 {
            patience = Instant::now() + TIMEOUT;
        } else {
            std::thread::yield_now();
        }
    }
    all
}

#[test]
fn carries_packets_both_ways_over_both_families() {
    for at in [V4, V6] {
        let (mut a, mut b, to_b) = pair(at);
        assert_eq!(send(&mut a, to_b, b"ping"), Sent::Taken);
        a.flush().unwrap();
        assert_eq!(collect(&mut b, 1), [(PeerIndex(0), b"ping".to_vec())], "{at}");
        assert_eq!(send(&mut b, PeerIndex(0), b"pong!"), Sent::Taken);
        b.flush().unwrap();
        assert_eq!(collect(&mut a, 1), [(to_b, b"pong!".to_vec())], "{at}");
    }
}

#[test]
fn one_small_packet_costs_one_call_each_way() {
    let (mut a, mut b, to_b) = pair(V4);
    assert_eq!(b.receive(64, |_, _| panic!("nothing was sent")).unwrap(), 0);
    assert_eq!((b.counters().receive_calls, b.counters().empty_receives), (1, 1));
    send(&mut a, to_b, &[7; 8]);
    a.flush().unwrap();
    a.flush().unwrap();
    let sent = a.counters();
    assert_eq!((sent.send_calls, sent.datagrams_sent, sent.packets_sent), (1, 1, 1));
    assert_eq!(collect(&mut b, 1).len(), 1);
    assert_eq!(b.counters().receive_calls - b.counters().empty_receives, 1);
}

#[test]
fn equal_packets_leave_in_one_datagram_and_arrive_apart() {
    let (mut a, mut b, to_b) = pair(V4);
    let packets: Vec<Vec<u8>> = (0..10u8).map(|i| vec![i; 1000]).chain([vec![99; 10]]).collect();
    for packet in &packets {
        send(&mut a, to_b, packet);
    }
    a.flush().unwrap();
    let got: Vec<Vec<u8>> = collect(&mut b, packets.len()).into_iter().map(|(_, p)| p).collect();
    assert_eq!(got, packets);
    let (sent, received) = (a.counters(), b.counters());
    assert_eq!((sent.packets_sent, sent.send_calls), (11, 1));
    if a.features().segmentation {
        assert_eq!((sent.datagrams_sent, sent.segmented_sent), (1, 11));
    }
    if a.features().segmentation && b.features().joining {
        assert_eq!((received.datagrams_received, received.joined_received), (1, 11));
    }
}

#[test]
fn the_largest_packet_passes_and_a_larger_one_is_a_fault() {
    for at in [V4, V6] {
        let (mut a, mut b, to_b) = pair(at);
        let mtu = a.capabilities().mtu.0 as usize;
        assert!(mtu > 60_000, "loopback carries large packets, got {mtu}");
        let packet: Vec<u8> = (0..mtu).map(|i| (i * 31) as u8).collect();
        for _ in 0..3 {
            send(&mut a, to_b, &packet);
        }
        send(&mut a, to_b, &[]);
        a.flush().unwrap();
        let got = collect(&mut b, 4);
        assert!(got.len() == 4 && got[..3].iter().all(|(_, p)| *p == packet) && got[3].1.is_empty());
        let fault = a.send(to_b, mtu + 1, |_| panic!("no room for this")).unwrap_err();
        assert!(fault.to_string().contains(&format!("packet of {} bytes", mtu + 1)), "{fault}");
        assert!(a.send(PeerIndex(9), 1, |_| panic!("no such peer")).is_err());
    }
}

#[test]
fn unknown_senders_are_dropped_and_counted() {
    let (mut a, mut b, to_b) = pair(V4);
    let unknown = UdpSocket::bind(V4).unwrap();
    for _ in 0..50 {
        unknown.send_to(b"let me in", b.local_address()).unwrap();
    }
    send(&mut a, to_b, b"friend");
    a.flush().unwrap();
    assert_eq!(collect(&mut b, 1), [(PeerIndex(0), b"friend".to_vec())]);
    assert_eq!((b.counters().unknown_sender, b.counters().packets_received), (50, 1));
}

#[test]
fn the_only_peer_has_the_port_to_itself_until_another_comes() {
    for at in [V4, V6] {
        let (mut a, mut b, to_b) = pair(at);
        let address = a.local_address();
        send(&mut a, to_b, b"one");
        a.flush().unwrap();
        assert_eq!(collect(&mut b, 1), [(PeerIndex(0), b"one".to_vec())]);
        assert!(a.is_connected() && b.is_connected());
        let mut c = open(at);
        let c_to_a = c.add_peer(address).unwrap();
        send(&mut c, c_to_a, b"let me in");
        c.flush().unwrap();
        send(&mut b, PeerIndex(0), b"two");
        b.flush().unwrap();
        assert_eq!(collect(&mut a, 1), [(to_b, b"two".to_vec())]);
        assert_eq!((a.counters().datagrams_received, a.counters().unknown_sender), (1, 0));

        let to_c = a.add_peer(c.local_address()).unwrap();
        assert!(!a.is_connected());
        assert_eq!(socket::open(address).err().unwrap().next(), "choose another port number, or 0 for any");
        for (port, to) in [(&mut b, PeerIndex(0)), (&mut c, c_to_a)] {
            send(port, to, b"three");
            port.flush().unwrap();
        }
        let mut got = collect(&mut a, 2);
        got.sort();
        assert_eq!(got, [(to_b, b"three".to_vec()), (to_c, b"three".to_vec())], "{at}");
        for (port, to) in [(&mut b, to_b), (&mut c, to_c)] {
            send(&mut a, to, b"four");
            a.flush().unwrap();
            assert_eq!(collect(port, 1), [(PeerIndex(0), b"four".to_vec())]);
        }
    }
}

#[test]
fn a_port_on_every_address_stays_open() {
    let (mut a, mut b) = (open("0.0.0.0:0"), open(V4));
    let a_at = SocketAddr::new(b.local_address().ip(), a.local_address().port());
    a.add_peer(b.local_address()).unwrap();
    let to_a = b.add_peer(a_at).unwrap();
    send(&mut b, to_a, b"hello");
    b.flush().unwrap();
    assert_eq!(collect(&mut a, 1).len(), 1);
    assert!(!a.is_connected());
}

#[test]
fn a_budget_holds_across_joined_packets() {
    let (mut a, mut b, to_b) = pair(V4);
    for i in 0..40u8 {
        send(&mut a, to_b, &[i; 100]);
    }
    a.flush().unwrap();
    let mut seen = Vec::new();
    while seen.len() < 40 {
        let before = seen.len();
        let n = b.receive(3, |_, packet| seen.push(packet[0])).unwrap();
        assert_eq!(seen.len() - before, n);
        assert!(n <= 3);
    }
    assert_eq!(seen, (0..40).collect::<Vec<u8>>());
    assert_eq!(b.receive(0, |_, _| panic!("no budget")).unwrap(), 0);
}

#[test]
fn a_closed_peer_is_noticed_by_name() {
    for at in [V4, V6] {
        let mut port = open(at);
        let living = open(at);
        let there = port.add_peer(living.local_address()).unwrap();
        let closed = UdpSocket::bind(at).unwrap();
        let gone = port.add_peer(closed.local_addr().unwrap()).unwrap();
        drop(closed);
        let mut noticed = Vec::new();
        port.notices(|n| noticed.push(n)).unwrap();
        assert!(noticed.is_empty());
        let deadline = Instant::now() + TIMEOUT;
        while noticed.is_empty() && Instant::now() < deadline {
            send(&mut port, gone, b"anyone?");
            send(&mut port, there, b"hello");
            port.flush().unwrap();
            port.receive(8, |_, _| panic!("nobody answers")).unwrap();
            port.notices(|n| noticed.push(n)).unwrap();
        }
        assert_eq!(noticed, [Notice::Refused(gone)], "{at}");
        let counters = port.counters();
        assert_eq!(counters.unsendable, 0, "an error of another packet loses none: {counters:?}");
    }
}

#[test]
fn a_burst_larger_than_any_buffer_is_lost_by_the_kernel_only() {
    let (mut a, mut b, to_b) = pair(V4);
    let (mut taken, mut got) = (0u64, 0u64);
    for _ in 0..3000 {
        if send(&mut a, to_b, &[1; 1400]) == Sent::Taken {
            taken += 1;
        }
    }
    while !a.sending.is_empty() {
        a.flush().unwrap();
    }
    assert_eq!(a.counters().packets_sent, taken);
    let window = b.buffers().receive_window(Bytes(1400));
    let deadline = Instant::now() + TIMEOUT;
    while got < taken && !(got >= window && b.receive_drops().unwrap() > 0) && Instant::now() < deadline {
        got += b.receive(256, |_, packet| assert_eq!(packet.len(), 1400)).unwrap() as u64;
    }
    assert!(got == taken || b.receive_drops().unwrap() > 0, "{got} of {taken} without a drop by the kernel");
    assert!(got >= window.min(taken), "{got} arrived, though {window} fit the window: {:?}", b.buffers());
}

#[test]
fn peers_are_numbered_once_and_families_do_not_mix() {
    let mut port = open(V4);
    let first = port.add_peer("127.0.0.1:9".parse().unwrap()).unwrap();
    let second = port.add_peer("127.0.0.1:10".parse().unwrap()).unwrap();
    assert_eq!(port.add_peer("127.0.0.1:9".parse().unwrap()).unwrap(), first);
    assert_eq!((first, second), (PeerIndex(0), PeerIndex(1)));
    let fault = port.add_peer("[::1]:9".parse().unwrap()).unwrap_err();
    assert!(fault.next().contains("IPv4"), "{fault}");
    assert!(port.peer_address(PeerIndex(2)).is_none());
}

#[test]
fn an_address_in_use_says_what_to_do() {
    let first = open(V4);
    let fault = UdpPort::open(first.local_address()).err().unwrap();
    assert!(fault.next().contains("another port number"), "{fault}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the kernel segments or merges, the same packets arrive as without it.
    #[test]
    fn segmentation_changes_no_packet(
        sizes in proptest::collection::vec(prop_oneof![Just(64usize), Just(1000), 0usize..3000], 1..120),
        flush_every in 1usize..40,
    ) {
        for (segmentation, joining) in [(true, true), (true, false), (false, true), (false, false)] {
            let only = |f: UdpFeatures| UdpFeatures { segmentation: f.segmentation && segmentation, ..f };
            let mut a = open_with(V4, only);
            let mut b = open_with(V4, |f| UdpFeatures { joining: f.joining && joining, ..f });
            if !joining {
                socket::without_joining(&b.socket);
            }
            let to_b = a.add_peer(b.local_address()).unwrap();
            b.add_peer(a.local_address()).unwrap();
            let packets: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(i, &n)| vec![i as u8; n]).collect();
            let mut got = Vec::new();
            for (i, packet) in packets.iter().enumerate() {
                prop_assert_eq!(send(&mut a, to_b, packet), Sent::Taken);
                if i % flush_every == flush_every - 1 {
                    a.flush().unwrap();
                    b.receive(5, |_, p| got.push(p.to_vec())).unwrap();
                }
            }
            a.flush().unwrap();
            got.extend(collect(&mut b, packets.len() - got.len()).into_iter().map(|(_, p)| p));
            prop_assert!(got == packets, "{} of {} packets, or another order", got.len(), packets.len());
            prop_assert!(segmentation || a.counters().segmented_sent == 0);
            prop_assert!(joining || b.counters().joined_received == 0);
        }
    }

    #[test]
    fn garbage_from_a_peer_arrives_as_it_is(datagrams in proptest::collection::vec(
        proptest::collection::vec(any::<u8>(), 0..200), 1..20)) {
        let peer = UdpSocket::bind(V4).unwrap();
        let mut port = open(V4);
        port.add_peer(peer.local_addr().unwrap()).unwrap();
        for datagram in &datagrams {
            peer.send_to(datagram, port.local_address()).unwrap();
        }
        let got: Vec<Vec<u8>> = collect(&mut port, datagrams.len()).into_iter().map(|(_, p)| p).collect();
        prop_assert_eq!(got, datagrams);
    }
}
