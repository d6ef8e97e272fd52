//! The rules against what sites really do: every pair of sites with each body, and specifications by a seed, constructed
//! without asking the rules first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linux::lab::{Host, Lab, Options as LabOptions};
use linux::xdp::{Kind, MapOutline};
use machine::channel::{Buffers, Content, Delivery, Synchronization};
use machine::site::Direction;
use machine::{BodyKind, CoreId, Result, Site};
use offcode::manifest::{self, Package, Program, ProgramRole, Software};
use offcode::registry::Described;
use offcode::service::MEMORY;
use offcode::{Activity, Attributes, Context, Incoming, Offcode, Refusal, Registry, Written};

use super::*;
use crate::agent::{Agent, Limits, Options, keys};
use crate::code::Code;
use crate::gang::{self, Seated};
use crate::possible;
use crate::site::agent::Connection;
use crate::site::app::AppSite;
use crate::site::core::CoreSite;
use crate::site::residents::{Log, Residents};
use crate::site::xdp::XdpSite;
use crate::site::{Deployment, OUT_OF_BAND, SiteDriver};
use crate::switchboard::Switchboard;

/// Longer than anything here takes on a busy machine.
const SOON: Duration = Duration::from_secs(60);
/// Messages over each channel that can be; no more than the smallest has buffers.
const MESSAGES: u64 = 3;
/// Specifications of each pair of sites, beside the usual one.
const DRAWN: usize = 10;

/// Sends [`MESSAGES`] on the channel 'out'.
#[derive(Default)]
struct Talker(u64);

impl Offcode for Talker {
    fn interfaces(&self) -> &[Guid] {
        &[]
    }

    fn call(&mut self, _: Incoming<'_>, _: &mut Vec<u8>, _: &mut dyn Context) -> Result<(), Refusal> {
        Ok(())
    }

    fn turn(&mut self, context: &mut dyn Context) -> Activity {
        let Some(channel) = context.channel("out").filter(|_| self.0 < MESSAGES) else { return Activity::Idle };
        if context.write(channel, b"m") == Written::Taken {
            self.0 += 1;
        }
        Activity::Worked
    }
}

fn manifest(name: &str, kind: BodyKind, program: Option<&str>) -> Arc<Manifest> {
    let tc = (program == Some("count_frames")).then(|| "count_packets".to_owned());
    let program = program.map(|name| Program { name: name.into(), role: ProgramRole::Hook });
    let sites = [SiteKind::App, SiteKind::Core, SiteKind::Xdp, SiteKind::Tc, SiteKind::Agent];
    let package = Package {
        guid: Talker::GUID,
        name: name.into(),
        version: "1".into(),
        description: String::new(),
        interfaces: Vec::new(),
        bodies: vec![manifest::Body { kind, file: None, libraries: Vec::new(), sites: sites.to_vec(), program, tc }],
        attributes: Vec::new(),
        state: Default::default(),
    };
    let hardware = sites.map(|site| Target { site, modes: Vec::new(), memory: Bytes(0), work: None }).to_vec();
    Arc::new(Manifest { package, hardware, software: Software::default() })
}

/// A body for user space, and three for a hook: with both maps and calls, with fewer slots, without maps.
fn bodies(site: &Site) -> Vec<Deployment> {
    let deployment = |manifest, code| Deployment {
        name: "talker".into(),
        manifest,
        code,
        attributes: Attributes::default(),
        memory: Default::default(),
    };
    if !site.kind().is_hook() {
        let code = Code::Native(Arc::new(|| Box::new(Talker::default())));
        return vec![deployment(manifest("talker", BodyKind::Native, None), code)];
    }
    let objects = [(bpf::ECHO, "count_frames"), (bpf::FAR_END, "produce"), (bpf::IDLE, "idle")];
    let objects = objects.into_iter().filter_map(|(code, program)| Some((code?, program)));
    // Of these one has a program for tc hooks.
    let at_tc = site.kind() == SiteKind::Tc;
    objects
        .take(if at_tc { 1 } else { 3 })
        .map(|(code, program)| deployment(manifest("hook", BodyKind::Bpf, Some(program)), Code::Bpf(Arc::from(code))))
        .collect()
}

/// An agent on loopback, as long as this lives.
struct Running {
    stop: Arc<AtomicBool>,
    bell: Arc<dyn machine::channel::Bell>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.bell.ring();
        let _ = self.thread.take().map(|thread| thread.join());
    }
}

