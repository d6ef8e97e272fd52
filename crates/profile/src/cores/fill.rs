//! The samples' part of a summary: cores, the ranks' conditions on them, phases and columns.

use machine::{CoreCapability, Reading};
use record::functions::Class;
use record::samples::Samples;

use super::{Blocked, CLASSES, CoreActivity, Joined, Kept, Presence, RankActivity, Window};
use crate::profile::Profile;
use crate::summary::{
    CoreSeries, CoreSummary, FunctionSummary, Outside, PhaseCore, PhaseRank, RankSeries, RankSummary, Series, Summary,
    ratio,
};
use crate::tables::Tables;

/// Columns of the series; fewer where there are fewer samples.
const COLUMNS: usize = 240;

/// Share of a rank's time on a core below which the core is left out.
const PASSED_BY: f64 = 0.01;

type Seen<'a> = Option<(&'a Samples, Presence<'a>)>;

/// Adds the samples of `profile` to its `summary`. Without samples the summary stays unchanged.
pub fn fill(profile: &Profile, summary: &mut Summary) {
    let joined = Joined::read(profile, summary.job.started);
    summary.job.notes.extend(joined.notes.iter().cloned());
    if joined.samples.is_empty() {
        return;
    }
    let (seen, runs) = seen(profile, &joined);
    hosts(profile, &joined, summary);

    let met: Vec<Option<RankActivity>> = seen
        .iter()
        .zip(&runs)
        .map(|(seen, run)| seen.as_ref().zip(*run).map(|((samples, presence), run)| joined.met(samples, presence, run)))
        .collect();
    let mut inside = [0.0; CLASSES];
    for (rank, met) in summary.ranks.iter_mut().zip(&met) {
        let Some(met) = met else { continue };
        rank.cores = met.cores.clone().map(|cores| cores.into_iter().map(|(core, _)| core).collect());
        (rank.softirq, rank.involuntary) = (met.softirq.clone(), met.involuntary.clone());
        // Sampled stops err in both directions; the kernel's counts are exact.
        let rest = rank.thread_seconds - met.run_delay.value().copied().unwrap_or(0.0);
        rank.stopped = met.stopped.clone().map(|stopped| stopped.min(rest.max(0.0)));
        let whole = rank.thread_seconds;
        if met.run_delay.value().is_some() || rank.run_delay.value().is_none() {
            rank.run_delay = met.run_delay.clone().map(|delay| delay.min(whole));
        }
        rank.stolen = met.stolen.clone().map(|stolen| stolen.min(whole));
        let taken = off_core(rank, &met.kept);
        inside.iter_mut().zip(taken.into_iter().flatten()).for_each(|(sum, taken)| *sum += taken);
    }
    apart(&mut summary.functions, &inside);

    let run = around(runs.iter().flatten());
    let job = summary.job.seconds.map(|to| Window { from: 0.0, to });
    summary.power = super::power::power(&joined, job, run, &summary.phases);
    let Some(whole) = run else { return };
    let cores = joined.cores(whole);
    summary.cores = cores.iter().map(|core| core_summary(core, &joined, &seen, &met, &summary.ranks)).collect();
    summary.capability = joined.capability(seen.iter().flatten(), whole);
    phases(profile, &joined, &seen, summary);
    summary.series = Some(series(&joined, &seen, whole, &cores));
}

/// Each core's share available to ranks while they ran; empty without samples.
pub fn capability(profile: &Profile) -> Vec<CoreCapability> {
    let joined = Joined::read(profile, profile.origin());
    let (seen, runs) = seen(profile, &joined);
    around(runs.iter().flatten()).map_or_else(Vec::new, |whole| joined.capability(seen.iter().flatten(), whole))
}

/// The cores and the run of each rank.
fn seen<'a>(profile: &Profile, joined: &'a Joined) -> (Vec<Seen<'a>>, Vec<Option<Window>>) {
    let seen: Vec<Seen> = profile.ranks.iter().map(|rank| joined.presence(rank)).collect();
    let runs = profile.ranks.iter().zip(&seen).map(|(rank, seen)| Some(run(joined, seen.as_ref()?.0, rank))).collect();
    (seen, runs)
}

