//! `--placement auto`: the placement of a job's messages, chosen by the machine's costs and the program's traffic. The
//! choice is stored as a prediction before the job starts, and the outcome is compared with it.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use experiment::ledger::{Kind, Ledger, Outcome, Prediction, Run, Subject, Widening};
use machine::choice::Choice;
use machine::costs::{ENGINE, Interval, Item, Way, store};
use machine::topology::Topology;
use machine::{Bytes, CoreId, Costs, Fault, Nanoseconds, NetworkKind, Probe, Reading, Result, Site, SiteKind, count};
use profile::decide::{Candidate, Decision, Judged, Traffic, WORTH, decide, in_general};
use profile::profile::Profile;
use profile::summary::Summary;
use rounds::contrast::ERROR;
use rounds::estimate::Estimate;
use rounds::nearness::as_near;
use rounds::statistics::{median, predictive_interval};
use sha2::{Digest, Sha256};

use crate::engine::Network;
use crate::job;
use crate::report::Reports;
use crate::session::{Ended, Request, Target};

/// The interface of each host of a lab.
const INTERFACE: &str = "lab0";

/// Runs that a prediction of the next run's time needs, and pairs of runs that the outcome of a gain needs.
const RUNS: usize = 3;
const PAIRS: usize = 6;

/// Messages of a rank besides the program's, at most: those of MPI's own start and end.
const OF_MPI: f64 = 32.0;

/// A choice and its grounds.
#[derive(Debug)]
pub struct Chosen {
    decision: Decision,
    traffic: Traffic,
    /// Source of `traffic`; `None`: nothing is known of the program.
    basis: Option<&'static str>,
    /// For an unknown program: time of the chosen way over that of the best, at the message size where it is largest.
    loses: Option<f64>,
    /// Caveat about the costs, for the reader.
    note: Option<String>,
    /// What widens the expected gains.
    widening: Option<Widening>,
}

/// Sets placement and network of `request`, by a profile of the program or by an earlier run in the ledger.
///
/// # Errors
/// The profile cannot be read, or the stored costs are damaged.
pub fn choose(request: &mut Request, target: &Target, profile: Option<&Path>, ledger: &Ledger) -> Result<Chosen> {
    let mut known = store::live()?;
    if let Some(stale) = stale(&known.costs, &linux::affinity::allowed()?) {
        known.costs = known.costs.widened(STALE);
        known.note = Some(known.note.map_or(stale.clone(), |note| format!("{note}; {stale}")));
    }
    let (traffic, basis) = match profile {
        Some(folder) => {
            let summary = Summary::of(&Profile::open(folder)?);
            if summary.ranks.is_empty() {
                let next = "profile the program again: plimsoll profile -- mpirun -n N PROGRAM";
                return Err(Fault::new(folder.display().to_string(), "no rank left tables", next));
            }
            let mut traffic = Traffic::of(&summary, request.lab);
            traffic.ranks = request.ranks;
            (traffic, Some("the profile"))
        }
        None => match earlier(&subject(request, target)?, ledger) {
            Some(traffic) => (traffic, Some("an earlier run")),
            None => (Traffic::default(), None),
        },
    };
    let mpi = target.installation.to_string();
    let (candidates, settings): (Vec<Candidate>, Vec<Setting>) =
        candidates(request, &mpi, &linux::affinity::allowed()?)?.into_iter().unzip();
    let beside = others(&mpi, request.lab, &known.costs);
    let general = match basis {
        Some(_) => None,
        None => in_general(&candidates, &known.costs, request.lab),
    };
    let mut decision = decide(&traffic, [candidates, beside].concat(), &known.costs);
    if let Some(general) = &general {
        decision.chosen = general.chosen;
    }
    if basis.is_some() || general.is_some() {
        (request.placement, request.network) = settings[decision.chosen].clone();
    }
    let (loses, widening) = (general.map(|general| general.loses), ledger.widening(Kind::Placement, None));
    Ok(Chosen { decision, traffic, basis, loses, note: known.note, widening })
}

/// Factor by which the costs' intervals widen where a reading contradicts the costs.
const STALE: f64 = 2.0;

