//! Costs of the host's cores and threads, counted beside each block of measurement.
//!
//! Time in softirqs comes from tracepoints: kernels without IRQ_TIME_ACCOUNTING charge it to the interrupted thread,
//! and `/proc/stat` shows only what a timer tick happens to hit.

mod actual;
mod busy;
mod capability;
mod charge;
mod core_clock;
mod cores;
mod counters;
mod energy;
mod heap;
mod interrupts;
mod job;
mod meter;
mod process;
mod procfile;
mod softirq;
mod table;
mod thread;

pub use actual::ActualClock;
pub use busy::{BusyMeter, CoreBusy};
pub use capability::{CapabilityProbe, ksoftirqd};
pub use charge::Charges;
pub use core_clock::{
    effective as effective_clock, effective_of as effective_clock_of, effective_of_all as effective_clocks,
    told as core_clock, under_load as clock_under_load,
};
pub use cores::{CoreLoad, CoreTotals, CoresSensor, Origins};
pub use counters::{Counter, CounterKind};
pub use energy::{EnergySensor, ZoneEnergy};
pub use heap::{heap, resident, shared};
pub use interrupts::{InterruptCounts, InterruptTable};
pub use job::JobProcess;
pub use meter::{CoreCounts, HostMeter};
pub use process::{
    BlockedBy, ThreadState, ThreadWatch, is_there, number_here, own_thread_time, pid_namespace, process_time,
    times_of_children, user_time,
};
pub use softirq::{CoreWork, SoftirqCounts, SoftirqSensor, softirq_counts};
pub use thread::{Switches, ThreadMeter, current_thread};
