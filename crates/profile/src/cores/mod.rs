//! Activity of the cores while the ranks ran, and its effect on the ranks: samples joined with tables.
//!
//! Every figure is of a window of time, be it the whole run, a phase that the program marked or a column of a
//! chart, so that the three agree. Paper 002 shows these figures in its Figure 4 (protocol work by core) and, with the
//! ranks' own split, in its Figures 7 and 11.

mod capability;
mod fill;
mod kept;
mod power;
mod presence;
#[cfg(test)]
mod tests;

use machine::Reading;
use record::samples::{CoreLoad, CoreSamples, CoreWork, Samples, Series, Totals};

pub use fill::{capability, fill};
pub use kept::{Blocked, Kept};
pub use presence::Presence;

use crate::profile::Profile;
use crate::tables::Tables;

/// Classes of functions that samples tell apart.
pub const CLASSES: usize = 12;

/// A window of time, from and to: seconds since the job began.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    pub from: f64,
    pub to: f64,
}

/// A window on a host's CLOCK_MONOTONIC, ns.
type Span = (u64, u64);

/// The activity of one core in a window.
#[derive(Debug, Clone, PartialEq)]
pub struct CoreActivity {
    pub host: String,
    pub core: u32,
    /// Share of time not idle; time that a hypervisor gave to others counts as busy.
    pub busy: Reading<f64>,
    /// Network softirqs, and seconds in them.
    pub rx: Reading<f64>,
    pub rx_seconds: Reading<f64>,
    pub tx: Reading<f64>,
    pub tx_seconds: Reading<f64>,
    /// Time in softirqs of all kinds.
    pub softirq_seconds: Reading<f64>,
    /// Interrupts from devices and other cores.
    pub interrupts: Reading<f64>,
    /// Joules of its package.
    pub energy: Reading<f64>,
}

/// The conditions of one rank in a window.
#[derive(Debug, Clone, PartialEq)]
pub struct RankActivity {
    /// Cores of its threads with the seconds on each, the longest first.
    pub cores: Reading<Vec<(u32, f64)>>,
    /// Seconds of network softirqs on those cores while the rank was there: shared by all ranks on the core.
    pub softirq: Reading<f64>,
    /// Involuntary context switches.
    pub involuntary: Reading<u64>,
    /// Seconds that a hypervisor took from those cores while the rank was there.
    pub stolen: Reading<f64>,
    /// Seconds that its threads were stopped.
    pub stopped: Reading<f64>,
    /// Seconds that its threads were runnable while others had their core.
    pub run_delay: Reading<f64>,
    /// Stopped, runnable and blocked time by place: inside MPI or outside.
    pub kept: Reading<Kept>,
    /// Seconds inside MPI, of all its threads.
    pub mpi: Reading<f64>,
    pub calls: Reading<f64>,
    /// Processor seconds, of all its threads.
    pub cpu: Reading<f64>,
}

/// The samples of a profile beside its ranks.
#[derive(Debug, Clone, Default)]
pub struct Joined {
    /// The samples by host; several of one host where its sampler was restarted.
    pub samples: Vec<Samples>,
    /// When the job began, ns since 1970.
    pub origin: u64,
    /// Files that could not be read, and notes of the samplers.
    pub notes: Vec<String>,
}

impl Joined {
    /// Reads the samples of all hosts. `origin`: when the job began, ns since 1970.
    pub fn read(profile: &Profile, origin: u64) -> Joined {
        let mut joined = Joined { origin, ..Joined::default() };
        for file in Samples::files(&profile.folder) {
            match Samples::open(&file) {
                Ok(samples) => joined.add(samples, profile.over()),
                Err(fault) => joined.notes.push(format!("left out: {fault}")),
            }
        }
        joined
    }

    fn add(&mut self, samples: Samples, over: bool) {
        let host = &samples.head.host;
        self.notes.extend(samples.notes.iter().map(|note| format!("samples of {host}: {note}")));
        if samples.ended.is_none() && over {
            self.notes.push(format!("samples of {host}: they end before the job, since the sampler was killed"));
        }
        self.samples.push(samples);
    }

