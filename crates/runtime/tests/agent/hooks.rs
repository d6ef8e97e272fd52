//! Driver hooks that an agent offers: used from elsewhere as any site, frames that are really sent, and clients that mean
//! harm.

use std::cell::RefCell;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Instant;

use linux::lab::{Host, Lab, Options};
use linux::xdp::Interface;
use machine::bounds::{AGENT_CODE, AGENT_MAPS};
use machine::{BodyKind, Bytes, Fault, Result, Site, SiteKind, XdpMode};
use offcode::call::{Header, Kind};
use offcode::manifest::{self, Manifest, Package, Program, ProgramRole, Software, Target};
use offcode::{Attributes, Channel, Guid};
use runtime::agent::{Limits, Reason};
use runtime::app_file::AppFile;
use runtime::catalogue::Linked;
use runtime::code::Code;
use runtime::grounds;
use runtime::site::agent::{AgentSite, Connection};
use runtime::site::app::AppSite;
use runtime::site::conformance::{Subject, check};
use runtime::site::residents::Residents;
use runtime::site::xdp::XdpSite;
use runtime::site::{Deployment, OUT_OF_BAND, SiteDriver, Slot};
use runtime::{Catalogue, Runtime, Wanted};

use super::rig::*;

fn lab() -> Option<Lab> {
    if let Some(why) = bpf::MISSING {
        skip::test(why);
        return None;
    }
    Lab::owned(&Options::default()).inspect_err(|why| skip::test(why)).ok()
}

/// Cores and the hook of host b.
fn sites(lab: &Lab, mode: XdpMode) -> Vec<Box<dyn SiteDriver>> {
    let hook = lab.inside(Host::B, || XdpSite::open(lab.interface(Host::B), mode)).unwrap().unwrap();
    let app = AppSite::new(Residents::new(Site::App, Instant::now(), Arc::new(|_| {})));
    vec![Box::new(app), Box::new(hook)]
}

fn start(lab: &Lab, limits: Limits) -> Running {
    Running::with_sites(limits, sites(lab, XdpMode::Native), registry())
}

fn connection(agent: &Running) -> Arc<Connection> {
    Connection::open(&agent.host(), &agent.host(), Some(&agent.client_keys())).unwrap()
}

fn hook(lab: &Lab, agent: &Running) -> AgentSite {
    connection(agent).hook(lab.interface(Host::B), XdpMode::Native).unwrap()
}

fn interface() -> Guid {
    Guid::named("test.interface")
}

fn manifest(name: &str, program: &str, role: ProgramRole) -> Manifest {
    let body = manifest::Body {
        kind: BodyKind::Bpf,
        file: Some("body.o".into()),
        libraries: Vec::new(),
        sites: vec![SiteKind::Xdp],
        program: Some(Program { name: program.into(), role }),
        tc: None,
    };
    Manifest {
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
        hardware: vec![Target {
            site: SiteKind::Xdp,
            modes: vec![XdpMode::Native, XdpMode::Generic],
            memory: Bytes(0),
            work: None,
        }],
        software: Software::default(),
    }
}

fn deployment(name: &str, code: &[u8], program: &str, role: ProgramRole) -> Deployment {
    let manifest = Arc::new(manifest(name, program, role));
    let (code, attributes) = (Code::Bpf(code.into()), Attributes::default());
    Deployment { name: name.into(), manifest, code, attributes, memory: Default::default() }
}

fn echo(name: &str) -> Deployment {
    deployment(name, bpf::ECHO.unwrap(), "count_frames", ProgramRole::Hook)
}

/// The programs at the hook, as the kernel says.
fn attached(lab: &Lab) -> usize {
    let interface = lab.inside(Host::B, || Interface::named(lab.interface(Host::B))).unwrap().unwrap();
    interface.attached().unwrap().len()
}

fn datagrams(lab: &Lab, count: usize) {
    let send = || {
        let socket = UdpSocket::bind((lab.address(Host::A), 0)).unwrap();
        (0..count).for_each(|_| assert_eq!(socket.send_to(b"x", (lab.address(Host::B), 9)).unwrap(), 1));
    };
    lab.inside(Host::A, send).unwrap();
}

/// A call of method `method` without arguments: a number.
fn call(end: &mut dyn Channel, method: u16) -> u64 {
    let mut message = [0; Header::LENGTH];
    Header { interface: interface().short(), method, kind: Kind::Call, route: 0, id: 7 }.write(&mut message);
    assert_eq!(end.write(&message).unwrap(), offcode::Written::Taken);
    let mut answer = Vec::new();
    comes("the answer", || end.read_with(&mut |bytes| answer = bytes.to_vec()).unwrap());
    let (header, content) = Header::read(&answer).unwrap();
    assert_eq!(header.kind, Kind::Reply);
    u64::from_ne_bytes(content.try_into().unwrap())
}

