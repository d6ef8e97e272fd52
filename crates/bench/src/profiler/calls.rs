//! One rank that calls MPI_Send to MPI_PROC_NULL.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use launch::exit::exit_code;
use launch::installation::Installation;
use launch::job::{Job, Place};
use launch::running::{Running, Scratch, Streams};
use machine::{Fault, Probe, Result};
use rounds::blocks::{self, Blocks, Plan, Series, difference};
use rounds::bound::{Bound, Verdict};
use rounds::estimate::Estimate;
use rounds::statistics::{median, median_interval};

use super::{Call, Mode, Profiled, Request, TABLES_NANOSECONDS, TIMELINE_NANOSECONDS};
use crate::mpi::program::Program;

const BLOCKS: u64 = 2_000;
/// Calls of each kind in a block.
const CALLS: u64 = 2_000;
const LIMIT: Duration = Duration::from_secs(60);
const SEED: u64 = 0x0051_1A11_0000_0005;

/// One start: medians of its blocks, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Run {
    /// Time of a call that the profiler does not see, and of one that it does.
    bare: f64,
    recorded: f64,
    clock: f64,
    /// Bytes of timeline per call.
    bytes: f64,
}

pub fn measure(
    request: &Request,
    installation: &Installation,
    library: &Path,
    progress: &mut impl FnMut(&str),
) -> Result<Call> {
    let program = Program::compile(installation, "calls", include_str!("calls.c"), &std::env::temp_dir())?;
    let mut starts = Starts { request, installation, program: &program, library, progress };
    let plan = Plan { groups: vec![Mode::ALL.len()], rounds: request.rounds, seed: SEED };
    let (all, _) = blocks::conduct(&mut starts, &plan, |_, all| {
        let [_, tables, timeline] = all else { return false };
        let open = |of, most| Bound::AtMost(most).judge(adds(of)) == Verdict::CannotTell;
        open(tables, TABLES_NANOSECONDS) || open(timeline, TIMELINE_NANOSECONDS)
    });
    let [bare, tables, timeline] = &all[..] else { unreachable!("a series for each mode") };
    let failures = all.iter().flat_map(|of| of.failures.clone()).collect();
    Ok(Call {
        library: installation.to_string(),
        bare: median_interval(&bare.values(|run| Some(run.recorded))),
        unloaded: adds(bare),
        tables: adds(tables),
        timeline: adds(timeline),
        clock: median_interval(&tables.values(|run| Some(run.clock))),
        bytes: median(&timeline.values(|run| Some(run.bytes))),
        failures,
    })
}

/// Extra time of a recorded call.
fn adds(of: &Series<Run>) -> Option<Estimate> {
    difference(&of.values(|run| Some(run.recorded - run.bare)))
}

struct Starts<'a, P> {
    request: &'a Request,
    installation: &'a Installation,
    program: &'a Program,
    library: &'a Path,
    progress: P,
}

impl<P: FnMut(&str)> Blocks for Starts<'_, P> {
    type Block = Run;

    fn block(&mut self, mode: usize, round: u32) -> Result<Run> {
        let (mode, rounds) = (Mode::ALL[mode], self.request.rounds);
        (self.progress)(&format!("{}, {}, round {} of {rounds}", self.installation, mode.name(), round + 1));
        run(self.request, self.installation, self.program, mode, self.library)
    }

    /// There is one rank only.
    fn probe(&mut self, _: usize) -> Option<Probe> {
        None
    }

    fn stopped(&self) -> bool {
        linux::signal::interrupted()
    }
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
        seats: None,
        contained: true,
    };
    let failed = |cause: String| {
        let next = "run it by hand with `plimsoll profile -- mpirun -n 1 PROGRAM`";
        Fault::new(format!("MPI_Send under {installation}, {}", mode.name()), cause, next)
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
