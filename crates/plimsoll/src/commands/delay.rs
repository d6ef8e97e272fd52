//! `plimsoll whatif delay`: causal experiments with the unmodified program.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bench::mpi::comparison;
use bench::mpi::contender::WantedHosts;
use bench::mpi::pattern::{Pattern, Task};
use bench::mpi::request::{self, Request};
use experiment::axes::Axes;
use experiment::cause::Cause;
use experiment::ledger::{Kind, Ledger, Prediction};
use experiment::trial::design::Arm;
use launch::installation::Choice;
use launch::trial::{self, Starter, carriers_quantity, subject};
use linux::output;
use linux::warden::Warden;
use machine::{Bytes, CoreId, Fault, Nanoseconds, Probe, Result, count, figure};
use profile::profile::Profile;
use profile::tables::Tables;
use record::blocks::{Progress, Schedule};
use record::layout::words;
use record::perturbation::Perturbation;
use rounds::blocks::{Blocks, Plan, conduct};
use rounds::clocks::Clocks;
use rounds::contrast::FIRST_LOOK;
use rounds::estimate::Estimate;
use rounds::point::Receiver;
use tempfile::TempDir;
use whatif::candidate::Recorded;
use whatif::causal::period::{self, Period};
use whatif::causal::within::{self, Rounds};
use whatif::causal::{self, Design, Factor, Findings, InBlocks, Place, Shown, Target, Work};

use super::outputs::{self, Json};
use crate::whatif_page::shell;

/// Delays the program itself by known amounts, on and off in blocks within a run by its own repetition: what it loses bounds
/// what it gains where its messages cost less
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// What is delayed, and what each is worth: send, receive, byte, compute; each also in one rank (send@rank:3), in each rank on
    /// its own (compute@ranks), or with peers (byte@same-host, byte@other-host)
    #[arg(value_name = "FACTOR,..", value_delimiter = ',', required = true)]
    targets: Vec<Target>,
    /// The call that all ranks make equally often, whose passes count the blocks: collectives, a function (Allreduce), a line
    /// (step.c:120) or a place in a file (program+0x1234). By default collectives over all ranks, else the call site with most calls
    #[arg(long, value_name = "SITE", conflicts_with = "whole")]
    progress: Option<String>,
    /// Delay whole runs in turn with runs as they are, instead of blocks within a run; also done, and said, where a program has no
    /// progress point
    #[arg(long)]
    whole: bool,
    /// The time of a block that delays of a factor take, in percent; all together take at most 9
    #[arg(long, value_name = "PERCENT", default_value_t = 100.0 * causal::BLOCK_DOSE, conflicts_with = "whole")]
    dose: f64,
    /// Seed of the order of the blocks
    #[arg(long, value_name = "SEED", default_value_t = 7)]
    seed: u64,
    /// Most time for further runs: 90s, 2min, 1h
    #[arg(long, value_name = "TIME", default_value = "5min")]
    budget: Nanoseconds,
    /// The command runs over the first of these, which is the faster one: measure both (a network of plimsoll's, plimsoll itself on one
    /// host, or a carrier), and store in the ledger how much longer it takes over the other; `plimsoll try` settles it
    #[arg(long, value_name = "FROM,TO", value_parser = pair)]
    predict: Option<(String, String)>,
    /// Most rounds of whole runs, in each of which every delay is run once
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(i64::from(FIRST_LOOK)..))]
    rounds: u32,
    #[command(flatten)]
    json: Json,
    /// The command, a launcher with its program
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

const EXAMPLES: &str = "Examples:
  plimsoll whatif delay send,receive -- mpirun -n 2 ./program
  plimsoll whatif delay compute@ranks --progress Allreduce -- mpirun -n 4 ./program
  plimsoll whatif delay send --predict afxdp,udp -- plimsoll mpirun --lab --network afxdp:lab0 -n 2 ./program";

/// An environment variable by which processes of runs are found and ended, should this process be killed.
const MARK: &str = "PLIMSOLL_WHATIF";

/// The folder of the run that counts.
const COUNTED: &str = "counted";

const SEED: u64 = 0x0051_1A11_0000_0007;