#[test]
fn the_driver_hook_of_an_agent_is_a_site_as_any_other() {
    let Some(lab) = lab() else { return };
    let subject = Subject {
        deployment: echo("test.echo"),
        interface: interface().short(),
        messages: true,
        unfit: Code::Bpf(b"no object"[..].into()),
    };
    for mode in [XdpMode::Native, XdpMode::Generic] {
        let agents = RefCell::new(Vec::new());
        let open = || {
            let agent = Running::with_sites(Limits::default(), sites(&lab, mode), registry());
            let site = connection(&agent).hook(lab.interface(Host::B), mode).unwrap();
            assert_eq!((site.ground().mode, site.ground().slots), (Some(mode), 10));
            agents.borrow_mut().push(agent);
            Box::new(site) as Box<dyn SiteDriver>
        };
        check(open, &subject);
    }
}

#[test]
fn frames_are_counted_there_and_told_here_until_the_client_goes() {
    let Some(lab) = lab() else { return };
    let agent = start(&lab, Limits::default());
    let connection = connection(&agent);
    let site = connection.hook(lab.interface(Host::B), XdpMode::Native).unwrap();
    let name = site.site().clone();
    let package = |name: &str| {
        let code = Code::Bpf(bpf::ECHO.unwrap().into());
        let manifest = Arc::new(manifest(name, "count_frames", ProgramRole::Hook));
        Linked { manifest, bodies: vec![(SiteKind::Xdp, code)] }
    };
    let catalogue = Catalogue::linked(vec![package("test.one"), package("test.two")]);
    let app = AppSite::new(Residents::new(Site::App, Instant::now(), Arc::new(|_| {})));
    let sites: Vec<Box<dyn SiteDriver>> = vec![Box::new(app), Box::new(site)];
    let mut runtime = Runtime::new(catalogue, sites, Arc::new(|_| {})).unwrap();
    // Two bodies at one hook: each sees what the one before lets through.
    let created = runtime.create_offcodes(&[Wanted::new("test.one"), Wanted::new("test.two")]).unwrap();
    datagrams(&lab, 20);
    comes("frames at both", || {
        let counted = |line: &attach::control::Running| {
            assert_eq!(line.site, name);
            let evidence = line.evidence.as_ref().unwrap();
            let whereabouts = &evidence.whereabouts;
            assert!(whereabouts.starts_with(&format!("agent at {}", agent.address)), "{whereabouts}");
            assert!(whereabouts.contains("of 2, native mode, on"), "{whereabouts}");
            assert!(evidence.counters.iter().any(|counter| counter.name.contains("core time of all offcodes")));
            evidence.uses >= 20
        };
        runtime.status().iter().all(counted)
    });
    let dump = runtime.map(created[0], "frames").unwrap();
    assert!(dump.entries.iter().any(|(_, value)| value.parse::<u64>().is_ok_and(|value| value >= 20)), "{dump:?}");
    let said = runtime.shared(created[0], "IN").map(drop).unwrap_err().to_string();
    assert!(said.contains("memory of another host"), "{said}");
    let said = runtime.migrate(created[0], &Site::App).map(drop).unwrap_err().to_string();
    assert!(said.contains("do not move to and from driver hooks of other hosts"), "{said}");
    assert_eq!(attached(&lab), 1);
    drop((runtime, connection));
    comes("the end of its programs", || attached(&lab) == 0);
    agent.logged("in all its offcodes took");
}

#[test]
fn an_offcode_at_the_hook_and_one_at_a_core_of_the_agent_exchange_messages_there() {
    let Some(lab) = lab() else { return };
    let agent = start(&lab, Limits::default());
    let connection = connection(&agent);
    let (mut core, mut hook) =
        (connection.site(None).unwrap(), connection.hook(lab.interface(Host::B), XdpMode::Native).unwrap());
    let started = |site: &mut AgentSite, deployment| -> Slot {
        let slot = site.deploy(deployment).unwrap();
        site.initialize(slot).unwrap();
        site.start(slot).unwrap();
        slot
    };
    for core_creates in [true, false] {
        let at_hook = started(&mut hook, echo("test.echo"));
        let at_core = started(&mut core, super::rig::deployment("relay", native()));
        // Either sends back what comes from the other, so that one message goes round until they are removed.
        let (ours, theirs) = ((at_core, "out"), (at_hook, "in"));
        match core_creates {
            true => core.join_here([ours, theirs], specification()).unwrap(),
            false => hook.join_here([theirs, ours], specification()).unwrap(),
        }
        let mut end = core.connect(at_core, "start", specification()).unwrap();
        comes("room", || end.write(b"around").unwrap() == offcode::Written::Taken);
        comes("a message that went around", || core.evidence(at_core).unwrap().uses > 20);
        core.remove(at_core).unwrap();
        hook.remove(at_hook).unwrap();
    }
}

