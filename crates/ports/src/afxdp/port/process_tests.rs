//! The port of another process: who holds the queue, what its end leaves, how its peers notice.

use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use super::tests::{Hosts, TIMEOUT, collect, put, until};
use super::*;
use linux::lab::Host;
use linux::lab::testing::{gone, line_of};

const OWNER: &str = "AFXDP_PORT_TEST_OWNER";

/// The process that the tests below start and kill: this test binary again, told by its environment. It echoes packets. comes.
#[test]
fn owner_for_the_tests_below() {
    let Some(asked) = std::env::var_os(OWNER) else { return };
    let asked = asked.to_str().unwrap();
    let (resident, peer) = asked.split_once(' ').unwrap();
    let file = std::fs::File::open(format!("/proc/{resident}/ns/net")).unwrap();
    let peer: SocketAddr = peer.parse().unwrap();
    let local = at_7000(peer.is_ipv6());
    std::thread::spawn(move || {
        rustix::thread::move_into_link_name_space(file.as_fd(), Some(rustix::thread::LinkNameSpaceType::Network))
            .unwrap();
        let mut port = AfxdpPort::open("lab0", local).unwrap();
        let peer = port.add_peer(peer).unwrap();
        println!("\nopen: {}", std::process::id());
        let ends = Instant::now() + 2 * TIMEOUT;
        while Instant::now() < ends {
            let mut came = 0;
            port.receive(64, |_, _| came += 1).unwrap();
            for _ in 0..came {
                put(&mut port, peer, b"answer");
            }
            std::thread::yield_now();
        }
    })
    .join()
    .unwrap();
}

/// An address of host B.
fn at_7000(v6: bool) -> SocketAddr {
    if v6 { "[2001:2::2]:7000" } else { "198.18.0.2:7000" }.parse().unwrap()
}

struct Owner {
    child: Child,
    resident: Child,
    process: u32,
}

impl Owner {
    fn start(hosts: &Hosts, peer: SocketAddr) -> Owner {
        // Entering the host by its network namespace needs a process in it.
        let resident = hosts.lab.enter(Host::B, Command::new("sleep").arg("120")).unwrap().spawn().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "afxdp::port::process_tests::owner_for_the_tests_below"])
            .env(OWNER, format!("{} {peer}", resident.id()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let process = line_of(&mut child, "open: ").trim().parse().unwrap();
        Owner { child, resident, process }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        for child in [&mut self.child, &mut self.resident] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn the_end_of_a_peers_process_is_noticed_and_leaves_nothing() {
    for hosts in Hosts::of_both_families() {
        let mut a = hosts.port(Host::A);
        let mut owner = Owner::start(&hosts, a.local_address());
        let to_b = a.add_peer(at_7000(hosts.v6)).unwrap();
        until("no answer by a frame", || {
            put(&mut a, to_b, b"question");
            let got = collect(&mut a, 1);
            assert_eq!(got, [b"answer"]);
            a.way(to_b) == Some(Path::Frames) && a.counters().frames_received > 0
        });

        // A second process is told who has the queue, and what to do.
        let open = || AfxdpPort::open("lab0", hosts.address(Host::B)).map(|_| ());
        let fault = hosts.lab.inside(Host::B, open).unwrap().unwrap_err();
        assert!(fault.cause().contains(&format!("process {}", owner.process)), "{fault}");
        assert!(fault.subject().contains("queue 0 of lab0") && fault.next().contains("core:N"), "{fault}");

        owner.child.kill().unwrap();
        owner.child.wait().unwrap();
        assert!(gone(owner.process));
        let frames = a.counters().frames_sent;
        let mut refused = Vec::new();
        until("that nobody listens is not noticed", || {
            put(&mut a, to_b, b"question");
            a.notices(|notice| refused.push(notice)).unwrap();
            !refused.is_empty()
        });
        assert_eq!(refused, [Notice::Refused(to_b)]);
        // Frames were refused, not packets of the kernel socket.
        assert!(a.counters().frames_sent > frames);

        let attached = hosts.lab.inside(Host::B, || linux::xdp::Interface::named("lab0").unwrap().attached()).unwrap();
        assert_eq!(attached.unwrap(), []);
        let mut b = hosts.port_at(Host::B, at_7000(hosts.v6));
        b.add_peer(a.local_address()).unwrap();
        put(&mut a, to_b, b"again");
        assert!(collect(&mut b, 1).iter().all(|packet| packet == b"again" || packet == b"question"));
    }
}

#[test]
fn a_port_that_closes_in_a_process_that_lives_on_refuses_too() {
    for hosts in Hosts::of_both_families() {
        let (mut a, mut b, to_b) = hosts.pair();
        let keeps_the_queue = hosts.port(Host::B);
        until("no frame leaves", || {
            put(&mut a, to_b, b"there?");
            assert_eq!(collect(&mut b, 1), [b"there?"]);
            a.way(to_b) == Some(Path::Frames)
        });
        drop(b);
        let mut refused = false;
        until("that nobody listens is not noticed", || {
            put(&mut a, to_b, b"there?");
            a.notices(|notice| refused |= notice == Notice::Refused(to_b)).unwrap();
            refused
        });
        assert!(keeps_the_queue.nic().counters().unwrap().redirected > 0);
    }
}

#[test]
fn frames_of_ports_that_end_come_back() {
    let Some(hosts) = Hosts::new(&Default::default()) else { return };
    let stays = hosts.port(Host::B);
    let mut a = hosts.port(Host::A);
    for round in 0..200 {
        let mut b = hosts.port(Host::B);
        let to_b = a.add_peer(b.local_address()).unwrap();
        let to_a = b.add_peer(a.local_address()).unwrap();
        for _ in 0..30 {
            put(&mut a, to_b, b"in flight");
            put(&mut b, to_a, b"taken, not flushed");
        }
        collect(&mut a, 30);
        // The process ends with frames delivered, frames waiting, and frames in use.
        collect(&mut b, round % 31);
    }
    let mut rings = stays.nic().rings();
    assert!(rings.is_whole(4096, 2048), "frames are missing");
}

#[test]
fn a_queue_that_a_child_has_until_its_exec_is_waited_for() {
    let Some(hosts) = Hosts::new(&Default::default()) else { return };
    let first = hosts.port(Host::A);
    let mut child = Command::new("true");
    let hold = || {
        std::thread::sleep(Duration::from_millis(400));
        Ok(())
    };
    // SAFETY: the closure sleeps, which a child of a process with threads may do.
    unsafe { child.pre_exec(hold) };
    let child = std::thread::spawn(move || child.status().unwrap());
    std::thread::sleep(Duration::from_millis(200));
    drop(first);
    hosts.port(Host::A);
    assert!(child.join().unwrap().success());
}
