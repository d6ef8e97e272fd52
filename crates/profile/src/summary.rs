//! A profile in figures: what `plimsoll report DIR --json` prints, and what every page is made from.
//!
//! Times are seconds, sizes bytes, shares fractions of 1, unless a field says otherwise. A value that may be missing is a
//! [`Reading`]. `docs/profile-json.md` lists the fields; a test holds the list to these types.

use std::collections::BTreeMap;

use machine::Reading;
use serde::{Deserialize, Serialize};

use crate::verdict::Verdict;

/// Raised when a field changes its meaning or goes away; new fields do not raise it.
pub const SCHEMA: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// 1; raised when a field changes its meaning or goes away.
    pub schema: u32,
    /// What was run, and how complete the profile is.
    pub job: JobSummary,
    /// Of all ranks together.
    pub totals: Totals,
    /// By world, then by rank. Other lists name a rank by its place here.
    pub ranks: Vec<RankSummary>,
    /// A function at groups of one size, by seconds, most first.
    pub functions: Vec<FunctionSummary>,
    /// Of messages and collective calls, by class of size.
    pub sizes: Vec<SizeSummary>,
    /// One for each MPI_COMM_WORLD.
    pub matrices: Vec<Matrix>,
    /// By seconds, most first.
    pub sites: Vec<SiteSummary>,
    /// What each core did that the kernel counts; empty where nothing was sampled.
    pub cores: Vec<CoreSummary>,
    /// In the order in which they began.
    pub phases: Vec<PhaseSummary>,
    /// What cores and ranks did, moment by moment; `None` where nothing was sampled.
    pub series: Option<Series>,
    /// `None` where no timeline was recorded.
    pub timeline: Option<Timeline>,
    /// Where its message processing should run.
    pub verdict: Option<Verdict>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobSummary {
    /// As it was given to `plimsoll profile`.
    pub command: Vec<String>,
    /// Nanoseconds since 1970.
    pub started: u64,
    /// Of the command, start to end; absent while it runs and where the profiler was killed.
    pub seconds: Option<f64>,
    /// Of the command, where it ended by itself.
    pub exit_code: Option<i32>,
    /// That ended the command.
    pub signal: Option<i32>,
    /// Ranks whose tables could be read.
    pub ranks: usize,
    /// Ranks that the worlds have.
    pub expected: usize,
    /// MPI_COMM_WORLDs: programs that MPI_Comm_spawn started have their own.
    pub worlds: usize,
    /// By the first of their ranks.
    pub hosts: Vec<HostSummary>,
    /// What MPI says that it is, each once.
    pub libraries: Vec<String>,
    /// Every rank is there, finalized, and nothing of it was dropped.
    pub complete: bool,
    /// What is missing or was dropped, and why.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostSummary {
    /// As its kernel has it.
    pub name: String,
    /// That ran on it.
    pub ranks: usize,
    /// Cores that are on line.
    pub cores: Reading<u32>,
}

/// Of all ranks together, between MPI_Init's return and MPI_Finalize's call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Of the longest rank.
    pub seconds: f64,
    /// The same of every thread that called MPI, added up: the whole that shares of time are of.
    pub thread_seconds: f64,
    /// Of all functions that are counted.
    pub calls: u64,
    /// Of all ranks, over `seconds`.
    pub calls_per_second: f64,
    /// Inside MPI.
    pub mpi: f64,
    /// `mpi` over `thread_seconds`.
    pub mpi_share: f64,
    /// Outside MPI.
    pub compute: f64,
    /// How evenly the computing is spread: its mean over ranks by that of the rank that computes most.
    pub balance: f64,
    /// Of `mpi`.
    pub split: Split,
    /// Begun to other ranks.
    pub messages: u64,
    /// Of those messages.
    pub bytes: u64,
    /// What recording added to each call, measured when a rank started: the greatest of all.
    pub recording: Reading<f64>,
}

/// Time inside MPI, divided. The three add up to the whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// What the calls take when nobody is late.
    pub transfer: Reading<f64>,
    /// All beyond that: for a rank that is late, or a network that is busy.
    pub wait: Reading<f64>,
    /// Of calls that are too few to tell.
    pub undivided: f64,
}

