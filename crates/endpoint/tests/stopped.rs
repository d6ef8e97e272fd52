//! A stopped engine of a node: memory that it may still write to is kept, and freed memory is not written to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use endpoint::{Endpoint, Paths, Settings, Source, Status, TagSelector};
use machine::{FaultKind, Site};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::shortage::node;

type Joined = Endpoint<Paths, Vec<u8>>;

/// Length of a message that is announced, however fast copies are.
const LONG: usize = 300_000;
/// Byte that an allocator may leave in freed memory.
const FREED: u8 = 0xEE;

/// Memory that shows when it is freed, and later writes to it.
struct Lent {
    bytes: &'static mut [u8],
    given_back: Arc<AtomicBool>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.bytes
    }
}

impl AsMut<[u8]> for Lent {
    fn as_mut(&mut self) -> &mut [u8] {
        self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.bytes.fill(FREED);
        self.given_back.store(true, Ordering::Relaxed);
    }
}

fn settings() -> Settings {
    Settings { address: Some([127, 0, 0, 1].into()), ..Settings::default() }
}

#[test]
fn memory_stays_while_an_engine_that_may_write_to_it_is_stopped() {
    let _turn = skip::turn();
    let core = *linux::affinity::allowed().unwrap().last().unwrap();
    let node = node("raising node", core);
    let engine = Pid::from_child(&node.0);
    let at_node = Settings { placement: Site::Core(core), ..settings() };
    let mut rank: Endpoint<Paths, Lent> = match Endpoint::join(&at_node) {
        Ok(rank) => rank,
        Err(fault) => {
            assert!(fault.cause().contains("may not read this rank's memory"), "{fault}");
            return skip::test(fault);
        }
    };
    let mut other = Joined::join(&settings()).unwrap();
    let to = other.insert(&rank.name()).unwrap();
    let given_back = Arc::new(AtomicBool::new(false));
    let bytes = Box::leak(vec![0; LONG].into_boxed_slice());
    let address = bytes.as_ptr() as u64;
    let look = || {
        let mut now = vec![0; LONG];
        linux::remote::read(rustix::process::getpid(), address, &mut now).unwrap();
        now
    };
    rank.receive(Source::Any, TagSelector::exactly(2), Lent { bytes, given_back: given_back.clone() }, 2).unwrap();
    assert!(rank.probe(Source::Any, TagSelector::exactly(3)).unwrap().is_none(), "the engine has the receive");

    kill_process(engine, Signal::STOP).unwrap();
    // All threads of the engine have stopped.
    let (_, status) = waitpid(Some(engine), WaitOptions::UNTRACED).unwrap().unwrap();
    assert!(status.stopped());
    other.send(to, 2, vec![7; LONG], 5).unwrap();
    for _ in 0..1_000 {
        assert!(other.poll().unwrap().is_none());
    }
    assert_eq!(rank.release(Duration::from_millis(10)).unwrap_err().kind(), FaultKind::Busy);
    drop(rank);
    assert!(!given_back.load(Ordering::Relaxed), "the engine may write there");

    kill_process(engine, Signal::CONT).unwrap();
    let deadline = Instant::now() + skip::LIMIT;
    // The next rank to join frees what the engine has let go of.
    while !given_back.load(Ordering::Relaxed) {
        assert!(Instant::now() < deadline, "the memory stays for ever");
        drop(Joined::join(&at_node).unwrap());
    }
    let done = loop {
        assert!(Instant::now() < deadline, "the message has no end");
        if let Some(done) = other.poll().unwrap() {
            break done;
        }
    };
    // The engine may have had the message before it was stopped.
    assert!(done.context == 5 && matches!(done.status, Status::PeerDead | Status::Done), "{done:?}");
    assert!(look().iter().all(|&byte| byte == FREED), "written after it was given back");
}
