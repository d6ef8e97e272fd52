//! `plimsoll campaign submit`: a study's points in chunks, as job arrays of Slurm.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use chart::clock::duration;
use experiment::campaign::chunk::{self, Block, Needs, Size};
use experiment::campaign::conduct;
use experiment::campaign::definition::{Campaign, Shard};
use experiment::campaign::merge::merge;
use experiment::campaign::plan::{Plan, Planned};
use experiment::campaign::store::PointRuns;
use launch::campaign::set_by_instruments;
use launch::slurm::Slurm;
use launch::slurm::partition::{self, Partition};
use launch::slurm::record::{self, Record};
use launch::slurm::script::{self, Submission};
use launch::slurm::tasks::{Task, TaskState, of_log};
use linux::output;
use machine::{Fault, Hertz, Nanoseconds, Result, count};

use super::study_file::{Study, StudyFile};

/// Submits a study file's points to Slurm, in chunks that have their nodes to themselves, and a job that joins their stores
/// afterwards. The same command again submits what is not finished: after a lost node, a limit, a preemption
#[derive(clap::Args)]
#[command(after_help = CHUNKS)]
#[command(group = clap::ArgGroup::new("system").args(["slurm", "pbs"]).required(true))]
pub struct Arguments {
    #[command(flatten)]
    study: StudyFile,
    /// Submit to Slurm
    #[arg(long)]
    slurm: bool,
    /// Submit to PBS, which is refused with the reason
    #[arg(long)]
    pbs: bool,
    /// Print numbers and scripts, and submit nothing
    #[arg(long)]
    dry_run: bool,
    /// Partition to submit to [default: SBATCH_PARTITION's, else the cluster's own]
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,
    /// Chunks of about this length: 30m, 2h [default: 1h, less where the partition ends jobs before]
    #[arg(long, value_name = "TIME", value_parser = length, conflicts_with = "chunks")]
    chunk_time: Option<Nanoseconds>,
    /// About so many chunks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    chunks: Option<u32>,
    /// How long a run takes of which nothing is known: 30s, 10m [default: as the file limits it]
    #[arg(long, value_name = "TIME", value_parser = length)]
    run_time: Option<Nanoseconds>,
    /// Chunks of an array that run at once [default: all that Slurm finds nodes for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    at_once: Option<u32>,
    /// Run again what was left after failures
    #[arg(long)]
    retry: bool,
    /// Options that all scripts get: -- --account=NAME --qos=NAME
    #[arg(last = true, value_name = "SBATCH OPTION", value_parser = script::option)]
    options: Vec<String>,
}

/// Slurm counts minutes: less than a second is no length of a job.
fn length(text: &str) -> Result<Nanoseconds> {
    Nanoseconds::within(text, Nanoseconds::of_seconds(1), Nanoseconds::of_seconds(10_000_000))
}

const CHUNKS: &str = "Each chunk is a job with a store of its own. Points that differ in `nodes` or `clock` are in different arrays; \
    Slurm sets the clock (--cpu-freq).";

/// The usual length of a chunk, of which the overhead of a job is far below a hundredth.
const CHUNK: Nanoseconds = Nanoseconds(3_600_000_000_000);

/// The factor of a chunk's time limit over its expected time, and the extra time for its start.
const MARGIN: f64 = 1.5;
const BEGINNING: f64 = 180.0;

/// The time limit of the job that merges.
const MERGE: Duration = Duration::from_secs(1800);

/// The time limit of a chunk that is expected to take this long, in whole minutes.
fn limit(takes: Nanoseconds) -> Duration {
    let seconds = takes.0 as f64 / 1e9 * MARGIN + BEGINNING;
    Duration::from_secs((seconds / 60.0).ceil() as u64 * 60)
}

/// The longest expected time of a chunk with this limit.
fn longest(limit: Duration) -> Nanoseconds {
    Nanoseconds(((limit.as_secs_f64() - BEGINNING).max(0.0) / MARGIN * 1e9) as u64)
}

