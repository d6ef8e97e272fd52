//! What one client takes of an agent's core, and another gets of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use machine::Site;
use offcode::{Activity, Attributes, Context, Described, Lifecycle, Registry, interface, offcode};
use runtime::agent::Limits;
use runtime::code::Code;
use runtime::site::agent::{AgentSite, Connection};
use runtime::site::app::AppSite;
use runtime::site::residents::Residents;
use runtime::site::{Deployment, SiteDriver, Slot};

use super::rig::*;
use super::site::Echo;

#[interface(guid = "7c0a3a0e-5a0b-4c9c-9d33-3f4f0b6e2011")]
trait Nothing {
    fn nothing(&mut self);
}

/// Takes a while whenever it gets a turn.
#[offcode(
    guid = "7c0a3a0e-5a0b-4c9c-9d33-3f4f0b6e2012",
    name = "test.busy",
    version = "1.0.0",
    implements(Nothing),
    sites(agent)
)]
#[derive(Default)]
struct Busy;

impl Nothing for Busy {
    fn nothing(&mut self) {}
}

impl Lifecycle for Busy {
    fn turn(&mut self, _: &mut dyn Context) -> Activity {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(100) {}
        Activity::Worked
    }
}

fn counted(site: &mut AgentSite, slot: Slot, name: &str) -> u64 {
    let evidence = site.evidence(slot).unwrap();
    evidence.counters.iter().find(|counter| counter.name.contains(name)).map_or(0, |counter| counter.value)
}

#[test]
fn a_client_beyond_its_share_gets_no_turns_and_the_other_is_served() {
    let residents = Residents::new(Site::App, Instant::now(), Arc::new(|_| {}));
    let limits = Limits { cpu_per_client: Some(1), ..Limits::default() };
    let registry = Registry::new().with::<Echo>().with::<Busy>();
    let agent = Running::with_registry(limits, Box::new(AppSite::new(residents)), registry);
    let connection = Connection::open(&agent.host(), &agent.host(), Some(&agent.client_keys())).unwrap();
    let mut greedy = connection.site(None).unwrap();
    let code = Code::Native(Arc::new(|| Box::new(Busy)));
    let theirs = ["one", "two"].map(|name| {
        let manifest = Arc::new(Busy::manifest());
        let (code, attributes) = (code.clone(), Attributes::default());
        let busy = Deployment { name: name.into(), manifest, code, attributes, memory: Default::default() };
        let slot = greedy.deploy(busy).unwrap();
        greedy.initialize(slot).unwrap();
        greedy.start(slot).unwrap();
        slot
    });
    let mut modest = agent.client();
    let slot = launch(&mut modest, "echo");
    let mut end = modest.connect(slot, "", specification()).unwrap();
    for n in 0..50u8 {
        echoed(&mut *end, &[n]);
    }
    let mut of_both = |name| theirs.map(|slot| counted(&mut greedy, slot, name)).iter().sum::<u64>();
    comes("turns that are withheld", || of_both("turns withheld") > of_both("turns with work"));
    assert!(of_both("turns with work") > 0 && of_both("core time of all offcodes") > 0);
    let survey = connection.survey().unwrap();
    assert!(survey.cpu_share == Some(1) && survey.core_time.0 > 0, "{survey:?}");
    assert_eq!(counted(&mut modest, slot, "messages"), 50);
}
