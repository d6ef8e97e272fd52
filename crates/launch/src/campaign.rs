//! Runs the points of a study file: set-up, program, check, cleanup; none of their processes stays until the next run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use experiment::axes::{Axes, Value};
use experiment::campaign::conduct::{OTHER_BUILD, Runner};
use experiment::campaign::definition::{Campaign, Program, Ranks, Reading, Work, known};
use experiment::campaign::file::template::Template;
use experiment::campaign::store::Outcome;
use experiment::cause::{Cause, Failure};
use experiment::trial::conduct::{Commands, Ran};
use experiment::trial::design::Arm;
use linux::warden::Warden;
use machine::{Dilation, Fault, Hertz, Nanoseconds, Result, Site};

use crate::allocation::Allocation;
use crate::engine::{Network, Semantics, check_semantics, placement};
use crate::trial::{Starter, programs, scratch};
use crate::{carriers, program};

/// Variable with the file of a run's output, for the run's check.
const OUTPUT: &str = "PLIMSOLL_OUTPUT";

/// Limit of set-up, check and cleanup each, where their program has none.
const AROUND: Nanoseconds = Nanoseconds(3_600_000_000_000);

/// Conditions that are set before a run, and sensors that are read around it.
pub trait Instruments {
    /// Reason why this host cannot give the point its conditions.
    fn cannot(&self, axes: &Axes) -> Option<String>;

    /// Arguments of this program that start the run; empty: the run is started directly.
    fn starts_by(&self, axes: &Axes) -> Vec<String>;

    /// # Errors
    /// The run cannot begin.
    fn before(&mut self, axes: &Axes) -> Result<(), Failure>;

    /// # Errors
    /// The run does not count.
    fn after(&mut self) -> Result<Readings, Failure>;
}

/// Readings around a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Readings {
    /// The effective clock before and after.
    pub clocks: [Option<Hertz>; 2],
    /// Mean power of the machine over the run.
    pub watts: Option<f64>,
    pub joules: Option<f64>,
    /// Remark on the run.
    pub note: Option<String>,
}

/// Runs points in the working folder of this process.
pub struct Jobs {
    plain: Starter,
    /// For figures from the time between MPI_Init and MPI_Finalize.
    profiled: Starter,
    /// This program, which starts the ranks.
    own: PathBuf,
    folder: String,
    /// Digests of the files that are run.
    programs: BTreeMap<String, String>,
    instruments: Box<dyn Instruments>,
}

impl Jobs {
    /// `folder`: of the study file. `before`: digests of the files that earlier sessions ran.
    ///
    /// # Errors
    /// A program cannot be read, or differs from that of earlier sessions.
    pub fn new(
        campaign: &Campaign,
        mine: &[bool],
        folder: &Path,
        before: &BTreeMap<String, String>,
        instruments: Box<dyn Instruments>,
    ) -> Result<Jobs> {
        let own = machine::here::program()?;
        let (plain, profiled) = (Starter::new()?, Starter::new()?.profiled(own.clone()));
        let folder = folder.display().to_string();
        let mut jobs = Jobs { plain, profiled, own, folder, programs: BTreeMap::new(), instruments };
        let mut seen = std::collections::HashSet::new();
        for point in (0..campaign.points.len()).filter(|&point| mine[point]) {
            let Work::Command { words, .. } = &campaign.program(point).work else { continue };
            let command = jobs.words(campaign, point, words)?;
            if seen.insert(command.clone()) {
                jobs.programs.extend(programs(&command)?);
            }
        }
        for (file, digest) in before {
            let now = jobs.programs.get(file);
            if now.is_some_and(|now| now != digest) {
                let cause = format!("{file} is another than it was in earlier runs");
                return Err(Fault::new("the study", cause, OTHER_BUILD));
            }
        }
        Ok(jobs)
    }

    /// Digests of the files that are run.
    pub fn programs(&self) -> &BTreeMap<String, String> {
        &self.programs
    }

    fn words(&self, campaign: &Campaign, point: usize, templates: &[Template]) -> Result<Vec<String>> {
        words(campaign, point, templates, &self.folder)
    }

