//! A gang starts together or not at all, whatever step fails.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use machine::{CoreId, Fault, Result, Site};
use offcode::{Channel, ChannelId, Context, Lifecycle, Registry, Specification, interface, offcode};
use runtime::site::app::AppSite;
use runtime::site::residents::Residents;
use runtime::site::{Deployment, Evidence, SiteDriver, Slot};
use runtime::{Catalogue, Runtime, Wanted};

/// Offcodes that are initialized and not stopped, over all of this process. Tests that look at it take [`ALONE`].
static RUNNING: AtomicI64 = AtomicI64::new(0);
static STARTED: AtomicU64 = AtomicU64::new(0);
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

macro_rules! counted {
    ($type:ty) => {
        impl Lifecycle for $type {
            fn initialize(&mut self, _: &mut dyn Context) -> Result<()> {
                RUNNING.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            fn start(&mut self, _: &mut dyn Context) -> Result<()> {
                STARTED.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            fn stop(&mut self, _: &mut dyn Context) {
                RUNNING.fetch_sub(1, Ordering::Relaxed);
            }
        }
    };
}

#[interface(guid = "0a52bd05-33c3-4bc5-9a8f-3a3c9d4f0001")]
trait Take {
    fn take(&mut self, amount: u32) -> u32;
}
#[interface(guid = "0a52bd05-33c3-4bc5-9a8f-3a3c9d4f0002")]
trait Keep {
    fn keep(&mut self, amount: u32) -> u64;
}
#[interface(guid = "0a52bd05-33c3-4bc5-9a8f-3a3c9d4f0003")]
trait Tell {
    fn tell(&mut self, amount: u64) -> String;
}

/// Takes.
#[offcode(guid = "0a52bd05-33c3-4bc5-9a8f-3a3c9d4f0011", name = "test.taker", version = "1.0.0", implements(Take),
          requires(pull(keeper: Keep, channel(count = 16, size = 256)), gang(teller: Tell)), sites(app, core))]
#[derive(Default)]
struct Taker(u32);
impl Take for Taker {
    fn take(&mut self, amount: u32) -> u32 {
        self.0 += amount;
        self.0
    }
}
counted!(Taker);

/// Keeps.
#[offcode(
    guid = "0a52bd05-33c3-4bc5-9a8f-3a3c9d4f0012",
    name = "test.keeper",
    version = "1.0.0",
    implements(Keep),
    sites(app, core)
)]
#[derive(Default)]
struct Keeper(u64);
impl Keep for Keeper {
    fn keep(&mut self, amount: u32) -> u64 {
        self.0 += u64::from(amount);
        self.0
    }
}
counted!(Keeper);

/// Tells.
#[offcode(
    guid = "0a52bd05-33c3-4bc5-9a8f-3a3c9d4f0013",
    name = "test.teller",
    version = "1.0.0",
    implements(Tell),
    sites(app, core),
    attributes(OFFLOAD_PRIORITY = 300)
)]
#[derive(Default)]
struct Teller;
impl Tell for Teller {
    fn tell(&mut self, amount: u64) -> String {
        format!("{amount} kept")
    }
}
counted!(Teller);

/// A site that fails at one step of all that are asked of it and of its neighbours.
struct Failing {
    inner: AppSite,
    /// Counts down over all sites of a test; the step at which it is 0 fails.
    left: Arc<AtomicI64>,
    failed_in: Arc<Mutex<Option<&'static str>>>,
    present: i64,
    total: Arc<AtomicI64>,
}

impl Failing {
    fn step(&self, name: &'static str) -> Result<()> {
        if self.left.fetch_sub(1, Ordering::Relaxed) != 0 {
            return Ok(());
        }
        *self.failed_in.lock().unwrap() = Some(name);
        Err(Fault::new("injected", format!("{name} fails"), "count on"))
    }
}

