//! AF_XDP between the hosts of an owned lab, against ordinary UDP sockets at the other end.

use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use machine::XdpMode;

use super::*;
use linux::lab::testing::{gone, line_of, possible, wait_until};
use linux::lab::{Host, Lab};

const TIMEOUT: Duration = Duration::from_secs(20);
const PORT: u16 = 9;

/// One UDP datagram in IPv4 in Ethernet, without the UDP checksum, which IPv4 allows.
fn frame(from: Ipv4Addr, to: Ipv4Addr, destination: [u8; 6], port: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(destination);
    bytes.extend([2, 0, 0, 0, 0, 1, 0x08, 0x00]);
    let total = (28 + payload.len()) as u16;
    let mut ip = vec![0x45, 0, (total >> 8) as u8, total as u8, 0, 0, 0x40, 0, 64, 17, 0, 0];
    ip.extend(from.octets());
    ip.extend(to.octets());
    let sum: u32 = ip.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(ip);
    bytes.extend(4000u16.to_be_bytes());
    bytes.extend(port.to_be_bytes());
    bytes.extend((8 + payload.len() as u16).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(payload);
    bytes
}

struct Two {
    lab: Lab,
    addresses: [Ipv4Addr; 2],
    hardware: [[u8; 6]; 2],
}

impl Two {
    fn new() -> Two {
        let lab = Lab::owned(&linux::lab::Options::default()).unwrap();
        let addresses = Host::BOTH.map(|host| match lab.address(host) {
            std::net::IpAddr::V4(address) => address,
            other => panic!("{other}"),
        });
        let hardware = Host::BOTH.map(|host| {
            let path = format!("/sys/class/net/{}/address", lab.interface(host));
            let text = lab.inside(host, || std::fs::read_to_string(path)).unwrap().unwrap();
            let bytes: Vec<u8> = text.trim().split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
            bytes.try_into().unwrap()
        });
        Two { lab, addresses, hardware }
    }

    fn frame(&self, to: Host, port: u16, payload: &[u8]) -> Vec<u8> {
        let (from, at) = (to.other() as usize, to as usize);
        frame(self.addresses[from], self.addresses[at], self.hardware[at], port, payload)
    }

    fn sender(&self, options: &Options) -> Sender {
        self.lab.inside(Host::A, || Sender::open(self.lab.interface(Host::A), options)).unwrap().unwrap()
    }

    fn receiver(&self, options: &Options, mode: XdpMode, which: Which) -> (Receiver, Redirect) {
        let interface = self.lab.interface(Host::B);
        self.lab
            .inside(Host::B, || {
                let receiver = Receiver::open(interface, options).unwrap();
                let mut redirect = Redirect::attach(interface, mode, which).unwrap();
                redirect.add(&receiver).unwrap();
                (receiver, redirect)
            })
            .unwrap()
    }

    fn socket(&self, host: Host, port: u16) -> UdpSocket {
        let address = (self.addresses[host as usize], port);
        let socket = self.lab.inside(host, || UdpSocket::bind(address)).unwrap().unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket
    }
}

/// Places, submits and kicks all of `frames`, however small the rings; the deadline ends a hanging lab.
fn send_all(sender: &mut Sender, frames: impl Iterator<Item = Vec<u8>>) {
    let deadline = Instant::now() + TIMEOUT;
    for frame in frames {
        while !sender.place(frame.len(), |bytes| bytes.copy_from_slice(&frame)).unwrap() {
            sender.flush().unwrap();
            assert!(Instant::now() < deadline, "{:?}", sender.sent());
        }
    }
    while sender.flush().unwrap() > 0 {
        assert!(Instant::now() < deadline, "{:?}", sender.sent());
    }
}

fn drain(sender: &mut Sender) {
    wait_until("frames do not come back", || {
        sender.reap();
        sender.in_flight() == 0
    });
}

fn small(ring: u32, frames: u32) -> Options {
    Options { ring, transmit_frames: frames, receive_frames: frames, ..Options::default() }
}

/// A distinct message of distinct length for each number.
fn payload(number: u32) -> Vec<u8> {
    let length = 22 + (number as usize * 37) % 1400;
    (0..length).map(|at| (number as usize * 7 + at * 13) as u8).collect()
}

#[test]
fn frames_sent_arrive_at_an_ordinary_socket_and_wrap_both_rings() {
    if !possible() {
        return;
    }
    let two = Two::new();
    let receiving = two.socket(Host::B, PORT);
    let mut sender = two.sender(&small(64, 100));
    assert_eq!(sender.in_force().mode, Mode::Copy);
    let mut buffer = [0; 2048];
    // 20 rounds of 100 in a ring of 64: more frames than the ring holds, and 31 times round it.
    for round in 0..20 {
        let numbers = round * 100..round * 100 + 100;
        send_all(&mut sender, numbers.clone().map(|n| two.frame(Host::B, PORT, &payload(n))));
        for number in numbers {
            let length = receiving.recv(&mut buffer).unwrap();
            assert_eq!(buffer[..length], payload(number), "message {number}");
        }
    }
    drain(&mut sender);
    let sent = sender.sent();
    assert_eq!((sent.taken, sent.completed, sent.dropped), (2000, 2000, 0), "{sent:?}");
    assert_eq!(sender.statistics().unwrap().invalid_transmit, 0);
}

#[test]
fn a_kick_sends_more_than_the_kernel_takes_in_one_call() {
    if !possible() {
        return;
    }
    let two = Two::new();
    let receiving = two.socket(Host::B, PORT);
    let mut sender = two.sender(&small(256, 256));
    for _ in 0..200 {
        let frame = two.frame(Host::B, PORT, b"more than 32");
        assert!(sender.place(frame.len(), |bytes| bytes.copy_from_slice(&frame)).unwrap());
    }
    assert_eq!(sender.flush().unwrap(), 0);
    let sent = sender.sent();
    assert_eq!(sent.taken, 200, "{sent:?}");
    assert!(sent.kicks >= 200u64.div_ceil(sender.in_force().frames_a_kick.into()), "{sent:?}");
    for _ in 0..200 - sent.dropped {
        receiving.recv(&mut [0; 64]).unwrap();
    }
    drain(&mut sender);
}

#[test]
fn received_frames_match_byte_for_byte_in_native_and_generic_mode() {
    if !possible() {
        return;
    }
    for mode in [XdpMode::Native, XdpMode::Generic] {
        let two = Two::new();
        let (mut receiver, redirect) = two.receiver(&small(64, 100), mode, Which::UdpPort(PORT));
        assert_eq!(redirect.prove().unwrap().mode, mode);
        let sending = two.socket(Host::A, 0);
        let mut number = 0;
        // 500 frames through rings of 64, at most 50 in flight.
        while number < 500 {
            for n in number..number + 50 {
                sending.send_to(&payload(n), (two.addresses[1], PORT)).unwrap();
            }
            for _ in 0..50 {
                wait_until("a frame is missing", || receiver.available() > 0);
                let got = receiver.receive(1, |bytes| {
                    assert_eq!(bytes[..6], two.hardware[1]);
                    assert_eq!(bytes[42..], payload(number), "{mode:?}: message {number}");
                });
                assert_eq!(got, 1);
                number += 1;
            }
        }
        let counted = redirect.counted();
        assert_eq!((receiver.received(), counted.redirected), (500, 500), "{mode:?}: {counted:?}");
    }
}

#[test]
fn other_ports_go_on_to_the_kernel() {
    if !possible() {
        return;
    }
    let two = Two::new();
    let (mut receiver, redirect) = two.receiver(&small(64, 64), XdpMode::Native, Which::UdpPort(PORT));
    let (ours, theirs) = (two.socket(Host::B, PORT), two.socket(Host::B, PORT + 1));
    let sending = two.socket(Host::A, 0);
    sending.send_to(b"to the kernel", (two.addresses[1], PORT + 1)).unwrap();
    sending.send_to(b"past the kernel", (two.addresses[1], PORT)).unwrap();
    let mut buffer = [0; 64];
    let length = theirs.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"to the kernel");
    assert!(receiver.wait(machine::Nanoseconds(10_000_000_000)).unwrap());
    assert_eq!(receiver.receive(8, |bytes| assert_eq!(&bytes[42..], b"past the kernel")), 1);
    ours.set_nonblocking(true).unwrap();
    assert!(ours.recv(&mut buffer).is_err(), "the kernel saw it too");
    let counted = redirect.counted();
    assert!(counted.redirected == 1 && counted.passed >= 1, "{counted:?}");
    // Without the program all frames go to the kernel again.
    drop(redirect);
    ours.set_nonblocking(false).unwrap();
    sending.send_to(b"again", (two.addresses[1], PORT)).unwrap();
    assert_eq!(ours.recv(&mut buffer).unwrap(), 5);
}