    fn arm(&self, campaign: &Campaign, point: usize, command: Vec<String>) -> Result<Arm> {
        let Program { variables, .. } = campaign.program(point);
        let axes = &campaign.points[point].axes;
        let folder = &self.folder;
        let own = variables.iter().map(|(name, value)| Ok((name.clone(), word(campaign, point, value, folder)?)));
        let mut variables = own.collect::<Result<Vec<_>>>()?;
        for (name, value) in axes.iter() {
            variables.extend(name.strip_prefix("env.").map(|name| (name.to_owned(), value.to_string())));
        }
        let line = command.join(" ");
        Ok(Arm { name: campaign.words(point), axes: axes.clone(), command, variables, proven: false, line })
    }

    /// The run itself: by `plimsoll mpirun` where plimsoll starts the ranks.
    fn main(&self, campaign: &Campaign, point: usize) -> Result<Arm> {
        let Work::Command { words, ranks, mpirun } = &campaign.program(point).work else {
            return Err(Fault::new("the run", "what is simulated starts no program", "report this as a defect"));
        };
        let command = self.words(campaign, point, words)?;
        if !starts_ranks(words, ranks.as_ref()) {
            return self.arm(campaign, point, command);
        }
        let axes = &campaign.points[point].axes;
        let number = known(&campaign.identity, &campaign.points[point], "ranks").map(|ranks| ranks.to_string());
        let number = number.ok_or_else(|| Fault::new("ranks", "their number is not known", "give ranks = N"))?;
        let mut whole = vec![self.own.display().to_string(), "mpirun".into(), "--quiet".into(), "-n".into(), number];
        whole.extend(self.words(campaign, point, mpirun)?);
        let mut proven = true;
        for axis in ["placement", "network", "carrier", "semantics", "dilate"] {
            let Some(value) = axes.get(axis).filter(|_| !is_named(words, axis) && !is_named(mpirun, axis)) else {
                continue;
            };
            let value = value.to_string();
            let is_usual = match axis {
                "carrier" => value == "plimsoll",
                "semantics" => value == Semantics::Matched.name(),
                "dilate" => value.parse::<Dilation>()?.is_none(),
                _ => false,
            };
            if is_usual {
                continue;
            }
            proven &= axis != "carrier";
            whole.extend([format!("--{axis}"), value]);
        }
        whole.push("--".into());
        whole.extend(command);
        Ok(Arm { proven, ..self.arm(campaign, point, whole)? })
    }

    fn around(&mut self, campaign: &Campaign, point: usize, templates: &[Template], said: Option<&str>) -> Result<()> {
        if templates.is_empty() {
            return Ok(());
        }
        let mut arm = self.arm(campaign, point, self.words(campaign, point, templates)?)?;
        let folder = tempfile::Builder::new().prefix("plimsoll-study-").tempdir().map_err(scratch)?;
        // The warden removes the folder even where this process is killed.
        let _warden = Warden::over_folder(folder.path())?;
        if let Some(said) = said {
            let output = folder.path().join("output");
            std::fs::write(&output, said).map_err(scratch)?;
            arm.variables.push((OUTPUT.to_owned(), output.display().to_string()));
        }
        let ran = self.plain.run(&arm, campaign.program(point).limit.unwrap_or(AROUND))?;
        match ran.failure {
            None => Ok(()),
            Some(failure) => Err(Fault::new(arm.line, failure.words, "run it alone until it works")),
        }
    }

