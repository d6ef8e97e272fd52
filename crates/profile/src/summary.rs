//! A profile in figures: what `plimsoll report DIR --json` prints, and what every page is made from.
//!
//! Times are seconds, sizes bytes, shares fractions of 1, unless a field says otherwise. A value that may be missing is a
//! [`Reading`]. `docs/profile-json.md` lists the fields; a test holds the list to these types.

use std::collections::BTreeMap;

use machine::{CoreCapability, Reading};
use serde::{Deserialize, Serialize};

mod columns;
mod outside;
mod power;

pub use columns::{CoreSeries, Lane, RankSeries, Series, Timeline};
pub use outside::{Outside, Stall};
pub use power::{PowerSpan, PowerSummary};

use crate::verdict::Verdict;

/// Raised when a field changes its meaning or goes away; new fields do not raise it.
pub const SCHEMA: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// 1; raised when a field changes its meaning or goes away.
    pub schema: u32,
    /// What ran; how complete the profile is.
    pub job: JobSummary,
    /// All ranks together.
    pub totals: Totals,
    /// By world, then rank. Other lists name a rank by its place here.
    pub ranks: Vec<RankSummary>,
    /// By function and group size; most seconds first.
    pub functions: Vec<FunctionSummary>,
    /// Messages and collectives by size class.
    pub sizes: Vec<SizeSummary>,
    /// One for each MPI_COMM_WORLD.
    pub matrices: Vec<Matrix>,
    /// Call sites, most seconds first.
    pub sites: Vec<SiteSummary>,
    /// The kernel's counts; empty where nothing was sampled.
    pub cores: Vec<CoreSummary>,
    /// What ranks cannot have of each core; empty where nothing was sampled.
    #[serde(default)]
    pub capability: Vec<CoreCapability>,
    /// Sensors that `--power` named, by host; left out without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub power: Vec<PowerSummary>,
    /// By beginning.
    pub phases: Vec<PhaseSummary>,
    /// `None` where nothing was sampled.
    pub series: Option<Series>,
    /// `None` without a recorded timeline.
    pub timeline: Option<Timeline>,
    /// `None` without a timeline.
    #[serde(default)]
    pub critical: Option<Critical>,
    /// Where message processing should run.
    pub verdict: Option<Verdict>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobSummary {
    /// As given to `plimsoll profile`.
    pub command: Vec<String>,
    /// Nanoseconds since 1970.
    pub started: u64,
    /// Its duration; `None` while it runs, or of a killed profiler.
    pub seconds: Option<f64>,
    /// Its exit status, where it ended by itself.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Ranks with readable tables.
    pub ranks: usize,
    /// Ranks of the worlds, with or without tables.
    pub expected: usize,
    /// MPI_COMM_WORLDs; MPI_Comm_spawn makes more.
    pub worlds: usize,
    /// By first rank.
    pub hosts: Vec<HostSummary>,
    /// The MPI libraries' own names.
    pub libraries: Vec<String>,
    /// Every rank finalized and dropped nothing.
    pub complete: bool,
    /// Delays on purpose; `None`: there were none.
    #[serde(default)]
    pub perturbed: Option<String>,
    /// What is missing or was dropped, and why.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostSummary {
    /// The kernel's name.
    pub name: String,
    /// Ranks that ran there.
    pub ranks: usize,
    /// Cores for its ranks, without second threads.
    pub cores: Reading<u32>,
}

/// Of all ranks, between MPI_Init's return and MPI_Finalize's call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Time of the longest rank.
    pub seconds: f64,
    /// Time of all threads that called MPI: what shares refer to.
    pub thread_seconds: f64,
    /// Calls of counted functions.
    pub calls: u64,
    /// `calls` over `seconds`.
    pub calls_per_second: f64,
    /// Time inside MPI.
    pub mpi: f64,
    /// `mpi` over `thread_seconds`.
    pub mpi_share: f64,
    /// Time outside MPI.
    pub compute: f64,
    /// Mean computing over that of the rank with most.
    pub balance: f64,
    /// `mpi`, divided.
    pub split: Split,
    /// Messages begun to other ranks.
    pub messages: u64,
    /// Bytes of those messages.
    pub bytes: u64,
    /// What recording added to a call, at most.
    pub recording: Reading<f64>,
}

