//! Labs through their public interface. All tests need root and `ip`.

use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use machine::CoreId;

use super::testing::{TIMEOUT, gone, line_of, possible, wait_until};
use super::*;

/// A named lab of this test alone, taken down even if the test fails.
struct Named(String);

impl Named {
    fn new(test: &str) -> Named {
        Named(format!("{test}-{}", std::process::id()))
    }

    fn path(&self, host: Host) -> std::path::PathBuf {
        Path::new("/run/netns").join(format!("{}-{}", self.0, host.letter()))
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = Lab::down(&self.0);
    }
}

fn socket(lab: &Lab, host: Host, address: IpAddr) -> UdpSocket {
    let socket = lab.inside(host, || UdpSocket::bind(SocketAddr::new(address, 0))).unwrap().unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket
}

fn connected_pair(lab: &Lab, address: impl Fn(Host) -> IpAddr) -> (UdpSocket, UdpSocket) {
    let a = socket(lab, Host::A, address(Host::A));
    let b = socket(lab, Host::B, address(Host::B));
    a.connect(b.local_addr().unwrap()).unwrap();
    b.connect(a.local_addr().unwrap()).unwrap();
    (a, b)
}

fn ping_pong(a: &UdpSocket, b: &UdpSocket, rounds: usize) {
    let mut buffer = [0; 16];
    for round in 0..rounds {
        let message = round.to_ne_bytes();
        a.send(&message).unwrap();
        let length = b.recv(&mut buffer).unwrap();
        assert_eq!(buffer[..length], message);
        b.send(&message).unwrap();
        let length = a.recv(&mut buffer).unwrap();
        assert_eq!(buffer[..length], message);
    }
}

fn run(lab: &Lab, host: Host, script: &str) -> std::process::Output {
    lab.enter(host, Command::new("sh").args(["-c", script])).unwrap().output().unwrap()
}

#[test]
fn another_users_lock_on_run_keeps_no_lab_waiting() {
    let theirs = skip::another_user(|| {
        let run = fs::File::open("/run").unwrap();
        run.try_lock().unwrap();
        run
    });
    let Some(_theirs) = theirs else { return };
    let (send, receive) = std::sync::mpsc::channel();
    thread::spawn(move || send.send(Lab::down("there-is-none").map(|ended| ended.was_there)));
    assert!(!receive.recv_timeout(2 * TIMEOUT).expect("nobody is waited for").unwrap());
}

#[test]
fn owned_hosts_exchange_messages_over_both_address_families() {
    if !possible() {
        return;
    }
    let lab = Lab::owned(&Options { mtu: 9000, ..Options::default() }).unwrap();
    let (a, b) = connected_pair(&lab, |host| lab.address(host));
    ping_pong(&a, &b, 100);
    a.send(&[7; 8900]).unwrap();
    assert_eq!(b.recv(&mut [0; 9000]).unwrap(), 8900);
    if lab.address_v6(Host::A).is_some() {
        let (a, b) = connected_pair(&lab, |host| lab.address_v6(host).unwrap());
        ping_pong(&a, &b, 10);
    }
    let loopback = socket(&lab, Host::A, [127, 0, 0, 1].into());
    loopback.send_to(&[1], loopback.local_addr().unwrap()).unwrap();
    assert_eq!(loopback.recv(&mut [0; 4]).unwrap(), 1);
}

#[test]
fn several_owned_labs_live_side_by_side_and_unseen() {
    if !possible() {
        return;
    }
    let labs = [Lab::owned(&Options::default()).unwrap(), Lab::owned(&Options::default()).unwrap()];
    let pairs = labs.each_ref().map(|lab| connected_pair(lab, |host| lab.address(host)));
    for (a, b) in &pairs {
        ping_pong(a, b, 20);
    }
    assert!(!Path::new("/sys/class/net").join(INTERFACE).exists(), "the link shows on this machine");
}

