//! Reads a study file. Faults have the line and the column.

mod fields;
mod grid;
mod program;
pub mod template;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use machine::{Bytes, Fault, Nanoseconds, Result, nesting};
use rounds::sitting::FAILURES;

pub use self::fields::choose;
use self::fields::{Entry, Fields, Source};
use super::definition::{Campaign, Identity, Interval, Program, Stop, Work, blocks};
use super::results::Figure;
use crate::axes::{Axes, Value};

/// Rounds where a file gives no number.
const REPETITIONS: u32 = 5;

/// Most rounds where a file has an interval and gives no number.
const MOST_REPETITIONS: u32 = 60;

/// Repetitions of a failed run where a file gives no number.
const RETRIES: u32 = FAILURES as u32 - 1;

/// Most points of one study, and most memory of their axes.
const MOST_POINTS: usize = 1_000_000;
const MOST_MEMORY: Bytes = Bytes(1 << 30);

/// Reads the file at `path`, with the words of its `[set]` that are `given`.
///
/// # Errors
/// The file cannot be read or is invalid; a given word is not in its `[set]`, or a needed word is not given.
pub fn read(path: &Path, given: &[(String, String)]) -> Result<Campaign> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let page = machine::page("docs/campaigns.md");
        let next = format!("name a study file ({page}), or a ready one that `plimsoll campaign plan` lists");
        Fault::because(format!("study file {}", path.display()), error, next)
    })?;
    let name = path.display().to_string();
    let stem = path.file_stem().map_or("study".into(), |stem| stem.to_string_lossy().into_owned());
    parse(Source { name: &name, text: &text }, &stem, given)
}

/// Reads the text of a file; `stem` is the name of a study that has none.
pub(crate) fn parse(source: Source, stem: &str, given: &[(String, String)]) -> Result<Campaign> {
    nesting::read(|| campaign(source, stem, given))
}

fn campaign(source: Source, stem: &str, given: &[(String, String)]) -> Result<Campaign> {
    let mut file = source.fields()?;
    let name = match file.take("name") {
        Some(name) => name.name()?.to_owned(),
        None => stem.to_owned(),
    };
    // The description is only for readers of the file.
    let words = file.take("description").map(|words| words.text().map(str::to_owned)).transpose()?;
    drop(words);
    let set = set(file.take("set"), given)?;
    let figures = file.take("figure");
    let programs = file.take("program");
    let axes = file.take("axes");
    let (skip, only) = (file.take("skip"), file.take("only"));
    let together = file.take("block");
    let seed = file.take("seed").map(|seed| seed.whole(0..i64::MAX as u64)).transpose()?;
    let repetitions = file.take("repetitions").map(|entry| entry.whole(1..1_000_001)).transpose()?;
    let retries = file.take("retries").map(|entry| entry.whole(0..1001)).transpose()?;
    let stop = file.take("stop");
    let power = file.take("power").map(sources).transpose()?.unwrap_or_default();
    let need = "add one: [[program]] with name = \"..\" and command = \"..\"";
    let Some(programs) = programs else { return Err(source.fault(0..0, "it names no program", need)) };
    file.end()?;

    let mut figures = program::Figures::of(figures, !power.is_empty())?;
    let shared = axes.map(|axes| grid::Axis::read(axes.table()?)).transpose()?.unwrap_or_default();
    let mut read = Vec::new();
    for fields in programs.tables()? {
        let program = program::read(fields, &shared, &set, &mut figures, source)?;
        if read.iter().any(|(other, _): &(Program, _)| other.name == program.0.name) {
            let cause = format!("there is another program '{}'", program.0.name);
            return Err(source.fault(program.2, cause, "choose another name"));
        }
        read.push((program.0, program.1));
    }
    let grid = grid::Grid { source, shared: &shared, programs: &read };
    let points = grid.points(skip, only)?;
    let axes: Vec<&str> = grid.names();
    let axis = |name: &str, entry: &Entry| match axes.contains(&name) {
        true => Ok(()),
        false => Err(entry.fault(format!("there is no axis '{name}'"), choose(name, &axes))),
    };
    let figures = figures.all();
    let (stop, against) = read_stop(stop, repetitions, &figures, &grid)?;
    let mut block = against;
    for entry in together.map(Entry::list).transpose()?.unwrap_or_default() {
        axis(entry.text()?, &entry)?;
        block.push(entry.text()?.to_owned());
    }
    let programs = read.into_iter().map(|(program, _)| program).collect();
    let identity = Identity { name, set, programs, figures };
    let blocks = blocks(&points, &block);
    // The seed follows from the study, so that every process has the same order.
    let seed = seed.unwrap_or_else(|| u64::from_str_radix(&identity.digest()[..15], 16).unwrap_or(1));
    let retries = retries.map_or(RETRIES, |retries| retries as u32);
    let campaign = Campaign { identity, points, blocks, seed, stop, retries, power };
    check_interval(&campaign, source)?;
    check_baselines(&campaign, source)?;
    Ok(campaign)
}

/// `[set]`: words that `--set` may replace.
fn set(table: Option<Entry>, given: &[(String, String)]) -> Result<BTreeMap<String, String>> {
    let mut set = BTreeMap::new();
    let mut needed = Vec::new();
    for (name, entry) in table.map(Entry::table).transpose()?.into_iter().flat_map(Fields::all) {
        let name = name.into_inner();
        let Some(word) = entry.word() else { return Err(entry.fault("it is no word", "write a text or a number")) };
        if let Some((_, word)) = given.iter().rev().find(|(of, _)| *of == name) {
            set.insert(name, word.clone());
        } else if word.is_empty() {
            needed.push(entry.fault(format!("'{name}' is not given"), format!("give it: --set {name}=..")));
        } else {
            set.insert(name, word);
        }
    }
    let known: Vec<&String> = set.keys().collect();
    if let Some((name, value)) = given.iter().find(|(name, _)| !set.contains_key(name)) {
        let cause = "the file has no such word in its [set]";
        return Err(Fault::new(format!("--set {name}={value}"), cause, choose(name, known)));
    }
    match needed.into_iter().next() {
        Some(fault) => Err(fault),
        None => Ok(set),
    }
}