#[test]
fn held_frames_stay_as_they_are_until_released_and_losses_are_counted() {
    if !possible() {
        return;
    }
    let two = Two::new();
    let (mut receiver, redirect) = two.receiver(&small(64, 16), XdpMode::Native, Which::UdpPort(PORT));
    let sending = two.socket(Host::A, 0);
    let send = |numbers: std::ops::Range<u32>| {
        for n in numbers {
            sending.send_to(&payload(n), (two.addresses[1], PORT)).unwrap();
        }
    };
    send(0..16);
    let held: Vec<Held> = (0..16)
        .map(|_| {
            wait_until("a frame is missing", || receiver.available() > 0);
            receiver.take().unwrap()
        })
        .collect();
    // Every frame is held, so these are lost, and the kernel counts them.
    send(16..20);
    wait_until("the program did not see them", || redirect.counted().redirected == 20);
    let statistics = receiver.statistics().unwrap();
    assert_eq!((receiver.available(), statistics.fill_ring_empty), (0, Some(4)), "{statistics:?}");
    for (n, frame) in held.into_iter().enumerate() {
        assert_eq!(receiver.bytes(&frame)[42..], payload(n as u32));
        receiver.release(frame);
    }
    send(20..36);
    for n in 20..36 {
        wait_until("a frame is missing", || receiver.available() > 0);
        receiver.receive(1, |bytes| assert_eq!(bytes[42..], payload(n)));
    }
}

