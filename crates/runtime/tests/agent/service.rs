//! What an authenticated client gets, and where it ends.

use machine::{Bytes, Site};
use offcode::channel::{Buffers, Policy};
use offcode::{Specification, Written};
use runtime::agent::{Limits, Reason};
use runtime::code::Code;
use runtime::site::agent::Connection;
use runtime::site::app::AppSite;
use runtime::site::core::CoreSite;
use runtime::site::residents::{Log, Residents};
use runtime::site::{SiteDriver, Slot};

use super::rig::*;

#[test]
fn an_offcode_lives_through_all_phases() {
    let agent = Running::start(Limits::default());
    let mut site = agent.client();
    assert_eq!(site.site().to_string(), format!("agent:{}", agent.address));
    let slot = launch(&mut site, "echo");
    site.set_attribute(slot, "colour", "red").unwrap();
    let mut end = site.connect(slot, "fast", specification()).unwrap();
    for n in 0..100u32 {
        echoed(&mut *end, &n.to_le_bytes());
    }
    let evidence = site.evidence(slot).unwrap();
    assert!(evidence.whereabouts.contains(&format!("process {}", std::process::id())), "{evidence:?}");
    assert_eq!(evidence.counters[0].value, 100, "{evidence:?}");
    assert!(site.turn().is_ok());
    site.remove(slot).unwrap();
    site.remove(slot).unwrap();
    assert!(site.start(slot).is_err(), "what was removed is gone");
    comes("the end of the channel", || end.is_abandoned());
    assert_eq!(end.write(b"x").unwrap(), Written::Gone);
    drop(site);
    agent.logged("no offcode was left");
    let summary = agent.end();
    assert_eq!((summary.clients, summary.refused.len()), (1, 0), "{summary:?}");
}

#[test]
fn two_sites_of_one_agent_share_a_connection_and_join_in_memory() {
    let cores = linux::affinity::allowed().unwrap();
    let Some(&core) = cores.last().filter(|_| cores.len() > 1) else { return skip::test("it needs two cores") };
    let origin = std::time::Instant::now();
    let log: Log = std::sync::Arc::new(|_| {});
    let own = AppSite::new(Residents::new(Site::App, origin, log.clone()));
    let (polling, _excluded) = CoreSite::open(core, origin, log).unwrap();
    let agent = Running::with_sites(Limits::default(), vec![Box::new(own), Box::new(polling)], registry());

    let connection = Connection::open(&agent.host(), &agent.host(), Some(&agent.client_keys())).unwrap();
    let survey = connection.survey().unwrap();
    assert_eq!(survey.sites, ["app".to_owned(), format!("core:{}", core.0)]);
    assert!(survey.cores >= 2 && survey.native.linked == [manifest().package.guid], "{survey:?}");
    let missing = connection.site(Some("core:9999")).err().unwrap().to_string();
    assert!(missing.contains(&format!("the agent offers app, core:{}", core.0)), "{missing}");

    let (mut first, mut second) = (connection.site(None).unwrap(), connection.site(Some(&survey.sites[1])).unwrap());
    assert_eq!(second.site().to_string(), format!("agent:{}/core:{}", agent.address, core.0));
    assert!(first.connection().is_some() && first.connection() == second.connection());
    let (one, two) =
        (first.deploy(deployment("one", native())).unwrap(), second.deploy(deployment("two", native())).unwrap());
    let mut into = first.connect(one, "in", specification()).unwrap();
    first.join_here([(one, "out"), (two, "in")], specification()).unwrap();
    let mut out = second.connect(two, "out", specification()).unwrap();
    for (site, slot) in [(&mut first, one), (&mut second, two)] {
        site.initialize(slot).unwrap();
        site.start(slot).unwrap();
    }
    assert!(second.evidence(two).unwrap().whereabouts.contains(&core.to_string()));
    for n in 0..100u8 {
        comes("room", || into.write(&[n]).unwrap() == Written::Taken);
        let mut came = Vec::new();
        comes("what went through both", || out.read_with(&mut |bytes| came = bytes.to_vec()).unwrap());
        assert_eq!(came, [n]);
    }
    // Of another client's offcodes nothing is joined.
    let mut other = agent.client();
    let theirs = other.deploy(deployment("theirs", native())).unwrap();
    let refused = other.join_here([(theirs, "out"), (two, "more")], specification()).unwrap_err().to_string();
    assert!(refused.contains("this client has no offcode there"), "{refused}");
    drop((first, second, connection));
    agent.logged("its 2 offcodes were stopped and removed; in all its offcodes took");
}

