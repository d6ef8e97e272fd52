use std::io::Write;

use machine::port::conformance::{self, Bench, Leaf, Star};

use super::*;

/// Introduces two ports of this process to each other; returns each one's index for the other.
fn introduce(one: &mut ShmPort, other: &mut ShmPort) -> (PeerIndex, PeerIndex) {
    let (left, right) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        let joined = scope.spawn(move || other.connect(&right, Role::Join).unwrap());
        (one.connect(&left, Role::Create).unwrap(), joined.join().unwrap())
    })
}

struct InOneProcess(Geometry);

impl Bench for InOneProcess {
    type Port = ShmPort;

    fn star(&mut self, count: usize) -> Star<ShmPort> {
        let mut hub = ShmPort::new(self.0);
        let leaf = |_| {
            let mut port = ShmPort::new(self.0);
            let (index, hub) = introduce(&mut hub, &mut port);
            Leaf { port, hub, index }
        };
        let leaves = (0..count).map(leaf).collect();
        Star { hub, leaves }
    }

    fn end(&mut self, leaf: ShmPort) {
        drop(leaf);
    }
}

#[test]
fn it_keeps_the_contract_of_ports() {
    conformance::all(&mut InOneProcess(Geometry::default()));
}

#[test]
fn it_keeps_the_contract_with_the_smallest_rings() {
    conformance::all(&mut InOneProcess(Geometry { slots: 64, bulk: 8192, mtu: 2048 }));
}

#[test]
fn a_fault_closes_remote_reads_of_that_peer() {
    let (mut one, mut other) = (ShmPort::default(), ShmPort::default());
    let (peer, _) = introduce(&mut one, &mut other);
    assert!(one.capabilities().remote_read, "a process may read its own memory");
    assert_eq!(one.process(peer), Some(std::process::id()));
    one.read_remote(peer, 16, &mut [0; 8]).unwrap_err();
    assert!(!one.capabilities().remote_read);
    let data = [1u8; 8];
    let fault = one.read_remote(peer, data.as_ptr() as u64, &mut [0; 8]).unwrap_err();
    assert_eq!(fault.to_string().split('.').next(), Some("memory of peer 0: this process may not read it"));
}

#[test]
fn garbage_instead_of_a_handshake_is_refused() {
    for role in [Role::Create, Role::Join] {
        let (mine, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&[0xee; 300]).unwrap();
        let fault = ShmPort::default().connect(&mine, role).unwrap_err();
        // Bytes written before this end asked for credentials have no sender that the kernel names.
        let causes = ["it does not speak this protocol", "the kernel does not name its process"];
        assert!(causes.contains(&fault.cause()), "{fault}");
        let (mine, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert!(ShmPort::default().connect(&mine, role).is_err());
    }
}

#[test]
fn a_peer_is_met_without_waiting_for_it() {
    let (mine, theirs) = UnixStream::pair().unwrap();
    let mut port = ShmPort::default();
    port.offer(&mine).unwrap();
    assert_eq!(port.conclude(&mine).unwrap(), None);
    let joins = std::thread::spawn(move || {
        let mut other = ShmPort::default();
        let peer = other.connect(&theirs, Role::Join).unwrap();
        (other, peer)
    });
    let peer = loop {
        match port.conclude(&mine).unwrap() {
            Some(peer) => break peer,
            None => std::thread::yield_now(),
        }
    };
    let (mut other, from) = joins.join().unwrap();
    assert_eq!(port.send(peer, 3, |into| into.copy_from_slice(b"yes")).unwrap(), Sent::Taken);
    assert_eq!(other.receive(1, |peer, packet| assert_eq!((peer, packet), (from, &b"yes"[..]))).unwrap(), 1);
}

#[test]
fn two_joining_ends_time_out_instead_of_waiting_for_ever() {
    let (one, _other) = UnixStream::pair().unwrap();
    let start = std::time::Instant::now();
    let fault = ShmPort::default().connect(&one, Role::Join).unwrap_err();
    assert_eq!(fault.cause(), "it did not answer within 5 s");
    assert!(start.elapsed().as_secs() >= 4, "it waits for a slow peer");
    assert_eq!(one.read_timeout().unwrap(), None, "the stream is as it was");
}

/// The invitation of another port for `peer` of `to`.
fn offer(to: &mut ShmPort, from: Geometry) -> (PeerIndex, Invitation, UnixStream) {
    let (mine, theirs) = UnixStream::pair().unwrap();
    let mut inviter = ShmPort::new(from);
    let peer = inviter.add_peer();
    inviter.invite(peer, theirs, &[7; INTRODUCTION]).unwrap();
    (to.add_peer(), Invitation::take(&mine).unwrap().expect("an invitation"), mine)
}

#[test]
fn invitations_that_go_too_far_are_refused() {
    let ours = Geometry::default();
    let mut port = ShmPort::default();
    for theirs in [
        Geometry { slots: 2 * ours.slots, ..ours },
        Geometry { bulk: 2 * ours.bulk, ..ours },
        Geometry { mtu: ours.mtu + 64, ..ours },
    ] {
        let (peer, invitation, stream) = offer(&mut port, theirs);
        let fault = port.accept(peer, invitation, stream).unwrap_err();
        assert!(fault.cause().starts_with("its rings may become larger than ours"), "{fault}");
        assert!(!port.has_incoming(peer));
    }
    let (peer, invitation, stream) = offer(&mut port, ours);
    port.accept(peer, invitation, stream).unwrap();
    let (_, again, stream) = offer(&mut port, ours);
    assert_eq!(port.accept(peer, again, stream).unwrap_err().cause(), "it has made its way to us before");
    for _ in 1..MOST_INCOMING {
        let (peer, invitation, stream) = offer(&mut port, ours);
        port.accept(peer, invitation, stream).unwrap();
    }
    let (peer, invitation, stream) = offer(&mut port, ours);
    let fault = port.accept(peer, invitation, stream).unwrap_err();
    assert_eq!(fault.cause(), "4096 peers have made their way to us");
}

#[test]
fn ends_of_other_sizes_agree_on_the_creators_or_both_hear_that_they_do_not() {
    let larger = Geometry { mtu: Geometry::default().mtu + 64, ..Geometry::default() };
    let (mut creates, mut joins) = (ShmPort::new(larger), ShmPort::default());
    let (to, from) = introduce(&mut creates, &mut joins);
    assert_eq!(creates.send(to, larger.mtu, |into| into.fill(7)).unwrap(), Sent::Taken);
    assert_eq!(joins.receive(1, |peer, packet| assert_eq!((peer, packet.len()), (from, larger.mtu))).unwrap(), 1);

    let (mut creates, mut joins) = (ShmPort::default(), ShmPort::new(larger));
    let (left, right) = UnixStream::pair().unwrap();
    let (met, refused) = std::thread::scope(|scope| {
        let joined = scope.spawn(|| joins.connect(&right, Role::Join));
        (creates.connect(&left, Role::Create).unwrap(), joined.join().unwrap().unwrap_err())
    });
    assert!(refused.cause().starts_with("its packets hold"), "{refused}");
    let mut told = Vec::new();
    creates.notices(|notice| told.push(notice)).unwrap();
    assert_eq!(told, [Notice::Closed(met)]);
    assert_eq!(creates.send(met, 8, |_| ()).unwrap(), Sent::Gone);
}
