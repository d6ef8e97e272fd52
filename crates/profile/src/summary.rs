//! A profile in figures: what `plimsoll report DIR --json` prints, and what every page is made from.
//!
//! Times are seconds, sizes bytes, shares fractions of 1, unless a field says otherwise. A value that may be missing is a
//! [`Reading`]. `docs/profile-json.md` lists the fields; a test holds the list to these types.

use std::collections::BTreeMap;

use machine::{CoreCapability, Reading};
use serde::{Deserialize, Serialize};

mod outside;
mod power;

pub use outside::{Outside, Stall};
pub use power::{PowerSpan, PowerSummary};

use crate::verdict::Verdict;

/// Raised when a field changes its meaning or goes away; new fields do not raise it.
pub const SCHEMA: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// 1; raised when a field changes its meaning or goes away.
    pub schema: u32,
    /// What was run, and how complete the profile is.
    pub job: JobSummary,
    /// Figures of all ranks together.
    pub totals: Totals,
    /// The ranks, by world, then by rank. Other lists name a rank by its place in this list.
    pub ranks: Vec<RankSummary>,
    /// The functions, one entry for each function and size of group, by seconds, most first.
    pub functions: Vec<FunctionSummary>,
    /// Messages and collective calls, by class of size.
    pub sizes: Vec<SizeSummary>,
    /// One for each MPI_COMM_WORLD.
    pub matrices: Vec<Matrix>,
    /// The call sites, by seconds, most first.
    pub sites: Vec<SiteSummary>,
    /// What the kernel counted on each core; empty where nothing was sampled.
    pub cores: Vec<CoreSummary>,
    /// What of each core ranks cannot have, by host and core; empty where nothing was sampled.
    #[serde(default)]
    pub capability: Vec<CoreCapability>,
    /// What sensors of power told, by host, as `--power` named them; left out where none was named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub power: Vec<PowerSummary>,
    /// The phases that MPI_Pcontrol marked, in the order in which they began.
    pub phases: Vec<PhaseSummary>,
    /// What cores and ranks did, moment by moment; `None` where nothing was sampled.
    pub series: Option<Series>,
    /// The timeline, coarse enough to draw; `None` where none was recorded.
    pub timeline: Option<Timeline>,
    /// The critical path; `None` without a timeline.
    #[serde(default)]
    pub critical: Option<Critical>,
    /// Where the program's message processing should run.
    pub verdict: Option<Verdict>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobSummary {
    /// The command as it was given to `plimsoll profile`.
    pub command: Vec<String>,
    /// When the command started, in nanoseconds since 1970.
    pub started: u64,
    /// Duration of the command; `None` while it runs and where the profiler was killed.
    pub seconds: Option<f64>,
    /// Exit status of the command, where it ended by itself.
    pub exit_code: Option<i32>,
    /// The signal that ended the command, where one did.
    pub signal: Option<i32>,
    /// Ranks whose tables could be read.
    pub ranks: usize,
    /// Ranks that the worlds have, also those without tables.
    pub expected: usize,
    /// Number of MPI_COMM_WORLDs: programs that MPI_Comm_spawn started have their own.
    pub worlds: usize,
    /// The hosts, in the order of their first ranks.
    pub hosts: Vec<HostSummary>,
    /// The names by which the MPI libraries call themselves, each once.
    pub libraries: Vec<String>,
    /// Whether every rank is there, has finalized, and dropped nothing.
    pub complete: bool,
    /// That the program was delayed on purpose, and by how much; `None`: it ran as it is.
    #[serde(default)]
    pub perturbed: Option<String>,
    /// What is missing or was dropped, and why.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostSummary {
    /// Name of the host, as its kernel has it.
    pub name: String,
    /// Number of ranks that ran on it.
    pub ranks: usize,
    /// Cores that its ranks may use, threads of one core counted once.
    pub cores: Reading<u32>,
}

