use std::path::{Path, PathBuf};
use std::process::ExitCode;

use experiment::ledger::Ledger;
use launch::seats::{self, SeatedCommand};
use linux::output;
use machine::choice::Distance;
use machine::costs::Interval;
use machine::costs::store::{self, Known};
use machine::seat::{Seat, Seats};
use machine::{CoreCapability, CoreId, Fault, Machine, Reading, Result, Source, count};
use mapping::advice::{Advice, LEAST};
use mapping::problem::Problem;
use mapping::reason::{Move, moves};
use mapping::recorded::{Recorded, Replays, deciding, softirqs, stalls};
use mapping::replay_error::{BETWEEN_PACKAGES, ReplayError};
use mapping::search::{Found, search};
use mapping::simulated::Simulated;
use mapping::steering::steerings;
use profile::printable::printable;
use profile::summary::Summary;
use simulate::file::Simulation;
use whatif::answer::Program;
use whatif::graph::Graph;
use whatif::replay::Buffer;

use super::expectation::{CONTRADICTED, MAPPING, MOST_OUTSIDE, expectation, of_job, over, widening};
use super::outputs::Json;
use super::simulate::testbed;
use crate::critical;
use crate::map_page::{Page, Steered};
use crate::opened::Opened;
use crate::progress::Working;
use crate::whatif_page::shell;

/// Proposes which rank belongs on which core, with what that gains, or advises to keep the mapping.
///
/// DIR is a profile with a timeline (plimsoll profile --trace). A search proposes mappings: ranks that wait go to cores that other
/// work takes part of, partners with large messages on two hosts to cores of equal capability, and partners on one host near to
/// each other. Each is judged by a replay of the timeline. To steer the interrupts instead is priced beside it.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Folder of a profile
    #[arg(value_name = "DIR", required_unless_present = "simulate")]
    folder: Option<PathBuf>,
    /// Map the simulated program of FILE (docs/whatif.md) in place of a recorded one
    #[arg(long, value_name = "FILE", conflicts_with = "folder")]
    simulate: Option<PathBuf>,
    /// Let ranks change their hosts
    #[arg(long)]
    across: bool,
    /// The share of a core that ranks can have, where it was not sampled or will be another: node1:0=0.7
    #[arg(long, value_name = "HOST:CORE=SHARE", requires = "folder", value_parser = capability)]
    capability: Vec<(String, u32, f64)>,
    /// What carried the messages of the recorded run, if its command does not say
    #[arg(long, value_name = "NAME", requires = "folder")]
    recorded: Option<String>,
    /// What a connection of the recorded run took in before its receiver took it out: 64KiB, unlimited
    #[arg(long, value_name = "SIZE", requires = "folder", default_value_t)]
    recorded_buffer: Buffer,
    /// The MPI_COMM_WORLD to take, where the profile has several: the N-th that began, counted from 0
    #[arg(long, value_name = "N", requires = "folder", default_value_t = 0)]
    world: usize,
    /// Start the launch line with a program that reads back where it is, and compare
    #[arg(long, requires = "folder")]
    verify: bool,
    /// Run the job as it was and with the proposed mapping in turn (plimsoll try), with what is expected in the ledger
    #[arg(long, requires = "folder", conflicts_with = "json")]
    run: bool,
    #[command(flatten)]
    json: Json,
}

const EXAMPLES: &str = "Examples:
  plimsoll profile --trace -o run -- mpirun -n 8 ./program
  plimsoll map run
  plimsoll map run --verify
  plimsoll map run --run
  plimsoll map run --capability node1:0=0.7
  plimsoll map --simulate lammps-b";

fn capability(text: &str) -> Result<(String, u32, f64)> {
    let read = || {
        let (spot, share) = text.split_once('=')?;
        let (host, core) = spot.rsplit_once(':')?;
        let share = share.parse().ok().filter(|share| (0.01..=1.0).contains(share))?;
        (!host.is_empty()).then_some((host.to_owned(), core.parse().ok()?, share))
    };
    read().ok_or_else(|| {
        let cause = "it is no core of a host with a share from 0.01 to 1";
        Fault::new(format!("capability '{text}'"), cause, "write it like node1:0=0.7")
    })
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    match &arguments.simulate {
        Some(file) => simulated(file, &arguments),
        None => recorded(arguments.folder.as_deref().unwrap_or(Path::new("")), &arguments),
    }
}

