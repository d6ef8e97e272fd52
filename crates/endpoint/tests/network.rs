//! Endpoints on two hosts, over each kind of network: the same messages, and reports of what carried them. Needs root.

use std::net::IpAddr;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use endpoint::{Completion, Endpoint, Name, Paths, Report, Settings, Source, Status, TagSelector};
use linux::lab::{Host, Lab, Options};
use machine::Result;

type Joined = Endpoint<Paths, Vec<u8>>;

const SIZES: [usize; 10] = [0, 1, 8, 57, 1400, 4096, 8192, 8193, 100_000, 3_000_001];
const ROUNDS: u64 = 50;

fn lab() -> Option<Lab> {
    match Lab::owned(&Options::default()) {
        Ok(lab) => Some(lab),
        Err(fault) => {
            skip::test(fault);
            None
        }
    }
}

fn join(at: impl Into<Option<IpAddr>>, network: &str, wire: Option<&str>) -> Joined {
    opened(at, network, wire).unwrap()
}

fn opened(at: impl Into<Option<IpAddr>>, network: &str, wire: Option<&str>) -> Result<Joined> {
    let at = at.into();
    let read = |key: &str| match key {
        "NETWORK" => Some(network.to_owned()),
        "ADDRESS" => at.map(|at| at.to_string()),
        "SHM" => Some("no".into()),
        "WIRE" => wire.map(str::to_owned),
        _ => None,
    };
    Joined::join(&Settings::read(read).unwrap())
}

fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 31 + seed * 7 + i / 251) as u8).collect()
}

/// The next request that ends.
fn next(end: &mut Joined) -> Completion<Vec<u8>> {
    let deadline = Instant::now() + skip::LIMIT;
    loop {
        if let Some(done) = end.poll().unwrap() {
            assert_eq!(done.status, Status::Done);
            return done;
        }
        assert!(Instant::now() < deadline, "nothing ends");
        std::thread::yield_now();
    }
}

/// Messages of all sizes to host b, then a ping-pong of short ones.
fn send_all(end: &mut Joined, other: &Name) {
    let peer = end.insert(other).unwrap();
    for (i, &size) in SIZES.iter().enumerate() {
        end.send(peer, i as u64, pattern(size, i), 0).unwrap();
    }
    SIZES.iter().for_each(|_| drop(next(end)));
    for round in 0..ROUNDS {
        end.receive(Source::Peer(peer), TagSelector::exactly(round), vec![0; 8], 1).unwrap();
        end.send(peer, round, vec![round as u8; 8], 2).unwrap();
        let got = [next(end), next(end)].into_iter().find(|done| done.context == 1).expect("an answer");
        assert_eq!(got.buffer, [round as u8 + 1; 8]);
    }
}

fn receive_all(end: &mut Joined, other: &Name) {
    for (i, &size) in SIZES.iter().enumerate() {
        end.receive(Source::Any, TagSelector::exactly(i as u64), vec![0; size], i as u64).unwrap();
    }
    for _ in SIZES {
        let done = next(end);
        let i = done.context as usize;
        assert!(done.buffer == pattern(SIZES[i], i), "message {i} of {} bytes", SIZES[i]);
    }
    let peer = end.insert(other).unwrap();
    for round in 0..ROUNDS {
        end.receive(Source::Peer(peer), TagSelector::exactly(round), vec![0; 8], 1).unwrap();
        assert_eq!(next(end).buffer, [round as u8; 8]);
        end.send(peer, round, vec![round as u8 + 1; 8], 2).unwrap();
        next(end);
    }
}

/// The reports of both hosts.
fn talk(lab: &Lab, networks: [&str; 2], wire: Option<&str>) -> [Report; 2] {
    talk_by(lab, Host::BOTH.map(|host| lab.address(host)), networks, wire)
}

/// The reports by IPv6; `None` where this kernel has none.
fn talk_by_ipv6(lab: &Lab, networks: [&str; 2], wire: Option<&str>) -> Option<[Report; 2]> {
    let [Some(a), Some(b)] = Host::BOTH.map(|host| lab.address_v6(host)) else {
        skip::test("this kernel has no IPv6");
        return None;
    };
    Some(talk_by(lab, [a, b], networks, wire))
}