#[test]
fn a_further_link_has_interfaces_and_addresses_of_its_own() {
    if !possible() {
        return;
    }
    let (lab, options) = (Lab::owned(&Options::default()).unwrap(), Options::default());
    lab.add_link(1, &options).unwrap();
    lab.add_link(2, &options).unwrap();
    let sent = |link: u8| {
        let output = run(&lab, Host::A, &format!("cat /sys/class/net/lab{link}/statistics/tx_packets"));
        String::from_utf8(output.stdout).unwrap().trim().parse::<u64>().unwrap()
    };
    let before = [0, 1, 2].map(sent);
    let (a, b) = connected_pair(&lab, |host| lab.address_on(1, host));
    ping_pong(&a, &b, 100);
    let went: Vec<u64> = [0, 1, 2].map(sent).into_iter().zip(before).map(|(after, before)| after - before).collect();
    // Neighbour discovery adds packets to the messages.
    assert!(went[1] >= 100 && went[0] < 100 && went[2] < 100, "{went:?}");
    let (a, b) = connected_pair(&lab, |host| lab.address(host));
    ping_pong(&a, &b, 20);
    assert!(lab.add_link(1, &options).is_err(), "it is there already");
}

#[test]
fn a_command_sees_its_host_and_keeps_its_folder_and_status() {
    if !possible() {
        return;
    }
    let lab = Lab::owned(&Options::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "uname -n; ls /sys/class/net; pwd; exit 7"]).current_dir(folder.path());
    let output = lab.enter(Host::B, &mut command).unwrap().output().unwrap();
    let expected = format!("plimsoll-b\n{INTERFACE}\nlo\n{}\n", folder.path().canonicalize().unwrap().display());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    assert_eq!(output.status.code(), Some(7));
    assert_ne!(rustix::system::uname().nodename().to_bytes(), b"plimsoll-b", "this process was renamed");
}

#[test]
fn receive_processing_happens_on_the_core_it_is_steered_to() {
    if !possible() {
        return;
    }
    let cores: Vec<CoreId> = crate::affinity::current().unwrap().into_iter().take(4).collect();
    if cores.len() < 2 {
        skip::test("one core, nothing to steer to");
        return;
    }
    const ROUNDS: usize = 300;
    let lab = Lab::owned(&Options::default()).unwrap();
    let (a, b) = connected_pair(&lab, |host| lab.address(host));
    for &core in &cores {
        let steering = lab.steer(Some(core)).unwrap();
        assert!(steering.holds(), "{steering:?}");

        // The sender runs on another core, so that work gets to `core` only by steering.
        let elsewhere: Vec<CoreId> = cores.iter().copied().filter(|other| *other != core).collect();
        let before = softirqs(core);
        thread::scope(|scope| {
            scope.spawn(|| {
                crate::affinity::settle(&elsewhere).unwrap();
                ping_pong(&a, &b, ROUNDS);
            });
        });
        // The kernel notes the core that processed the last packet of each connected socket.
        for socket in [&a, &b] {
            assert_eq!(rustix::net::sockopt::socket_incoming_cpu(socket).unwrap(), core.0);
        }
        // In lockstep each message takes its own softirq there.
        let softirqs = softirqs(core) - before;
        assert!(softirqs >= ROUNDS as u64, "{softirqs} receive softirqs on {core} for {} messages", 2 * ROUNDS);
    }
    let steering = lab.steer(None).unwrap();
    assert!(steering.holds() && steering.in_force(Host::A).is_empty(), "{steering:?}");
}

/// NET_RX softirqs of a core since boot. Cores that are offline have no column.
fn softirqs(core: CoreId) -> u64 {
    let table = fs::read_to_string("/proc/softirqs").unwrap();
    let column =
        table.lines().next().unwrap().split_whitespace().position(|name| name == format!("CPU{}", core.0)).unwrap();
    let row = table.lines().find(|line| line.trim_start().starts_with("NET_RX:")).unwrap();
    row.split_whitespace().nth(column + 1).unwrap().parse().unwrap()
}

#[test]
fn dropping_an_owned_lab_ends_what_runs_in_it() {
    if !possible() {
        return;
    }
    let lab = Lab::owned(&Options::default()).unwrap();
    let warden = lab.warden.as_ref().unwrap().id();
    let mut resident = lab.enter(Host::A, Command::new("sleep").arg("600")).unwrap().spawn().unwrap();
    assert_eq!(lab.status().unwrap().hosts[0].processes, [resident.id()]);
    drop(lab);
    assert!(!resident.wait().unwrap().success());
    assert!(gone(warden));
}