impl SiteDriver for Failing {
    fn site(&self) -> &Site {
        self.inner.site()
    }
    fn deploy(&mut self, deployment: Deployment) -> Result<Slot> {
        self.step("deploy")?;
        let slot = self.inner.deploy(deployment)?;
        self.present += 1;
        self.total.fetch_add(1, Ordering::Relaxed);
        Ok(slot)
    }
    fn initialize(&mut self, slot: Slot) -> Result<()> {
        self.step("initialize")?;
        self.inner.initialize(slot)
    }
    fn start(&mut self, slot: Slot) -> Result<()> {
        self.step("start")?;
        self.inner.start(slot)
    }
    fn connect(&mut self, slot: Slot, name: &str, specification: Specification) -> Result<Box<dyn Channel>> {
        self.step("connect")?;
        self.inner.connect(slot, name, specification)
    }
    fn adopt(&mut self, slot: Slot, name: &str, end: Box<dyn Channel>) -> Result<ChannelId> {
        self.step("adopt")?;
        self.inner.adopt(slot, name, end)
    }
    fn set_attribute(&mut self, slot: Slot, name: &str, value: &str) -> Result<()> {
        self.inner.set_attribute(slot, name, value)
    }
    fn remove(&mut self, slot: Slot) -> Result<()> {
        self.present -= 1;
        self.total.fetch_sub(1, Ordering::Relaxed);
        self.inner.remove(slot)
    }
    fn evidence(&mut self, slot: Slot) -> Result<Evidence> {
        self.inner.evidence(slot)
    }
    fn turn(&mut self) -> Result<offcode::Activity> {
        self.inner.turn()
    }
}

fn catalogue() -> Catalogue {
    let registry = Registry::new().with::<Taker>().with::<Keeper>().with::<Teller>();
    Catalogue::new(registry, Vec::new()).unwrap()
}

/// `app` and two cores, all turned by this thread, so that no second core is needed.
fn site(site: Site) -> AppSite {
    AppSite::new(Residents::new(site, Instant::now(), Arc::new(|_| {})))
}

fn three_sites() -> Vec<Box<dyn SiteDriver>> {
    [Site::App, Site::Core(CoreId(0)), Site::Core(CoreId(1))].map(|s| Box::new(site(s)) as _).into()
}

fn quiet() -> runtime::site::residents::Log {
    Arc::new(|_| {})
}

#[test]
fn a_gang_is_all_offloaded_pulled_ones_together_and_it_works() {
    let _alone = alone();
    let mut runtime = Runtime::new(catalogue(), three_sites(), quiet()).unwrap();
    let taker = runtime.create_offcode(&Wanted::new("test.taker")).unwrap();
    let [keeper, teller] = ["test.keeper", "test.teller"].map(|name| runtime.find(name).expect("it was created too"));
    assert_eq!(runtime.site_of(taker).unwrap(), runtime.site_of(keeper).unwrap());
    for offcode in [taker, teller] {
        assert_ne!(runtime.site_of(offcode).unwrap(), &Site::App);
    }
    assert_eq!(runtime.invoke(taker, &TakeProxy.take(4)).unwrap(), 4);
    assert_eq!(runtime.invoke(keeper, &KeepProxy.keep(7)).unwrap(), 7);
    assert_eq!(runtime.invoke(teller, &TellProxy.tell(9)).unwrap(), "9 kept");
    assert_eq!(RUNNING.load(Ordering::Relaxed), 3);
    drop(runtime);
    assert_eq!(RUNNING.load(Ordering::Relaxed), 0, "an offcode was not stopped");
}

#[test]
fn a_failure_at_any_step_rolls_everything_back_and_says_where() {
    let _alone = alone();
    let mut seen = std::collections::BTreeSet::new();
    for step in 0.. {
        let left = Arc::new(AtomicI64::new(step));
        let failed_in = Arc::new(Mutex::new(None));
        let total = Arc::new(AtomicI64::new(0));
        let sites = [Site::App, Site::Core(CoreId(0)), Site::Core(CoreId(1))].map(|s| {
            let (left, failed_in, total) = (left.clone(), failed_in.clone(), total.clone());
            Box::new(Failing { inner: site(s), left, failed_in, present: 0, total }) as Box<dyn SiteDriver>
        });
        let mut runtime = Runtime::new(catalogue(), sites.into(), quiet()).unwrap();
        let created = runtime.create_offcode(&Wanted::new("test.taker"));
        let Some(failed) = *failed_in.lock().unwrap() else {
            created.expect("no step failed");
            assert!(step > 10, "only {step} steps were tried");
            break;
        };
        seen.insert(failed);
        let said = created.expect_err("a step failed").to_string();
        assert!(said.contains("test.") && said.contains("core:") && said.contains(failed), "{said}");
        assert!(said.contains("all 3 offcodes of the gang were rolled back"), "{said}");
        assert_eq!(total.load(Ordering::Relaxed), 0, "step {step}, {failed}: an offcode stayed at its site");
        assert_eq!(RUNNING.load(Ordering::Relaxed), 0, "step {step}, {failed}: an offcode was not stopped");
        assert!(runtime.status().is_empty());
        // The same runtime can start the same gang once nothing fails any more.
        runtime.create_offcode(&Wanted::new("test.taker")).unwrap();
        assert_eq!(runtime.status().len(), 3);
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["adopt", "connect", "deploy", "initialize", "start"]);
    assert_eq!(RUNNING.load(Ordering::Relaxed), 0);
}