/// The best mapping of a recorded program.
fn recorded(path: &Path, arguments: &Arguments) -> Result<ExitCode> {
    let known = store::live()?;
    let working = Working::on("replaying mappings");
    let opened = Opened::priced(path, arguments.world, &known.costs, arguments.recorded.as_deref())?;
    let asked = Asked {
        recorded: arguments.recorded.as_deref(),
        buffer: arguments.recorded_buffer,
        capability: &arguments.capability,
        across: arguments.across,
    };
    let judged = Judged::of(&Mapped::of(&opened)?, &known, &asked)?;
    let page = judged.page();
    let proposed = (page.advice() != Advice::Keep).then(|| judged.proposed(&opened, path)).transpose()?;
    let line = proposed.as_ref().map(|proposed| &proposed.line);
    drop(working);
    arguments.json.print(
        || page.terminal(output::width()),
        || {
            let mut json = page.json();
            json["line"] = line.map(ToString::to_string).into();
            json
        },
    )?;
    let Some(proposed) = proposed else {
        if let Some(words) = left_undone(arguments.verify, arguments.run) {
            eprintln!("{words}");
        }
        return Ok(ExitCode::SUCCESS);
    };
    if !arguments.json.is_printed() {
        output::print(&proposed.words(path))?;
    }
    if arguments.verify {
        let ranks = proposed.verify()?;
        if !arguments.json.is_printed() {
            output::print(&format!("Read back: {ranks} where they are to be.\n"))?;
        }
    }
    if arguments.run { proposed.run(&opened.folder) } else { Ok(ExitCode::SUCCESS) }
}

/// Facts that a recording does not hold, and whether ranks may change their hosts.
#[derive(Default)]
pub struct Asked<'a> {
    recorded: Option<&'a str>,
    buffer: Buffer,
    capability: &'a [(String, u32, f64)],
    across: bool,
}

/// A recorded program to map.
pub struct Mapped<'a> {
    pub folder: &'a str,
    pub graph: &'a Graph,
    pub summary: &'a Summary,
    pub world: usize,
}

impl<'a> Mapped<'a> {
    /// # Errors
    /// `opened` is no profile.
    pub fn of(opened: &'a Opened) -> Result<Mapped<'a>> {
        let Opened { folder, graph, world, .. } = opened;
        let next = "name a folder that plimsoll profile --trace made";
        let summary = opened.summary.as_ref().ok_or_else(|| Fault::new(folder, "it is no profile", next))?;
        Ok(Mapped { folder, graph, summary, world: *world })
    }
}

/// The result of the search for a recorded program.
pub struct Judged {
    subject: String,
    problem: Problem,
    found: Found,
    moves: Vec<Move>,
    /// The time with the found mapping over the recorded one.
    pub time: Interval,
    steered: Vec<Steered>,
    notes: Vec<String>,
}

impl Judged {
    /// # Errors
    /// A cost was never measured here, or what a core leaves to ranks is not known.
    pub fn of(of: &Mapped, known: &Known, asked: &Asked) -> Result<Judged> {
        let Mapped { folder, graph, summary, world } = *of;
        let ways = critical::recorded(summary, graph).0.ways(&known.costs, asked.recorded)?;
        let mut notes = graph.notes.clone();
        notes.extend(known.note.clone());
        notes.extend(stalls(summary));
        let cores = said(&summary.capability, asked.capability)?;
        let problem =
            Recorded { graph, summary, world, capability: &cores, across: asked.across }.problem(distance()?)?;
        if problem.distances.is_empty() {
            notes.push("how near cores are to each other makes no difference, or is not known".to_owned());
        }
        let (deciding, seconds) = deciding(graph, summary.totals.seconds);
        let softirqs = softirqs(&problem, seconds * 1e9);
        let program = Program::beside(&deciding, &known.costs, ways, asked.buffer, softirqs)?;
        if program.contradicted {
            notes.push(CONTRADICTED.to_owned());
        }
        let replays = Replays::of(&problem, &deciding, &program, seconds)?;
        let found = search(&problem, &replays)?;
        let steered = steerings(&problem, |of| replays.under(replays.steering(&of.softirqs)), LEAST)?;
        let mappings = [replays.mapping(&found.seats)].into_iter();
        let mappings = mappings.chain(steered.iter().map(|(of, _)| replays.steering(&of.softirqs)));
        let times = program.mapped(&mappings.collect::<Vec<_>>())?;
        let time = match ReplayError::of(&problem, &found.seats) {
            _ if found.seats == problem.seats => Interval::exactly(1.0),
            Some(missed) => missed.with(times[0], &program),
            None => times[0],
        };
        let core = |spot: u32| problem.spots[spot as usize].core.0;
        let steered = steered.into_iter().zip(&times[1..]).map(|((of, _), time)| Steered {
            host: problem.hosts[of.host as usize].clone(),
            from: of.from.iter().map(|spot| core(*spot)).collect(),
            to: core(of.to),
            time: BETWEEN_PACKAGES.with(*time, &program),
        });
        let steered: Vec<Steered> = steered.collect();
        let subject = format!(
            "{folder}: {} on {}, {}",
            count::of(problem.ranks.len() as u64, "rank"),
            count::of(problem.hosts.len() as u64, "host"),
            count::of(graph.len() as u64, "call")
        );
        let moves = moves(&problem, &found.seats);
        Ok(Judged { subject, problem, found, moves, time, steered, notes })
    }

