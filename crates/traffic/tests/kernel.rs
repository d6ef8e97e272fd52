//! Frames made in the kernel on one host of a lab and received at the driver hook of the other, counted at both ends.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linux::lab::{Host, Lab, Options};
use linux::xdp::Interface;
use machine::{Nanoseconds, Result, XdpMode};
use offcode::{Attributes, Call, Caller, Specification};
use runtime::catalogue::Linked;
use runtime::site::xdp::{self, XdpSite};
use runtime::site::{Deployment, SiteDriver as _, Slot};
use traffic::control::{Asked, ControlBlock, Entry, Pacing, Progress, State};
use traffic::offcodes::{self, SenderProxy};
use traffic::receiver::{Arrivals, Expected};
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
        alive: None,
        runs: 1 << 14,
        batch: 64,
    }
}

/// An offcode at the driver hook of one of the hosts, run by the site as a runtime would.
struct At {
    site: XdpSite,
    slot: Slot,
}

impl At {
    fn new(lab: &Lab, host: Host, package: Linked, attributes: &[(String, String)], mode: XdpMode) -> Result<At> {
        let mut site = lab.inside(host, || XdpSite::open(lab.interface(host), mode)).unwrap()?;
        let mut set = Attributes::default();
        attributes.iter().for_each(|(name, value)| set.set(name, value).unwrap());
        let (name, code) = (package.manifest.package.name.clone(), package.bodies[0].1.clone());
        let slot = site.deploy(Deployment {
            name,
            manifest: package.manifest,
            code,
            attributes: set,
            memory: Default::default(),
        })?;
        site.initialize(slot)?;
        site.start(slot)?;
        Ok(At { site, slot })
    }

    fn call<R>(&mut self, call: &Call<R>) -> Result<R> {
        let channel = self.site.connect(self.slot, "", Specification::default()).unwrap();
        Caller::new(channel).call(call, Nanoseconds(1_000_000_000), || {})
    }
}

struct Receiving {
    at: At,
    expected: Expected,
}

impl Receiving {
    fn read(&mut self) -> Arrivals {
        Arrivals::ask(&self.expected, |call| self.at.call(call)).unwrap()
    }
}

fn receiver(lab: &Lab, target: u64) -> Receiving {
    let expected = expected(target);
    let package = offcodes::receiver().unwrap();
    let at = At::new(lab, Host::B, package, &expected.attributes(), XdpMode::Native).unwrap();
    Receiving { at, expected }
}

struct Sending {
    at: At,
    block: ControlBlock,
}

impl Sending {
    /// Asks, begins, and returns once it has finished.
    fn run(&mut self, asked: &Asked) -> Progress {
        self.begin(asked);
        let until = Instant::now() + skip::LIMIT;
        while self.block.state() != State::Finished {
            assert!(Instant::now() < until, "{:?}", self.block.progress());
            std::thread::sleep(Duration::from_millis(1));
        }
        self.block.progress()
    }

    fn begin(&mut self, asked: &Asked) {
        self.block.ask(asked).unwrap();
        self.at.call(&SenderProxy.begin()).unwrap();
    }
}

fn sender(lab: &Lab) -> Sending {
    let at = At::new(lab, Host::A, offcodes::sender(None).unwrap(), &[], XdpMode::Native).unwrap();
    let block = ControlBlock::over(Arc::new(at.site.shared(at.slot, "CONTROL").unwrap())).unwrap();
    Sending { at, block }
}