#[test]
fn a_hook_is_used_where_it_is_named_and_never_because_all_may_be() {
    let Some(lab) = lab() else { return };
    let agent = start(&lab, Limits { cpu_per_client: Some(25), ..Limits::default() });
    let keys = agent.client_keys();
    let grounds = |sites: &str| {
        let text = format!(
            "name = \"t\"\nsites = {sites}\n[[offcode]]\ncreate = \"test.echo\"\n[agents.\"127.0.0.1\"]\naddress = \"{}\"\nkeys = \"{}\"\n",
            agent.host(),
            keys.display()
        );
        let file = AppFile::parse(&text, std::path::Path::new("APP.toml")).unwrap();
        let machine = machine::Machine::read(&machine::Source::live()).unwrap();
        let mut grounds = grounds::survey(&file, &machine, &linux::affinity::allowed().unwrap());
        grounds::ask(&file, &mut grounds);
        grounds
    };
    let name: Site = format!("agent:127.0.0.1/xdp:{}", lab.interface(Host::B)).parse().unwrap();
    let all = grounds("\"all\"");
    assert!(all.iter().all(|ground| ground.site.kind() != SiteKind::Xdp), "{all:?}");
    let at_agent = all.iter().find(|ground| ground.site.to_string() == "agent:127.0.0.1").unwrap();
    assert_eq!(at_agent.capacity.0, 0.25);
    for (mode, open) in [("native", true), ("generic", false)] {
        let named = grounds(&format!("[\"app\", \"{name}:{mode}\"]"));
        let ground = named.iter().find(|ground| ground.site == name).unwrap();
        assert_eq!(ground.memory, AGENT_MAPS.each.bytes());
        let why = ground.closed.clone().unwrap_or_default();
        assert_eq!(ground.closed.is_none(), open, "{why}");
        assert!(open || why.contains("--hooks") && why.contains(":generic"), "{why}");
    }
}

/// The object with one instruction in the place of another.
fn patched(object: &[u8], from: [u8; 8], to: [u8; 8]) -> Vec<u8> {
    let mut object = object.to_vec();
    let at = (0..object.len() - 8).step_by(8).find(|&at| object[at..at + 8] == from).expect("it has the instruction");
    object[at..at + 8].copy_from_slice(&to);
    object
}

#[test]
fn what_is_no_guest_at_a_hook_is_refused_and_others_are_served() {
    let Some(lab) = lab() else { return };
    let agent = start(&lab, Limits::default());
    let mut hostile = hook(&lab, &agent);
    let mut says = |deployment: Deployment, words: &str| {
        let said = hostile.deploy(deployment).unwrap_err().to_string();
        assert!(said.contains(words) && said.contains("Next: "), "{words}: {said}");
    };
    let hooked = |code: &[u8], program| deployment("test.hostile", code, program, ProgramRole::Hook);
    let (good, call_of_loop) = (bpf::ECHO.unwrap(), [0x85, 0, 0, 0, 181, 0, 0, 0]);
    says(hooked(b"\x7fELF, and then nothing", "x"), "ELF");
    for cut in [64, 500, good.len() / 2, good.len() - 100] {
        says(hooked(&good[..cut], "count_frames"), "test.hostile");
    }
    says(hooked(good, "absent"), "count_frames");
    // System calls of BPF, and reading the kernel's memory.
    for helper in [166u8, 113, 4, 23, 69] {
        let reaches = patched(good, call_of_loop, [0x85, 0, 0, 0, helper, 0, 0, 0]);
        says(hooked(&reaches, "count_frames"), &format!("helper {helper}"));
    }
    // A function of the kernel.
    says(hooked(&patched(good, call_of_loop, [0x85, 0x20, 0, 0, 5, 0, 0, 0]), "count_frames"), "not its own");
    says(
        deployment("test.hostile", bpf::TRAFFIC_SEND.unwrap(), "send", ProgramRole::Producer),
        "makes frames by itself",
    );
    // A first body that is not the one that runs does not hide what that is.
    let mut hidden = deployment("test.hostile", bpf::TRAFFIC_SEND.unwrap(), "send", ProgramRole::Producer);
    let mut manifest = (*hidden.manifest).clone();
    let harmless = manifest::Body {
        kind: BodyKind::Native,
        program: Some(Program { name: "send".into(), role: ProgramRole::Hook }),
        tc: None,
        ..manifest.package.bodies[0].clone()
    };
    manifest.package.bodies.insert(0, harmless);
    hidden.manifest = manifest.into();
    says(hidden, "makes frames by itself");
    says(hooked(bpf::REDIRECT.unwrap(), "redirect"), "hands frames on by its SOCKETS");
    let large = vec![0; AGENT_CODE.each.bytes().0 as usize + 1];
    says(hooked(&large, "x"), "beyond the");
    says(Deployment { code: native(), ..echo("test.hostile") }, "linked into the agent");
    // A body for the hook at a core, and one for a core at the hook.
    let mut core = agent.client();
    let said = core.deploy(echo("test.hostile")).unwrap_err().to_string();
    assert!(said.contains("driver hook only"), "{said}");
    says(Deployment { code: Code::Wasm(good.into()), ..echo("test.hostile") }, "test.hostile");
    assert_eq!(attached(&lab), 0);
    agent.serves();
    let slot = hostile.deploy(echo("test.echo")).unwrap();
    hostile.initialize(slot).unwrap();
    hostile.start(slot).unwrap();
    assert_eq!(attached(&lab), 1);
}

