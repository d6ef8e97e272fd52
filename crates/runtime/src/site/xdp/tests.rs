//! Offcodes in the kernel of this machine, on the hosts of labs, with frames counted at both ends.

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use linux::lab::{Host, Lab, Options};
use machine::site::Direction;
use machine::{BodyKind, Bytes, Nanoseconds, SiteKind, XdpMode};
use offcode::call::{Header, Kind};
use offcode::channel::conformance::{self, Bench, Endpoint};
use offcode::channel::{Counted, Delivery, Synchronization};
use offcode::manifest::{self, Manifest, Package, Program, Software, Target};
use offcode::{Attributes, Guid, Written};

use super::*;
use crate::site::Names;
use crate::site::conformance::Subject;

fn lab() -> Option<Lab> {
    if let Some(why) = bpf::MISSING {
        skip::test(why);
        return None;
    }
    Lab::owned(&Options::default()).inspect_err(|why| skip::test(why)).ok()
}

fn site(lab: &Lab, host: Host, point: impl Into<Point>) -> XdpSite {
    let point = point.into();
    lab.inside(host, || XdpSite::open(lab.interface(host), point)).unwrap().unwrap()
}

fn interface() -> Guid {
    Guid::named("test.interface")
}

fn deployment(name: &str, code: &[u8], program: &str, role: ProgramRole, attributes: &[(&str, &str)]) -> Deployment {
    let body = manifest::Body {
        kind: BodyKind::Bpf,
        file: Some("body.o".into()),
        libraries: Vec::new(),
        sites: vec![SiteKind::Xdp, SiteKind::Tc],
        program: Some(Program { name: program.into(), role }),
        tc: Some(if program == "verdict" { "verdict_of_packet" } else { "count_packets" }.into()),
    };
    let manifest = Manifest {
        package: Package {
            guid: Guid::named(name),
            name: name.into(),
            version: "1".into(),
            description: String::new(),
            interfaces: vec![manifest::Interface { guid: interface(), name: "Test".into(), methods: Vec::new() }],
            bodies: vec![body],
            attributes: Vec::new(),
            state: Default::default(),
        },
        hardware: [SiteKind::Xdp, SiteKind::Tc]
            .map(|site| Target { site, modes: Vec::new(), memory: Bytes(0), work: None })
            .into(),
        software: Software::default(),
    };
    let mut set = Attributes::default();
    attributes.iter().for_each(|(name, value)| set.set(name, value).unwrap());
    Deployment {
        name: name.into(),
        manifest: Arc::new(manifest),
        code: Code::Bpf(code.into()),
        attributes: set,
        memory: Default::default(),
    }
}

fn echo(attributes: &[(&str, &str)]) -> Deployment {
    deployment("test.echo", bpf::ECHO.unwrap(), "count_frames", ProgramRole::Hook, attributes)
}

/// Calls over the out-of-band channel, as any caller would.
fn call(end: &mut dyn Channel, method: u16, arguments: &[u8]) -> Result<Vec<u8>, String> {
    let mut message = vec![0; Header::LENGTH];
    let header = Header { interface: interface().short(), method, kind: Kind::Call, route: 0, id: 77 };
    header.write((&mut message[..]).try_into().unwrap());
    message.extend_from_slice(arguments);
    assert_eq!(end.write(&message).unwrap(), Written::Taken);
    let mut answer = Vec::new();
    assert!(end.read_with(&mut |bytes| answer = bytes.to_vec()).unwrap());
    let (header, content) = Header::read(&answer).unwrap();
    assert_eq!((header.id, header.interface, header.method), (77, interface().short(), method));
    match header.kind {
        Kind::Reply => Ok(content.to_vec()),
        _ => Err(String::from_utf8(content.to_vec()).unwrap()),
    }
}

fn number_of(answer: Result<Vec<u8>, String>) -> u64 {
    u64::from_ne_bytes(answer.unwrap().try_into().unwrap())
}