#[test]
fn the_warden_of_a_lab_holds_its_namespaces() {
    if !possible() {
        return;
    }
    let lab = Lab::owned(&Options::default()).unwrap();
    let folder = format!("/proc/{}/fd", lab.warden.as_ref().unwrap().id());
    let links = std::fs::read_dir(folder).unwrap().map(|entry| std::fs::read_link(entry.unwrap().path()).unwrap());
    let held: Vec<_> = links.map(|link| link.display().to_string()).collect();
    for host in &lab.hosts {
        assert!(held.contains(&format!("net:[{}]", host.inode())), "{held:?}");
    }
}

/// The owner that the next test kills: this test binary again, told by its environment to make a lab and wait.
#[test]
fn owner_for_the_test_below() {
    if std::env::var_os(OWNER).is_none() {
        return;
    }
    let lab = Lab::owned(&Options::default()).unwrap();
    let mut resident = lab.enter(Host::B, Command::new("sleep").arg("60")).unwrap().spawn().unwrap();
    let inodes = lab.hosts.each_ref().map(|host| host.inode());
    println!("\nowned: {} {} {} {}", lab.warden.as_ref().unwrap().id(), resident.id(), inodes[0], inodes[1]);
    resident.wait().unwrap();
}

const OWNER: &str = "LAB_TEST_OWNER";

#[test]
fn nothing_is_left_of_a_lab_whose_owner_was_killed() {
    if !possible() {
        return;
    }
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "lab::tests::owner_for_the_test_below"])
        .env(OWNER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let line = line_of(&mut owner, "owned: ");
    let numbers: Vec<u64> = line.split_whitespace().map(|number| number.parse().unwrap()).collect();
    let [warden, resident, a, b] = numbers[..] else { panic!("{line}") };
    assert!(!gone(warden as u32) && !gone(resident as u32));

    owner.kill().unwrap();
    owner.wait().unwrap();
    wait_until("the resident still runs", || gone(resident as u32));
    wait_until("the warden still runs", || gone(warden as u32));
    // Without a holder, the kernel ends a namespace and its link.
    wait_until("a namespace is still held", || !held(a) && !held(b));
}

/// Whether any process is in the network namespace, or holds it open.
fn held(inode: u64) -> bool {
    let name = format!("net:[{inode}]");
    let is = |path: std::path::PathBuf| fs::read_link(path).is_ok_and(|target| target.as_os_str() == name.as_str());
    fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path())).any(|process| {
        let open = fs::read_dir(process.join("fd")).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
        is(process.join("ns/net")) || open.into_iter().any(is)
    })
}

#[test]
fn a_named_lab_comes_up_twice_serves_and_goes_down_twice() {
    if !possible() {
        return;
    }
    let named = Named::new("twice");
    assert!(Lab::find(&named.0).unwrap().is_none());
    let (first, raised) = Lab::up(&named.0, &Options { protocol_core: Some(CoreId(0)), ..Options::default() }).unwrap();
    assert_eq!(raised, Raised::Made);
    assert_eq!(first.status().unwrap().hosts[1].protocol_cores, [CoreId(0)]);

    let (lab, raised) = Lab::up(&named.0, &Options { threaded_napi: true, ..Options::default() }).unwrap();
    assert_eq!(raised, Raised::Kept);
    assert!(lab.status().unwrap().hosts.iter().all(|host| host.threaded_napi != Some(false)));

    let (lab, raised) = Lab::up(&named.0, &Options { mtu: 4000, gro: false, ..Options::default() }).unwrap();
    assert_eq!(raised, Raised::Kept);
    let status = lab.status().unwrap();
    for host in &status.hosts {
        assert_eq!((host.mtu, host.gro, host.threaded_napi.unwrap_or(false)), (4000, false, false));
        assert_eq!(host.protocol_cores, [], "steering of the first time is still there");
    }
    let (a, b) = connected_pair(&lab, |host| lab.address(host));
    ping_pong(&a, &b, 20);
    drop((first, lab));

    let lab = Lab::find(&named.0).unwrap().expect("it stays when the value is dropped");
    assert_eq!(run(&lab, Host::A, "exit 5").status.code(), Some(5));
    let mut resident = lab.enter(Host::A, Command::new("sleep").arg("600")).unwrap().spawn().unwrap();
    // Collects the zombie, for which `down` would wait.
    let collector = thread::spawn(move || resident.wait().unwrap());
    drop((lab, a, b));
    assert_eq!(Lab::down(&named.0).unwrap(), Ended { was_there: true, processes: 1 });
    assert!(!collector.join().unwrap().success());
    assert_eq!(Lab::down(&named.0).unwrap(), Ended { was_there: false, processes: 0 });
    assert!(Host::BOTH.iter().all(|host| !named.path(*host).exists()));
}

