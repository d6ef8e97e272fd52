//! The port between the hosts of an owned lab.

use std::process::Command;
use std::time::{Duration, Instant};

use machine::XdpMode;
use machine::port::conformance::{self, Bench, Leaf, Star};

use super::*;
use crate::afxdp::{Mode, Options, Sender};
use linux::lab::testing::possible;
use linux::lab::{Host, Lab};

pub(super) const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct Hosts {
    pub lab: Lab,
    pub v6: bool,
    pub nic: NicOptions,
}

impl Hosts {
    pub fn new(options: &linux::lab::Options) -> Option<Hosts> {
        possible().then(|| Hosts { lab: Lab::owned(options).unwrap(), v6: false, nic: NicOptions::default() })
    }

    /// A lab for each family of addresses that this kernel has.
    pub fn of_both_families() -> impl Iterator<Item = Hosts> {
        [false, true].into_iter().filter_map(|v6| Hosts::of_family(v6, &Default::default()))
    }

    fn of_family(v6: bool, options: &linux::lab::Options) -> Option<Hosts> {
        let hosts = Hosts { v6, ..Hosts::new(options)? };
        if v6 && hosts.lab.address_v6(Host::A).is_none() {
            skip::part("this kernel has no IPv6");
            return None;
        }
        Some(hosts)
    }

    pub fn address(&self, host: Host) -> SocketAddr {
        let ip = if self.v6 { self.lab.address_v6(host).unwrap() } else { self.lab.address(host) };
        SocketAddr::new(ip, 0)
    }

    pub fn port(&self, host: Host) -> AfxdpPort {
        self.port_at(host, self.address(host))
    }

    pub fn port_at(&self, host: Host, at: SocketAddr) -> AfxdpPort {
        let open = || AfxdpPort::on(Nic::shared(self.lab.interface(host), &self.nic)?, at);
        self.lab.inside(host, open).unwrap().unwrap()
    }

    /// Two ports that are peers.
    pub fn pair(&self) -> (AfxdpPort, AfxdpPort, PeerIndex) {
        let (mut a, mut b) = (self.port(Host::A), self.port(Host::B));
        let to_b = a.add_peer(b.local_address()).unwrap();
        b.add_peer(a.local_address()).unwrap();
        (a, b, to_b)
    }

    /// A sender of arbitrary frames from host A to B.
    fn wire(&self) -> Sender {
        let options = Options { transmit_frames: 256, receive_frames: 0, ring: 512, ..Options::default() };
        self.lab.inside(Host::A, || Sender::open("lab0", &options)).unwrap().unwrap()
    }

    pub fn ip(&self, host: Host, arguments: &str) {
        let mut command = Command::new("ip");
        let ran = self.lab.enter(host, command.args(arguments.split(' '))).unwrap().output().unwrap();
        assert!(ran.status.success(), "ip {arguments}: {ran:?}");
    }
}

impl Bench for Hosts {
    type Port = AfxdpPort;

    fn star(&mut self, count: usize) -> Star<AfxdpPort> {
        let mut hub = self.port(Host::A);
        let mut join = || {
            let mut port = self.port(Host::B);
            let index = hub.add_peer(port.local_address()).unwrap();
            Leaf { hub: port.add_peer(hub.local_address()).unwrap(), port, index }
        };
        let leaves = (0..count).map(|_| join()).collect();
        Star { hub, leaves }
    }

    fn end(&mut self, leaf: AfxdpPort) {
        drop(leaf);
    }

    /// Only a packet that is refused tells that nobody listens any more.
    fn notices_ends(&self) -> bool {
        false
    }
}

pub(super) fn put(port: &mut AfxdpPort, to: PeerIndex, packet: &[u8]) {
    assert_eq!(port.send(to, packet.len(), |into| into.copy_from_slice(packet)).unwrap(), Sent::Taken);
    port.flush().unwrap();
}

