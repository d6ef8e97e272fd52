//! Frames made in the kernel on one host of a lab and received at the driver hook of the other, counted at both ends.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use linux::lab::{Host, Lab, Options};
use linux::xdp::Interface;
use machine::{Nanoseconds, XdpMode};
use offcode::call::{Header, Kind};
use offcode::manifest::{self, Manifest};
use offcode::{Channel as _, Guid};
use runtime::site::xdp::XdpSite;
use runtime::site::{Code, Deployment, SiteDriver as _};
use traffic::control::{Asked, ControlBlock, Entry, Pacing, State};
use traffic::kernel_sender::KernelSender;
use traffic::receiver::{Expected, Receiver};
use traffic::socket_receiver::SocketReceiver;

const PORT: u16 = 4321;
const TAG: u16 = 0x1d7;

fn lab() -> Option<Lab> {
    if let Some(why) = bpf::MISSING {
        skip::test(why);
        return None;
    }
    Lab::owned(&Options::default()).inspect_err(|why| skip::test(why)).ok()
}

/// Headers from host a to host b, whose driver does not look at the Ethernet addresses.
fn template(from: IpAddr, to: IpAddr, length: usize) -> Vec<u8> {
    let mut frame = vec![2; 12];
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            frame.extend([0x08, 0x00, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0]);
            frame.extend([from.octets(), to.octets()].concat());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 17, 64]);
            frame.extend([from.octets(), to.octets()].concat());
        }
        _ => unreachable!("both hosts have both"),
    }
    frame.extend([9u16.to_be_bytes(), PORT.to_be_bytes()].concat());
    frame.resize(length, 0);
    frame
}

fn expected(target: u64) -> Expected {
    Expected { tag: TAG, port: PORT, target: Nanoseconds(target), burst: Nanoseconds(0), timing: true, pass: false }
}

fn asked(lab: &Lab, pacing: Pacing, table: &[(u16, u64)], frames: u64) -> Asked {
    let longest = table.iter().map(|entry| entry.0).max().unwrap();
    Asked {
        pacing,
        table: table.iter().map(|&(length, gap)| Entry { length, gap: Nanoseconds(gap) }).collect(),
        template: template(lab.address(Host::A), lab.address(Host::B), longest.into()),
        tag: TAG,
        udp_checksum: false,
        frames: Some(frames),
        start: None,
        end: None,
    }
}

fn receiver(lab: &Lab, target: u64) -> Receiver {
    lab.inside(Host::B, || Receiver::attach(lab.interface(Host::B), XdpMode::Native, expected(target)))
        .unwrap()
        .unwrap()
}

fn sender(lab: &Lab) -> KernelSender {
    lab.inside(Host::A, || KernelSender::open(lab.interface(Host::A))).unwrap().unwrap()
}

fn unshielded() -> machine::Result<Box<dyn std::any::Any>> {
    Ok(Box::new(()))
}

