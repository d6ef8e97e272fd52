//! What an idle runtime costs, and what is seen of a busy one: channels and their losses, metrics, calls.

use std::collections::BTreeMap;

use offcode::channel::{Buffers, Delivery, Policy};
use offcode::interface;

use super::*;

#[interface(guid = "6d1c2a5e-4f0b-4c1e-9a57-0c7d8e9f1a2b", encoding = "fixed")]
trait Totals {
    fn totals(&self) -> (u64, u64, u64);
    fn clear(&mut self);
}

/// Calls with an argument, which the offcode refuses.
#[interface(guid = "6d1c2a5e-4f0b-4c1e-9a57-0c7d8e9f1a2b", encoding = "fixed")]
trait Mistaken {
    fn totals(&self, more: u64) -> (u64, u64, u64);
}

const MOST_SWITCHES: u64 = 20;

const PULSE: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<odf version="1">
  <package guid="5b0e6418-2c3f-4b5d-8e21-77109a6c3d43" name="example.pulse" version="1.0.0">
    <description>Beats.</description>
    <interface guid="5b0e6418-2c3f-4b5d-8e21-77109a6c3d42" name="Pulse"/>
    <wasm file="pulse.wasm" sites="app"/>
  </package>
  <hardware>
    <app memory="1 MiB"/>
  </hardware>
  <software>
    <environment interface="73016d6c-a78d-4cc2-839e-771de9fa2efe"/>
    <environment interface="1b1d01d6-cef1-49e2-aa04-0b5bcd20fed5"/>
    <environment interface="5c9e073a-2bd4-4186-8f10-e64b9377c50d"/>
  </software>
</odf>
"#;

/// An application whose only offcode is at `app`.
fn at_app() -> String {
    application("\"app\"").replace("example.frames", "example.checksum")
}

/// What is got there can be used anywhere.
fn inside<R: Send>(lab: &Lab, up: &Up, work: impl FnOnce(attach::Application) -> R + Send) -> R {
    let process = up.process();
    lab.inside(Host::A, || work(attach::application(&process).unwrap())).unwrap()
}

fn caller(lab: &Lab, up: &Up) -> attach::Client<dyn Totals> {
    inside(lab, up, |application| application.caller("example.checksum").unwrap())
}

fn channel(lab: &Lab, up: &Up, name: &str, delivery: Delivery) -> attach::Attached {
    inside(lab, up, |application| application.channel("example.checksum", name, messages(delivery)).unwrap())
}

/// How often each thread of a process gave its core up by itself.
fn switches(process: u32) -> BTreeMap<String, u64> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let of = |task: PathBuf| {
        let status = fs::read_to_string(task.join("status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()));
        let name = format!("{} ({})", field("Name:")?, field("Pid:")?);
        Some((name, field("voluntary_ctxt_switches:")?.parse().unwrap()))
    };
    tasks.filter_map(|task| of(task.unwrap().path())).collect()
}

/// How often threads of a process gave their cores up within some seconds, in all and each.
fn woken(process: u32, seconds: u64) -> (u64, BTreeMap<String, u64>) {
    let before = switches(process);
    std::thread::sleep(Duration::from_secs(seconds));
    let more = |(thread, count)| {
        let earlier = before.get(&thread).copied().unwrap_or(0);
        (thread, count - earlier)
    };
    let woken: BTreeMap<String, u64> = switches(process).into_iter().map(more).collect();
    (woken.values().sum(), woken)
}

/// Counts events in a window of idleness, which begins once nothing but long sleeps is left.
fn sleeps(process: u32) {
    let until = Instant::now() + skip::LIMIT;
    while woken(process, 2).0 > MOST_SWITCHES / 5 {
        assert!(Instant::now() < until, "it has no end of work: {:?}", woken(process, 2).1);
    }
    let (all, each) = woken(process, 10);
    assert!(all <= MOST_SWITCHES, "{all} context switches in 10 s without work: {each:?}");
}

#[test]
#[ignore = "make check"]
fn an_idle_application_sleeps_and_is_woken_by_calls() {
    let Some(lab) = lab() else { return };
    let Some(place) = Place::new(&at_app()) else { return };
    let up = Up::start(&lab, &place.file());
    // One that has a channel and does not use it costs nothing either.
    let mut caller = caller(&lab, &up);
    sleeps(up.child.id());
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(20));
        caller.call(|it| it.totals()).unwrap();
    }
}

