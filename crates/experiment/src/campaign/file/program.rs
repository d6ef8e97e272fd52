//! `[[program]]` and `[[figure]]`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use machine::Result;

use super::fields::{Entry, Fields, Source, choose};
use super::grid::Axis;
use super::length;
use super::template::Template;
use crate::campaign::definition::{Program, Ranks, Reading, Work};
use crate::campaign::results::Figure;
use crate::trial::merit::Merit;

/// Axes that plimsoll applies, so that a command need not name them.
const PLIMSOLL_AXES: [&str; 7] = ["placement", "network", "carrier", "semantics", "ranks", "clock", "dilate"];

/// Axes of [`PLIMSOLL_AXES`] that `plimsoll mpirun` applies.
const MPIRUN_AXES: [&str; 5] = ["placement", "network", "carrier", "semantics", "dilate"];

/// Names besides axes and words of `[set]` that a template may have.
const BUILTIN_NAMES: [&str; 4] = ["ranks", "nodes", "program", "folder"];

/// Figures that need no pattern: name, unit, whether more is better.
const STANDARD_FIGURES: [(&str, &str, bool); 5] = [
    ("time", "s", false),
    ("watts", "W", false),
    ("joules", "J", false),
    ("messages", "1/s", true),
    ("bytes", "B/s", true),
];

/// The figures of a file; `shared` has those of all programs, with their patterns.
pub struct Figures {
    all: Vec<Figure>,
    shared: Vec<(usize, Option<Merit>)>,
}

impl Figures {
    pub fn of(entry: Option<Entry>, powered: bool) -> Result<Figures> {
        let mut figures = Figures { all: Vec::new(), shared: Vec::new() };
        for table in entry.map(Entry::tables).transpose()?.unwrap_or_default() {
            let found = figures.read(table)?;
            figures.shared.push(found);
        }
        if figures.shared.is_empty() {
            figures.standard("time");
        }
        if powered {
            figures.standard("watts");
            figures.standard("joules");
        }
        Ok(figures)
    }

    pub fn all(self) -> Vec<Figure> {
        self.all
    }

    fn standard(&mut self, wanted: &str) {
        if let Some((name, unit, more)) = STANDARD_FIGURES.into_iter().find(|(name, ..)| *name == wanted)
            && !self.all.iter().any(|figure| figure.name == name)
        {
            self.shared.push((self.all.len(), None));
            self.all.push(Figure { name: name.to_owned(), unit: unit.to_owned(), more_is_better: more });
        }
    }

    fn read(&mut self, mut table: Fields) -> Result<(usize, Option<Merit>)> {
        let named = table.need("name", "write name = \"time\", or any name with a pattern")?;
        let name = named.name()?.to_owned();
        let standard = STANDARD_FIGURES.into_iter().find(|(of, ..)| *of == name);
        let unit = table.take("unit").map(|unit| unit.name().map(str::to_owned)).transpose()?;
        let more = table.take("more").map(|more| more.flag()).transpose()?;
        let pattern = table.take("pattern");
        table.end()?;
        let more_is_better = more.or(standard.map(|(_, _, more)| more)).unwrap_or(false);
        let merit = match &pattern {
            Some(entry) => {
                let merit = Merit::new(Some(entry.text()?), more_is_better);
                Some(merit.map_err(|fault| entry.fault(fault.cause(), fault.next()))?)
            }
            None if standard.is_none() => {
                let names = STANDARD_FIGURES.map(|(name, ..)| name);
                let next = format!("give it pattern = 'Loop time of ([0-9.]+)'; {}", choose(&name, &names));
                return Err(named.fault(format!("figure '{name}' has no pattern"), next));
            }
            None => None,
        };
        let unit = unit.or(standard.map(|(_, unit, _)| unit.to_owned())).unwrap_or_default();
        let figure = Figure { name, unit, more_is_better };
        let known = self.all.iter().position(|other| other.name == figure.name);
        match known {
            Some(at) if self.all[at] == figure => Ok((at, merit)),
            Some(_) => {
                let cause = format!("figure '{}' has another unit or direction elsewhere", figure.name);
                Err(named.fault(cause, "give both the same unit and more, or another name"))
            }
            None => {
                self.all.push(figure);
                Ok((self.all.len() - 1, merit))
            }
        }
    }