#[test]
fn one_socket_serves_both_directions_on_two_threads() {
    if !possible() {
        return;
    }
    let two = Two::new();
    let interface = two.lab.interface(Host::B);
    let (mut sender, mut receiver, _redirect) = two
        .lab
        .inside(Host::B, || {
            let (sender, receiver) = open(interface, &small(512, 512)).unwrap();
            let mut redirect = Redirect::attach(interface, XdpMode::Native, Which::UdpPort(PORT)).unwrap();
            redirect.add(&receiver).unwrap();
            (sender, receiver, redirect)
        })
        .unwrap();
    let socket = two.socket(Host::A, PORT);
    let answered = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..300 {
                wait_until("a frame is missing", || receiver.available() > 0);
                receiver.receive(1, |bytes| assert_eq!(bytes[42..], payload(n)));
            }
        });
        scope.spawn(|| {
            for n in 0..300 {
                // No more in flight than the other end's buffer holds.
                wait_until("nobody receives", || n < answered.load(Ordering::Acquire) + 32);
                send_all(&mut sender, std::iter::once(two.frame(Host::A, PORT, &payload(n))));
            }
        });
        let mut buffer = [0; 2048];
        for n in 0..300 {
            socket.send_to(&payload(n), (two.addresses[1], PORT)).unwrap();
            let length = socket.recv(&mut buffer).unwrap();
            assert_eq!(buffer[..length], payload(n));
            answered.store(n + 1, Ordering::Release);
        }
    });
}

