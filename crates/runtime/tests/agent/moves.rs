//! Offcodes that move to an agent and back, and what becomes of those whose agent dies.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use machine::{Result, Site};
use offcode::{Channel, ChannelId, Context, Lifecycle, Registry, State, Written, interface, offcode};
use runtime::agent::Limits;
use runtime::site::SiteDriver;
use runtime::site::app::AppSite;
use runtime::site::residents::{Log, Residents};
use runtime::{Catalogue, OffcodeId, Pathway, Runtime, Wanted};

use super::rig::*;

#[interface(guid = "3d2c8c1e-63f1-4b8f-9a44-5b70c0de0001", encoding = "fixed")]
trait Count {
    fn count(&self) -> u64;
}

/// Hands numbers back, and takes its count along.
#[offcode(guid = "3d2c8c1e-63f1-4b8f-9a44-5b70c0de0011", name = "test.pass", version = "1.0.0", implements(Count),
          sites(app, agent), state = saved)]
#[derive(Default)]
struct Pass {
    count: u64,
    unsent: Vec<u64>,
    flow: Option<ChannelId>,
}

impl Pass {
    fn hand_on(&mut self, context: &mut dyn Context) {
        let Some(flow) = self.flow else { return };
        while let Some(number) = self.unsent.first() {
            if context.write(flow, &number.to_le_bytes()) == Written::Full {
                return;
            }
            self.unsent.remove(0);
        }
    }
}

impl Count for Pass {
    fn count(&self) -> u64 {
        self.count
    }
}

impl Lifecycle for Pass {
    fn message(&mut self, channel: ChannelId, message: &[u8], context: &mut dyn Context) {
        let number = u64::from_le_bytes(message.try_into().unwrap());
        assert_eq!(number, self.count, "in order, none twice");
        self.flow = Some(channel);
        self.count += 1;
        self.unsent.push(number);
        self.hand_on(context);
    }

    fn turn(&mut self, context: &mut dyn Context) -> offcode::Activity {
        self.hand_on(context);
        offcode::Activity::Idle
    }

    fn save(&mut self, state: &mut State, _: &mut dyn Context) -> Result<()> {
        state.keep("count", &self.count);
        self.unsent.iter().for_each(|number| state.put("unsent", &[], &number.to_le_bytes()));
        self.flow.iter().for_each(|flow| state.keep("flow", &flow.0));
        Ok(())
    }

    fn restore(&mut self, state: &State, _: &mut dyn Context) -> Result<()> {
        self.count = state.kept("count")?;
        self.flow = state.kept("flow").ok().map(ChannelId);
        let number = |(_, value): (&[u8], &[u8])| u64::from_le_bytes(value.try_into().unwrap());
        self.unsent = state.table("unsent").map(number).collect();
        Ok(())
    }
}

/// Any one of it is as good as another.
#[offcode(guid = "3d2c8c1e-63f1-4b8f-9a44-5b70c0de0012", name = "test.fresh", version = "1.0.0", implements(Count),
          sites(app, agent), state = none)]
#[derive(Default)]
struct Fresh;
impl Count for Fresh {
    fn count(&self) -> u64 {
        7
    }
}
impl Lifecycle for Fresh {}

/// Cannot be without [`Pass`].
#[offcode(guid = "3d2c8c1e-63f1-4b8f-9a44-5b70c0de0013", name = "test.bound", version = "1.0.0", implements(Bound),
          requires(gang(pass: Count, offcode = "3d2c8c1e-63f1-4b8f-9a44-5b70c0de0011")), sites(core, agent), state = none)]
#[derive(Default)]
struct Companion;
#[interface(guid = "3d2c8c1e-63f1-4b8f-9a44-5b70c0de0002")]
trait Bound {
    fn is_bound(&self) -> bool;
}
impl Bound for Companion {
    fn is_bound(&self) -> bool {
        true
    }
}
impl Lifecycle for Companion {}

fn linked() -> Registry {
    Registry::new().with::<Pass>().with::<Fresh>().with::<Companion>()
}

fn residents(site: Site) -> Box<dyn SiteDriver> {
    Box::new(AppSite::new(Residents::new(site, Instant::now(), Arc::new(|_| {}))))
}

fn agent() -> Running {
    Running::with_registry(Limits::default(), residents(Site::App), linked())
}

fn with(agent: &Running, log: Log) -> Runtime {
    let sites: Vec<Box<dyn SiteDriver>> = vec![residents(Site::App), Box::new(agent.client())];
    Runtime::new(Catalogue::new(linked(), Vec::new()).unwrap(), sites, log).unwrap()
}

struct Flow {
    pathway: Pathway,
    sent: u64,
    came: u64,
}

impl Flow {
    fn to(runtime: &mut Runtime, offcode: OffcodeId) -> Flow {
        let mut pathway = runtime.create_channel(specification()).unwrap();
        runtime.attach(&mut pathway, offcode, "flow").unwrap();
        Flow { pathway, sent: 0, came: 0 }
    }

    fn turn(&mut self) {
        while self.pathway.write(&self.sent.to_le_bytes()).unwrap() == Written::Taken {
            self.sent += 1;
        }
        self.read();
    }

    fn read(&mut self) {
        let Flow { pathway, came, .. } = self;
        let mut read = |message: &[u8]| {
            assert_eq!(u64::from_le_bytes(message.try_into().unwrap()), *came, "each once and in order");
            *came += 1;
        };
        while pathway.read_with(&mut read).unwrap() {}
    }
}