fn datagrams(lab: &Lab, count: usize) {
    let send = || {
        let socket = UdpSocket::bind((lab.address(Host::A), 0)).unwrap();
        (0..count).for_each(|_| assert_eq!(socket.send_to(b"x", (lab.address(Host::B), 9)).unwrap(), 1));
    };
    lab.inside(Host::A, send).unwrap();
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < limit, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn counter(evidence: &Evidence, name: &str) -> u64 {
    evidence.counters.iter().find(|counter| counter.name == name).unwrap().value
}

#[test]
fn a_hook_counts_frames_answers_calls_and_proves_where_it_is() {
    let Some(lab) = lab() else { return };
    let points = [Point::Xdp(XdpMode::Native), Point::Xdp(XdpMode::Generic), Point::Tc(Direction::Ingress)];
    for point in points {
        let mut site = site(&lab, Host::B, point);
        assert_eq!(site.ground().slots, 10);
        let slot = site.deploy(echo(&[("LIMIT", "3")])).unwrap();
        let mut calls = site.connect(slot, "", Specification::default()).unwrap();
        site.initialize(slot).unwrap();
        assert!(site.evidence(slot).unwrap().whereabouts.contains("not started"));
        datagrams(&lab, 3);
        assert_eq!(number_of(call(&mut *calls, 1, &[])), 0, "it is not attached before it is started");
        site.start(slot).unwrap();
        datagrams(&lab, 10);
        until("frames are not counted", || number_of(call(&mut *calls, 1, &[])) >= 10);
        let evidence = site.evidence(slot).unwrap();
        assert!(evidence.whereabouts.contains(&format!("stage 1 of 1, {point}")));
        assert!(counter(&evidence, "runs of the program") >= 10 && evidence.uses > 10, "{evidence:?}");

        assert_eq!(number_of(call(&mut *calls, 0, &[40u32.to_le_bytes(), 2u32.to_le_bytes()].concat())), 42);
        assert!(call(&mut *calls, 0, &[1]).unwrap_err().contains("returned 1 for method 0"));
        assert!(call(&mut *calls, 7, &[]).unwrap_err().contains("returned 2 for method 7"));
        assert!(call(&mut *calls, 0, &[0; 2000]).unwrap_err().contains("more than 1024"));
        assert!(calls.write(b"no call").is_err());

        assert_eq!(number_of(call(&mut *calls, 2, &[])), 3, "a variable has the attribute's value from the start");
        site.set_attribute(slot, "LIMIT", "8").unwrap();
        assert_eq!(number_of(call(&mut *calls, 2, &[])), 8);
        assert!(site.set_attribute(slot, "LIMIT", "many").is_err());
        site.set_attribute(slot, "OFFLOAD_PRIORITY", "8").unwrap();

        site.remove(slot).unwrap();
        site.remove(slot).unwrap();
        assert!(calls.is_abandoned() && calls.write(&[0; 16]).unwrap() == Written::Gone);
        assert!(site.evidence(slot).is_err());
        assert_eq!(site.interface.attached().unwrap(), []);
    }
}

#[test]
fn it_is_a_site_as_any_other() {
    let Some(lab) = lab() else { return };
    let subject = Subject {
        deployment: echo(&[]),
        interface: interface().short(),
        messages: true,
        unfit: Code::Bpf(b"no object"[..].into()),
    };
    for mode in [XdpMode::Native, XdpMode::Generic] {
        crate::site::conformance::check(|| Box::new(site(&lab, Host::B, mode)), &subject);
    }
    for direction in [Direction::Ingress, Direction::Egress] {
        crate::site::conformance::check(|| Box::new(site(&lab, Host::B, direction)), &subject);
    }
}

#[test]
fn what_cannot_be_is_refused_and_leaves_nothing() {
    let Some(lab) = lab() else { return };
    let mut site = site(&lab, Host::B, XdpMode::Native);
    let says = |result: Result<Slot>, words: &str| {
        let fault = result.unwrap_err().to_string();
        assert!(fault.contains(words), "{fault}");
    };
    says(site.deploy(Deployment { code: Code::Wasm([][..].into()), ..echo(&[]) }), "runs bpf bodies only");
    says(site.deploy(deployment("test.echo", b"text", "x", ProgramRole::Hook, &[])), "ELF");
    let code = bpf::ECHO.unwrap();
    says(site.deploy(deployment("test.echo", code, "absent", ProgramRole::Hook, &[])), "count_frames");
    says(site.deploy(deployment("test.echo", code, "call", ProgramRole::Hook, &[])), "is no SEC(\"xdp\")");
    says(site.deploy(deployment("test.echo", code, "count_frames", ProgramRole::Producer, &[])), "without a map FRAME");

    // The sections are not found by their names.
    let mut bare = bpf::IDLE.unwrap().to_vec();
    let names: Vec<usize> = (0..bare.len() - 5).filter(|&at| bare[at..].starts_with(b".BTF")).collect();
    names.into_iter().for_each(|at| bare[at + 1] = b'X');
    says(
        site.deploy(deployment("test.bare", &bare, "idle", ProgramRole::Hook, &[])),
        "does not describe its functions",
    );

    let slot = site.deploy(echo(&[("refuse_start", "1")])).unwrap();
    for (name, value) in [(PRIORITY, "first"), (PRIORITY, "4294967296"), (CHAINS, "PASS, KEEP")] {
        says(site.deploy(echo(&[(name, value)])), name);
    }
    let more: Vec<Slot> = (1..10).map(|_| site.deploy(echo(&[])).unwrap()).collect();
    says(site.deploy(echo(&[])), "has room for 10: test.echo, test.echo");
    more.into_iter().for_each(|slot| site.remove(slot).unwrap());
    site.initialize(slot).unwrap();
    assert!(site.start(slot).unwrap_err().to_string().contains("its program start returned 1"));
    assert_eq!(site.interface.attached().unwrap(), []);
    let asked = conformance::specification(offcode::Cast::Unicast, Delivery::Reliable, Synchronization::Poll);
    let mut larger = asked;
    larger.buffers.count = 128;
    assert!(site.connect(slot, "a", larger).err().unwrap().to_string().contains("IN has 64"));
    let end = site.connect(slot, "a", asked).unwrap();
    assert!(site.connect(slot, "b", asked).is_err());
    assert!(site.adopt(slot, "c", end).is_err());
    site.remove(slot).unwrap();

    // Somebody else is at the hook.
    let mut other = lab.inside(Host::B, || XdpSite::open(lab.interface(Host::B), XdpMode::Generic)).unwrap().unwrap();
    let theirs = other.deploy(echo(&[])).unwrap();
    other.initialize(theirs).unwrap();
    other.start(theirs).unwrap();
    says(site.deploy(echo(&[])), "(plimsoll) in generic mode is attached already");
    let opened = lab.inside(Host::B, || XdpSite::open(lab.interface(Host::B), XdpMode::Native)).unwrap();
    assert!(opened.err().unwrap().to_string().contains("attached already"));
}

#[test]
fn messages_go_to_a_handler_in_the_kernel_and_come_back() {
    let Some(lab) = lab() else { return };
    let mut site = site(&lab, Host::B, XdpMode::Native);
    let slot = site.deploy(echo(&[])).unwrap();
    let asked = conformance::specification(offcode::Cast::Unicast, Delivery::Reliable, Synchronization::Blocking);
    let mut end = site.connect(slot, "echo", asked).unwrap();
    site.initialize(slot).unwrap();
    site.start(slot).unwrap();
    for round in 0..100u64 {
        assert_eq!(end.write(&round.to_ne_bytes()).unwrap(), Written::Taken);
        assert!(end.wait(Nanoseconds(1_000_000_000)).unwrap());
        let mut came = Vec::new();
        assert!(end.read_with(&mut |message| came = message.to_vec()).unwrap());
        assert_eq!(came, round.to_ne_bytes());
    }
    assert!(!end.poll().unwrap());
    assert!(site.evidence(slot).unwrap().uses >= 100);
}

#[test]
fn a_program_that_garbles_the_counters_of_its_channel_harms_it_alone() {
    use std::sync::atomic::Ordering::Relaxed;

    let Some(lab) = lab() else { return };
    let mut site = site(&lab, Host::B, XdpMode::Native);
    let slot = site.deploy(echo(&[])).unwrap();
    let asked = conformance::specification(offcode::Cast::Unicast, Delivery::Reliable, Synchronization::Poll);
    let mut end = site.connect(slot, "echo", asked).unwrap();
    site.initialize(slot).unwrap();
    site.start(slot).unwrap();
    let input = site.shared(slot, "IN").unwrap();
    let most = u64::MAX;
    for (written, read, outcome) in [(0, 1, Written::Full), (most, 3, Written::Full), (most, most, Written::Taken)] {
        input.value(0)[0].store(written, Relaxed);
        input.value(0)[channel::READ].store(read, Relaxed);
        assert_eq!(end.write(b"x").unwrap(), outcome, "{written} written, {read} read");
    }
    assert_eq!(input.value(0)[0].load(Relaxed), 0);
}

/// The far end of a channel: each step a call of a program in the kernel.
struct FarEnd {
    inner: Arc<Inner>,
    specification: Specification,
    next: Option<Vec<u8>>,
    counted: Counted,
}

impl FarEnd {
    fn step(&self, program: &str, context: &mut [u8]) -> i32 {
        self.inner.object.program(program).unwrap().call(context).unwrap()
    }
}

impl Channel for FarEnd {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn write_with(&mut self, length: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<Written> {
        if length > 1024 {
            return Err(Fault::new("far end", "too long", "send less"));
        }
        let mut context = vec![0; 8 + 1024];
        fill(&mut context[8..8 + length]);
        context[..8].copy_from_slice(&(length as u64).to_ne_bytes());
        Ok(match (self.step("put", &mut context), self.specification.delivery) {
            (0, _) => {
                self.counted.written += 1;
                Written::Taken
            }
            (_, Delivery::Reliable) => Written::Full,
            (_, Delivery::Unreliable) => Written::Dropped,
        })
    }

    fn read_with(&mut self, deliver: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let there = self.poll()?;
        if let Some(message) = self.next.take() {
            deliver(&message);
            self.counted.read += 1;
        }
        Ok(there)
    }

    fn poll(&mut self) -> Result<bool> {
        if self.next.is_none() {
            let mut context = vec![0; 8 + 1024];
            assert_eq!(self.step("take", &mut context), 0);
            let length = u64::from_ne_bytes(context[..8].try_into().unwrap());
            if length != u64::MAX {
                self.next = Some(context[8..8 + length as usize].to_vec());
            }
        }
        Ok(self.next.is_some())
    }

    fn wait(&mut self, limit: Nanoseconds) -> Result<bool> {
        if self.specification.synchronization == Synchronization::Poll {
            return Err(Fault::new("far end", "polled", "poll it"));
        }
        let until = Instant::now() + Duration::from_nanos(limit.0);
        while !self.poll()? && Instant::now() < until {}
        self.poll()
    }

    fn is_abandoned(&self) -> bool {
        false
    }

    fn counted(&self) -> Counted {
        self.counted
    }
}

struct Kernel<'a> {
    lab: &'a Lab,
}

impl Bench for Kernel<'_> {
    fn unicast(&mut self, specification: &Specification) -> Option<(Endpoint, Endpoint)> {
        let mut site = site(self.lab, Host::B, XdpMode::Native);
        let code = bpf::FAR_END.unwrap();
        let slot = site.deploy(deployment("test.far", code, "produce", ProgramRole::Producer, &[])).unwrap();
        let near = site.connect(slot, "far", *specification).unwrap();
        let inner = site.body(slot).unwrap().inner.clone();
        // The suite drops ends, not sites: the offcode stays for as long as one of them does.
        std::mem::forget(std::mem::take(&mut site.bodies));
        Some((near, Box::new(FarEnd { inner, specification: *specification, next: None, counted: Counted::default() })))
    }

    /// A program in the kernel has no notion of it.
    fn notices_ends(&self) -> bool {
        false
    }

    /// The far end has one more in its hand after it was polled.
    fn most_in_flight(&self, specification: &Specification) -> u64 {
        u64::from(specification.buffers.count) + 1
    }
}

