//! Axes and the points that they span.

use std::collections::BTreeSet;
use std::ops::Range;

use machine::{Fault, Result};
use toml::Spanned;

use super::fields::{Entry, Fields, Source, choose};
use super::{MOST_MEMORY, MOST_POINTS, value};
use crate::axes::{Axes, Value};
use crate::campaign::definition::{PROGRAM, Point, Program};

/// An axis and its values, with their places in the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    pub name: String,
    pub at: Range<usize>,
    pub values: Vec<(Value, Range<usize>)>,
}

impl Axis {
    /// All axes of a table, in the order of the file.
    pub fn read(table: Fields) -> Result<Vec<Axis>> {
        table.all().map(|(name, entry)| Axis::of(name, entry)).collect()
    }

    fn of(name: Spanned<String>, entry: Entry) -> Result<Axis> {
        let at = name.span();
        let name = name.into_inner();
        let fault = |cause: String, next: &str| Err(entry.fault(cause, next));
        if name == PROGRAM {
            return fault("programs are no axis here".to_owned(), "write a [[program]] for each");
        }
        if name.is_empty() || name.contains(['{', '}', ' ']) || name.contains(char::is_control) {
            return fault(format!("'{name}' will not do as a name"), "leave braces, spaces and control characters out");
        }
        if !entry.is_list() {
            return fault("an axis has a list of values".to_owned(), "write it like size = [64, 4096]");
        }
        let (source, at_list) = (entry.source, entry.at.clone());
        let mut known = BTreeSet::new();
        let mut values: Vec<(Value, Range<usize>)> = Vec::new();
        for entry in entry.list()? {
            let at = entry.at.clone();
            let value = value(entry)?;
            if !known.insert(value.clone()) {
                return Err(source.fault(at, "it stands there twice", "leave one out"));
            }
            values.push((value, at));
        }
        match values.is_empty() {
            true => Err(source.fault(at_list, "it has no values", "give some, or leave the axis out")),
            false => Ok(Axis { name, at: at.start..at_list.end, values }),
        }
    }
}

/// Memory that an axis takes in a point, in bytes, without its name and its value.
const AXIS: usize = 64;

/// All axes of a file.
pub struct Grid<'a> {
    pub source: Source<'a>,
    pub shared: &'a [Axis],
    /// Programs, each with the axes of its own.
    pub programs: &'a [(Program, Vec<Axis>)],
}