/// Receives until `count` packets have come, or none comes any more.
pub(super) fn collect(port: &mut AfxdpPort, count: usize) -> Vec<Vec<u8>> {
    let (mut got, deadline) = (Vec::new(), Instant::now() + TIMEOUT);
    while got.len() < count && Instant::now() < deadline {
        if port.receive(64, |_, packet| got.push(packet.to_vec())).unwrap() == 0 {
            std::thread::yield_now();
        }
    }
    got
}

fn send_frame(wire: &mut Sender, frame: &[u8]) {
    until("the wire is full", || wire.place(frame.len(), |bytes| bytes.copy_from_slice(frame)).unwrap());
    wire.flush().unwrap();
}

pub(super) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn conforms(v6: bool, mtu: u16, hook: Option<XdpMode>) {
    let options = linux::lab::Options { mtu, ..Default::default() };
    let Some(mut hosts) = Hosts::of_family(v6, &options) else { return };
    hosts.nic.hook = hook;
    conformance::all(&mut hosts);
}

#[test]
fn the_port_conforms() {
    conforms(false, 1500, None);
}

#[test]
#[ignore = "make check"]
fn the_port_conforms_in_all_ways() {
    let hook = Some(XdpMode::Native);
    let all = [(true, 1500, None), (false, 1500, hook), (false, 9000, None), (false, 9000, hook), (true, 9000, hook)];
    all.into_iter().for_each(|(v6, mtu, hook)| conforms(v6, mtu, hook));
}

#[test]
fn packets_go_by_frames_once_the_neighbour_is_known_and_what_runs_is_told() {
    for hosts in Hosts::of_both_families() {
        // Chosen port numbers make checksums reproducible; none looks uncompleted.
        let at = |host: Host| SocketAddr::new(hosts.address(host).ip(), 7000);
        let (mut a, mut b) = (hosts.port_at(Host::A, at(Host::A)), hosts.port_at(Host::B, at(Host::B)));
        let to_b = a.add_peer(b.local_address()).unwrap();
        b.add_peer(a.local_address()).unwrap();
        assert_eq!(a.way(to_b), Some(Path::Asking));
        for number in 0..200u32 {
            put(&mut a, to_b, &number.to_le_bytes());
            assert_eq!(collect(&mut b, 1), [number.to_le_bytes()]);
        }
        assert_eq!(a.way(to_b), Some(Path::Frames));
        let (sent, came) = (a.counters(), b.counters());
        // The first packets made the kernel resolve the address; no others went by it.
        assert!(sent.frames_sent >= 150 && sent.frames_sent + sent.kernel_sent == 200, "{sent:?}");
        assert_eq!((came.frames_received, came.kernel_received), (sent.frames_sent, sent.kernel_sent), "{came:?}");
        let nic = b.nic().counters().unwrap();
        assert!(nic.redirected == sent.frames_sent && nic.passed_of_ours == sent.kernel_sent, "{nic:?}");
        let ran = a.nic().in_force();
        assert_eq!((ran.mode, ran.hook, ran.queue), (Mode::Copy, XdpMode::Generic, 0));
        assert!(ran.notes.iter().any(|note| note.starts_with("zero copy: ")), "{ran:?}");
    }
}

#[test]
fn bursts_go_by_the_kernel_and_arrive_whole() {
    for hosts in Hosts::of_both_families() {
        let (mut a, mut b, to_b) = hosts.pair();
        put(&mut a, to_b, b"first");
        collect(&mut b, 1);
        // Few enough packets that no buffer overflows.
        let packets: Vec<Vec<u8>> = (0..400u32).map(|n| n.to_le_bytes().repeat(1 + n as usize / 100 * 100)).collect();
        for packet in &packets {
            assert_eq!(a.send(to_b, packet.len(), |into| into.copy_from_slice(packet)).unwrap(), Sent::Taken);
        }
        a.flush().unwrap();
        let mut got = collect(&mut b, packets.len());
        got.sort_by_key(|packet| u32::from_le_bytes(*packet.first_chunk().unwrap()));
        assert!(got == packets, "{} of {} packets, or other ones", got.len(), packets.len());
        let (sent, kernel) = (a.counters(), a.kernel_counters());
        assert!(sent.burst_sent >= 390 && kernel.segmented_sent >= 390, "{sent:?} {kernel:?}");
        // Single packets go in frames again after a while.
        let frames = sent.frames_sent;
        for _ in 0..20 {
            put(&mut a, to_b, b"lone");
            assert_eq!(collect(&mut b, 1), [b"lone"]);
        }
        assert!(a.counters().frames_sent >= frames + 10, "{:?}", a.counters());
    }
}