fn talk_by(lab: &Lab, addresses: [IpAddr; 2], networks: [&str; 2], wire: Option<&str>) -> [Report; 2] {
    let finished = AtomicUsize::new(0);
    let side = |host: Host, work: fn(&mut Joined, &Name), tell: Sender<Name>, hear: Receiver<Name>| {
        let address = addresses[host as usize];
        let mut end = join(address, networks[host as usize], wire);
        assert_eq!(end.name().address().ip(), address);
        tell.send(end.name()).unwrap();
        work(&mut end, &hear.recv_timeout(skip::LIMIT).unwrap());
        finished.fetch_add(1, Ordering::AcqRel);
        // The other end may still wait for an acknowledgement.
        let deadline = Instant::now() + skip::LIMIT;
        while finished.load(Ordering::Acquire) < 2 {
            assert!(Instant::now() < deadline, "the other does not finish");
            assert!(end.poll().unwrap().is_none());
            std::thread::yield_now();
        }
        end.report().unwrap()
    };
    let ((to_b, from_a), (to_a, from_b)) = (channel(), channel());
    std::thread::scope(|scope| {
        let a = scope.spawn(|| lab.inside(Host::A, || side(Host::A, send_all, to_b, from_b)).unwrap());
        let b = lab.inside(Host::B, || side(Host::B, receive_all, to_a, from_a)).unwrap();
        [a.join().unwrap(), b]
    })
}

#[test]
fn messages_over_afxdp_are_reported_with_what_carried_them() {
    let Some(lab) = lab() else { return };
    went_in_frames(talk(&lab, ["afxdp:lab0"; 2], None));
}

#[test]
fn messages_go_over_afxdp_by_ipv6() {
    let Some(lab) = lab() else { return };
    let Some(reports) = talk_by_ipv6(&lab, ["afxdp:lab0"; 2], None) else { return };
    went_in_frames(reports);
    talk_by_ipv6(&lab, ["afxdp:lab0"; 2], Some("loss=2%,duplicate=2%,reorder=2%,seed=5"));
    talk_by_ipv6(&lab, ["afxdp:lab0", "udp"], None);
}

fn went_in_frames(reports: [Report; 2]) {
    for report in reports {
        let port = &report.ports[1];
        assert_eq!(port.port, "afxdp:lab0");
        assert!(port.carried.packets_received > 0, "{report:?}");
        let note = report.notes.iter().find(|note| note.contains("queue 0 in copy mode")).expect("a note of what ran");
        assert!(!note.contains(" 0 left in frames") && !note.contains(" 0 came in frames"), "{note}");
    }
}

#[test]
fn a_bad_wire_loses_no_message_over_afxdp() {
    let Some(lab) = lab() else { return };
    talk(&lab, ["afxdp:lab0"; 2], Some("loss=2%,duplicate=2%,reorder=2%,seed=5"));
}

#[test]
fn a_host_with_afxdp_talks_to_one_with_udp() {
    let Some(lab) = lab() else { return };
    let [a, b] = talk(&lab, ["afxdp:lab0", "udp"], None);
    assert_eq!((a.ports[1].port.as_str(), b.ports[1].port.as_str()), ("afxdp:lab0", "udp"));
    talk(&lab, ["udp", "afxdp:lab0"], None);
}