/// The window from MPI_Init's return to MPI_Finalize's call.
fn run(joined: &Joined, samples: &Samples, rank: &Tables) -> Window {
    let (from, to) = rank.run();
    window(joined, samples, rank, from, to)
}

/// The window between two moments of a rank, by its host's monotonic clock.
fn window(joined: &Joined, samples: &Samples, rank: &Tables, from: u64, to: u64) -> Window {
    let started = rank.header.started;
    let at = |ticks: u64| {
        let since = (ticks as f64 - started.ticks as f64) * rank.tick * 1e9;
        joined.seconds(samples, started.monotonic as f64 + since)
    };
    Window { from: at(from), to: at(to) }
}

/// Fills in the off-core time of a rank's parts and the rank's time outside MPI. Returns the time taken out of the model's
/// parts, by class; a timeline has the off-core time of its own calls.
fn off_core(rank: &mut RankSummary, kept: &Reading<Kept>) -> Option<[f64; CLASSES]> {
    let untold = || Reading::absent("the kernel of its host does not tell it");
    rank.yielded = kept.clone().map(|kept| kept.yielded);
    let kept = match kept {
        Reading::Measured(kept) | Reading::Modelled(kept) => kept,
        Reading::Absent { reason } | Reading::NotPermitted { reason, .. } => {
            rank.outside = Outside::absent(reason);
            rank.compute_off_core = Reading::absent(reason);
            return None;
        }
    };
    let mut left = rank.compute.max(0.0);
    let mut take = |seconds: f64| {
        let taken = seconds.max(0.0).min(left);
        left -= taken;
        taken
    };
    let (runnable, stopped) = (kept.runnable.map(&mut take), kept.stopped.map(&mut take));
    let blocked = kept.blocked.map(|blocked| blocked.within(take(blocked.all)));
    let of = |seconds: Option<f64>| seconds.map_or_else(untold, Reading::Modelled);
    let of_blocked = |part: fn(&Blocked) -> f64| match &blocked {
        Some(blocked) => Reading::Modelled(part(blocked)),
        None => Reading::absent("the sampler did not tell time blocked from time on a core"),
    };
    rank.outside = Outside {
        on_core: of_blocked(|_| 0.0).map(|_| left),
        runnable: of(runnable),
        stopped: of(stopped),
        blocked: of_blocked(|of| of.all),
        sleep: of_blocked(|of| of.sleep),
        lock: of_blocked(|of| of.lock),
        storage: of_blocked(|of| of.storage),
    };
    rank.compute_off_core = match (runnable, stopped) {
        (None, None) => untold(),
        (runnable, stopped) => Reading::Modelled(runnable.unwrap_or(0.0) + stopped.unwrap_or(0.0)),
    };
    if rank.split.off_core.value().is_some() || (runnable.is_none() && stopped.is_none()) {
        return None;
    }
    let mut taken = [0.0; CLASSES];
    for class in Class::ALL {
        let seconds = kept.inside[class as usize];
        if let Some(of_class) = rank.classes.get_mut(class.name()) {
            of_class.split = std::mem::take(&mut of_class.split).apart(seconds);
            taken[class as usize] = of_class.split.off_core.value().copied().unwrap_or(0.0);
        }
    }
    rank.split = std::mem::take(&mut rank.split).apart(kept.inside.iter().sum());
    Some(taken)
}