    fn measured(&mut self, campaign: &Campaign, point: usize, limit: Nanoseconds) -> Result<Outcome, Failure> {
        let program = campaign.program(point).clone();
        let failed = |fault: Fault| Failure::of_program(format!("{}: {}", fault.subject(), fault.cause()), "");
        let arm = self.main(campaign, point).map_err(failed)?;
        let of_mpi = |(_, reading): &(usize, Reading)| matches!(reading, Reading::Merit(merit) if merit.mpi);
        let starter = if program.figures.iter().any(of_mpi) { &mut self.profiled } else { &mut self.plain };
        let set = set_by_instruments(campaign, point);
        let mut within = self.instruments.starts_by(&set);
        if !within.is_empty() {
            within.insert(0, self.own.display().to_string());
        }
        starter.start_within(within);
        self.instruments.before(&set)?;
        let ran = starter.run(&arm, limit);
        // Conditions are reset, however the run ended.
        let readings = self.instruments.after();
        let Ran { elapsed, mpi, cpu, said, complained, failure, probes, .. } = ran.map_err(failed)?;
        if let Some(failure) = failure {
            return Err(failure);
        }
        let readings = readings?;
        let mut values = vec![None; campaign.identity.figures.len()];
        for (figure, reading) in &program.figures {
            values[*figure] = match reading {
                Reading::Merit(merit) => {
                    let time = mpi.filter(|_| merit.mpi).unwrap_or(elapsed);
                    let value = merit.of(time, &said, &complained);
                    Some(value.map_err(|fault| {
                        Failure::new(Cause::FigureMissing, format!("{}: {}", fault.subject(), fault.cause()))
                    })?)
                }
                Reading::Watts => readings.watts,
                Reading::Joules => readings.joules,
                Reading::Messages | Reading::Bytes => None,
            };
        }
        self.around(campaign, point, &program.check, Some(&said))
            .map_err(|fault| Failure::new(Cause::CheckFailed, format!("{}: {}", fault.subject(), fault.cause())))?;
        Ok(Outcome { elapsed, cpu, values, clocks: readings.clocks, probes, note: readings.note })
    }
}

impl Runner for Jobs {
    fn run(&mut self, campaign: &Campaign, point: usize, limit: Nanoseconds) -> Result<Outcome, Failure> {
        let (setup, cleanup) = (campaign.program(point).setup.clone(), campaign.program(point).cleanup.clone());
        let ready = self.around(campaign, point, &setup, None);
        let outcome = match ready {
            Ok(()) => self.measured(campaign, point, limit),
            Err(fault) => {
                let failure = Failure::of_program(format!("{}: {}", fault.subject(), fault.cause()), "");
                let blamed = failure.cause == Cause::ProgramFailed;
                Err(if blamed { Failure { cause: Cause::SetupFailed, ..failure } } else { failure })
            }
        };
        // After failures too.
        let cleaned = self.around(campaign, point, &cleanup, None);
        let note = cleaned.err().map(|fault| format!("cleanup: {}: {}", fault.subject(), fault.cause()));
        outcome.map(|outcome| {
            let notes: Vec<String> = outcome.note.iter().cloned().chain(note).collect();
            Outcome { note: (!notes.is_empty()).then(|| notes.join("; ")), ..outcome }
        })
    }

    fn now(&self) -> Nanoseconds {
        self.plain.now()
    }

    fn wall(&self) -> Nanoseconds {
        machine::here::now()
    }

    fn changed(&mut self) -> Option<String> {
        self.programs.iter().find_map(|(file, digest)| self.plain.differs(file, digest))
    }
}

/// Whether plimsoll starts the ranks of a program. A command that names `ranks` starts them itself.
fn starts_ranks(words: &[Template], ranks: Option<&Ranks>) -> bool {
    ranks.is_some() && !is_named(words, "ranks")
}

fn is_named(words: &[Template], name: &str) -> bool {
    words.iter().any(|word| word.names().contains(&name))
}

/// Words of a template at a point of a study whose file is in `folder`.
///
/// # Errors
/// The template names an unknown value.
pub fn word(campaign: &Campaign, point: usize, template: &Template, folder: &str) -> Result<String> {
    Ok(words(campaign, point, std::slice::from_ref(template), folder)?.join(" "))
}

fn words(campaign: &Campaign, point: usize, templates: &[Template], folder: &str) -> Result<Vec<String>> {
    let value = |name: &str| match name {
        "folder" => Some(Value::Text(folder.to_owned())),
        name => known(&campaign.identity, &campaign.points[point], name),
    };
    let words = templates.iter().map(|template| template.words(&value)).collect::<Result<Vec<_>>>()?;
    Ok(words.concat())
}

