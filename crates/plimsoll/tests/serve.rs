//! `plimsoll serve` against clients that are malicious, broken, or ask for too much.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use bench::control::{Connection, Reply, Request, VERSION};
use bench::key::Key;
use exchange::endpoint::Job;
use exchange::path::Prepare;
use linux::lab::{Host, Lab, Options};
use machine::{Bytes, CoreId, Site};
use rounds::point::{Pattern, Receiver, Stack};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::NamedTempFile;

struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start() -> Server {
        Server::start_with(&[])
    }

    fn start_with(arguments: &[&str]) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(arguments);
        Server::of(&mut command)
    }

    fn of(command: &mut Command) -> Server {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().unwrap().parse().unwrap();
        Server { child, address }
    }

    fn stream(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(skip::LIMIT)).unwrap();
        stream
    }

    /// From another address of this host.
    fn stream_from(&self, last: u8) -> TcpStream {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
        connect(&socket, &self.address).unwrap();
        socket.into()
    }

    /// The most memory that the server ever held, in bytes.
    fn most_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    fn connection(&self) -> Connection {
        Connection::new(self.stream(), "server", Bytes(1 << 16)).unwrap()
    }

    /// A session up to the point where it is prepared.
    fn prepare(&self, stack: Stack, core: Option<u32>) -> (Connection, Reply) {
        self.prepare_over(self.connection(), stack, core)
    }

    fn prepare_over(&self, connection: Connection, stack: Stack, core: Option<u32>) -> (Connection, Reply) {
        prepared(connection, &Prepare { core: core.map(CoreId), ..plain(stack) })
    }

    fn bench(&self) -> Output {
        self.bench_with(&[])
    }

    fn bench_with(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args([
                "bench",
                "sweep",
                "--cores",
                "0,0",
                "--rounds",
                "1",
                "--sizes",
                "8",
                "--path",
                &self.address.to_string(),
            ])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn assert_serves(&self) {
        let output = self.bench();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A request that needs no key.
fn plain(stack: Stack) -> Prepare {
    Prepare { stack, placement: Site::App, core: None, address: None, interface: None, dilation: None, polite: true }
}

/// A session up to the point where it is prepared.
fn prepared(mut connection: Connection, prepare: &Prepare) -> (Connection, Reply) {
    connection.send(&Request::Hello { plimsoll: VERSION }, skip::LIMIT).unwrap();
    assert!(matches!(connection.receive(skip::LIMIT).unwrap(), Reply::Welcome { .. }));
    connection.send(&Request::Prepare(prepare.clone()), skip::LIMIT).unwrap();
    let reply = connection.receive(skip::LIMIT).unwrap();
    (connection, reply)
}

/// A file with `word`, which nobody else may read.
fn key(word: &str) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), word).unwrap();
    file
}

const WORD: &str = "the word of both ends\n";

fn path_of(key: &NamedTempFile) -> &str {
    key.path().to_str().unwrap()
}

/// The server's output until it closes the connection.
fn last_words(mut stream: TcpStream) -> String {
    let mut said = String::new();
    // A reset, where the server left what was sent unread, is an end as well.
    let _ = stream.read_to_string(&mut said);
    said
}

fn refusal(reply: Reply) -> String {
    match reply {
        Reply::Failed { subject, cause, next } => format!("{subject}: {cause}. Next: {next}"),
        other => panic!("granted: {other:?}"),
    }
}

#[test]
#[ignore = "make check"]
fn a_study_is_of_the_host_that_is_served() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let study = |path: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(["study", "--budget", "8", "--path", path]).current_dir(folder.path());
        command.env("XDG_STATE_HOME", folder.path()).stdin(Stdio::null()).output().unwrap()
    };
    let path = server.address.to_string();
    let output = study(&path);
    let (out, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert!(out.contains(&format!("Where should message processing run? to {path},")), "{out}{said}");
    drop(server);
    let said = String::from_utf8_lossy(&study(&path).stderr).into_owned();
    assert!(said.contains("Next: start 'plimsoll serve --listen ADDRESS' there"), "{said}");
}