impl Described for Talker {
    const GUID: Guid = Guid::from_bytes(*b"plimsoll-talker!");
    const INTERFACES: &'static [Guid] = &[];
    const SIGNATURE: u64 = offcode::signature(&[]);
    fn manifest() -> Manifest {
        (*manifest("talker", BodyKind::Native, None)).clone()
    }
}

fn agent(folder: &std::path::Path, hook: Option<XdpSite>) -> (Running, Arc<Connection>) {
    // What channels that have just ended give back comes later: no rule, and not what is tested.
    let (channel_memory, channel_memory_per_client) = (Bytes(1 << 40), Bytes(1 << 40));
    let limits = Limits { channel_memory, channel_memory_per_client, channels: 1 << 20, ..Limits::default() };
    let options = Options { listen: "127.0.0.1:0".parse().unwrap(), keys: folder.join("127.0.0.1"), limits };
    let app = AppSite::new(Residents::new(Site::App, Instant::now(), quiet()));
    let hook = hook.map(|hook| Box::new(hook) as Box<dyn SiteDriver>);
    let sites = std::iter::once(Box::new(app) as Box<dyn SiteDriver>).chain(hook).collect();
    let agent = Agent::bind(&options, Registry::new().with::<Talker>(), sites, |_| {}).unwrap();
    let address = agent.address().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let asked = stop.clone();
    let bell = agent.bell();
    let thread = std::thread::spawn(move || drop(agent.run(|| asked.load(Ordering::Relaxed)).unwrap()));
    let host = address.to_string();
    let connection = Connection::open(&host, &host, Some(&folder.join("client"))).unwrap();
    (Running { stop, bell, thread: Some(thread) }, connection)
}

fn quiet() -> Log {
    Arc::new(|_| {})
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn specification(&mut self) -> Specification {
        // Within all bounds; beyond those of some hook; of another host; of memory; no number of buffers at all.
        let sizes = [
            (4, 1),
            (16, 4096),
            (32, 64),
            (64, 4096),
            (64, 4097),
            (128, 8),
            (16, 4 << 20),
            (32, 4 << 20),
            (4, 128 << 20),
            (4, (128 << 20) + 1),
            (65536, 16 << 10),
            (12, 64),
            (2, 64),
            (4, 0),
        ];
        let (count, size) = self.of(&sizes);
        let policy = self.of(&[Policy::Any, Policy::ZeroCopy, Policy::Copy]);
        Specification {
            cast: self.of(&[Cast::Unicast, Cast::Multicast]),
            delivery: self.of(&[Delivery::Reliable, Delivery::Unreliable]),
            synchronization: self.of(&[Synchronization::Poll, Synchronization::Blocking]),
            content: self.of(&[Content::Calls, Content::Messages]),
            buffers: Buffers { count, size: Bytes(size), policy },
        }
    }
}

/// A cell of the matrix: two offcodes at two sites, deployed and started, that are to be joined.
struct Cell<'a> {
    sites: &'a mut [Box<dyn SiteDriver>],
    switchboard: &'a Switchboard,
    seats: [Seated; 2],
    bodies: [&'a Deployment; 2],
}

impl<'a> Cell<'a> {
    fn make(
        sites: &'a mut [Box<dyn SiteDriver>],
        switchboard: &'a Switchboard,
        places: [usize; 2],
        bodies: [&'a Deployment; 2],
    ) -> Cell<'a> {
        let seats = [0, 1].map(|n| {
            let driver = &mut sites[places[n]];
            let slot = driver.deploy(bodies[n].clone()).unwrap();
            let party = switchboard.add("talker", driver.connect(slot, "", OUT_OF_BAND).unwrap());
            Seated { site: places[n], slot, party, bridged: false }
        });
        Cell { sites, switchboard, seats, bodies }
    }

    fn join(&mut self, names: [&str; 2], specification: Specification) -> Result<()> {
        let [from, to] = self.seats;
        gang::join(self.sites, self.switchboard, (from, names[0]), (to, names[1]), specification).map(drop)
    }

