//! A machine as a page of text.

use machine::Machine;
use machine::availability::Feature;
use machine::cpuset::CpuSet;
use machine::description::bits;
use machine::interface::{Interface, Role};
use machine::site::CoreId;
use machine::text::folded;

/// Columns of the first two fields of a row.
const NAME: usize = 22;
const WORD: usize = 13;

/// The page: what the machine is, its interfaces, then every site, port, control and sensor.
///
/// Adjacent rows of the same text share a line.
pub fn page(machine: &Machine, width: usize) -> String {
    let mut out = String::new();
    for (name, value) in machine.facts().iter().filter(|(name, _)| !MORE_BELOW.contains(&name.as_str())) {
        row(&mut out, name, None, value, width);
    }
    heading(&mut out, "interfaces");
    if machine.interfaces.is_empty() {
        let why = machine.interfaces_hidden.as_deref();
        row(&mut out, "none", None, why.unwrap_or("no interface is visible in this network namespace"), width);
    }
    for interface in &machine.interfaces {
        let state = if interface.up { "up" } else { "down" };
        row(&mut out, &interface.name, Some(state), &describe(interface), width);
    }
    for (title, features) in [
        ("sites", &machine.sites),
        ("ports", &machine.ports),
        ("controls", &machine.controls),
        ("sensors", &machine.sensors),
    ] {
        heading(&mut out, title);
        for (name, feature) in grouped(features) {
            row(&mut out, &name, Some(feature.availability.word()), feature.availability.explanation(), width);
            if let Some(next) = feature.availability.next() {
                row(&mut out, "", Some("  next"), next, width);
            }
        }
    }
    out
}

/// Facts that this page shows in sections of their own.
const MORE_BELOW: [&str; 4] = ["clock", "counters", "energy", "network"];

fn heading(out: &mut String, title: &str) {
    out.push('\n');
    out.push_str(title);
    out.push('\n');
}

/// `  name  word  text`, the text wrapped under itself.
fn row(out: &mut String, name: &str, word: Option<&str>, text: &str, width: usize) {
    let head = match word {
        // A name too long for its column has a line of its own.
        Some(word) if name.chars().count() > NAME => {
            *out += &folded("  ", name, 2, width);
            format!("  {:NAME$} {word:<WORD$} ", "")
        }
        Some(word) => format!("  {name:<NAME$} {word:<WORD$} "),
        None => format!("  {name:<WORD$} "),
    };
    *out += &folded(&head, text, head.chars().count(), width);
}

fn describe(interface: &Interface) -> String {
    let mut parts = vec![interface.kind().to_owned()];
    match interface.role {
        Role::Plain => {}
        Role::Uplink => parts.push("uplink".into()),
        Role::HostFunction => parts.push("stands for the host".into()),
        Role::Representor => parts.push("representor".into()),
    }
    parts.extend(interface.dpu.as_ref().map(|product| format!("of a {product}")));
    parts.extend(interface.speed.value().map(|speed| bits(speed.0 * 8.0)));
    parts.extend(interface.mtu.map(|mtu| format!("mtu {}", mtu.0)));
    parts.push(format!("queues {} in, {} out", interface.rps.len(), interface.xps.len()));
    parts.extend(interface.node.map(|node| format!("node {node}")));
    parts.extend(interface.device.as_ref().map(|device| format!("at {device}")));
    parts.join(", ")
}

/// Features of the same text, merged under one name, in the order of the first.
fn grouped(features: &[Feature]) -> Vec<(String, &Feature)> {
    let mut groups: Vec<Vec<&Feature>> = Vec::new();
    for feature in features {
        let kind = |f: &Feature| f.name.split_once(':').map(|(kind, _)| kind.to_owned());
        let same = |group: &&mut Vec<&Feature>| {
            group[0].availability == feature.availability && kind(group[0]).is_some() && kind(group[0]) == kind(feature)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(feature),
            None => groups.push(vec![feature]),
        }
    }
    groups.into_iter().map(|group| (group_name(&group), group[0])).collect()
}

/// `core:0-31`, `rps:eth0,lo`, or the one name there is.
fn group_name(group: &[&Feature]) -> String {
    let Some((kind, first)) = group[0].name.split_once(':').filter(|_| group.len() > 1) else {
        return group[0].name.clone();
    };
    let rest = |feature: &&Feature| feature.name.split_once(':').map_or("", |(_, rest)| rest).to_owned();
    let numbers: Option<CpuSet> = group.iter().map(|feature| rest(feature).parse().ok().map(CoreId)).collect();
    match numbers {
        Some(cores) => format!("{kind}:{cores}"),
        None => format!(
            "{kind}:{}",
            std::iter::once(first.into()).chain(group[1..].iter().map(rest)).collect::<Vec<_>>().join(",")
        ),
    }
}
