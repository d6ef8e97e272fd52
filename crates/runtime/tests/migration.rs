//! Offcodes move while numbered messages and calls are under way: each arrives once and in order, whatever step fails.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use machine::{Bytes, CoreId, Result, Site};
use offcode::channel::{Buffers, Content, Policy};
use offcode::{
    Activity, Channel, ChannelId, Context, Delivery, Lifecycle, Map, Put, Registry, Specification, State, Written,
    interface, offcode,
};
use runtime::application::Opened;
use runtime::migration::{Order, Step};
use runtime::site::SiteDriver;
use runtime::site::app::AppSite;
use runtime::site::residents::{Log, Residents};
use runtime::{Catalogue, OffcodeId, Pathway, Runtime, Wanted};

use crate::failing::Failing;

#[interface(guid = "7c1f0b57-1be3-4d3b-8c6e-2f2d1ea10001")]
trait Count {
    /// Messages so far.
    fn count(&self) -> u64;
    /// The same, from a map that has them by their last digit.
    fn counted(&mut self, context: &mut dyn Context) -> u64;
}
#[interface(guid = "7c1f0b57-1be3-4d3b-8c6e-2f2d1ea10002")]
trait Note {
    fn note(&mut self, number: u64);
    fn noted(&self) -> u64;
}

/// Hands numbers on, first over a channel to its peer, who answers each call, then to the application.
#[offcode(guid = "7c1f0b57-1be3-4d3b-8c6e-2f2d1ea10011", name = "test.stage", version = "1.0.0", implements(Count),
          requires(link(notes: Note), pull(twin: Count2, channel(count = 16, size = 64))), environment(maps), sites(app, core), state = saved)]
#[derive(Default)]
struct Stage {
    count: u64,
    digits: Map<u8, u64>,
    answered: u64,
    /// Numbers to write, and to ask the peer out of band about.
    unsent: Vec<u64>,
    unasked: Vec<u64>,
}

impl Stage {
    fn hand_on(&mut self, context: &mut dyn Context) {
        if let Some(out) = context.channel("flow") {
            self.unsent.retain({
                let mut full = false;
                move |number| {
                    full = full || context.write(out, &number.to_le_bytes()) == Written::Full;
                    full
                }
            });
        }
    }

    fn ask(&mut self, context: &mut dyn Context) {
        let Some(notes) = context.channel("notes") else { return };
        while let Some(&number) = self.unasked.first() {
            match NoteProxy.note(number).through(context, notes, number as u32) {
                Ok(Written::Taken) => drop(self.unasked.remove(0)),
                _ => return,
            }
        }
    }
}

impl Count for Stage {
    fn count(&self) -> u64 {
        self.count
    }

    fn counted(&mut self, context: &mut dyn Context) -> u64 {
        let mut sum = 0;
        let add = |_, count| {
            sum += count;
            true
        };
        self.digits.visit(context, add).unwrap();
        sum
    }
}

impl Lifecycle for Stage {
    fn initialize(&mut self, context: &mut dyn Context) -> Result<()> {
        self.digits = Map::open(context, "digits", 10)?;
        Ok(())
    }

    fn message(&mut self, _: ChannelId, message: &[u8], context: &mut dyn Context) {
        let number = u64::from_le_bytes(message.try_into().unwrap());
        assert_eq!(number, self.count, "in order, none twice");
        self.count += 1;
        let digit = (number % 10) as u8;
        let so_far = self.digits.get(context, &digit).unwrap().unwrap_or(0);
        assert_eq!(so_far, number / 10, "what came along of {number}");
        assert_ne!(self.digits.put(context, &digit, &(so_far + 1)).unwrap(), Put::Full);
        self.unsent.push(number);
        if number.is_multiple_of(4) {
            self.unasked.push(number);
        }
        self.hand_on(context);
        self.ask(context);
    }

    fn answered(&mut self, _: ChannelId, id: u32, result: Result<&[u8], &offcode::Refusal>, context: &mut dyn Context) {
        result.unwrap_or_else(|why| panic!("call {id}: {}", why.0));
        assert_eq!(u64::from(id), self.answered * 4, "answers in the order of the calls");
        self.answered += 1;
        self.ask(context);
    }

    fn turn(&mut self, context: &mut dyn Context) -> Activity {
        self.hand_on(context);
        self.ask(context);
        Activity::Idle
    }

    fn save(&mut self, state: &mut State, _: &mut dyn Context) -> Result<()> {
        state.set_version(1);
        state.keep("count", &self.count);
        state.keep("answered", &self.answered);
        self.unsent.iter().for_each(|number| state.put("unsent", &[], &number.to_le_bytes()));
        self.unasked.iter().for_each(|number| state.put("unasked", &[], &number.to_le_bytes()));
        Ok(())
    }