/// Of all ranks together, between MPI_Init's return and MPI_Finalize's call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Duration of the longest rank.
    pub seconds: f64,
    /// Durations of every thread that called MPI, added up: the whole that shares of time refer to.
    pub thread_seconds: f64,
    /// Calls of all functions that are counted.
    pub calls: u64,
    /// Calls of all ranks over `seconds`.
    pub calls_per_second: f64,
    /// Time inside MPI.
    pub mpi: f64,
    /// `mpi` over `thread_seconds`.
    pub mpi_share: f64,
    /// Time outside MPI.
    pub compute: f64,
    /// How evenly the computing is spread: the mean over ranks divided by that of the rank that computes most.
    pub balance: f64,
    /// `mpi`, divided.
    pub split: Split,
    /// Messages that ranks began to send to other ranks.
    pub messages: u64,
    /// Bytes of those messages.
    pub bytes: u64,
    /// What recording added to each call: the greatest of the values that ranks measured when they started.
    pub recording: Reading<f64>,
}

/// Time inside MPI, divided. The parts that are known add up to the whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// Time that the calls take when nobody is late.
    pub transfer: Reading<f64>,
    /// Time beyond that: waiting for a rank that is late, or a network that is busy.
    pub wait: Reading<f64>,
    /// Time in which the calling thread itself was stopped, or was runnable while others had its core. Waiting for
    /// another rank that was off its core is in `wait`. Where time off the core is not known it is in the other parts.
    pub off_core: Reading<f64>,
    /// Time of calls that are too few to tell.
    pub undivided: f64,
}