#[test]
fn whatever_a_killed_maker_leaves_is_repaired() {
    if !possible() {
        return;
    }
    let named = Named::new("stale");
    let (host_a, host_b) = (format!("{}-a", named.0), format!("{}-b", named.0));
    let ip = |arguments: &[&str]| assert!(Command::new("ip").args(arguments).status().unwrap().success());
    let remains: [(&str, &dyn Fn()); 7] = [
        ("one host", &|| ip(&["netns", "add", &host_a])),
        ("two hosts without a link", &|| {
            ip(&["netns", "add", &host_a]);
            ip(&["netns", "add", &host_b]);
        }),
        ("a name without a namespace", &|| {
            ip(&["netns", "add", &host_a]);
            fs::write(named.path(Host::B), "").unwrap();
        }),
        ("a link to somewhere else", &|| {
            for host in [&host_a, &host_b] {
                ip(&["netns", "add", host]);
                ip(&["-n", host, "link", "add", INTERFACE, "type", "veth", "peer", "name", "elsewhere"]);
            }
        }),
        ("an address lost", &|| {
            Lab::up(&named.0, &Options::default()).unwrap();
            ip(&["-n", &host_a, "address", "flush", "dev", INTERFACE]);
        }),
        ("an interface down", &|| {
            Lab::up(&named.0, &Options::default()).unwrap();
            ip(&["-n", &host_b, "link", "set", INTERFACE, "down"]);
        }),
        ("a host lost", &|| {
            Lab::up(&named.0, &Options::default()).unwrap();
            ip(&["netns", "delete", &host_b]);
        }),
    ];
    for (what, leave) in remains {
        leave();
        assert!(Lab::find(&named.0).is_err(), "{what}: taken for whole");
        let (lab, raised) = Lab::up(&named.0, &Options::default()).unwrap_or_else(|fault| panic!("{what}: {fault}"));
        assert_eq!(raised, Raised::Repaired, "{what}");
        assert!(Lab::find(&named.0).unwrap().is_some(), "{what}: not whole after the repair");
        let (a, b) = connected_pair(&lab, |host| lab.address(host));
        ping_pong(&a, &b, 5);
        drop((lab, a, b));
        assert!(Lab::down(&named.0).unwrap().was_there, "{what}");
    }
}

#[test]
fn names_that_would_leave_the_folder_are_refused() {
    for name in ["", "../etc", "a/b", "-x", "a b", &"x".repeat(41)] {
        assert!(Lab::down(name).is_err(), "{name}");
    }
}

#[test]
fn wrong_options_are_refused_with_a_next_step() {
    let fault = Lab::owned(&Options { protocol_core: Some(CoreId(4096)), ..Options::default() }).unwrap_err();
    assert!(fault.subject().contains("core 4096") && fault.next().contains("choose"), "{fault}");
    let fault = Lab::owned(&Options { mtu: 500, ..Options::default() }).unwrap_err();
    assert!(fault.cause().contains("1280"), "{fault}");
    let fault = Lab::owned(&Options { threaded_napi: true, gro: false, ..Options::default() }).unwrap_err();
    assert!(fault.next().contains("--no-gro"), "{fault}");
}

#[test]
fn a_door_leads_in_while_the_lab_lives() {
    if !possible() {
        return;
    }
    let lab = Lab::owned(&Options::default()).unwrap();
    let door: Door = lab.door(Host::B).to_string().parse().unwrap();
    assert_eq!(door, lab.door(Host::B));
    let mut command = Command::new("sh");
    command.args(["-c", "hostname; cat /sys/class/net/lab0/ifindex; ip -4 -o address show dev lab0"]);
    let seen = String::from_utf8(door.enter(&mut command).unwrap().output().unwrap().stdout).unwrap();
    assert!(seen.starts_with("plimsoll-b\n") && seen.contains("198.18.0.2/30"), "{seen}");
    let gone: Door = "b,plimsoll-b,/proc/self/fd/999999".parse().unwrap();
    assert!(gone.enter(&mut Command::new("true")).unwrap_err().to_string().contains("its lab is gone"));
}
