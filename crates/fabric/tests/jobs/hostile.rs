//! Malicious local processes that write anything to an endpoint's sockets. Its process survives, and its messages stay intact.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::net::UdpSocket;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use launch::family::Family;
use testbed::{Carrier, Job, Mpi, Place};

use super::mpi::ONE_SIDED;
use super::sources;

/// Inodes of sockets of processes that work in `folder`.
fn inodes(folder: &Path) -> HashSet<String> {
    let mut found = HashSet::new();
    let folder = folder.canonicalize().unwrap();
    for process in fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path()) {
        if fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd == folder) {
            for descriptor in fs::read_dir(process.join("fd")).into_iter().flatten().flatten() {
                let link = fs::read_link(descriptor.path()).unwrap_or_default();
                if let Some(inode) = link.to_string_lossy().strip_prefix("socket:[") {
                    found.insert(inode.trim_end_matches(']').to_string());
                }
            }
        }
    }
    found
}

/// Names of the abstract sockets on which endpoints in `folder` are found.
pub fn sockets_of(folder: &Path) -> Vec<String> {
    let ours = inodes(folder);
    let table = fs::read_to_string("/proc/net/unix").unwrap();
    let of = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = words.get(7)?.strip_prefix('@')?;
        (ours.contains(*words.get(6)?) && name.starts_with("plimsoll/endpoint/")).then(|| name.to_string())
    };
    table.lines().filter_map(of).collect()
}

/// UDP ports of endpoints in `folder`.
fn ports_of(folder: &Path) -> Vec<u16> {
    let ours = inodes(folder);
    let table = fs::read_to_string("/proc/net/udp").unwrap();
    let of = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let port = u16::from_str_radix(words.get(1)?.split_once(':')?.1, 16).ok()?;
        ours.contains(*words.get(9)?).then_some(port)
    };
    table.lines().filter_map(of).collect()
}

/// SplitMix64, Steele and others 2014.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Bytes that begin like an expected packet, or like none.
    fn garbage(&mut self) -> Vec<u8> {
        let mut bytes: Vec<u8> = match self.next() % 4 {
            0 => b"plimhi1\0plm2".to_vec(),
            1 => b"plm2".to_vec(),
            // A sequencing header with flags, for a guessed session.
            2 => {
                [self.next() as u32, 0, 0, 1 + (self.next() % 3) as u32].iter().flat_map(|w| w.to_le_bytes()).collect()
            }
            _ => Vec::new(),
        };
        let longest = if self.next().is_multiple_of(8) { 9000 } else { 200 };
        let more = self.next() % longest;
        bytes.extend((0..more).map(|_| if self.next().is_multiple_of(3) { 0 } else { self.next() as u8 }));
        if self.next().is_multiple_of(3) {
            bytes.resize(80, self.next() as u8); // an introduction's length
        }
        bytes
    }
}

fn seed() -> u64 {
    let fresh = || u64::from(std::process::id());
    std::env::var("PLIMSOLL_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(fresh)
}

/// Sends one volley to every socket of the processes in `folder`; returns how many were hit.
fn volley(folder: &Path, random: &mut Random, held: &mut Vec<UnixStream>) -> usize {
    let mut hits = 0;
    for name in sockets_of(folder) {
        for _ in 0..8 {
            let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
            let Ok(mut stream) = UnixStream::connect_addr(&address) else { continue };
            let _ = stream.set_write_timeout(Some(Duration::from_millis(50)));
            hits += usize::from(stream.write(&random.garbage()).is_ok());
            if held.len() < 200 && random.next().is_multiple_of(4) {
                held.push(stream); // never says more
            }
        }
    }
    for port in ports_of(folder) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..40 {
            hits += usize::from(socket.send_to(&random.garbage(), ("127.0.0.1", port)).is_ok());
        }
    }
    hits
}

fn under_fire(settings: &[(&str, &str)]) {
    let Some(mpi) = Mpi::carried(Family::OpenMpi) else { return };
    let seed = seed();
    let mut random = Random(seed);
    let place = Place::new();
    let program = mpi.compile(&place, &sources("mpi"), "conformance");
    let job = Job::new(&mpi, 2, Carrier::Engine(settings), program);
    // Open MPI carries one-sided operations past the engine.
    let job = job.arguments(&ONE_SIDED.map(|group| ["--except", group]).concat());
    let mut job = job.arguments(&["--except", "persistent", "--limit", "300"]).start(&place);
    job.wait_for_output(skip::LIMIT, |out| out.contains("ok "));
    let mut held = Vec::new();
    let mut hits = 0;
    let deadline = Instant::now() + Duration::from_secs(3);
    while Instant::now() < deadline && !job.said().contains(" passed") {
        hits += volley(job.folder(), &mut random, &mut held);
    }
    let ended = job.finish(skip::LIMIT);
    let told = format!("PLIMSOLL_SEED={seed}\n{}", ended.told());
    assert!(ended.succeeded() && ended.out.contains(" 0 failed"), "{told}");
    assert!(hits > 20, "only {hits} hits; {told}");
}

#[test]
#[ignore = "make check"]
fn garbage_does_no_harm_in_shared_memory() {
    under_fire(&[]);
}

#[test]
#[ignore = "make check"]
fn garbage_does_no_harm_over_udp() {
    under_fire(&[("SHM", "no"), ("ADDRESS", "127.0.0.1")]);
}

/// The kernel tells an endpoint who calls. Another user's process is refused: it gets nothing of the endpoint's
/// memory, and what it writes is not read.
#[test]
fn another_user_is_turned_away() {
    if !rustix::process::geteuid().is_root() {
        return skip::test("only root can start a process of another user");
    }
    let other_user = |python: &PathBuf, arguments: &[&str]| {
        let mut command = Command::new(python);
        command.args(arguments).uid(65534).gid(65534).current_dir("/");
        command
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates = std::env::split_paths(&path).map(|folder| folder.join("python3"));
    let Some(python) = candidates.find(|python| other_user(python, &["-c", ""]).status().is_ok_and(|s| s.success()))
    else {
        return skip::test("no python3 that another user may start, to play that user (install python3)");
    };
    let Some(mpi) = Mpi::carried(Family::OpenMpi) else { return };
    let place = Place::new();
    let program = mpi.compile(&place, &sources("mpi-talk"), "talk");
    let end = place.path().join("end");
    let job = Job::new(&mpi, 2, Carrier::Engine(&[]), program);
    let mut job = job.arguments(&[end.to_str().unwrap()]).start(&place);
    job.wait_for_output(skip::LIMIT, |out| out.matches(" is process ").count() == 2);
    let sockets = sockets_of(job.folder());
    assert!(!sockets.is_empty());
    // It connects, writes, and waits for an answer or the end: "" is the end.
    let script = "import socket, sys\n\
        for name in sys.argv[1:]:\n\
        \x20   s = socket.socket(socket.AF_UNIX); s.settimeout(20)\n\
        \x20   try:\n\
        \x20       s.connect('\\0' + name); s.send(b'x' * 64); print(repr(s.recv(100)))\n\
        \x20   except (ConnectionResetError, BrokenPipeError): print(repr(b''))\n";
    let mut other = other_user(&python, &["-c", script]);
    other.args(&sockets);
    let answer = place.run(&mut other, skip::LIMIT);
    std::fs::write(&end, "").unwrap();
    job.finish(skip::LIMIT).well(mpi);
    assert!(answer.succeeded(), "{answer:?}");
    assert_eq!(answer.out.lines().collect::<Vec<_>>(), vec!["b''"; sockets.len()], "{answer:?}");
}