    fn restore(&mut self, state: &State, _: &mut dyn Context) -> Result<()> {
        if state.version() != 1 {
            return Err(state.unfit("this body knows version 1"));
        }
        self.count = state.kept("count")?;
        self.answered = state.kept("answered")?;
        let numbers =
            |name| state.table(name).map(|(_, value)| u64::from_le_bytes(value.try_into().unwrap())).collect();
        (self.unsent, self.unasked) = (numbers("unsent"), numbers("unasked"));
        Ok(())
    }
}

#[interface(guid = "7c1f0b57-1be3-4d3b-8c6e-2f2d1ea10003")]
trait Count2 {
    fn twins(&self) -> u64;
}

/// Goes where its twin goes, and takes nothing along.
#[offcode(guid = "7c1f0b57-1be3-4d3b-8c6e-2f2d1ea10012", name = "test.twin", version = "1.0.0", implements(Count2),
          sites(app, core), state = none)]
#[derive(Default)]
struct Twin;
impl Count2 for Twin {
    fn twins(&self) -> u64 {
        2
    }
}
impl Lifecycle for Twin {}

/// Stays.
#[offcode(
    guid = "7c1f0b57-1be3-4d3b-8c6e-2f2d1ea10013",
    name = "test.notes",
    version = "1.0.0",
    implements(Note),
    sites(app, core)
)]
#[derive(Default)]
struct Notes(u64);
impl Note for Notes {
    fn note(&mut self, number: u64) {
        assert_eq!(number, self.0 * 4);
        self.0 += 1;
    }
    fn noted(&self) -> u64 {
        self.0
    }
}
impl Lifecycle for Notes {}

const FLOW: Specification = Specification {
    cast: offcode::Cast::Unicast,
    delivery: Delivery::Reliable,
    synchronization: offcode::channel::Synchronization::Poll,
    content: Content::Messages,
    buffers: Buffers { count: 8, size: Bytes(64), policy: Policy::Any },
};

/// A runtime whose sites all turn in this thread, so that a seed decides who does what next.
struct World {
    runtime: Runtime,
    stage: OffcodeId,
    flow: Pathway,
    left: Arc<AtomicI64>,
    failed: Arc<Mutex<BTreeSet<&'static str>>>,
    /// What its log was told.
    told: Arc<Mutex<Vec<String>>>,
    sent: u64,
    came: u64,
    random: u64,
}

const SITES: [Site; 3] = [Site::App, Site::Core(CoreId(0)), Site::Core(CoreId(1))];

impl World {
    fn new(seed: u64) -> World {
        let registry = Registry::new().with::<Stage>().with::<Twin>().with::<Notes>();
        let catalogue = Catalogue::new(registry, Vec::new()).unwrap();
        let (left, failed) = (Arc::new(AtomicI64::new(-1)), Arc::new(Mutex::default()));
        let sites = SITES.map(|site| {
            let inner = AppSite::new(Residents::new(site, Instant::now(), Arc::new(|_| {})));
            Box::new(Failing { inner, left: left.clone(), failed: Arc::clone(&failed) }) as Box<dyn SiteDriver>
        });
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let log: Log = {
            let told = told.clone();
            Arc::new(move |line: &str| told.lock().unwrap().push(line.to_owned()))
        };
        let mut runtime = Runtime::new(catalogue, sites.into(), log).unwrap();
        let stage = runtime.create_offcode(&Wanted::new("test.stage").at(Site::App)).unwrap();
        let mut flow = runtime.create_channel(FLOW).unwrap();
        runtime.attach(&mut flow, stage, "flow").unwrap();
        World { runtime, stage, flow, left, failed, told, sent: 0, came: 0, random: seed.wrapping_mul(2) + 1 }
    }

    fn chance(&mut self, of: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % of
    }

    fn write(&mut self) {
        match self.flow.write(&self.sent.to_le_bytes()).unwrap() {
            Written::Taken => self.sent += 1,
            Written::Full => {}
            other => panic!("{other:?}"),
        }
    }

    fn read(&mut self) {
        let World { flow, came, .. } = self;
        let read = |message: &[u8]| {
            assert_eq!(u64::from_le_bytes(message.try_into().unwrap()), *came, "each once and in order");
            *came += 1;
        };
        let mut read = read;
        while flow.read_with(&mut read).unwrap() {}
    }

