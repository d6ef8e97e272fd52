//! The checks of `plimsoll doctor`: what of a machine can be used, and what each missing thing costs.
//!
//! What can be tried without leaving a trace (a lab, the BPF programs, a copy between processes) is tried; the rest is read. An
//! archived machine is judged by its archive alone.
#![forbid(unsafe_code)]

mod check;
mod host;
mod mpi;
mod page;
mod parts;
mod programs;
mod rights;
mod tools;

pub use check::{Check, State};
use machine::{Machine, Result, Source};
pub use programs::Programs;
use serde::Serialize;

/// All checks of a machine, by subject.
#[derive(Debug, Clone, Serialize)]
pub struct Checkup {
    /// Processor, cores and kernel, in words.
    pub machine: String,
    pub sections: Vec<Section>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Section {
    pub title: &'static str,
    pub checks: Vec<Check>,
}

/// Checks the machine of `source`; of this host also its `programs`, which no archive holds.
///
/// # Errors
/// The source shows no CPU. What is missing or refused otherwise is part of the answer.
pub fn examine(source: &Source, programs: Option<&Programs>) -> Result<Checkup> {
    let machine = Machine::read(source)?;
    let mut sections = vec![
        Section { title: "rights", checks: rights::checks(source, &machine) },
        Section { title: "cores and network", checks: host::checks(source, &machine) },
    ];
    if let Some(programs) = programs {
        sections.push(Section { title: "MPI", checks: mpi::checks(programs) });
        sections.push(Section { title: "parts of plimsoll", checks: parts::checks(&programs.command) });
        sections.push(Section { title: "other programs", checks: tools::checks(programs) });
    }
    let kernel = machine.facts().into_iter().filter(|(name, _)| ["processor", "cores", "kernel"].contains(&&**name));
    let machine = kernel.map(|(_, value)| value).collect::<Vec<_>>().join("; ");
    Ok(Checkup { machine, sections })
}