#[test]
fn its_channels_pass_the_conformance_suite() {
    let Some(lab) = lab() else { return };
    conformance::all(&mut Kernel { lab: &lab });
}

#[test]
fn a_producer_sends_what_it_is_allowed_to_and_the_other_host_counts_it() {
    let Some(lab) = lab() else { return };
    // The receiving hook first: without it the driver drops what a program sends.
    let mut receiving = site(&lab, Host::B, XdpMode::Native);
    let hook = receiving.deploy(echo(&[])).unwrap();
    let mut counted = receiving.connect(hook, "", Specification::default()).unwrap();
    receiving.initialize(hook).unwrap();
    receiving.start(hook).unwrap();

    let mut sending = site(&lab, Host::A, XdpMode::Native);
    let code = bpf::FAR_END.unwrap();
    let slot = sending.deploy(deployment("test.producer", code, "produce", ProgramRole::Producer, &[])).unwrap();
    let mut calls = sending.connect(slot, "", Specification::default()).unwrap();
    let frame = sending.shared(slot, "FRAME").unwrap();
    frame.value(0)[0].store(64, Ordering::Relaxed);
    frame.value(0)[1].store(1, Ordering::Relaxed);
    sending.initialize(slot).unwrap();
    let before = number_of(call(&mut *counted, 1, &[]));
    sending.start(slot).unwrap();
    (0..25).for_each(|_| drop(call(&mut *calls, 0, &[]).unwrap()));
    until("the producer does not send", || number_of(call(&mut *calls, 1, &[])) == 25);
    until("frames do not arrive", || number_of(call(&mut *counted, 1, &[])) >= before + 25);
    let evidence = sending.evidence(slot).unwrap();
    assert!(evidence.whereabouts.contains("live frames out of") && evidence.whereabouts.contains("by thread"));
    assert!(counter(&evidence, "runs of the program") >= 25);
    sending.remove(slot).unwrap();
}

