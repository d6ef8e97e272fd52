//! An agent, whatever it runs its offcodes on, passes the suite of all sites; and a runtime uses it as one.

use crate::built;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use machine::Site;
use offcode::{Attributes, ChannelId, Context, Described, Interface, Lifecycle, Registry, Written, interface, offcode};
use runtime::agent::Limits;
use runtime::site::app::AppSite;
use runtime::site::conformance::{Probe, Subject, check, check_services};
use runtime::site::core::CoreSite;
use runtime::site::residents::{Log, Residents};
use runtime::site::{Code, Deployment, SiteDriver};

use super::rig::Running;

#[interface(guid = "7c0a3a0e-5a0b-4c9c-9d33-3f4f0b6e2001", encoding = "fixed")]
trait Sum {
    fn sum(&mut self, one: u32, other: u32) -> u64;
}

/// Adds, and sends messages back.
#[offcode(
    guid = "7c0a3a0e-5a0b-4c9c-9d33-3f4f0b6e2002",
    name = "test.adder",
    version = "1.0.0",
    implements(Sum),
    sites(agent)
)]
#[derive(Default)]
struct Adder {
    unsent: Vec<(ChannelId, Vec<u8>)>,
}

impl Sum for Adder {
    fn sum(&mut self, one: u32, other: u32) -> u64 {
        u64::from(one) + u64::from(other)
    }
}

impl Lifecycle for Adder {
    fn message(&mut self, channel: ChannelId, message: &[u8], context: &mut dyn Context) {
        if context.write(channel, message) == Written::Full {
            self.unsent.push((channel, message.to_vec()));
        }
    }

    fn turn(&mut self, context: &mut dyn Context) -> offcode::Activity {
        self.unsent.retain(|(channel, message)| context.write(*channel, message) == Written::Full);
        offcode::Activity::Idle
    }
}

fn quiet() -> Log {
    Arc::new(|_| {})
}

fn app() -> Box<dyn SiteDriver> {
    Box::new(AppSite::new(Residents::new(Site::App, Instant::now(), quiet())))
}

fn start(site: Box<dyn SiteDriver>) -> Running {
    Running::with_registry(Limits::default(), site, Registry::new().with::<Adder>().with::<Probe>())
}

fn subject() -> Subject {
    Subject {
        deployment: Deployment {
            name: "test.adder".into(),
            manifest: Arc::new(Adder::manifest()),
            code: Code::Native(Arc::new(|| Box::new(Adder::default()))),
            attributes: Attributes::default(),
            memory: Default::default(),
        },
        interface: <dyn Sum as Interface>::GUID.short(),
        messages: true,
        unfit: Code::Bpf(Arc::from(&b"no object"[..])),
    }
}

/// Each site that the suite opens is a connection to an agent of its own.
fn passes(mut make: impl FnMut() -> Box<dyn SiteDriver>) {
    let agents = RefCell::new(Vec::new());
    let mut open = || -> Box<dyn SiteDriver> {
        let agent = start(make());
        let client = agent.client();
        agents.borrow_mut().push(agent);
        Box::new(client)
    };
    check(&mut open, &subject());
    // A library is the same once it is loaded: `sites.rs` has it.
    let sandboxed = built::or_skip_part(built::probe()).map(|bytes| Code::Wasm(bytes.into()));
    check_services(open, sandboxed.as_slice());
}

#[test]
#[ignore = "make check"]
fn an_agent_that_runs_offcodes_in_its_own_thread() {
    passes(app);
}

#[test]
#[ignore = "make check"]
fn an_agent_with_a_dedicated_core() {
    let core = *linux::affinity::allowed().unwrap().last().expect("this process has a core");
    let mut beside = Vec::new();
    passes(|| {
        let (site, excluded) = CoreSite::open(core, Instant::now(), quiet()).unwrap();
        beside.push(excluded);
        Box::new(site)
    });
}

#[test]
fn a_runtime_creates_calls_and_stops_an_offcode_on_an_agent() {
    let agent = start(app());
    let registry = Registry::new().with::<Adder>();
    let catalogue = runtime::Catalogue::new(registry, Vec::new()).unwrap();
    let mut runtime = runtime::Runtime::new(catalogue, vec![Box::new(agent.client())], quiet()).unwrap();
    let adder = runtime.create_offcode(&runtime::Wanted::new("test.adder")).unwrap();
    for n in 0..50 {
        assert_eq!(runtime.invoke(adder, &SumProxy.sum(n, 3)).unwrap(), u64::from(n) + 3);
    }
    let status = runtime.status();
    let evidence = status[0].evidence.as_ref().unwrap();
    assert!(evidence.whereabouts.starts_with(&format!("agent at {}", agent.address)), "{evidence:?}");
    drop(runtime);
    agent.logged("ended: the other side closed the connection");
}
