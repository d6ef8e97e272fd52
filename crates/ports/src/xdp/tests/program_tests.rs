//! The program's work on each kind of packet.

use std::process::Command;

use linux::xdp::Interface;

use super::super::layout::SLOTS;
use super::*;

#[test]
fn packets_in_order_are_placed_and_acknowledged_while_the_application_sleeps() {
    let Some(lab) = lab() else { return };
    for ips in families(&lab) {
        for mode in [XdpMode::Native, XdpMode::Generic] {
            let mut pair = Pair::new(&lab, ips, mode);
            let found = pair.port.prove().unwrap();
            assert_eq!((found.mode, found.name.as_deref()), (mode, Some("receive")));
            (0..160).for_each(|number| pair.send_number(number, 0));
            // The port is not polled: only the program can acknowledge.
            for acknowledged in 1..=10 {
                assert_eq!(pair.next_acknowledgement(), (16 * acknowledged, 0));
            }
            pair.send_number(160, PING);
            assert_eq!(pair.next_acknowledgement(), (161, 0));
            assert_eq!(pair.acknowledgement(), None);

            pair.until("all packets", |pair| pair.got.len() == 161);
            assert_eq!(pair.numbers(), (0..161).collect::<Vec<_>>());
            for (number, packet) in pair.got.iter().enumerate() {
                let told = number % 16 == 15 || number == 160;
                assert_eq!(word(packet, 12) & 0xffff, CARRIES | if told { ACKNOWLEDGED } else { 0 }, "packet {number}");
            }
            let counted = pair.port.lane_counters();
            assert_eq!((counted.placed, counted.acknowledged, counted.duplicated, counted.full), (161, 11, 0, 0));
            // One packet came by the socket: the introduction.
            assert_eq!(pair.port.counters().packets_received, 1);
        }
    }
}

#[test]
fn doubles_are_dropped_and_gaps_told() {
    let Some(lab) = lab() else { return };
    for ips in families(&lab) {
        let mut pair = Pair::new(&lab, ips, XdpMode::Native);
        for number in [0, 1, 1, 3, 5, 5, 2, 4] {
            pair.send_number(number, 0);
        }
        let told: Vec<_> = (0..6).map(|_| pair.next_acknowledgement()).collect();
        // Packet 1 again; 3 and 5 beyond 2, then 5 again; then 2 and 4, which fill gaps.
        assert_eq!(told, [(2, 0), (2, 0b1), (2, 0b101), (2, 0b101), (4, 0b1), (6, 0)]);
        pair.until("all packets", |pair| pair.got.len() == 6);
        assert_eq!(pair.numbers(), [0, 1, 3, 5, 2, 4]);
        let counted = pair.port.lane_counters();
        assert_eq!((counted.placed, counted.duplicated, counted.ahead), (6, 2, 2));
    }
}

#[test]
fn what_the_program_does_not_know_comes_by_the_socket() {
    let Some(lab) = lab() else { return };
    for ips in families(&lab) {
        let mut pair = Pair::new(&lab, ips, XdpMode::Native);
        let stale = packet(SESSION + 1, FIRST, 0, CARRIES, b"another session");
        let far = packet(SESSION, FIRST.wrapping_add(65), 0, CARRIES, b"too far ahead");
        let odd = packet(SESSION, FIRST, 0, 8, b"");
        let joined = [packet(SESSION, FIRST, 0, CARRIES, b"one"), packet(SESSION, FIRST, 0, CARRIES, b"two")].concat();
        for bytes in [&stale, &far, &odd, &joined, &b"short".to_vec(), &Vec::new()] {
            pair.got.clear();
            pair.send(bytes);
            pair.until("a packet by the socket", |pair| !pair.got.is_empty());
            assert_eq!(pair.got, std::slice::from_ref(bytes), "as it was sent");
        }
        let counted = pair.port.lane_counters();
        assert_eq!((counted.unknown, counted.far, counted.long), (1, 1, 1));
        assert_eq!((counted.placed, counted.acknowledged), (0, 0));
        // The introduction is included.
        assert_eq!(counted.foreign, 4);
    }
}