    /// The activity of every core in `window`, by host and core.
    pub fn cores(&self, window: Window) -> Vec<CoreActivity> {
        let of_host = |samples: &Samples| {
            let span = self.span(samples, window);
            let cores: Vec<_> = samples.cores.iter().map(|(core, c)| activity(samples, *core, c, span)).collect();
            cores
        };
        self.samples.iter().flat_map(of_host).collect()
    }

    /// The conditions of `rank` in `window`.
    pub fn rank(&self, rank: &Tables, window: Window) -> RankActivity {
        let Some((samples, presence)) = self.presence(rank) else {
            let reason = "nothing was sampled on its host";
            return RankActivity {
                cores: Reading::absent(reason),
                softirq: Reading::absent(reason),
                involuntary: Reading::absent(reason),
                stolen: Reading::absent(reason),
                stopped: Reading::absent(reason),
                run_delay: Reading::absent(reason),
                kept: Reading::absent(reason),
                mpi: Reading::absent(reason),
                calls: Reading::absent(reason),
                cpu: Reading::absent(reason),
            };
        };
        self.met(samples, &presence, window)
    }

    /// The presence of `rank` on cores; `None` where its host was not sampled.
    pub fn presence(&self, rank: &Tables) -> Option<(&Samples, Presence<'_>)> {
        let boot = record::layout::words(&rank.header.boot);
        let mut of_host = self.samples.iter().filter(|samples| samples.head.boot == boot);
        let samples =
            of_host.clone().find(|samples| samples.ranks.contains_key(&rank.header.pid)).or_else(|| of_host.next())?;
        Some((samples, Presence::of(samples, rank)?))
    }

    /// [`Joined::rank`] for a known presence.
    pub fn met(&self, samples: &Samples, presence: &Presence, window: Window) -> RankActivity {
        let span = self.span(samples, window);
        let origins = &samples.head.origins;
        let seconds = |work: &CoreWork| work.net_rx_time.saturating_add(work.net_tx_time);
        let softirq = |core: &CoreSamples, (from, to): Span| core.work.between(from, to, seconds);
        let stolen = |core: &CoreSamples, (from, to): Span| core.load.between(from, to, |load| load.stolen);
        let cores = presence.cores(span);
        let or_absent = |value: Option<f64>| value.map_or_else(unseen, Reading::Measured);
        RankActivity {
            softirq: of(&origins.softirq_times, met(samples, presence, span, softirq)),
            stolen: of(&origins.load, met(samples, presence, span, stolen)),
            cores: if cores.is_empty() { unseen() } else { Reading::Measured(cores) },
            involuntary: presence.involuntary(span).map_or_else(unseen, |n| Reading::Measured(n.round() as u64)),
            stopped: presence.stopped(span).map_or_else(|| untold(presence), Reading::Measured),
            run_delay: presence.run_delay(span).map_or_else(|| untold(presence), Reading::Measured),
            kept: presence.kept(span).map_or_else(|| untold(presence), Reading::Modelled),
            mpi: or_absent(presence.mpi(span)),
            calls: or_absent(presence.calls(span)),
            cpu: or_absent(presence.cpu(span)),
        }
    }

    /// `window` on the clock of a host, between hosts as exact as their real-time clocks agree.
    fn span(&self, samples: &Samples, window: Window) -> Span {
        let since = (i128::from(self.origin) - i128::from(samples.head.realtime)) as f64;
        let at = |seconds: f64| {
            let offset = (since + seconds * 1e9).round();
            samples.head.monotonic.saturating_add_signed(offset as i64)
        };
        (at(window.from), at(window.to))
    }

    /// Seconds since the job began, of a moment on the clock of a host.
    fn seconds(&self, samples: &Samples, monotonic: f64) -> f64 {
        let since = (i128::from(samples.head.realtime) - i128::from(self.origin)) as f64;
        (monotonic - samples.head.monotonic as f64 + since) / 1e9
    }
}