/// The name of the usual progress point.
const COLLECTIVES: &str = "collectives";

/// Between two looks at a run that counts.
const LOOK: Duration = Duration::from_secs(1);

/// The limit of a run's time over that of the first one; at least a minute.
const LIMIT_FACTOR: u32 = 10;

fn pair(text: &str) -> Result<(String, String)> {
    let names = text.split_once(',').filter(|(from, to)| !from.is_empty() && !to.is_empty() && !to.contains(','));
    let refused =
        || Fault::new(format!("carriers '{}'", text.escape_debug()), "they are not two", "write them like afxdp,udp");
    names.map(|(from, to)| (from.to_owned(), to.to_owned())).ok_or_else(refused)
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    linux::signal::watch()?;
    let dose = arguments.dose / 100.0;
    if !(causal::LEAST_OF_BLOCK..=causal::ALL_DOSES).contains(&dose) {
        let (least, most) = (100.0 * causal::LEAST_OF_BLOCK, 100.0 * causal::ALL_DOSES);
        return Err(Fault::new("--dose", "it is no dose of a block", format!("name percent, from {least} to {most}")));
    }
    let mut targets = arguments.targets.clone();
    targets.dedup();
    let mut runs = Runs::new(&arguments.command, targets.clone(), arguments.budget.duration())?;
    eprintln!("plimsoll: a first run counts what there is to delay");
    let ends = Design::counting(&targets);
    let collectives = arguments.progress.as_deref().is_none_or(|name| name == COLLECTIVES) && !arguments.whole;
    let profile = runs.counted(Progress::Collectives, ends, collectives)?;
    let first = Shown::of(&profile)?;
    let targets = targets.into_iter().flat_map(|target| target.each(profile.ranks.len())).collect::<Vec<_>>();
    exist(&targets, profile.ranks.len())?;
    let predicted = match &arguments.predict {
        Some((from, to)) => Some((from, to, dearer(from, to, &first, runs.hosts, &runs.own)?)),
        None => None,
    };
    let period = match arguments.whole {
        true => None,
        false => runs.period(&profile, ends, arguments.progress.as_deref())?,
    };
    runs.began = Instant::now();
    let mut findings = match period {
        Some(period) => in_blocks(&mut runs, InBlocks::of(&targets, &first, period, arguments.seed, dose)?, &first)?,
        None => whole_runs(&mut runs, &Design::of(&targets, &first)?, &first, arguments.rounds)?,
    };
    if period::is_part(&profile) {
        let part = figure::nanoseconds(first.elapsed);
        findings.notes.push(format!(
            "the first run was ended once its repetition was known: figures of a run are of {part} of one"
        ));
    }
    let work = work(&profile, &first);
    let messages = findings.slopes.iter().any(|slope| slope.target.factor != Factor::Compute);
    if let Some(fault) = work.as_ref().err().filter(|_| messages) {
        findings.notes.push(format!("the parts of messages are not known: {fault}"));
    }
    findings.weigh(&first, work.ok().as_ref());
    if linux::signal::interrupted() {
        eprintln!("plimsoll: a signal ended it before all was measured");
    }
    arguments.json.tell(|| outputs::json(&findings), || output::print(&causal::page(&findings)))?;
    if let Some((from, to, dearer)) = &predicted {
        tell_prediction(&arguments.command, (from, to), dearer, &findings)?;
    }
    Ok(super::exit_code())
}

/// The work of messages, by the costs of what carried them.
fn work(profile: &Profile, first: &Shown) -> Result<Work> {
    let known = machine::costs::store::live()?;
    let library = profile.ranks.iter().map(|rank| words(&rank.header.library)).min().unwrap_or_default();
    let hosts: BTreeSet<String> = profile.ranks.iter().map(Tables::host).collect();
    let recorded = Recorded { command: &profile.job.command, library: &library, between: hosts.len() > 1 };
    Work::of(&first.sizes, &known.costs, &recorded.ways(&known.costs, None)?, recorded.between)
}