#[test]
fn what_cannot_be_had_is_a_fault_and_not_something_else() {
    if !possible() {
        return;
    }
    let two = Two::new();
    let open = |options: &Options| {
        two.lab.inside(Host::A, || Sender::open(two.lab.interface(Host::A), options).map(|_| ())).unwrap()
    };
    let fault = open(&Options { mode: Mode::ZeroCopy, ..small(64, 64) }).unwrap_err();
    assert_eq!(fault.cause(), "the driver has no zero copy here", "{fault}");
    let fault = open(&Options { queue: 7, ..small(64, 64) }).unwrap_err();
    assert!(fault.next().contains("queue"), "{fault}");
    let fault = open(&Options { huge_pages: true, transmit_frames: 1 << 20, ..small(64, 64) }).unwrap_err();
    assert!(fault.next().contains("vm.nr_hugepages=1024"), "{fault}");
    let _first = two.sender(&small(64, 64));
    let fault = open(&small(64, 64)).unwrap_err();
    assert!(fault.cause().contains("another AF_XDP socket"), "{fault}");
    let fault =
        two.lab.inside(Host::A, || Sender::open("none0", &Options::default()).map(|_| ())).unwrap().unwrap_err();
    assert!(fault.cause().contains("no such interface"), "{fault}");
    for odd in [small(65, 64), small(1 << 20, 64), Options { frame_size: 1000, ..small(64, 64) }, small(64, 0)] {
        assert!(open(&odd).is_err(), "{odd:?}");
    }
    let fault =
        two.lab.inside(Host::A, || Redirect::attach("lab0", XdpMode::Hardware, Which::All).map(|_| ())).unwrap();
    assert!(fault.is_err(), "a veth has no hardware to run programs");
}

#[test]
fn a_frame_that_is_too_long_is_refused() {
    if !possible() {
        return;
    }
    let mut sender = Two::new().sender(&small(64, 64));
    let fault = sender.place(2049, |_| panic!("not called")).unwrap_err();
    assert!(fault.cause().contains("2049"), "{fault}");
    assert_eq!((sender.in_flight(), sender.room(1000)), (0, 64));
}

#[test]
fn busy_polling_is_read_back() {
    if !possible() {
        return;
    }
    let two = Two::new();
    let wanted = BusyPoll { microseconds: 20, budget: 64 };
    let sender = two.sender(&Options { busy_poll: Some(wanted), ..small(64, 64) });
    assert_eq!(sender.in_force().busy_poll, Some(wanted));
}

const OWNER: &str = "AFXDP_TEST_OWNER";

/// The owner that the next test kills: this test binary again, told by its environment.
#[test]
fn owner_for_the_test_below() {
    let Some(process) = std::env::var_os(OWNER) else { return };
    // Enters the network namespace of the test's host by the process folder of its holder.
    let process = process.to_str().unwrap().to_owned();
    let file = std::fs::File::open(format!("/proc/{process}/ns/net")).unwrap();
    let kept = std::thread::spawn(move || {
        use std::os::fd::AsFd;
        rustix::thread::move_into_link_name_space(file.as_fd(), Some(rustix::thread::LinkNameSpaceType::Network))
            .unwrap();
        let (sender, receiver) = open("lab0", &small(64, 64)).unwrap();
        let mut redirect = Redirect::attach("lab0", XdpMode::Native, Which::All).unwrap();
        redirect.add(&receiver).unwrap();
        (sender, receiver, redirect)
    })
    .join()
    .unwrap();
    println!("\nopen: {}", std::process::id());
    std::thread::sleep(Duration::from_secs(60));
    drop(kept);
}

#[test]
fn nothing_is_left_of_a_killed_owner() {
    if !possible() {
        return;
    }
    let two = Two::new();
    let mut resident = two.lab.enter(Host::B, Command::new("sleep").arg("60")).unwrap().spawn().unwrap();
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "afxdp::tests::owner_for_the_test_below"])
        .env(OWNER, resident.id().to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let process: u32 = line_of(&mut owner, "open: ").trim().parse().unwrap();
    let socket = two.socket(Host::B, PORT);
    let sending = two.socket(Host::A, 0);
    sending.send_to(b"lost to the program", (two.addresses[1], PORT)).unwrap();
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(gone(process));
    // The program is gone when a datagram reaches the kernel again; the queue is free when it can be bound.
    socket.set_nonblocking(true).unwrap();
    wait_until("the program is still attached", || {
        let _ = sending.send_to(b"to the kernel", (two.addresses[1], PORT));
        socket.recv(&mut [0; 64]).is_ok_and(|length| length == 13)
    });
    wait_until("the queue is still taken", || {
        two.lab.inside(Host::B, || open("lab0", &small(64, 64)).is_ok()).unwrap()
    });
    resident.kill().unwrap();
    resident.wait().unwrap();
}