    /// The readings of a program: its own figures before the shared ones.
    fn of_program(&self, own: Vec<(usize, Option<Merit>)>, simulated: bool) -> Vec<(usize, Reading)> {
        let mut found: Vec<(usize, Reading)> = Vec::new();
        for (figure, merit) in own.into_iter().chain(self.shared.iter().cloned()) {
            let reading = match (merit, self.all[figure].name.as_str()) {
                (Some(merit), _) if !simulated => Reading::Merit(merit),
                (_, "time") => Reading::Merit(Merit { pattern: None, more_is_better: false, mpi: false }),
                (_, "watts") => Reading::Watts,
                (_, "joules") => Reading::Joules,
                (_, "messages") if simulated => Reading::Messages,
                (_, "bytes") if simulated => Reading::Bytes,
                _ => continue,
            };
            if !found.iter().any(|(other, _)| *other == figure) {
                found.push((figure, reading));
            }
        }
        found
    }
}

/// Reads a program, its own axes and its place in the file.
pub fn read<'a>(
    mut table: Fields<'a>,
    shared: &[Axis],
    set: &BTreeMap<String, String>,
    figures: &mut Figures,
    source: Source<'a>,
) -> Result<(Program, Vec<Axis>, Range<usize>)> {
    let named = table.need("name", "give it a name")?;
    let (name, at) = (named.name()?.to_owned(), named.at.clone());
    let kind = table.take("kind");
    let simulated = match kind.as_ref().map(|kind| kind.text()).transpose()? {
        None | Some("command") => false,
        Some("simulate") => true,
        Some(other) => {
            let kind = kind.as_ref().expect("it was read");
            return Err(kind.fault(format!("there is no kind '{other}'"), choose(other, &["command", "simulate"])));
        }
    };
    let axes = table.take("axes").map(|axes| Axis::read(axes.table()?)).transpose()?.unwrap_or_default();
    if let Some(twice) = axes.iter().find(|axis| shared.iter().any(|other| other.name == axis.name)) {
        let cause = format!("axis '{}' is one of all programs", twice.name);
        return Err(source.fault(twice.at.clone(), cause, "leave it out in one of the two places"));
    }
    let all: Vec<&Axis> = shared.iter().chain(&axes).collect();
    if let Some(twice) = all.iter().find(|axis| set.contains_key(&axis.name)) {
        let cause = format!("'{}' is a word of [set] too", twice.name);
        return Err(source.fault(twice.at.clone(), cause, "call one of the two something else"));
    }
    let mut words = Words { all: &all, set, used: BTreeSet::new() };
    let own = table.take("figure").map(Entry::tables).transpose()?.unwrap_or_default();
    let own = own.into_iter().map(|table| figures.read(table)).collect::<Result<Vec<_>>>()?;
    let limit = table.take("limit").map(|limit| length(&limit)).transpose()?;
    let (work, variables, [setup, check, cleanup], starts) = if simulated {
        let next = "name a file of `plimsoll whatif simulate`, or an installed testbed";
        let file = words.one(&table.need("file", next)?)?;
        let replaced = table.take("replace").map(Entry::table).transpose()?.into_iter().flat_map(Fields::all);
        let replace = replaced.map(|(key, entry)| Ok((key.into_inner(), words.one(&entry)?))).collect::<Result<_>>()?;
        (Work::Simulate { file, replace }, Vec::new(), Default::default(), false)
    } else {
        let command = words.command(table.need("command", "give it command = \"program {size}\"")?)?;
        let ranks = match (table.take("ranks"), table.take("ranks_a_node")) {
            (Some(all), _) => Some(Ranks::All(words.one(&all)?)),
            (None, Some(each)) => Some(Ranks::ANode(each.whole(1..1_000_001)?)),
            (None, None) if all.iter().any(|axis| axis.name == "ranks") => {
                Some(Ranks::All(Template::new("{ranks}").expect("it is a template")))
            }
            (None, None) => None,
        };
        // A command that names `ranks` starts them itself.
        let starts = ranks.is_some() && !command.iter().any(|word| word.names().contains(&"ranks"));
        let mpirun = table.take("mpirun").map(|entry| words.command(entry)).transpose()?.unwrap_or_default();
        let ranks = if matches!(&ranks, Some(Ranks::ANode(_))) { words.used("nodes", ranks) } else { ranks };
        let variables = table.take("env").map(Entry::table).transpose()?.into_iter().flat_map(Fields::all);
        let variables = variables.map(|(key, entry)| Ok((key.into_inner(), words.one(&entry)?)));
        let variables = variables.collect::<Result<Vec<_>>>()?;
        let mut around = |key| table.take(key).map(|entry| words.command(entry)).transpose();
        let around = [around("setup")?, around("check")?, around("cleanup")?].map(Option::unwrap_or_default);
        (Work::Command { words: command, ranks, mpirun }, variables, around, starts)
    };
    table.end()?;
    words.check_used(&name, simulated, starts, source)?;
    let figures = figures.of_program(own, simulated);
    Ok((Program { name, work, variables, setup, check, cleanup, figures, limit }, axes, at))
}