/// Waits until `receiver` has counted so many, or nothing more comes.
fn settle(receiver: &mut Receiving, frames: u64) {
    let until = Instant::now() + skip::LIMIT;
    while receiver.read().received < frames && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn at_full_rate_what_is_sent_arrives_or_is_counted_as_lost() {
    let Some(lab) = lab() else { return };
    let (mut receiver, mut sender) = (receiver(&lab, 0), sender(&lab));
    let rate = Pacing::Rate { clock_every: 16 };
    let sent = sender.run(&asked(&lab, rate, &[(60, 0), (128, 0), (1514, 0)], 30_000));
    assert_eq!((sent.state, sent.sent, sent.errors), (State::Finished, 30_000, 0));
    assert_eq!(sent.bytes, 10_000 * (60 + 128 + 1514));
    settle(&mut receiver, 30_000);
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
    let proof = receiver.at.site.evidence(receiver.at.slot).unwrap().whereabouts;
    assert!(proof.contains("receive in program") && proof.contains("native mode"), "{proof}");
}

#[test]
fn paced_frames_leave_in_the_order_and_number_asked_for_and_stop_stops() {
    let Some(lab) = lab() else { return };
    let (mut receiver, mut sending) = (receiver(&lab, 50_000), sender(&lab));
    let paced = Pacing::Paced { late: Nanoseconds(1000) };
    // As many as the peer's ring holds: none is lost, however late the receiving side gets its core.
    let before = Instant::now();
    let sent = sending.run(&asked(&lab, paced, &[(60, 50_000), (200, 50_000)], 200));
    // Never faster than the table says.
    assert!(before.elapsed() >= Duration::from_micros(50 * 199));
    settle(&mut receiver, 200);
    let arrived = receiver.read();
    assert_eq!((arrived.received, arrived.lost, arrived.bytes), (200, 0, 100 * 260), "{arrived:?}");
    assert!(sent.last.0 - sent.first.0 + sent.latest.0 >= 50_000 * 199);
    assert_eq!(arrived.gaps.unwrap().count, 199);

    drop(sending);
    let mut sending = sender(&lab);
    sending.begin(&Asked { frames: None, ..asked(&lab, paced, &[(60, 1_000_000_000)], 1) });
    let until = Instant::now() + skip::LIMIT;
    while sending.block.progress().sent == 0 {
        assert!(Instant::now() < until);
    }
    assert_eq!(sending.at.call(&SenderProxy.end()).unwrap(), 1);
    while sending.block.state() != State::Finished {
        assert!(Instant::now() < until);
    }
}

/// A call of the kernel asks for many runs; what is left of them drops frames, and would end what is asked meanwhile.
#[test]
fn a_second_profile_is_refused_or_sent_whole() {
    let Some(lab) = lab() else { return };
    let mut sending = sender(&lab);
    let mut ask = asked(&lab, Pacing::Rate { clock_every: 1 }, &[(60, 0)], 100);
    ask.runs = 1 << 18;
    sending.run(&ask);
    let (mut refused, mut sent) = (0, 0);
    let until = Instant::now() + skip::LIMIT;
    while sent < 3 {
        assert!(Instant::now() < until, "it is refused for ever");
        sending.block.ask(&ask).unwrap();
        if let Err(fault) = sending.at.call(&SenderProxy.begin()) {
            assert!(fault.to_string().contains("returned 3"), "{fault}");
            refused += 1;
            continue;
        }
        while sending.block.state() != State::Finished {
            assert!(Instant::now() < until, "{:?}", sending.block.progress());
        }
        assert_eq!(sending.block.progress().sent, 100);
        sent += 1;
    }
    assert!(refused > 0, "no call was still running, so that nothing was tried");
}

/// Whoever asked gives a sign of life now and then; without one the program ends by itself.
#[test]
fn a_sender_without_a_sign_of_life_ends_by_itself() {
    let Some(lab) = lab() else { return };
    let mut sending = sender(&lab);
    let alive = Some(linux::clock::monotonic() + Nanoseconds(500_000_000));
    let paced = Pacing::Paced { late: Nanoseconds(1000) };
    let sent = sending.run(&Asked { frames: None, alive, ..asked(&lab, paced, &[(60, 1_000_000)], 1) });
    // Nothing else would end it.
    assert!(sent.sent >= 1 && sent.state == State::Finished, "{sent:?}");
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
        let mut sender = sender(&lab);
        let mut ask =
            asked(&lab, Pacing::Paced { late: Nanoseconds(0) }, &[(90, 100_000), (91, 100_000), (401, 100_000)], 30);
        ask.template = template(addresses.0, addresses.1, 401);
        ask.template[..6].copy_from_slice(&mac);
        ask.udp_checksum = true;
        sender.run(&ask);
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
    // A socket has room for 40 pages: none is lost, however late the receiving side gets its core.
    const FRAMES: u64 = 30;
    let Some(lab) = lab() else { return };
    let bind = || SocketReceiver::bind(lab.address(Host::B), expected(200_000), None);
    let (receiver, mac) = lab.inside(Host::B, || (bind().unwrap(), address(&lab))).unwrap();
    let mut sender = sender(&lab);
    let mut ask = asked(&lab, Pacing::Paced { late: Nanoseconds(0) }, &[(90, 200_000)], FRAMES);
    ask.template[..6].copy_from_slice(&mac);
    sender.run(&ask);
    let until = Instant::now() + skip::LIMIT;
    while receiver.read().received < FRAMES && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    let found = receiver.read();
    assert_eq!((found.received, found.lost, found.bytes), (FRAMES, 0, 90 * FRAMES), "{found:?}");
    assert_eq!(found.gaps.unwrap().count, FRAMES - 1);
    assert!(receiver.note().contains("as asked"));
}

/// The Ethernet address of host b, seen from inside.
fn address(lab: &Lab) -> Vec<u8> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{}/address", lab.interface(Host::B))).unwrap();
    text.trim().split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

#[test]
fn a_site_protects_the_core_of_a_producer_or_refuses() {
    let Some(lab) = lab() else { return };
    let set = |name: &str, value: String| (name.to_owned(), value);
    let core = linux::affinity::allowed().unwrap().last().unwrap().0.to_string();
    let package = || offcodes::sender(None).unwrap();
    let attributes = [set(xdp::CORE, core.clone()), set(xdp::SHIELD, "nothing".into())];
    let mut at = At::new(&lab, Host::A, package(), &attributes, XdpMode::Native).unwrap();
    let proof = at.site.evidence(at.slot).unwrap().whereabouts;
    assert!(proof.contains(&format!("on core {core}{}", xdp::KEPT_BY)), "{proof}");
    drop(at);
    let refused = |attributes: &[_]| At::new(&lab, Host::A, package(), attributes, XdpMode::Native).err().unwrap();
    let fault = refused(&[set(xdp::SHIELD, "best".into())]);
    assert!(fault.to_string().contains("not which core"), "{fault}");
    refused(&[set(xdp::CORE, "99999".into())]);
}

#[test]
fn nothing_is_left_at_the_interface() {
    let Some(lab) = lab() else { return };
    let receiver = receiver(&lab, 0);
    let interface = lab.inside(Host::B, || Interface::named(lab.interface(Host::B)).unwrap()).unwrap();
    assert_eq!(interface.attached().unwrap().len(), 1);
    let second = lab.inside(Host::B, || XdpSite::open(lab.interface(Host::B), XdpMode::Generic)).unwrap();
    assert!(second.err().unwrap().to_string().contains("in native mode is attached already"));
    drop(receiver);
    assert_eq!(interface.attached().unwrap(), []);
}
