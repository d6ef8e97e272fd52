//! The effective clocks of the cores that ranks use, where the kernel tells none.
//!
//! A thread of its own goes to one core after the other for the ten microseconds of a probe, each core once a second. It is not
//! the sampler's thread, which would come late to its next look where a rank does not give way at once; and it is not the
//! rank's, which would pay at its calls. What the rank loses is that and two switches of threads, 0.003 % of a core.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use linux::accounting::{effective_clock_of, own_thread_time};
use machine::{CoreId, CpuSet, Hertz, Nanoseconds};

/// From one probe of a core to the next.
const EACH: Duration = Duration::from_secs(1);

/// Probes cores for as long as it lives.
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
    /// `None` where there is no thread to be had: then no clock is sampled, and its absence is told as such.
    pub fn begin() -> Option<Clocks> {
        let shared: Arc<(Mutex<State>, Condvar)> = Arc::default();
        let own = shared.clone();
        let thread = thread::Builder::new().name("clock-probe".into()).spawn(move || run(&own)).ok()?;
        Some(Clocks { shared, thread: Some(thread) })
    }

    /// Has these probed from now on.
    pub fn watch(&self, cores: CpuSet) {
        self.state(|state| {
            state.found.retain(|core, _| cores.contains(*core));
            state.cores = cores;
        });
        self.shared.1.notify_one();
    }

    /// What was found since this was last asked.
    pub fn found(&self) -> BTreeMap<CoreId, Hertz> {
        self.state(|state| std::mem::take(&mut state.found))
    }

    /// What probing took of processors.
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
        // Those after the last one, then from the first on.
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
        // Each comes round once a second; a machine that is busy may take longer.
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
