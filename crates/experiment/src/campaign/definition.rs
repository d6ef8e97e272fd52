//! The definition of a study: programs, the points at which they run, order and time.

use std::collections::{BTreeMap, HashMap};

use machine::{Fault, Nanoseconds, Result};
use rounds::random::Random;
use serde::{Deserialize, Serialize};

use super::file::template::Template;
use super::results::Figure;
use crate::axes::{Axes, Value};
use crate::designs::hash;
use crate::trial::merit::Merit;

/// The axis that names the program of a point.
pub const PROGRAM: &str = "program";

/// A study as its file defines it.
#[derive(Debug, Clone, PartialEq)]
pub struct Campaign {
    pub identity: Identity,
    /// Points in the file's order.
    pub points: Vec<Point>,
    /// Blocks of points that run next to each other on one host; each point is in one block.
    pub blocks: Vec<Vec<usize>>,
    pub seed: u64,
    pub stop: Stop,
    /// Repetitions of a failed run before its point is left out.
    pub retries: u32,
    /// Sources of power to sample, in the words of `plimsoll power`.
    pub power: Vec<String>,
}

/// Identity of a study: only stores of equal identities can be merged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    pub name: String,
    /// Words of `[set]` by name.
    pub set: BTreeMap<String, String>,
    pub programs: Vec<Program>,
    pub figures: Vec<Figure>,
}

/// A program of the study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Program {
    pub name: String,
    pub work: Work,
    /// Variables of its environment.
    pub variables: Vec<(String, Template)>,
    /// Commands around each run.
    pub setup: Vec<Template>,
    pub check: Vec<Template>,
    pub cleanup: Vec<Template>,
    /// Figures of its runs: index into [`Identity::figures`], and source.
    pub figures: Vec<(usize, Reading)>,
    /// Time after which a run is ended.
    pub limit: Option<Nanoseconds>,
}

/// The work of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    Command {
        words: Vec<Template>,
        ranks: Option<Ranks>,
        /// Options of `plimsoll mpirun`, where it starts the ranks.
        mpirun: Vec<Template>,
    },
    /// `plimsoll whatif simulate`, with keys of its file replaced.
    Simulate { file: Template, replace: Vec<(String, Template)> },
}

/// Number of ranks of a program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ranks {
    All(Template),
    /// Number of ranks on each of `nodes`.
    ANode(u64),
}

/// Source of a figure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reading {
    /// The time of the run, or a number that it prints.
    Merit(Merit),
    /// Mean power of the machines over the run, and their energy.
    Watts,
    Joules,
    /// Messages a second and bytes a second of a simulation.
    Messages,
    Bytes,
}

/// A point of the grid.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Index into [`Identity::programs`].
    pub program: usize,
    /// Values of all axes, the program's name among them.
    pub axes: Axes,
}

/// Conditions for the end of a study.
#[derive(Debug, Clone, PartialEq)]
pub struct Stop {
    /// Runs of each point; with an interval, the most runs.
    pub repetitions: u32,
    pub interval: Option<Interval>,
    /// Time for all runs of a store.
    pub budget: Option<Nanoseconds>,
}

/// Interval at whose width a point needs no more runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Interval {
    /// Index into [`Identity::figures`].
    pub figure: usize,
    /// Half the interval's width, as a share.
    pub half_width: f64,
    /// Axes of the baseline: the interval is of the ratio to that point of the block. `None`: it is of a point's own mean.
    pub against: Option<Axes>,
}

impl Identity {
    /// Whether the program of a point is simulated.
    pub fn is_simulated(&self, axes: &Axes) -> bool {
        let name = axes.get(PROGRAM).map(Value::to_string);
        let of_point = |program: &&Program| name.as_ref().is_none_or(|name| *name == program.name);
        self.programs.iter().find(of_point).is_some_and(|program| matches!(program.work, Work::Simulate { .. }))
    }

    /// Hash that identifies the study.
    pub fn digest(&self) -> String {
        hash(self)
    }

    /// The first difference of `other`, in words; `None` where both are equal.
    pub fn difference(&self, other: &Identity) -> Option<String> {
        if self == other {
            return None;
        }
        if self.name != other.name {
            return Some(format!("it is of study '{}', not '{}'", other.name, self.name));
        }
        for name in self.set.keys().chain(other.set.keys()) {
            let (one, two) = (self.set.get(name), other.set.get(name));
            if one != two {
                let of = |value: Option<&String>| value.map_or("nothing".to_owned(), |value| format!("'{value}'"));
                return Some(format!("its [set] {name} is {}, not {}", of(two), of(one)));
            }
        }
        let names = |of: &Identity| of.programs.iter().map(|of| of.name.clone()).collect::<Vec<_>>().join(", ");
        if names(self) != names(other) {
            return Some(format!("its programs are {}, not {}", names(other), names(self)));
        }
        let changed = self.programs.iter().zip(&other.programs).find(|(one, two)| one != two);
        if let Some((one, two)) = changed {
            let parts = [
                ("command", one.work != two.work),
                ("variables", one.variables != two.variables),
                ("set-up", one.setup != two.setup),
                ("check", one.check != two.check),
                ("cleanup", one.cleanup != two.cleanup),
                ("time limit", one.limit != two.limit),
            ];
            let part = parts.iter().find(|(_, differs)| *differs).map_or("figures", |(part, _)| *part);
            return Some(format!("the {part} of its program {} is another", one.name));
        }
        Some("its figures are others".to_owned())
    }
}

