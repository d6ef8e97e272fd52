//! One receiving program for several processes: lanes are lent, outlive nobody, and the next process takes over where the
//! one that attached the program is killed. Needs root.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use linux::lab::testing::families;
use linux::lab::{Host, Lab, Options};
use linux::rendezvous;
use linux::xdp::Interface;
use machine::{PeerIndex, Port};
use ports::network::NetworkPort;
use ports::xdp::{XdpPort, possible};

/// Names the part that this program plays when a test starts it again, and where.
const PART: &str = "PLIMSOLL_TEST_PART";
const TIMEOUT: Duration = Duration::from_secs(60);
const SESSION: u32 = 9;
const INTERFACE: &str = "lab0";

/// Kills and reaps on drop, so that a failing test leaves no process.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts this program again at host B; returns the address of its port, which it prints.
fn start(lab: &Lab, ip: IpAddr) -> (Other, SocketAddr) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "lanes_between_processes::play_a_part", "--nocapture"]).env(PART, ip.to_string());
    command.stdout(Stdio::piped()).stdin(Stdio::null());
    let mut other = Other(lab.enter(Host::B, &mut command).unwrap().spawn().unwrap());
    let said = BufReader::new(other.0.stdout.take().unwrap()).lines();
    let address = said.map(Result::unwrap).find_map(|line| line.strip_prefix("port ").map(str::to_owned)).unwrap();
    (other, address.parse().unwrap())
}

/// Not a test by itself: the other process. It has a port, and never polls it.
#[test]
fn play_a_part() {
    let Ok(ip) = std::env::var(PART) else { return };
    let port = XdpPort::open(SocketAddr::new(ip.parse().unwrap(), 0), INTERFACE).unwrap();
    println!("\nport {}", port.local_address());
    std::thread::sleep(TIMEOUT);
}

fn lab() -> Option<Lab> {
    let fault = match possible() {
        Ok(()) => match Lab::owned(&Options::default()) {
            Ok(lab) => return Some(lab),
            Err(fault) => fault,
        },
        Err(fault) => fault,
    };
    skip::test(fault);
    None
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !done() {
        assert!(Instant::now() < end, "{what}: not in time");
        std::thread::yield_now();
    }
}

/// Packet `sequence` of the conversation, which asks for an acknowledgement.
fn packet(sequence: u32) -> Vec<u8> {
    let mut bytes = [SESSION, sequence, 0, 4 << 16 | 3, 0, 0].map(u32::to_le_bytes).concat();
    bytes.extend_from_slice(&sequence.to_le_bytes());
    bytes
}

fn port(lab: &Lab, ip: IpAddr) -> XdpPort {
    let at = SocketAddr::new(ip, 0);
    lab.inside(Host::B, || XdpPort::open(at, INTERFACE).unwrap()).unwrap()
}

fn socket(lab: &Lab, ip: IpAddr) -> UdpSocket {
    let socket = lab.inside(Host::A, || UdpSocket::bind((ip, 0)).unwrap()).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// Sends packet `sequence` until it has come.
fn exchange(socket: &UdpSocket, port: &mut XdpPort, sequence: u32) {
    let to = port.local_address();
    let mut sent = Instant::now() - TIMEOUT;
    let mut came = false;
    until("a packet", || {
        if sent.elapsed() > Duration::from_millis(50) {
            socket.send_to(&packet(sequence), to).unwrap();
            sent = Instant::now();
        }
        port.receive(64, |_, bytes| came |= bytes.len() == 28 && bytes[24..] == sequence.to_le_bytes()).unwrap();
        came
    });
}

fn attached(lab: &Lab) -> usize {
    lab.inside(Host::B, || Interface::named(INTERFACE).unwrap().attached().unwrap().len()).unwrap()
}

#[test]
fn the_next_takes_over_where_the_first_is_killed() {
    let Some(lab) = lab() else { return };
    for [a, b] in families(&lab) {
        let (owner, _) = start(&lab, b);
        assert_eq!(attached(&lab), 1);
        let mut ports = [port(&lab, b), port(&lab, b)];
        let socket = socket(&lab, a);
        for port in &mut ports {
            assert!(port.is_guest());
            port.prove().unwrap();
            let peer = port.add_peer(socket.local_addr().unwrap()).unwrap();
            assert!(port.sequence(peer, SESSION, 0));
            exchange(&socket, port, 0);
            assert!(port.lane_counters().acknowledged > 0);
        }
        drop(owner);
        until("the program's end", || ports.iter().all(|port| port.prove().is_err()));
        assert_eq!(attached(&lab), 0);
        // These come by the sockets.
        let placed = ports.each_ref().map(|port| port.lane_counters().placed);
        ports.iter_mut().for_each(|port| exchange(&socket, port, 1));
        assert_eq!(ports.each_ref().map(|port| port.lane_counters().placed), placed);
        // A call of `notices` joins another lane.
        ports.iter_mut().for_each(|port| port.notices(|_| ()).unwrap());
        assert_eq!(attached(&lab), 1);
        assert_eq!(ports.each_ref().map(XdpPort::is_guest), [false, true]);
        for (port, placed) in ports.iter_mut().zip(placed) {
            port.prove().unwrap();
            assert_eq!(port.joined_again(), 1);
            exchange(&socket, port, 2);
            assert!(port.lane_counters().placed > placed);
        }
        let [owner, guest] = ports;
        drop(guest);
        assert_eq!(attached(&lab), 1);
        drop(owner);
        assert_eq!(attached(&lab), 0);
    }
}

/// Otherwise the program would acknowledge for the dead guest, and its peers would wait for ever.
#[test]
fn a_killed_guest_is_refused_by_its_host_and_its_lane_is_free() {
    let Some(lab) = lab() else { return };
    for [a, b] in families(&lab) {
        let mut owner = port(&lab, b);
        // A caller that sends nothing holds up no other.
        let silent = lab.inside(Host::B, || rendezvous::call(&format!("plimsoll/xdp/{INTERFACE}")).unwrap()).unwrap();
        let socket = socket(&lab, a);
        let peer = owner.add_peer(socket.local_addr().unwrap()).unwrap();
        assert!(owner.sequence(peer, SESSION, 0));
        for round in 0..5 {
            let (guest, address) = start(&lab, b);
            drop(guest);
            if round == 0 {
                let peer = lab.inside(Host::A, || UdpSocket::bind((a, 0)).unwrap()).unwrap();
                peer.connect(address).unwrap();
                peer.set_nonblocking(true).unwrap();
                until("a refusal", || {
                    peer.send(&packet(0)).is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused)
                });
            }
        }
        exchange(&socket, &mut owner, 0);
        assert_eq!(owner.receive(1, |_: PeerIndex, _| ()).unwrap(), 0);
        drop(silent);
    }
}