#[test]
fn unknown_senders_are_kept_for_whoever_asks_and_no_more_than_a_few() {
    let Some(hosts) = Hosts::new(&Default::default()) else { return };
    let (mut a, mut b) = (hosts.port(Host::A), hosts.port(Host::B));
    let to_b = a.add_peer(b.local_address()).unwrap();
    let mut heard = Vec::new();
    for number in 0..300u32 {
        put(&mut a, to_b, &number.to_le_bytes());
    }
    until("no unknown sender is heard of", || {
        assert_eq!(b.receive(64, |_, _| ()).unwrap(), 0);
        b.unknown_senders(|from, packet| {
            assert_eq!(from, a.local_address());
            heard.push(packet.to_vec());
        });
        heard.len() > 20
    });
    for _ in 0..100 {
        b.receive(64, |_, _| ()).unwrap();
    }
    let before = heard.len();
    b.unknown_senders(|_, packet| heard.push(packet.to_vec()));
    // At most this many of each of the two paths at a time.
    assert!(heard.len() - before <= 2 * MOST_UNKNOWN, "{} packets were kept", heard.len() - before);
}

#[test]
fn neighbours_are_followed_and_asked_again() {
    for hosts in Hosts::of_both_families() {
        let (mut a, mut b, to_b) = hosts.pair();
        let mut exchange = |a: &mut AfxdpPort| {
            put(a, to_b, b"there?");
            assert_eq!(collect(&mut b, 1), [b"there?"]);
        };
        until("no frame leaves", || {
            exchange(&mut a);
            a.way(to_b) == Some(Path::Frames)
        });
        let notice = |a: &mut AfxdpPort| a.notices(|notice| panic!("{notice:?}")).unwrap();
        let other = "02:00:00:00:00:99";
        let ip = hosts.address(Host::B).ip();
        let replace = format!("neigh replace {ip} lladdr {other} dev lab0 nud permanent");
        hosts.ip(Host::A, &replace);
        let new = [2, 0, 0, 0, 0, 0x99];
        until("the new hardware address is not taken up", || {
            notice(&mut a);
            a.peers[to_b.0 as usize].template.as_ref().is_some_and(|template| template.to() == new)
        });
        hosts.ip(Host::A, &format!("neigh del {ip} dev lab0"));
        until("a neighbour that is gone is still used", || {
            notice(&mut a);
            a.way(to_b) == Some(Path::Asking)
        });
        until("the neighbour is not found again", || {
            exchange(&mut a);
            a.way(to_b) == Some(Path::Frames)
        });
        assert_ne!(a.peers[to_b.0 as usize].template.as_ref().unwrap().to(), new);
    }
}

#[test]
fn peers_behind_a_router_get_frames_by_its_hardware_address() {
    for hosts in Hosts::of_both_families() {
        // Routers of IPv6 have link-local addresses.
        let (behind, network, router) = match hosts.v6 {
            false => ("203.0.113.5", "203.0.113.0/24", hosts.lab.address(Host::B)),
            true => ("2001:2:0:1::5", "2001:2:0:1::/64", "fe80::b".parse().unwrap()),
        };
        if hosts.v6 {
            hosts.ip(Host::B, &format!("address add {router}/64 dev lab0 nodad"));
        }
        hosts.ip(Host::B, &format!("address add {behind} dev lo"));
        hosts.ip(Host::A, &format!("route add {network} via {router} dev lab0"));
        let mut a = hosts.port(Host::A);
        let mut b = hosts.port_at(Host::B, SocketAddr::new(behind.parse().unwrap(), 0));
        let to_b = a.add_peer(b.local_address()).unwrap();
        let to_a = b.add_peer(a.local_address()).unwrap();
        until("no frame leaves", || {
            put(&mut a, to_b, b"question");
            assert_eq!(collect(&mut b, 1), [b"question"]);
            put(&mut b, to_a, b"answer");
            assert_eq!(collect(&mut a, 1), [b"answer"]);
            a.way(to_b) == Some(Path::Frames) && b.way(to_a) == Some(Path::Frames)
        });
        assert_eq!(a.peers[0].next_hop, router);
    }
}