/// Reads words with names in braces, and collects the axes that they name.
struct Words<'a> {
    all: &'a [&'a Axis],
    set: &'a BTreeMap<String, String>,
    used: BTreeSet<String>,
}

impl Words<'_> {
    /// A command: a text, split as by a shell, or a list of words.
    fn command(&mut self, entry: Entry) -> Result<Vec<Template>> {
        let (source, at) = (entry.source, entry.at.clone());
        let words: Vec<Template> = if entry.is_list() {
            entry.list()?.iter().map(|word| self.one(word)).collect::<Result<_>>()?
        } else {
            let split = shlex::split(entry.text()?);
            let split = split.ok_or_else(|| entry.fault("a quote is open", "close it, or write a list of words"))?;
            split.iter().map(|word| self.template(word, &entry)).collect::<Result<_>>()?
        };
        if words.is_empty() { Err(source.fault(at, "it has no words", "name a program")) } else { Ok(words) }
    }

    fn one(&mut self, entry: &Entry) -> Result<Template> {
        let word = entry.word().ok_or_else(|| entry.fault("it is no word", "write a text or a number"))?;
        self.template(&word, entry)
    }

    fn template(&mut self, word: &str, entry: &Entry) -> Result<Template> {
        let next = "write {NAME}, or {{ and }} for braces";
        let template = Template::new(word).map_err(|cause| entry.fault(cause, next))?;
        for name in template.names() {
            let axis = self.all.iter().find(|axis| axis.name.trim_start_matches("env.") == name);
            if axis.is_none() && !self.set.contains_key(name) && !BUILTIN_NAMES.contains(&name) {
                let mut known: Vec<&str> =
                    self.all.iter().map(|axis| axis.name.trim_start_matches("env.")).chain(BUILTIN_NAMES).collect();
                known.extend(self.set.keys().map(String::as_str));
                return Err(entry.fault(format!("there is no {{{name}}}"), choose(name, &known)));
            }
            if let Some(axis) = axis {
                self.used.insert(axis.name.clone());
            }
        }
        Ok(template)
    }

    fn used<T>(&mut self, axis: &str, value: T) -> T {
        self.used.insert(axis.to_owned());
        value
    }

    /// Refuses axes that change nothing.
    fn check_used(&self, program: &str, simulated: bool, starts: bool, source: Source) -> Result<()> {
        for axis in self.all {
            let name = axis.name.as_str();
            let fault = |cause: String, next: String| -> Result<()> { Err(source.fault(axis.at.clone(), cause, next)) };
            if self.used.contains(name) {
                continue;
            }
            if simulated {
                // A key of the simulation's file.
                if name.contains('.') && !name.starts_with("env.") {
                    continue;
                }
                let next = format!(
                    "write [program.replace] with \"machine.clock_ghz\" = \"{{{name}}}\", or call the axis by the key that it replaces"
                );
                return fault(format!("nothing of program {program} uses axis '{name}'"), next);
            }
            if MPIRUN_AXES.contains(&name) && !starts {
                let next = format!(
                    "give the program ranks = N and leave mpirun out of its command, or write {{{name}}} in it"
                );
                return fault(format!("plimsoll does not start the ranks of program {program}"), next);
            }
            if name.starts_with("env.") || (PLIMSOLL_AXES.contains(&name) && (name != "ranks" || starts)) {
                continue;
            }
            let near = choose(name, &PLIMSOLL_AXES);
            let near = if near.starts_with("did") { format!("{near} Else ") } else { String::new() };
            let next =
                format!("{near}write {{{name}}} in its command, or env.{name} for a variable of its environment");
            return fault(format!("nothing of program {program} uses axis '{name}'"), next);
        }
        Ok(())
    }
}