/// A chunk and its present state.
struct Chunk {
    needs: Needs,
    points: Vec<usize>,
    /// The state of its last task, if it had one.
    state: Option<TaskState>,
    runs: usize,
    takes: Nanoseconds,
}

impl Chunk {
    fn is_due(&self) -> bool {
        self.runs > 0 && !self.state.as_ref().is_some_and(TaskState::is_active)
    }
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    if arguments.pbs {
        let cause = "job arrays for it are not written: no PBS was there to hold them against";
        let next = "write the job yourself: `plimsoll campaign run FILE --shard $PBS_ARRAY_INDEX/N`, then `plimsoll campaign merge`";
        return Err(Fault::new("--pbs", cause, next));
    }
    let study = arguments.study.open(Shard::WHOLE, None)?;
    let slurm = Slurm::find()?;
    let folder = absolute(&study.store.with_extension("chunks"))?;
    let campaign = &study.campaign;
    let mut record = Record::read(&folder)?.unwrap_or_else(|| Record {
        study: campaign.identity.digest(),
        probe: probe(),
        chunks: Vec::new(),
        arrays: Vec::new(),
    });
    if record.study != campaign.identity.digest() {
        let next = "give this one a place of its own: --store FILE";
        return Err(Fault::new(format!("folder {}", folder.display()), "it holds another study's chunks", next));
    }
    let usual = || std::env::var("SBATCH_PARTITION").ok().filter(|name| !name.is_empty());
    let partition = partition::chosen(&slurm.partitions()?, arguments.partition.clone().or_else(usual).as_deref())?;
    let name = job_name(&campaign.identity.name);
    let mut chunks = standing(campaign, &slurm, &record, &folder, &name)?;
    let known = known(&study, &folder, &chunks)?;
    count_runs(arguments, campaign, &known, &mut chunks)?;
    let new = divide(arguments, campaign, &known, &chunks, &partition)?;
    let before = chunks.len();
    for chunk in new {
        let key = |point: &usize| campaign.points[*point].axes.key();
        let points = chunk.points.iter().map(key).collect();
        record.chunks.push(record::Chunk { nodes: chunk.needs.nodes, clock: chunk.needs.clock, points });
        chunks.push(chunk);
    }
    check(&chunks, &partition, slurm.most_tasks()?)?;