/// Subtracts, from the wait of each function of a class, its callers' off-core time inside such calls, as is done
/// for the wait of their ranks.
fn apart(functions: &mut [FunctionSummary], inside: &[f64; CLASSES]) {
    for class in Class::ALL {
        let is_of = |function: &&mut FunctionSummary| {
            function.counted && function.class == class.name() && function.split.off_core.value().is_none()
        };
        let waiting =
            |function: &FunctionSummary| function.split.wait.value().copied().unwrap_or(0.0) + function.split.undivided;
        let mut of_class: Vec<&mut FunctionSummary> = functions.iter_mut().filter(is_of).collect();
        let off = inside[class as usize];
        let waits: f64 = of_class.iter().map(|function| waiting(function)).sum();
        let seconds: f64 = of_class.iter().map(|function| function.seconds).sum();
        for function in of_class.iter_mut().filter(|_| off > 0.0) {
            let share = if off <= waits { ratio(waiting(function), waits) } else { ratio(function.seconds, seconds) };
            function.split = std::mem::take(&mut function.split).apart(off * share);
        }
    }
}

fn around<'a>(windows: impl Iterator<Item = &'a Window>) -> Option<Window> {
    let both = |a: Window, b: Window| Window { from: a.from.min(b.from), to: a.to.max(b.to) };
    windows.copied().reduce(both).filter(|whole| whole.from < whole.to)
}

fn hosts(profile: &Profile, joined: &Joined, summary: &mut Summary) {
    for host in &mut summary.job.hosts {
        let boots = profile.ranks.iter().filter(|rank| rank.host() == host.name).map(|rank| rank.header.boot);
        let of_host = boots
            .map(|boot| record::layout::words(&boot))
            .find_map(|boot| joined.samples.iter().find(|samples| samples.head.boot == boot));
        if let Some(samples) = of_host {
            host.cores = match samples.head.for_ranks {
                Some(cores) => Reading::Measured(cores),
                None => Reading::absent("the sampler does not know which cores its ranks may use"),
            };
        }
    }
}

fn core_summary(
    core: &CoreActivity,
    joined: &Joined,
    seen: &[Seen],
    met: &[Option<RankActivity>],
    ranks: &[RankSummary],
) -> CoreSummary {
    // Place of a rank, its time on this core, and its time on all cores.
    let there = seen.iter().zip(met).enumerate().filter_map(|(place, (seen, met))| {
        let (samples, _) = seen.as_ref()?;
        let cores = met.as_ref()?.cores.value()?;
        let here = cores.iter().find(|(number, _)| *number == core.core)?.1;
        let all: f64 = cores.iter().map(|(_, seconds)| seconds).sum();
        (is_of(joined, samples, core) && here >= PASSED_BY * all).then_some((place, here))
    });
    let there: Vec<(usize, f64)> = there.collect();
    let waits = there.iter().filter_map(|(place, seconds)| {
        let rank = &ranks[*place];
        let share = rank.split.wait.value()? / rank.thread_seconds.max(f64::MIN_POSITIVE);
        Some((share * seconds, *seconds, matches!(rank.split.wait, Reading::Measured(_))))
    });
    let (wait, time, is_measured) =
        waits.fold((0.0, 0.0, true), |(a, b, all), (wait, time, measured)| (a + wait, b + time, all && measured));
    CoreSummary {
        host: core.host.clone(),
        core: core.core,
        busy: core.busy.clone(),
        softirq_rx: core.rx.clone(),
        softirq_rx_seconds: core.rx_seconds.clone(),
        softirq_tx: core.tx.clone(),
        softirq_tx_seconds: core.tx_seconds.clone(),
        interrupts: core.interrupts.clone(),
        ranks: there.iter().map(|(place, _)| *place).collect(),
        wait_share: match () {
            () if time <= 0.0 => Reading::absent("no rank was seen on it"),
            () if is_measured => Reading::Measured(wait / time),
            () => Reading::Modelled(wait / time),
        },
        energy: core.energy.clone(),
    }
}

/// Whether `samples` contain a core.
fn is_of(joined: &Joined, samples: &Samples, core: &CoreActivity) -> bool {
    let same = |other: &&Samples| other.head.host == core.host && other.cores.contains_key(&core.core);
    joined.samples.iter().filter(same).any(|other| other.head.boot == samples.head.boot)
}

