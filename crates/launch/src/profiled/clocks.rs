//! The effective clocks of the cores that ranks use, where the kernel gives none.
//!
//! A thread of its own visits one core after the other for a probe of ten microseconds, each core once a second. The
//! sampler's thread would be late for its next sample where a rank does not yield at once; the rank's own would pay at its
//! calls. A rank loses the probe and two thread switches, 0.003 % of a core.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use linux::accounting::{effective_clock_of, own_thread_time};
use machine::{CoreId, CpuSet, Hertz, Nanoseconds};

/// Interval between two probes of a core.
const EACH: Duration = Duration::from_secs(1);

/// Probes cores until dropped.
pub struct Clocks {
    shared: Arc<(Mutex<State>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    cores: CpuSet,
    found: BTreeMap<CoreId, Hertz>,
    cpu: Nanoseconds,
    ended: bool,
}

impl Clocks {
    /// `None` where no thread can be started: clocks are then reported as absent.
    pub fn begin() -> Option<Clocks> {
        let shared: Arc<(Mutex<State>, Condvar)> = Arc::default();
        let own = shared.clone();
        let thread = thread::Builder::new().name("clock-probe".into()).spawn(move || run(&own)).ok()?;
        Some(Clocks { shared, thread: Some(thread) })
    }

    /// Probes `cores` from this call on.
    pub fn watch(&self, cores: CpuSet) {
        self.state(|state| {
            state.found.retain(|core, _| cores.contains(*core));
            state.cores = cores;
        });
        self.shared.1.notify_one();
    }

    /// Clocks found since the last call.
    pub fn found(&self) -> BTreeMap<CoreId, Hertz> {
        self.state(|state| std::mem::take(&mut state.found))
    }

    /// CPU time of the probes.
    pub fn cpu(&self) -> Nanoseconds {
        self.state(|state| state.cpu)
    }

    fn state<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.shared.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Clocks {
    fn drop(&mut self) {
        self.state(|state| state.ended = true);
        self.shared.1.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run((state, changed): &(Mutex<State>, Condvar)) {
    let mut last = None;
    let mut held = state.lock().unwrap_or_else(PoisonError::into_inner);
    while !held.ended {
        // The next core in order, cyclically.
        let next = held.cores.iter().find(|core| last.is_none_or(|last| *core > last)).or(held.cores.first());
        let pause = match next {
            None => EACH,
            Some(core) => {
                drop(held);
                let clock = effective_clock_of(core);
                held = state.lock().unwrap_or_else(PoisonError::into_inner);
                held.cpu = own_thread_time();
                if let Some(clock) = clock.value() {
                    held.found.insert(core, *clock);
                }
                last = Some(core);
                EACH / held.cores.len().max(1) as u32
            }
        };
        let nothing_new = |state: &mut State| !state.ended && (next.is_some() || state.cores.is_empty());
        let waited = changed.wait_timeout_while(held, pause, nothing_new);
        held = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_core_that_is_watched_is_probed_and_no_other() {
        let cores: CpuSet = linux::affinity::allowed().unwrap().into_iter().collect();
        let clocks = Clocks::begin().unwrap();
        clocks.watch(cores.clone());
        let mut found = BTreeMap::new();
        // Each core is probed once a second; a busy machine may take longer.
        while found.len() < cores.len() {
            found.extend(clocks.found());
            thread::sleep(Duration::from_millis(10));
        }
        assert!(found.keys().all(|core| cores.contains(*core)));
        assert!(clocks.cpu() > Nanoseconds(0));
        clocks.watch(CpuSet::default());
        clocks.found();
    }
}