/// Refuses ranks that the program does not have, and more columns than a schedule has.
fn exist(targets: &[Target], ranks: usize) -> Result<()> {
    let missing = targets.iter().find(|target| matches!(target.place, Place::Rank(rank) if rank as usize >= ranks));
    let refused = |subject: String, cause: String, next: &str| Err(Fault::new(subject, cause, next));
    match missing {
        Some(target) => refused(
            format!("factor '{target}'"),
            format!("the program has ranks 0 to {}", ranks - 1),
            "choose one of these",
        ),
        None if targets.len() >= record::blocks::COLUMNS => {
            let most = record::blocks::COLUMNS - 1;
            refused(
                "a causal experiment".to_owned(),
                format!("{} factors are too many", targets.len()),
                &format!("choose at most {most}"),
            )
        }
        None => Ok(()),
    }
}

/// Measures by blocks within runs, until the slopes are known or the budget is spent; at least one run.
fn in_blocks(runs: &mut Runs, design: InBlocks, first: &Shown) -> Result<Findings> {
    eprintln!("plimsoll: {}", design.period.words());
    let (mut schedule, mut rounds) = (design.schedule.clone(), Rounds::new(&design.schedule));
    let (mut marks, mut count) = (0, 0);
    loop {
        eprintln!("plimsoll: run {} is delayed on purpose, on and off in blocks", count + 1);
        let began = Instant::now();
        let profile = runs.profiled(Some(&schedule), &|| runs.began.elapsed() > runs.budget)?;
        marks |= Shown::of(&profile)?.marks;
        rounds.add(&within::blocks(&profile, &schedule)?, &schedule);
        count += 1;
        let findings = Findings::within(&design, first, &rounds, count, marks);
        let left = runs.budget.saturating_sub(runs.began.elapsed());
        if !findings.is_open() || left < began.elapsed() || linux::signal::interrupted() {
            return Ok(findings);
        }
        schedule.blocks.iter_mut().for_each(|blocks| blocks.seed += 1);
    }
}

/// Measures by whole runs.
fn whole_runs(runs: &mut Runs, design: &Design, first: &Shown, most: u32) -> Result<Findings> {
    let took = runs.took;
    let rounds = runs.rounds(design.arms.len(), took)?.min(most);
    eprintln!(
        "plimsoll: {} of {:.1} s in at most {}; in {} of {} the program is delayed on purpose",
        count::of(design.arms.len() as u64, "run"),
        took.as_secs_f64(),
        count::of(rounds.into(), "round"),
        design.arms.len() - 1,
        design.arms.len()
    );
    let plan = Plan { groups: vec![design.arms.len()], rounds, seed: SEED };
    let (arms, _) = conduct(&mut InTurn { runs, design }, &plan, |_, arms| design.is_open(arms));
    Ok(Findings::of(design, first, &arms))
}

/// Stores what the program is expected to take over the other carrier, and says how to settle it.
fn tell_prediction(
    command: &[String],
    (from, to): (&str, &str),
    dearer: &[(Bytes, Estimate)],
    findings: &Findings,
) -> Result<()> {
    let expected = causal::expect(findings, dearer, to)?;
    let (subject, quantity) = (subject(command)?, carriers_quantity(from, to));
    let of = Prediction::new(Kind::Causal, subject, quantity, expected.ratio, expected.because);
    let mut ledger = super::kept(Ledger::open().map(Some));
    let prediction = of.widened(ledger.as_ref().and_then(|ledger| ledger.widening(Kind::Causal, None)));
    let kept = ledger.as_mut().map(|ledger| ledger.predict(prediction.clone())).transpose();
    let in_ledger = if super::kept(kept).is_some() { " In the ledger." } else { "" };
    let words = format!(
        "Expected over {to}: {:.3} times as long ({:.3} .. {:.3}): {}.{in_ledger}\nTo hold that against what comes:\n{}\n",
        prediction.expected.middle,
        prediction.expected.low,
        prediction.expected.high,
        prediction.grounds(),
        settled_by(command, from, to)
    );
    output::print(&words)
}