#[test]
#[ignore = "make check"]
fn networks_are_at_the_interfaces_that_lead_to_the_other_host() {
    if !rustix::process::geteuid().is_root() {
        return skip::test("a lab needs root");
    }
    let lab = Lab::owned(&Options::default()).unwrap();
    let within = |host, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        lab.enter(host, command.args(arguments)).unwrap();
        command
    };
    // The server listens at every address; the called one tells the interface.
    let key = key(WORD);
    let key = path_of(&key);
    let serve = ["serve", "--listen", "[::]:0", "--key", key, "--allow", "hooks"];
    let server = Server::of(&mut within(Host::B, &serve));
    let path = SocketAddr::new(lab.address(Host::B), server.address.port()).to_string();
    let stacks =
        ["--stack", "engine-afxdp:lab0,engine-xdp,engine-udp", "--sizes", "8", "--rounds", "2", "--cores", "0,0"];
    let to = ["--path", &path, "--key", key];
    let output = within(Host::A, &[&["bench", "sweep"][..], &to, &stacks].concat()).output().unwrap();
    let (text, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if said.contains("not permitted") {
        return skip::test(said);
    }
    assert!(output.status.success() && text.contains(&format!("2 rounds, path remote {path}")), "{text}{said}");
    assert!(text.contains("engine-afxdp is at lab0 of this end, as asked"), "{text}");
    for (interface, said) in [("lab1", "there is none of that name"), ("lo", "which lab0 has")] {
        let stack = format!("engine-xdp:{interface}");
        let bench = ["bench", "sweep", "--stack", &stack, "--sizes", "8", "--rounds", "1", "--cores", "0,0"];
        let output = within(Host::A, &[&bench[..], &to].concat()).output().unwrap();
        let refused = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(refused.contains(&format!("interface {interface}: ")) && refused.contains(said), "{refused}");
    }

    let folder = tempfile::tempdir().unwrap();
    let study = ["study", "--budget", "5", "--network", "afxdp:lab0,xdp"];
    let mut study = within(Host::A, &[&study[..], &to].concat());
    let output = study.current_dir(folder.path()).env("XDG_STATE_HOME", folder.path()).output().unwrap();
    let (text, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains(&format!("to {path},")), "{text}{said}");

    // The loopback driver has no frames to give, and a path without a driver has no such network.
    let refused = |path: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(["study", "--budget", "5", "--network", "afxdp", "--path"]).args(path).current_dir(folder.path());
        let output = command.output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let server = Server::start_with(&["--key", key, "--allow", "cores,hooks"]);
    let said = refused(&[&server.address.to_string(), "--key", key]);
    assert!(said.contains("network afxdp: ") && said.contains("port afxdp:lo: it is no Ethernet link"), "{said}");
    let said = refused(&[&Server::start().address.to_string()]);
    assert!(said.contains("network afxdp: ") && said.contains("--key FILE --allow hooks"), "{said}");
    assert!(refused(&["loopback"]).contains("packets pass no interface's driver there"));
}

#[test]
fn a_bench_of_another_process_is_served_and_a_signal_ends_the_server_in_good_order() {
    // SIGTERM is how a server is told to end; Ctrl-C interrupts it.
    for (signal, code) in [(Signal::TERM, 0), (Signal::INT, 130)] {
        let mut server = Server::start();
        assert!(server.address.ip().is_loopback());
        server.assert_serves();
        kill_process(Pid::from_child(&server.child), signal).unwrap();
        let until = Instant::now() + skip::LIMIT;
        let status = loop {
            if let Some(status) = server.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "it goes on after {signal:?}");
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(status.code(), Some(code));
    }
}

#[test]
fn garbage_is_answered_with_a_sentence_and_harms_nobody() {
    let server = Server::start();
    for garbage in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], b"\0\xff\xfe\n", b"{}\n", b"{\"run\":{\"jobs\":[]}}\n"] {
        let mut stream = server.stream();
        stream.write_all(garbage).unwrap();
        let said = last_words(stream);
        assert!(said.contains("failed"), "{garbage:?}: {said}");
    }
    server.assert_serves();
}

#[test]
fn an_endless_line_is_cut_off() {
    let server = Server::start();
    let mut stream = server.stream();
    let mut sent = 0;
    while sent < 64 << 20 && stream.write_all(&[b'['; 4096]).is_ok() {
        sent += 4096;
    }
    assert!(sent < 64 << 20, "it took {sent} bytes of one line");
    server.assert_serves();
}

