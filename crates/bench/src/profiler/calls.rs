//! One rank that calls MPI_Send to MPI_PROC_NULL.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use experiment::random::Random;
use experiment::statistics::median;
use launch::installation::Installation;
use launch::job::{Job, Place};
use launch::running::{Running, Scratch, Streams, exit_code};
use machine::{Fault, Result};

use super::{Call, Mode, Profiled, Request, interval};
use crate::mpi::program::Program;

const BLOCKS: u64 = 2_000;
/// Of a block, of each kind.
const CALLS: u64 = 2_000;
const LIMIT: Duration = Duration::from_secs(60);
/// The order of a run is the same every time.
const SEED: u64 = 0x0051_1A11_0000_0005;
/// Starts that may fail before a mode is left out.
const PATIENCE: usize = 2;

/// One start: medians of its blocks, in nanoseconds.
#[derive(Debug, PartialEq)]
struct Run {
    /// A call that is not seen by the profiler, and one that is.
    bare: f64,
    recorded: f64,
    clock: f64,
    /// Of timeline, a call.
    bytes: f64,
}

pub fn measure(
    request: &Request,
    installation: &Installation,
    library: &Path,
    progress: &mut impl FnMut(&str),
) -> Result<Call> {
    let program = Program::compile(installation, "calls", include_str!("calls.c"))?;
    let mut found: [Vec<Option<Run>>; 3] = Default::default();
    let mut failures: [Vec<String>; 3] = Default::default();
    for round in 0..request.rounds {
        let mut order = [0, 1, 2];
        Random::stream(SEED, round.into()).shuffle(&mut order);
        for nth in order {
            if failures[nth].len() >= PATIENCE || linux::signal::interrupted() {
                found[nth].push(None);
                continue;
            }
            progress(&format!("{installation}, {}, round {} of {}", Mode::ALL[nth].word(), round + 1, request.rounds));
            let run = run(request, installation, &program, Mode::ALL[nth], library);
            if let (Err(fault), false) = (&run, linux::signal::interrupted()) {
                failures[nth].push(fault.to_string());
            }
            found[nth].push(run.ok());
        }
    }
    let [bare, tables, timeline] = &found;
    let all = |runs: &[Option<Run>], value: fn(&Run) -> f64| runs.iter().flatten().map(value).collect::<Vec<_>>();
    Ok(Call {
        library: installation.to_string(),
        bare: interval(&all(bare, |run| run.recorded)),
        unloaded: interval(&all(bare, |run| run.recorded - run.bare)),
        tables: interval(&all(tables, |run| run.recorded - run.bare)),
        timeline: interval(&all(timeline, |run| run.recorded - run.bare)),
        clock: interval(&all(tables, |run| run.clock)),
        bytes: median(&all(timeline, |run| run.bytes)),
        failures: failures.concat(),
    })
}

fn run(request: &Request, installation: &Installation, program: &Program, mode: Mode, library: &Path) -> Result<Run> {
    let profiled = Profiled::new(mode, library)?;
    let job = Job {
        installation,
        ranks: 1,
        program: program.path(),
        arguments: vec![BLOCKS.to_string().into(), CALLS.to_string().into()],
        options: Vec::new(),
        variables: profiled.variables.clone(),
        place: Place::Here,
        cores: Some(vec![request.cores.0]),
        contained: true,
    };
    let failed = |cause: String| {
        let next = "run it by hand with `plimsoll profile -- mpirun -n 1 PROGRAM`";
        Fault::new(format!("MPI_Send under {installation}, {}", mode.word()), cause, next)
    };
    let mut running = Running::start(&job, Scratch::new()?, Streams::Kept, None)?;
    let status = running.wait(LIMIT, None::<&File>, |_| Ok(()))?;
    if !status.success() {
        let said = running.complained();
        let line = said.lines().find(|line| line.chars().any(char::is_alphabetic)).unwrap_or("it said nothing");
        return Err(failed(format!("exit code {}: {}", exit_code(status), line.trim())));
    }
    let run = read(&running.said()).ok_or_else(|| failed("its output is not what it prints".into()))?;
    let (sends, traced) = profiled.recorded()?;
    let expected = if mode == Mode::Bare { 0 } else { BLOCKS * CALLS };
    if sends != expected || (mode == Mode::Timeline) != (traced > 0) {
        return Err(failed(format!("{sends} of {expected} calls were recorded, and {traced} bytes of timeline")));
    }
    Ok(Run { bytes: traced as f64 / (BLOCKS * CALLS) as f64, ..run })
}

fn read(text: &str) -> Option<Run> {
    let value = |name: &str| -> Option<f64> {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
    };
    Some(Run { bare: value("bare")?, recorded: value("recorded")?, clock: value("clock")?, bytes: 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_medians_are_read_and_nothing_less() {
        let run = Run { bare: 4.5, recorded: 27.0, clock: 19.25, bytes: 0.0 };
        assert_eq!(read("a warning\nbare 4.5\nrecorded 27.0\nclock 19.25\n"), Some(run));
        assert_eq!(read("bare 4.5\nclock 19.25\n"), None);
        assert_eq!(read("bare 4.5\nrecorded x\nclock 19.25\n"), None);
    }
}