/// Probes of such a reading; their median counts.
const READINGS: usize = 15;

/// Measures the distance of two cores again. Returns a note where the reading lies outside of the costs' interval.
fn stale(costs: &Costs, cores: &[CoreId]) -> Option<String> {
    let Reading::Measured(expected) = costs.get(&Item::Handover).reading else { return None };
    let [first, .., last] = cores else { return None };
    let readings: Vec<f64> =
        (0..READINGS).filter_map(|_| ports::probe::between(*first, *last).ok()).map(Probe::nanoseconds).collect();
    contradicts(expected, median(&readings)?)
}

fn contradicts(expected: Interval, ns: f64) -> Option<String> {
    let probe = |ns: f64| Probe { half_round_trip_ps: (ns * 1e3) as u64 };
    let near = |end: f64| as_near(probe(ns), probe(end));
    let held = (expected.low..=expected.high).contains(&ns) || near(expected.low) || near(expected.high);
    (!held).then(|| {
        format!(
            "a cache line takes {ns:.0} ns to another core now, {:.0} .. {:.0} when the costs were measured: their \
             intervals are taken twice as wide; plimsoll calibrate",
            expected.low, expected.high
        )
    })
}

/// Traffic of the last run of this program.
fn earlier(subject: &Subject, ledger: &Ledger) -> Option<Traffic> {
    let run = ledger.runs_of(subject).next_back()?;
    let each = run.messages.iter().map(|(size, count)| (*size, (*count as f64, *count as f64)));
    Some(Traffic {
        ranks: run.ranks,
        seconds: run.elapsed.0 as f64 / 1e9,
        messages: each.collect(),
        // The ledger has no share of computation.
        in_mpi: 1.0,
        crossing: run.crossing,
    })
}

type Setting = (Site, Option<Network>);

/// Possible places of the engine, the default first, each with the settings that choose it.
fn candidates(request: &Request, mpi: &str, allowed: &[CoreId]) -> Result<Vec<(Candidate, Setting)>> {
    let networks = match (&request.network, request.lab) {
        (Some(named), _) => vec![Some(named.clone())],
        (None, false) => vec![None],
        (None, true) => Network::all(INTERFACE).into_iter().map(Some).collect(),
    };
    let mut all = Vec::new();
    let mut add = |site: Site, network: Option<Network>, refused| {
        let way = |network: Option<String>| Way {
            carrier: ENGINE.to_owned(),
            mpi: mpi.to_owned(),
            placement: if matches!(site, Site::Core(_)) { SiteKind::Core } else { SiteKind::App },
            network,
        };
        let name = placed(&site, network.as_ref());
        let kind = network.as_ref().map_or(NetworkKind::Udp, Network::kind);
        let (within, between) = (way(None), way(Some(kind.to_string())));
        let candidate = Candidate { name, within, between, refused, eligible: true };
        all.push((candidate, (site, network)));
    };
    for network in &networks {
        add(Site::App, network.clone(), None);
    }
    let (core, refused) = own_core(request.ranks, threads(), allowed)?;
    add(Site::Core(core), networks[0].clone(), refused);
    Ok(all)
}

/// The MPI's own carriers: never chosen, since only the engine is placed, but named where one is faster.
fn others(mpi: &str, lab: bool, costs: &Costs) -> Vec<Candidate> {
    let network = lab.then(|| "lab".to_owned());
    let theirs = |way: &&Way| way.carrier != ENGINE && way.mpi == mpi && way.network == network;
    let candidate = |way: &Way| {
        let (within, between) = (Way { network: None, ..way.clone() }, way.clone());
        let name = format!("{CARRIER}{}", way.carrier);
        Candidate { name, within, between, refused: None, eligible: false }
    };
    costs.ways().filter(theirs).map(candidate).collect()
}

const CARRIER: &str = "--carrier ";

/// Threads of each rank by `OMP_NUM_THREADS`, else 1.
pub fn threads() -> u32 {
    let said = std::env::var("OMP_NUM_THREADS").ok();
    said.and_then(|said| said.split(',').next()?.trim().parse().ok()).filter(|threads| *threads > 0).unwrap_or(1)
}