    /// Anybody but the move does something.
    fn meanwhile(&mut self) {
        for _ in 0..self.chance(12) {
            match self.chance(5) {
                0 | 1 => self.write(),
                2 => self.read(),
                _ => drop(self.runtime.turn().unwrap()),
            }
        }
    }

    /// Moves, with others in between; what came of it.
    fn go(&mut self, to: &Site) -> Result<runtime::migration::Moved> {
        let mut migration = self.runtime.migration(self.stage, to)?;
        loop {
            self.meanwhile();
            if migration.advance(&mut self.runtime) {
                return migration.outcome();
            }
        }
    }

    /// All that was sent has come, and every call was answered.
    fn settle(&mut self) {
        self.left.store(-1, Ordering::Relaxed);
        let calls = self.sent.div_ceil(4);
        let notes = self.runtime.find("test.notes").unwrap();
        for _ in 0..100_000 {
            self.runtime.turn().unwrap();
            self.read();
            if self.came == self.sent && self.runtime.invoke(notes, &NoteProxy.noted()).unwrap() == calls {
                break;
            }
        }
        assert_eq!(self.came, self.sent);
        assert_eq!(self.runtime.invoke(self.stage, &CountProxy.count()).unwrap(), self.sent);
        assert_eq!(self.runtime.invoke(self.stage, &CountProxy.counted()).unwrap(), self.sent);
        assert_eq!(self.runtime.invoke(notes, &NoteProxy.noted()).unwrap(), calls);
        let twin = self.runtime.find("test.twin").unwrap();
        assert_eq!(self.runtime.site_of(twin).unwrap(), self.runtime.site_of(self.stage).unwrap(), "pulled along");
        assert_eq!(self.runtime.invoke(twin, &Count2Proxy.twins()).unwrap(), 2);
    }
}

#[test]
fn numbered_messages_come_once_and_in_order_over_many_moves() {
    for seed in 0..40 {
        let mut world = World::new(seed);
        for _ in 0..6 {
            let from = world.runtime.site_of(world.stage).unwrap().clone();
            let to = SITES.iter().filter(|site| **site != from).nth(world.chance(2) as usize).unwrap();
            let moved = world.go(to).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
            assert_eq!((&moved.from, &moved.to, moved.offcodes.len(), moved.lost), (&from, to, 2, 0));
            assert_eq!(moved.steps.iter().map(|(step, _)| *step).collect::<Vec<_>>(), Step::ALL);
        }
        world.settle();
        assert!(world.sent > 20, "seed {seed}");
    }
}

#[test]
fn a_failure_at_any_step_leaves_everything_as_it_was() {
    let mut seen = BTreeSet::new();
    for step in 0.. {
        let mut world = World::new(step);
        world.meanwhile();
        world.left.store(step as i64, Ordering::Relaxed);
        let outcome = world.go(&SITES[1]);
        let failed = world.failed.lock().unwrap().pop_first();
        let Some(failed) = failed else {
            outcome.expect("nothing failed");
            assert!(step > 12, "only {step} steps were tried");
            break;
        };
        seen.insert(failed);
        let said = outcome.expect_err("a step failed").to_string();
        assert!(said.contains("as it was") && said.contains(failed), "{said}");
        assert_eq!(world.runtime.site_of(world.stage).unwrap(), &Site::App, "{failed}");
        world.left.store(-1, Ordering::Relaxed);
        world.meanwhile();
        // What could not be done once can be done now.
        world.go(&SITES[1]).unwrap_or_else(|fault| panic!("after {failed}: {fault}"));
        world.settle();
    }
    assert_eq!(
        seen.into_iter().collect::<Vec<_>>(),
        ["deploy", "initialize", "receive", "restore", "resume", "surrender", "suspend"]
    );
}

#[test]
fn what_must_not_move_says_why() {
    let mut world = World::new(1);
    let notes = world.runtime.find("test.notes").unwrap();
    let notes_at = world.runtime.site_of(notes).unwrap().clone();
    let elsewhere = SITES.iter().find(|site| **site != notes_at).unwrap();
    let said = world.runtime.migrate(notes, elsewhere).unwrap_err().to_string();
    assert!(said.contains("test.notes") && said.contains("state = saved"), "{said}");
    let said = world.runtime.migrate(world.stage, &Site::App).unwrap_err().to_string();
    assert!(said.contains("already"), "{said}");
    let said = world.runtime.migrate(world.stage, &Site::Core(CoreId(7))).unwrap_err().to_string();
    assert!(said.contains("core:7") && said.contains("Next:"), "{said}");
    assert!(matches!(world.runtime.migration(world.stage, &SITES[1]).unwrap().order(), Order::Do(Step::Prepare)));
    world.settle();
}