/// `[power] sources = ["rapl"]`.
fn sources(table: Entry) -> Result<Vec<String>> {
    let mut fields = table.table()?;
    let list = fields.need("sources", "write sources = [\"all\"]")?.list()?;
    let sources = list.iter().map(|source| source.text().map(str::to_owned)).collect();
    fields.end()?;
    sources
}

/// `[stop]`, and the axes on which a baseline differs from the other points of its block.
fn read_stop(
    table: Option<Entry>,
    repetitions: Option<u64>,
    figures: &[Figure],
    grid: &grid::Grid,
) -> Result<(Stop, Vec<String>)> {
    let mut stop = Stop { repetitions: repetitions.map_or(REPETITIONS, |of| of as u32), interval: None, budget: None };
    let mut block = Vec::new();
    let Some(mut fields) = table.map(Entry::table).transpose()? else { return Ok((stop, block)) };
    if let Some(budget) = fields.take("budget") {
        stop.budget = Some(length(&budget)?);
    }
    let (against, figure) = (fields.take("against"), fields.take("figure"));
    if let Some(entry) = fields.take("half_width") {
        let share = |width: &f64| *width > 0.0 && *width < 1.0;
        let half_width = entry.number()?;
        if !share(&half_width) {
            return Err(entry.fault(format!("{half_width} is no share"), "write 0.02 for 2 %"));
        }
        stop.repetitions = repetitions.map_or(MOST_REPETITIONS, |of| of as u32);
        stop.interval = Some(Interval { figure: 0, half_width, against: None });
    }
    for (entry, key) in [(&against, "against"), (&figure, "figure")] {
        if let (Some(entry), None) = (entry, &stop.interval) {
            return Err(entry.fault(format!("{key} needs an interval"), "add half_width = 0.02"));
        }
    }
    if let (Some(entry), Some(interval)) = (&figure, &mut stop.interval) {
        let name = entry.text()?;
        let names: Vec<&str> = figures.iter().map(|figure| figure.name.as_str()).collect();
        let found = names.iter().position(|of| *of == name);
        interval.figure =
            found.ok_or_else(|| entry.fault(format!("there is no figure '{name}'"), choose(name, &names)))?;
    }
    if let (Some(entry), Some(interval)) = (against, &mut stop.interval) {
        let mut axes = Axes::default();
        for (name, entry) in entry.table()?.all() {
            let value = grid.value(&name, &entry)?;
            axes = axes.with(name.get_ref(), value);
            block.push(name.into_inner());
        }
        interval.against = Some(axes);
    }
    fields.end()?;
    Ok((stop, block))
}

/// Refuses a program without the figure of the interval, which would always run to the most repetitions.
fn check_interval(campaign: &Campaign, source: Source) -> Result<()> {
    let Some(interval) = &campaign.stop.interval else { return Ok(()) };
    let figure = &campaign.identity.figures[interval.figure].name;
    let lacks = |program: &&Program| {
        let simulated = matches!(program.work, Work::Simulate { .. });
        !simulated && program.figures.iter().all(|(figure, _)| *figure != interval.figure)
    };
    let Some(program) = campaign.identity.programs.iter().find(lacks) else { return Ok(()) };
    let at = source.text.find("half_width").unwrap_or(0);
    let cause = format!("program {} has no figure '{figure}', whose interval is to end its runs", program.name);
    Err(source.fault(at..at, cause, "give it that figure, or name one that all programs have: figure = \"time\""))
}

/// Refuses a block without a baseline, whose points have no ratio.
fn check_baselines(campaign: &Campaign, source: Source) -> Result<()> {
    let Some(against) = campaign.stop.interval.as_ref().and_then(|interval| interval.against.as_ref()) else {
        return Ok(());
    };
    let Some(block) = (0..campaign.blocks.len()).find(|&block| campaign.baseline(block).is_none()) else {
        return Ok(());
    };
    let at = source.text.find("against").unwrap_or(0);
    let other = campaign.words(campaign.blocks[block][0]);
    let cause = format!("no point with {} is beside {other}", super::definition::words(against, true));
    Err(source.fault(at..at, cause, "skip neither of them, or leave against out"))
}

/// A duration: `90s`, `10m`, `2h`.
fn length(entry: &Entry) -> Result<Nanoseconds> {
    let word = entry.word().unwrap_or_default();
    word.parse().map_err(|fault: Fault| entry.fault(fault.to_string(), fault.next()))
}

/// The value of an axis.
fn value(entry: Entry) -> Result<Value> {
    if let Some(number) = entry.integer() {
        return Ok(Value::Number(number));
    }
    if let Some(word) = entry.word() {
        return match word.contains(char::is_control) {
            false => Ok(Value::Text(word)),
            true => Err(entry.fault("it has a control character", "leave that out")),
        };
    }
    let next = "write a text, a number, or a list of words";
    if !entry.is_list() {
        return Err(entry.fault("that is no value of an axis", next));
    }
    let words = entry.list()?.into_iter();
    let word = |entry: Entry| entry.word().ok_or_else(|| entry.fault("that is no word", next));
    Ok(Value::List(words.map(word).collect::<Result<_>>()?))
}