/// The engine acknowledges packets that came by the socket; the program learns of them from that.
#[test]
fn the_program_learns_what_came_by_other_ways() {
    let Some(lab) = lab() else { return };
    for ips in families(&lab) {
        let mut pair = Pair::new(&lab, ips, XdpMode::Native);
        // 10 and 11 are there, 0..10 came by the socket.
        for number in [10, 11] {
            pair.send_number(number, 0);
            assert_eq!(pair.next_acknowledgement().0, 0);
        }
        let telling = packet(SESSION, 0, FIRST.wrapping_add(10), 0, b"");
        let Pair { port, peer, .. } = &mut pair;
        port.send(*peer, telling.len(), |into| into.copy_from_slice(&telling)).unwrap();
        port.flush().unwrap();
        assert_eq!(pair.next_acknowledgement().0, 10, "by the port's own packet");
        pair.send_number(13, 0);
        assert_eq!(pair.next_acknowledgement(), (12, 0b1));
        pair.send_number(12, PING);
        assert_eq!(pair.next_acknowledgement(), (14, 0));
        // An older acknowledgement changes nothing.
        let Pair { port, peer, .. } = &mut pair;
        let telling = packet(SESSION, 0, FIRST.wrapping_add(3), 0, b"");
        port.send(*peer, telling.len(), |into| into.copy_from_slice(&telling)).unwrap();
        port.flush().unwrap();
        assert_eq!(pair.next_acknowledgement().0, 3);
        pair.send_number(14, PING);
        assert_eq!(pair.next_acknowledgement(), (15, 0));
    }
}

/// With a quarter of the slots waiting, packets find room, but the peer is not told to go on; with all waiting they are dropped.
#[test]
fn a_full_lane_holds_the_peer_back_and_goes_on() {
    let Some(lab) = lab() else { return };
    for ips in families(&lab) {
        let mut pair = Pair::new(&lab, ips, XdpMode::Native);
        let slots = SLOTS as u32;
        for number in 0..slots + 10 {
            pair.send_number(number, 0);
            if number % 64 == 0 {
                pair.seen(u64::from(number));
            }
        }
        pair.seen(u64::from(slots) + 10);
        let told = std::iter::from_fn(|| pair.acknowledgement()).last();
        assert_eq!(told, Some((slots / 4, 0)), "what came after the lane was a quarter full");
        pair.send_number(slots + 10, PING);
        assert_eq!(pair.next_acknowledgement(), (slots / 4, 0), "a sign of life");
        let counted = pair.port.lane_counters();
        assert_eq!((counted.placed, counted.full, counted.held_back), (u64::from(slots), 11, 1));

        pair.until("what was placed", |pair| pair.got.len() == SLOTS);
        // Dropped packets were not acknowledged: the peer sends them again.
        (slots..slots + 11).for_each(|number| pair.send_number(number, PING));
        pair.until("the rest", |pair| pair.got.len() == SLOTS + 11);
        assert_eq!(pair.numbers(), (0..slots + 11).collect::<Vec<_>>());
        assert_eq!(std::iter::from_fn(|| pair.acknowledgement()).last(), Some((slots + 11, 0)));
    }
}

#[test]
fn lanes_are_apart_and_end_with_their_ports() {
    let Some(lab) = lab() else { return };
    for ips in families(&lab) {
        let hook = hook(&lab, Host::B, XdpMode::Native);
        let mut ports: Vec<XdpPort> = (0..3).map(|_| XdpPort::at(udp(&lab, Host::B, ips[1]), &hook).unwrap()).collect();
        let from = (ips[0], 0);
        let socket = lab.inside(Host::A, || UdpSocket::bind(from).unwrap()).unwrap();
        for port in &mut ports {
            let peer = port.add_peer(socket.local_addr().unwrap()).unwrap();
            assert!(port.sequence(peer, 5, 0));
            assert!(port.sequence(peer, 5, 0), "once more changes nothing");
        }
        let exchange = |port: &mut XdpPort, sequence: u32, session: u32| {
            socket.send_to(&packet(session, sequence, 0, CARRIES | PING, b"x"), port.local_address()).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let mut bytes = [0; 24];
            assert_eq!(socket.recv_from(&mut bytes).unwrap(), (24, port.local_address()));
            assert_eq!((word(&bytes, 0), word(&bytes, 8)), (session, sequence + 1));
            let mut came = 0;
            while port.receive(1, |_, _| came += 1).unwrap() == 0 {}
            assert_eq!(came, 1);
        };
        for round in 0..3 {
            ports.iter_mut().for_each(|port| exchange(port, round, 5));
        }
        // A new session with the same peer starts at its own number.
        assert!(ports[0].sequence(PeerIndex(0), 6, 1000));
        exchange(&mut ports[0], 1000, 6);
        assert_eq!(ports.iter().map(|port| port.lane_counters().placed).collect::<Vec<_>>(), [4, 3, 3]);

        // The lane of a closed port is free for another.
        for round in 0..100 {
            let mut port = XdpPort::at(udp(&lab, Host::B, ips[1]), &hook).unwrap();
            if round % 20 == 0 {
                let peer = port.add_peer(socket.local_addr().unwrap()).unwrap();
                assert!(port.sequence(peer, 5, round));
                exchange(&mut port, round, 5);
            }
        }
        exchange(&mut ports[1], 3, 5);
    }
}