/// The core for an engine of its own, and the reason why the engine cannot have it.
pub fn own_core(ranks: u32, threads: u32, allowed: &[CoreId]) -> Result<(CoreId, Option<String>)> {
    let topology = Topology::live()?;
    let choice = Choice::among(topology, allowed.iter().copied());
    let whole = choice.whole().len();
    // The last core: launchers bind ranks from the first core on.
    let core = choice.whole().iter().last().or(allowed.last().copied()).unwrap_or(CoreId(0));
    let needed = ranks.saturating_mul(threads);
    if needed as usize >= whole {
        let each = if threads > 1 { format!(" of {threads} threads") } else { String::new() };
        let why = format!(
            "{}{each} need {} of {}: none is left for an engine",
            count::of(ranks.into(), "rank"),
            needed,
            count::of(whole as u64, "core")
        );
        return Ok((core, Some(why)));
    }
    let settled = job::cores(needed, &Site::Core(core), allowed, false);
    Ok((core, settled.err().map(|fault| fault.cause().to_string())))
}

/// A placement and a network, in the ledger's form.
pub fn placed(site: &Site, network: Option<&Network>) -> String {
    match network {
        None => site.to_string(),
        Some(network) => format!("{site}, {network}"),
    }
}

/// Identity of a run: program, arguments, ranks, hosts, MPI.
///
/// # Errors
/// The program cannot be read.
pub fn subject(request: &Request, target: &Target) -> Result<Subject> {
    let unread = |e| Fault::because(format!("program {}", target.program.display()), e, "grant yourself read access");
    let mut file = std::fs::File::open(&target.program).map_err(unread)?;
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer).map_err(unread)? {
            0 => break,
            length => hash.update(&buffer[..length]),
        }
    }
    for argument in &request.arguments {
        hash.update([0]);
        hash.update(argument.as_encoded_bytes());
    }
    let digest = hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let name = target.program.file_name().unwrap_or_default().display().to_string();
    let arguments: Vec<_> = request.arguments.iter().map(|argument| argument.to_string_lossy()).collect();
    let mut line = [vec![name.into()], arguments].concat().join(" ");
    if line.chars().count() > LONGEST {
        line = line.chars().take(LONGEST).collect::<String>() + "...";
    }
    let hosts = if request.lab { "two hosts" } else { "one host" };
    let ranks = count::of(request.ranks.into(), "rank");
    Ok(Subject { words: format!("{line}, {ranks}, {hosts}, {}", target.installation), digest })
}

/// Characters of a command that the ledger shows.
const LONGEST: usize = 60;

impl Chosen {
    /// The choice, its gain, and the reasons against the others, in one line.
    pub fn words(&self) -> String {
        let Decision { judged, chosen } = &self.decision;
        let own = &judged[*chosen];
        if self.basis.is_none() {
            let name = &own.candidate.name;
            let costs = self.loses.map(|loses| {
                format!(", and by the costs its messages take at most {loses:.2}x as long as the best at any size")
            });
            return format!(
                "{name}: nothing is known of this program yet{}; this run's counts decide the next, or --profile DIR",
                costs.unwrap_or_default()
            );
        }
        let widened = |of: &Interval| self.widening.map_or(*of, |by| of.widened(by.factor));
        let mut words = own.candidate.name.clone();
        if *chosen != 0
            && let Ok(expected) = &own.expected
        {
            words += &format!(", expected to take {} time than {}", than(&widened(expected)), judged[0].candidate.name);
        }
        words += &format!(" ({})", self.traffic.words());
        for (_, other) in judged.iter().enumerate().skip(1).filter(|(at, _)| at != chosen) {
            words += &match &other.expected {
                // The MPI's own carrier is named only where it is surely faster.
                Ok(expected) if !other.candidate.eligible && widened(expected).high > 1.0 - WORTH => continue,
                Err(_) if !other.candidate.eligible => continue,
                Ok(expected) => format!("; {} would take {}", other.candidate.name, than(&widened(expected))),
                Err(why) => format!("; not {}: {why}", other.candidate.name),
            };
        }
        words.extend(self.widening.map(|widening| format!("; {widening}")));
        if let Some(note) = &self.note {
            words += &format!("; {note}");
        }
        words
    }