    fn predicted(&self, names: &[[&str; 2]], specification: Specification) -> Result<(), Why> {
        for (n, side) in [Side::Creator, Side::Attached].into_iter().enumerate() {
            let facts = Facts::read(&self.bodies[n].manifest, self.kind(n), &self.bodies[n].code)?;
            let end = |names: &[&str; 2]| End {
                name: names[n].into(),
                specification,
                side,
                attached: 1,
                origin: Origin::Program,
            };
            let all: Vec<End> = names.iter().map(end).collect();
            possible::ends(&self.sites[self.seats[n].site].ground(), &facts, &all)?;
        }
        Ok(())
    }

    fn kind(&self, n: usize) -> SiteKind {
        self.sites[self.seats[n].site].site().kind()
    }

    fn is_hook(&self, n: usize) -> bool {
        matches!(self.bodies[n].code, Code::Bpf(_))
    }

    /// Who sends what of the two is seen at the other.
    fn carries(&mut self, what: &str) {
        let (from, to) = (self.seats[0], self.seats[1]);
        for n in [0, 1] {
            if self.is_hook(n) {
                continue;
            }
            let seat = self.seats[n];
            self.sites[seat.site].initialize(seat.slot).unwrap();
            self.sites[seat.site].start(seat.slot).unwrap();
        }
        let reads = match &self.bodies[1].code {
            Code::Bpf(code) => {
                Hook::read(&self.bodies[1].manifest, self.kind(1), code).unwrap().pairs[""].input.is_some()
            }
            _ => true,
        };
        if self.is_hook(0) || !reads {
            return;
        }
        let deadline = Instant::now() + SOON;
        while self.sites[to.site].evidence(to.slot).unwrap().uses < MESSAGES {
            assert!(Instant::now() < deadline, "{what}: no message came");
            self.sites[from.site].turn().unwrap();
            self.sites[to.site].turn().unwrap();
            std::thread::yield_now();
        }
    }
}

impl Drop for Cell<'_> {
    fn drop(&mut self) {
        for seat in self.seats {
            self.switchboard.remove(seat.party);
            let removed = self.sites[seat.site].remove(seat.slot);
            assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
        }
    }
}