    let (store, file) = (absolute(&study.store)?, absolute(&study.path)?);
    let work = absolute(Path::new("."))?;
    let program = machine::here::program()?;
    let submission = Submission {
        name: &name,
        partition: &partition.name,
        work: script::path(&work)?,
        folder: script::path(&folder)?,
        program: script::path(&program)?,
        probe: &record.probe,
        options: &arguments.options,
    };
    let words = words(arguments, script::path(&file)?);
    let scripts = arrays(arguments, &chunks, &partition, &words);
    let merged = script::merge(&submission, script::path(&store)?, partition.most_time.unwrap_or(MERGE).min(MERGE));
    output::print(&page(&study, &partition, &chunks, before, &scripts))?;
    if arguments.dry_run {
        let mut text = String::new();
        for array in &scripts {
            text += &format!("\n{}", array.text(&submission));
        }
        if !scripts.is_empty() {
            text += &format!("\n{merged}");
        }
        output::print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let is_active = |chunk: &Chunk| chunk.state.as_ref().is_some_and(TaskState::is_active);
    if scripts.is_empty() {
        return match chunks.iter().any(is_active) {
            true => Ok(ExitCode::SUCCESS),
            false => join(&store, &folder, chunks.len()),
        };
    }
    std::fs::create_dir_all(&folder)
        .map_err(|e| Fault::unwritable(format!("folder {}", folder.display()), e, "choose another with --store"))?;
    record.write(&folder)?;
    let texts: Vec<String> = scripts.iter().map(|array| array.text(&submission)).collect();
    let began = Instant::now();
    let mut jobs: Vec<u32> = (0..)
        .zip(&chunks)
        .filter(|(_, chunk)| is_active(chunk))
        .filter_map(|(number, _)| record.array_of(number))
        .collect();
    for (array, text) in scripts.iter().zip(&texts) {
        let path = folder.join(format!("array-{}.sh", record.arrays.len() + 1));
        record::put(&path, text)?;
        let job = slurm.submit(&path, None)?;
        // Written before the next submission can fail, so that running jobs are known.
        record.arrays.push(record::Array { job, chunks: array.chunks.clone() });
        record.write(&folder)?;
        println!("job {job}: chunks {}", script::ranges(&array.chunks));
        jobs.push(job);
    }
    jobs.sort_unstable();
    jobs.dedup();
    let path = folder.join("merge.sh");
    record::put(&path, &merged)?;
    let after: Vec<String> = jobs.iter().map(u32::to_string).collect();
    // `singleton`: two such jobs at once would write the same store.
    let job = slurm.submit(&path, Some(&format!("afterany:{},singleton", after.join(":"))))?;
    let took = Nanoseconds(began.elapsed().as_nanos() as u64);
    output::print(&format!(
        "job {job}: joins them into {} when they are over\nSubmitted in {}. `squeue --name {name}` shows them; the same command again submits what is then not finished.\n",
        store.display(),
        duration(took),
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path)
        .map_err(|e| Fault::because(format!("path {}", path.display()), e, "run it in a folder that exists"))
}

/// A unique word for a submission.
fn probe() -> String {
    format!("{:x}-{:x}", machine::here::now().0, std::process::id())
}

/// Name of the jobs, by which Slurm shows and finds them.
fn job_name(study: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    format!("plimsoll-{}", study.chars().map(plain).collect::<String>())
}

/// The words behind `plimsoll campaign run` in the scripts.
fn words(arguments: &Arguments, file: &str) -> Vec<String> {
    let set = arguments.study.set.iter().flat_map(|(name, value)| ["--set".to_owned(), format!("{name}={value}")]);
    let retry = arguments.retry.then(|| "--retry".to_owned());
    [file.to_owned()].into_iter().chain(set).chain(retry).collect()
}

/// The chunks of a record with their present states.
fn standing(campaign: &Campaign, slurm: &Slurm, record: &Record, folder: &Path, name: &str) -> Result<Vec<Chunk>> {
    let places: HashMap<String, usize> =
        campaign.points.iter().enumerate().map(|(nth, point)| (point.axes.key(), nth)).collect();
    if record.arrays.is_empty() {
        return Ok(Vec::new());
    }
    let active = slurm.active(name)?;
    let jobs: std::collections::BTreeSet<u32> =
        (0..record.chunks.len() as u32).filter_map(|of| record.array_of(of)).collect();
    let ended: Vec<_> = jobs.into_iter().flat_map(|job| slurm.ended(job)).collect();
    let chunk = |(number, of): (u32, &record::Chunk)| {
        let job = record.array_of(number);
        let known = |task: &&Task| Some(task.job) == job && task.index == number;
        let task = active.iter().find(known).or_else(|| ended.iter().find(known)).map(|task| task.state.clone());
        let log = || std::fs::read(script::log(folder, number)).unwrap_or_default();
        let state = job.map(|_| task.unwrap_or_else(|| TaskState::Ended(of_log(&String::from_utf8_lossy(&log())))));
        Chunk {
            needs: Needs { nodes: of.nodes, clock: of.clock },
            points: of.points.iter().filter_map(|key| places.get(key).copied()).collect(),
            state,
            runs: 0,
            takes: Nanoseconds(0),
        }
    };
    Ok((0..).zip(&record.chunks).map(chunk).collect())
}

/// The state of all points, by the stores of chunks that do not run, and otherwise by the study's own.
fn known(study: &Study, folder: &Path, chunks: &[Chunk]) -> Result<Vec<PointRuns>> {
    let mut known = study.known()?;
    for (number, chunk) in (0..).zip(chunks) {
        let path = script::store(folder, number);
        // A task on another host may be writing to it.
        if matches!(chunk.state, Some(TaskState::Runs(_))) || !path.exists() {
            continue;
        }
        match study.known_of(&path) {
            Ok(mut of) => chunk.points.iter().for_each(|&point| {
                if of[point] != PointRuns::default() {
                    known[point] = std::mem::take(&mut of[point]);
                }
            }),
            // The task may have ended before it stored anything.
            Err(fault) => eprintln!("note: chunk {number} has nothing yet: {fault}"),
        }
    }
    Ok(known)
}

/// By point: the runs still to come, and the time of each.
struct Due {
    plan: Plan,
    each: Vec<Option<Nanoseconds>>,
}

fn due(arguments: &Arguments, campaign: &Campaign, known: &[PointRuns]) -> Due {
    let mut known = known.to_vec();
    if arguments.retry {
        known.iter_mut().for_each(|known| known.failures.clear());
    }
    let given = arguments.run_time;
    let usual = |point: usize| conduct::usual(campaign, &known, point).or(given).or(campaign.program(point).limit);
    let each = (0..campaign.points.len()).map(usual).collect();
    let plan = Plan::of(campaign, Shard::WHOLE, &known, vec![None; campaign.points.len()], &usual, 1);
    Due { plan, each }
}

impl Due {
    /// The runs of these points, and their total time.
    fn of(&self, campaign: &Campaign, points: &[usize]) -> Result<(usize, Nanoseconds)> {
        let (mut runs, mut takes) = (0, Nanoseconds(0));
        for &point in points {
            let Planned::Runs(of) = self.plan.points[point] else { continue };
            let each = self.each[point].ok_or_else(|| {
                let program = &campaign.program(point).name;
                let next =
                    "say it: --run-time 30s; or run some of it here first: `plimsoll campaign run FILE --budget 1m`";
                Fault::new(format!("program {program}"), "nobody knows how long a run takes", next)
            })?;
            runs += of;
            takes = Nanoseconds(takes.0.saturating_add(each.0.saturating_mul(of as u64)));
        }
        Ok((runs, takes))
    }
}

fn count_runs(arguments: &Arguments, campaign: &Campaign, known: &[PointRuns], chunks: &mut [Chunk]) -> Result<()> {
    let due = due(arguments, campaign, known);
    for chunk in chunks {
        (chunk.runs, chunk.takes) = due.of(campaign, &chunk.points)?;
    }
    Ok(())
}

/// The nodes and the clock that a block's points need. The clock is absent where they have several, which their runs then set, or
/// one that is no frequency, which their runs refuse.
fn needs(campaign: &Campaign, points: &[usize]) -> Result<Needs> {
    let mut nodes = 1;
    for value in points.iter().filter_map(|point| campaign.points[*point].axes.get("nodes")) {
        let number = value.to_string().parse::<u32>().ok().filter(|number| *number > 0);
        nodes = nodes.max(number.ok_or_else(|| {
            let next = "write whole numbers from 1, or call the axis something else";
            Fault::new(format!("axis nodes, {value}"), "it is no number of nodes", next)
        })?);
    }
    let clock = |point: &usize| set_by_instruments(campaign, *point).get("clock")?.to_string().parse::<Hertz>().ok();
    let mut clocks = points.iter().map(clock);
    let first = clocks.next().flatten();
    let clock = first.filter(|first| clocks.all(|clock| clock == Some(*first)));
    Ok(Needs { nodes, clock })
}

/// Divides the points that are in no chunk into chunks.
fn divide(
    arguments: &Arguments,
    campaign: &Campaign,
    known: &[PointRuns],
    chunks: &[Chunk],
    partition: &Partition,
) -> Result<Vec<Chunk>> {
    let mut taken = vec![false; campaign.points.len()];
    chunks.iter().flat_map(|chunk| &chunk.points).for_each(|&point| taken[point] = true);
    let due = due(arguments, campaign, known);
    let mut blocks = Vec::new();
    for block in &campaign.blocks {
        let points: Vec<usize> = block.iter().copied().filter(|&point| !taken[point]).collect();
        let (runs, takes) = due.of(campaign, &points)?;
        if runs > 0 {
            blocks.push(Block { needs: needs(campaign, &points)?, points, takes });
        }
    }
    let most = partition.most_time.map(longest);
    let within = arguments.chunk_time.unwrap_or(CHUNK);
    let size = match arguments.chunks {
        Some(count) => Size::About(count),
        None => Size::Within(most.map_or(within, |most| most.min(within))),
    };
    let new = chunk::chunks(&blocks, size, campaign.seed);
    if let (Some(most), Some(limit)) = (most, partition.most_time)
        && let Some(long) = new.iter().find(|chunk| chunk.takes > most)
    {
        let subject = format!("partition {}", partition.name);
        let cause = format!(
            "it ends jobs after {}, and a chunk of {} needs {} with its margin",
            script::time(limit),
            count::of(long.points.len() as u64, "point"),
            script::time(self::limit(long.takes)),
        );
        let fit = chunk::chunks(&blocks, Size::Within(most), campaign.seed);
        let next = match fit.iter().any(|chunk| chunk.takes > most) {
            true => "one block alone is longer: choose another --partition, fewer repetitions, or blocks of fewer axes"
                .to_owned(),
            false => format!("ask for more chunks: --chunks {}", fit.len()),
        };
        return Err(Fault::new(subject, cause, next));
    }
    new.into_iter()
        .map(|chunk| {
            let (runs, takes) = due.of(campaign, &chunk.points)?;
            Ok(Chunk { needs: chunk.needs, points: chunk.points, state: None, runs, takes })
        })
        .collect()
}

fn check(chunks: &[Chunk], partition: &Partition, most_tasks: u32) -> Result<()> {
    if chunks.len() > most_tasks as usize {
        let cause = format!("they are {} chunks, and an array of this cluster has {most_tasks} places", chunks.len());
        let next = format!("make them longer: --chunk-time, or --chunks {most_tasks} at most");
        return Err(Fault::new("the study", cause, next));
    }
    chunks.iter().filter(|chunk| chunk.is_due()).try_for_each(|chunk| partition.check_nodes(chunk.needs.nodes))
}

/// One array for the due chunks of each kind of needs.
fn arrays<'a>(
    arguments: &Arguments,
    chunks: &[Chunk],
    partition: &Partition,
    words: &'a [String],
) -> Vec<script::Array<'a>> {
    let mut kinds: BTreeMap<Needs, Vec<u32>> = BTreeMap::new();
    for (number, chunk) in (0..).zip(chunks).filter(|(_, chunk)| chunk.is_due()) {
        kinds.entry(chunk.needs).or_default().push(number);
    }
    let array = |(needs, numbers): (Needs, Vec<u32>)| {
        let longest = numbers.iter().map(|number| chunks[*number as usize].takes).max().unwrap_or_default();
        // A chunk that takes longer than expected continues when it is submitted again.
        let time = partition.most_time.map_or(limit(longest), |most| most.min(limit(longest)));
        script::Array {
            chunks: numbers,
            at_once: arguments.at_once,
            nodes: needs.nodes,
            clock: needs.clock,
            time,
            words,
        }
    };
    kinds.into_iter().map(array).collect()
}