/// Time inside MPI; known parts add up to the whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// When nobody is late.
    pub transfer: Reading<f64>,
    /// Beyond that: a late rank or a busy network.
    pub wait: Reading<f64>,
    /// The calling thread was stopped, or runnable without its core; in the other parts where unknown.
    pub off_core: Reading<f64>,
    /// Too few calls to tell.
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
    /// The process called MPI_Finalize.
    Finalized,
    /// The process ended in order without MPI_Finalize.
    Exited,
    /// The process called MPI_Abort.
    Aborted,
    /// A signal ended the process, or its host failed.
    Killed,
    Running,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Finalized => "finalized",
            State::Exited => "exited",
            State::Aborted => "aborted",
            State::Killed => "killed",
            State::Running => "running",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankSummary {
    /// Place in `matrices`.
    pub world: usize,
    /// In MPI_COMM_WORLD.
    pub rank: u32,
    /// Name.
    pub host: String,
    /// Process number.
    pub pid: u32,
    /// File.
    pub program: String,
    /// How it ended.
    pub state: State,
    /// Most seen first.
    pub cores: Reading<Vec<u32>>,
    /// Threads that called MPI.
    pub threads: u32,
    /// The run, or until the last moment noted.
    pub seconds: f64,
    /// The same, of all its threads.
    pub thread_seconds: f64,
    /// Time in MPI_Init; in no other figure.
    pub startup: f64,
    /// Time in MPI_Finalize; in no other figure.
    pub shutdown: f64,
    /// Calls of counted functions.
    pub calls: u64,
    /// Time inside MPI.
    pub mpi: f64,
    /// Time outside MPI; the rest of `thread_seconds`.
    pub compute: f64,
    /// `mpi`, divided.
    pub split: Split,
    /// Messages begun to other ranks.
    pub messages: u64,
    /// Bytes of those messages.
    pub bytes: u64,
    /// Network softirqs on its cores while it was there, shared cores too.
    pub softirq: Reading<f64>,
    /// Times taken off its core.
    pub involuntary: Reading<u64>,
    /// By a signal or a debugger, inside MPI and outside.
    pub stopped: Reading<f64>,
    /// Runnable while others had the core, inside MPI and outside.
    pub run_delay: Reading<f64>,
    /// By a hypervisor from its cores while it was there, shared cores too.
    pub stolen: Reading<f64>,
    /// Of `run_delay`: it gave its core up inside MPI; in `wait`.
    #[serde(default = "unsampled")]
    pub yielded: Reading<f64>,
    /// CPU time of the thread that initialized MPI, inside MPI and outside.
    #[serde(default = "unsampled")]
    pub cpu_of_thread: Reading<f64>,
    /// CPU time of the process, inside MPI and outside, and of its children.
    #[serde(default = "unsampled")]
    pub cpu: Reading<f64>,
    /// Of `compute`: stopped, or runnable without its core.
    pub compute_off_core: Reading<f64>,
    /// `compute`, divided.
    #[serde(default)]
    pub outside: Outside,
    /// By class of function.
    pub classes: BTreeMap<String, ClassSummary>,
    /// Others' waits for it, by a timeline.
    pub caused: Reading<f64>,
    /// Its waits for partners that had begun a message and were outside MPI, by a timeline: the most that an
    /// offloading device, or a helper on another core, saves.
    pub away: Reading<f64>,
    /// Longest first; empty without a timeline.
    pub waits_for: Vec<WaitsFor>,
    /// The call in which it was last seen.
    pub inside: Option<Inside>,
}

impl RankSummary {
    /// Seconds off the core, outside MPI and, apart from `wait`, inside; `None` where unknown.
    pub fn off_core(&self) -> Option<f64> {
        Some(self.compute_off_core.value()? + self.split.off_core.value()?)
    }

    /// Whether the rank was blocked outside MPI for more than 1 % of its time, which pages then show.
    pub fn stalls(&self) -> bool {
        self.outside.blocked.value().is_some_and(|seconds| *seconds > 0.01 * self.thread_seconds)
    }

