//! Conditions and readings around the runs of a study file: the clock of the cores, and the power that the machine draws.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use experiment::axes::{Axes, Value};
use experiment::cause::{Cause, Failure};
use linux::accounting::clock_under_load;
use linux::clock_setting::{self, ClockSet, Request, not_held};
use linux::power::{Meter, Source};
use machine::power::{Covers, EnergyReading, total};
use machine::{CoreId, Fault, Hertz, Joules, Reading, Result};
use rounds::clocks::as_fast;

use crate::campaign::{Instruments, Readings};
use crate::srun_clock::{self, Setter};

/// The instruments of this host.
pub struct Here {
    /// Root of the clock settings: `/`, or a copy of /sys.
    root: PathBuf,
    /// The meter or the reason for its absence, where power is requested.
    power: Option<Result<Meter, String>>,
    /// The core whose clock is timed, and its clock before the run.
    core: Option<CoreId>,
    clock: Option<Hertz>,
    /// The clock that is set for the run under way, and notes on the setting.
    set: Option<ClockSet>,
    notes: Vec<String>,
    /// Notes of earlier runs.
    told: BTreeSet<String>,
}

/// Most readings until two in a row agree; a clock that does not settle is unknown.
const READINGS: usize = 6;

impl Here {
    /// Instruments with the sources that a study names. For sources that this host lacks, [`Instruments::cannot`] gives the
    /// reason. Clocks are set below `root`.
    pub fn new(sources: &[String], root: &Path) -> Here {
        let open = || {
            let named = sources.iter().map(|source| source.parse::<Source>()).collect::<Result<Vec<_>>>()?;
            Meter::open(&named)
        };
        let power = (!sources.is_empty()).then(|| open().map_err(|fault| told(&fault)));
        let core = linux::affinity::allowed().ok().and_then(|cores| cores.first().copied());
        Here { root: root.to_owned(), power, core, clock: None, set: None, notes: Vec::new(), told: BTreeSet::new() }
    }

    /// The clock that a point requests, and the means to set it.
    fn asked(&self, axes: &Axes) -> Result<Option<(Request, Setter)>> {
        let Some(value) = axes.get("clock") else { return Ok(None) };
        let request = Request { clock: value.to_string().parse()?, cores: None };
        let setter = srun_clock::setter(&self.root)?;
        if setter == Setter::Cpufreq {
            clock_setting::check(&self.root, &request)?;
        }
        let nodes = axes.get("nodes").and_then(Value::magnitude);
        if let Some(nodes) = nodes.filter(|nodes| *nodes > 1.0) {
            let next = "write {clock} into the command, such as srun --cpu-freq, or leave it to plimsoll campaign submit --slurm";
            return Err(Fault::new("clock", format!("plimsoll sets it on this host alone, not on {nodes}"), next));
        }
        Ok(Some((request, setter)))
    }

    fn set_clock(&mut self, axes: &Axes) -> Result<(), Failure> {
        let refused = |fault: Fault| Failure::new(Cause::ClockNotSet, told(&fault));
        // A step of Slurm sets its own clock, and verifies it.
        let Some((request, Setter::Cpufreq)) = self.asked(axes).map_err(refused)? else { return Ok(()) };
        let keeper = || {
            let own = machine::here::program()?;
            let mut keeper = Command::new(own);
            keeper.arg("clock-keeper");
            Ok(keeper)
        };
        let set = keeper().and_then(|keeper| ClockSet::below(&self.root, &request, keeper)).map_err(refused)?;
        if set.holds() == Some(false) {
            return Err(refused(not_held(request.clock, set.verified())));
        }
        self.notes = set.notes().to_vec();
        self.set = Some(set);
        Ok(())
    }
}

fn told(fault: &Fault) -> String {
    format!("{}: {}. Next: {}", fault.subject(), fault.cause(), fault.next())
}

impl Instruments for Here {
    fn cannot(&self, axes: &Axes) -> Option<String> {
        let clock = self.asked(axes).err().map(|fault| told(&fault));
        clock.or_else(|| self.power.as_ref().and_then(|meter| meter.as_ref().err().cloned()))
    }

    fn starts_by(&self, axes: &Axes) -> Vec<String> {
        match self.asked(axes) {
            Ok(Some((Request { clock, .. }, Setter::Step { .. }))) => {
                vec!["clock".into(), format!("{}kHz", clock.0 / 1000), "--held".into(), "--".into()]
            }
            _ => Vec::new(),
        }
    }