#[test]
fn a_lane_is_given_for_a_socket_of_the_interfaces_namespace_only() {
    let Some(lab) = lab() else { return };
    let hook = hook(&lab, Host::B, XdpMode::Native);
    let refused = |udp: UdpPort| XdpPort::at(udp, &hook).map(drop).unwrap_err().to_string();
    assert!(refused(udp(&lab, Host::A, lab.address(Host::A))).contains("another network namespace"));
    let at = |text: &str| {
        let address: SocketAddr = text.parse().unwrap();
        lab.inside(Host::B, || UdpPort::open(address).unwrap()).unwrap()
    };
    assert!(refused(at("0.0.0.0:0")).contains("not bound to one address"));
    if lab.address_v6(Host::B).is_none() {
        return skip::part("this kernel has no IPv6");
    }
    assert!(refused(at("[::]:0")).contains("not bound to one address"));
    // Link-local addresses of another link than the interface's are refused.
    for arguments in
        ["link add other0 type veth peer name other1", "link set other0 up", "address add fe80::c/64 dev other0 nodad"]
    {
        let mut ip = Command::new("ip");
        let ran = lab.enter(Host::B, ip.args(arguments.split(' '))).unwrap().status().unwrap();
        assert!(ran.success(), "ip {arguments}");
    }
    let scope = lab.inside(Host::B, || Interface::named("other0").unwrap().index()).unwrap();
    assert!(refused(at(&format!("[fe80::c%{scope}]:0"))).contains("another interface's link"));
}

#[test]
fn an_address_of_another_interface_is_a_fault() {
    let Some(lab) = lab() else { return };
    let open = |at: &str| XdpPort::open(at.parse().unwrap(), lab.interface(Host::B)).map(drop).unwrap_err().to_string();
    let said = lab.inside(Host::B, || open("127.0.0.1:0")).unwrap();
    assert!(said.contains("an address of lo"), "{said}");
}