    /// Stores the predictions, before the job starts.
    ///
    /// # Errors
    /// The ledger cannot be written.
    pub fn predict(&self, ledger: &mut Ledger, subject: &Subject) -> Result<()> {
        let Some(basis) = self.basis else { return Ok(()) };
        let Decision { judged, chosen } = &self.decision;
        let choice = &judged[*chosen].candidate.name;
        let mut predictions = Vec::new();
        let because = format!("costs of the machine, and {basis}: {}", self.traffic.words());
        let mut predict = |kind, quantity: String, expected: Interval| {
            let of = Prediction::new(kind, subject.clone(), quantity, expected, &because);
            let by = ledger.widening(kind, None);
            predictions.push(Prediction { choice: Some(choice.clone()), ..of }.widened(by));
        };
        for Judged { candidate, expected } in judged[1..].iter().filter(|of| of.candidate.eligible) {
            if let Ok(expected) = expected {
                predict(Kind::Placement, over(&candidate.name, &judged[0].candidate.name), *expected);
            }
        }
        if basis == "the profile" {
            let (low, high) = self.traffic.count();
            let high = high + OF_MPI * f64::from(self.traffic.ranks);
            predict(Kind::Messages, MESSAGES.to_owned(), Interval { low, middle: (low + high) / 2.0, high });
        }
        let times: Vec<f64> = ledger
            .runs_of(subject)
            .filter(|run| run.placement == *choice)
            .map(|run| run.elapsed.0 as f64 / 1e9)
            .collect();
        if times.len() >= RUNS
            && let Some(expected) = predictive_interval(&times)
        {
            predict(Kind::Elapsed, seconds(choice), expected);
        }
        predictions.retain(|new| !ledger.open_predictions().any(|open| new.key() == open.key()));
        predictions.into_iter().try_for_each(|prediction| ledger.predict(prediction).map(|_| ()))
    }
}

const MESSAGES: &str = "messages";

fn seconds(placement: &str) -> String {
    format!("seconds at {placement}")
}

fn over(placement: &str, usual: &str) -> String {
    format!("time at {placement} over {usual}")
}

/// "4.1 to 7.8 % less", "1.2 % less to 3.0 % more", "between 90 % less and 40x as long".
fn than(expected: &Interval) -> String {
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    match (percent(expected.low), percent(expected.high)) {
        (low, high) if high > 300.0 => format!("between {:.0} % less and {:.0}x as long", -low, expected.high),
        (low, high) if high <= 0.0 => format!("{:.1} to {:.1} % less", -high, -low),
        (low, high) if low >= 0.0 => format!("{low:.1} to {high:.1} % more"),
        (low, high) => format!("{:.1} % less to {high:.1} % more", -low),
    }
}

/// Adds a run that the engine carried to the ledger, where a prediction waits for it or nothing is known of the program.
/// Compares the run with the open predictions, and returns a sentence for each that is settled.
///
/// # Errors
/// The ledger cannot be written.
pub fn settle(ledger: &mut Ledger, subject: &Subject, request: &Request, ended: &Ended) -> Result<Vec<String>> {
    let placement = placed(&request.placement, request.network.as_ref());
    let awaited = ledger.open_predictions().any(|open| open.subject == *subject);
    if ended.code != 0 || (!awaited && ledger.runs_of(subject).any(|run| run.placement == placement)) {
        return Ok(Vec::new());
    }
    let Some(run) = shown(subject, &placement, request.ranks, ended.elapsed, &ended.reports) else {
        return Ok(Vec::new());
    };
    let mut said = Vec::new();
    let came = |value: f64| Outcome { id: 0, came: run.at, value, interval: None, source: "plimsoll mpirun".into() };
    let elapsed = run.elapsed.0 as f64 / 1e9;
    for (quantity, value) in [(MESSAGES.to_owned(), run.count() as f64), (seconds(&placement), elapsed)] {
        let settled = ledger.settle(subject, &quantity, &came(value))?;
        said.extend(settled.last().map(|prediction| prediction.against(value)));
    }
    ledger.record(run)?;
    said.extend(settle_placements(ledger, subject)?);
    Ok(said)
}