/// Seconds of a total on the cores of a rank while it was there. `None` where a core is not in the samples, or was not
/// sampled then.
fn met(
    samples: &Samples,
    presence: &Presence,
    span: Span,
    of: impl Fn(&CoreSamples, Span) -> Option<f64>,
) -> Option<f64> {
    let mut sum = None;
    for (core, stay) in presence.stays_within(span) {
        let core = samples.cores.get(&core)?;
        if let Some(nanoseconds) = of(core, stay) {
            *sum.get_or_insert(0.0) += nanoseconds.min((stay.1 - stay.0) as f64) / 1e9;
        }
    }
    sum
}

fn activity(samples: &Samples, core: u32, of_core: &CoreSamples, span: Span) -> CoreActivity {
    let origins = &samples.head.origins;
    let grown = |total: fn(&CoreWork) -> u64| of_core.work.between(span.0, span.1, total);
    let looked = overlap(&of_core.work, span).unwrap_or(0.0);
    let seconds = |total: fn(&CoreWork) -> u64, rest: f64| grown(total).map(|ns| ns.min(rest) / 1e9);
    let rx_seconds = seconds(|work| work.net_rx_time, looked);
    let tx_seconds = seconds(|work| work.net_tx_time, looked - rx_seconds.map_or(0.0, |seconds| seconds * 1e9));
    let package = samples.head.cores.iter().find(|(known, _)| *known == core).map(|(_, package)| *package);
    let zone = package.map(|package| format!("package-{package}"));
    let zone = samples.zones.iter().find(|(name, _)| Some(name) == zone.as_ref());
    CoreActivity {
        host: samples.head.host.clone(),
        core,
        busy: of(&origins.load, busy(&of_core.load, span)),
        rx: of(&origins.softirq_counts, grown(|work| work.net_rx)),
        rx_seconds: of(&origins.softirq_times, rx_seconds),
        tx: of(&origins.softirq_counts, grown(|work| work.net_tx)),
        tx_seconds: of(&origins.softirq_times, tx_seconds),
        softirq_seconds: of(&origins.softirq_all, seconds(|work| work.softirq_time, looked)),
        interrupts: of(&origins.interrupts, grown(|work| work.interrupts)),
        energy: match of(
            &origins.energy,
            zone.and_then(|(_, energy)| energy.between(span.0, span.1, |energy| energy.microjoules)).map(|uj| uj / 1e6),
        ) {
            // Some counters never move.
            Reading::Measured(joules) if joules <= 0.0 => {
                Reading::absent("the package's counter did not move in this time")
            }
            told => told,
        },
    }
}

fn busy(load: &Series<CoreLoad>, span: Span) -> Option<f64> {
    let idle = load.between(span.0, span.1, |load| load.idle)?;
    let looked = overlap(load, span)?;
    Some((1.0 - idle / looked).clamp(0.0, 1.0))
}

/// The part of the span between the first point and the last, ns.
fn overlap<T: Totals>(series: &Series<T>, span: Span) -> Option<f64> {
    let (from, to) = (span.0.max(series.first()?.0), span.1.min(series.last()?.0));
    (to > from).then(|| (to - from) as f64)
}

/// A value as a reading, with the reason of its origin where the value is missing.
fn of(origin: &Reading<String>, value: Option<f64>) -> Reading<f64> {
    match (origin, value) {
        (Reading::Measured(_), Some(value)) => Reading::Measured(value),
        (Reading::Modelled(_), Some(value)) => Reading::Modelled(value),
        (Reading::Measured(_) | Reading::Modelled(_), None) => unseen(),
        (Reading::Absent { reason }, _) => Reading::absent(reason),
        (Reading::NotPermitted { reason, next }, _) => Reading::not_permitted(reason, next),
    }
}

fn untold<T>(presence: &Presence) -> Reading<T> {
    match presence.is_sampled() {
        true => Reading::absent("the kernel of its host does not tell it"),
        false => unseen(),
    }
}

fn unseen<T>() -> Reading<T> {
    Reading::absent("no sample was taken in this time")
}
