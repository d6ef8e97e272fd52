//! An agent, whatever it runs its offcodes on, passes the suite of all sites; and a runtime uses it as one.

use std::cell::RefCell;
use std::time::Instant;

use machine::Site;
use offcode::Registry;
use runtime::agent::Limits;
use runtime::code::Code;
use runtime::site::SiteDriver;
use runtime::site::app::AppSite;
use runtime::site::conformance::{Probe, check, check_services};
use runtime::site::core::CoreSite;
use runtime::site::residents::Residents;

use super::rig::Running;
use crate::built;
use crate::sites::{Echo, SumProxy, quiet, subject};

fn app() -> Box<dyn SiteDriver> {
    Box::new(AppSite::new(Residents::new(Site::App, Instant::now(), quiet())))
}

fn start(site: Box<dyn SiteDriver>) -> Running {
    Running::with_registry(Limits::default(), site, Registry::new().with::<Echo>().with::<Probe>())
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
    let registry = Registry::new().with::<Echo>();
    let catalogue = runtime::Catalogue::new(registry, Vec::new()).unwrap();
    let mut runtime = runtime::Runtime::new(catalogue, vec![Box::new(agent.client())], quiet()).unwrap();
    let echo = runtime.create_offcode(&runtime::Wanted::new("test.echo")).unwrap();
    for n in 0..50 {
        assert_eq!(runtime.invoke(echo, &SumProxy.sum(n, 3)).unwrap(), u64::from(n) + 3);
    }
    let status = runtime.status();
    let evidence = status[0].evidence.as_ref().unwrap();
    assert!(evidence.whereabouts.starts_with(&format!("agent at {}", agent.address)), "{evidence:?}");
    drop(runtime);
    agent.logged("ended: the other side closed the connection");
}
