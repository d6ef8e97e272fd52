//! Clocks of cores, fixed while a value lives: both limits of cpufreq are set to one clock, which works under every
//! governor of acpi-cpufreq, intel_pstate, amd_pstate and the others.
//!
//! Settings are read back, and compared with the effective clock of the cores under load. They are restored like
//! steering: when the value is dropped, by a keeper where its owner is killed, by the journal where both are.

mod limit;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use machine::frequency::{Clock, ClockPolicy};
use machine::{CoreId, CpuSet, Fault, Hertz, Reading, Result, Source};

use crate::accounting::clock_under_load;
use crate::journal::{self, Journal, JournaledSetting as _};
use crate::warden::Warden;
pub use limit::Limit;

/// Relative error within which an effective clock is the one asked for.
const HELD: f64 = 0.03;

/// How long a core works before its clock is probed: longer than a transition and the controller's period.
const SETTLES: Duration = Duration::from_millis(30);

/// Name of the machine's only journal.
const NAME: &str = "machine";

/// The clock and the cores asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub clock: Hertz,
    /// The cores; `None`: all of the machine.
    pub cores: Option<CpuSet>,
}

/// One limit before and after, read back, kHz.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitChange {
    pub limit: Limit,
    pub before: u32,
    pub now: u32,
}

impl std::fmt::Display for LimitChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let LimitChange { limit, before, now } = self;
        write!(f, "{limit}: {}, was {}", limit.shown(&[*now]), limit.shown(&[*before]))
    }
}

/// The effective clock of a core under load, and the one asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Verified {
    pub core: CoreId,
    pub asked: Hertz,
    pub effective: Reading<Hertz>,
}

impl Verified {
    /// Probes `cores` of this host, one after the other, 30 ms each.
    pub fn here(cores: impl IntoIterator<Item = CoreId>, asked: Hertz) -> Vec<Verified> {
        let of = |core| Verified { core, asked, effective: clock_under_load(core, Some(SETTLES)) };
        cores.into_iter().map(of).collect()
    }

    /// Whether the core runs at the clock asked for; `None` where that cannot be told.
    pub fn holds(&self) -> Option<bool> {
        let effective = self.effective.value()?.0 as f64;
        Some((effective / self.asked.0 as f64 - 1.0).abs() <= HELD)
    }

    /// A note on the difference, where there is one.
    pub fn departure(&self) -> Option<String> {
        let Verified { core, asked, effective } = self;
        match (self.holds(), effective) {
            (Some(true), _) => None,
            (_, Reading::Measured(effective) | Reading::Modelled(effective)) => Some(format!(
                "{core}: asked for {asked}, its effective clock is {effective}: firmware, a hypervisor, a limit of power or heat, \
                 or another policy decides it. Next: take the effective clock for what ran, or measure on another machine"
            )),
            (_, Reading::Absent { reason } | Reading::NotPermitted { reason, .. }) => {
                Some(format!("{core}: not verified under load: {reason}"))
            }
        }
    }
}

/// Fixed clocks of cores, for as long as this lives.
pub struct ClockSet {
    settings: Vec<LimitChange>,
    verified: Vec<Verified>,
    notes: Vec<String>,
    // Dropped before the journal is removed.
    _keeper: Option<Warden>,
    journal: Journal<Limit>,
}

impl ClockSet {
    /// Sets clocks. `keeper` is a command that calls [`keep`] with its last argument: this program.
    ///
    /// # Errors
    /// There is no cpufreq here, no such core or clock, another run sets clocks, or the kernel refuses; nothing stays
    /// changed then.
    pub fn begin(request: &Request, keeper: Command) -> Result<ClockSet> {
        ClockSet::below(Path::new("/"), request, keeper)
    }

    /// As [`ClockSet::begin`], with the files below `root`: this host's, or a copy, whose cores are not probed.
    pub fn below(root: &Path, request: &Request, keeper: Command) -> Result<ClockSet> {
        match root == Path::new("/") {
            true => ClockSet::at(root, &Source::live(), request, Verified::here, Some(keeper)),
            false => ClockSet::at(root, &Source::open(root)?, request, not_here, Some(keeper)),
        }
    }