/// A body that returns this verdict for datagrams and counts them.
fn verdict(name: &str, verdict: &str, attributes: &[(&str, &str)]) -> Deployment {
    let attributes = [&[("VERDICT", verdict)][..], attributes].concat();
    deployment(name, bpf::VERDICT.unwrap(), "verdict", ProgramRole::Hook, &attributes)
}

#[test]
fn several_see_a_frame_in_their_order_as_far_as_verdicts_chain() {
    several_see_a_frame(XdpMode::Native);
}

#[test]
#[ignore = "make check"]
fn several_see_a_frame_before_the_stack_too() {
    several_see_a_frame(XdpMode::Generic);
}

fn several_see_a_frame(mode: XdpMode) {
    let Some(lab) = lab() else { return };
    let mut site = site(&lab, Host::B, mode);
    let mut start = |deployment| {
        let slot = site.deploy(deployment).unwrap();
        site.initialize(slot).unwrap();
        site.start(slot).unwrap();
        slot
    };
    let late = start(verdict("test.late", "2", &[(PRIORITY, "60")]));
    let early = start(verdict("test.early", "2", &[(PRIORITY, "10")]));
    let middle = start(verdict("test.middle", "1", &[]));
    let seen =
        |site: &XdpSite, slot| site.shared(slot, "SEEN").unwrap().value(0)[usize::from(b'x')].load(Ordering::Relaxed);
    let stage = |site: &mut XdpSite, slot| site.evidence(slot).unwrap().whereabouts;
    assert!(stage(&mut site, early).contains("stage 1 of 3") && stage(&mut site, late).contains("stage 3 of 3"));
    assert!(stage(&mut site, middle).contains(&format!("{}, on {}", Point::from(mode), lab.interface(Host::B))));

    datagrams(&lab, 20);
    until("frames are not dropped", || seen(&site, middle) == 20);
    assert_eq!((seen(&site, early), seen(&site, late)), (20, 0), "what is dropped is seen by none behind");
    let evidence = site.evidence(middle).unwrap();
    assert_eq!(counter(&evidence, "runs to DROP"), 20);
    assert!(counter(&evidence, "runs of the program") >= 20 && evidence.timed.is_some(), "{evidence:?}");

    site.set_attribute(middle, CHAINS, "PASS,DROP").unwrap();
    assert!(site.set_attribute(middle, CHAINS, "ALL").is_err());
    datagrams(&lab, 5);
    until("a verdict that chains ends it", || seen(&site, late) == 5);
    site.set_attribute(late, PRIORITY, "1").unwrap();
    assert!(stage(&mut site, late).contains("stage 1 of 3"), "it is moved to the front");

    site.remove(early).unwrap();
    datagrams(&lab, 5);
    until("frames pass the two that stay", || seen(&site, late) == 10 && seen(&site, middle) == 30);
    assert_eq!(counter(&site.evidence(middle).unwrap(), "runs to DROP"), 30, "counters stay");
    let again = site.deploy(verdict("test.again", "2", &[])).unwrap();
    site.initialize(again).unwrap();
    site.start(again).unwrap();
    assert!(counter(&site.evidence(again).unwrap(), "runs of the program") < 10, "its counters start at 0");
    [late, middle, again].into_iter().for_each(|slot| site.remove(slot).unwrap());
    assert_eq!(site.interface.attached().unwrap(), []);
}