impl<'a> Grid<'a> {
    pub fn names(&self) -> Vec<&'a str> {
        let own = self.programs.iter().flat_map(|(_, axes)| axes);
        let mut names: Vec<&str> = self.shared.iter().chain(own).map(|axis| axis.name.as_str()).collect();
        names.push(PROGRAM);
        names
    }

    /// The value of an axis that an entry names.
    pub fn value(&self, name: &Spanned<String>, entry: &Entry) -> Result<Value> {
        let wanted = name.get_ref();
        let names = self.names();
        if !names.contains(&wanted.as_str()) {
            let cause = format!("there is no axis '{wanted}'");
            return Err(self.source.fault(name.span(), cause, choose(wanted, &names)));
        }
        let own = self.programs.iter().flat_map(|(_, axes)| axes);
        let axes = self.shared.iter().chain(own).filter(|axis| axis.name == *wanted);
        let mut known: Vec<Value> = axes.flat_map(|axis| &axis.values).map(|(value, _)| value.clone()).collect();
        if wanted == PROGRAM {
            known = self.programs.iter().map(|(program, _)| Value::Text(program.name.clone())).collect();
        }
        let word = entry.word();
        let same = known.iter().find(|value| word.as_ref().is_some_and(|word| value.to_string() == *word));
        same.cloned().ok_or_else(|| {
            let words: Vec<String> = known.iter().map(Value::to_string).collect();
            let word = word.unwrap_or_else(|| "that".to_owned());
            entry.fault(format!("axis {wanted} has no value {word}"), choose(&word, &words))
        })
    }

    /// The points of the grid that `skip` and `only` leave.
    pub fn points(&self, skip: Option<Entry>, only: Option<Entry>) -> Result<Vec<Point>> {
        self.check_size()?;
        let at = skip.iter().chain(&only).map(|entry| entry.at.clone()).next().unwrap_or(0..0);
        let (skip, only) = (self.rules(skip)?, self.rules(only)?);
        let mut points = Vec::new();
        for (nth, (program, own)) in self.programs.iter().enumerate() {
            let mut all = vec![Axes::default().with(PROGRAM, Value::Text(program.name.clone()))];
            for axis in self.shared.iter().chain(own) {
                let with = |axes: &Axes| {
                    axis.values
                        .iter()
                        .map(|(value, _)| axes.clone().with(&axis.name, value.clone()))
                        .collect::<Vec<_>>()
                };
                all = all.iter().flat_map(with).collect();
            }
            let kept = |axes: &Axes| {
                !skip.iter().any(|rule| rule.matches(axes))
                    && (only.is_empty() || only.iter().any(|rule| rule.matches(axes)))
            };
            points.extend(all.into_iter().filter(kept).map(|axes| Point { program: nth, axes }));
        }
        if points.is_empty() {
            return Err(self.source.fault(at, "no point is left", "skip less, or allow more with [[only]]"));
        }
        self.check_reached(&points)?;
        Ok(points)
    }

    /// Refuses a grid of too many points before any point is made.
    fn check_size(&self) -> Result<()> {
        let (mut points, mut bytes) = (0usize, 0usize);
        for (_, own) in self.programs {
            let (mut all, mut each) = (1usize, 0);
            for axis in self.shared.iter().chain(own) {
                let longest = axis.values.iter().map(|(value, _)| value.to_string().len()).max().unwrap_or(0);
                all = all.saturating_mul(axis.values.len());
                each += AXIS + axis.name.len() + longest;
                let takes = bytes.saturating_add(all.saturating_mul(each));
                let cause = match points.saturating_add(all) > MOST_POINTS {
                    true => format!("its axes span more than {MOST_POINTS} points"),
                    false if takes as u64 > MOST_MEMORY.0 => format!("its points would take more than {MOST_MEMORY}"),
                    false => continue,
                };
                return Err(self.source.fault(axis.at.clone(), cause, "write several files"));
            }
            points = points.saturating_add(all);
            bytes = bytes.saturating_add(all.saturating_mul(each));
        }
        Ok(())
    }

    /// Refuses values that no point has.
    fn check_reached(&self, points: &[Point]) -> Result<()> {
        let mut reached: BTreeSet<(usize, &str, &Value)> = BTreeSet::new();
        for point in points {
            reached.extend(point.axes.iter().map(|(name, value)| (point.program, name, value)));
        }
        let unreached = |axis: &Axis, value: &Value, at: &Range<usize>| {
            let cause = format!("no point has {} {value}: skip or only leave them all out", axis.name);
            self.source.fault(at.clone(), cause, "leave the value out, or change what skips it")
        };
        let every = 0..self.programs.len();
        for (axis, (value, at)) in self.shared.iter().flat_map(|axis| axis.values.iter().map(move |of| (axis, of))) {
            if !every.clone().any(|program| reached.contains(&(program, &axis.name, value))) {
                return Err(unreached(axis, value, at));
            }
        }
        for (nth, (program, own)) in self.programs.iter().enumerate() {
            if !points.iter().any(|point| point.program == nth) {
                let cause = format!("no point has program {}: skip or only leave them all out", program.name);
                let at = self.source.text.find(&format!("\"{}\"", program.name)).unwrap_or(0);
                return Err(self.source.fault(at..at, cause, "leave the program out, or change what skips it"));
            }
            for (axis, (value, at)) in own.iter().flat_map(|axis| axis.values.iter().map(move |of| (axis, of))) {
                if !reached.contains(&(nth, &axis.name, value)) {
                    return Err(unreached(axis, value, at));
                }
            }
        }
        Ok(())
    }

    fn rules(&self, entry: Option<Entry>) -> Result<Vec<Rule>> {
        let tables = entry.map(Entry::tables).transpose()?.unwrap_or_default();
        tables.into_iter().map(|table| self.rule(table)).collect()
    }

    fn rule(&self, table: Fields) -> Result<Rule> {
        let at = table.at.clone();
        let mut parts = Vec::new();
        for (name, entry) in table.all() {
            let entries = if entry.is_list() { entry.list()? } else { vec![entry] };
            let values = entries.iter().map(|entry| self.value(&name, entry)).collect::<Result<Vec<_>>>()?;
            parts.push((name.into_inner(), values));
        }
        match parts.is_empty() {
            true => Err(self.empty(at)),
            false => Ok(Rule(parts)),
        }
    }

    fn empty(&self, at: Range<usize>) -> Fault {
        self.source.fault(at, "the rule names no axis", "write it like network = \"tcp\" and clock = [1.4, 1.9]")
    }
}

/// Values of some axes. A point matches if its value on each of these axes is among them.
struct Rule(Vec<(String, Vec<Value>)>);

impl Rule {
    fn matches(&self, axes: &Axes) -> bool {
        self.0.iter().all(|(name, values)| axes.get(name).is_some_and(|value| values.contains(value)))
    }
}