    fn at<V>(root: &Path, source: &Source, request: &Request, verify: V, keeper: Option<Command>) -> Result<ClockSet>
    where
        V: FnOnce(Vec<CoreId>, Hertz) -> Vec<Verified>,
    {
        let plan = plan(source, request)?;
        let mut journal = Journal::open(root, NAME, "clocks")?;
        let notes = [journal.restore(), plan.notes].concat();
        let keeper = keeper.map(|command| journal.start_keeper(command)).transpose()?;
        let mut set = ClockSet { settings: Vec::new(), verified: Vec::new(), notes, _keeper: keeper, journal };
        let kilohertz = u32::try_from(request.clock.0 / 1000).unwrap_or(u32::MAX);
        for policy in plan.policies {
            // The limits must never cross: the kernel refuses that, or moves the other one.
            let highest = Limit::Highest(policy).read(root).ok().and_then(|value| value.first().copied());
            let up = highest.is_some_and(|highest| kilohertz > highest);
            let limits = [Limit::Lowest(policy), Limit::Highest(policy)];
            for limit in if up { [limits[1], limits[0]] } else { limits } {
                let before = set.journal.change(limit, vec![kilohertz])?;
                let before = before.first().copied().unwrap_or_default();
                set.settings.push(LimitChange { limit, before, now: kilohertz });
            }
        }
        set.verified = verify(plan.probed, request.clock);
        set.notes.extend(set.verified.iter().filter_map(Verified::departure));
        Ok(set)
    }

    /// The settings, as read back.
    pub fn settings(&self) -> &[LimitChange] {
        &self.settings
    }

    /// The effective clock under load of one core of each policy, after the setting.
    pub fn verified(&self) -> &[Verified] {
        &self.verified
    }

    /// Whether every probed core runs at the clock asked for; `None` where none could be probed.
    pub fn holds(&self) -> Option<bool> {
        self.verified.iter().filter_map(Verified::holds).reduce(|all, one| all && one)
    }

    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Restores the clocks; returns notes on settings that did not hold or could not be restored.
    pub fn end(mut self) -> Vec<String> {
        self.journal.restore()
    }
}

impl Drop for ClockSet {
    fn drop(&mut self) {
        self.journal.restore();
    }
}

fn not_here(cores: Vec<CoreId>, asked: Hertz) -> Vec<Verified> {
    let effective = || Reading::absent("these files are a copy: no core obeys them");
    cores.into_iter().map(|core| Verified { core, asked, effective: effective() }).collect()
}

/// The fault of a machine without cpufreq, with an alternative.
pub fn no_cpufreq() -> Fault {
    Fault::new(
        "clocks",
        "this machine has no cpufreq: a hypervisor or its firmware sets them",
        "inside a Slurm job of nodes that have it, srun sets them; else stretch protocol work, which is no clock: plimsoll bench \
         dilate K, plimsoll mpirun --dilate K, or try --vary dilate=1,2",
    )
}

struct Plan {
    policies: Vec<u32>,
    /// The first requested core of each policy.
    probed: Vec<CoreId>,
    notes: Vec<String>,
}

fn plan(source: &Source, request: &Request) -> Result<Plan> {
    let all = Clock::each(source);
    if all.is_empty() {
        return Err(no_cpufreq());
    }
    if let Some(cores) = &request.cores {
        crate::steering::check_on_line(source, cores, "choose among these")?;
    }
    let clock = Clock::read(source);
    let asked = |policy: &ClockPolicy| match &request.cores {
        Some(cores) => policy.cores.intersection(cores),
        None => policy.cores.clone(),
    };
    let mut plan = Plan { policies: Vec::new(), probed: Vec::new(), notes: Vec::new() };
    for (number, policy) in all {
        let cores = asked(&policy);
        let Some(first) = cores.first() else { continue };
        possible(source, number, &policy, &clock, request.clock)?;
        let beside = policy.cores.difference(&cores);
        if !beside.is_empty() {
            plan.notes.push(format!("cores {beside} share a policy with cores {cores}: their clock is set too"));
        }
        plan.policies.push(number);
        plan.probed.push(first);
    }
    match plan.policies.is_empty() {
        true => Err(Fault::new(
            "clocks",
            "no policy of cpufreq is for these cores",
            "name others: `plimsoll clock` shows them",
        )),
        false => Ok(plan),
    }
}