/// Whatever arrives, the program terminates and the lane stays intact.
#[test]
fn frames_with_any_bytes_changed_do_no_harm() {
    let Some(lab) = lab() else { return };
    for ips in families(&lab) {
        let mut pair = Pair::new(&lab, ips, XdpMode::Native);
        let hook = pair.hook.clone();
        let try_frame = |frame: &[u8]| hook.program().unwrap().try_frame(frame).unwrap();
        assert_eq!(try_frame(&pair.frame(SESSION, FIRST, b"0000")), 1, "placed and dropped");

        let seed =
            std::env::var("PLIMSOLL_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0x1234_5678_9ABC_DEF1);
        eprintln!("replay with PLIMSOLL_SEED={seed}");
        let headers = pair.frame(SESSION, FIRST, b"").len();
        let mut state: u64 = seed | 1;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for round in 0..20_000u32 {
            let sequence = FIRST.wrapping_add(random() as u32 % 8);
            let mut frame = pair.frame(SESSION, sequence, &vec![7; 1 + random() as usize % 1400]);
            for _ in 0..1 + random() % 3 {
                // Mostly headers.
                let span = if random() % 4 == 0 { frame.len() } else { headers };
                let at = random() as usize % span;
                frame[at] = if random() % 2 == 0 { random() as u8 } else { frame[at] ^ 1 << (random() % 8) };
            }
            if random() % 8 == 0 {
                frame.truncate(14 + random() as usize % (frame.len() - 14));
            }
            let verdict = try_frame(&frame);
            assert!((1..=4).contains(&verdict), "round {round}: verdict {verdict}");
            pair.receive();
        }
        // The table holds the one session, and the lane goes on.
        pair.got.clear();
        pair.send_number(1000, PING);
        pair.until("an answer of some kind", |pair| !pair.got.is_empty());
        let counted = pair.port.lane_counters();
        assert!(counted.placed > 0 && counted.foreign > 0 && counted.unknown > 0, "{counted:?}");
    }
}

/// Frames of two conversations on two cores at the same time: the lock gives each its own slots, in order.
#[test]
fn two_cores_share_a_lane() {
    const PACKETS: u32 = 1000;
    let Some(lab) = lab() else { return };
    for ips in families(&lab) {
        let mut pair = Pair::new(&lab, ips, XdpMode::Native);
        let sessions = [SESSION, SESSION + 1];
        let second = lab.inside(Host::A, || UdpSocket::bind((ips[0], 0)).unwrap()).unwrap();
        let second_peer = pair.port.add_peer(second.local_addr().unwrap()).unwrap();
        assert!(pair.port.sequence(second_peer, sessions[1], FIRST));
        let from = [pair.socket.local_addr().unwrap(), second.local_addr().unwrap()];
        let (to, hook) = (pair.port.local_address(), pair.hook.clone());
        let mut came: [Vec<u32>; 2] = Default::default();
        std::thread::scope(|scope| {
            for (session, from) in sessions.into_iter().zip(from) {
                let program = hook.program().unwrap();
                scope.spawn(move || {
                    for number in 0..PACKETS {
                        let frame = frame(from, to, session, FIRST.wrapping_add(number), &number.to_le_bytes());
                        program.try_frame(&frame).unwrap();
                    }
                });
            }
            let end = Instant::now() + skip::LIMIT;
            while came.iter().any(|came| came.len() < PACKETS as usize) {
                assert!(Instant::now() < end, "{:?}", pair.port.lane_counters());
                let deliver =
                    |from: PeerIndex, packet: &[u8]| came[usize::from(from == second_peer)].push(word(packet, 24));
                pair.port.receive(64, deliver).unwrap();
            }
        });
        assert_eq!(came, [(); 2].map(|()| (0..PACKETS).collect::<Vec<_>>()));
        assert_eq!(pair.port.lane_counters().placed, 2 * u64::from(PACKETS));
    }
}

/// Packets that look like those of a conversation but are not.
#[test]
fn ipv6_is_told_apart_by_whole_addresses_and_read_without_extension_headers() {
    const PASS: u32 = 2;
    let Some(lab) = lab() else { return };
    let Some(&ips) = families(&lab).get(1) else { return };
    let pair = Pair::new(&lab, ips, XdpMode::Native);
    let introduced = pair.port.lane_counters();
    let try_frame = |frame: &[u8]| pair.hook.program().unwrap().try_frame(frame).unwrap();
    let good = pair.frame(SESSION, FIRST, b"0000");

    // An address that gives the table's word of the peer: the same words in another order.
    let mut other = good.clone();
    other[22..38].rotate_right(4);
    assert_eq!(try_frame(&other), PASS);
    assert_eq!(pair.port.lane_counters().unknown, introduced.unknown + 1);

    // Without a checksum, with bytes behind the packet.
    let mut bare = good.clone();
    bare[60..62].fill(0);
    assert_eq!(try_frame(&bare), PASS);
    let mut long = good.clone();
    long[19] -= 1;
    assert_eq!(try_frame(&long), PASS);
    assert_eq!(pair.port.lane_counters().foreign, introduced.foreign + 2);

    // Behind hop-by-hop options, a routing header, a fragment header, destination options.
    for kind in [0, 43, 44, 60] {
        let mut behind = [&good[..54], &[17, 0, 1, 4, 0, 0, 0, 0], &good[54..]].concat();
        behind[19] += 8;
        behind[20] = kind;
        assert_eq!(try_frame(&behind), PASS);
    }
    assert_eq!(pair.port.lane_counters().placed, 0);
    assert_eq!(try_frame(&good), 1, "placed and dropped");
    assert_eq!(pair.port.lane_counters().placed, 1);
}