/// A part of a study: the `part`th of `of`, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    pub part: u32,
    pub of: u32,
}

impl Shard {
    pub const WHOLE: Shard = Shard { part: 1, of: 1 };
}

impl std::str::FromStr for Shard {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Shard> {
        let parts = text.split_once('/').and_then(|(part, of)| Some((part.parse().ok()?, of.parse().ok()?)));
        match parts {
            Some((part, of)) if 1 <= part && part <= of => Ok(Shard { part, of }),
            _ => Err(Fault::new(format!("shard '{text}'"), "it is no part of a whole", "write 1/4 to 4/4")),
        }
    }
}

impl std::fmt::Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.part, self.of)
    }
}

impl Campaign {
    /// By point: whether the shard has it. A shard has whole blocks, the same in every process.
    ///
    /// Blocks are dealt in an order drawn from the seed, so that no shard has all slow values of an axis.
    pub fn of_shard(&self, shard: Shard) -> Vec<bool> {
        let mut dealt: Vec<usize> = (0..self.blocks.len()).collect();
        Random::stream(self.seed, u64::MAX).shuffle(&mut dealt);
        let mut mine = vec![shard.of == 1; self.points.len()];
        for (nth, block) in dealt.into_iter().enumerate() {
            if nth % shard.of as usize == shard.part as usize - 1 {
                self.blocks[block].iter().for_each(|&point| mine[point] = true);
            }
        }
        mine
    }

    /// Number of points of each block.
    pub fn groups(&self) -> Vec<usize> {
        self.blocks.iter().map(Vec::len).collect()
    }

    pub fn program(&self, point: usize) -> &Program {
        &self.identity.programs[self.points[point].program]
    }

    /// The axes of a point, in words; the program is left out where the study has only one.
    pub fn words(&self, point: usize) -> String {
        let several = self.identity.programs.len() > 1;
        words(&self.points[point].axes, several)
    }

    /// The baseline of a block: the point with which the others are compared.
    pub fn baseline(&self, block: usize) -> Option<usize> {
        let against = self.stop.interval.as_ref()?.against.as_ref()?;
        let is = |point: &&usize| {
            let axes = &self.points[**point].axes;
            against.iter().all(|(name, value)| axes.get(name) == Some(value))
        };
        self.blocks[block].iter().find(is).copied()
    }
}

/// A point's axes in words.
pub fn words(axes: &Axes, with_program: bool) -> String {
    let mut parts: Vec<String> = Vec::new();
    if with_program && let Some(program) = axes.get(PROGRAM) {
        parts.push(program.to_string());
    }
    let named = axes.iter().filter(|(name, _)| *name != PROGRAM);
    parts.extend(named.map(|(name, value)| format!("{} {value}", name.trim_start_matches("env."))));
    match (parts.is_empty(), axes.get(PROGRAM)) {
        (true, Some(program)) => program.to_string(),
        _ => parts.join(", "),
    }
}

/// Groups points that differ on these axes alone.
pub(super) fn blocks(points: &[Point], together: &[String]) -> Vec<Vec<usize>> {
    let mut known: HashMap<Axes, usize> = HashMap::new();
    let mut blocks: Vec<Vec<usize>> = Vec::new();
    for (nth, point) in points.iter().enumerate() {
        let kept = point.axes.iter().filter(|(name, _)| !together.iter().any(|of| of == name));
        let rest = kept.fold(Axes::default(), |rest, (name, value)| rest.with(name, value.clone()));
        let block = *known.entry(rest).or_insert_with(|| {
            blocks.push(Vec::new());
            blocks.len() - 1
        });
        blocks[block].push(nth);
    }
    blocks
}

/// Value of a name in braces at a point.
pub fn known(identity: &Identity, point: &Point, name: &str) -> Option<Value> {
    // A word of [set] with the name `program` hides the program's name.
    if let Some(value) = identity.set.get(name) {
        return Some(Value::Text(value.clone()));
    }
    if let Some(value) = point.axes.get(name).or_else(|| point.axes.get(&format!("env.{name}"))) {
        return Some(value.clone());
    }
    let Work::Command { ranks, .. } = &identity.programs[point.program].work else { return None };
    match (name, ranks.as_ref()?) {
        ("ranks", Ranks::All(template)) => {
            let word = template.word(&|name| (name != "ranks").then(|| known(identity, point, name))?).ok()?;
            Some(word.parse().map_or(Value::Text(word), Value::Number))
        }
        ("ranks", Ranks::ANode(each)) => match point.axes.get("nodes") {
            Some(Value::Number(nodes)) => nodes.checked_mul(*each as i64).map(Value::Number),
            None => Some(Value::Number(*each as i64)),
            Some(_) => None,
        },
        _ => None,
    }
}