/// Link-local addresses belong to the named interface, whichever number it has at either host.
#[test]
fn messages_go_between_addresses_of_the_link() {
    let Some(lab) = lab() else { return };
    if lab.address_v6(Host::A).is_none() {
        return skip::test("this kernel has no IPv6");
    }
    let ip = |host: Host, arguments: &str| {
        let mut ip = Command::new("ip");
        let ran = lab.enter(host, ip.args(arguments.split(' '))).unwrap().status().unwrap();
        assert!(ran.success(), "ip {arguments}");
    };
    // Another link at one host, so that neither numbers nor routes lead to the right one by chance.
    ip(Host::A, "link add other0 type veth peer name other1");
    ip(Host::A, "link set other0 up");
    ip(Host::A, "address add fe80::a/64 dev other0 nodad");
    ip(Host::A, "-6 route replace fe80::/64 dev other0 metric 1");
    ip(Host::A, "address add fe80::a/64 dev lab0 nodad");
    ip(Host::B, "address add fe80::b/64 dev lab0 nodad");
    let addresses = ["fe80::a", "fe80::b"].map(|address| address.parse().unwrap());
    went_in_frames(talk_by(&lab, addresses, ["afxdp:lab0"; 2], None));
    were_placed(&talk_by(&lab, addresses, ["xdp:lab0"; 2], None));

    // With the kernel's UDP no interface is named.
    let fault = lab.inside(Host::A, || opened(addresses[0], "udp", None).map(drop).unwrap_err()).unwrap();
    assert!(fault.cause().contains("several interfaces"), "{fault}");

    // An interface without other addresses has its link-local one, also where none is asked for.
    ip(Host::B, "address flush dev lab0");
    ip(Host::B, "address add fe80::b/64 dev lab0 nodad");
    lab.inside(Host::B, || assert_eq!(join(None, "xdp:lab0", None).name().address().ip(), addresses[1])).unwrap();
    talk_by(&lab, addresses, ["xdp:lab0", "udp"], None);
}

#[test]
fn ports_of_one_process_share_the_queue_and_reach_themselves() {
    let Some(lab) = lab() else { return };
    lab.inside(Host::A, || {
        let mut first = join(lab.address(Host::A), "afxdp:lab0", None);
        let mut second = join(lab.address(Host::A), "afxdp:lab0", None);
        let name = second.name();
        let itself = second.insert(&name).unwrap();
        second.send(itself, 1, b"note".to_vec(), 1).unwrap();
        second.receive(Source::Any, TagSelector::exactly(1), vec![0; 4], 2).unwrap();
        let got = [next(&mut second), next(&mut second)];
        assert!(got.iter().any(|done| done.context == 2 && done.buffer == b"note"));
        assert!(first.poll().unwrap().is_none());
    })
    .unwrap();
}

/// The endpoint's note on its network.
fn note<'r>(report: &'r Report, network: &str) -> &'r str {
    report.notes.iter().find(|note| note.starts_with(network)).expect("a note of what ran")
}

#[test]
fn messages_over_xdp_are_reported_with_what_carried_them() {
    let Some(lab) = lab() else { return };
    were_placed(&talk(&lab, ["xdp:lab0"; 2], None));
}

#[test]
fn messages_go_over_xdp_by_ipv6() {
    let Some(lab) = lab() else { return };
    let Some(reports) = talk_by_ipv6(&lab, ["xdp:lab0"; 2], None) else { return };
    were_placed(&reports);
    talk_by_ipv6(&lab, ["xdp:lab0"; 2], Some("loss=2%,duplicate=2%,reorder=2%,seed=5"));
    for other in ["udp", "afxdp:lab0"] {
        talk_by_ipv6(&lab, ["xdp:lab0", other], None);
        talk_by_ipv6(&lab, [other, "xdp:lab0"], None);
    }
}

fn were_placed(reports: &[Report; 2]) {
    for report in reports {
        assert_eq!(report.ports[1].port, "xdp:lab0");
        let note = note(report, "xdp:lab0");
        assert!(note.contains("in native mode") && !note.contains("placed 0 "), "{note}");
        assert_eq!(report.counters.malformed, 0, "{report:?}");
    }
    // Host b gets most of the messages, in long runs.
    assert!(!note(&reports[1], "xdp:lab0").contains("sent 0 "), "{reports:?}");
}

#[test]
fn a_bad_wire_loses_no_message_over_xdp() {
    let Some(lab) = lab() else { return };
    for seed in 5..8 {
        let reports = talk(&lab, ["xdp:lab0"; 2], Some(&format!("loss=2%,duplicate=2%,reorder=2%,seed={seed}")));
        assert!(reports.iter().any(|report| report.counters.retransmitted > 0));
    }
}

#[test]
fn a_host_with_xdp_talks_to_ones_without() {
    let Some(lab) = lab() else { return };
    for other in ["udp", "afxdp:lab0"] {
        for networks in [["xdp:lab0", other], [other, "xdp:lab0"]] {
            let reports = talk(&lab, networks, None);
            let report = reports.iter().find(|report| report.ports[1].port == "xdp:lab0").unwrap();
            assert!(!note(report, "xdp:lab0").contains("placed 0 "), "{report:?}");
        }
    }
}