    /// Seconds outside MPI and, as far as known, on the core: not stopped, not runnable without the core, not blocked.
    pub fn computing(&self) -> f64 {
        let part = |reading: &Reading<f64>| reading.value().copied().unwrap_or(0.0);
        let on_core = (self.compute - part(&self.compute_off_core) - part(&self.outside.blocked)).max(0.0);
        let most = self.cpu_of_thread.value().filter(|_| self.threads == 1);
        most.map_or(on_core, |cpu| on_core.min(*cpu))
    }

    /// Seconds outside MPI, at least, in which neither the rank nor a child of it used or lacked a core.
    pub fn asleep(&self) -> f64 {
        let by_cpu = match (self.cpu.value(), self.run_delay.value()) {
            (Some(cpu), Some(delay)) if self.threads == 1 => (self.compute - cpu - delay).max(0.0),
            _ => 0.0,
        };
        self.outside.blocked.value().map_or(by_cpu, |blocked| blocked.max(by_cpu))
    }
}

/// `part` over `whole`; 0 where `whole` is 0.
pub fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn unsampled() -> Reading<f64> {
    Reading::absent("the plimsoll that wrote the figures did not tell it")
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassSummary {
    /// Calls of functions of the class.
    pub calls: u64,
    /// Time in those calls.
    pub seconds: f64,
    /// `seconds`, divided.
    pub split: Split,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitsFor {
    /// The awaited rank, a place in `ranks`.
    pub rank: usize,
    /// Time spent waiting for it.
    pub seconds: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Inside {
    /// The function, with `MPI_`.
    pub function: String,
    /// Time from entry to the last moment noted.
    pub seconds: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionSummary {
    /// The function, with `MPI_`.
    pub name: String,
    /// Class, one of those under Words.
    pub class: String,
    /// Ranks of a collective's communicator; else 0.
    pub group: u32,
    /// False of functions that start or end MPI.
    pub counted: bool,
    /// Ranks that called it.
    pub ranks: usize,
    /// Calls of all ranks.
    pub calls: u64,
    /// `calls` over all calls.
    pub calls_share: f64,
    /// Time of all ranks in it.
    pub seconds: f64,
    /// `seconds` over the time in MPI.
    pub time_share: f64,
    /// Mean duration of a call.
    pub mean: f64,
    /// Shortest call.
    pub least: f64,
    /// Longest call.
    pub most: f64,
    /// Median duration, to about a tenth.
    pub p50: f64,
    /// 99th percentile of durations, to about a tenth.
    pub p99: f64,
    /// Bytes of all calls.
    pub bytes: u64,
    /// `seconds`, divided.
    pub split: Split,
    /// Calls by size class.
    pub sizes: Vec<FunctionSize>,
    /// Calls by duration, four classes a factor of two.
    pub times: Vec<TimeClass>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionSize {
    /// Smallest size of the class.
    pub floor: u64,
    /// Calls of the class.
    pub calls: u64,
    /// Bytes of those calls.
    pub bytes: u64,
    /// Time in those calls.
    pub seconds: f64,
    /// Duration of a call when nobody is late.
    pub unhindered: Reading<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimeClass {
    /// Shortest duration of the class.
    pub floor: f64,
    /// Calls of the class.
    pub calls: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SizeSummary {
    /// Smallest size; the next class begins at twice that.
    pub floor: u64,
    /// Calls that send, without started persistent requests; MPI_PROC_NULL counts as 0 bytes.
    pub messages: u64,
    /// Bytes of those calls.
    pub bytes: u64,
    /// Calls of collectives.
    pub collectives: u64,
    /// Bytes that callers contributed.
    pub collective_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Matrix {
    /// Tells worlds apart.
    pub world: String,
    /// Number of ranks.
    pub ranks: u32,
    /// `[from, to, messages, bytes, operations, operation_bytes]` of pairs with traffic; operations are one-sided.
    pub cells: Vec<[u64; 6]>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SiteSummary {
    /// The function, with `MPI_`.
    pub function: String,
    /// As [`FunctionSummary::counted`].
    pub counted: bool,
    /// Innermost first; the first may be inlined.
    pub frames: Vec<Frame>,
    /// File of code.
    pub module: String,
    /// Build id of `module`, hexadecimal; empty where it has none.
    #[serde(default)]
    pub build_id: String,
    /// Offset of the return address in `module`.
    pub offset: u64,
    /// Ranks that called here.
    pub ranks: usize,
    /// Calls of all ranks.
    pub calls: u64,
    /// Time in those calls.
    pub seconds: f64,
    /// `seconds` over the time in MPI; 0 where not `counted`.
    pub time_share: f64,
    /// Longest call.
    pub most: f64,
    /// Bytes of all calls.
    pub bytes: u64,
    /// `None` without a timeline with call sites.
    #[serde(default)]
    pub critical: Option<OnPath>,
    /// Why no line is known.
    pub note: Option<String>,
}

/// Back from the last call of the first MPI_COMM_WORLD along what was waited for. The rest could take longer at no
/// cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Critical {
    /// From when the first rank left MPI_Init.
    pub seconds: f64,
    /// Outside MPI.
    pub compute: f64,
    /// Calls and messages of unknown places.
    pub elsewhere: f64,
    /// The carrier whose measured costs it was walked by; `None`: messages count to the call that waits.
    pub costs: Option<String>,
}

/// The critical path at a call site.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OnPath {
    /// Calls that the path passes.
    pub calls: u64,
    /// Messages sent here and collective rounds, one after the other: the run's change by latency.
    pub trips: u64,
    /// Calls here, and messages from here on their way.
    pub seconds: f64,
    /// Over the path.
    pub share: f64,
    /// Outside MPI before calls here.
    pub compute: f64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// Function; without debug information, symbol and distance.
    pub name: Option<String>,
    /// Source file, as the compiler was given it.
    pub file: Option<String>,
    /// Line in that file.
    pub line: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CoreSummary {
    /// Name of the host.
    pub host: String,
    /// Number of the core on its host.
    pub core: u32,
    /// Share of time not idle.
    pub busy: Reading<f64>,
    /// Softirqs that receive (NET_RX).
    pub softirq_rx: Reading<f64>,
    /// Time in softirqs that receive.
    pub softirq_rx_seconds: Reading<f64>,
    /// Softirqs that send (NET_TX).
    pub softirq_tx: Reading<f64>,
    /// Time in softirqs that send.
    pub softirq_tx_seconds: Reading<f64>,
    /// Hardware interrupts.
    pub interrupts: Reading<f64>,
    /// Places in `ranks`: a hundredth of their time or more here.
    pub ranks: Vec<usize>,
    /// Those ranks' share of waiting, by their time here.
    pub wait_share: Reading<f64>,
    /// Joules of its package during the job.
    pub energy: Reading<f64>,
}

/// Between two calls of MPI_Pcontrol of a world's first rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseSummary {
    /// Place in `matrices`.
    pub world: usize,
    /// Level given to MPI_Pcontrol.
    pub level: i32,
    /// Begin.
    pub from: f64,
    /// End.
    pub to: f64,
    /// Cores, where they were sampled.
    #[serde(default)]
    pub cores: Vec<PhaseCore>,
    /// Ranks, where they were sampled: between their own calls of the same phases.
    #[serde(default)]
    pub ranks: Vec<PhaseRank>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseCore {
    /// Place in `cores`.
    pub core: usize,
    /// Share of time not idle.
    pub busy: Reading<f64>,
    /// Network softirqs, both ways.
    pub softirqs: Reading<f64>,
    /// Time in those softirqs.
    pub softirq_seconds: Reading<f64>,
    /// Hardware interrupts.
    pub interrupts: Reading<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseRank {
    /// Place in `ranks`.
    pub rank: usize,
    /// Time between its own calls.
    pub seconds: f64,
    /// Time inside MPI of all its threads.
    pub mpi: Reading<f64>,
    /// Network softirqs on its cores while it was there.
    pub softirq: Reading<f64>,
    /// Times taken off its core.
    pub involuntary: Reading<u64>,
}