#[test]
fn a_shared_peer_is_created_once_and_stays_where_it_is() {
    let _alone = alone();
    let mut runtime = Runtime::new(catalogue(), three_sites(), quiet()).unwrap();
    let keeper = runtime.create_offcode(&Wanted::new("test.keeper").at(Site::Core(CoreId(1)))).unwrap();
    let taker = runtime.create_offcode(&Wanted::new("test.taker")).unwrap();
    assert_eq!(runtime.find("test.keeper"), Some(keeper));
    assert_eq!(runtime.site_of(taker).unwrap(), &Site::Core(CoreId(1)), "Pull goes where the running peer is");
    assert_eq!(runtime.create_offcode(&Wanted::new("test.taker")).unwrap(), taker);
    assert_eq!(runtime.status().len(), 3);
}

#[test]
fn a_layout_that_cannot_be_names_what_clashes() {
    let _alone = alone();
    let mut runtime = Runtime::new(catalogue(), three_sites(), quiet()).unwrap();
    let wanted = [Wanted::new("test.taker").at(Site::App)];
    let said = runtime.create_offcodes(&wanted).unwrap_err().to_string();
    assert!(said.contains("test.taker") && said.contains("app"), "{said}");
    assert!(runtime.status().is_empty());
}

#[test]
fn an_offcode_that_nobody_uses_becomes_obsolete() {
    let _alone = alone();
    let told = Arc::new(AtomicBool::new(false));
    let log: runtime::site::residents::Log = {
        let told = told.clone();
        Arc::new(move |line| told.store(line.contains("obsolete"), Ordering::Relaxed))
    };
    let mut runtime = Runtime::new(catalogue(), three_sites(), log).unwrap();
    let keeper = runtime.create_offcode(&Wanted::new("test.keeper").with(offcode::OBSOLETE_TIME, 40)).unwrap();
    let teller = runtime.create_offcode(&Wanted::new("test.teller")).unwrap();
    let deadline = Instant::now() + skip::LIMIT;
    while runtime.find("test.keeper").is_some() && Instant::now() < deadline {
        runtime.turn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let said = runtime.invoke(keeper, &KeepProxy.keep(1)).unwrap_err().to_string();
    assert!(said.contains("obsolete"), "{said}");
    assert!(told.load(Ordering::Relaxed));
    runtime.invoke(teller, &TellProxy.tell(1)).expect("one without the attribute stays");
}

/// Turns until the offcode of this name, which nobody uses, is gone: time enough for others with a shorter limit.
fn until_obsolete(runtime: &mut Runtime, name: &str) {
    let deadline = Instant::now() + skip::LIMIT;
    while runtime.find(name).is_some() {
        assert!(Instant::now() < deadline, "{name} stays");
        runtime.turn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn what_one_that_stays_requires_is_not_obsolete_and_a_group_that_nobody_uses_goes_requirers_first() {
    let _alone = alone();
    let lines = Arc::new(Mutex::new(Vec::<String>::new()));
    let log: runtime::site::residents::Log = {
        let lines = lines.clone();
        Arc::new(move |line| lines.lock().unwrap().push(line.to_owned()))
    };
    let mut runtime = Runtime::new(catalogue(), three_sites(), log).unwrap();
    // The keeper, pulled, and the teller, ganged, are used by nobody; the taker, which requires them, has no limit.
    let wanted = [
        Wanted::new("test.keeper").with(offcode::OBSOLETE_TIME, 20),
        Wanted::new("test.teller").with(offcode::OBSOLETE_TIME, 20),
        Wanted::new("test.taker"),
        Wanted::new("test.teller").named("clock").with(offcode::OBSOLETE_TIME, 60),
    ];
    let [keeper, teller, taker, _] = runtime.create_offcodes(&wanted).unwrap()[..] else { panic!() };
    until_obsolete(&mut runtime, "clock");
    assert_eq!(runtime.invoke(keeper, &KeepProxy.keep(1)).unwrap(), 1, "the gang is whole");
    assert_eq!(runtime.invoke(teller, &TellProxy.tell(1)).unwrap(), "1 kept");
    assert_eq!(runtime.set_attribute(taker, offcode::OBSOLETE_TIME, "40").unwrap(), None);
    until_obsolete(&mut runtime, "test.keeper");
    assert!(runtime.status().is_empty(), "{:?}", runtime.status());
    let gone: Vec<String> =
        lines.lock().unwrap().iter().filter_map(|line| Some(line.split_once(": obsolete")?.0.to_owned())).collect();
    assert_eq!((gone.len(), &*gone[0], &*gone[1]), (4, "clock", "test.taker"), "{gone:?}");
}

#[test]
fn two_instances_have_peers_of_their_own_and_share_the_rest() {
    let _alone = alone();
    let mut runtime = Runtime::new(catalogue(), three_sites(), quiet()).unwrap();
    let core = |core| Site::Core(CoreId(core));
    let wanted = [
        Wanted::new("test.taker").named("left").meeting("keeper", "left-keeper").at(core(0)),
        Wanted::new("test.taker").named("right").meeting("keeper", "right-keeper").at(core(1)),
        Wanted::new("test.keeper").named("left-keeper"),
        Wanted::new("test.keeper").named("right-keeper"),
    ];
    let [left, right, left_keeper, right_keeper] = runtime.create_offcodes(&wanted).unwrap()[..] else { panic!() };
    assert_eq!(runtime.status().len(), 5, "one teller for both");
    for (one, other, site) in [(left, left_keeper, core(0)), (right, right_keeper, core(1))] {
        assert_eq!((runtime.site_of(one).unwrap(), runtime.site_of(other).unwrap()), (&site, &site), "pulled");
    }
    assert_eq!(runtime.invoke(left, &TakeProxy.take(4)).unwrap(), 4);
    assert_eq!(runtime.invoke(right, &TakeProxy.take(5)).unwrap(), 5);
    assert_eq!(runtime.invoke(left_keeper, &KeepProxy.keep(7)).unwrap(), 7);
    assert_eq!(runtime.invoke(right_keeper, &KeepProxy.keep(1)).unwrap(), 1);
    assert_eq!(runtime.find("left"), Some(left));
    for several in ["test.taker", "0a52bd05-33c3-4bc5-9a8f-3a3c9d4f0011"] {
        let said = runtime.named(several).unwrap_err().to_string();
        assert!(said.contains("fits several instances: left and right"), "{said}");
    }
    assert!(runtime.find("test.teller").is_some(), "of which there is one");
    // A third says which keeper is meant, or cannot be.
    let said = runtime.create_offcode(&Wanted::new("test.taker")).unwrap_err().to_string();
    assert!(said.contains("left-keeper and right-keeper would do"), "{said}");
    let third = runtime.create_offcode(&Wanted::new("test.taker").meeting("keeper", "right-keeper")).unwrap();
    assert_eq!(runtime.site_of(third).unwrap(), &core(1));
    assert_eq!(runtime.find("test.taker"), Some(third), "the name is that of the one without another");
    assert_eq!(runtime.create_offcode(&Wanted::new("test.taker").named("left")).unwrap(), left, "it is there");
    runtime.set_attribute(left, "colour", "red").unwrap();
    assert_eq!(runtime.set_attribute(left, "colour", "blue").unwrap().as_deref(), Some("red"));
    assert_eq!(runtime.attribute(right, "colour").unwrap(), None);
    let said = runtime.set_attribute(left, offcode::OFFLOAD_PRIORITY, "high").unwrap_err().to_string();
    assert!(said.contains("offcode left") && said.contains("not a number from 0 to 1000"), "{said}");
    runtime.stop(left).unwrap();
    assert_eq!(runtime.invoke(right, &TakeProxy.take(1)).unwrap(), 6);
    assert!(runtime.find("left").is_none() && runtime.find("right").is_some());
}
