//! A rank whose engine is another process: its peers read long messages out of its memory, since it vouches for the engine.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use endpoint::{Endpoint, Name, Paths, Settings, Source, Status, TagSelector};
use machine::{CoreId, Site};

type Joined = Endpoint<Paths, Vec<u8>>;

/// Names the part that this same program plays when a test starts it again, and the engine's core.
const PART: &str = "PLIMSOLL_TEST_LENT";
const CORE: &str = "PLIMSOLL_TEST_LENT_CORE";
const SIZE: usize = 1 << 20;

fn pattern() -> Vec<u8> {
    (0..SIZE).map(|i| (i * 31 + i / 251) as u8).collect()
}

fn settings(placement: Site) -> Settings {
    Settings { address: Some([127, 0, 0, 1].into()), placement, ..Settings::default() }
}

/// Another process; it is killed and reaped on drop.
struct Other(Child, BufReader<ChildStdout>);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Other {
    fn start(part: &str, core: CoreId) -> Other {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "lent::play_a_part", "--nocapture"]).env(PART, part).env(CORE, core.0.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        Other(child, says)
    }

    /// The rest of the next line with `key`; other lines are the test harness's.
    fn hear(&mut self, key: &str) -> String {
        let mut line = String::new();
        while self.1.read_line(&mut line).unwrap() > 0 {
            if let Some((_, value)) = line.split_once(key) {
                return value.trim().to_owned();
            }
            line.clear();
        }
        panic!("it ended before it said '{key}'");
    }
}

/// The other processes' parts; not a test by itself.
#[test]
fn play_a_part() {
    let Ok(part) = std::env::var(PART) else { return };
    let core = CoreId(std::env::var(CORE).unwrap().parse().unwrap());
    if part == "engine" {
        // Where a job of the user's own has an engine there, that one serves.
        let _ = endpoint::node::serve(core);
        return;
    }
    let deadline = Instant::now() + skip::LIMIT;
    let mut rank = loop {
        match Joined::join(&settings(Site::Core(core))) {
            Ok(rank) => break rank,
            Err(fault) if fault.cause().contains("may not read this rank's memory") => return println!("\nrefused="),
            Err(fault) => assert!(Instant::now() < deadline, "{fault}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    println!("\nrefused=no");
    let name = std::io::stdin().lines().next().unwrap().unwrap();
    let bytes: Vec<u8> = name.split(' ').map(|byte| byte.parse().unwrap()).collect();
    let peer = rank.insert(&Name::from_bytes(&bytes).unwrap()).unwrap();
    rank.send_confirmed(peer, 1, pattern(), 1).unwrap();
    while rank.poll().unwrap().is_none() {
        assert!(Instant::now() < deadline, "the message does not leave");
    }
}

#[test]
fn a_long_message_is_read_out_of_the_memory_of_a_rank_with_an_engine_elsewhere() {
    let _turn = skip::turn();
    let core = *linux::affinity::allowed().unwrap().last().unwrap();
    let _engine = Other::start("engine", core);
    let mut rank = Other::start("rank", core);
    let mut end = Joined::join(&settings(Site::App)).unwrap();
    if rank.hear("refused=") != "no" {
        return skip::test("the engine's process may not read this one's memory");
    }
    let bytes: Vec<String> = end.name().as_bytes().iter().map(|byte| byte.to_string()).collect();
    writeln!(rank.0.stdin.as_mut().unwrap(), "{}", bytes.join(" ")).unwrap();
    end.receive(Source::Any, TagSelector::exactly(1), vec![0; SIZE], 1).unwrap();
    let deadline = Instant::now() + skip::LIMIT;
    let done = loop {
        if let Some(done) = end.poll().unwrap() {
            break done;
        }
        assert!(Instant::now() < deadline, "the message does not come");
        std::thread::yield_now();
    };
    assert_eq!(done.status, Status::Done);
    assert!(done.buffer == pattern(), "the message came otherwise than it was sent");
    let report = end.report().unwrap();
    assert_eq!(report.ports[0].carried.bytes_fetched, SIZE as u64, "{:?}", report.notes);
}