#[test]
fn a_move_that_does_not_come_about_opens_no_site() {
    let before = linux::affinity::current().unwrap();
    let &[core, _, ..] = &before[..] else { return skip::test("it needs two cores") };
    let mut world = World::new(5);
    let (left, failed) = (world.left.clone(), world.failed.clone());
    let opener = move |site: &Site| -> Result<Opened> {
        let inner = AppSite::new(Residents::new(site.clone(), Instant::now(), Arc::new(|_| {})));
        let driver = Box::new(Failing { inner, left: left.clone(), failed: failed.clone() });
        let beside = Some(linux::contention::exclude(core)?);
        Ok(Opened { driver, beside, notes: vec!["it was opened".to_owned()] })
    };
    let elsewhere = Site::Core(CoreId(7));
    world.runtime.set_opener(Box::new(opener), vec![elsewhere.clone()]);
    let nothing_of_it = |world: &World, why: &str| {
        assert_eq!(world.runtime.sites().count(), SITES.len(), "{why}");
        assert_eq!(linux::affinity::current().unwrap(), before, "{why}");
        assert!(world.told.lock().unwrap().is_empty(), "{why}");
    };
    let notes = world.runtime.find("test.notes").unwrap();
    world.runtime.migrate(notes, &elsewhere).unwrap_err();
    nothing_of_it(&world, "it must not move");
    world.left.store(0, Ordering::Relaxed);
    world.runtime.migrate(world.stage, &elsewhere).unwrap_err();
    assert!(world.failed.lock().unwrap().contains("deploy"));
    nothing_of_it(&world, "a step failed");
    world.runtime.migrate(world.stage, &elsewhere).unwrap();
    assert_eq!(*world.told.lock().unwrap(), ["it was opened"]);
    assert!(!linux::affinity::current().unwrap().contains(&core));
    world.settle();
    drop(world);
    assert_eq!(linux::affinity::current().unwrap(), before);
}

const ROLE: &str = "PLIMSOLL_MIGRATION_TEST_STEP";

/// Not a test of its own: a process that comes to a step of a move, says so and waits to be killed.
#[test]
fn as_one_that_is_killed() {
    let Ok(wanted) = std::env::var(ROLE) else { return };
    let core = *linux::affinity::allowed().unwrap().last().unwrap();
    let (site, _beside) = runtime::site::core::CoreSite::open(core, Instant::now(), Arc::new(|_| {})).unwrap();
    let registry = Registry::new().with::<Stage>().with::<Twin>().with::<Notes>();
    let app = AppSite::new(Residents::new(Site::App, Instant::now(), Arc::new(|_| {})));
    let sites: Vec<Box<dyn SiteDriver>> = vec![Box::new(app), Box::new(site)];
    let mut runtime = Runtime::new(Catalogue::new(registry, Vec::new()).unwrap(), sites, Arc::new(|_| {})).unwrap();
    let _control = runtime::control::Control::open("killed").unwrap();
    let stage = runtime.create_offcode(&Wanted::new("test.stage").at(Site::App)).unwrap();
    let mut migration = runtime.migration(stage, &Site::Core(core)).unwrap();
    while format!("{:?}", migration.order()) != wanted {
        assert!(!migration.advance(&mut runtime), "it never came to {wanted}");
    }
    migration.advance(&mut runtime);
    println!("there");
    std::io::Write::flush(&mut std::io::stdout()).unwrap();
    loop {
        runtime.turn().unwrap();
    }
}

#[test]
#[ignore = "make check"]
fn a_process_that_is_killed_at_any_step_leaves_nothing() {
    use std::io::BufRead;
    use std::os::unix::process::CommandExt;
    for step in Step::ALL {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["migration::as_one_that_is_killed", "--exact", "--nocapture"]).env(ROLE, format!("Do({step:?})"));
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).process_group(0);
        let mut child = command.spawn().unwrap();
        let process = child.id();
        let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("there")), "{step:?}");
        assert!(attach::control::processes().unwrap().contains(&process));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!attach::control::processes().unwrap().contains(&process), "{step:?}: its name is still there");
        let group = rustix::process::Pid::from_raw(process as i32).unwrap();
        assert!(rustix::process::test_kill_process_group(group).is_err(), "{step:?}: a process of it is still there");
    }
}

#[interface(guid = "7c1f0b57-1be3-4d3b-8c6e-2f2d1ea10004")]
trait Slow {
    fn done(&self) -> u64;
}