#[test]
#[ignore = "make check"]
fn an_agent_with_an_idle_client_sleeps() {
    let Some(lab) = lab() else { return };
    let Some((place, agent)) = behind_an_agent(&lab) else { return };
    let up = Up::start(&lab, &place.file());
    sleeps(agent.0.id());
    // And works on.
    let listed = text(&output(&lab, &["ps", "--process", &up.process()]).stdout);
    assert!(listed.contains("agent:"), "{listed}");
    assert_eq!(caller(&lab, &up).call(|it| it.totals()).unwrap(), (0, 0, 0));
}

/// The checksum at an agent in the lab's other host.
fn behind_an_agent(lab: &Lab) -> Option<(Place, Agent)> {
    let host = lab.address(Host::B).to_string();
    let file = application(&format!("\"app\", \"agent:{host}\"")).replace("example.frames", "example.checksum")
        + &format!("\n[agents.\"{host}\"]\naddress = \"{host}:5311\"\nkeys = \"keys\"\n");
    let place = Place::new(&file)?;
    let odf = CHECKSUM.replace("sites=\"app core\"", "sites=\"agent\"");
    let odf =
        odf.replace("    <app memory=\"64 KiB\"/>\n    <core memory=\"64 KiB\"/>", "    <agent memory=\"64 KiB\"/>");
    fs::write(place.path().join("depot/example.checksum/odf.xml"), odf).unwrap();
    let agent = Agent::start(lab, &place.path().join("keys"));
    Some((place, agent))
}

fn messages(delivery: Delivery) -> Specification {
    let buffers = Buffers { count: 4, size: machine::Bytes(64), policy: Policy::Any };
    Specification { content: Content::Messages, delivery, buffers, ..Specification::default() }
}

/// Writes all of them, however long the other end takes.
fn write_all(channel: &mut dyn Channel, count: usize) {
    for _ in 0..count {
        while channel.write(b"message").unwrap() == Written::Full {
            std::thread::yield_now();
        }
    }
}

/// The rows of an offcode's channels, by their names; none where its site does not say them now.
fn rows(lab: &Lab, process: &str) -> BTreeMap<String, serde_json::Value> {
    let json = text(&output(lab, &["ps", "--process", process, "--json"]).stdout);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let rows = json[0]["offcodes"][0]["channels"]["Ok"].as_array().cloned().unwrap_or_default();
    rows.into_iter().map(|row| (row["channel"].as_str().unwrap().into(), row)).collect()
}

#[test]
fn what_channels_carried_and_lost_is_shown_with_its_place() {
    let Some(lab) = lab() else { return };
    let Some(place) = Place::new(&at_app()) else { return };
    let up = Up::start(&lab, &place.file());
    let process = up.process();
    // It reports every 16 messages: 20 reports, of which nobody reads one and 4 have room.
    let _report = channel(&lab, &up, "report", Delivery::Unreliable);
    let mut input = channel(&lab, &up, "in", Delivery::Reliable);
    write_all(&mut input, 320);
    let deadline = Instant::now() + skip::LIMIT;
    let mut rows = BTreeMap::new();
    while rows.get("in").is_none_or(|row: &serde_json::Value| row["read"] != 320) && Instant::now() < deadline {
        rows = self::rows(&lab, &process);
    }
    assert_eq!(rows["in"]["lost"], serde_json::json!([]), "{rows:?}");
    assert_eq!(rows["in"]["peer"], "another process");
    assert_eq!(rows["report"]["written"], 4, "{rows:?}");
    assert_eq!(rows["report"]["lost"], serde_json::json!([["writer", 16]]), "{rows:?}");
    let page = text(&output(&lab, &["ps", "--process", &process]).stdout);
    // A cell breaks between its words.
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains("16 full at the") && page.contains("another process"), "{page}");

    let file = place.path().join("metrics.prom");
    let said = output(&lab, &["ps", "--process", &process, &format!("--metrics={}", file.display())]);
    assert!(said.status.success() && said.stdout.is_empty(), "{said:?}");
    let metrics = Exposition::read(&fs::read_to_string(file).unwrap());
    assert_eq!(metrics.kinds["plimsoll_channel_lost_total"], "counter");
    let found = |name: &str, labels: &[(&str, &str)]| {
        let has = |sample: &&Sample| labels.iter().all(|(name, value)| sample.labels[*name] == *value);
        let all: Vec<_> = metrics.samples.iter().filter(|sample| sample.name == name).filter(has).collect();
        assert_eq!(all.len(), 1, "{name} {labels:?}: {all:?}");
        all[0].value
    };
    let of = |channel: &'static str| [("application", "monitor"), ("site", "app"), ("channel", channel)];
    assert_eq!(found("plimsoll_channel_read_total", &of("in")), 320.0);
    assert_eq!(found("plimsoll_channel_written_total", &of("report")), 4.0);
    let lost = [of("report").as_slice(), &[("place", "full at the writer")]].concat();
    assert_eq!(found("plimsoll_channel_lost_total", &lost), 16.0);
    assert_eq!(found("plimsoll_offcode_uses_total", &[("offcode", "example.checksum")]), 320.0);
}