    pub fn page(&self) -> Page<'_> {
        Page {
            subject: &self.subject,
            judged: "replayed",
            problem: &self.problem,
            found: &self.found,
            moves: &self.moves,
            time: self.time,
            steered: &self.steered,
            notes: &self.notes,
        }
    }

    /// The launch line with the mapping. Its files are written into the profile's folder at `path`.
    ///
    /// # Errors
    /// The launcher cannot place ranks so, or the files cannot be written.
    pub fn proposed(&self, opened: &Opened, path: &Path) -> Result<Proposed> {
        Proposed::of(opened, &self.problem, &self.found.seats, path, &self.time)
    }
}

/// The options that have no effect, since the mapping is kept.
fn left_undone(verify: bool, run: bool) -> Option<String> {
    let what = match (verify, run) {
        (false, false) => return None,
        (true, false) => "verified",
        (false, true) => "run",
        (true, true) => "verified or run",
    };
    Some(format!("Nothing is {what}: the mapping is kept, and there is no other launch line."))
}

/// The launch line with a mapping, and today's.
pub struct Proposed {
    now: Vec<String>,
    pub line: SeatedCommand,
    seats: Seats,
    /// The time of the whole job over today's; `None`: its start and end are most of it.
    expected: Option<Interval>,
}

impl Proposed {
    fn of(opened: &Opened, problem: &Problem, spots: &[u32], path: &Path, time: &Interval) -> Result<Proposed> {
        let now = opened.recorded().command.to_vec();
        let seat = |spot: &u32| {
            let spot = &problem.spots[*spot as usize];
            Seat { host: problem.hosts[spot.host as usize].clone(), cores: [spot.core].into_iter().collect() }
        };
        let seats = Seats(spots.iter().map(seat).collect());
        let folder =
            std::path::absolute(path).map_err(|e| Fault::because(path.display().to_string(), e, "name it anew"))?;
        let line = SeatedCommand::new(&now, &seats, &folder.join("map"))?;
        line.write()?;
        let replayed = opened.summary.as_ref().map_or(0.0, |summary| summary.totals.seconds);
        let outside = opened.seconds.map_or(0.0, |whole| (whole / replayed.max(1e-9) - 1.0).max(0.0));
        let expected = (outside <= MOST_OUTSIDE).then(|| of_job(time, outside, (0.9, 1.1)));
        Ok(Proposed { now, line, seats, expected })
    }

    /// Starts the line with a program that reports its ranks' places; the result as a sentence.
    ///
    /// # Errors
    /// One is elsewhere, or the line starts nothing.
    pub fn verify(&self) -> Result<String> {
        let own = machine::here::program()?;
        let seats = seats::verify(&self.line, &self.seats, &own, seats::TIMEOUT)?;
        Ok(count::of(seats.0.len() as u64, "rank"))
    }

    fn words(&self, path: &Path) -> String {
        // The command comes from the profile, which any user may have made.
        let mut text = format!("\nRun it so:\n  {}\n", printable(&self.line.to_string()));
        if !self.line.replaced.is_empty() {
            text += &format!("It replaces {}\n", printable(&self.line.replaced.join(", ")));
        }
        let path = shell(&[path.display().to_string()]);
        text + &format!(
            "Then:\n  plimsoll map {path} --verify    where its launcher really puts ranks\n  plimsoll map {path} --run       whether it is faster, by how much\n",
        )
    }