#[test]
#[ignore = "make check"]
fn the_rules_say_what_the_sites_do() {
    let folder = tempfile::tempdir().unwrap();
    keys::make(folder.path(), &["127.0.0.1".into()]).unwrap();
    let (first, one) = agent(folder.path(), None);
    let (second, other) = agent(folder.path(), None);
    let [one, other] = [one, other].map(|connection| connection.site(None).unwrap());
    let residents = |site| AppSite::new(Residents::new(site, Instant::now(), quiet()));
    let last = *linux::affinity::allowed().unwrap().last().expect("this process has a core");
    let (core, _beside) = CoreSite::open(last, Instant::now(), quiet()).unwrap();
    let mut sites: Vec<Box<dyn SiteDriver>> = vec![
        Box::new(residents(Site::App)),
        Box::new(residents(Site::Core(CoreId(9999)))),
        Box::new(core),
        Box::new(one),
        Box::new(other),
    ];
    let mut agents = vec![first, second];
    let labs = [Lab::owned(&LabOptions::default()), Lab::owned(&LabOptions::default())];
    match (&labs, bpf::MISSING) {
        ([Ok(lab), Ok(there)], None) => {
            let open = |lab: &Lab, host| {
                let open = || XdpSite::open(lab.interface(host), XdpMode::Native);
                lab.inside(host, open).unwrap().unwrap()
            };
            for host in Host::BOTH {
                sites.push(Box::new(open(lab, host)));
                for direction in [Direction::Ingress, Direction::Egress] {
                    let open = || XdpSite::open(lab.interface(host), direction);
                    sites.push(Box::new(lab.inside(host, open).unwrap().unwrap()));
                }
            }
            // A core and a hook that are reached by one connection.
            let (third, connection) = agent(folder.path(), Some(open(there, Host::B)));
            agents.push(third);
            sites.push(Box::new(connection.site(None).unwrap()));
            sites.push(Box::new(connection.hook(there.interface(Host::B), XdpMode::Native).unwrap()));
        }
        ([Err(why), _] | [_, Err(why)], _) => skip::part(why),
        (_, Some(why)) => skip::part(why),
    }
    let switchboard = Switchboard::start(quiet()).unwrap();
    let seed = std::env::var("PLIMSOLL_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64);
    eprintln!("PLIMSOLL_SEED={seed}");
    let mut random = Random(seed);
    let (mut made, mut refused) = (0, 0);
    for from in 0..sites.len() {
        for to in 0..sites.len() {
            let (ours, theirs) = (bodies(sites[from].site()), bodies(sites[to].site()));
            for n in 0..=DRAWN {
                let usual = Specification { content: Content::Messages, ..Specification::default() };
                let specification = if n == 0 { usual } else { random.specification() };
                let pair = [random.below(ours.len()), random.below(theirs.len())];
                let pair = if n == 0 { [0, 0] } else { pair };
                let bodies = [&ours[pair[0]], &theirs[pair[1]]];
                let what =
                    format!("{} -> {}: {specification:?}, bodies {pair:?}", sites[from].site(), sites[to].site());
                let mut cell = Cell::make(&mut sites, &switchboard, [from, to], bodies);
                let names = [["out", "in"], ["out-2", "in-2"]];
                let predicted = cell.predicted(&names[..1], specification);
                if predicted.as_ref().is_err_and(|why| why.rule == Rule::Cast) {
                    // What would be made is one whose every write faults.
                    continue;
                }
                let joined = cell.join(names[0], specification);
                assert_eq!(joined.is_ok(), predicted.is_ok(), "{what}: {joined:?}, {predicted:?}");
                if n == 0 {
                    let hook = cell.is_hook(0) || cell.is_hook(1);
                    assert!(joined.is_ok(), "{what}: the usual channel is possible everywhere");
                    let again = cell.predicted(&names, specification);
                    assert_eq!(again.is_err(), hook, "{what}: {again:?}");
                    assert_eq!(cell.join(names[1], specification).is_err(), hook, "{what}");
                    let same = cell.predicted(&[names[0], names[0]], specification);
                    assert!(same.is_err() && cell.join(names[0], specification).is_err(), "{what}");
                }
                match joined {
                    Ok(()) if specification.content == Content::Messages => {
                        cell.carries(&what);
                        made += 1;
                    }
                    Ok(()) => made += 1,
                    Err(_) => refused += 1,
                }
            }
        }
    }
    println!("{made} channels made, {refused} refused");
    assert!(made > 0 && refused > 0);
}

#[test]
fn the_environment_of_the_example_is_met_and_what_no_site_has_is_refused_by_its_line() {
    let example = include_str!("../../../offcode/tests/odf/example.xml");
    let facts = |memory: u32| {
        move |_: &Manifest, kind: SiteKind| {
            let maps = vec![MapOutline { kind: Kind::Ring, key_size: 0, value_size: 0, entries: memory }];
            let hook = Hook { pairs: Default::default(), call: true, no_guest: None, maps };
            Ok(if kind.is_hook() { Facts::Bpf(hook) } else { Facts::Native })
        }
    };
    let at = |site: &str, text: &str, memory| {
        let manifest = offcode::odf::read(text.as_bytes()).unwrap();
        let ground = Ground::of(site.parse().unwrap());
        body(&ground, &manifest, &facts(memory)).map(drop)
    };
    for site in ["app", "core:1", "xdp:eth0", "agent:dpu-1"] {
        at(site, example, 1 << 20).unwrap();
    }
    let why = at("xdp:eth0", example, (1 << 20) + 1).unwrap_err();
    assert_eq!((why.rule, why.sentence.contains("bpf body takes")), (Rule::Memory, true), "{why:?}");

    let asked = format!("{}\"", MEMORY.interface);
    let timers = example.replace(&asked, &format!("{}\"", TIMERS.interface));
    at("core:1", &timers, 0).unwrap();
    let why = at("xdp:eth0", &timers, 0).unwrap_err();
    assert!(why.rule == Rule::Environment && why.sentence.contains("nothing wakes them"), "{why:?}");
    let Some(Origin::Manifest(_, _, part)) = why.at else { panic!("{:?}", why.at) };
    assert_eq!(offcode::odf::place(timers.as_bytes(), &part), Some((28, 6)));

    let later = example.replace(&asked, &format!("{asked} version=\"2\""));
    let why = at("core:1", &later, 0).unwrap_err();
    assert!(why.sentence.contains("memory 2, and the site's runtime offers memory 1"), "{why:?}");
    let other = example.replace(&asked, "c4b7e1d2-88a4-4e0b-a2f7-90d51c6e4f03\"");
    let why = at("app", &other, 0).unwrap_err();
    assert!(why.sentence.contains("c4b7e1d2-88a4-4e0b-a2f7-90d51c6e4f03 1"), "{why:?}");
}
