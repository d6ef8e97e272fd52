//! NetPIPE's ping-pong of 8 bytes over shared memory.

use std::path::Path;

use machine::{Fault, Probe, Result};
use rounds::blocks::{self, Blocks, Plan, Series};
use rounds::bound::{Bound, Verdict};
use rounds::clocks::Clocks;
use rounds::estimate::Estimate;
use rounds::point::{Pattern, PointSpec, Stack};
use rounds::statistics::median_interval;

use super::{MESSAGE_RATIO, Message, Mode, Profiled, Request};
use crate::reference::netpipe;

const SEED: u64 = 0x0051_1A11_0000_0006;

pub fn measure(request: &Request, library: &Path, progress: &mut impl FnMut(&str)) -> Message {
    let spec = PointSpec::plain(Stack::OpenMpi, Pattern::PingPong, 8, request.cores);
    let plan = Plan { groups: vec![Mode::ALL.len()], rounds: request.rounds, seed: SEED };
    let mut starts = Starts { request, spec, library, progress };
    let (all, _) = blocks::conduct(&mut starts, &plan, |_, all| {
        let [bare, tables, _] = all else { return false };
        Bound::AtMost(MESSAGE_RATIO).judge(ratio(tables, bare)) == Verdict::CannotTell
    });
    let [bare, tables, timeline] = &all[..] else { unreachable!("a series for each mode") };
    let probes = all.iter().flat_map(|of| &of.blocks).flat_map(|taken| taken.probes).flatten();
    Message {
        bare: median_interval(&bare.values(|value| Some(*value))),
        tables: ratio(tables, bare),
        timeline: ratio(timeline, bare),
        probes: probes.collect(),
        failures: all.iter().flat_map(|of| of.failures.clone()).collect(),
    }
}

fn ratio(with: &Series<f64>, bare: &Series<f64>) -> Option<Estimate> {
    with.over(bare, |value| Some(*value)).interval()
}

struct Starts<'a, P> {
    request: &'a Request,
    spec: PointSpec,
    library: &'a Path,
    progress: P,
}

impl<P: FnMut(&str)> Blocks for Starts<'_, P> {
    type Block = f64;

    fn block(&mut self, mode: usize, round: u32) -> Result<f64> {
        let (mode, rounds) = (Mode::ALL[mode], self.request.rounds);
        (self.progress)(&format!("NetPIPE, {}, round {} of {rounds}", mode.name(), round + 1));
        let profiled = Profiled::new(mode, self.library)?;
        let reference = netpipe::measure_with(&self.spec, None, &profiled.variables)?;
        let (sends, _) = profiled.recorded()?;
        if (sends > 0) != (mode != Mode::Bare) {
            let cause = format!("{sends} sends were recorded");
            let next = "run it by hand with `plimsoll profile -- mpirun -n 2 NPopenmpi`";
            return Err(Fault::new(format!("NetPIPE, {}", mode.name()), cause, next));
        }
        Ok(reference.value)
    }

    fn probe(&mut self, _: usize) -> Option<Probe> {
        crate::probe(self.request.cores.0, self.request.cores.1)
    }

    fn clocks(&mut self, _: usize) -> Clocks {
        crate::clocks([self.request.cores.0, self.request.cores.1])
    }

    fn stopped(&self) -> bool {
        linux::signal::interrupted()
    }
}