#[test]
fn to_an_agent_and_back_no_message_is_lost_doubled_or_overtaken() {
    let agent = agent();
    // Both that start here, and those that start there.
    for first in [Site::App, Site::Agent(agent.host())] {
        let mut runtime = with(&agent, Arc::new(|_| {}));
        let pass = runtime.create_offcode(&Wanted::new("test.pass").at(first.clone())).unwrap();
        let mut flow = Flow::to(&mut runtime, pass);
        let mut at = first;
        for _ in 0..5 {
            let to = if at == Site::App { Site::Agent(agent.host()) } else { Site::App };
            let before = flow.came;
            comes("some messages", || {
                runtime.turn().unwrap();
                flow.turn();
                flow.came > before + 40
            });
            let mut migration = runtime.migration(pass, &to).unwrap();
            while !migration.advance(&mut runtime) {
                flow.turn();
            }
            let moved = migration.outcome().unwrap();
            assert_eq!((&moved.from, &moved.to, moved.lost), (&at, &to, 0));
            at = to;
        }
        comes("the rest", || {
            runtime.turn().unwrap();
            flow.read();
            flow.came == flow.sent
        });
        assert_eq!(runtime.invoke(pass, &CountProxy.count()).unwrap(), flow.sent);
    }
}

#[test]
fn a_lost_agents_offcodes_start_elsewhere_or_stop_with_the_reason_and_the_rest_goes_on() {
    let agent = agent();
    let lines = Arc::new(Mutex::new(Vec::<String>::new()));
    let log: Log = {
        let lines = lines.clone();
        Arc::new(move |line| lines.lock().unwrap().push(line.to_owned()))
    };
    let mut runtime = with(&agent, log);
    let there = Site::Agent(agent.host());
    let [pass, fresh] =
        ["test.pass", "test.fresh"].map(|name| runtime.create_offcode(&Wanted::new(name).at(there.clone())).unwrap());
    let companion = runtime.create_offcode(&Wanted::new("test.bound").at(there.clone())).unwrap();
    assert_eq!(runtime.invoke(fresh, &CountProxy.count()).unwrap(), 7);
    agent.end();
    comes("the new one", || {
        runtime.turn().unwrap();
        runtime.site_of(fresh).is_ok_and(|site| *site == Site::App)
    });
    assert_eq!(runtime.invoke(fresh, &CountProxy.count()).unwrap(), 7, "over the channel that it had");
    for gone in [pass, companion] {
        assert!(runtime.site_of(gone).is_err());
    }
    let lines = lines.lock().unwrap().join("\n");
    for words in ["test.pass: stopped: its state is gone", "test.bound: stopped", "test.fresh: started anew at app"] {
        assert!(lines.contains(words), "{words}: {lines}");
    }
    // The runtime goes on, and nothing new is placed where nobody is.
    assert_eq!(runtime.status().len(), 1);
    assert!(
        runtime
            .create_offcode(&Wanted::new("test.pass"))
            .is_ok_and(|pass| runtime.site_of(pass).unwrap() == &Site::App)
    );
}

#[test]
fn an_agent_that_dies_at_any_step_before_the_commit_takes_nothing_with_it() {
    for steps in 1..6 {
        let agent = agent();
        let mut runtime = with(&agent, Arc::new(|_| {}));
        let pass = runtime.create_offcode(&Wanted::new("test.pass").at(Site::App)).unwrap();
        let mut flow = Flow::to(&mut runtime, pass);
        let mut migration = runtime.migration(pass, &Site::Agent(agent.host())).unwrap();
        for _ in 0..steps {
            runtime.turn().unwrap();
            flow.turn();
            assert!(!migration.advance(&mut runtime));
        }
        agent.end();
        while !migration.advance(&mut runtime) {
            flow.turn();
        }
        let said = migration.outcome().unwrap_err().to_string();
        assert!(said.contains("as it was") && said.contains("agent:"), "after {steps} steps: {said}");
        assert_eq!(runtime.site_of(pass).unwrap(), &Site::App);
        comes("the rest", || {
            runtime.turn().unwrap();
            flow.read();
            flow.came == flow.sent
        });
        assert_eq!(runtime.invoke(pass, &CountProxy.count()).unwrap(), flow.sent);
    }
}

#[test]
fn two_instances_at_one_agent_are_two_offcodes_and_each_moves_alone() {
    let agent = agent();
    let mut runtime = with(&agent, Arc::new(|_| {}));
    let there = Site::Agent(agent.host());
    let wanted = ["left", "right"].map(|name| Wanted::new("test.pass").named(name).at(there.clone()));
    let [left, right] = runtime.create_offcodes(&wanted).unwrap()[..] else { panic!() };
    let mut flows = [Flow::to(&mut runtime, left), Flow::to(&mut runtime, right)];
    let turn = |runtime: &mut Runtime, flows: &mut [Flow; 2]| {
        runtime.turn().unwrap();
        flows.iter_mut().for_each(Flow::turn);
    };
    comes("some messages", || {
        turn(&mut runtime, &mut flows);
        flows[0].came > 40 && flows[1].came > 20
    });
    let mut migration = runtime.migration(left, &Site::App).unwrap();
    while !migration.advance(&mut runtime) {
        flows.iter_mut().for_each(Flow::turn);
    }
    migration.outcome().unwrap();
    assert_eq!((runtime.site_of(left).unwrap(), runtime.site_of(right).unwrap()), (&Site::App, &there));
    comes("the rest", || {
        runtime.turn().unwrap();
        flows.iter_mut().for_each(Flow::read);
        flows.iter().all(|flow| flow.came == flow.sent)
    });
    for (offcode, flow) in [left, right].into_iter().zip(&flows) {
        assert_eq!(runtime.invoke(offcode, &CountProxy.count()).unwrap(), flow.sent);
    }
    runtime.stop(left).unwrap();
    assert_eq!(runtime.invoke(right, &CountProxy.count()).unwrap(), flows[1].sent);
}