/// The trial that settles the expectation: the same program, with its other options of `plimsoll mpirun`.
fn settled_by(command: &[String], from: &str, to: &str) -> String {
    let (launcher, program) = trial::launcher(command);
    let ours = launcher.iter().position(|word| word == "mpirun").is_some_and(|at| at > 0);
    let (mut ranks, mut options) = (String::new(), Vec::new());
    let (mut axis, mut values) = ("carrier", [from, to].map(str::to_owned));
    let mut words = launcher.iter().skip_while(|word| *word != "mpirun").skip(1);
    while let Some(word) = words.next() {
        let (name, value) = word.split_once('=').map_or((word.as_str(), None), |(name, value)| (name, Some(value)));
        let mut value = || value.map(str::to_owned).or_else(|| words.next().cloned()).unwrap_or_default();
        match name {
            "-n" | "-np" | "--np" | "--ranks" => ranks = value(),
            "--carrier" => drop(value()),
            "--network" => {
                axis = "network";
                let network = value();
                // The interface is named for one of them alone.
                let of = |name: &String| network.split(':').next() == Some(name);
                values.iter_mut().filter(|name| of(name)).for_each(|name| name.clone_from(&network));
            }
            "-q" | "--quiet" | "--" => {}
            _ if ours => options.push(word.clone()),
            _ => {}
        }
    }
    let options = options.join(" ");
    let options = if options.is_empty() { options } else { format!(" --mpirun='{options}'") };
    let [from, to] = values;
    format!("plimsoll try -n {ranks}{options} --vary {axis}={from},{to} --metric mpi -- {}", shell(program))
}

/// Rounds in which both carriers are measured.
const CARRIER_ROUNDS: u32 = 16;

/// The number of sizes that are measured, those of most messages.
const SIZES: usize = 8;

/// The increase of half a round trip over `to` compared to `from`, by size, both measured in the same rounds.
fn dearer(from: &str, to: &str, first: &Shown, hosts: usize, own: &Path) -> Result<Vec<(Bytes, Estimate)>> {
    let mut sizes = first.sizes.clone();
    sizes.sort_by_key(|(_, messages)| std::cmp::Reverse(*messages));
    sizes.truncate(SIZES);
    let task = |size: Bytes| Task { pattern: Pattern::Latency, size, receiver: Receiver::Reads };
    let request = Request {
        mpi: Choice::OfProgram,
        hosts: if hosts > 1 { WantedHosts::Lab } else { WantedHosts::One },
        tasks: sizes.iter().map(|(size, _)| task(*size)).collect(),
        targets: false,
        cores: None,
        protocol_core: None,
        rounds: CARRIER_ROUNDS,
        divided: false,
        only: Some(vec![from.to_owned(), to.to_owned()]),
        command: own.to_owned(),
    };
    let told =
        |starts| eprintln!("plimsoll: both carriers are measured: {} of mpirun", count::of(starts as u64, "start"));
    let (found, end) = request::run(&request, None, told)?;
    end?;
    let of = |name: &str| {
        let measured =
            found.measured.iter().find(|of| of.contender.name() == Some(name) && !of.series.blocks.is_empty());
        measured.ok_or_else(|| {
            let next = "see what plimsoll bench mpi says of it";
            Fault::new(format!("carrier '{}'", name.escape_debug()), found.left_out().join("; "), next)
        })
    };
    let (from, to) = (of(from)?, of(to)?);
    let of_size = |(size, _): &(Bytes, u64)| Some((*size, comparison::difference(to, from, &task(*size))?));
    Ok(sizes.iter().filter_map(of_size).collect())
}

/// Whole runs under the profiler.
struct Runs<'a> {
    starter: RefCell<Starter>,
    command: &'a [String],
    /// What is to be delayed in its later runs.
    targets: Vec<Target>,
    own: PathBuf,
    place: TempDir,
    _warden: Warden,
    cores: Vec<CoreId>,
    /// The number of hosts of the first run, and its duration from start to end.
    hosts: usize,
    took: Duration,
    began: Instant,
    budget: Duration,
    limit: Duration,
}