/// Takes long at `app`, as whoever measures it sees, and as its manifest says nothing at the core.
#[offcode(guid = "7c1f0b57-1be3-4d3b-8c6e-2f2d1ea10014", name = "test.slow", version = "1.0.0", implements(Slow),
          sites(app(work = 1), core(work = 100)), state = none)]
#[derive(Default)]
struct AtApp(u64);

#[offcode(body_of = AtApp, implements(Slow))]
#[derive(Default)]
struct AtCore(u64);

impl Slow for AtApp {
    fn done(&self) -> u64 {
        self.0
    }
}
impl Slow for AtCore {
    fn done(&self) -> u64 {
        self.0
    }
}
impl Lifecycle for AtApp {
    fn message(&mut self, _: ChannelId, _: &[u8], _: &mut dyn Context) {
        let begun = Instant::now();
        while begun.elapsed() < std::time::Duration::from_micros(20) {}
        self.0 += 1;
    }
}
impl Lifecycle for AtCore {
    fn message(&mut self, _: ChannelId, _: &[u8], _: &mut dyn Context) {
        self.0 += 1;
    }
}

#[test]
fn what_takes_less_elsewhere_is_moved_there_once() {
    let registry =
        Registry::new().with_at::<AtApp>(&[machine::SiteKind::App]).with_at::<AtCore>(&[machine::SiteKind::Core]);
    let site = |site: Site| {
        Box::new(AppSite::new(Residents::new(site, Instant::now(), Arc::new(|_| {})))) as Box<dyn SiteDriver>
    };
    let sites = vec![site(Site::App), site(SITES[1].clone())];
    let mut runtime = Runtime::new(Catalogue::new(registry, Vec::new()).unwrap(), sites, Arc::new(|_| {})).unwrap();
    let slow = runtime.create_offcode(&Wanted::new("test.slow").at(Site::App)).unwrap();
    let mut flow = runtime.create_channel(FLOW).unwrap();
    runtime.attach(&mut flow, slow, "flow").unwrap();
    let mut watch = runtime::rebalance::Watch::every(std::time::Duration::from_millis(20));
    let mut lines = Vec::new();
    let mut windows = 0;
    let deadline = Instant::now() + skip::LIMIT;
    while windows < 40 && Instant::now() < deadline {
        let _full = flow.write(b"12345678").unwrap();
        runtime.turn().unwrap();
        let said = watch.look(&mut runtime).unwrap();
        windows += usize::from(!lines.is_empty());
        lines.extend(said);
    }
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("test.slow: moved to core:0") && lines[0].contains("% of a core at app"), "{lines:?}");
    assert_eq!(runtime.site_of(slow).unwrap(), &SITES[1]);
}

#[test]
fn one_of_two_instances_moves_with_what_it_is_pulled_to_and_the_other_stays() {
    let mut world = World::new(3);
    let wanted = [
        Wanted::new("test.stage").named("second").meeting("twin", "second-twin").at(Site::App),
        Wanted::new("test.twin").named("second-twin"),
    ];
    let [second, twin] = world.runtime.create_offcodes(&wanted).unwrap()[..] else { panic!() };
    let mut flow = world.runtime.create_channel(FLOW).unwrap();
    world.runtime.attach(&mut flow, second, "flow").unwrap();
    let (mut sent, mut came) = (0u64, 0u64);
    for to in [&SITES[1], &SITES[2], &SITES[0], &SITES[2]] {
        for _ in 0..5 {
            sent += u64::from(flow.write(&sent.to_le_bytes()).unwrap() == Written::Taken);
        }
        let mut migration = world.runtime.migration(second, to).unwrap();
        while !migration.advance(&mut world.runtime) {
            world.meanwhile();
        }
        let moved = migration.outcome().unwrap();
        assert_eq!(moved.offcodes, ["second 1.0.0", "second-twin 1.0.0"]);
        let at = |offcode| world.runtime.site_of(offcode).unwrap();
        assert_eq!((at(second), at(twin), at(world.stage)), (to, to, &Site::App));
        let mut read = |message: &[u8]| {
            assert_eq!(u64::from_le_bytes(message.try_into().unwrap()), came, "each once and in order");
            came += 1;
        };
        for _ in 0..100_000 {
            world.runtime.turn().unwrap();
            while flow.read_with(&mut read).unwrap() {}
            if world.runtime.invoke(second, &CountProxy.count()).unwrap() == sent {
                break;
            }
        }
    }
    assert_eq!(world.runtime.invoke(second, &CountProxy.count()).unwrap(), sent);
    assert!(sent > 0 && world.sent > 0);
    let first = world.runtime.invoke(world.stage, &CountProxy.count()).unwrap();
    assert!(first <= world.sent);
}