#[test]
fn each_channel_that_an_object_names_has_maps_of_its_own() {
    let Some(lab) = lab() else { return };
    let mut site = site(&lab, Host::B, XdpMode::Native);
    let slot = site.deploy(verdict("test.two", "2", &[])).unwrap();
    let mut asked = conformance::specification(offcode::Cast::Unicast, Delivery::Reliable, Synchronization::Poll);
    asked.buffers.count = 4;
    let mut ends = ["first", "example.peer/second"].map(|name| (name, site.connect(slot, name, asked).unwrap()));
    for name in ["first", "second", "third"] {
        assert!(site.connect(slot, name, asked).is_err(), "{name}");
    }
    site.initialize(slot).unwrap();
    site.start(slot).unwrap();
    for (number, (name, end)) in (1u8..).zip(&mut ends) {
        for round in 0..10u8 {
            assert_eq!(end.write(&[round]).unwrap(), Written::Taken);
            let mut came = Vec::new();
            assert!(end.read_with(&mut |message| came = message.to_vec()).unwrap(), "{name}");
            assert_eq!(came, [number, round]);
        }
    }
}

#[test]
fn frames_go_to_the_other_end_of_a_channel_behind_other_stages() {
    let Some(lab) = lab() else { return };
    let mut site = site(&lab, Host::B, XdpMode::Native);
    let counting = site.deploy(verdict("test.counting", "2", &[(PRIORITY, "1")])).unwrap();
    let slot = site.deploy(verdict("test.frames", "4", &[])).unwrap();
    let mut asked = conformance::specification(offcode::Cast::Unicast, Delivery::Reliable, Synchronization::Blocking);
    let fault = site.connect(slot, "copies", asked).err().unwrap();
    assert!(fault.to_string().contains("ask for an unreliable channel"), "{fault}");
    asked.delivery = Delivery::Unreliable;
    let mut end = site.connect(slot, "copies", asked).unwrap();
    assert!(site.connect(slot, "copies", asked).is_err());
    assert!(end.write(b"x").is_err());
    for slot in [counting, slot] {
        site.initialize(slot).unwrap();
        site.start(slot).unwrap();
    }
    for _ in 0..20 {
        datagrams(&lab, 1);
        assert!(end.wait(Nanoseconds(20_000_000_000)).unwrap());
        let mut came = Vec::new();
        assert!(end.read_with(&mut |frame| came = frame.to_vec()).unwrap());
        assert_eq!(came[42..], *b"x");
    }
    assert_eq!((end.counted().read, end.poll().unwrap()), (20, false));
    assert_eq!(counter(&site.evidence(slot).unwrap(), "runs to REDIRECT"), 20);
    assert!(counter(&site.evidence(counting).unwrap(), "runs to PASS") >= 20);
    site.remove(slot).unwrap();
    assert!(end.is_abandoned());
}