impl<'a> Runs<'a> {
    fn new(command: &'a [String], targets: Vec<Target>, budget: Duration) -> Result<Runs<'a>> {
        let own = machine::here::program()?;
        let place = tempfile::Builder::new().prefix("plimsoll-whatif-").tempdir();
        let place = place.map_err(|e| Fault::because("folder for profiles", e, "free space in TMPDIR"))?;
        let warden = Warden::over_marked(MARK, &trial::mark(place.path()), place.path())?;
        Ok(Runs {
            starter: RefCell::new(Starter::new()?),
            command,
            targets,
            own,
            place,
            _warden: warden,
            cores: linux::affinity::allowed()?,
            hosts: 1,
            took: Duration::ZERO,
            began: Instant::now(),
            budget,
            limit: budget,
        })
    }

    /// A run whose delays have no length; its folder is kept for the hosts of the ranks. With `ended` it is ended once its period is
    /// known.
    fn counted(&mut self, progress: Progress, ends: Perturbation, ended: bool) -> Result<Profile> {
        let (began, folder) = (Instant::now(), self.place.path().join(COUNTED));
        let _ = std::fs::remove_dir_all(&folder);
        let looked = Cell::new(began);
        let is_told = || {
            let is_due = ended && looked.get().elapsed() >= LOOK;
            is_due && {
                let told = period::is_told(&folder, progress, &self.targets);
                looked.set(Instant::now());
                told
            }
        };
        let profile = self.recorded(Some(&period::counting(progress, ends)), &folder, &is_told)?;
        self.took = began.elapsed();
        self.limit = (self.took * LIMIT_FACTOR).max(2 * self.budget).max(Duration::from_secs(60));
        self.hosts = profile.ranks.iter().map(Tables::host).collect::<BTreeSet<_>>().len();
        self.fits(&profile)?;
        Ok(profile)
    }

    /// The progress point: the one that is named, else collectives, else the call site with most calls. `None`: there is none.
    fn period(&mut self, profile: &Profile, ends: Perturbation, named: Option<&str>) -> Result<Option<Period>> {
        let collectives = || Period::of(profile, Progress::Collectives, "collectives over all ranks".to_owned());
        if named == Some(COLLECTIVES) {
            return collectives().map(Some);
        }
        let candidates = period::candidates(profile);
        let chosen = match named {
            Some(name) => period::named(&candidates, name)?,
            None => match (collectives(), candidates.first()) {
                (Ok(found), _) => return Ok(Some(found)),
                (Err(_), Some(first)) => first,
                (Err(fault), None) => return Ok(whole_instead(&fault)),
            },
        };
        eprintln!("plimsoll: a second run counts the passes of {}", chosen.name);
        let profile = self.counted(chosen.progress, ends, true)?;
        match Period::of(&profile, chosen.progress, chosen.name.clone()) {
            Err(fault) if named.is_none() => Ok(whole_instead(&fault)),
            found => found.map(Some),
        }
    }

    /// Refuses ranks that share a core: the spin of one would delay the others too.
    fn fits(&self, profile: &Profile) -> Result<()> {
        let mut ranks = BTreeMap::<_, usize>::new();
        profile.ranks.iter().for_each(|rank| *ranks.entry(rank.header.boot).or_default() += 1);
        let most = ranks.into_values().max().unwrap_or(0);
        if most <= self.cores.len() {
            return Ok(());
        }
        let cause = format!("{most} ranks share {} cores: a delay of one would hold up others", self.cores.len());
        Err(Fault::new("a causal experiment", cause, "start no more ranks than there are cores"))
    }

    fn rounds(&self, arms: usize, took: Duration) -> Result<u32> {
        let round = took * arms as u32;
        let left = self.budget.saturating_sub(self.began.elapsed());
        let rounds = (left.as_secs_f64() / round.as_secs_f64().max(1e-3)) as u32;
        if rounds >= FIRST_LOOK {
            return Ok(rounds);
        }
        let need = took + round * FIRST_LOOK;
        let cause = format!("{FIRST_LOOK} rounds of {arms} runs take {:.0} s", need.as_secs_f64());
        let minutes = (need.as_secs_f64() * 1.2 / 60.0).ceil();
        Err(Fault::new(
            "a causal experiment",
            cause,
            format!("give it more (--budget {minutes:.0}m), or a shorter input"),
        ))
    }

    fn profiled(&self, what: Option<&Schedule>, enough: &dyn Fn() -> bool) -> Result<Profile> {
        let folder = self.place.path().join("profile");
        let profile = self.recorded(what, &folder, enough);
        let _ = std::fs::remove_dir_all(&folder);
        profile
    }

    /// The profile of a run, which is ended once `enough` is true.
    fn recorded(&self, what: Option<&Schedule>, folder: &Path, enough: &dyn Fn() -> bool) -> Result<Profile> {
        let mut words = vec![self.own.display().to_string()];
        words.extend(["profile", "--no-cores", "-o"].map(str::to_owned));
        words.push(folder.display().to_string());
        words.extend(what.map(|what| format!("--perturb={what}")));
        if what.is_some_and(Schedule::by_host) {
            words.push(format!("--hosts-of={}", self.place.path().join(COUNTED).display()));
        }
        words.push("--".to_owned());
        words.extend_from_slice(self.command);
        let arm = Arm {
            name: what.map_or("as it is".to_owned(), Schedule::to_string),
            axes: Axes::default(),
            command: words,
            variables: vec![(MARK.to_owned(), trial::mark(self.place.path()))],
            proven: false,
            line: String::new(),
        };
        let is_ended = Cell::new(false);
        let enough = || {
            is_ended.set(enough());
            is_ended.get()
        };
        let limit = Nanoseconds(self.limit.as_nanos() as u64);
        let ran = self.starter.borrow_mut().run_until(&arm, limit, &enough);
        ran.and_then(|ran| match ran.failure {
            None => Profile::without_timeline(folder),
            Some(_) if is_ended.get() => period::part(folder),
            Some(failure) if failure.cause == Cause::TimedOut => {
                Err(Fault::new("a run", failure.words, "give it more (--budget), or a shorter input"))
            }
            Some(failure) => Err(Fault::new("a run", failure.words, "run the command alone until it works")),
        })
    }
}

/// Says that whole runs are delayed, since the program has no progress point.
fn whole_instead(why: &Fault) -> Option<Period> {
    eprintln!("plimsoll: whole runs are delayed, since blocks within a run need a progress point: {why}");
    None
}

/// Whole runs in turn.
struct InTurn<'r, 'a> {
    runs: &'r mut Runs<'a>,
    design: &'r Design,
}

impl Blocks for InTurn<'_, '_> {
    type Block = Shown;