impl Default for Split {
    fn default() -> Self {
        Split {
            transfer: Reading::Modelled(0.0),
            wait: Reading::Modelled(0.0),
            off_core: Reading::absent("nothing was sampled"),
            undivided: 0.0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It called MPI_Finalize.
    Finalized,
    /// The process ended in order without MPI_Finalize.
    Exited,
    /// It called MPI_Abort.
    Aborted,
    /// It ended in no order: a signal, or its host.
    Killed,
    Running,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankSummary {
    /// Place of its world in `matrices`.
    pub world: usize,
    /// Its rank in MPI_COMM_WORLD.
    pub rank: u32,
    /// Name of its host.
    pub host: String,
    /// Number of its process.
    pub pid: u32,
    /// File of its program.
    pub program: String,
    /// How it ended.
    pub state: State,
    /// Cores that it was seen on, the one seen most often first.
    pub cores: Reading<Vec<u32>>,
    /// Number of its threads that called MPI.
    pub threads: u32,
    /// Time between MPI_Init's return and MPI_Finalize's call, or until the last moment noted.
    pub seconds: f64,
    /// The same time of each of its threads that called MPI, added up.
    pub thread_seconds: f64,
    /// Time in MPI_Init, which is no part of any other figure here.
    pub startup: f64,
    /// Time in MPI_Finalize, which is no part of any other figure here.
    pub shutdown: f64,
    /// Calls of all functions that are counted, without MPI_Init and MPI_Finalize.
    pub calls: u64,
    /// Time inside MPI.
    pub mpi: f64,
    /// Time outside MPI; with `mpi` it makes `thread_seconds`.
    pub compute: f64,
    /// `mpi`, divided.
    pub split: Split,
    /// Messages that it began to send to other ranks.
    pub messages: u64,
    /// Bytes of those messages.
    pub bytes: u64,
    /// Network softirq time on its cores while it was on them: all of it, also where ranks share a core.
    pub softirq: Reading<f64>,
    /// Times that it was taken off its core.
    pub involuntary: Reading<u64>,
    /// Seconds that its threads were stopped, by a signal or a debugger, inside MPI and outside.
    pub stopped: Reading<f64>,
    /// Seconds that its threads were runnable while others had their core, inside MPI and outside.
    pub run_delay: Reading<f64>,
    /// Seconds that a hypervisor took from its cores while it was on them: all of them, also where ranks share a core.
    pub stolen: Reading<f64>,
    /// The part of `run_delay` in which it had given its core up itself, inside MPI: it waited, and that is in `wait`.
    #[serde(default = "unsampled")]
    pub yielded: Reading<f64>,
    /// The part of `compute` in which it was stopped, or runnable while others had its core.
    pub compute_off_core: Reading<f64>,
    /// `compute`, by what its threads did.
    #[serde(default)]
    pub outside: Outside,
    /// Calls and time of each class of functions.
    pub classes: BTreeMap<String, ClassSummary>,
    /// Seconds that other ranks waited for it. Needs a timeline.
    pub caused: Reading<f64>,
    /// Seconds that it waited for partners that had begun their half of a message and then were outside of MPI: an
    /// offloading device, or a helper on another core, would save at most this. Needs a timeline.
    pub away: Reading<f64>,
    /// The ranks that it waited for, the one waited for longest first; empty without a timeline.
    pub waits_for: Vec<WaitsFor>,
    /// The call that it was in when it was last seen.
    pub inside: Option<Inside>,
}

impl RankSummary {
    /// Seconds off its core, outside MPI and, waiting for nobody, inside; `None` where that is not known.
    pub fn off_core(&self) -> Option<f64> {
        Some(self.compute_off_core.value()? + self.split.off_core.value()?)
    }

    /// Whether it was blocked outside MPI for so much of its time that a page says it.
    pub fn stalls(&self) -> bool {
        self.outside.blocked.value().is_some_and(|seconds| *seconds > 0.01 * self.thread_seconds)
    }

    /// Outside MPI and, as far as that is known, on its core: not stopped, not runnable while others had it, not blocked.
    pub fn computing(&self) -> f64 {
        let part = |reading: &Reading<f64>| reading.value().copied().unwrap_or(0.0);
        (self.compute - part(&self.compute_off_core) - part(&self.outside.blocked)).max(0.0)
    }
}

fn unsampled() -> Reading<f64> {
    Reading::absent("the plimsoll that wrote the figures did not tell it")
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassSummary {
    /// Calls of all functions of the class.
    pub calls: u64,
    /// Time in those calls.
    pub seconds: f64,
    /// `seconds`, divided.
    pub split: Split,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitsFor {
    /// Place of the awaited rank in `ranks`.
    pub rank: usize,
    /// Seconds of waiting for it.
    pub seconds: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Inside {
    /// Name of the function, with `MPI_`.
    pub function: String,
    /// Time from its entry to the last moment noted.
    pub seconds: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionSummary {
    /// Name of the function, with `MPI_`.
    pub name: String,
    /// What the function is for: one of the classes under Words.
    pub class: String,
    /// Ranks of the communicator of a collective call; 0 for calls of other kinds.
    pub group: u32,
    /// Whether shares and totals include it: they leave out the functions that start and end MPI.
    pub counted: bool,
    /// Number of ranks that called it.
    pub ranks: usize,
    /// Calls by all ranks.
    pub calls: u64,
    /// Its share of all calls.
    pub calls_share: f64,
    /// Time in it, of all ranks.
    pub seconds: f64,
    /// Its share of the time in MPI.
    pub time_share: f64,
    /// Mean duration of a call.
    pub mean: f64,
    /// Duration of the shortest call.
    pub least: f64,
    /// Duration of the longest call.
    pub most: f64,
    /// Median duration of a call, to about a tenth, as the histogram allows.
    pub p50: f64,
    /// 99th percentile of the duration of a call, to about a tenth.
    pub p99: f64,
    /// Bytes of all calls.
    pub bytes: u64,
    /// `seconds`, divided.
    pub split: Split,
    /// Calls by class of size.
    pub sizes: Vec<FunctionSize>,
    /// Calls by class of duration, with four classes for each factor of two.
    pub times: Vec<TimeClass>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionSize {
    /// The smallest size of the class.
    pub floor: u64,
    /// Calls with sizes of the class.
    pub calls: u64,
    /// Bytes of those calls.
    pub bytes: u64,
    /// Time in those calls.
    pub seconds: f64,
    /// Time that such a call takes when nobody is late.
    pub unhindered: Reading<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimeClass {
    /// The shortest duration of the class.
    pub floor: f64,
    /// Calls with durations of the class.
    pub calls: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SizeSummary {
    /// The smallest size of the class; the next begins at twice that.
    pub floor: u64,
    /// Calls that send a message of a size of the class. Started persistent requests are not among them, and messages
    /// to MPI_PROC_NULL count as 0 bytes.
    pub messages: u64,
    /// Bytes of those calls.
    pub bytes: u64,
    /// Calls of collective functions with sizes of the class.
    pub collectives: u64,
    /// Bytes that the calling ranks contributed to those.
    pub collective_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Matrix {
    /// What tells this MPI_COMM_WORLD from the others.
    pub world: String,
    /// Number of its ranks.
    pub ranks: u32,
    /// Pairs of ranks with traffic: `[from, to, messages, bytes, operations, operation_bytes]`, both ranks in this
    /// world; operations are one-sided.
    pub cells: Vec<[u64; 6]>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SiteSummary {
    /// Name of the MPI function, with `MPI_`.
    pub function: String,
    /// Whether shares and totals include its time, as for [`FunctionSummary::counted`].
    pub counted: bool,
    /// The functions that make the call, innermost first: the first may be inlined into the next.
    pub frames: Vec<Frame>,
    /// The file of code that the call is in.
    pub module: String,
    /// Build ID of that file, in hexadecimal; empty where it has none.
    #[serde(default)]
    pub build_id: String,
    /// Offset of the call's return address in the module's file.
    pub offset: u64,
    /// Number of ranks that called here.
    pub ranks: usize,
    /// Calls by all ranks.
    pub calls: u64,
    /// Time in those calls.
    pub seconds: f64,
    /// Their share of the time in MPI; 0 for MPI_Init and MPI_Finalize, which are not part of it.
    pub time_share: f64,
    /// Duration of the longest call.
    pub most: f64,
    /// Bytes of all calls.
    pub bytes: u64,
    /// What of the critical path is here; `None` without a timeline whose calls tell where they were made.
    #[serde(default)]
    pub critical: Option<OnPath>,
    /// Why no line is known, where none is.
    pub note: Option<String>,
}

/// The critical path: back from the last call of the first MPI_COMM_WORLD along what was waited for. Whatever is not on it could
/// take longer without the run taking longer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Critical {
    /// Its length, from when the first rank left MPI_Init.
    pub seconds: f64,
    /// Its part outside of MPI.
    pub compute: f64,
    /// Its part in calls, and of messages, of which it is not known where in the program they were made.
    pub elsewhere: f64,
    /// What carries messages, by whose measured costs it was walked; `None`: none fit, and messages on their way count as time of
    /// the call that waits for them.
    pub costs: Option<String>,
}

/// What of the critical path is at a call site.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OnPath {
    /// Calls here that it leads through.
    pub calls: u64,
    /// Messages one after the other that are sent here, and rounds of collective calls: nanoseconds that the run takes longer for
    /// each nanosecond of latency.
    pub trips: u64,
    /// Time in calls here, and of messages that are sent here while they are on their way.
    pub seconds: f64,
    /// `seconds` over the length of the path.
    pub share: f64,
    /// Time outside of MPI before calls here.
    pub compute: f64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// Name of the function; without debug information, a symbol and the distance from it.
    pub name: Option<String>,
    /// Source file of the function, as the compiler was given it.
    pub file: Option<String>,
    /// Line in that file.
    pub line: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CoreSummary {
    /// Name of its host.
    pub host: String,
    /// Number of the core on its host.
    pub core: u32,
    /// Share of the time in which it was not idle.
    pub busy: Reading<f64>,
    /// Number of softirqs that received (NET_RX).
    pub softirq_rx: Reading<f64>,
    /// Time in those softirqs.
    pub softirq_rx_seconds: Reading<f64>,
    /// Number of softirqs that sent (NET_TX).
    pub softirq_tx: Reading<f64>,
    /// Time in those softirqs.
    pub softirq_tx_seconds: Reading<f64>,
    /// Number of hardware interrupts.
    pub interrupts: Reading<f64>,
    /// Places in `ranks` of those that spent a hundredth of their time or more on it.
    pub ranks: Vec<usize>,
    /// Share of their time that those ranks waited, each weighed by its time on this core.
    pub wait_share: Reading<f64>,
    /// Joules that its package used while the job ran.
    pub energy: Reading<f64>,
}

/// Between two calls of MPI_Pcontrol, as the first rank of a world made them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseSummary {
    /// Place of its world in `matrices`.
    pub world: usize,
    /// Level that MPI_Pcontrol was given.
    pub level: i32,
    /// When it began, in seconds since `job.started`.
    pub from: f64,
    /// When it ended.
    pub to: f64,
    /// What each core did in the phase, where cores were sampled.
    #[serde(default)]
    pub cores: Vec<PhaseCore>,
    /// What each rank did in the phase, where ranks were sampled: between the rank's own calls, where it marked the
    /// same phases.
    #[serde(default)]
    pub ranks: Vec<PhaseRank>,
}

/// What a core did in a phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseCore {
    /// Place of the core in `cores`.
    pub core: usize,
    /// Share of the time in which it was not idle.
    pub busy: Reading<f64>,
    /// Number of network softirqs, receiving and sending.
    pub softirqs: Reading<f64>,
    /// Time in those softirqs.
    pub softirq_seconds: Reading<f64>,
    /// Number of hardware interrupts.
    pub interrupts: Reading<f64>,
}

/// What a rank met in a phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseRank {
    /// Place of the rank in `ranks`.
    pub rank: usize,
    /// Time between its own calls of MPI_Pcontrol.
    pub seconds: f64,
    /// Time of all its threads inside MPI.
    pub mpi: Reading<f64>,
    /// Network softirq time on its cores while it was on them.
    pub softirq: Reading<f64>,
    /// Times that it was taken off its core.
    pub involuntary: Reading<u64>,
}

/// Columns of equal length; a column without a sample is null.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// When the first column begins, in seconds since `job.started`.
    pub from: f64,
    /// Seconds from one column to the next.
    pub step: f64,
    /// Number of columns.
    pub columns: usize,
    /// Rows of each core.
    pub cores: Vec<CoreSeries>,
    /// Rows of each rank.
    pub ranks: Vec<RankSeries>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CoreSeries {
    /// Name of its host.
    pub host: String,
    /// Number of the core on its host.
    pub core: u32,
    /// Share of each step in which it was not idle.
    pub busy: Vec<Option<f32>>,
    /// Share of each step in network softirqs.
    pub softirq: Vec<Option<f32>>,
    /// Network softirqs a second.
    pub softirqs: Vec<Option<f32>>,
    /// Hardware interrupts a second.
    pub interrupts: Vec<Option<f32>>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RankSeries {
    /// Place of the rank in `ranks`.
    pub rank: usize,
    /// Share of each step inside MPI.
    pub mpi: Vec<Option<f32>>,
    /// Calls a second.
    pub calls: Vec<Option<f32>>,
    /// The core that it was on.
    pub core: Vec<Option<u32>>,
}

/// A timeline made coarse enough to draw; the whole one is exported by `plimsoll report DIR --export`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// When the first column begins, in seconds since `job.started`.
    pub from: f64,
    /// Seconds from one column to the next.
    pub step: f64,
    /// Number of columns.
    pub columns: usize,
    /// Names of functions, with `MPI_`, that lanes refer to by place.
    pub names: Vec<String>,
    /// One for each thread of each rank.
    pub lanes: Vec<Lane>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Lane {
    /// Place of the rank in `ranks`.
    pub rank: usize,
    /// Number of the thread in its rank.
    pub thread: u16,
    /// For each column the function that took most of it, as a place in `names`; `None`: outside MPI.
    pub most: Vec<Option<u16>>,
    /// For each column the share inside MPI.
    pub mpi: Vec<f32>,
}