/// The page of the submitted chunks and the states of earlier ones.
fn page(study: &Study, partition: &Partition, chunks: &[Chunk], before: usize, arrays: &[script::Array]) -> String {
    let campaign = &study.campaign;
    let name = &campaign.identity.name;
    let mut text = format!("{name}: {} in ", count::of(campaign.points.len() as u64, "point"));
    text += &format!("{}, partition {}", count::of(chunks.len() as u64, "chunk"), partition.name);
    text += &partition.most_time.map_or(" without a limit\n".to_owned(), |of| format!(" up to {}\n", script::time(of)));
    let old = &chunks[..before];
    if !old.is_empty() {
        text += "\n";
    }
    for (number, chunk) in (0..).zip(old) {
        let state = match &chunk.state {
            _ if chunk.runs == 0 => "finished".to_owned(),
            None => format!("{} to come: not submitted", count::of(chunk.runs as u64, "run")),
            Some(state @ TaskState::Runs(_)) => state.to_string(),
            Some(state) => format!("{} to come: {state}", count::of(chunk.runs as u64, "run")),
        };
        text += &format!("chunk {number}: {state}\n");
    }
    if arrays.is_empty() {
        return text + "\nNothing is to be submitted.\n";
    }
    text += &format!(
        "\n{:>5}  {:>9}  {:>6}  {:>7}  {:>6}  {:>14}  {:>12}\n",
        "nodes", "clock", "chunks", "points", "runs", "each about", "time limit"
    );
    let mut node_hours = (0.0, 0.0);
    for array in arrays {
        let of = || array.chunks.iter().map(|number| &chunks[*number as usize]);
        let sum: f64 = of().map(|chunk| chunk.takes.0 as f64 / 1e9).sum();
        let nodes = f64::from(array.nodes);
        node_hours.0 += sum / 3600.0 * nodes;
        node_hours.1 += array.time.as_secs_f64() / 3600.0 * nodes * array.chunks.len() as f64;
        text += &format!(
            "{:>5}  {:>9}  {:>6}  {:>7}  {:>6}  {:>14}  {:>12}\n",
            array.nodes,
            array.clock.map_or("-".to_owned(), |clock| clock.to_string()),
            array.chunks.len(),
            of().map(|chunk| chunk.points.len()).sum::<usize>(),
            of().map(|chunk| chunk.runs).sum::<usize>(),
            duration(Nanoseconds((sum / array.chunks.len() as f64 * 1e9) as u64)),
            script::time(array.time),
        );
    }
    let (expected, most) = node_hours;
    text + &format!("Whole nodes for about {expected:.2} node hours, {most:.2} at most\n\n")
}

