//! What the cores and threads of this host do for messages, counted beside each block of measurement.
//!
//! Time in softirqs comes from tracepoints: kernels without IRQ_TIME_ACCOUNTING charge it to whatever thread it
//! interrupted, and `/proc/stat` sees of it only what a timer tick happens to hit.

mod busy;
mod counters;
mod heap;
mod interrupts;
mod meter;
mod softirq;
mod table;
mod thread;

pub use busy::{BusyMeter, CoreBusy};
pub use counters::{Counter, CounterKind};
pub use heap::{heap, resident};
pub use interrupts::{InterruptCounts, InterruptTable};
pub use meter::{CoreCounts, HostMeter};
pub use softirq::{CoreWork, SoftirqCounts, SoftirqSensor, softirq_counts};
pub use thread::{ThreadMeter, current_thread};