#[test]
fn maps_stay_within_the_memory_of_one_client() {
    let Some(lab) = lab() else { return };
    // Its IN has 65 slots of 4 KiB, its OUT 512 KiB.
    let agent = start(&lab, Limits { maps_per_client: Bytes(2 << 20), ..Limits::default() });
    let mut client = hook(&lab, &agent);
    let mut slots = Vec::new();
    let said = loop {
        match client.deploy(echo("test.echo")) {
            Ok(slot) => slots.push(slot),
            Err(fault) => break fault.to_string(),
        }
        assert!(slots.len() < 10);
    };
    assert!(slots.len() >= 2 && said.contains("--limit maps-per-client"), "{} fit: {said}", slots.len());
    client.remove(slots[0]).unwrap();
    client.deploy(echo("test.echo")).unwrap();
    drop(client);
    assert!(refused(&agent.end(), Reason::Limit) > 0);
}

#[test]
fn a_hook_that_is_not_offered_and_one_that_another_client_has_are_refused_with_the_next_step() {
    let Some(lab) = lab() else { return };
    let agent = start(&lab, Limits::default());
    let refused = |outcome: Result<AgentSite>, words: &[&str]| {
        let said = outcome.map(drop).unwrap_err().to_string();
        words.iter().for_each(|word| assert!(said.contains(word), "{said}"));
    };
    let interface = lab.interface(Host::B);
    refused(connection(&agent).hook("eth9", XdpMode::Native), &["eth9", interface, "--hooks eth9:native"]);
    let generic = connection(&agent).hook(interface, XdpMode::Generic);
    refused(generic, &[":native", &format!("--hooks {interface}:generic")]);
    let without = Running::start(Limits::default());
    refused(connection(&without).hook(interface, XdpMode::Native), &["the agent offers app", "--hooks"]);

    let (mut first, mut second) = (hook(&lab, &agent), hook(&lab, &agent));
    let slot = first.deploy(echo("test.first")).unwrap();
    first.initialize(slot).unwrap();
    first.start(slot).unwrap();
    let fault: Fault = second.deploy(echo("test.second")).unwrap_err();
    assert!(fault.to_string().contains("another client has offcodes at xdp:"), "{fault}");
    assert!(second.set_attribute(slot, "HOOK_CHAINS", "").is_err() && second.remove(slot).is_ok());
    let mut calls = first.connect(slot, "", OUT_OF_BAND).unwrap();
    let before = call(&mut *calls, 1);
    datagrams(&lab, 5);
    comes("frames at the first", || call(&mut *calls, 1) >= before + 5);
    drop((first, calls));
    comes("the hook's being free", || second.deploy(echo("test.second")).is_ok());
}

/// Programs of a client whose process is killed go with it.
#[test]
fn a_client_that_is_killed_takes_its_programs_along() {
    let Some(lab) = lab() else { return };
    let agent = start(&lab, Limits::default());
    let keys = agent.client_keys();
    let arguments = ["hook client", &agent.host(), keys.to_str().unwrap(), lab.interface(Host::B)];
    let mut client = Player::start(&arguments, |_| {});
    client.says("deployed");
    assert_eq!(attached(&lab), 1);
    client.kill();
    comes("the end of its programs", || attached(&lab) == 0);
    agent.logged("its offcode was stopped and removed");
}

/// The part of such a client.
pub fn as_client(host: &str, keys: &str, interface: &str) -> AgentSite {
    let connection = Connection::open(host, host, Some(std::path::Path::new(keys))).unwrap();
    let mut site = connection.hook(interface, XdpMode::Native).unwrap();
    let slot = site.deploy(echo("test.echo")).unwrap();
    site.initialize(slot).unwrap();
    site.start(slot).unwrap();
    site
}
