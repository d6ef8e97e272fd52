use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use experiment::ledger::{Kind, Ledger, Prediction, Subject};
use launch::auto;
use launch::profiled::Line;
use linux::output;
use machine::costs::{Interval, store};
use machine::{Bytes, Fault, Nanoseconds, Result};
use profile::profile::Profile;
use profile::summary::Summary;
use whatif::answer::Program;
use whatif::candidate::{Candidate, Recorded};
use whatif::graph::{Graph, Reach};
use whatif::lever::{Change, Lever};
use whatif::replay::Progress;

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
    #[arg(value_name = "DIR", required_unless_present_any = ["measure", "goal", "simulate"], conflicts_with = "measure")]
    folder: Option<PathBuf>,
    /// Let this carry the messages instead: app, core, or a carrier of the MPI
    #[arg(long, value_name = "NAME", requires = "folder")]
    carried: Option<String>,
    /// Latency of each trip: +2us, -300ns, x0.5
    #[arg(long, value_name = "CHANGE", requires = "folder", allow_hyphen_values = true)]
    latency: Option<Change>,
    /// Bandwidth over what it is: 2 for twice
    #[arg(long, value_name = "FACTOR", requires = "folder", value_parser = factor)]
    bandwidth: Option<f64>,
    /// Clock of the cores over what it is: 0.8
    #[arg(long, value_name = "FACTOR", requires = "folder", value_parser = factor)]
    clock: Option<f64>,
    /// Messages up to this size are sent at once, larger ones when their receive is posted
    #[arg(long, value_name = "SIZE", requires = "folder")]
    eager: Option<Bytes>,
    /// Who moves messages whose both halves have begun: the ranks in their calls, or somebody else at any time (a thread, a
    /// core, a device)
    #[arg(long, value_name = "RULE", requires = "folder")]
    progress: Option<Rule>,
    /// What carried the messages of the recorded run, if its command does not say
    #[arg(long, value_name = "NAME", requires = "folder")]
    recorded: Option<String>,
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
  plimsoll whatif run --best 3
  plimsoll whatif --goal run.goal --loggops L=1000,o=200
  plimsoll whatif --simulate testbed.toml
  plimsoll whatif --measure send,receive -- mpirun -n 2 ./program
  plimsoll whatif --measure send,receive --predict afxdp,udp -- plimsoll mpirun --lab --network afxdp:lab0 -n 2 ./program";

fn factor(text: &str) -> Result<f64> {
    let number = text.trim_start_matches('x').parse::<f64>().ok().filter(|number| (0.001..=1000.0).contains(number));
    number.ok_or_else(|| {
        Fault::new(format!("factor '{text}'"), "it is no number from 0.001 to 1000", "write it like 0.8")
    })
}