#[test]
fn a_flood_behind_a_line_takes_no_memory() {
    let server = Server::start();
    let mut stream = server.stream();
    let connection = Connection::new(stream.try_clone().unwrap(), "server", Bytes(1 << 16)).unwrap();
    let (mut connection, reply) = server.prepare_over(connection, Stack::Tcp, None);
    let Reply::Ready(offer) = reply else { panic!("{reply:?}") };
    connection.send(&Request::Meet { from: None }, skip::LIMIT).unwrap();
    let mut path = TcpStream::connect((server.address.ip(), offer.port)).unwrap();
    path.write_all(offer.token.as_bytes()).unwrap();
    assert!(matches!(connection.receive(skip::LIMIT).unwrap(), Reply::Met));
    let job = Job { pattern: Pattern::Stream, size: 8, messages: 1000, receiver: Receiver::Reads, verify: false };
    connection.send(&Request::Run { jobs: vec![job] }, skip::LIMIT).unwrap();
    assert!(matches!(connection.receive(skip::LIMIT).unwrap(), Reply::Started));
    // In the middle of a block the server only checks whether its client is still there.
    let before = server.most_memory();
    stream.set_nonblocking(false).unwrap();
    stream.write_all(b"\n").unwrap();
    let (chunk, mut sent) = (vec![b'x'; 1 << 16], 0u64);
    while sent < 512 << 20 && stream.write_all(&chunk).is_ok() {
        sent += chunk.len() as u64;
    }
    let grown = server.most_memory() - before;
    assert!(grown < 8 << 20, "{grown} bytes more after {sent} bytes");
    assert!(sent < 512 << 20, "it took {sent} bytes");
    assert!(refusal(connection.receive(skip::LIMIT).unwrap()).contains("16384 bytes ahead of the answers"));
    server.assert_serves();
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let server = Server::start();
    let mut stream = server.stream();
    let mut line = vec![b'['; 15 << 10];
    line.push(b'\n');
    stream.write_all(&line).unwrap();
    assert!(last_words(stream).contains("failed"));
    server.assert_serves();
}

