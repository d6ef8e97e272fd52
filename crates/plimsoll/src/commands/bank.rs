//! `plimsoll whatif bank`: what recordings of the same program predict of each other, and what came, for
//! [`whatif::outcome::bank`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use linux::output;
use machine::costs::{Interval, store};
use machine::{Costs, Fault, Result};
use rounds::statistics::median;
use whatif::answer::Program;
use whatif::graph::{Graph, Reach};
use whatif::lever::{Lever, Mapping};
use whatif::model::Ways;
use whatif::outcome::bank::{HEADER, Row};
use whatif::outcome::{Features, Kind, Quality};
use whatif::replay::Buffer;

use crate::opened::Opened;

/// Prints the outcomes of recorded programs, each predicted from one recording: crates/whatif/src/outcome/bank.tsv
#[derive(clap::Args)]
pub struct Arguments {
    /// State folder (XDG_STATE_HOME) with costs that were measured while the machine was calm
    #[arg(long, value_name = "DIR")]
    costs: PathBuf,
    /// State folder with costs that were measured beside a hog
    #[arg(long, value_name = "DIR")]
    costs_hog: PathBuf,
    /// Profiles, named PROGRAM-CARRIER-LOAD-ROUND: vader, tcp, ucx, engine, udp or afxdp; calm or hog; 1 or 2
    #[arg(value_name = "DIR", required = true)]
    recordings: Vec<PathBuf>,
}

/// The names of carriers in folders, and among the carriers of a machine.
const CARRIERS: [(&str, &str); 6] = [
    ("vader", "vader"),
    ("tcp", "tcp"),
    ("ucx", "ucx"),
    ("engine", "app"),
    ("udp", "app, udp"),
    ("afxdp", "app, afxdp"),
];

pub const LOADS: [&str; 2] = ["calm", "hog"];

/// The name of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Name<'a> {
    program: &'a str,
    /// Index in [`LOADS`].
    load: usize,
    /// Index in [`CARRIERS`].
    carrier: usize,
    second: bool,
}

impl Name<'_> {
    fn of(folder: &Path) -> Result<Name<'_>> {
        let wrong = || {
            let next = "name it PROGRAM-CARRIER-LOAD-ROUND, such as halo-4k-vader-calm-1";
            Fault::new(folder.display().to_string(), "its name does not say what was recorded", next)
        };
        let name = folder.file_name().and_then(|name| name.to_str()).ok_or_else(wrong)?;
        let words: Vec<&str> = name.rsplitn(4, '-').collect();
        let [round, load, carrier, program] = words[..] else { return Err(wrong()) };
        Ok(Name {
            program,
            load: LOADS.iter().position(|of| *of == load).ok_or_else(wrong)?,
            carrier: CARRIERS.iter().position(|(of, _)| *of == carrier).ok_or_else(wrong)?,
            second: ["1", "2"].iter().position(|of| *of == round).ok_or_else(wrong)? == 1,
        })
    }
}

/// A recording, and its time without what recording took, ns.
struct Recording {
    opened: Opened,
    ways: Ways,
    time: f64,
}

impl Recording {
    /// # Errors
    /// It cannot be read, or other carriers than named had its messages.
    fn of(folder: &Path, name: &Name, costs: &Costs) -> Result<Recording> {
        let opened = Opened::profile(folder, 0)?;
        let recorded = opened.recorded();
        let ways = recorded.ways(costs, None)?;
        let named = recorded.ways(costs, Some(CARRIERS[name.carrier].1))?;
        let reach = if recorded.between { Reach::Between } else { Reach::Host };
        if ways.of(reach) != named.of(reach) {
            let cause = format!("its messages were carried by {}", recorded.carried_by(&ways));
            return Err(Fault::new("its carrier", cause, "record it again"));
        }
        let time = Program::unrecorded(&opened.graph, costs, ways.clone())?;
        Ok(Recording { opened, ways, time })
    }