impl Default for Split {
    fn default() -> Self {
        Split { transfer: Reading::Modelled(0.0), wait: Reading::Modelled(0.0), undivided: 0.0 }
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
    /// Place in [`Summary::matrices`].
    pub world: usize,
    /// In MPI_COMM_WORLD.
    pub rank: u32,
    /// Its name.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// Its file.
    pub program: String,
    /// How it ended.
    pub state: State,
    /// Cores that it was seen on, the most seen first.
    pub cores: Reading<Vec<u32>>,
    /// Threads that called MPI.
    pub threads: u32,
    /// Between MPI_Init's return and MPI_Finalize's call, or the last moment noted.
    pub seconds: f64,
    /// The same of each of its threads that called MPI, added up.
    pub thread_seconds: f64,
    /// In MPI_Init, which is no part of any other figure here.
    pub startup: f64,
    /// In MPI_Finalize; the same.
    pub shutdown: f64,
    /// Without those two.
    pub calls: u64,
    /// Inside MPI.
    pub mpi: f64,
    /// Outside MPI; with `mpi` it makes `thread_seconds`.
    pub compute: f64,
    /// Of `mpi`.
    pub split: Split,
    /// Begun to other ranks.
    pub messages: u64,
    /// Of those messages.
    pub bytes: u64,
    /// Network softirq time on its cores while it was there: the whole, also where ranks share a core.
    pub softirq: Reading<f64>,
    /// Times that it was taken off its core.
    pub involuntary: Reading<u64>,
    /// By class of function.
    pub classes: BTreeMap<String, ClassSummary>,
    /// Seconds that other ranks waited for it. Only a timeline tells.
    pub caused: Reading<f64>,
    /// Seconds of its wait for partners that had begun their half of a message and then were outside of MPI: what moves data
    /// without them, an offloading device or a helper on another core, would save at most this. Only a timeline tells.
    pub away: Reading<f64>,
    /// For whom it waited, most first; empty without a timeline.
    pub waits_for: Vec<WaitsFor>,
    /// The call that it was in when it was last seen.
    pub inside: Option<Inside>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassSummary {
    /// Of all functions of the class.
    pub calls: u64,
    /// In them.
    pub seconds: f64,
    /// Of `seconds`.
    pub split: Split,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitsFor {
    /// Place in [`Summary::ranks`].
    pub rank: usize,
    /// That it waited.
    pub seconds: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Inside {
    /// With `MPI_`.
    pub function: String,
    /// From its entry to the last moment noted.
    pub seconds: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionSummary {
    /// With `MPI_`.
    pub name: String,
    /// What it is for: see Words.
    pub class: String,
    /// Ranks of the communicator of a collective call; 0 for calls of other kinds.
    pub group: u32,
    /// Whether shares and totals count it: MPI_Init and MPI_Finalize they do not.
    pub counted: bool,
    /// Ranks that called it.
    pub ranks: usize,
    /// Of all ranks.
    pub calls: u64,
    /// Of all calls.
    pub calls_share: f64,
    /// In them, of all ranks.
    pub seconds: f64,
    /// Of the time in MPI.
    pub time_share: f64,
    /// Of one call.
    pub mean: f64,
    /// The shortest call.
    pub least: f64,
    /// The longest call.
    pub most: f64,
    /// The median call, to about a tenth, as the histogram allows.
    pub p50: f64,
    /// 99 % of the calls took no longer, to about a tenth.
    pub p99: f64,
    /// Of all calls.
    pub bytes: u64,
    /// Of `seconds`.
    pub split: Split,
    /// By class of size.
    pub sizes: Vec<FunctionSize>,
    /// By class of duration, four to a doubling.
    pub times: Vec<TimeClass>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionSize {
    /// The smallest size of the class.
    pub floor: u64,
    /// With sizes of the class.
    pub calls: u64,
    /// Of those calls.
    pub bytes: u64,
    /// In those calls.
    pub seconds: f64,
    /// What such a call takes when nobody is late.
    pub unhindered: Reading<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimeClass {
    /// The shortest of the class.
    pub floor: f64,
    /// That took so long.
    pub calls: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SizeSummary {
    /// The smallest size of the class; the next begins at twice that.
    pub floor: u64,
    /// Calls that send a message of this size. Started persistent requests are not among them, and what goes to MPI_PROC_NULL
    /// counts as 0 bytes.
    pub messages: u64,
    /// Of those calls.
    pub bytes: u64,
    /// Calls of collective functions.
    pub collectives: u64,
    /// What the calling ranks contributed.
    pub collective_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Matrix {
    /// What tells this MPI_COMM_WORLD from the others.
    pub world: String,
    /// Ranks of it.
    pub ranks: u32,
    /// Only where there was something: `[from, to, messages, bytes, operations, operation_bytes]`, both ranks in this
    /// world, operations being one-sided.
    pub cells: Vec<[u64; 6]>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SiteSummary {
    /// The MPI function, with `MPI_`.
    pub function: String,
    /// As [`FunctionSummary::counted`].
    pub counted: bool,
    /// The function that calls it, innermost first: the first may be inlined into the next.
    pub frames: Vec<Frame>,
    /// The file of code that it is in.
    pub module: String,
    /// Of the call's return, in the module's file.
    pub offset: u64,
    /// Ranks that came by.
    pub ranks: usize,
    /// Of all ranks.
    pub calls: u64,
    /// In those calls.
    pub seconds: f64,
    /// Of the time in MPI; 0 for MPI_Init and MPI_Finalize, which are not part of it.
    pub time_share: f64,
    /// The longest call.
    pub most: f64,
    /// Of all calls.
    pub bytes: u64,
    /// Why there is no line, where there is none.
    pub note: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// Of the function; a symbol and how far from it, where there is no debug information.
    pub name: Option<String>,
    /// Of its source, as the compiler was given it.
    pub file: Option<String>,
    /// In that file.
    pub line: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CoreSummary {
    /// Name of its host.
    pub host: String,
    /// Its number there.
    pub core: u32,
    /// Share of the time that it was not idle.
    pub busy: Reading<f64>,
    /// Softirqs that received (NET_RX).
    pub softirq_rx: Reading<f64>,
    /// The time in them.
    pub softirq_rx_seconds: Reading<f64>,
    /// Softirqs that sent (NET_TX).
    pub softirq_tx: Reading<f64>,
    /// The time in them.
    pub softirq_tx_seconds: Reading<f64>,
    /// Hardware interrupts.
    pub interrupts: Reading<f64>,
    /// Places in [`Summary::ranks`] that spent a hundredth of their time on it or more.
    pub ranks: Vec<usize>,
    /// Of those: wait over their time, each by the time that it was there.
    pub wait_share: Reading<f64>,
    /// Joules of its package while the job ran.
    pub energy: Reading<f64>,
}

/// Between two calls of MPI_Pcontrol, as the first rank of a world made them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseSummary {
    /// Place in [`Summary::matrices`].
    pub world: usize,
    /// That MPI_Pcontrol was given.
    pub level: i32,
    /// Its beginning, since [`JobSummary::started`].
    pub from: f64,
    /// Its end.
    pub to: f64,
    /// Where cores were sampled.
    #[serde(default)]
    pub cores: Vec<PhaseCore>,
    /// Where ranks were sampled: each between its own calls, where it marked the same phases.
    #[serde(default)]
    pub ranks: Vec<PhaseRank>,
}

/// What a core did in a phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseCore {
    /// Place in [`Summary::cores`].
    pub core: usize,
    /// Share of the time that it was not idle.
    pub busy: Reading<f64>,
    /// Network softirqs, receiving and sending.
    pub softirqs: Reading<f64>,
    /// The time in them.
    pub softirq_seconds: Reading<f64>,
    /// Hardware interrupts.
    pub interrupts: Reading<f64>,
}

/// What a rank met in a phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseRank {
    /// Place in [`Summary::ranks`].
    pub rank: usize,
    /// Between its own calls of MPI_Pcontrol.
    pub seconds: f64,
    /// Inside MPI, of all its threads.
    pub mpi: Reading<f64>,
    /// Network softirq time on its cores while it was there.
    pub softirq: Reading<f64>,
    /// Times that it was taken off its core.
    pub involuntary: Reading<u64>,
}

/// Columns of equal length; a column without a sample is null.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Of the first column, since [`JobSummary::started`].
    pub from: f64,
    /// From one column to the next.
    pub step: f64,
    /// How many there are.
    pub columns: usize,
    /// Of each core.
    pub cores: Vec<CoreSeries>,
    /// Of each rank.
    pub ranks: Vec<RankSeries>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CoreSeries {
    /// Name of its host.
    pub host: String,
    /// Its number there.
    pub core: u32,
    /// Share of each step that it was not idle.
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
    /// Place in [`Summary::ranks`].
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
    /// Of the first column, since [`JobSummary::started`].
    pub from: f64,
    /// From one column to the next.
    pub step: f64,
    /// How many there are.
    pub columns: usize,
    /// Names of functions, with `MPI_`, that lanes refer to by place.
    pub names: Vec<String>,
    /// One for each thread of each rank.
    pub lanes: Vec<Lane>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Lane {
    /// Place in [`Summary::ranks`].
    pub rank: usize,
    /// Its number in the rank.
    pub thread: u16,
    /// By column: the function in which most of it passed, as a place in `names`; null: outside MPI.
    pub most: Vec<Option<u16>>,
    /// By column: its share inside MPI.
    pub mpi: Vec<f32>,
}
