use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use experiment::ledger::{Kind, Ledger, Prediction, Subject};
use launch::auto;
use launch::profiled::Line;
use linux::output;
use machine::costs::{Interval, store};
use machine::{Bytes, Fault, Nanoseconds, Result};
use profile::profile::ranges;
use profile::summary::Summary;
use serde_json::Value;
use whatif::answer::Program;
use whatif::candidate::{Candidate, Recorded};
use whatif::graph::{Graph, Reach};
use whatif::lever::mapping::Hosts;
use whatif::lever::{Change, Lever, Mapping};
use whatif::model::Ways;
use whatif::replay::{Buffer, Progress};

use super::against;
use crate::opened::{Opened, priced_schedule};
use crate::progress::Working;
use crate::whatif_page::{self, Asked, Page};

/// Predicts what a recorded program would take under another placement, carrier, wire or clock, with an interval.
///
/// DIR is a profile with a timeline (plimsoll profile --trace). The program is replayed call by call with the costs
/// that `plimsoll calibrate` measured on this machine; what they do not explain of a call stays as it was recorded.
///
/// With --measure the program itself runs, delayed by known amounts, in turn with runs as it is: what it loses bounds what it
/// gains where its messages cost less.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Folder of a profile
    #[arg(value_name = "DIR", required_unless_present_any = ["measure", "goal", "simulate"], conflicts_with = "measure", group = "source")]
    folder: Option<PathBuf>,
    /// Let this carry the messages instead: app, core, or a carrier of the MPI. Of a schedule (--goal): what carries them
    #[arg(long, value_name = "NAME", requires = "source")]
    carried: Option<String>,
    /// Latency of each trip: +2us, -300ns, x0.5
    #[arg(long, value_name = "CHANGE", requires = "source", allow_hyphen_values = true)]
    latency: Option<Change>,
    /// Bandwidth over what it is: 2 for twice
    #[arg(long, value_name = "FACTOR", requires = "source", value_parser = factor)]
    bandwidth: Option<f64>,
    /// Clock of the cores over what it is: 0.8
    #[arg(long, value_name = "FACTOR", requires = "source", value_parser = factor)]
    clock: Option<f64>,
    /// The program recorded again in DIR, at this share of the clock: narrows how much of its computing follows the clock
    #[arg(long, value_name = "CLOCK=DIR", requires = "clock", requires = "folder", conflicts_with = "against", value_parser = at)]
    at: Vec<(f64, PathBuf)>,
    /// Messages up to this size are sent at once, larger ones when their receive is posted
    #[arg(long, value_name = "SIZE", requires = "source")]
    eager: Option<Bytes>,
    /// Who moves messages whose both halves have begun: the ranks in their calls, or somebody else at any time (a thread, a
    /// core, a device)
    #[arg(long, value_name = "RULE", requires = "source")]
    progress: Option<Rule>,
    /// What a connection takes in before its receiver takes it out: 64KiB, unlimited. Sends that find no room wait
    #[arg(long, value_name = "SIZE", requires = "folder")]
    buffer: Option<Buffer>,
    /// The same, of the recorded run
    #[arg(long, value_name = "SIZE", requires = "folder", default_value_t)]
    recorded_buffer: Buffer,
    /// Ranks by host: 0,2/1,3 or 0-3/4-7. The n-th of a host has the core that its n-th rank was recorded on
    #[arg(long, value_name = "RANKS", requires = "folder", conflicts_with = "swap")]
    map: Option<Hosts>,
    /// Two ranks in each other's place
    #[arg(long, value_name = "RANK,RANK", requires = "folder", value_parser = pair)]
    swap: Vec<(u32, u32)>,
    /// What the core of a rank computes over what the one does that it was recorded on: 2=0.8
    #[arg(long, value_name = "RANK=FACTOR", requires = "folder", value_delimiter = ',', value_parser = capable)]
    capability: Vec<(u32, f64)>,
    /// Have the ranks of a host share its link, in the recorded run too: a link passes bytes as slowly as one stream does
    #[arg(long, requires = "folder")]
    shared_link: bool,
    /// What carried the messages of the recorded run, if its command does not say
    #[arg(long, value_name = "NAME", requires = "folder")]
    recorded: Option<String>,
    /// Judge the model: predict what this other profile of the program took, of which only the computing between calls is
    /// used, and print that over the recorded time. --carried says what carried it, if its command does not. Ranks that it has on
    /// other hosts are mapped so
    #[arg(long, value_name = "DIR2", requires = "folder", conflicts_with = "best")]
    against: Option<PathBuf>,
    /// The MPI_COMM_WORLD to take, where the profile has several: the N-th that began, counted from 0
    #[arg(long, value_name = "N", requires = "folder", default_value_t = 0)]
    world: usize,
    /// Print the commands of the N best that can be run here, and keep in the ledger what is expected of them
    #[arg(long, value_name = "N", requires = "folder")]
    best: Option<usize>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    measure: super::measure::Arguments,
    #[command(flatten)]
    schedule: super::schedule::Arguments,
    #[command(flatten)]
    simulate: super::simulate::Arguments,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Rule {
    Calls,
    Always,
}