const OWNER: &str = "PLIMSOLL_TEST_XDP_OWNER";

/// The owner that the next test kills: this test binary again, told by its environment.
#[test]
fn owner_for_the_test_below() {
    let Some(interface) = std::env::var_os(OWNER) else { return };
    let mut site = XdpSite::open(interface.to_str().unwrap(), XdpMode::Native).unwrap();
    let slot = site.deploy(echo(&[])).unwrap();
    site.initialize(slot).unwrap();
    site.start(slot).unwrap();
    println!("\nprogram: {}", site.chain.prove().unwrap().unwrap().id);
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn nothing_is_left_of_a_killed_owner() {
    let Some(lab) = lab() else { return };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--nocapture", "site::xdp::tests::owner_for_the_test_below"]);
    command.env(OWNER, lab.interface(Host::B)).stdout(Stdio::piped());
    let mut owner = lab.enter(Host::B, &mut command).unwrap().spawn().unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let id = lines.map_while(std::result::Result::ok).find_map(|line| line.strip_prefix("program: ")?.parse().ok());
    let id: u32 = id.expect("the owner tells its program");
    let interface = lab.inside(Host::B, || Interface::named(lab.interface(Host::B)).unwrap()).unwrap();
    assert_eq!(interface.attached().unwrap()[0].id, id);
    assert!(xdp::exists(id));
    owner.kill().unwrap();
    owner.wait().unwrap();
    until("the program is still attached", || interface.attached().unwrap().is_empty());
    until("the program is still there", || !xdp::exists(id));
}

/// Asks for memory, of which its target has so much.
fn with_memory(deployment: Deployment, names: &Names, memory: Bytes) -> Deployment {
    let mut manifest = Manifest::clone(&deployment.manifest);
    manifest.hardware[0].memory = memory;
    manifest.software.environment = vec![offcode::service::MEMORY];
    let memory = names.granted(&manifest, SiteKind::Xdp);
    Deployment { manifest: Arc::new(manifest), memory, ..deployment }
}

#[test]
fn arrays_of_an_object_are_words_that_others_read_within_the_memory_of_its_target() {
    let Some(lab) = lab() else { return };
    let mut site = site(&lab, Host::B, XdpMode::Native);
    let names = Names::default();
    let body = |memory| with_memory(verdict("test.seer", "PASS", &[]), &names, memory);
    let said = site.deploy(body(Bytes(4096))).unwrap_err().to_string();
    assert!(said.contains("its maps take") && said.contains("memory is 4 KiB"), "{said}");
    let slot = site.deploy(body(Bytes(1 << 20))).unwrap();
    site.initialize(slot).unwrap();
    site.start(slot).unwrap();
    let reader = with_memory(echo(&[]), &names, Bytes(1 << 20)).memory;
    let load = |count: usize| -> Result<Option<Vec<u64>>> {
        let mut seen = vec![0; count];
        reader.load("test.seer/SEEN", 0, &mut seen).map(|there| there.then_some(seen))
    };
    until("datagrams are seen by another offcode", || {
        datagrams(&lab, 1);
        load(256).unwrap().unwrap()[usize::from(b'x')] > 3
    });
    let own = site.shared(slot, "SEEN").unwrap().value(0)[usize::from(b'x')].load(Ordering::Acquire);
    assert!(own >= load(256).unwrap().unwrap()[usize::from(b'x')], "both read one memory");
    assert!(load(257).unwrap_err().to_string().contains("are not within its 256"));
    assert!(!reader.load("test.seer/IN_first", 0, &mut [0]).unwrap(), "ends of channels are its own");
    site.remove(slot).unwrap();
    assert_eq!(load(256).unwrap(), None, "they go with their offcode");
}