/// A run for the ledger, from the reports of its ranks; `None` where the engine carried no message.
fn shown(subject: &Subject, placement: &str, ranks: u32, elapsed: Duration, reports: &Reports) -> Option<Run> {
    let sums = reports.sums();
    let packets = |port: &str| sums.get(port).map_or(0, |port| port.packets_sent);
    let all: u64 = sums.values().map(|port| port.packets_sent).sum();
    let messages: Vec<(Bytes, u64)> = reports.messages().into_iter().collect();
    if messages.is_empty() || reports.damaged > 0 {
        return None;
    }
    Some(Run {
        subject: subject.clone(),
        at: machine::here::now(),
        placement: placement.to_owned(),
        ranks,
        elapsed: Nanoseconds(elapsed.as_nanos() as u64),
        messages,
        crossing: 1.0 - packets("shm") as f64 / all.max(1) as f64,
    })
}

/// Settles predictions of a gain by the pairs of runs since: a pair is one run at each of the two placements, as
/// `plimsoll try` makes them.
fn settle_placements(ledger: &mut Ledger, subject: &Subject) -> Result<Vec<String>> {
    let of_gain = |open: &&Prediction| open.kind == Kind::Placement && open.subject == *subject;
    let open: Vec<Prediction> = ledger.open_predictions().filter(of_gain).cloned().collect();
    let mut said = Vec::new();
    for prediction in open {
        let Some((one, usual)) = prediction.quantity.strip_prefix("time at ").and_then(|of| of.split_once(" over "))
        else {
            continue;
        };
        let times = |placement: &str| -> Vec<f64> {
            let runs = ledger.runs_of(subject).filter(|run| run.at > prediction.made && run.placement == placement);
            runs.map(|run| (run.elapsed.0 as f64).ln()).collect()
        };
        let pairs: Vec<f64> = times(one).into_iter().zip(times(usual)).map(|(one, usual)| one - usual).collect();
        if pairs.len() < PAIRS {
            continue;
        }
        let Some(Estimate { middle, low, high, .. }) = Estimate::of(&pairs, ERROR) else { continue };
        let interval = Some((low.exp(), high.exp()));
        let outcome = Outcome {
            id: 0,
            came: machine::here::now(),
            value: middle.exp(),
            interval,
            source: "runs in the ledger".into(),
        };
        let settled = ledger.settle(subject, &prediction.quantity, &outcome)?;
        said.extend(settled.last().map(|prediction| prediction.against(outcome.value)));
    }
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject() -> Subject {
        Subject { words: "lmp, 2 ranks".into(), digest: "d".into() }
    }

    fn chosen(chosen: usize, expected: Result<Interval, String>) -> Chosen {
        let way = |placement| Way { carrier: ENGINE.into(), mpi: "m".into(), placement, network: None };
        let judged = |name: &str, placement, expected| Judged {
            candidate: Candidate {
                name: name.into(),
                within: way(placement),
                between: way(placement),
                refused: None,
                eligible: true,
            },
            expected,
        };
        let judged =
            vec![judged("app", SiteKind::App, Ok(Interval::exactly(1.0))), judged("core:3", SiteKind::Core, expected)];
        let messages = [(Bytes(64), (1e6, 1e6))].into();
        let traffic = Traffic { ranks: 2, seconds: 10.0, messages, in_mpi: 0.2, crossing: 0.0 };
        let (decision, basis) = (Decision { judged, chosen }, Some("the profile"));
        Chosen { decision, traffic, basis, loses: None, note: None, widening: None }
    }

    #[test]
    fn a_reading_outside_of_its_interval_makes_the_costs_stale() {
        let expected = Interval { low: 140.0, middle: 146.0, high: 153.0 };
        assert_eq!(contradicts(expected, 160.0), None);
        let said = contradicts(expected, 47.2).unwrap();
        assert!(said.starts_with("a cache line takes 47 ns to another core now, 140 .. 153 when"), "{said}");
    }

    #[test]
    fn of_an_unknown_program_the_choice_says_what_it_loses_at_most() {
        let unknown = Chosen { basis: None, loses: Some(1.204), ..chosen(1, Ok(Interval::exactly(0.9))) };
        let words = unknown.words();
        assert!(words.starts_with("core:3: nothing is known of this program yet, and by the costs"), "{words}");
        assert!(words.contains("at most 1.20x as long as the best at any size; this run's counts"), "{words}");
    }

    #[test]
    fn a_choice_is_one_line_with_its_gain_and_the_others() {
        let gain = Interval { low: 0.92, middle: 0.94, high: 0.96 };
        let words = chosen(1, Ok(gain)).words();
        assert!(
            words.starts_with("core:3, expected to take 4.0 to 8.0 % less time than app (100 k messages"),
            "{words}"
        );
        let words = chosen(0, Err("2 ranks need 2 of 2 cores".into())).words();
        assert!(words.starts_with("app (") && words.ends_with("; not core:3: 2 ranks need 2 of 2 cores"), "{words}");
        let words = chosen(0, Ok(Interval { low: 0.99, middle: 1.0, high: 1.02 })).words();
        assert!(words.contains("core:3 would take 1.0 % less to 2.0 % more"), "{words}");
        let widening = Some(Widening { factor: 2.0, held: 29 });
        let words = Chosen { widening, ..chosen(1, Ok(gain)) }.words();
        assert!(
            words.contains("expected to take 2.0 to 10.0 % less") && words.contains("; widened 2.0x: of"),
            "{words}"
        );
    }

    fn report(messages: u64) -> Reports {
        let line = format!(
            r#"{{"rank":0,"process":1,"counters":{{"messages":[0,0,{messages}],"message_bytes":[0,0,{}]}},"ports":[{{"port":"shm","packets_sent":90,"bytes_sent":640}},
            {{"port":"udp","packets_sent":30,"bytes_sent":360}}]}}"#,
            3 * messages
        );
        Reports::read(&[line])
    }

    #[test]
    fn pairs_of_runs_are_held_against_the_gain_that_was_stored_before_them() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::at(&folder.path().join("l")).unwrap();
        let gain = Interval { low: 0.85, middle: 0.9, high: 0.95 };
        chosen(1, Ok(gain)).predict(&mut ledger, &subject()).unwrap();
        assert_eq!(ledger.predictions.len(), 2);
        // The same prediction again adds none.
        chosen(1, Ok(gain)).predict(&mut ledger, &subject()).unwrap();
        assert_eq!(ledger.predictions.iter().filter(|of| of.kind == Kind::Placement).count(), 1);
        let mut said = Vec::new();
        for turn in 0..12_u64 {
            let (placement, millis) = if turn % 2 == 0 { ("core:3", 910 + turn) } else { ("app", 1000 + turn) };
            let elapsed = Duration::from_millis(millis);
            let run = shown(&subject(), placement, 2, elapsed, &report(1_000_000)).unwrap();
            ledger.record(run).unwrap();
            said.extend(settle_placements(&mut ledger, &subject()).unwrap());
        }
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("time at core:3 over app: 0.91") && said[0].ends_with("held"), "{said:?}");
    }

    #[test]
    fn an_earlier_run_tells_what_the_program_sends() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::at(&folder.path().join("l")).unwrap();
        assert_eq!(earlier(&subject(), &ledger), None);
        let run = shown(&subject(), "app", 2, Duration::from_secs(2), &report(10)).unwrap();
        assert_eq!((run.crossing, run.count()), (0.25, 10));
        ledger.record(run).unwrap();
        let traffic = earlier(&subject(), &ledger).unwrap();
        assert_eq!((traffic.messages[&Bytes(3)], traffic.seconds), ((10.0, 10.0), 2.0));
        assert_eq!(shown(&subject(), "app", 2, Duration::from_secs(2), &report(0)), None);
    }

    #[test]
    fn an_engine_is_not_put_where_the_ranks_are() {
        let allowed = linux::affinity::allowed().unwrap();
        let (_, refused) = own_core(allowed.len() as u32, 1, &allowed).unwrap();
        assert!(refused.unwrap().contains("none is left for an engine"));
        let (_, refused) = own_core(1, allowed.len() as u32, &allowed).unwrap();
        assert!(refused.unwrap().contains(" of "));
    }
}