const EXAMPLES: &str = "Examples:
  plimsoll profile --trace -o run -- mpirun -n 4 ./program
  plimsoll whatif run
  plimsoll whatif run --latency +1us --clock 0.8
  plimsoll whatif run --clock 0.8 --at 0.7=run-at-a-lower-clock
  plimsoll whatif run --best 3
  plimsoll whatif run --against run-over-tcp --carried tcp
  plimsoll whatif --goal run.goal --loggops L=1000,o=200
  plimsoll whatif --goal run.goal --engine core:1 --ranks-per-host 8 --loss 0.01
  plimsoll whatif --goal run.goal --carried ucx --latency +1us
  plimsoll whatif --simulate testbed.toml
  plimsoll whatif --simulate lammps-a
  plimsoll whatif --measure send,receive -- mpirun -n 2 ./program
  plimsoll whatif --measure send,receive --predict afxdp,udp -- plimsoll mpirun --lab --network afxdp:lab0 -n 2 ./program";

fn factor(text: &str) -> Result<f64> {
    let number = text.trim_start_matches('x').parse::<f64>().ok().filter(|number| (0.001..=1000.0).contains(number));
    number.ok_or_else(|| {
        Fault::new(format!("factor '{text}'"), "it is no number from 0.001 to 1000", "write it like 0.8")
    })
}

fn pair(text: &str) -> Result<(u32, u32)> {
    let both = text.split_once(',').and_then(|(one, other)| Some((one.parse().ok()?, other.parse().ok()?)));
    both.ok_or_else(|| Fault::new(format!("swap '{text}'"), "it is not two ranks", "write it like 2,7"))
}

fn capable(text: &str) -> Result<(u32, f64)> {
    let wrong = || Fault::new(format!("capability '{text}'"), "it is no rank with a factor", "write it like 2=0.8");
    let (rank, share) = text.split_once('=').ok_or_else(wrong)?;
    Ok((rank.parse().map_err(|_| wrong())?, factor(share)?))
}

fn at(text: &str) -> Result<(f64, PathBuf)> {
    let (clock, folder) = text.split_once('=').ok_or_else(|| {
        Fault::new(format!("recording '{text}'"), "it does not say its clock", "write it like 0.7=DIR")
    })?;
    Ok((factor(clock)?, folder.into()))
}

/// More time, of which it is told how much latency makes it.
const TOLERANCES: [f64; 3] = [0.01, 0.02, 0.05];

