//! Helpers of tests: whether a lab can be made, and waits in one.

use std::fs;
use std::io::Read;
use std::net::IpAddr;
use std::process::Child;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use machine::FaultKind;

use super::{Host, Lab, Options};

/// Limit of all waits.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Whether labs can be made here; notes why not.
pub fn possible() -> bool {
    match Lab::owned(&Options::default()) {
        Ok(_) => true,
        Err(fault) if [FaultKind::NotPermitted, FaultKind::Missing].contains(&fault.kind()) => {
            skip::test(fault);
            false
        }
        Err(fault) => panic!("{fault}"),
    }
}

/// The addresses of both hosts, of each family that this kernel has, IPv4 first.
pub fn families(lab: &Lab) -> Vec<[IpAddr; 2]> {
    let v6 = Host::BOTH.map(|host| lab.address_v6(host));
    if v6 == [None; 2] {
        skip::part("this kernel has no IPv6");
    }
    [Host::BOTH.map(|host| Some(lab.address(host))), v6].into_iter().filter_map(|[a, b]| Some([a?, b?])).collect()
}

/// Waits until `done`; panics after [`TIMEOUT`].
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !done() {
        assert!(Instant::now() < deadline, "{what} after {TIMEOUT:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Whether the process has ended.
pub fn gone(process: u32) -> bool {
    // A zombie has ended, whoever collects it.
    fs::read_to_string(format!("/proc/{process}/stat"))
        .map_or(true, |stat| stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'))
}

/// The rest of the first line of `child`'s output that starts with `start`.
pub fn line_of(child: &mut Child, start: &str) -> String {
    let mut output = child.stdout.take().unwrap();
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let (mut text, mut byte) = (String::new(), [0]);
        while output.read(&mut byte).is_ok_and(|length| length == 1) {
            text.push(byte[0] as char);
            if byte[0] == b'\n' && send.send(std::mem::take(&mut text)).is_err() {
                return;
            }
        }
    });
    loop {
        let line = receive.recv_timeout(TIMEOUT).expect("the child says its line");
        if let Some(rest) = line.strip_prefix(start) {
            return rest.to_owned();
        }
    }
}