    fn before(&mut self, axes: &Axes) -> Result<(), Failure> {
        self.set_clock(axes)?;
        self.clock = self.timed();
        match &mut self.power {
            Some(Ok(meter)) => meter.begin(),
            Some(Err(why)) => {
                self.set = None;
                return Err(Failure::new(Cause::SensorStopped, why.clone()));
            }
            None => {}
        }
        Ok(())
    }

    fn after(&mut self) -> Result<Readings, Failure> {
        let drawn = match &mut self.power {
            Some(Ok(meter)) => Some(meter.end()),
            _ => None,
        };
        let after = self.timed();
        let mut notes = std::mem::take(&mut self.notes);
        let moved = self.set.take().map_or(Vec::new(), ClockSet::end);
        if !moved.is_empty() {
            return Err(Failure::new(Cause::ClockChanged, moved.join("; ")));
        }
        steady(self.clock, after)?;
        let clocks = [self.clock, after];
        notes.retain(|note| self.told.insert(note.clone()));
        let note = (!notes.is_empty()).then(|| notes.join("; "));
        let Some(drawn) = drawn else { return Ok(Readings { clocks, note, ..Readings::default() }) };
        let (joules, seconds) = of_machine(&drawn)?;
        let watts = (seconds > 0.0).then(|| joules.0 / seconds);
        Ok(Readings { watts, joules: Some(joules.0), clocks, note })
    }
}

impl Here {
    /// Clock of the core, by two readings in a row that agree: a hypervisor may take the core away during one.
    fn timed(&self) -> Option<Hertz> {
        let mut before = None;
        for _ in 0..READINGS {
            let now = clock_under_load(self.core?, None).value().copied()?;
            if before.is_some_and(|before| as_fast(before, now)) {
                return Some(now);
            }
            before = Some(now);
        }
        None
    }
}

/// Fails a run that began at one clock and ended at another.
fn steady(before: Option<Hertz>, after: Option<Hertz>) -> Result<(), Failure> {
    match (before, after) {
        (Some(before), Some(after)) if !as_fast(before, after) => {
            Err(Failure::new(Cause::ClockChanged, format!("{before} before the run, {after} after it")))
        }
        _ => Ok(()),
    }
}

/// Energy that the machine drew, and seconds: by a sensor of the whole host; else by a source that the user named without
/// its coverage; else by packages and their memory.
fn of_machine(drawn: &[EnergyReading]) -> Result<(Joules, f64), Failure> {
    let covering = |covers: Covers| drawn.iter().find(|drawn| drawn.sensor.covers == covers);
    let stopped = |why: String| Failure::new(Cause::SensorStopped, why);
    if let Some(of) = covering(Covers::Node).or_else(|| covering(Covers::Unstated)) {
        let gap = || of.gaps.iter().max_by_key(|gap| gap.length()).map_or("it told nothing", |gap| &gap.cause);
        return match (&of.joules, &of.watts) {
            (Reading::Measured(joules), Reading::Measured(watts)) if of.is_whole() => {
                Ok((*joules, if watts.0 > 0.0 { joules.0 / watts.0 } else { 0.0 }))
            }
            _ => Err(stopped(format!("{}: {}", of.sensor.name, gap()))),
        };
    }
    let seconds = drawn.iter().find_map(|drawn| match (&drawn.joules, &drawn.watts) {
        (Reading::Measured(joules), Reading::Measured(watts)) if watts.0 > 0.0 => Some(joules.0 / watts.0),
        _ => None,
    });
    match total(drawn, "rapl") {
        Reading::Measured(joules) | Reading::Modelled(joules) => Ok((joules, seconds.unwrap_or(0.0))),
        Reading::Absent { reason } | Reading::NotPermitted { reason, .. } => Err(stopped(reason)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_changed_underneath_costs_the_run() {
        let [full, near, low] = [3_800, 3_780, 1_900].map(|megahertz| Some(Hertz(megahertz * 1_000_000)));
        assert!(steady(full, near).is_ok() && steady(full, None).is_ok() && steady(None, low).is_ok());
        let failure = steady(full, low).unwrap_err();
        assert_eq!(failure.cause, Cause::ClockChanged);
        assert!(failure.to_string().contains("3.8 GHz before the run, 1.9 GHz after it"), "{failure}");
    }

    #[test]
    fn every_run_has_its_clock() {
        let mut here = Here::new(&[], Path::new("/"));
        here.before(&Axes::default()).unwrap();
        let known = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));
        // On a busy machine the clock may really change.
        let clocks = here.after().map_or([here.clock; 2], |readings| readings.clocks);
        assert!(known || clocks == [None; 2], "{clocks:?}");
        assert!(clocks.iter().flatten().all(|clock| (50_000_000..20_000_000_000).contains(&clock.0)), "{clocks:?}");
    }
}