#[test]
fn half_open_and_slow_clients_lose_their_seats() {
    let server = Server::start();
    let silent = server.stream();
    let mut slow = server.stream();
    let started = Instant::now();
    // Single bytes never complete a greeting; its time limit is for the whole.
    while started.elapsed() < skip::LIMIT && slow.write_all(b" ").is_ok() {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(started.elapsed() < skip::LIMIT, "the slow client was kept");
    assert!(last_words(silent).contains("in time"));
    server.assert_serves();
}

#[test]
fn a_flood_is_turned_away_and_over_when_it_ends() {
    let server = Server::start();
    let mut flood: Vec<TcpStream> = (0..100).map(|_| server.stream()).collect();
    let last = flood.pop().unwrap();
    assert!(last_words(last).contains("connections are open already"));
    drop(flood);
    let until = Instant::now() + skip::LIMIT;
    while !server.bench().status.success() {
        assert!(Instant::now() < until, "nobody is served after the flood");
    }
}

#[test]
fn one_address_does_not_keep_out_another() {
    let server = Server::start();
    let flood: Vec<TcpStream> = (0..100).map(|_| server.stream()).collect();
    let mut other = Connection::new(server.stream_from(2), "server", Bytes(1 << 16)).unwrap();
    other.send(&Request::Hello { plimsoll: VERSION }, skip::LIMIT).unwrap();
    assert!(matches!(other.receive(skip::LIMIT).unwrap(), Reply::Welcome { .. }));
    assert!(flood.into_iter().map(last_words).any(|said| said.contains("are open already from 127.0.0.1")));
}

#[test]
fn what_an_unknown_client_may_not_have_is_refused() {
    let server = Server::start();
    let (_, reply) = server.prepare(Stack::EngineShm, None);
    assert!(refusal(reply).contains("memory cannot be shared"));
    let (_, reply) = server.prepare(Stack::Tcp, Some(9999));
    assert!(refusal(reply).contains("core 9999"));

    let (mut connection, reply) = server.prepare(Stack::EngineUdp, None);
    assert!(matches!(reply, Reply::Ready(_)));
    connection.send(&Request::Meet { from: Some("127.0.0.9:9".parse().unwrap()) }, skip::LIMIT).unwrap();
    assert!(refusal(connection.receive(skip::LIMIT).unwrap()).contains("not of the host"));

    let mut connection = server.connection();
    connection.send(&Request::Hello { plimsoll: VERSION + 1 }, skip::LIMIT).unwrap();
    assert!(refusal(connection.receive(skip::LIMIT).unwrap()).contains("same version"));

    let job = Job { pattern: Pattern::Window, size: 8, messages: 1, receiver: Receiver::Reads, verify: false };
    for (job, words) in [
        (Job { size: 1 << 40, ..job.clone() }, "message size"),
        (Job { size: 0, ..job.clone() }, "message size"),
        (Job { messages: u64::MAX, ..job.clone() }, "messages a job"),
        (Job { size: 64 << 20, ..job.clone() }, "buffers of"),
    ] {
        let (mut connection, reply) = server.prepare(Stack::Tcp, None);
        let Reply::Ready(offer) = reply else { panic!("{reply:?}") };
        connection.send(&Request::Meet { from: None }, skip::LIMIT).unwrap();
        let mut path = TcpStream::connect((server.address.ip(), offer.port)).unwrap();
        path.write_all(offer.token.as_bytes()).unwrap();
        assert!(matches!(connection.receive(skip::LIMIT).unwrap(), Reply::Met));
        connection.send(&Request::Run { jobs: vec![job] }, skip::LIMIT).unwrap();
        assert!(refusal(connection.receive(skip::LIMIT).unwrap()).contains(words), "{words}");
    }
    server.assert_serves();
}

#[test]
fn cores_and_hooks_are_for_those_to_whom_they_are_allowed() {
    let key = key(WORD);
    let known = |server: &Server| {
        let mut connection = server.connection();
        Key::read(key.path()).unwrap().present(&mut connection).unwrap();
        connection
    };
    let core = *linux::affinity::allowed().unwrap().last().unwrap();
    let engine = Prepare { placement: Site::Core(core), ..plain(Stack::EngineUdp) };
    let cores = Server::start_with(&["--key", path_of(&key), "--allow", "cores"]);
    let asked = |prepare: &Prepare| {
        let (open, keyed) = (Server::start(), Server::start_with(&["--key", path_of(&key)]));
        [prepared(open.connection(), prepare), prepared(known(&keyed), prepare)].map(|(_, reply)| refusal(reply))
    };
    for said in asked(&engine) {
        assert!(said.contains("placement core:") && said.contains("--key FILE --allow cores"), "{said}");
    }
    for stack in [Stack::EngineAfxdp, Stack::EngineXdp] {
        for said in asked(&plain(stack)).into_iter().chain([refusal(prepared(known(&cores), &plain(stack)).1)]) {
            assert!(said.contains(stack.name()) && said.contains("--key FILE --allow hooks"), "{said}");
        }
    }
    assert!(matches!(prepared(known(&cores), &engine).1, Reply::Ready(_)));
}

#[test]
fn a_server_with_a_key_answers_those_alone_who_show_it() {
    let (key, other) = (key(WORD), key("the word of neither end"));
    let server = Server::start_with(&["--key", path_of(&key)]);
    let mut connection = server.connection();
    connection.send(&Request::Hello { plimsoll: VERSION }, skip::LIMIT).unwrap();
    assert!(refusal(connection.receive(skip::LIMIT).unwrap()).contains("those alone who show its key"));
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    for (arguments, words) in [
        (&["--json"][..], "those alone who show its key. Next: name a file with the same word: --key FILE"),
        (&["--key", path_of(&other)][..], "its key is another"),
        (&["--key", "/nonexistent"][..], "umask 077"),
    ] {
        let output = server.bench_with(arguments);
        assert!(!output.status.success() && said(&output).contains(words), "{}", said(&output));
    }
    let output = server.bench_with(&["--key", path_of(&key)]);
    assert!(output.status.success(), "{}", said(&output));
    let open = Server::start().bench_with(&["--key", path_of(&key)]);
    assert!(!open.status.success() && said(&open).contains("it was started without a key"), "{}", said(&open));
    let mut alone = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let alone = alone.args(["bench", "sweep", "--path", "loopback", "--key", path_of(&key)]).output().unwrap();
    assert!(said(&alone).contains("it is for a server, and --path names none"), "{}", said(&alone));
    let mut serve = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let serve = serve.args(["serve", "--listen", "127.0.0.1:0", "--allow", "cores"]).output().unwrap();
    assert!(!serve.status.success() && said(&serve).contains("--key <FILE>"), "{}", said(&serve));
}

/// The states of threads of `process` that turn engines, as the kernel tells them: R where one runs or could, S where it
/// sleeps.
fn engines(process: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    let engines = stats.filter(|stat| stat.contains("(engine-core-"));
    engines.filter_map(|stat| Some(stat.rsplit(") ").next()?.split(' ').next()?.to_owned())).collect()
}

#[test]
fn an_engine_sleeps_until_its_session_has_work() {
    let key = key(WORD);
    let server = Server::start_with(&["--key", path_of(&key), "--allow", "cores"]);
    let mut connection = server.connection();
    Key::read(key.path()).unwrap().present(&mut connection).unwrap();
    let core = *linux::affinity::allowed().unwrap().last().unwrap();
    let engine = Prepare { placement: Site::Core(core), ..plain(Stack::EngineUdp) };
    let (mut connection, reply) = prepared(connection, &engine);
    assert!(matches!(reply, Reply::Ready(_)), "{reply:?}");
    let here = UdpSocket::bind("127.0.0.1:0").unwrap();
    connection.send(&Request::Meet { from: here.local_addr().ok() }, skip::LIMIT).unwrap();
    assert_eq!(connection.receive::<Reply>(skip::LIMIT).unwrap(), Reply::Met);
    let until = Instant::now() + skip::LIMIT;
    while engines(server.child.id()) != ["S"] {
        assert!(Instant::now() < until, "it spins: {:?}", engines(server.child.id()));
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_message_path_is_closed_to_those_without_the_token() {
    let server = Server::start();
    let (mut connection, reply) = server.prepare(Stack::Tcp, None);
    let Reply::Ready(offer) = reply else { panic!("{reply:?}") };
    connection.send(&Request::Meet { from: None }, skip::LIMIT).unwrap();
    let mut unknown = TcpStream::connect((server.address.ip(), offer.port)).unwrap();
    unknown.write_all(&vec![b'0'; offer.token.len()]).unwrap();
    unknown.set_read_timeout(Some(skip::LIMIT)).unwrap();
    assert_eq!(unknown.read(&mut [0]).unwrap_or(0), 0, "the unknown client was let in");
    let mut path = TcpStream::connect((server.address.ip(), offer.port)).unwrap();
    path.write_all(offer.token.as_bytes()).unwrap();
    assert!(matches!(connection.receive(skip::LIMIT).unwrap(), Reply::Met));
}

#[test]
fn a_server_of_one_bench_refuses_all_others_and_ends_with_it() {
    // SHA-256 of 'abc', the example of FIPS 180-2.
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let mut server = Server::start_with(&["--owner", digest]);
    for first in [Request::Hello { plimsoll: VERSION }, Request::Hold, Request::Secret(digest.into())] {
        let mut connection = server.connection();
        connection.send(&first, skip::LIMIT).unwrap();
        assert!(refusal(connection.receive(skip::LIMIT).unwrap()).contains("the bench alone that started it"));
    }
    let known = || {
        let mut connection = server.connection();
        connection.send(&Request::Secret("abc".into()), skip::LIMIT).unwrap();
        connection
    };
    let mut owner = known();
    owner.send(&Request::Hold, skip::LIMIT).unwrap();
    assert!(matches!(owner.receive(skip::LIMIT).unwrap(), Reply::Held));
    assert!(matches!(server.prepare_over(known(), Stack::Tcp, None).1, Reply::Ready(_)));
    assert!(server.child.try_wait().unwrap().is_none());
    drop(owner);
    let until = Instant::now() + skip::LIMIT;
    while server.child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < until, "it goes on without its owner");
        std::thread::sleep(Duration::from_millis(10));
    }
    // A server without an owner cannot be held.
    let server = Server::start();
    let mut connection = server.connection();
    connection.send(&Request::Hold, skip::LIMIT).unwrap();
    assert!(refusal(connection.receive(skip::LIMIT).unwrap()).contains("a greeting was due"));
}

#[test]
fn a_client_that_dies_in_mid_block_frees_its_seat() {
    let server = Server::start();
    for _ in 0..40 {
        let (mut connection, reply) = server.prepare(Stack::Tcp, None);
        let Reply::Ready(offer) = reply else { panic!("{reply:?}") };
        connection.send(&Request::Meet { from: None }, skip::LIMIT).unwrap();
        let mut path = TcpStream::connect((server.address.ip(), offer.port)).unwrap();
        path.write_all(offer.token.as_bytes()).unwrap();
        assert!(matches!(connection.receive(skip::LIMIT).unwrap(), Reply::Met));
        let job = Job { pattern: Pattern::Stream, size: 8, messages: 1000, receiver: Receiver::Reads, verify: false };
        connection.send(&Request::Run { jobs: vec![job] }, skip::LIMIT).unwrap();
        assert!(matches!(connection.receive(skip::LIMIT).unwrap(), Reply::Started));
    }
    server.assert_serves();
}