#[test]
#[ignore = "make check"]
fn who_cannot_be_reached_is_told_and_does_not_hold_up_the_others() {
    for hosts in Hosts::of_both_families() {
        let (mut a, mut b, to_b) = hosts.pair();
        let others: [&str; 4] = match hosts.v6 {
            false => ["203.0.113.1", "203.0.113.2", "203.0.113.3", "2001:2::9"],
            true => ["2001:2:0:1::1", "2001:2:0:1::2", "2001:2:0:1::3", "203.0.113.9"],
        };
        let [nowhere, silent, elsewhere, alien] = others.map(|ip| SocketAddr::new(ip.parse().unwrap(), 9));
        let fault = a.add_peer(nowhere).unwrap_err();
        assert!(fault.next().contains(&format!("ip route get {}", nowhere.ip())), "{fault}");
        hosts.ip(Host::A, &format!("route add {} dev lo", elsewhere.ip()));
        let fault = a.add_peer(elsewhere).unwrap_err();
        assert!(fault.cause().contains("another interface"), "{fault}");
        let fault = a.add_peer(alien).unwrap_err();
        assert!(fault.cause().contains("family"), "{fault}");
        // The address is on the link, but no host answers for it.
        hosts.ip(Host::A, &format!("route add {} dev lab0", silent.ip()));
        let silent = a.add_peer(silent).unwrap();
        until("that nobody answers is not told", || {
            put(&mut a, silent, b"anybody?");
            put(&mut a, to_b, b"you?");
            assert_eq!(collect(&mut b, 1), [b"you?"]);
            a.notices(|notice| panic!("{notice:?}")).unwrap();
            a.way(silent) == Some(Path::Unanswered)
        });
        assert_eq!(a.way(to_b), Some(Path::Frames));
    }
}

#[test]
fn what_cannot_be_opened_is_a_fault_with_a_next_step() {
    let Some(hosts) = Hosts::new(&Default::default()) else { return };
    let open = |interface: &str, at: &str| {
        let at: SocketAddr = at.parse().unwrap();
        hosts.lab.inside(Host::A, || AfxdpPort::open(interface, at).map(|_| ())).unwrap().unwrap_err()
    };
    assert!(open("none0", "127.0.0.1:0").next().contains("ip link"));
    let fault = open("lo", "127.0.0.1:0");
    assert!(fault.cause().contains("Ethernet"), "{fault}");
    let fault = open("lab0", "0.0.0.0:0");
    assert!(fault.next().contains("ip address show lab0"), "{fault}");
    let fault = open("lab0", "192.0.2.1:0");
    assert!(fault.next().contains("ip address"), "{fault}");
    // None of these leaves the queue busy.
    hosts.port(Host::A);
}

#[test]
fn a_link_that_goes_down_loses_packets_and_comes_back() {
    let Some(hosts) = Hosts::new(&Default::default()) else { return };
    let (mut a, mut b, to_b) = hosts.pair();
    until("no frame leaves", || {
        put(&mut a, to_b, b"up");
        collect(&mut b, 1);
        a.way(to_b) == Some(Path::Frames)
    });
    hosts.ip(Host::A, "link set lab0 down");
    for _ in 0..5000 {
        // The free frames run out, then the port is full.
        a.send(to_b, 4, |into| into.copy_from_slice(b"down")).unwrap();
        a.flush().unwrap();
        a.notices(|_| ()).unwrap();
    }
    hosts.ip(Host::A, "link set lab0 up");
    until("nothing arrives after the link is up again", || {
        a.send(to_b, 5, |into| into.copy_from_slice(b"again")).unwrap();
        a.flush().unwrap();
        a.notices(|_| ()).unwrap();
        let mut came = false;
        b.receive(64, |_, packet| came |= packet == b"again").unwrap();
        came && a.way(to_b) == Some(Path::Frames)
    });
}