/// Checks that the policy can have the clock.
fn possible(source: &Source, number: u32, policy: &ClockPolicy, clock: &Clock, asked: Hertz) -> Result<()> {
    let subject = || format!("clock {asked} of cores {}", policy.cores);
    let ends = policy.hardware_low.zip(policy.hardware_high);
    if let Some((low, high)) = ends.filter(|(low, high)| asked < *low || asked > *high) {
        return Err(Fault::new(subject(), format!("they run at {low} to {high}"), "ask for a clock within that"));
    }
    if let Some(base) = policy.base.filter(|base| asked > *base && clock.boost == Some(false)) {
        let cause = format!("boost is off, so that they run at {base} at most");
        return Err(Fault::new(subject(), cause, "ask for no more, or switch boost on"));
    }
    let path = format!("/sys/devices/system/cpu/cpufreq/policy{number}/scaling_available_frequencies");
    let mut steps: Vec<Hertz> = source
        .word(&path)
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|kilohertz| kilohertz.parse::<u64>().ok()?.checked_mul(1000).map(Hertz))
        .collect();
    steps.sort_unstable();
    if !steps.is_empty() && !steps.contains(&asked) {
        let below = steps.iter().rfind(|step| **step < asked);
        let above = steps.iter().find(|step| **step > asked);
        let near: Vec<String> = below.into_iter().chain(above).map(Hertz::to_string).collect();
        let cause = "the driver has steps, and this is none of them";
        return Err(Fault::new(subject(), cause, format!("ask for {}", near.join(" or "))));
    }
    Ok(())
}

/// Checks whether clocks below `root` can be set as asked, without setting them.
///
/// # Errors
/// There is no cpufreq, no such core or clock.
pub fn check(root: &Path, request: &Request) -> Result<()> {
    plan(&source(root)?, request).map(drop)
}

fn source(root: &Path) -> Result<Source> {
    if root == Path::new("/") { Ok(Source::live()) } else { Source::open(root) }
}

/// The fault of cores that run at another clock than asked for.
pub fn not_held(asked: Hertz, verified: &[Verified]) -> Fault {
    let departed = verified.iter().filter(|of| of.holds() == Some(false));
    let of = |of: &Verified| Some(format!("{} at {}", of.core, of.effective.value()?));
    let cores: Vec<String> = departed.filter_map(of).collect();
    Fault::new(
        format!("clock {asked}"),
        format!("its cores do not hold it: under load {}", cores.join(", ")),
        "firmware, a hypervisor, a limit of power or heat, or another policy decides it: measure on another machine",
    )
}

/// Whether this process may set clocks below `root`; `None` where there are none to set.
pub fn permitted(root: &Path) -> Option<bool> {
    let (number, _) = Clock::each(&source(root).ok()?).into_iter().next()?;
    let file = root.join(format!("sys/devices/system/cpu/cpufreq/policy{number}/scaling_max_freq"));
    Some(std::fs::OpenOptions::new().write(true).open(file).is_ok())
}

/// Restores clocks that killed runs left set below `root`; returns notes.
pub fn restore_remains(root: &Path) -> Result<Vec<String>> {
    journal::restore_remains::<Limit>(root, |_| Some("clocks".to_owned()))
}

/// The keeper: waits for its owner's end and restores what that left set. Standard input and output are the owner's.
pub fn keep(path: &Path) -> Result<()> {
    journal::keep::<Limit>(path)
        .map_err(|error| Fault::because("keeper of clocks", error, "leave it to `plimsoll clock`"))
}
