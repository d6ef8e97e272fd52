//! kill -9 of either side: nothing hangs, nothing is left.

use std::sync::atomic::Ordering;

use offcode::Written;
use runtime::agent::Limits;
use runtime::site::SiteDriver;
use runtime::site::agent::AgentSite;

use super::rig::*;
use super::site::STARTED;

#[test]
fn an_agent_that_is_killed_is_a_fault_that_names_it_and_what_was_lost() {
    let keys = keys();
    let (mut agent, address) = Player::agent("127.0.0.1:0", &keys.path().join("127.0.0.1"), |_| {});
    let mut site = AgentSite::connect(&address.to_string(), &keys.path().join("client")).unwrap();
    let slot = launch(&mut site, "filter");
    launch(&mut site, "aggregate");
    let mut fast = site.connect(slot, "fast", specification()).unwrap();
    let mut control = site.connect(slot, "", specification()).unwrap();
    echoed(&mut *fast, b"before");
    agent.kill();
    let mut said = None;
    comes("word of the death", || {
        said = site.turn().err();
        said.is_some()
    });
    let fault = said.unwrap().to_string();
    assert!(fault.starts_with(&format!("agent:{address}: ")), "{fault}");
    assert!(fault.contains("lost with it: filter, aggregate"), "{fault}");
    assert!(site.evidence(slot).is_err() && site.start(slot).is_err());
    site.remove(slot).unwrap();
    for end in [&mut fast, &mut control] {
        assert!(end.is_abandoned());
        assert_eq!(end.write(b"after").unwrap(), Written::Gone);
    }
}

#[test]
fn a_request_that_is_under_way_when_the_agent_dies_ends() {
    let keys = keys();
    let (mut agent, address) = Player::agent("127.0.0.1:0", &keys.path().join("127.0.0.1"), |_| {});
    let mut site = AgentSite::connect(&address.to_string(), &keys.path().join("client")).unwrap();
    let slot = launch(&mut site, "echo");
    let asking = std::thread::spawn(move || {
        while site.evidence(slot).is_ok() {}
        site.evidence(slot).unwrap_err().to_string()
    });
    agent.kill();
    assert!(asking.join().unwrap().contains("lost with it: echo"));
}

#[test]
fn a_client_that_is_killed_leaves_nothing() {
    let agent = Running::start(Limits::default());
    let keys = agent.client_keys();
    let mut client = Player::start(&["client", &agent.host(), keys.to_str().unwrap(), "3"], |_| {});
    client.says("deployed");
    assert!(STARTED.load(Ordering::SeqCst) >= 3);
    client.kill();
    agent.logged("its 3 offcodes were stopped and removed");
    agent.serves();
}