#[test]
fn code_is_sent_once() {
    let agent = Running::start(Limits::default());
    let mut site = agent.client();
    let code: std::sync::Arc<[u8]> = (0..300_000u32).map(|n| n as u8).collect();
    let slot = site.deploy(deployment("one", Code::Wasm(code.clone()))).unwrap();
    assert_eq!(site.code_sent(), (300_000, 0));
    assert_eq!(site.evidence(slot).unwrap().counters[1].value, 300_000);
    site.deploy(deployment("two", Code::Wasm(code.clone()))).unwrap();
    assert_eq!(site.code_sent(), (300_000, 1));
    let mut other = agent.client();
    other.deploy(deployment("three", Code::Wasm(code))).unwrap();
    assert_eq!(other.code_sent(), (0, 1), "what one client sent serves the next");
}

#[test]
fn what_is_not_linked_in_is_not_run() {
    let agent = Running::start(Limits::default());
    let mut site = agent.client();
    let mut other = deployment("other", native());
    let mut manifest = (*manifest()).clone();
    manifest.package.guid = offcode::Guid::named("someone else");
    other.manifest = manifest.into();
    let fault = site.deploy(other).unwrap_err().to_string();
    assert!(fault.contains("no body of this GUID and version is linked into the agent"), "{fault}");
    assert!(site.deploy(deployment("bpf", Code::Bpf([0].into()))).is_err());
    assert_eq!(site.deploy(deployment("echo", native())).unwrap(), Slot(0));
}

#[test]
fn clients_do_not_reach_each_others_offcodes() {
    let agent = Running::start(Limits::default());
    let (mut one, mut two) = (agent.client(), agent.client());
    let slot = launch(&mut one, "mine");
    assert!(two.evidence(slot).is_err());
    assert!(two.connect(slot, "x", specification()).is_err());
    assert!(two.set_attribute(slot, "a", "b").is_err());
    two.remove(slot).unwrap();
    assert!(one.evidence(slot).is_ok(), "another client removed it");
}

#[test]
fn zero_copy_across_hosts_is_a_fault_and_out_of_band_says_what_it_is() {
    let agent = Running::start(Limits::default());
    let mut site = agent.client();
    let slot = launch(&mut site, "echo");
    let wish =
        Specification { buffers: Buffers { policy: Policy::ZeroCopy, ..specification().buffers }, ..specification() };
    let fault = site.connect(slot, "x", wish).map(drop).unwrap_err().to_string();
    assert!(fault.contains("zero-copy"), "{fault}");
    let end = site.connect(slot, "", wish).unwrap();
    assert_eq!(end.specification().buffers.policy, Policy::Copy);
}

#[test]
fn limits_hold_and_are_logged() {
    let limits = Limits { offcodes: 2, channels: 3, code: Bytes(1000), ..Limits::default() };
    let agent = Running::start(limits);
    let mut site = agent.client();
    let slot = launch(&mut site, "one");
    launch(&mut site, "two");
    let fault = site.deploy(deployment("three", native())).unwrap_err().to_string();
    assert!(fault.contains("the most that this agent takes"), "{fault}");
    let ends: Vec<_> = (0..3).map(|n| site.connect(slot, &format!("c{n}"), specification()).unwrap()).collect();
    assert!(site.connect(slot, "c3", specification()).is_err());
    assert!(site.connect(slot, "", specification()).is_err());
    drop(ends);
    let large = Buffers { count: 65536, size: Bytes(1 << 20), policy: Policy::Copy };
    assert!(site.connect(slot, "large", Specification { buffers: large, ..specification() }).is_err());
    let fault = site.deploy(deployment("large", Code::Wasm(vec![0; 1001].into()))).unwrap_err().to_string();
    assert!(fault.contains("1001 bytes"), "{fault}");
    agent.logged("beyond a limit: 2 offcodes are here");
    agent.logged("beyond a limit: the client has 3 channels");
    drop(site);
    assert_eq!(refused(&agent.end(), Reason::Limit), 3);
}

#[test]
fn clients_are_limited_per_address() {
    let agent = Running::start(Limits { clients_per_address: 2, ..Limits::default() });
    let kept = [agent.client(), agent.client()];
    let fault = runtime::site::agent::AgentSite::connect(&agent.host(), &agent.client_keys());
    let fault = fault.map(drop).unwrap_err().to_string();
    assert!(fault.contains("2 clients of its address"), "{fault}");
    drop(kept);
    comes("a seat", || runtime::site::agent::AgentSite::connect(&agent.host(), &agent.client_keys()).is_ok());
    assert!(refused(&agent.end(), Reason::Clients) >= 1);
}

#[test]
fn an_agent_that_is_asked_to_end_does_and_says_so() {
    let agent = Running::start(Limits::default());
    let mut site = agent.client();
    let slot = launch(&mut site, "echo");
    agent.end();
    comes("word of the end", || site.turn().is_err());
    let fault = site.evidence(slot).unwrap_err().to_string();
    assert!(fault.contains("the other side closed the connection; lost with it: echo"), "{fault}");
}
