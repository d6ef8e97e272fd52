//! The port between two hosts: real MTUs, a veth's segmentation, a link slower than its senders.

use std::net::IpAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use super::*;
use linux::lab::{Host, Lab, Options};

fn lab(options: &Options) -> Option<Lab> {
    linux::lab::testing::possible().then(|| Lab::owned(options).unwrap())
}

fn pair(lab: &Lab, address: impl Fn(Host) -> IpAddr) -> (UdpPort, UdpPort, PeerIndex) {
    let open = |host: Host| {
        let at = SocketAddr::new(address(host), 0);
        lab.inside(host, || UdpPort::open(at)).unwrap().unwrap()
    };
    let (mut a, mut b) = (open(Host::A), open(Host::B));
    let to_b = a.add_peer(b.local_address()).unwrap();
    b.add_peer(a.local_address()).unwrap();
    // The first packet waits for the neighbour's address; the kernel drops packets beyond its short queue.
    exchange(&mut a, &mut b, to_b, &[vec![0; 1]]);
    (a, b, to_b)
}

/// Sends all packets, again where the port is full, and returns those that arrived when no more come.
fn exchange(a: &mut UdpPort, b: &mut UdpPort, to_b: PeerIndex, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    let mut waiting = packets.iter().peekable();
    let mut patience = Instant::now() + Duration::from_secs(30);
    while got.len() < packets.len() && Instant::now() < patience {
        while let Some(packet) = waiting.peek() {
            if a.send(to_b, packet.len(), |room| room.copy_from_slice(packet)).unwrap() == Sent::Full {
                break;
            }
            waiting.next();
        }
        a.flush().unwrap();
        if b.receive(64, |_, packet| got.push(packet.to_vec())).unwrap() > 0 {
            patience = Instant::now() + Duration::from_secs(30);
        } else {
            std::thread::yield_now();
        }
    }
    got
}

#[test]
fn the_mtu_is_the_routes_and_full_packets_pass_whole() {
    for (mtu, v4, v6) in [(1500, 1472, 1452), (9000, 8972, 8952)] {
        let Some(lab) = lab(&Options { mtu, ..Options::default() }) else { return };
        let check = |address: &dyn Fn(Host) -> IpAddr, expected: usize| {
            let (mut a, mut b, to_b) = pair(&lab, address);
            assert_eq!(a.capabilities().mtu, Bytes(expected as u64));
            let packets: Vec<Vec<u8>> = (0..30u8).map(|i| vec![i; expected]).chain([vec![1; 17]]).collect();
            assert!(exchange(&mut a, &mut b, to_b, &packets) == packets, "packets of {expected} bytes");
            let counters = a.counters();
            assert_eq!((counters.unsendable, counters.segmentation_refused), (0, 0), "{counters:?}");
            if a.features().segmentation {
                assert_eq!(counters.segmented_sent, 31, "{counters:?}");
                assert!(counters.send_calls * 5 <= 31, "{counters:?}");
            }
        };
        check(&|host| lab.address(host), v4);
        match lab.address_v6(Host::A) {
            Some(_) => check(&|host| lab.address_v6(host).unwrap(), v6),
            None => skip::part("this kernel has no IPv6"),
        }
    }
}

/// A link of 10 MB/s behind a small socket buffer: the port fills, says so, and loses nothing.
#[test]
fn a_full_socket_buffer_holds_packets_back() {
    let Some(lab) = lab(&Options::default()) else { return };
    let (mut a, mut b, to_b) = pair(&lab, |host| lab.address(host));
    let mut tc = Command::new("tc");
    let interface = lab.interface(Host::A);
    tc.args(["qdisc", "add", "dev", interface, "root", "tbf", "rate", "80mbit", "burst", "10kb", "latency", "5s"]);
    match lab.enter(Host::A, &mut tc).unwrap().output() {
        Ok(ran) if ran.status.success() => {}
        other => return skip::test(format_args!("no slow link here: {other:?}")),
    }
    sockopt::set_socket_send_buffer_size(&a.socket, 32 << 10).unwrap();
    let packets: Vec<Vec<u8>> = (0..1500u32).map(|i| i.to_le_bytes().repeat(250)).collect();
    // The link is served from whichever core has just sent, so that packets may be reordered.
    let number = |packet: &Vec<u8>| u32::from_le_bytes(*packet.first_chunk().unwrap());
    let mut got = exchange(&mut a, &mut b, to_b, &packets);
    got.sort_by_key(number);
    assert!(got == packets, "{} of {} packets, or others", got.len(), packets.len());
    let counters = a.counters();
    assert!(counters.full > 0 && counters.unsendable == 0, "{counters:?}");
}

#[test]
fn a_host_that_is_not_there_does_not_hold_up_the_others() {
    let Some(lab) = lab(&Options::default()) else { return };
    let (mut a, mut b, to_b) = pair(&lab, |host| lab.address(host));
    let nowhere = SocketAddr::new("203.0.113.1".parse().unwrap(), 9);
    let fault = a.add_peer(nowhere).unwrap_err();
    assert!(fault.next().contains("ip route"), "{fault}");
    // The address is on the link, but no host answers for it.
    let mut route = Command::new("ip");
    route.args(["route", "add", "203.0.113.2/32", "dev", lab.interface(Host::A)]);
    assert!(lab.enter(Host::A, &mut route).unwrap().status().unwrap().success());
    let to_silent = a.add_peer(SocketAddr::new("203.0.113.2".parse().unwrap(), 9)).unwrap();
    let mut got = 0;
    for i in 0..200u8 {
        a.send(to_silent, 8, |room| room.fill(i)).unwrap();
        a.send(to_b, 8, |room| room.fill(i)).unwrap();
        a.flush().unwrap();
        got += b.receive(64, |_, packet| assert_eq!(packet.len(), 8)).unwrap();
    }
    let patience = Instant::now() + Duration::from_secs(30);
    while got < 200 && Instant::now() < patience {
        got += b.receive(64, |_, _| {}).unwrap();
    }
    assert_eq!(got, 200);
}