#[test]
fn what_an_agent_does_not_take_is_lost_at_its_backlog() {
    let Some(lab) = lab() else { return };
    let Some((place, agent)) = behind_an_agent(&lab) else { return };
    let up = Up::start(&lab, &place.file());
    let process = up.process();
    let lost = {
        let mut input = channel(&lab, &up, "in", Delivery::Unreliable);
        // Long enough for its channels to fill, and short enough that it does not count as gone.
        kill_process(Pid::from_child(&agent.0), Signal::STOP).unwrap();
        let until = Instant::now() + Duration::from_secs(1);
        let (mut taken, mut dropped) = (0_u64, 0_u64);
        while Instant::now() < until {
            match input.write(b"message").unwrap() {
                Written::Taken => taken += 1,
                _ => dropped += 1,
            }
            std::thread::yield_now();
        }
        kill_process(Pid::from_child(&agent.0), Signal::CONT).unwrap();
        let deadline = Instant::now() + skip::LIMIT;
        loop {
            let row = rows(&lab, &process).remove("in").unwrap_or_default();
            let at_agent = row["lost"].as_array().and_then(|all| all.iter().find(|one| one[0] == "agent").cloned());
            let read = row["read"].as_u64().unwrap_or(0);
            let lost = at_agent.map_or(0, |one| one[1].as_u64().unwrap());
            if read + lost == taken || Instant::now() > deadline {
                assert_eq!(read + lost, taken, "{row}; {dropped} were dropped by the writer itself");
                break lost;
            }
        }
    };
    assert!(lost > 0, "an agent that stands still took everything");
}

#[test]
fn the_calls_of_one_that_is_watched_are_printed() {
    let Some(lab) = lab() else { return };
    let Some(place) = Place::new(&at_app()) else { return };
    let up = Up::start(&lab, &place.file());
    let mut trace = plimsoll(&lab, &["ps", "--process", &up.process(), "--calls", "example.checksum"]);
    let mut trace = trace.stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(trace.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.starts_with("watching example.checksum of process "), "{line}");
    let mut caller = caller(&lab, &up);
    for _ in 0..2 {
        caller.call(|it| it.totals()).unwrap();
    }
    caller.call(|it| it.clear()).unwrap();
    let mistaken = |application: attach::Application| application.caller::<dyn Mistaken>("example.checksum").unwrap();
    inside(&lab, &up, mistaken).call(|it| it.totals(7)).unwrap_err();
    let mut lines = Vec::new();
    while lines.len() < 4 {
        let mut line = String::new();
        assert!(said.read_line(&mut line).unwrap() > 0, "it ended after {lines:?}");
        // The time of day, and what it took.
        let (_, call) = line.trim_end().split_once("Z ").unwrap();
        let (call, took) = call.rsplit_once(", ").unwrap_or((call, ""));
        // What wants no answer is over at once.
        assert_eq!(
            took.ends_with('s') && took.starts_with(|c: char| c.is_ascii_digit()),
            !call.contains("Totals.clear")
        );
        lines.push(call.to_owned());
    }
    assert_eq!(
        lines,
        [
            "channel 'caller-1': Totals.totals of 0 B: result of 24 B",
            "channel 'caller-1': Totals.totals of 0 B: result of 24 B",
            "channel 'caller-1': Totals.clear of 0 B: no answer wanted",
            "channel 'caller-2': Totals.totals of 8 B: refused: totals and clear take no arguments",
        ]
    );
    kill_process(Pid::from_child(&trace), Signal::INT).unwrap();
    assert!(trace.wait().unwrap().success());
    let unknown = output(&lab, &["ps", "--process", &up.process(), "--calls", "example.nothing"]);
    assert!(!unknown.status.success() && text(&unknown.stderr).contains("does not run here"), "{unknown:?}");
}