/// On an interface of several queues a port has one; packets of the others come by the kernel socket.
#[test]
fn what_comes_by_another_queue_comes_by_the_kernel() {
    let Some(mut hosts) = Hosts::new(&Default::default()) else { return };
    // The lab's link has one queue each way: it is recreated with four.
    let mut resident = hosts.lab.enter(Host::B, Command::new("sleep").arg("60")).unwrap().spawn().unwrap();
    hosts.ip(Host::A, "link del lab0");
    let queues = "numtxqueues 4 numrxqueues 4";
    let made = format!("link add lab0 {queues} type veth peer name lab0 {queues} netns {}", resident.id());
    hosts.ip(Host::A, &made);
    for host in Host::BOTH {
        hosts.ip(host, "link set lab0 up");
        hosts.ip(host, &format!("address add {}/30 dev lab0", hosts.lab.address(host)));
    }
    let mut b = hosts.port(Host::B);
    hosts.nic.queue = Some(2);
    let mut a = hosts.port(Host::A);
    let to_b = a.add_peer(b.local_address()).unwrap();
    let to_a = b.add_peer(a.local_address()).unwrap();
    for _ in 0..200 {
        put(&mut a, to_b, b"by queue 2");
        assert_eq!(collect(&mut b, 1), [b"by queue 2"]);
        put(&mut b, to_a, b"by queue 0");
        assert_eq!(collect(&mut a, 1), [b"by queue 0"]);
    }
    assert_eq!((a.nic().in_force().queue, b.nic().in_force().queue), (2, 0));
    assert!(a.counters().frames_sent > 100 && b.counters().kernel_received > 100, "{:?}", b.counters());
    let _ = resident.kill();
    let _ = resident.wait();
}

/// Malformed frames among good ones: none does harm, each is counted by its reason.
#[test]
fn malformed_frames_from_the_wire_are_dropped_and_counted() {
    for hosts in Hosts::of_both_families() {
        let attacker = SocketAddr::new(hosts.address(Host::A).ip(), 4000);
        let mut b = hosts.port(Host::B);
        b.add_peer(attacker).unwrap();
        let mut wire = hosts.wire();
        let template = Template::new(([2, 0, 0, 0, 0, 7], attacker), (b.nic().hardware(), b.local_address()));
        let (ip_length, udp) = (if hosts.v6 { 18 } else { 16 }, template.headers() - 8);
        let good = |number: u32| {
            let payload = [&number.to_le_bytes()[..], &[0x5a; 60]].concat();
            let mut frame = vec![0; frame::length_of(template.headers(), payload.len())];
            frame[template.headers()..].copy_from_slice(&payload);
            template.write(&mut frame, payload.len());
            frame
        };
        let mut random = 0x1234_5678_9abc_def1u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random as usize
        };
        let mut good_ones = 0;
        let mut foreign = 0;
        for number in 0..3000u32 {
            let mut bad = good(number);
            match number % 6 {
                // False lengths in either header.
                0 => bad[ip_length..ip_length + 2].copy_from_slice(&(next() as u16).to_be_bytes()),
                1 => bad[udp + 4..udp + 6].copy_from_slice(&(next() as u16).to_be_bytes()),
                2 => bad.truncate(14 + next() % (bad.len() - 14)),
                3 => (0..1 + next() % 4).for_each(|_| {
                    let at = 14 + next() % (bad.len() - 14);
                    bad[at] = next() as u8;
                }),
                4 => {
                    let at = udp + 16 + next() % (bad.len() - udp - 16);
                    bad[at] ^= 1;
                }
                _ => bad = (0..60).map(|_| next() as u8).collect(),
            }
            send_frame(&mut wire, &bad);
            send_frame(&mut wire, &good(number));
            good_ones += 1;
            b.receive(64, |_, packet| {
                let content = packet.len() == 64 && packet[4..] == [0x5a; 60];
                foreign += usize::from(!content);
            })
            .unwrap();
        }
        until("frames are missing", || {
            b.receive(64, |_, _| ()).unwrap();
            let nic = b.nic().counters().unwrap();
            nic.redirected == nic.received && b.counters().frames_received + b.counters().kernel_received >= good_ones
        });
        let nic = b.nic().counters().unwrap();
        let dropped = nic.dropped;
        assert!(dropped.checksum >= 500 && dropped.lengths + dropped.truncated >= 100, "{dropped:?}");
        // Two changed bytes may cancel out, and a checksum may become 'none'; otherwise changed content is never delivered.
        assert!(foreign <= 3, "{foreign} packets of other content");
        assert_eq!(nic.kernel.dropped, 0, "{nic:?}");
    }
}