    /// Runs both commands in turn, until it is clear which is faster.
    fn run(self, folder: &str) -> Result<ExitCode> {
        let mut words = self.line.words;
        if !self.line.variables.is_empty() {
            let variables = self.line.variables.iter().map(|(name, value)| format!("{name}={value}"));
            words = ["env".to_owned()].into_iter().chain(variables).chain(words).collect();
        }
        let (now, then) = (shell(&self.now), shell(&words));
        match self.expected {
            Some(expected) => {
                let of = expectation(folder, over(&then, &now), &now, MAPPING, expected, None);
                super::kept(Ledger::open().and_then(|mut ledger| {
                    let by = widening(Some(&ledger), MAPPING);
                    ledger.predict(of.widened(by))
                }));
            }
            None => eprintln!("Nothing is kept in the ledger: most of the job is its start and end."),
        }
        let own = ["plimsoll", "try", "--"].map(str::to_owned).into_iter();
        crate::run_words(own.chain(self.now).chain(["--".to_owned()]).chain(words))
    }
}

/// The sampled capabilities, with the user's in their place.
fn said(sampled: &[CoreCapability], said: &[(String, u32, f64)]) -> Result<Vec<CoreCapability>> {
    let mut cores = sampled.to_vec();
    for (host, core, share) in said {
        let known = cores.iter().position(|of| of.host == *host && of.core.0 == *core);
        let hosts: Vec<&str> = sampled.iter().map(|of| of.host.as_str()).collect();
        let at = known.unwrap_or_else(|| {
            cores.push(CoreCapability {
                host: host.clone(),
                core: CoreId(*core),
                taken: Reading::absent("not sampled"),
                softirq: Reading::absent("not sampled"),
                clock: Reading::absent("not sampled"),
                sibling: Reading::absent("not sampled"),
            });
            cores.len() - 1
        });
        if known.is_none() && !hosts.is_empty() && !hosts.contains(&host.as_str()) {
            let mut names = hosts;
            names.dedup();
            let cause = format!("no rank ran there; ranks ran on {}", names.join(", "));
            return Err(Fault::new(format!("host {host}"), cause, "name one of these"));
        }
        let of = &mut cores[at];
        of.taken = Reading::Measured(1.0 - share);
        let softirq = of.softirq.value().map(|softirq| softirq.min(1.0 - share));
        of.softirq = softirq.map_or_else(|| Reading::absent("said by hand"), Reading::Measured);
        of.clock = Reading::Measured(1.0);
    }
    Ok(cores)
}

/// Distance of two cores of a host, if it is this one: 0 the same, 1 the farthest.
fn distance() -> Result<impl Fn(&str, CoreId, CoreId) -> Option<f32>> {
    let topology = Machine::read(&Source::live())?.topology;
    let here = launch::this_host();
    let share = move |distance: Distance| match distance {
        Distance::Same => 0.0,
        Distance::Core => 0.1,
        Distance::Cache(level) => 0.1 + 0.1 * level as f32,
        Distance::Node => 0.6,
        Distance::Package => 0.8,
        Distance::Machine(_) => 1.0,
    };
    Ok(move |host: &str, one: CoreId, other: CoreId| (host == here).then(|| share(topology.distance(one, other))))
}

/// The best mapping of a simulated program.
fn simulated(file: &Path, arguments: &Arguments) -> Result<ExitCode> {
    let file = &testbed(file)?;
    let working = Working::on("simulating mappings");
    let simulation = Simulation::read(file)?;
    let within = |fault: Fault| fault.within(file.display());
    if simulation.over_engines() {
        let cause = "plimsoll's own engines move with their ranks, and a search does not move them";
        return Err(within(Fault::new("profile plimsoll", cause, "map it under another profile, such as loggops")));
    }
    let simulated = Simulated::of(simulation.cluster.clone(), || simulation.start()).map_err(within)?;
    let problem = simulated.problem(arguments.across);
    let found = search(&problem, &simulated)?;
    let subject = format!(
        "{}: {} on {}, {}; modelled",
        simulation.program,
        count::of(problem.ranks.len() as u64, "rank"),
        count::of(problem.hosts.len() as u64, "host"),
        simulation.cluster.profile.name
    );
    let page = Page {
        subject: &subject,
        judged: "simulated",
        problem: &problem,
        found: &found,
        moves: &moves(&problem, &found.seats),
        time: Interval::exactly(found.time),
        steered: &[],
        notes: &[],
    };
    drop(working);
    arguments.json.print(|| page.terminal(output::width()), || page.json())?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_done_of_a_mapping_that_is_kept_is_said() {
        assert_eq!(left_undone(false, false), None);
        for (verify, run, word) in [(true, false, "verified"), (false, true, "run"), (true, true, "verified or run")] {
            let said = left_undone(verify, run).unwrap();
            assert!(said.starts_with(&format!("Nothing is {word}: the mapping is kept")), "{said}");
        }
    }
}