    fn block(&mut self, arm: usize, _: u32) -> Result<Shown> {
        let what = self.design.arms[arm].what;
        let what = what.map(|what| Schedule { blocks: None, columns: vec![what] });
        Shown::of(&self.runs.profiled(what.as_ref(), &|| false)?)
    }

    fn probe(&mut self, _: usize) -> Option<Probe> {
        let [one, other, ..] = self.runs.cores[..] else { return None };
        ports::probe::between(one, other).ok()
    }

    fn clocks(&mut self, _: usize) -> Clocks {
        Clocks::of(linux::accounting::effective_clocks(self.runs.cores.iter().copied().take(2)))
    }

    fn stopped(&self) -> bool {
        linux::signal::interrupted() || self.runs.began.elapsed() > self.runs.budget
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_settles_a_prediction_is_the_same_program_over_both() {
        let settled =
            |command: &str, from, to| settled_by(&command.split(' ').map(str::to_owned).collect::<Vec<_>>(), from, to);
        let over_networks =
            settled("plimsoll mpirun -q --lab --network afxdp:lab0 -n 2 -- /bin/echo -n 1", "afxdp", "udp");
        let expected = "-n 2 --mpirun='--lab' --vary network=afxdp:lab0,udp --metric mpi -- /bin/echo -n 1";
        assert_eq!(over_networks, format!("plimsoll try {expected}"));
        let over_carriers = settled("mpirun -n 2 --mca btl self,vader /bin/echo 1", "vader", "tcp");
        assert_eq!(over_carriers, "plimsoll try -n 2 --vary carrier=vader,tcp --metric mpi -- /bin/echo 1");
    }
}