/// More time, of which it is told how much latency makes it.
const TOLERANCES: [f64; 3] = [0.01, 0.02, 0.05];

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    if arguments.measure.is_asked() {
        return super::measure::run(arguments.measure, arguments.json);
    }
    if let Some(file) = &arguments.schedule.goal {
        return super::schedule::run(file, &arguments.schedule, arguments.json);
    }
    if let Some(file) = &arguments.simulate.simulate {
        return super::simulate::run(file, arguments.json);
    }
    let path = arguments.folder.clone().unwrap_or_default();
    let folder = path.display().to_string();
    let mut profile = Profile::open(&path)?;
    let summary = Summary::of(&profile);
    let timeline = profile.timeline.take().ok_or_else(|| {
        let next = "profile the program again: plimsoll profile --trace -- mpirun ..";
        Fault::new(folder.clone(), "it has no timeline, which a replay needs", next)
    })?;
    let graph = Graph::of(&timeline)?;
    drop(timeline);
    if graph.is_empty() {
        return Err(Fault::new(
            folder,
            "no call between MPI_Init and MPI_Finalize was recorded",
            "see plimsoll report DIR",
        ));
    }
    let known = store::live()?;
    let between = graph.kinds.iter().any(|kind| kind.reach == Reach::Between);
    let library = summary.job.libraries.first().map_or("", String::as_str);
    let recorded = Recorded { command: &summary.job.command, library, between };
    let ways = recorded.ways(&known.costs, arguments.recorded.as_deref())?;
    let ranks = graph.hosts.len() as u32;
    let (core, refused) = auto::own_core(ranks, auto::threads(), &linux::affinity::allowed()?)?;
    let mut notes = graph.notes.clone();
    notes.extend(known.note);
    let way = if between { &ways.between } else { &ways.within };
    if !recorded.is_of_mpi(way) {
        let ran = library.lines().next().unwrap_or("an unknown MPI");
        notes.push(format!("the program ran under {ran}; costs are of {}", way.mpi));
    }
    let candidates = recorded.others(&known.costs, &ways, Some(core.0));
    let program = Program::new(&graph, &known.costs, ways.clone())?;
    if program.contradicted {
        notes.push("calls were over sooner than the costs say: plimsoll calibrate, and profile again".to_owned());
    }
    let check = program.check()?;
    let questions = questions(&arguments, &candidates)?;
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
        folder: &folder,
        graph: &graph,
        ways: &ways,
        check: &check,
        asked: &asked,
        tolerances: &tolerances,
        notes: &notes,
    };
    if arguments.json {
        let text = serde_json::to_string_pretty(&page.json()).map_err(|e| Fault::because("output", e, "report it"))?;
        output::print(&(text + "\n"))?;
    } else {
        output::print(&page.terminal())?;
    }
    if let Some(number) = arguments.best {
        // Starting and ending the job is in what a trial times, and stays as it is.
        let whole = summary.job.seconds.map_or(check.recorded, |seconds| seconds * 1e9);
        let outside = (whole / check.recorded - 1.0).max(0.0);
        let best = Best { recorded: &recorded, ranks, outside, folder: &folder };
        output::print(&best.of(number, &asked)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// One thing that is asked.
#[derive(Debug)]
pub struct Question {
    pub words: String,
    pub lever: Lever,
    pub candidate: Option<Candidate>,
}

/// What the arguments ask; without any, what one would ask first.
fn questions(arguments: &Arguments, candidates: &[Candidate]) -> Result<Vec<Question>> {
    let Arguments { carried, latency, bandwidth, clock, eager, progress, .. } = arguments;
    let progress = progress.map(|rule| match rule {
        Rule::Calls => Progress::Calls,
        Rule::Always => Progress::Always,
    });
    let plain = |words: &str, lever| Question { words: words.to_owned(), lever, candidate: None };
    let mut lever = Lever {
        latency: *latency,
        per_byte: bandwidth.map(|factor| 1.0 / factor),
        clock: *clock,
        eager: *eager,
        progress,
        ways: None,
    };
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
        let like = |of: &&Candidate| of.name == *name || of.name.split(':').next() == Some(name);
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
    words.extend(clock.map(|factor| format!("clock x{factor}")));
    let candidate = candidate.filter(|_| words.len() == 1);
    Ok(vec![Question { words: words.join(", "), lever, candidate }])
}

/// Beyond this, start and end of a job over what is replayed tell more of its time than the replay does.
const MOST_OUTSIDE: f64 = 4.0;

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
        let mut ledger = Ledger::open()?;
        let now = whatif_page::shell(self.recorded.command);
        let (mut text, mut trial) = (String::new(), format!("plimsoll try -- {now}"));
        for (candidate, time) in able.into_iter().take(number) {
            let command = whatif_page::shell(&self.recorded.under(&candidate.options, self.ranks, at));
            // Start and end may take half as long under another carrier, or twice.
            let of_job = |time: f64, outside: f64| (time + self.outside * outside) / (1.0 + self.outside);
            let (low, high) = (of_job(time.low, 0.5), of_job(time.high, 2.0));
            let expected = Interval { low, middle: of_job(time.middle, 1.0), high };
            text += &format!("{command}\n    {} for the whole job\n", whatif_page::than(&expected));
            trial += &format!(" -- {command}");
            if self.outside > MOST_OUTSIDE {
                continue;
            }
            let made = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            ledger.predict(Prediction {
                id: 0,
                made: Nanoseconds(made.as_nanos() as u64),
                kind: Kind::WhatIf,
                subject: subject(&now),
                quantity: over(&command, &now),
                expected,
                because: format!("a replay of {} under the costs of the machine", self.folder),
                choice: None,
                version: env!("CARGO_PKG_VERSION").to_owned(),
            })?;
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
        let line = Line::read(&words);
        let found = line.programs.first().map(|program| &program.path);
        let is_program = |word: &String| launch::program::find(word.as_ref()).ok().as_ref() == found;
        found.and_then(|_| self.recorded.command.iter().position(is_program)).ok_or_else(|| {
            let next = "profile the program as `plimsoll profile --trace -- mpirun -n N PROGRAM`";
            Fault::new(self.recorded.command.join(" "), "it cannot be seen which word is the program", next)
        })
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