/// Joins finished chunks, if no job is to do that.
fn join(store: &Path, folder: &Path, chunks: usize) -> Result<ExitCode> {
    let stores: Vec<PathBuf> =
        (0..chunks as u32).map(|number| script::store(folder, number)).filter(|path| path.exists()).collect();
    let mut runs = 0;
    if !stores.is_empty() {
        merge(store, &stores, |_, joined| runs += joined.runs)?;
    }
    let joined =
        if runs > 0 { format!("{} joined into it", count::of(runs, "run")) } else { "it has all of them".to_owned() };
    output::print(&format!("{}: {joined}\n", store.display()))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs_of(axes: &str) -> Result<Needs> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("waves.toml");
        let text = format!("[axes]\n{axes}\n[[program]]\nname = \"p\"\ncommand = \"true {{nodes}}\"\n");
        std::fs::write(&path, text).unwrap();
        let campaign = experiment::campaign::file::read(&path, &[]).unwrap();
        needs(&campaign, &(0..campaign.points.len()).collect::<Vec<_>>())
    }

    #[test]
    fn a_chunk_asks_for_nodes_and_a_clock_that_there_are_or_for_none() {
        let needs = |axes: &str| needs_of(axes).map(|needs| (needs.nodes, needs.clock.map(|clock| clock.0)));
        assert_eq!(needs("nodes = [1, 4, \"2\"]").unwrap(), (4, None));
        assert_eq!(needs("nodes = [1]\nclock = [\"1.9GHz\"]").unwrap(), (1, Some(1_900_000_000)));
        // Not a clock of 1 Hz: its runs refuse it.
        assert_eq!(needs("nodes = [1]\nclock = [1.9]").unwrap(), (1, None));
        for wrong in ["0", "-2", "1.5", "5000000000", "\"2KiB\"", "\"n1,n2\""] {
            let said = needs(&format!("nodes = [{wrong}]")).unwrap_err().to_string();
            assert!(said.contains("it is no number of nodes"), "{said}");
        }
    }
}
