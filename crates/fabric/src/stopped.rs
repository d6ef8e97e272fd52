//! A stopped process of an engine: memory that it may still write to is not the application's again.

use std::ffi::c_int;
use std::process::{Child, Command, Stdio};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use endpoint::Settings;
use machine::{CoreId, Site};
use rustix::process::{Pid, Signal, WaitOptions, geteuid, kill_process, waitpid};

use crate::abi::constants::*;
use crate::abi::object::FidEndpoint;
use crate::hostile::{Bytes, Victim, settings};
use crate::receive;

const CORE: &str = "PLIMSOLL_TEST_CORE";
/// Limit for hangs only.
const TIMEOUT: Duration = Duration::from_secs(600);

/// The engine's process; not a test by itself.
#[test]
fn an_engine() {
    let Ok(core) = std::env::var(CORE) else { return };
    endpoint::node::serve(CoreId(core.parse().unwrap())).unwrap();
}

/// The engine's process; killed and reaped on drop, so that a failing test leaves none.
struct Engine(Child);

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Engine {
    /// Starts an engine on a core that no other engine of this user serves.
    fn start(core: CoreId) -> Engine {
        let name = format!("plimsoll/engine/{}/{}", geteuid().as_raw(), core.0);
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "stopped::an_engine", "--nocapture"]).env(CORE, core.0.to_string());
            // Its harness's output would be taken for that of these tests.
            let mut engine = Engine(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
            while engine.0.try_wait().unwrap().is_none() {
                let called = linux::rendezvous::call(&name).ok();
                let holder = called.and_then(|stream| linux::credentials::of_peer(&stream).ok()?.process);
                if holder == Some(Pid::from_child(&engine.0)) {
                    return engine;
                }
                assert!(Instant::now() < deadline, "the engine does not answer");
                std::thread::sleep(Duration::from_millis(20));
            }
            assert!(Instant::now() < deadline, "another engine holds the name");
        }
    }

    /// Stops the engine; returns once all its threads have stopped.
    fn stop(&self) {
        let process = Pid::from_child(&self.0);
        kill_process(process, Signal::STOP).unwrap();
        let (_, status) = waitpid(Some(process), WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(status.stopped());
    }

    fn go_on(&self) {
        kill_process(Pid::from_child(&self.0), Signal::CONT).unwrap();
    }
}

fn close(endpoint: *mut FidEndpoint) -> c_int {
    // SAFETY: an open endpoint, which stays where this is refused.
    unsafe { ((*(*endpoint).fid.ops).close)(endpoint.cast()) }
}

#[test]
#[ignore = "make check"]
fn an_endpoint_whose_engine_is_stopped_cannot_be_closed_yet() {
    let _turn = skip::turn();
    let core = *linux::affinity::allowed().unwrap().last().unwrap();
    let engine = Engine::start(core);
    let settings = Settings { placement: Site::Core(core), ..settings() };
    if let Err(fault) = endpoint::Endpoint::<endpoint::Paths, Vec<u8>>::join(&settings) {
        return skip::test(fault);
    }
    let victim = Victim::with(settings, FI_MSG);
    let bytes = Bytes::new(100_000);
    victim.receive(bytes);
    assert!(victim.poll().is_none());
    engine.stop();
    // SAFETY: an open endpoint; the receive was given no context.
    let cancelled = unsafe { receive::cancel(victim.endpoint.cast(), null_mut()) };
    assert_eq!((cancelled as c_int, close(victim.endpoint)), (-FI_EBUSY, -FI_EBUSY));
    engine.go_on();
    // The endpoint closes once the engine has let go.
    drop(victim);
    assert!(bytes.look().iter().all(|&byte| byte == 0));
}