    fn graph(&self) -> &Graph {
        &self.opened.graph
    }
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let costs = [&arguments.costs, &arguments.costs_hog];
    let costs = [0, 1].map(|load| store::live_below(&costs[load].join("plimsoll")).map(|known| known.costs));
    let [calm, hog] = costs;
    let costs = [calm?, hog?];
    let mut programs: BTreeMap<&str, BTreeMap<Name, &Path>> = BTreeMap::new();
    for folder in &arguments.recordings {
        let name = Name::of(folder)?;
        programs.entry(name.program).or_default().insert(name, folder);
    }
    output::print(&format!("{HEADER}\n"))?;
    for named in programs.values() {
        let mut recordings = BTreeMap::new();
        for (name, folder) in named {
            match Recording::of(folder, name, &costs[name.load]) {
                Ok(recording) => drop(recordings.insert(*name, recording)),
                Err(fault) => eprintln!("left out: {}", fault.within(folder.display())),
            }
        }
        for (name, base) in recordings.iter().filter(|(name, _)| !name.second) {
            // Who calibrated on a calm machine predicts beside a hog too.
            for load in [0, name.load].into_iter().take(1 + name.load) {
                match rows(&recordings, name, base, (LOADS[load], &costs[load])) {
                    Ok(rows) => output::print(&rows.iter().map(|row| format!("{row}\n")).collect::<String>())?,
                    Err(fault) => eprintln!("left out: {}", fault.within(named[name].display())),
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What `base` predicts of all recordings beside the same load, and what came: the median of their rounds.
fn rows(
    all: &BTreeMap<Name, Recording>,
    name: &Name,
    base: &Recording,
    (measured, costs): (&str, &Costs),
) -> Result<Vec<Row>> {
    let graph = base.graph();
    let program = Program::over(graph, costs, base.ways.clone(), Buffer::default())?;
    let quality = Quality::of(&program, base.opened.summary.as_ref());
    let row = |carrier: usize, kind, features, drawn, observed| Row {
        program: name.program.to_owned(),
        carriers: [name.carrier, carrier].map(|of| CARRIERS[of].0.to_owned()),
        load: LOADS[name.load].to_owned(),
        costs: measured.to_owned(),
        hosts: graph.hosts.iter().max().map_or(0, |host| host + 1),
        kind,
        features,
        drawn,
        observed,
        // `scripts/make-bank` counts them.
        session: 1,
    };
    let of = |carrier| {
        let rounds = [false, true].map(|second| all.get(&Name { carrier, second, ..*name }));
        rounds.into_iter().flatten().collect::<Vec<&Recording>>()
    };
    let mut rows = Vec::new();
    if let Some(again) = all.get(&Name { second: true, ..*name }) {
        let same = Interval::exactly(1.0);
        let features = Features::of(&quality, &program.check()?.path, &same);
        rows.push(row(name.carrier, Kind::Same, features, same, again.time / base.time));
    }
    let candidates = base.opened.recorded().others(costs, &base.ways, None);
    let mut asked = Vec::new();
    for (carrier, (_, known)) in CARRIERS.iter().enumerate().filter(|(carrier, _)| *carrier != name.carrier) {
        let outcomes = of(carrier);
        let Some(first) = outcomes.first() else { continue };
        let lever = match Mapping::like(graph, first.graph()) {
            Some(mapping) if first.ways == base.ways => Lever { mapping: Some(mapping), ..Lever::default() },
            Some(_) => continue,
            None => match candidates.iter().find(|of| of.name == *known) {
                Some(candidate) => Lever { ways: Some(candidate.ways.clone()), ..Lever::default() },
                None => continue,
            },
        };
        let times: Vec<f64> = outcomes.iter().map(|outcome| outcome.time).collect();
        asked.push((carrier, lever, median(&times).unwrap_or(base.time) / base.time));
    }
    let answers = program.ask(&asked.iter().map(|(_, lever, _)| lever).collect::<Vec<_>>())?;
    for ((carrier, lever, observed), answer) in asked.iter().zip(answers) {
        let kind = Kind::of(&program, lever);
        rows.extend(kind.map(|kind| row(*carrier, kind, quality.features(&answer), answer.time, *observed)));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_names_its_recording() {
        let of = |folder: &str| Name::of(Path::new(folder)).map(|name| (name.load, name.carrier, name.second));
        assert_eq!(of("rec/halo-4k-engine-hog-2").unwrap(), (1, 3, true));
        assert_eq!(Name::of(Path::new("halo-4k-vader-calm-1")).unwrap().program, "halo-4k");
        for wrong in ["vader-calm-1", "halo-vader-calm", "halo-ib-calm-1", "halo-tcp-warm-1", "halo-tcp-calm-3"] {
            assert!(of(wrong).is_err_and(|fault| fault.to_string().contains("PROGRAM-CARRIER-LOAD-ROUND")), "{wrong}");
        }
    }
}
