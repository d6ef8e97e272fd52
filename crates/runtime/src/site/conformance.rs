//! The suite that every kind of site passes.

mod services;

use std::time::{Duration, Instant};

use machine::{Fault, Result};
use offcode::call::{Header, Kind};
use offcode::channel::Content;
use offcode::{Channel, Specification, Written};

use super::{Deployment, OUT_OF_BAND, SiteDriver, Slot};
use crate::code::Code;
pub use services::Probe;

/// How long a site may take for anything that does not wait for traffic.
const TIMEOUT: Duration = Duration::from_secs(20);

/// What the suite works with: an offcode in a form that the site takes.
pub struct Subject {
    /// Its method 0 takes two `u32` in fixed little-endian form and results in their sum as `u64`; any other method is
    /// refused. Messages on a channel for messages come back as they are.
    pub deployment: Deployment,
    /// [`offcode::Guid::short`] of its interface.
    pub interface: u64,
    /// Channels that carry messages work here.
    pub messages: bool,
    /// A body that the site must refuse when it is deployed.
    pub unfit: Code,
}

/// Runs all checks, each on a site of its own from `open`.
///
/// # Panics
/// Where the site breaks the contract.
pub fn check(mut open: impl FnMut() -> Box<dyn SiteDriver>, subject: &Subject) {
    lives_its_life(open().as_mut(), subject);
    keeps_the_order(open().as_mut(), subject);
    removes_at_any_time(open().as_mut(), subject);
    refuses_what_is_unfit(open().as_mut(), subject);
    carries_calls(open().as_mut(), subject);
    check_services(&mut open, &[services::linked()]);
    if subject.messages {
        carries_messages(open().as_mut(), subject);
    }
}

/// The part of the suite that is about services and attributes, with [`Probe`] in these forms.
///
/// # Panics
/// Where the site breaks the contract.
pub fn check_services(mut open: impl FnMut() -> Box<dyn SiteDriver>, probes: &[Code]) {
    probes.iter().for_each(|code| services::serves(open().as_mut(), code));
}

fn deployed(site: &mut dyn SiteDriver, subject: &Subject) -> Slot {
    site.deploy(subject.deployment.clone()).expect("a fit body is taken")
}

fn started(site: &mut dyn SiteDriver, subject: &Subject) -> (Slot, Box<dyn Channel>) {
    let slot = deployed(site, subject);
    let end = site.connect(slot, "", OUT_OF_BAND).expect("an out-of-band channel");
    site.initialize(slot).expect("first phase");
    site.start(slot).expect("second phase");
    (slot, end)
}

/// Gives the site turns until `done` says so.
fn until(site: &mut dyn SiteDriver, what: &str, mut done: impl FnMut() -> Result<bool>) {
    let deadline = Instant::now() + TIMEOUT;
    while !done().unwrap_or_else(|fault| panic!("{what}: {fault}")) {
        assert!(Instant::now() < deadline, "{what}: not within {} s", TIMEOUT.as_secs());
        site.turn().expect("a turn");
        std::thread::yield_now();
    }
}

fn call(site: &mut dyn SiteDriver, end: &mut dyn Channel, header: Header, inputs: &[u8]) -> (Header, Vec<u8>) {
    let mut message = vec![0; Header::LENGTH];
    header.write(message.first_chunk_mut().expect("the header's room"));
    message.extend_from_slice(inputs);
    until(site, "a call is taken", || Ok(end.write(&message)? == Written::Taken));
    let mut answer = None;
    until(site, "a call is answered", || {
        end.read_with(&mut |message| {
            answer = Header::read(message).map(|(header, rest)| (header, rest.to_vec()));
        })
    });
    answer.expect("the answer has a header")
}

fn sum(one: u32, other: u32) -> Vec<u8> {
    [one.to_le_bytes(), other.to_le_bytes()].concat()
}

fn lives_its_life(site: &mut dyn SiteDriver, subject: &Subject) {
    let (slot, mut end) = started(site, subject);
    let before = site.evidence(slot).expect("evidence");
    assert!(!before.whereabouts.is_empty(), "evidence says where");
    assert!(!before.counters.is_empty(), "evidence counts something");
    let header = Header { interface: subject.interface, method: 0, kind: Kind::Call, route: 0, id: 1 };
    call(site, end.as_mut(), header, &sum(1, 2));
    let after = site.evidence(slot).expect("evidence");
    assert!(after.uses > before.uses, "a call is a use");
    assert!(after.counters != before.counters, "a call is counted");
    site.set_attribute(slot, "colour", "green").expect("an attribute can be set");
    site.remove(slot).expect("it can be removed");
    assert!(site.evidence(slot).is_err(), "what was removed has no evidence");
    until(site, "the far end has gone", || Ok(end.is_abandoned()));
    let (slot, _end) = started(site, subject);
    site.remove(slot).expect("there is room for another");
}