/// Waits until `receiver` has counted so many, or nothing more comes.
fn settle(receiver: &Receiver, frames: u64) {
    let until = Instant::now() + Duration::from_secs(10);
    while receiver.received() < frames && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn at_full_rate_what_is_sent_arrives_or_is_counted_as_lost() {
    let Some(lab) = lab() else { return };
    let (receiver, sender) = (receiver(&lab, 0), sender(&lab));
    sender
        .block()
        .ask(&asked(&lab, Pacing::Rate { clock_every: 16 }, &[(60, 0), (128, 0), (1514, 0)], 30_000))
        .unwrap();
    let running = sender.start(None, unshielded).unwrap();
    let block = running.block().clone();
    running.join().unwrap();
    let sent = block.progress();
    assert_eq!((sent.state, sent.sent, sent.errors), (State::Finished, 30_000, 0));
    assert_eq!(sent.bytes, 10_000 * (60 + 128 + 1514));
    settle(&receiver, 30_000);
    let arrived = receiver.read();
    // A ring that overflows drops; nothing else does.
    assert_eq!(
        arrived.received + arrived.lost + (29_999 - arrived.highest.unwrap()) + arrived.lowest,
        30_000,
        "{arrived:?}"
    );
    assert!(
        arrived.received > 0 && arrived.duplicated == 0 && arrived.reordered == 0 && arrived.stale == 0,
        "{arrived:?}"
    );
    if arrived.lost == 0 && arrived.received == 30_000 {
        assert_eq!(arrived.bytes, sent.bytes, "sizes follow the table");
    }
    assert_eq!(receiver.prove().unwrap().mode, XdpMode::Native);
}

#[test]
fn paced_frames_leave_in_the_order_and_number_asked_for_and_stop_stops() {
    let Some(lab) = lab() else { return };
    let (receiver, sender) = (receiver(&lab, 50_000), sender(&lab));
    let paced = Pacing::Paced { late: Nanoseconds(1000) };
    // As many as the peer's ring holds: none is lost, however late the receiving side gets its core.
    sender.block().ask(&asked(&lab, paced, &[(60, 50_000), (200, 50_000)], 200)).unwrap();
    let before = Instant::now();
    let running = sender.start(None, unshielded).unwrap();
    let block = running.block().clone();
    running.join().unwrap();
    // Never faster than the table says.
    assert!(before.elapsed() >= Duration::from_micros(50 * 199));
    settle(&receiver, 200);
    let arrived = receiver.read();
    assert_eq!((arrived.received, arrived.lost, arrived.bytes), (200, 0, 100 * 260), "{arrived:?}");
    let sent = block.progress();
    assert!(sent.last.0 - sent.first.0 + sent.latest.0 >= 50_000 * 199);
    assert_eq!(arrived.gaps.unwrap().count, 199);

    let sender = self::sender(&lab);
    sender.block().ask(&Asked { frames: None, ..asked(&lab, paced, &[(60, 1_000_000_000)], 1) }).unwrap();
    let running = sender.start(None, unshielded).unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while running.block().progress().sent == 0 {
        assert!(Instant::now() < until);
    }
    running.stop().unwrap();
}

#[test]
fn the_kernel_accepts_the_checksums_of_both_versions() {
    let Some(lab) = lab() else { return };
    for version in [4, 6] {
        let addresses = match version {
            4 => (lab.address(Host::A), lab.address(Host::B)),
            _ => match (lab.address_v6(Host::A), lab.address_v6(Host::B)) {
                (Some(a), Some(b)) => (a, b),
                _ => return skip::part("this kernel has no IPv6"),
            },
        };
        // A socket takes no datagram with a wrong checksum, and has room for 40 pages; frames go to the host's own Ethernet address.
        let (socket, mac) = lab
            .inside(Host::B, || {
                let socket = std::net::UdpSocket::bind((addresses.1, PORT)).unwrap();
                socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                (socket, std::fs::read_to_string(format!("/sys/class/net/{}/address", lab.interface(Host::B))).unwrap())
            })
            .unwrap();
        let mac: Vec<u8> = mac.trim().split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        let sender = sender(&lab);
        let mut ask =
            asked(&lab, Pacing::Paced { late: Nanoseconds(0) }, &[(90, 100_000), (91, 100_000), (401, 100_000)], 30);
        ask.template = template(addresses.0, addresses.1, 401);
        ask.template[..6].copy_from_slice(&mac);
        ask.udp_checksum = true;
        sender.block().ask(&ask).unwrap();
        sender.start(None, unshielded).unwrap().join().unwrap();
        let mut buffer = [0; 2000];
        let headers = if version == 4 { 42 } else { 62 };
        for number in 0..30u64 {
            let length = socket.recv(&mut buffer).unwrap_or_else(|error| panic!("IPv{version}, {number}: {error}"));
            assert_eq!(length, [90, 91, 401][number as usize % 3] - headers);
            let (tag, sequence, time) = traffic::stamp::read(&buffer[..length]).unwrap();
            assert_eq!((tag, sequence), (TAG, number));
            assert!(time.0 > 0 && buffer[16..length].iter().all(|&byte| byte == 0));
        }
    }
}

#[test]
fn a_socket_receives_where_it_is_asked_for_by_name() {
    let Some(lab) = lab() else { return };
    let bind = || SocketReceiver::bind(lab.address(Host::B), expected(200_000), None);
    let (receiver, mac) = lab.inside(Host::B, || (bind().unwrap(), address(&lab))).unwrap();
    let sender = sender(&lab);
    let mut ask = asked(&lab, Pacing::Paced { late: Nanoseconds(0) }, &[(90, 200_000)], 100);
    ask.template[..6].copy_from_slice(&mac);
    sender.block().ask(&ask).unwrap();
    sender.start(None, unshielded).unwrap().join().unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while receiver.read().received < 100 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    let found = receiver.read();
    assert_eq!((found.received, found.lost, found.bytes), (100, 0, 9000), "{found:?}");
    assert_eq!(found.gaps.unwrap().count, 99);
    assert!(receiver.note().contains("as asked"));
}

/// The Ethernet address of host b, seen from inside.
fn address(lab: &Lab) -> Vec<u8> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{}/address", lab.interface(Host::B))).unwrap();
    text.trim().split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

/// The sender as an offcode that a site runs, asked through its control block and begun by a call.
#[test]
fn the_sender_is_an_offcode_of_a_site() {
    let Some(lab) = lab() else { return };
    let receiver = receiver(&lab, 100_000);
    let mut site = lab.inside(Host::A, || XdpSite::open(lab.interface(Host::A), XdpMode::Native)).unwrap().unwrap();
    let interface = Guid::named("traffic.sender");
    let manifest = Manifest {
        package: manifest::Package {
            guid: Guid::named("traffic.send"),
            name: "traffic.send".into(),
            version: "1".into(),
            description: String::new(),
            interfaces: vec![manifest::Interface { guid: interface, name: "Sender".into(), methods: Vec::new() }],
            bodies: vec![manifest::Body {
                kind: manifest::BodyKind::Bpf,
                file: None,
                sites: vec![machine::SiteKind::Xdp],
                program: Some(manifest::Program { name: "send".into(), role: manifest::ProgramRole::Producer }),
            }],
            attributes: Vec::new(),
        },
        hardware: Vec::new(),
        software: manifest::Software::default(),
    };
    let deployment = Deployment {
        name: "sender".into(),
        manifest: manifest.into(),
        code: Code::Bpf(bpf::TRAFFIC_SEND.unwrap().into()),
        attributes: Default::default(),
    };
    let slot = site.deploy(deployment).unwrap();
    let mut calls = site.connect(slot, "", offcode::Specification::default()).unwrap();
    site.initialize(slot).unwrap();
    site.start(slot).unwrap();
    let block = ControlBlock::over(std::sync::Arc::new(site.shared(slot, "CONTROL").unwrap())).unwrap();
    let paced = Pacing::Paced { late: Nanoseconds(1000) };
    block.ask(&asked(&lab, paced, &[(60, 100_000)], 50)).unwrap();
    let mut message = [0; Header::LENGTH];
    Header { interface: interface.short(), method: 0, kind: Kind::Call, route: 0, id: 1 }.write(&mut message);
    assert_eq!(calls.write(&message).unwrap(), offcode::Written::Taken);
    let mut kind = None;
    assert!(calls.read_with(&mut |answer| kind = Header::read(answer).map(|(header, _)| header.kind)).unwrap());
    assert_eq!(kind, Some(Kind::Reply));
    settle(&receiver, 50);
    let (sent, arrived) = (block.progress(), receiver.read());
    assert_eq!((arrived.received, arrived.lost), (50, 0), "{arrived:?}");
    assert_eq!((sent.sent, sent.errors), (50, 0));
    assert!(site.evidence(slot).unwrap().uses > 50);
    site.remove(slot).unwrap();
}

#[test]
fn nothing_is_left_at_the_interface() {
    let Some(lab) = lab() else { return };
    let receiver = receiver(&lab, 0);
    let interface = lab.inside(Host::B, || Interface::named(lab.interface(Host::B)).unwrap()).unwrap();
    assert_eq!(interface.attached().unwrap(), [receiver.prove().unwrap()]);
    let second =
        lab.inside(Host::B, || Receiver::attach(lab.interface(Host::B), XdpMode::Generic, expected(0))).unwrap();
    assert!(second.unwrap_err().to_string().contains("(receive) in native mode is attached already"));
    drop(receiver);
    assert_eq!(interface.attached().unwrap(), []);
}