/// More time, of which it is told how much longer each rank may compute for it.
const SLACK: f64 = 0.01;

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    if arguments.measure.is_asked() {
        return super::measure::run(arguments.measure, arguments.json);
    }
    if let Some(file) = &arguments.simulate.simulate {
        return super::simulate::run(file, arguments.json);
    }
    let mut lever = lever(&arguments);
    if let (Some(file), None) = (&arguments.schedule.goal, &arguments.carried) {
        if lever != Lever::default() {
            let next = "say by --carried what carries the messages";
            return Err(Fault::new(file.display().to_string(), "LogGOPS has none of these levers", next));
        }
        return super::schedule::run(file, &arguments.schedule, arguments.json);
    }
    let known = store::live()?;
    let working = Working::on("replaying the recording");
    let (opened, named) = match &arguments.schedule.goal {
        Some(file) => {
            let named = arguments.carried.as_deref();
            priced_schedule(&known.costs, named)?;
            (Opened::schedule(file, arguments.schedule.ranks_per_host)?, named)
        }
        None => {
            let (folder, named) = (arguments.folder.as_deref(), arguments.recorded.as_deref());
            (Opened::priced(folder.unwrap_or(Path::new("")), arguments.world, &known.costs, named)?, named)
        }
    };
    let carried = arguments.carried.as_deref().filter(|_| arguments.schedule.goal.is_none());
    let Opened { graph, folder, .. } = &opened;
    let recorded = opened.recorded();
    let mut ways = recorded.ways(&known.costs, named)?;
    ways.shared_links = arguments.shared_link;
    let ranks = graph.hosts.len() as u32;
    let (core, refused) = auto::own_core(ranks, auto::threads(), &linux::affinity::allowed()?)?;
    let mut notes = graph.notes.clone();
    notes.extend(known.note);
    let candidates = recorded.others(&known.costs, &ways, Some(core.0));
    let program = Program::over(graph, &known.costs, ways.clone(), arguments.recorded_buffer)?;
    if program.contradicted {
        notes.push("calls were over sooner than the costs say: plimsoll calibrate, and profile again".to_owned());
    }
    if let Some(path) = &arguments.against {
        let other = Opened::profile(path, arguments.world)?;
        let judged = other.recorded().ways(&known.costs, carried)?;
        let carried = [recorded.carried_by(&ways), other.recorded().carried_by(&judged)];
        if let Some(summary) = &opened.summary {
            lever.mapping = mapping(&arguments, graph, Some(&other.graph), &judged, summary)?;
        }
        notes.extend(lever.mapping.as_ref().and_then(unsampled));
        let hosts = [graph, &other.graph].map(|graph| Hosts::of(&graph.hosts));
        if hosts[0] != hosts[1] {
            notes.push(format!("ranks were at {}, of {} at {}: mapped so", hosts[0], path.display(), hosts[1]));
        }
        lever.ways = Some(judged).filter(|judged| *judged != ways);
        notes.extend(other.graph.notes.iter().map(|note| format!("{}: {note}", path.display())));
        let against = program.against(&other.graph, &lever).map_err(|fault| fault.within(path.display()))?;
        let page =
            against::Page { folder, other: path, carried, against: &against, names: &other.names(), notes: &notes };
        drop(working);
        print(arguments.json, || page.terminal(), || page.json())?;
        return Ok(ExitCode::SUCCESS);
    }
    if !arguments.at.is_empty() {
        let all = arguments.at.iter().map(|(clock, folder)| Ok((*clock, Opened::profile(folder, arguments.world)?)));
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
        lever.mapping = mapping(&arguments, graph, None, &ways, summary)?;
    }
    notes.extend(lever.mapping.as_ref().and_then(unsampled));
    let questions = questions(&arguments, lever, carried, &candidates)?;
    let levers: Vec<&Lever> = questions.iter().map(|question| &question.lever).collect();
    let answers = program.ask(&levers)?;
    let asked = questions.into_iter().zip(answers).map(|(question, answer)| {
        let candidate = question.candidate.as_ref();
        let refused = candidate.and_then(|of| recorded.refused(of).or(refused.clone().filter(|_| of.is_on_core())));
        Asked { refused, question, answer }
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
        notes: &notes,
    };
    drop(working);
    print(arguments.json, || page.terminal(output::width()), || page.json())?;
    if let Some(number) = arguments.best {
        // Starting and ending the job is in what a trial times, and stays as it is.
        let whole = opened.seconds.map_or(check.recorded, |seconds| seconds * 1e9);
        let outside = (whole / check.recorded - 1.0).max(0.0);
        let best = Best { recorded: &recorded, ranks, outside, folder };
        output::print(&best.of(number, &asked)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// To standard output, as text or as JSON.
pub fn print(as_json: bool, terminal: impl FnOnce() -> String, json: impl FnOnce() -> Value) -> Result<()> {
    if !as_json {
        return output::page(&terminal());
    }
    let text = serde_json::to_string_pretty(&json()).map_err(|e| Fault::because("output", e, "report it"))?;
    output::print(&(text + "\n"))
}

/// One thing that is asked.
#[derive(Debug)]
pub struct Question {
    pub words: String,
    pub lever: Lever,
    pub candidate: Option<Candidate>,
}

/// Where the arguments put the ranks; else where they are in `other`, which is judged.
fn mapping(
    arguments: &Arguments,
    graph: &Graph,
    other: Option<&Graph>,
    ways: &Ways,
    summary: &Summary,
) -> Result<Option<Mapping>> {
    let Arguments { map, swap, capability, .. } = arguments;
    let like = other.filter(|_| swap.is_empty()).and_then(|other| Mapping::like(graph, other));
    if map.is_none() && swap.is_empty() && capability.is_empty() && like.is_none() {
        return Ok(None);
    }
    let mut mapping = match map {
        Some(hosts) => Mapping::on(graph, hosts)?,
        None => like.unwrap_or_else(|| Mapping::recorded(graph)),
    };
    for (one, other) in swap {
        mapping = mapping.swapped(*one, *other)?;
    }
    for (rank, factor) in capability {
        mapping = mapping.capable(*rank, *factor)?;
    }
    for rank in summary.ranks.iter().filter(|rank| rank.world == arguments.world) {
        if let Some(softirqs) = mapping.softirqs.get_mut(rank.rank as usize) {
            *softirqs = rank.softirq.value().map(|seconds| seconds * 1e9);
        }
    }
    let reach = |of: &Graph, reach| of.kinds.iter().any(|kind| kind.reach == reach);
    let mapped = mapping.of(graph);
    let newly = [Reach::Host, Reach::Between].into_iter().find(|of| reach(&mapped, *of) && !reach(graph, *of));
    match newly.filter(|_| ways.within == ways.between) {
        Some(of) => {
            let of = if of == Reach::Host { "within a host" } else { "between hosts" };
            let cause = format!("what messages {of} cost was never measured for what carried the program");
            Err(Fault::new(
                "the mapping",
                cause,
                "run plimsoll calibrate, between hosts with --path, or name a carrier with --recorded",
            ))
        }
        None => Ok(Some(mapping)),
    }
}

/// Ranks whose softirqs nobody sampled.
fn unsampled(mapping: &Mapping) -> Option<String> {
    let ranks = Some(mapping.unsampled()).filter(|ranks| !ranks.is_empty()).map(ranges)?;
    Some(format!("softirqs of a core that is left or got: absent; the gaps of ranks {ranks} stay"))
}

/// All that the arguments change but what carries the messages and where ranks are.
fn lever(arguments: &Arguments) -> Lever {
    let progress = arguments.progress.map(|rule| match rule {
        Rule::Calls => Progress::Calls,
        Rule::Always => Progress::Always,
    });
    Lever {
        latency: arguments.latency,
        per_byte: arguments.bandwidth.map(|factor| 1.0 / factor),
        clock: arguments.clock,
        follows_clock: None,
        eager: arguments.eager,
        progress,
        buffer: arguments.buffer,
        mapping: None,
        ways: None,
    }
}

/// What the arguments ask; without any, what one would ask first.
fn questions(
    arguments: &Arguments,
    mut lever: Lever,
    carried: Option<&str>,
    candidates: &[Candidate],
) -> Result<Vec<Question>> {
    let Arguments { latency, bandwidth, clock, eager, buffer, recorded_buffer, .. } = arguments;
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
    words.extend(arguments.map.as_ref().map(|hosts| format!("ranks at {hosts}")));
    words.extend(arguments.swap.iter().map(|(one, other)| format!("ranks {one} and {other} swapped")));
    words.extend(arguments.capability.iter().map(|(rank, factor)| format!("core of rank {rank} x{factor}")));
    words.extend(buffer.map(|buffer| format!("buffer {buffer}")));
    words.extend(clock.map(|factor| format!("clock x{factor}")));
    let candidate = candidate.filter(|_| words.len() == 1);
    Ok(vec![Question { words: words.join(", "), lever, candidate }])
}

/// Beyond this, start and end of a job over what is replayed tell more of its time than the replay does.
pub const MOST_OUTSIDE: f64 = 4.0;

/// Commands to run, and what is expected of them.
struct Best<'a> {
    recorded: &'a Recorded<'a>,
    ranks: u32,
    /// Time of the job outside of what is replayed, its start and end, over that.
    outside: f64,
    folder: &'a str,
}

impl Best<'_> {
    /// The commands of those expected to be fastest, and what `plimsoll try` is to be given. What is expected of each goes to
    /// the ledger, where the trial's outcome will stand beside it.
    fn of(&self, number: usize, asked: &[Asked]) -> Result<String> {
        let at = self.program()?;
        let able = asked.iter().filter(|asked| asked.refused.is_none());
        let mut able: Vec<_> = able.filter_map(|of| Some((of.question.candidate.as_ref()?, of.answer.time))).collect();
        able.sort_by(|one, other| one.1.middle.total_cmp(&other.1.middle));
        if able.is_empty() {
            return Ok("\nNothing of this is a command to run.\n".to_owned());
        }
        let mut expected_of = Vec::new();
        let now = whatif_page::shell(self.recorded.command);
        let (mut text, mut trial) = (String::new(), format!("plimsoll try -- {now}"));
        for (candidate, time) in able.into_iter().take(number) {
            let command = whatif_page::shell(&self.recorded.under(&candidate.options, self.ranks, at));
            // Start and end may take half as long under another carrier, or twice.
            let expected = of_job(&time, self.outside, (0.5, 2.0));
            text += &format!("{command}\n    {} for the whole job\n", whatif_page::than(&expected));
            trial += &format!(" -- {command}");
            if self.outside > MOST_OUTSIDE {
                continue;
            }
            expected_of.push(expectation(self.folder, &command, &now, expected));
        }
        if !expected_of.is_empty() {
            let keep = |mut ledger: Ledger| expected_of.into_iter().try_for_each(|of| ledger.predict(of).map(drop));
            super::kept(Ledger::open().and_then(keep));
        }
        if self.outside > MOST_OUTSIDE {
            let share = 100.0 * self.outside / (1.0 + self.outside);
            text += &format!(
                "Nothing is kept in the ledger: {share:.0} % of the job is its start and end; give it a longer input.\n"
            );
        }
        Ok(format!("\n{text}\nTo hold that against what comes:\n{trial}\n"))
    }

    /// The place of the program among the words of the command.
    fn program(&self) -> Result<usize> {
        let words: Vec<_> = self.recorded.command.iter().map(Into::into).collect();
        let line = Line::read(&words).answered()?;
        let found = line.programs.first().map(|program| &program.path);
        let is_program = |word: &String| launch::program::find(word.as_ref()).ok().as_ref() == found;
        found.and_then(|_| self.recorded.command.iter().position(is_program)).ok_or_else(|| {
            let next = "profile the program as `plimsoll profile --trace -- mpirun -n N PROGRAM`";
            Fault::new(self.recorded.command.join(" "), "it cannot be seen which word is the program", next)
        })
    }
}

/// The time of a whole job over today's, where what is replayed takes `time` of today's. `outside`: the time of its start and end
/// over that, which may become so much of itself, at least and at most.
pub fn of_job(time: &Interval, outside: f64, becomes: (f64, f64)) -> Interval {
    let of_job = |time: f64, factor: f64| (time + outside * factor) / (1.0 + outside);
    Interval { low: of_job(time.low, becomes.0), middle: of_job(time.middle, 1.0), high: of_job(time.high, becomes.1) }
}

/// What the ledger keeps of a command that is expected to take `expected` of the time of `now`.
pub fn expectation(folder: &str, command: &str, now: &str, expected: Interval) -> Prediction {
    let made = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Prediction {
        id: 0,
        made: Nanoseconds(made.as_nanos() as u64),
        kind: Kind::WhatIf,
        subject: subject(now),
        quantity: over(command, now),
        expected,
        because: format!("a replay of {folder} under the costs of the machine"),
        choice: None,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// The run that commands are held against, as the ledger names it.
pub fn subject(now: &str) -> Subject {
    Subject { words: now.to_owned(), digest: String::new() }
}

/// How the ledger names the time of a command over that of another; `plimsoll try` looks for it.
pub fn over(command: &str, now: &str) -> String {
    format!("time of `{command}` over `{now}`")
}