#[derive(Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// The text format, read strictly: https://prometheus.io/docs/instrumenting/exposition_formats.
struct Exposition {
    kinds: BTreeMap<String, String>,
    samples: Vec<Sample>,
}

impl Exposition {
    fn read(text: &str) -> Exposition {
        assert!(text.ends_with('\n'));
        let (mut all, mut helped) = (Exposition { kinds: BTreeMap::new(), samples: Vec::new() }, Vec::new());
        let mut family = String::new();
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                family = help.split_once(' ').unwrap().0.to_owned();
                assert!(!helped.contains(&family), "{family} is there twice");
                helped.push(family.clone());
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                assert!(name == family && ["counter", "gauge"].contains(&kind), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                all.kinds.insert(name.into(), kind.into());
            } else {
                let sample = Sample::read(line);
                assert_eq!(sample.name, family, "a sample outside its family");
                assert!(!all.samples.iter().any(|one| (&one.name, &one.labels) == (&sample.name, &sample.labels)));
                all.samples.push(sample);
            }
        }
        all
    }
}

impl Sample {
    fn read(line: &str) -> Sample {
        let is_name = |name: &str| {
            let mut chars = name.chars();
            chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
                && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let name: String = line.chars().take_while(|c| !"{ ".contains(*c)).collect();
        assert!(is_name(&name), "{line}");
        let mut rest = &line[name.len()..];
        let mut labels = BTreeMap::new();
        if let Some(inner) = rest.strip_prefix('{') {
            rest = inner;
            loop {
                let (label, after) = rest.split_once("=\"").unwrap();
                assert!(is_name(label), "{line}");
                let (mut value, mut chars) = (String::new(), after.char_indices());
                let end = loop {
                    match chars.next().expect("the value ends") {
                        (at, '"') => break at + 1,
                        (_, '\\') => value.push(match chars.next().unwrap().1 {
                            'n' => '\n',
                            c @ ('\\' | '"') => c,
                            c => panic!("\\{c} in {line}"),
                        }),
                        (_, c) => value.push(c),
                    }
                };
                assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
                rest = &after[end..];
                match rest.strip_prefix(',') {
                    Some(more) => rest = more,
                    None => break,
                }
            }
            rest = rest.strip_prefix('}').unwrap_or_else(|| panic!("{line}"));
        }
        let value = rest.strip_prefix(' ').unwrap().parse().unwrap();
        Sample { name, labels, value }
    }
}

#[test]
fn the_map_of_an_offcode_is_seen() {
    let Some(lab) = lab() else { return };
    let Some(place) = Place::new(&at_app().replace("example.checksum", "example.pulse")) else { return };
    let Some(module) = guest(&place.path().join("pulse.wasm")) else { return };
    let package = place.path().join("depot/example.pulse");
    fs::create_dir(&package).unwrap();
    fs::write(package.join("odf.xml"), PULSE).unwrap();
    fs::write(package.join("pulse.wasm"), module).unwrap();
    let up = Up::start(&lab, &place.file());
    let map =
        |name: &str| output(&lab, &["ps", "--process", &up.process(), "--entries", &format!("example.pulse/{name}")]);
    // Beats at the level 0.
    let deadline = Instant::now() + skip::LIMIT;
    while !text(&map("levels").stdout).starts_with("0: ") {
        assert!(Instant::now() < deadline, "{:?}", map("levels"));
    }
    assert!(text(&map("none").stderr).contains("it has levels"), "{:?}", map("none"));
}
