//! The share of each core available to the ranks: the rest beside the busy time of others.

use std::collections::{BTreeMap, HashMap};

use machine::capability::{CapabilityMap, CoreTime, sibling};
use machine::{CoreCapability, CoreId, Hertz, Reading};
use record::samples::{CoreClock, CoreSamples, Samples, Series};

use super::{Joined, Presence, Span, Window, busy, of, overlap, unseen};

/// Busy share below which a core's clock may have been lowered for lack of load.
const UNDER_LOAD: f64 = 0.5;

/// Share of a core whose user does not matter.
const NEGLIGIBLE: f64 = 0.02;

const NOT_RECORDED: &str = "the plimsoll that recorded the profile did not note it";

impl Joined {
    /// Every core in `window`, by host and core; `ranks` are the sampled ranks, each with the samples of its host.
    pub(super) fn capability<'a>(
        &self,
        ranks: impl IntoIterator<Item = &'a (&'a Samples, Presence<'a>)>,
        window: Window,
    ) -> Vec<CoreCapability> {
        let mut own: HashMap<*const Samples, (BTreeMap<u32, f64>, f64)> = HashMap::new();
        for (samples, presence) in ranks {
            let (by_core, elsewhere) = presence.cpu_by_core(self.span(samples, window));
            let sum = own.entry(std::ptr::from_ref(*samples)).or_default();
            by_core.into_iter().for_each(|(core, used)| *sum.0.entry(core).or_default() += used);
            sum.1 += elsewhere;
        }
        let of_host = |samples: &Samples| {
            let span = self.span(samples, window);
            let (own, elsewhere) = own.remove(&std::ptr::from_ref(samples)).unwrap_or_default();
            let core = |(core, of): (&u32, &CoreSamples)| {
                capability(samples, (*core, of), span, own.get(core).copied().unwrap_or(0.0), elsewhere)
            };
            samples.cores.iter().map(core).collect::<Vec<_>>()
        };
        CapabilityMap::of(self.samples.iter().flat_map(of_host)).cores
    }
}

/// One core that ranks used for `own` ns. `elsewhere`: ns that ranks of its host used on unknown cores.
fn capability(
    samples: &Samples,
    (core, of_core): (u32, &CoreSamples),
    span: Span,
    own: f64,
    elsewhere: f64,
) -> (CoreCapability, Reading<Hertz>) {
    let origins = &samples.head.origins;
    let looked = overlap(&of_core.load, span);
    let share = |grown: Option<f64>| Some((grown? / looked?).clamp(0.0, 1.0));
    let work = |total: fn(&record::samples::CoreWork) -> u64| share(of_core.work.between(span.0, span.1, total));
    let accounting = samples.accounting.as_ref();
    let is_busy = busy(&of_core.load, span);

    // Unknown softirq time is taken to be charged.
    let deferred = share(of_core.deferred.between(span.0, span.1, |deferred| deferred.cpu)).unwrap_or(0.0);
    let softirqs = match accounting.and_then(|accounting| accounting.softirqs_charged) {
        Some(false) => Reading::Measured(0.0),
        _ => of(&origins.softirq_all, work(|work| work.softirq_time).map(|all| (all - deferred).max(0.0))),
    };
    let stolen = match accounting.and_then(|accounting| accounting.stolen_charged) {
        Some(false) => 0.0,
        _ => share(of_core.load.between(span.0, span.1, |load| load.stolen)).unwrap_or(0.0),
    };
    let own = share(Some(own)).unwrap_or(0.0);
    let taken = of(&origins.load, is_busy);
    let taken = match (is_busy, share(Some(elsewhere))) {
        (Some(busy), Some(elsewhere)) if elsewhere > NEGLIGIBLE && busy > NEGLIGIBLE => Reading::absent(
            "ranks have threads that call no MPI, and which cores these had is not recorded: `plimsoll machine capability \
             --of PROGRAM` tells while the job runs",
        ),
        (Some(busy), _) if taken.value().is_some() => {
            CoreTime { busy, own, interrupted: softirqs.map(|softirqs| softirqs + stolen) }.taken()
        }
        _ => taken,
    };
    let network = of(&origins.softirq_times, work(|work| work.net_rx_time.saturating_add(work.net_tx_time)));
    let softirq = match network.value() {
        Some(_) => network,
        // Softirqs of all kinds by the kernel's ticks.
        None => match of(&origins.softirq_all, work(|work| work.softirq_time)) {
            all @ Reading::Modelled(_) => all,
            _ => network,
        },
    };
    let host = samples.head.host.clone();
    let clock = clock(&of_core.clock, span, is_busy);
    (
        CoreCapability {
            host,
            core: CoreId(core),
            taken,
            softirq,
            clock: Reading::absent(""),
            sibling: beside(samples, core, span),
        },
        clock,
    )
}

/// Busy share of the sibling hardware threads.
fn beside(samples: &Samples, core: u32, span: Span) -> Reading<f64> {
    let Some(accounting) = &samples.accounting else { return Reading::absent(NOT_RECORDED) };
    let first_of = |core: u32| accounting.threads.iter().find(|(thread, _)| *thread == core).map(|(_, first)| *first);
    let Some(first) = first_of(core) else { return Reading::Measured(0.0) };
    let others = accounting.threads.iter().filter(|(thread, of)| *of == first && *thread != core);
    let shares: Option<Vec<f64>> = others.map(|(thread, _)| busy(&samples.cores.get(thread)?.load, span)).collect();
    shares.map_or_else(unseen, sibling)
}

/// The mean of the sampled clock.
fn clock(series: &Series<CoreClock>, span: Span, is_busy: Option<f64>) -> Reading<Hertz> {
    let seen = series.points().iter().filter(|(at, _)| (span.0..=span.1).contains(at));
    let (sum, count) = seen.fold((0.0, 0u32), |(sum, count), (_, clock)| (sum + clock.hertz as f64, count + 1));
    match (count, is_busy) {
        (0, _) => Reading::absent("no clock was sampled of it; `plimsoll machine capability` times it"),
        (_, Some(busy)) if busy >= UNDER_LOAD => Reading::Measured(Hertz((sum / f64::from(count)).round() as u64)),
        _ => Reading::absent("it was idle, and the clock of an idle core says nothing"),
    }
}
