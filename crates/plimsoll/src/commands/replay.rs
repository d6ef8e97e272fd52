//! `plimsoll whatif DIR`: a recorded program, or a schedule, replayed call by call under other costs.

use std::path::PathBuf;
use std::process::ExitCode;

use experiment::ledger::Ledger;
use launch::auto;
use launch::command_line::CommandLine;
use linux::output;
use machine::costs::Interval;
use machine::costs::store::{Known, live};
use machine::{Fault, Result};
use whatif::answer::Program;
use whatif::candidate::{Candidate, Recorded};
use whatif::graph::Graph;
use whatif::lever::{Change, Lever};
use whatif::model::Progress;
use whatif::outcome::bank::Bank;
use whatif::outcome::{Forecast, Quality};

use super::expectation::{CARRIER, CONTRADICTED, MOST_OUTSIDE, expectation, of_job, over, widening};
use super::levers::{Changes, Recording, factor, unsampled};
use super::outputs::Json;
use crate::machine_state::MachineState;
use crate::opened::Opened;
use crate::progress::Working;
use crate::whatif_page::{self, Asked, Page, Question};

/// Replays a profile with a timeline (plimsoll profile --trace) call by call, by the costs that `plimsoll calibrate` measured;
/// what they do not explain of a call stays as it was recorded. `plimsoll whatif DIR` is the same
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Folder of a profile
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Let this carry the messages instead: app, core, or a carrier of the MPI
    #[arg(long, value_name = "NAME")]
    carried: Option<String>,
    #[command(flatten)]
    changes: Changes,
    /// The program recorded again in DIR, at this share of the clock: narrows how much of its computing follows the clock
    #[arg(long, value_name = "CLOCK=DIR", requires = "clock", value_parser = at)]
    recorded_at: Vec<(f64, PathBuf)>,
    #[command(flatten)]
    recording: Recording,
    /// Print the commands of the N best that can be run here, and keep in the ledger what is expected of them
    #[arg(long, value_name = "N")]
    best: Option<usize>,
    #[command(flatten)]
    json: Json,
}

const EXAMPLES: &str = "Examples:
  plimsoll whatif run --carried tcp
  plimsoll whatif run --clock 0.8 --recorded-at 0.7=run-at-a-lower-clock
  plimsoll whatif run --best 3";

fn at(text: &str) -> Result<(f64, PathBuf)> {
    let (clock, folder) = text.split_once('=').ok_or_else(|| {
        Fault::new(format!("recording '{text}'"), "it does not say its clock", "write it like 0.7=DIR")
    })?;
    Ok((factor(clock)?, folder.into()))
}

/// Shares of more time for which the latency is computed.
const TOLERANCES: [f64; 3] = [0.01, 0.02, 0.05];

/// The share of more time for which each rank's slack is computed.
const SLACK: f64 = 0.01;

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let Arguments { folder, carried, changes, recorded_at: at, recording, best, json } = arguments;
    let known = live()?;
    let named = recording.recorded.as_deref();
    let opened = Opened::priced(folder, recording.world, &known.costs, named)?;
    let carried = carried.as_deref();
    answer(&opened, &known, &Request { named, carried, changes, at, recording, best: *best, json })
}

/// A replay to make, with its changes.
pub struct Request<'a> {
    /// The carrier of the recorded messages, if it is given.
    pub named: Option<&'a str>,
    /// The carrier to replace it.
    pub carried: Option<&'a str>,
    pub changes: &'a Changes,
    /// Recordings at other clocks.
    pub at: &'a [(f64, PathBuf)],
    pub recording: &'a Recording,
    pub best: Option<usize>,
    pub json: &'a Json,
}