fn phases(profile: &Profile, joined: &Joined, seen: &[Seen], summary: &mut Summary) {
    let place_of =
        |core: &CoreActivity| summary.cores.iter().position(|known| known.host == core.host && known.core == core.core);
    // Phases of one world follow each other in the summary.
    let mut nth = 0;
    let mut world = None;
    for phase in &mut summary.phases {
        nth = if world == Some(phase.world) { nth + 1 } else { 0 };
        world = Some(phase.world);
        let window = Window { from: phase.from, to: phase.to };
        phase.cores = joined
            .cores(window)
            .iter()
            .filter_map(|core| {
                Some(PhaseCore {
                    core: place_of(core)?,
                    busy: core.busy.clone(),
                    softirqs: sum(&core.rx, &core.tx),
                    softirq_seconds: sum(&core.rx_seconds, &core.tx_seconds),
                    interrupts: core.interrupts.clone(),
                })
            })
            .collect();
        let ranks = profile.ranks.iter().zip(seen).enumerate().filter(|(_, (rank, _))| rank.world == phase.world);
        phase.ranks = ranks
            .filter_map(|(place, (rank, seen))| {
                let (samples, presence) = seen.as_ref()?;
                let own = own_phase(joined, samples, rank, nth, phase.level).unwrap_or(window);
                let met = joined.met(samples, presence, own);
                Some(PhaseRank {
                    rank: place,
                    seconds: own.to - own.from,
                    mpi: met.mpi,
                    softirq: met.softirq,
                    involuntary: met.involuntary,
                })
            })
            .collect();
    }
}

/// The rank's own phase number `nth`, where its level is the same.
fn own_phase(joined: &Joined, samples: &Samples, rank: &Tables, nth: usize, level: i32) -> Option<Window> {
    let phase = rank.phases.get(nth).filter(|phase| phase.level == level)?;
    let end = rank.phases.get(nth + 1).map_or(rank.run().1, |next| next.ticks);
    Some(window(joined, samples, rank, phase.ticks, end.max(phase.ticks)))
}

fn sum(one: &Reading<f64>, other: &Reading<f64>) -> Reading<f64> {
    match other.value() {
        Some(more) => one.clone().map(|value| value + more),
        None => other.clone(),
    }
}

fn series(joined: &Joined, seen: &[Seen], whole: Window, cores: &[CoreActivity]) -> Series {
    let length = whole.to - whole.from;
    let finest = joined.samples.iter().map(|s| s.head.interval.saturating_mul(s.stride)).max().unwrap_or(1).max(1);
    let columns = ((length * 1e9 / finest as f64) as usize).clamp(1, COLUMNS);
    let step = length / columns as f64;
    let column = |nth: usize| Window { from: whole.from + nth as f64 * step, to: whole.from + (nth + 1) as f64 * step };
    let mut series = Series { from: whole.from, step, columns, ..Series::default() };
    series.cores = cores
        .iter()
        .map(|core| CoreSeries { host: core.host.clone(), core: core.core, ..CoreSeries::default() })
        .collect();
    let over = |value: &Reading<f64>| value.value().map(|value| (value / step) as f32);
    for nth in 0..columns {
        let activities = joined.cores(column(nth));
        for (row, core) in series.cores.iter_mut().zip(&activities) {
            row.busy.push(core.busy.value().map(|busy| *busy as f32));
            row.softirq.push(over(&sum(&core.rx_seconds, &core.tx_seconds)).map(|share| share.min(1.0)));
            row.softirqs.push(over(&sum(&core.rx, &core.tx)));
            row.interrupts.push(over(&core.interrupts));
        }
    }
    for (place, seen) in seen.iter().enumerate() {
        let Some((samples, presence)) = seen else { continue };
        let mut row = RankSeries { rank: place, ..RankSeries::default() };
        for nth in 0..columns {
            let met = joined.met(samples, presence, column(nth));
            row.mpi.push(over(&met.mpi).map(|share| (share / presence.threads() as f32).min(1.0)));
            row.calls.push(over(&met.calls));
            row.core.push(met.cores.value().and_then(|cores| cores.first().map(|(core, _)| *core)));
        }
        series.ranks.push(row);
    }
    series
}
