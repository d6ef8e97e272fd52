//! The ready applications, started by the lines of their README in a lab, and used from another process by `attach`.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use linux::lab::{Host, Lab, Options};
use linux::xdp;
use machine::XdpMode;
use offcode::channel::Content;
use offcode::{Specification, interface};

#[path = "../../../applications/cache/server.rs"]
#[allow(dead_code)]
mod server;

use server::{ANSWER, Cache, DELETE, GET, MAGIC, MESSAGE, SET};

const PORT: u16 = 7400;
#[interface(guid = "3b2f7c16-5d0a-4f0e-8a41-7a3d5be70011", encoding = "fixed")]
trait PacketFilter {
    fn keep_out(&mut self, port: u16) -> u16;
    fn counts(&self) -> (u64, u64, u64);
}

/// The same interface's name and another GUID.
#[interface(guid = "3b2f7c16-5d0a-4f0e-8a41-7a3d5be700ff", encoding = "fixed")]
trait Stranger {
    fn counts(&self) -> u64;
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The applications as they are installed.
fn built() -> Option<tempfile::TempDir> {
    if let Some(why) = bpf::MISSING {
        skip::test(why);
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new(root().join("scripts/build-applications")).arg(folder.path()).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some(folder)
}

fn lab() -> Option<Lab> {
    if !rustix::process::geteuid().is_root() {
        skip::test("a lab needs root");
        return None;
    }
    Some(Lab::owned(&Options::default()).unwrap())
}

/// An application that is up; killed with this.
struct Up(Child);

impl Up {
    /// The line of the README that starts it, for host b of the lab.
    fn start(lab: &Lab, folder: &Path, name: &str) -> Up {
        Up::start_at(lab, folder, name, "xdp:eth0:native")
    }

    /// The same with this place.
    fn start_at(lab: &Lab, folder: &Path, name: &str, place: &str) -> Up {
        let page = fs::read_to_string(folder.join("README.md")).unwrap();
        let is =
            |part: &&str| part.starts_with(&format!("plimsoll run {name}/")) && part.ends_with(&format!("={place}"));
        let line = page.split('`').find(is).unwrap();
        let line = line.replace("eth0", lab.interface(Host::B));
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll-offcode"));
        command.args(line.split(' ').skip(1)).current_dir(folder).stdin(Stdio::null());
        command.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
        lab.enter(Host::B, &mut command).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        if BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut first).unwrap() == 0 {
            let mut why = String::new();
            child.stderr.as_mut().unwrap().read_to_string(&mut why).unwrap();
            panic!("it did not come up: {why}");
        }
        Up(child)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `tc` is a program of somebody else, by iproute2.
#[test]
fn the_filter_keeps_in_what_is_to_be_sent_beside_programs_of_others() {
    let (Some(lab), Some(folder)) = (lab(), built()) else { return };
    let Some(tc) = skip::tool("tc") else { return };
    let interface = lab.interface(Host::B);
    let others = |arguments: &str| {
        let mut command = Command::new(&tc);
        command.args(arguments.replace("IFACE", interface).split(' '));
        let output = lab.enter(Host::B, &mut command).unwrap().output().unwrap();
        assert!(output.status.success(), "tc {arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    others("qdisc add dev IFACE clsact");
    fs::write(folder.path().join("idle.o"), bpf::IDLE.unwrap()).unwrap();
    others(&format!("filter add dev IFACE egress bpf da obj {}/idle.o sec classifier", folder.path().display()));
    let up = Up::start_at(&lab, folder.path(), "filter", "tc:eth0/egress");
    let to = (lab.address(Host::A), 9000);
    let receiver = lab.inside(Host::A, || UdpSocket::bind(to).unwrap()).unwrap();
    let sender = lab.inside(Host::B, || UdpSocket::bind((lab.address(Host::B), 0)).unwrap()).unwrap();
    receiver.set_read_timeout(Some(skip::LIMIT)).unwrap();
    let use_it = || {
        let application = attach::application("filter").unwrap();
        let mut filter = application.caller::<dyn PacketFilter>("plimsoll.filter").unwrap();
        let send = |text: &[u8]| drop(sender.send_to(text, to));
        send(b"passes");
        assert_eq!(receiver.recv(&mut [0; 64]).unwrap(), 6);
        assert_eq!(filter.call(|filter| filter.keep_out(9000)).unwrap(), 0);
        (0..100).for_each(|_| send(b"is kept in"));
        let (_, bytes, dropped) = filter.call(|filter| filter.counts()).unwrap();
        assert!(bytes >= 100 * 52 && dropped == 100, "{bytes} {dropped}");
        assert_eq!(filter.call(|filter| filter.keep_out(0)).unwrap(), 9000);
        send(b"again");
        assert_eq!(receiver.recv(&mut [0; 64]).unwrap(), 5, "one of the hundred came through");
    };
    lab.inside(Host::B, use_it).unwrap();
    drop(up);
    let left = others("filter show dev IFACE egress");
    assert!(left.contains("idle_packet") || left.contains("idle.o"), "{left}");
}

#[test]
fn the_filter_counts_and_keeps_out_what_another_process_says() {
    let (Some(lab), Some(folder)) = (lab(), built()) else { return };
    let mut up = Up::start(&lab, folder.path(), "filter");
    let to = (lab.address(Host::B), 9000);
    let (sender, receiver) = (
        lab.inside(Host::A, || UdpSocket::bind((lab.address(Host::A), 0)).unwrap()).unwrap(),
        lab.inside(Host::B, || UdpSocket::bind(to).unwrap()).unwrap(),
    );
    receiver.set_read_timeout(Some(skip::LIMIT)).unwrap();
    let use_it = || {
        let application = attach::application("filter").unwrap();
        assert_eq!(application.process(), up.0.id());
        let mut filter = application.caller::<dyn PacketFilter>("plimsoll.filter").unwrap();
        let mut beside = application.caller::<dyn PacketFilter>("plimsoll.filter").unwrap();
        sender.send_to(b"passes", to).unwrap();
        assert_eq!(receiver.recv(&mut [0; 64]).unwrap(), 6);
        let (frames, bytes, dropped) = filter.call(|filter| filter.counts()).unwrap();
        assert!(frames >= 1 && bytes >= 48 && dropped == 0, "{frames} {bytes} {dropped}");
        assert_eq!(filter.call(|filter| filter.keep_out(9000)).unwrap(), 0);
        for _ in 0..100 {
            sender.send_to(b"is kept out", to).unwrap();
        }
        assert_eq!(beside.call(|filter| filter.counts()).unwrap().2, 100);
        assert_eq!(beside.call(|filter| filter.keep_out(0)).unwrap(), 9000);
        sender.send_to(b"again", to).unwrap();
        assert_eq!(receiver.recv(&mut [0; 64]).unwrap(), 5, "one of the hundred came through");

        // What the rules refuse, and what is not there.
        let messages = Specification { content: Content::Messages, ..Specification::default() };
        let refused = application.channel("plimsoll.filter", "in", messages).err().unwrap();
        assert!(refused.to_string().contains("neither a map IN nor a map OUT"), "{refused}");
        let refused = application.caller::<dyn Stranger>("plimsoll.filter").err().unwrap();
        assert!(refused.to_string().contains("it has PacketFilter"), "{refused}");
        let refused = application.caller::<dyn PacketFilter>("plimsoll.nothing").err().unwrap();
        assert!(refused.to_string().contains("it does not run here"), "{refused}");
        let refused = attach::application("fliter").err().unwrap();
        assert!(refused.to_string().contains("filter runs"), "{refused}");
        up.0.kill().unwrap();
        up.0.wait().unwrap();
        let gone = filter.call(|filter| filter.counts()).err().unwrap();
        assert!(gone.to_string().contains("has gone"), "{gone}");
    };
    lab.inside(Host::B, use_it).unwrap();
}

struct Requests {
    socket: UdpSocket,
    number: u64,
}

impl Requests {
    /// The status and value that the server, or the cache in front of it, answers with.
    fn ask(&mut self, operation: u8, key: u64, value: &[u8]) -> (u8, Vec<u8>) {
        self.number += 1;
        let mut message = [0; MESSAGE];
        message[..4].copy_from_slice(&MAGIC);
        (message[4], message[6]) = (operation, value.len() as u8);
        message[8..16].copy_from_slice(&self.number.to_le_bytes());
        message[16..24].copy_from_slice(&key.to_le_bytes());
        message[48..48 + value.len()].copy_from_slice(value);
        self.socket.send(&message).unwrap();
        let mut answer = [0; 2048];
        loop {
            assert_eq!(self.socket.recv(&mut answer).unwrap(), MESSAGE);
            if answer[8..16] == message[8..16] {
                break;
            }
        }
        assert_eq!((answer[4], &answer[16..48]), (operation | ANSWER, &message[16..48]));
        let length = if answer[5] == 0 && operation == GET { usize::from(answer[6]) } else { 0 };
        (answer[5], answer[48..48 + length].to_vec())
    }
}

/// The server ends with the requests, also where one of them fails.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Status and value of each answer.
type Answers = Vec<(u8, Vec<u8>)>;

/// The same requests by chance to the server, alone or behind the cache.
fn session(lab: &Lab, cache: Option<attach::Application>) -> (Answers, (u64, u64, u64, u64)) {
    let address = (lab.address(Host::B), PORT);
    let socket = lab.inside(Host::B, || UdpSocket::bind(address).unwrap()).unwrap();
    let attach = || cache.map(|cache| cache.caller::<dyn Cache>("plimsoll.cache").unwrap());
    let (serving, mut counting) = lab.inside(Host::B, || (attach(), attach())).unwrap();
    let stop = AtomicBool::new(false);
    let answers = std::thread::scope(|scope| {
        let _stopping = Stopping(&stop);
        let server = scope.spawn(|| server::serve(&socket, serving, || stop.load(Ordering::Relaxed)));
        let ours = lab.inside(Host::A, || UdpSocket::bind((lab.address(Host::A), 0)).unwrap()).unwrap();
        ours.connect(address).unwrap();
        ours.set_read_timeout(Some(skip::LIMIT)).unwrap();
        let mut requests = Requests { socket: ours, number: 0 };
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let answers = (0..2000u64)
            .map(|n| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let key = random >> 32 & 15;
                match random & 15 {
                    0 => requests.ask(SET, key, &vec![n as u8; (random >> 40 & 63) as usize]),
                    1 => requests.ask(DELETE, key, b""),
                    _ => requests.ask(GET, key, b""),
                }
            })
            .collect();
        stop.store(true, Ordering::Relaxed);
        server.join().unwrap().unwrap();
        answers
    });
    let counts = counting.as_mut().map_or((0, 0, 0, 0), |cache| cache.call(|cache| cache.counts()).unwrap());
    (answers, counts)
}

#[test]
fn the_cache_answers_as_the_server_alone_would_and_answers_itself() {
    let (Some(lab), Some(folder)) = (lab(), built()) else { return };
    let (alone, _) = session(&lab, None);
    // A veth wakes its peer for what a program sends back only where that has a program too.
    let client = || {
        let interface = xdp::Interface::named(lab.interface(Host::A)).unwrap();
        let object = xdp::loader_for("client", bpf::ECHO.unwrap(), &interface, XdpMode::Native).load().unwrap();
        let program = object.program("count_frames").unwrap();
        let attached = xdp::Attachment::new(program, &interface, XdpMode::Native).unwrap();
        (object, attached)
    };
    let _client = lab.inside(Host::A, client).unwrap();
    let up = Up::start(&lab, folder.path(), "cache");
    let cache = lab.inside(Host::B, || attach::application("cache").unwrap()).unwrap();
    let (cached, (hits, misses, sets, fills)) = session(&lab, Some(cache));
    let differs = alone.iter().zip(&cached).position(|(one, other)| one != other);
    assert_eq!(differs, None, "request {differs:?}: {:?}", differs.map(|n| (&alone[n], &cached[n])));
    let gets = hits + misses;
    assert_eq!(
        (alone.len() as u64, gets + sets),
        (2000, 2000),
        "{hits} hits, {misses} misses, {sets} sets, {fills} fills"
    );
    assert!(hits > gets / 4 && fills > 0, "{hits} hits of {gets}");
    drop(up);
}

/// A client that comes and goes leaves no channel behind: its name is free again, and so is its share of the bound.
#[test]
fn names_of_channels_are_free_again_when_their_process_has_left() {
    let (Some(lab), Some(folder)) = (lab(), built()) else { return };
    let _up = Up::start(&lab, folder.path(), "filter");
    lab.inside(Host::B, || {
        let application = attach::application("filter").unwrap();
        let most = machine::bounds::CONTROL_ATTACHED.total.count();
        let attach = || application.caller::<dyn PacketFilter>("plimsoll.filter");
        let all: Vec<_> = (0..most).map(|_| attach().unwrap()).collect();
        let refused = attach().err().unwrap();
        assert!(refused.to_string().contains(&format!("{most} channels")), "{refused}");
        drop(all);
        let deadline = Instant::now() + skip::LIMIT;
        let mut again = loop {
            match attach() {
                Ok(client) => break client,
                Err(fault) => assert!(Instant::now() < deadline, "{fault}"),
            }
        };
        again.call(|filter| filter.counts()).unwrap();
    })
    .unwrap();
}