/// Replays the program, and prints the answers.
pub fn answer(opened: &Opened, known: &Known, request: &Request) -> Result<ExitCode> {
    let Request { changes, recording, .. } = *request;
    let working = Working::on("replaying what was recorded");
    let Opened { graph, folder, .. } = opened;
    let recorded = opened.recorded();
    let ways = recording.ways(&recorded, &known.costs, request.named)?;
    let ranks = graph.hosts.len() as u32;
    let (core, refused) = auto::own_core(ranks, auto::threads(), &linux::affinity::allowed()?)?;
    let mut notes = graph.notes.clone();
    notes.extend(known.note.clone());
    let candidates = recorded.others(&known.costs, &ways, Some(core.0));
    let program = Program::over(graph, &known.costs, ways.clone(), recording.recorded_buffer)?;
    if program.contradicted {
        notes.push(CONTRADICTED.to_owned());
    }
    let mut lever = recording.lever(changes);
    if !request.at.is_empty() {
        let all = request.at.iter().map(|(clock, folder)| Ok((*clock, Opened::profile(folder, recording.world)?)));
        let all: Vec<(f64, Opened)> = all.collect::<Result<_>>()?;
        let others: Vec<(f64, &Graph)> = all.iter().map(|(clock, opened)| (*clock, &opened.graph)).collect();
        let share = whatif::clock::follows(graph, &others)?;
        let Interval { low, middle, high } = share.times(100.0);
        notes.push(format!(
            "of the computing {middle:.0} % follow the clock ({low:.0} .. {high:.0} %), as recorded at other clocks"
        ));
        lever.follows_clock = Some(share);
    }
    let check = program.check()?;
    if let Some(summary) = &opened.summary {
        lever.mapping = recording.mapping(graph, None, &ways, summary)?;
    }
    notes.extend(lever.mapping.as_ref().and_then(unsampled));
    let questions = questions(request, lever, &candidates)?;
    let levers: Vec<&Lever> = questions.iter().map(|question| &question.lever).collect();
    let answers = program.ask(&levers)?;
    let state = MachineState::of(known);
    let quality = Quality::of(&program, opened.summary.as_ref()).now(state.moved(), state.taken());
    let changed = state.changed();
    let asked = questions.into_iter().zip(answers).map(|(question, answer)| {
        let forecast = Bank::shipped().of_answer(&program, &quality, &question.lever, &answer);
        let candidate = question.candidate.as_ref();
        let refused = candidate.and_then(|of| recorded.refused(of).or(refused.clone().filter(|_| of.is_on_core())));
        Asked { refused, question, answer, forecast }
    });
    let asked: Vec<Asked> = asked.collect();
    let tolerances = program.tolerances(&TOLERANCES)?;
    let page = Page {
        folder,
        graph,
        carried: &recorded.carried_by(&ways),
        check: &check,
        asked: &asked,
        tolerances: &tolerances,
        slack: &program.slack(SLACK)?,
        names: &opened.names(),
        changed: changed.as_deref(),
        notes: &notes,
    };
    drop(working);
    request.json.print(|| page.terminal(output::width()), || page.json())?;
    if let Some(number) = request.best {
        // A trial times the whole job, whose start and end stay the same.
        let whole = opened.seconds.map_or(check.recorded, |seconds| seconds * 1e9);
        let outside = (whole / check.recorded - 1.0).max(0.0);
        let best = Best { recorded: &recorded, ranks, outside, folder };
        output::print(&best.of(number, &asked)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The questions asked; without any, the usual first ones.
fn questions(request: &Request, mut lever: Lever, candidates: &[Candidate]) -> Result<Vec<Question>> {
    let Request { carried, changes, recording, .. } = *request;
    let Changes { latency, bandwidth, clock, eager, .. } = changes;
    let Recording { buffer, recorded_buffer, .. } = recording;
    if *buffer == Some(*recorded_buffer) {
        let cause = format!("the recorded run is taken to have had one {recorded_buffer}");
        return Err(Fault::new("--buffer", cause, "say what it had with --recorded-buffer, or name another"));
    }
    let plain = |words: &str, lever| Question { words: words.to_owned(), lever, candidate: None };
    let progress = lever.progress;
    if carried.is_none() && lever == Lever::default() {
        let over = |candidate: &Candidate| Question {
            words: format!("carried by {}", candidate.name),
            lever: Lever { ways: Some(candidate.ways.clone()), ..Lever::default() },
            candidate: Some(candidate.clone()),
        };
        let mut all: Vec<Question> = candidates.iter().map(over).collect();
        all.push(plain("half the latency", Lever { latency: Some(Change::Times(0.5)), ..Lever::default() }));
        all.push(plain("twice the bandwidth", Lever { per_byte: Some(0.5), ..Lever::default() }));
        all.push(plain("messages moved at any time", Lever { progress: Some(Progress::Always), ..Lever::default() }));
        all.push(plain("a clock at 80 %", Lever { clock: Some(0.8), ..Lever::default() }));
        return Ok(all);
    }
    let mut words = Vec::new();
    let mut candidate = None;
    if let Some(name) = carried {
        let like = |of: &&Candidate| of.name == name || of.name.split(':').next() == Some(name);
        let found = candidates.iter().find(like).ok_or_else(|| {
            let known: Vec<&str> = candidates.iter().map(|candidate| candidate.name.as_str()).collect();
            let cause = format!("its costs were never measured here; there are those of {}", known.join(", "));
            Fault::new(format!("carrier {name}"), cause, "name one of these, or run plimsoll calibrate")
        })?;
        lever.ways = Some(found.ways.clone());
        words.push(format!("carried by {}", found.name));
        candidate = Some(found.clone());
    }
    words.extend(latency.map(|change| format!("latency {change}")));
    words.extend(bandwidth.map(|factor| format!("bandwidth x{factor}")));
    words.extend(eager.map(|size| format!("at once up to {size}")));
    words.extend(
        progress.map(|rule| if rule == Progress::Always { "moved at any time" } else { "moved in calls" }.to_owned()),
    );
    words.extend(recording.map.as_ref().map(|hosts| format!("ranks at {hosts}")));
    words.extend(recording.swap.iter().map(|(one, other)| format!("ranks {one} and {other} swapped")));
    words.extend(recording.rank_capability.iter().map(|(rank, factor)| format!("core of rank {rank} x{factor}")));
    words.extend(buffer.map(|buffer| format!("buffer {buffer}")));
    words.extend(clock.map(|factor| format!("clock x{factor}")));
    let candidate = candidate.filter(|_| words.len() == 1);
    Ok(vec![Question { words: words.join(", "), lever, candidate }])
}

/// The best commands, with their expectations.
struct Best<'a> {
    recorded: &'a Recorded<'a>,
    ranks: u32,
    /// The job's time outside of the replayed part, its start and end, over that part's.
    outside: f64,
    folder: &'a str,
}

impl Best<'_> {
    /// The commands expected to be fastest, and the arguments for `plimsoll try`. Each expectation goes to the ledger,
    /// which the trial settles.
    fn of(&self, number: usize, asked: &[Asked]) -> Result<String> {
        let at = self.program()?;
        let able = asked.iter().filter(|asked| asked.refused.is_none());
        let mut able: Vec<_> = able.filter_map(|of| Some((of.question.candidate.as_ref()?, of))).collect();
        able.sort_by(|(_, one), (_, other)| one.answer.time.middle.total_cmp(&other.answer.time.middle));
        if able.is_empty() {
            return Ok("\nNothing of this is a command to run.\n".to_owned());
        }
        let keeps = self.outside <= MOST_OUTSIDE;
        let mut ledger = if keeps { super::kept(Ledger::open().map(Some)) } else { Ledger::open().ok() };
        let by = widening(ledger.as_ref(), CARRIER);
        let mut expected_of = Vec::new();
        let now = whatif_page::shell(self.recorded.command);
        let (mut text, mut trial) = (String::new(), format!("plimsoll try -- {now}"));
        for (candidate, Asked { answer, forecast, .. }) in able.into_iter().take(number) {
            let command = whatif_page::shell(&self.recorded.under(&candidate.options, self.ranks, at));
            trial += &format!(" -- {command}");
            if let Forecast::CannotTell { reason, .. } = forecast {
                text += &format!("{command}\n    cannot tell: {reason}\n");
                continue;
            }
            // Start and end of the job may take half to twice as long under another carrier.
            let expected = of_job(&forecast.run().unwrap_or(answer.time), self.outside, (0.5, 2.0));
            let level = forecast.level();
            let of = expectation(self.folder, over(&command, &now), &now, CARRIER, expected, level).widened(by);
            text += &format!("{command}\n    {} for the whole job\n", whatif_page::than(&of.expected, level));
            expected_of.push(of);
        }
        let nothing = expected_of.is_empty();
        text += &by.map(|by| format!("The intervals are {by}.\n")).unwrap_or_default();
        if let (Some(ledger), true) = (&mut ledger, keeps) {
            super::kept(expected_of.into_iter().try_for_each(|of| ledger.predict(of).map(drop)));
        }
        if !keeps {
            let share = 100.0 * self.outside / (1.0 + self.outside);
            text += &format!(
                "Nothing is kept in the ledger: {share:.0} % of the job is its start and end; give it a longer input.\n"
            );
        } else if nothing {
            text += "Nothing is kept in the ledger: nothing can be told.\n";
        }
        Ok(format!("\n{text}\nTo hold that against what comes:\n{trial}\n"))
    }

    /// The place of the program among the words of the command.
    fn program(&self) -> Result<usize> {
        let words: Vec<_> = self.recorded.command.iter().map(Into::into).collect();
        let line = CommandLine::read(&words).answered()?;
        let found = line.programs.first().map(|program| &program.path);
        let is_program = |word: &String| launch::program::find(word.as_ref()).ok().as_ref() == found;
        found.and_then(|_| self.recorded.command.iter().position(is_program)).ok_or_else(|| {
            let next = "profile the program as `plimsoll profile --trace -- mpirun -n N PROGRAM`";
            Fault::new(self.recorded.command.join(" "), "it cannot be seen which word is the program", next)
        })
    }
}