/// Reason why this host cannot run the program of a point, as far as can be seen before; `None` where it can.
pub fn cannot(
    campaign: &Campaign,
    point: usize,
    folder: &str,
    allocation: Option<&Allocation>,
    instruments: &dyn Instruments,
) -> Option<String> {
    let Work::Command { words: templates, ranks, .. } = &campaign.program(point).work else { return None };
    let axes = &campaign.points[point].axes;
    let told = |fault: Fault| Some(format!("{}: {}", fault.subject(), fault.cause()));
    let command = match words(campaign, point, templates, folder) {
        Ok(command) => command,
        Err(fault) => return told(fault),
    };
    let Some(first) = command.first() else { return Some("its command has no words".to_owned()) };
    if let Err(fault) = program::find(first.as_ref()) {
        return told(fault);
    }
    if starts_ranks(templates, ranks.as_ref()) {
        for (name, value) in axes.iter() {
            let text = value.to_string();
            let checked = match name {
                "placement" if text != "auto" => placement(&text).map(drop),
                "network" => text.parse::<Network>().map(drop),
                "carrier" if text != "plimsoll" => carriers::named(&text).map(drop),
                "semantics" => text.parse().and_then(|semantics| has_queue_pairs(axes, semantics)),
                "dilate" => text.parse().and_then(|dilation| has_engine(axes, dilation)),
                _ => Ok(()),
            };
            if let Err(fault) = checked {
                return told(fault);
            }
        }
    }
    if let (Some(Value::Number(nodes)), Some(allocation)) = (axes.get("nodes"), allocation) {
        let there = allocation.hosts().len();
        if there > 0 && *nodes > there as i64 {
            return Some(format!("it needs {nodes} nodes, and {} has {there}", allocation.name));
        }
    }
    instruments.cannot(&set_by_instruments(campaign, point))
}

/// Checks that messages at a point with these axes can use queue pairs.
fn has_queue_pairs(axes: &Axes, semantics: Semantics) -> Result<()> {
    let text = |name: &str| axes.get(name).map(ToString::to_string);
    if semantics != Semantics::Matched && text("carrier").is_some_and(|carrier| carrier != "plimsoll") {
        let next = "leave these points out by [[skip]]";
        return Err(Fault::new(format!("semantics {semantics}"), "a transport of the MPI has its own", next));
    }
    let placement = text("placement").map_or(Ok(Site::App), |placement| placement.parse())?;
    let dilation = text("dilate").map_or(Ok(Dilation::NONE), |dilation| dilation.parse())?;
    check_semantics(semantics, &placement, dilation)
}

/// Checks that a point with these axes has work of the engine to stretch.
fn has_engine(axes: &Axes, dilation: Dilation) -> Result<()> {
    let is = |name: &str, value: &str| axes.get(name).is_some_and(|of| of.to_string() == value);
    let refused = |cause: &str, next: &str| Err(Fault::new(format!("dilate {dilation}"), cause, next));
    match axes.get("carrier") {
        _ if dilation.is_none() => Ok(()),
        Some(carrier) if !is("carrier", "plimsoll") => {
            let cause = format!("it is the engine's work that is stretched, and carrier {carrier} has none");
            refused(&cause, "leave these points out by [[skip]]")
        }
        _ if is("placement", "auto") => {
            let cause = "the costs by which placement auto chooses are of protocol work as it is";
            refused(cause, "name the placement: app or core:N")
        }
        _ => Ok(()),
    }
}

/// Axes of a point that no command names, and its nodes: instruments set them around the run.
pub fn set_by_instruments(campaign: &Campaign, point: usize) -> Axes {
    let Program { work, setup, variables, .. } = campaign.program(point);
    let Work::Command { words, mpirun, .. } = work else { return Axes::default() };
    let variables = || variables.iter().map(|(_, value)| value.clone()).collect::<Vec<_>>();
    let named = |name: &str| [words, mpirun, setup, &variables()].into_iter().any(|words| is_named(words, name));
    let asked = campaign.points[point].axes.iter().filter(|(name, _)| *name == "nodes" || !named(name));
    asked.fold(Axes::default(), |axes, (name, value)| axes.with(name, value.clone()))
}
