//! Two agents on two hosts, which are network namespaces of this machine.

use linux::lab::{Host, Lab, Options};
use offcode::Written;
use runtime::site::agent::AgentSite;
use runtime::site::{SiteDriver, Slot};

use super::rig::*;

fn lab() -> Option<Lab> {
    match Lab::owned(&Options::default()) {
        Ok(lab) => Some(lab),
        Err(fault) => {
            skip::test(fault);
            None
        }
    }
}

/// An agent in a process on each host, and a client on host a that has connected to both.
fn two(lab: &Lab, keys: &std::path::Path) -> [(Player, AgentSite); 2] {
    Host::BOTH.map(|host| {
        let address = lab.address(host).to_string();
        let (player, at) = Player::agent(&format!("{address}:0"), &keys.join(&address), |command| {
            lab.enter(host, command).unwrap();
        });
        let connect = || AgentSite::connect(&at.to_string(), &keys.join("client"));
        (player, lab.inside(Host::A, connect).unwrap().unwrap())
    })
}

/// All or none: the two phases over both agents, what failed undone.
fn gang(sites: &mut [&mut AgentSite], refuse: Option<usize>) -> machine::Result<Vec<Slot>> {
    let mut slots = Vec::new();
    let mut start = || -> machine::Result<()> {
        for (n, site) in sites.iter_mut().enumerate() {
            let mut deployment = deployment(&format!("member-{n}"), native());
            if refuse == Some(n) {
                deployment.attributes.set("refuse", "yes")?;
            }
            slots.push(site.deploy(deployment)?);
        }
        for (site, slot) in sites.iter_mut().zip(&slots) {
            site.initialize(*slot)?;
        }
        for (site, slot) in sites.iter_mut().zip(&slots) {
            site.start(*slot)?;
        }
        Ok(())
    };
    let outcome = start();
    if outcome.is_err() {
        for (site, slot) in sites.iter_mut().zip(&slots) {
            site.remove(*slot)?;
        }
    }
    outcome.map(|()| slots)
}

#[test]
fn a_gang_starts_on_two_hosts_or_on_none() {
    let Some(lab) = lab() else { return };
    let keys = keys();
    let [(_player_a, mut a), (_player_b, mut b)] = two(&lab, keys.path());
    let fault = gang(&mut [&mut a, &mut b], Some(1)).unwrap_err().to_string();
    assert!(fault.contains("agent:198.18.0.2") && fault.contains("told to refuse"), "{fault}");
    assert!(a.evidence(Slot(0)).is_err() && b.evidence(Slot(0)).is_err(), "what had begun is undone");
    let slots = gang(&mut [&mut a, &mut b], None).unwrap();
    let connect = |site: &mut AgentSite, slot| {
        let join =
            || (site.connect(slot, "fast", specification()).unwrap(), site.connect(slot, "", specification()).unwrap());
        lab.inside(Host::A, join).unwrap()
    };
    let (mut fast_a, mut control_a) = connect(&mut a, slots[0]);
    let (mut fast_b, mut control_b) = connect(&mut b, slots[1]);
    for n in 0..200u32 {
        for end in [&mut fast_a, &mut control_a, &mut fast_b, &mut control_b] {
            echoed(&mut **end, &[n as u8; 700]);
        }
    }
    assert_eq!(a.evidence(slots[0]).unwrap().counters[0].value, 400);
    assert_eq!(b.evidence(slots[1]).unwrap().counters[0].value, 400);
}

#[test]
fn one_host_dies_and_the_other_goes_on() {
    let Some(lab) = lab() else { return };
    let keys = keys();
    let [(_player_a, mut a), (mut player_b, mut b)] = two(&lab, keys.path());
    let slots = gang(&mut [&mut a, &mut b], None).unwrap();
    let (mut end_a, mut end_b) = lab
        .inside(Host::A, || {
            let a = a.connect(slots[0], "fast", specification()).unwrap();
            (a, b.connect(slots[1], "fast", specification()).unwrap())
        })
        .unwrap();
    echoed(&mut *end_a, b"both live");
    echoed(&mut *end_b, b"both live");
    player_b.kill();
    comes("word of the death", || b.turn().is_err());
    let fault = b.turn().unwrap_err().to_string();
    assert!(fault.contains("agent:198.18.0.2") && fault.contains("member-1"), "{fault}");
    comes("the end of its channel", || end_b.is_abandoned());
    assert_eq!(end_b.write(b"x").unwrap(), Written::Gone);
    echoed(&mut *end_a, b"one lives");
}

#[test]
fn packets_of_an_unknown_sender_change_nothing() {
    let Some(lab) = lab() else { return };
    let keys = keys();
    let [(_player_a, _a), (_player_b, mut b)] = two(&lab, keys.path());
    let slot = launch(&mut b, "echo");
    let mut end = lab.inside(Host::A, || b.connect(slot, "fast", specification()).unwrap()).unwrap();
    let unknown = lab.inside(Host::A, || std::net::UdpSocket::bind("198.18.0.1:0").unwrap()).unwrap();
    for n in 0..50u32 {
        // Every port that the agent's end may have: those of the ephemeral range, a part each time.
        for port in (32768..61000u16).skip(n as usize).step_by(997) {
            let _ = unknown.send_to(&[n as u8; 200], ("198.18.0.2", port));
        }
        echoed(&mut *end, &n.to_le_bytes());
    }
}