/// Extension headers between those of IPv6 and UDP are parsed by the kernel only.
#[test]
fn extension_headers_and_fragments_of_ipv6_come_by_the_kernel() {
    let Some(hosts) = Hosts::of_family(true, &Default::default()) else { return };
    let from = SocketAddr::new(hosts.address(Host::A).ip(), 4000);
    // A port number for which no checksum looks uncompleted.
    let mut b = hosts.port_at(Host::B, SocketAddr::new(hosts.address(Host::B).ip(), 7000));
    b.add_peer(from).unwrap();
    let mut wire = hosts.wire();
    let template = Template::new(([2, 0, 0, 0, 0, 7], from), (b.nic().hardware(), b.local_address()));
    let datagram = |payload: &[u8]| {
        let mut frame = vec![0; frame::length_of(template.headers(), payload.len())];
        frame[template.headers()..].copy_from_slice(payload);
        template.write(&mut frame, payload.len());
        frame
    };
    // The same datagram, or its part `range`, behind an extension header of 8 bytes.
    let behind = |frame: &[u8], kind: u8, header: [u8; 8], range: std::ops::Range<usize>| {
        let datagram = &frame[54..][range];
        let mut packet = [&frame[..54], &header, datagram].concat();
        packet[18..20].copy_from_slice(&(8 + datagram.len() as u16).to_be_bytes());
        packet[20] = kind;
        packet
    };
    let padding = [17, 0, 1, 4, 0, 0, 0, 0];
    let fragment = |offset: u16, more: u16, number: u8| {
        let [high, low] = (offset | more).to_be_bytes();
        [17, 0, high, low, 0, 0, 0, number]
    };
    for number in 0..100u8 {
        let payload = [number; 200];
        let whole = datagram(&payload);
        // Hop-by-hop and destination options.
        for kind in [0, 60] {
            send_frame(&mut wire, &behind(&whole, kind, padding, 0..208));
            assert_eq!(collect(&mut b, 1), [payload]);
        }
        send_frame(&mut wire, &behind(&whole, 44, fragment(0, 1, number), 0..104));
        send_frame(&mut wire, &behind(&whole, 44, fragment(104, 0, number), 104..208));
        assert_eq!(collect(&mut b, 1), [payload]);
        send_frame(&mut wire, &whole);
        assert_eq!(collect(&mut b, 1), [payload]);
    }
    // Such headers also precede other protocols, as in the kernel's reports of multicast groups.
    send_frame(&mut wire, &behind(&datagram(&[0; 200]), 0, [58, 0, 1, 4, 0, 0, 0, 0], 0..208));
    send_frame(&mut wire, &datagram(b"last"));
    assert_eq!(collect(&mut b, 1), [b"last"]);
    let counted = b.counters();
    assert_eq!((counted.kernel_received, counted.frames_received), (300, 101), "{counted:?}");
    assert_eq!(b.nic().counters().unwrap().passed_of_ours, 400);
}