fn keeps_the_order(site: &mut dyn SiteDriver, subject: &Subject) {
    let slot = deployed(site, subject);
    site.start(slot).expect_err("a start before the first phase");
    site.initialize(slot).expect("the first phase after a wrong step");
    site.initialize(slot).expect_err("a second first phase");
    site.start(slot).expect("the second phase");
    site.start(slot).expect_err("a second second phase");
    site.remove(slot).expect("it can be removed");
}

fn removes_at_any_time(site: &mut dyn SiteDriver, subject: &Subject) {
    for steps in 0..3 {
        let slot = deployed(site, subject);
        if steps > 0 {
            site.initialize(slot).expect("first phase");
        }
        if steps > 1 {
            site.start(slot).expect("second phase");
        }
        site.remove(slot).expect("it can be removed");
        site.remove(slot).expect("removing what is not there is no fault");
        let faults: [Result<()>; 3] =
            [site.initialize(slot), site.start(slot), site.connect(slot, "late", OUT_OF_BAND).map(drop)];
        assert!(faults.iter().all(Result::is_err), "a removed slot is not used again");
    }
    site.remove(Slot(u32::MAX)).expect("removing what never was is no fault");
}

fn refuses_what_is_unfit(site: &mut dyn SiteDriver, subject: &Subject) {
    let mut deployment = subject.deployment.clone();
    deployment.code = subject.unfit.clone();
    let name = deployment.name.clone();
    let fault: Fault = match site.deploy(deployment) {
        Err(fault) => fault,
        // A site may take code in and find out when it is to run.
        Ok(slot) => site.initialize(slot).expect_err("an unfit body is refused"),
    };
    assert!(fault.to_string().contains(&name), "the fault names the offcode: {fault}");
    let (slot, _end) = started(site, subject);
    site.remove(slot).expect("the site goes on");
}

fn carries_calls(site: &mut dyn SiteDriver, subject: &Subject) {
    let (slot, mut end) = started(site, subject);
    for n in 0..200_u32 {
        let header = Header { interface: subject.interface, method: 0, kind: Kind::Call, route: 0, id: n };
        let (answer, result) = call(site, end.as_mut(), header, &sum(n, 7));
        assert_eq!((answer.kind, answer.id), (Kind::Reply, n));
        assert_eq!(result, u64::from(n + 7).to_le_bytes());
    }
    let wrong =
        [(subject.interface, 999, sum(1, 1)), (!subject.interface, 0, sum(1, 1)), (subject.interface, 0, vec![1])];
    for (interface, method, inputs) in wrong {
        let header = Header { interface, method, kind: Kind::Call, route: 0, id: 5 };
        let (answer, why) = call(site, end.as_mut(), header, &inputs);
        assert_eq!((answer.kind, answer.id), (Kind::Refused, 5), "interface {interface:x}, method {method}");
        assert!(!why.is_empty() && std::str::from_utf8(&why).is_ok(), "a refusal is a sentence");
    }
    // A one-way call is not answered: the next answer belongs to the next call.
    let header = Header { interface: subject.interface, method: 0, kind: Kind::OneWay, route: 0, id: 6 };
    let mut message = vec![0; Header::LENGTH];
    header.write(message.first_chunk_mut().expect("the header's room"));
    message.extend(sum(1, 1));
    until(site, "a one-way call is taken", || Ok(end.write(&message)? == Written::Taken));
    let header = Header { kind: Kind::Call, id: 8, ..header };
    assert_eq!(call(site, end.as_mut(), header, &sum(2, 2)).0.id, 8);
    site.remove(slot).expect("it can be removed");
}

fn carries_messages(site: &mut dyn SiteDriver, subject: &Subject) {
    let (slot, _end) = started(site, subject);
    let specification = Specification { content: Content::Messages, ..Specification::default() };
    let mut end = site.connect(slot, "echo", specification).expect("a channel for messages");
    for n in 0..500_u32 {
        let message = n.to_le_bytes().repeat(1 + n as usize % 200);
        until(site, "a message is taken", || Ok(end.write(&message)? == Written::Taken));
        let mut back = Vec::new();
        until(site, "a message comes back", || end.read_with(&mut |echo| back = echo.to_vec()));
        assert_eq!(back, message);
    }
    site.connect(slot, "echo", specification).map(drop).expect_err("a second channel of one name");
    site.remove(slot).expect("it can be removed");
}
