//! The tables of a profile: each column once, with its names, unit and cells. `csv_tables` writes all columns that have a
//! `field`; `terminal` and `page` write a choice of columns.

use machine::Reading;

use self::Unit::{Count, Joules, Part, Seconds, Share, Watts};
use self::Value::{Bytes, Group, Nothing, Number, Uncounted};
use crate::summary::{
    CoreSummary, FunctionSize, FunctionSummary, OnPath, PhaseSummary, PowerSpan, RankSummary, SiteSummary, SizeSummary,
    ratio,
};

pub struct Column<R> {
    /// Name in a CSV file, with the unit; empty where no file has the column.
    pub field: &'static str,
    /// Name in tables for people.
    pub name: &'static str,
    /// The meaning of the column, where its name is not enough.
    pub title: &'static str,
    /// Name of a missing value in the list of absences; empty for columns that are not listed.
    pub missing: &'static str,
    pub cell: fn(&R) -> Value,
}

pub enum Value {
    Nothing,
    Text(String),
    Whole(u64),
    /// Ranks of a group; 0: no group.
    Group(u32),
    Bytes(u64),
    Number(Unit, f64),
    Read(Unit, Reading<f64>),
    /// The share of a function that is not part of the whole.
    Uncounted(f64),
}

#[derive(Clone, Copy, PartialEq)]
pub enum Unit {
    Seconds,
    /// Seconds, with the seconds of the whole.
    Part(f64),
    Share,
    Count,
    Joules,
    Watts,
}

fn text(value: impl ToString) -> Value {
    Value::Text(value.to_string())
}

fn whole(value: usize) -> Value {
    Value::Whole(value as u64)
}

fn seconds(value: f64) -> Value {
    Number(Seconds, value)
}

fn read(unit: Unit, of: &Reading<f64>) -> Value {
    Value::Read(unit, of.clone())
}

/// The unit of seconds that are part of a rank's time.
fn of(rank: &RankSummary) -> Unit {
    Part(rank.thread_seconds)
}

fn share(of: &FunctionSummary, share: f64) -> Value {
    if of.counted { Number(Share, share) } else { Uncounted(share) }
}

fn on_path(site: &SiteSummary, value: fn(&OnPath) -> Value) -> Value {
    site.critical.as_ref().map_or(Nothing, value)
}

fn list<T: ToString>(values: impl IntoIterator<Item = T>, between: &str) -> Value {
    text(values.into_iter().map(|value| value.to_string()).collect::<Vec<_>>().join(between))
}

/// A world's place, and a cell of its [`crate::summary::Matrix`].
pub type Pair = (usize, [u64; 6]);
/// A function, its group, and its calls of a size.
pub type OfSize = (String, u32, FunctionSize);

/// A table: its columns in the order of the CSV file, with field, name and title.
macro_rules! columns {
    ($table:ident: $row:ty, |$of:ident|
     $($column:ident $field:literal $name:literal $title:literal $(missing $missing:literal)? => $cell:expr;)*) => {
        pub mod $table {
            use super::*;

            $(pub const $column: Column<$row> = Column {
                field: $field,
                name: $name,
                title: $title,
                missing: concat!($($missing)?),
                cell: |$of| $cell,
            };)*
            pub const ALL: &[Column<$row>] = &[$($column),*];
        }
    };
}

columns! { ranks: RankSummary, |rank|
    WORLD "world" "" "" => text(rank.world);
    RANK "rank" "" "" => text(rank.rank);
    HOST "host" "" "" => text(&rank.host);
    PID "pid" "" "" => text(rank.pid);
    STATE "state" "" "" => text(rank.state.name());
    THREADS "threads" "" "" => text(rank.threads);
    TIME "seconds" "time" "between MPI_Init's return and MPI_Finalize's call" => seconds(rank.seconds);
    OF_THREADS "thread_seconds" "" "" => seconds(rank.thread_seconds);
    STARTUP "startup_seconds" "" "" => seconds(rank.startup);
    SHUTDOWN "shutdown_seconds" "" "" => seconds(rank.shutdown);
    CALLS "calls" "calls" "" => Value::Whole(rank.calls);
    MPI "mpi_seconds" "" "" => seconds(rank.mpi);
    OUTSIDE "compute_seconds" "" "" => seconds(rank.compute);
    COMPUTE "" "compute" "outside MPI and, as far as is known, on a core" => Number(of(rank), rank.computing());
    MESSAGES "messages" "messages" "begun to other ranks" => Value::Whole(rank.messages);
    BYTES "bytes" "bytes" "of those" => Bytes(rank.bytes);
    CORES "" "cores" "" => rank.cores.value().map_or_else(|| text("-"), |cores| list(cores.iter().take(3), ","));
    SOFTIRQ "softirq_seconds" "softirq" "network softirqs on its cores while it ran" missing "softirq time of ranks"
        => read(Seconds, &rank.softirq);
    TAKEN_OFF "involuntary_switches" "taken off" "involuntary switches" missing "involuntary switches of ranks"
        => Value::Read(Count, rank.involuntary.clone().map(|times| times as f64));
    STOPPED "stopped_seconds" "stopped" "by a signal or a debugger" missing "time that ranks were stopped"
        => read(Seconds, &rank.stopped);
    NO_CORE "run_delay_seconds" "no core" "runnable while others had its core"
        missing "time that ranks were runnable without a core" => read(Seconds, &rank.run_delay);
    STOLEN "stolen_seconds" "stolen" "by a hypervisor from its cores while it was there" missing "time stolen from ranks"
        => read(Seconds, &rank.stolen);
    CPU_OF_THREAD "thread_cpu_seconds" "" "" => read(Seconds, &rank.cpu_of_thread);
    CPU "cpu_seconds" "" "" => read(Seconds, &rank.cpu);
    OFF_OUTSIDE "compute_off_core_seconds" "" "" => read(Seconds, &rank.compute_off_core);
    TRANSFER "transfer_seconds" "transfer" "what its calls take when nobody is late" missing "transfer of ranks"
        => read(of(rank), &rank.split.transfer);
    WAIT "wait_seconds" "wait" "in MPI beyond that" missing "wait of ranks" => read(of(rank), &rank.split.wait);
    WAIT_SHARE "" "wait share" "of its time"
        => Value::Read(Share, rank.split.wait.clone().map(|wait| ratio(wait, rank.thread_seconds)));
    OFF_CORE "" "off core" ""
        => Value::Read(of(rank), rank.off_core().map_or_else(|| Reading::absent("it was not told"), Reading::Modelled));
    UNDIVIDED "undivided_seconds" "cannot tell" "" => Number(of(rank), rank.split.undivided);
    OFF_INSIDE "off_core_seconds" "" "" => read(Seconds, &rank.split.off_core);
    YIELDED "yielded_seconds" "" "" => read(Seconds, &rank.yielded);
    ON_CORE "on_core_seconds" "" "" => read(Seconds, &rank.outside.on_core);
    BLOCKED "blocked_seconds" "blocked" "outside MPI: asleep, or waiting for a lock, storage or another process"
        => read(of(rank), &rank.outside.blocked);
    SLEEP "sleep_seconds" "" "" => read(Seconds, &rank.outside.sleep);
    LOCK "lock_seconds" "" "" => read(Seconds, &rank.outside.lock);
    STORAGE "storage_seconds" "" "" => read(Seconds, &rank.outside.storage);
    AWAY "" "away" "" => read(Seconds, &rank.away);
    CAUSED "" "caused" "" => read(Seconds, &rank.caused);
}

columns! { functions: FunctionSummary, |f|
    NAME "function" "function" "" => text(&f.name);
    CLASS "class" "" "" => text(&f.class);
    GROUP "group_ranks" "ranks" "ranks: size of the communicator of a collective call" => Group(f.group);
    COUNTED "counted" "" "" => text(f.counted);
    RANKS "ranks" "ranks" "that called it" => whole(f.ranks);
    CALLS "calls" "calls" "" => Value::Whole(f.calls);
    OF_CALLS "calls_share" "of calls" "share of all calls" => share(f, f.calls_share);
    TIME "seconds" "time" "of all ranks together" => seconds(f.seconds);
    OF_MPI "time_share" "of MPI" "share of the time in MPI" => share(f, f.time_share);
    MEAN "mean_seconds" "mean" "" => seconds(f.mean);
    LEAST "least_seconds" "least" "of one call" => seconds(f.least);
    MOST "most_seconds" "most" "of one call" => seconds(f.most);
    P50 "p50_seconds" "p50" "median of one call, to about a tenth" => seconds(f.p50);
    P99 "p99_seconds" "p99" "99 % of calls are shorter" => seconds(f.p99);
    BYTES "bytes" "bytes" "of its calls together" => Bytes(f.bytes);
    TRANSFER "transfer_seconds" "" "" => read(Seconds, &f.split.transfer);
    WAIT "wait_seconds" "wait" "beyond what the call takes when nobody is late" => read(Seconds, &f.split.wait);
    UNDIVIDED "undivided_seconds" "" "" => seconds(f.split.undivided);
    OFF_CORE "off_core_seconds" "" "" => read(Seconds, &f.split.off_core);
}

columns! { function_sizes: OfSize, |of|
    FUNCTION "function" "" "" => text(&of.0);
    GROUP "group_ranks" "" "" => Group(of.1);
    FLOOR "floor_bytes" "" "" => Bytes(of.2.floor);
    CALLS "calls" "" "" => Value::Whole(of.2.calls);
    BYTES "bytes" "" "" => Bytes(of.2.bytes);
    TIME "seconds" "" "" => seconds(of.2.seconds);
    UNHINDERED "unhindered_seconds_per_call" "" "" => read(Seconds, &of.2.unhindered);
}

columns! { sizes: SizeSummary, |size|
    FLOOR "floor_bytes" "size" "" => Bytes(size.floor);
    MESSAGES "messages" "messages" "" => Value::Whole(size.messages);
    BYTES "bytes" "bytes" "" => Bytes(size.bytes);
    CALLS "collective_calls" "collective calls" "" => Value::Whole(size.collectives);
    OF_CALLS "collective_bytes" "bytes of them" "" => Bytes(size.collective_bytes);
}

columns! { matrix: Pair, |of|
    WORLD "world" "" "" => text(of.0);
    FROM "from_rank" "" "" => text(of.1[0]);
    TO "to_rank" "" "" => text(of.1[1]);
    MESSAGES "messages" "" "" => text(of.1[2]);
    BYTES "bytes" "" "" => text(of.1[3]);
    OPERATIONS "operations" "" "" => text(of.1[4]);
    OF_OPERATIONS "operation_bytes" "" "" => text(of.1[5]);
}

columns! { sites: SiteSummary, |site|
    CALL "function" "call" "" => text(&site.function);
    CALLER "caller" "" "" => list(site.frames.iter().filter_map(|frame| frame.name.as_deref()), " < ");
    FILE "file" "" "" => site.frames.first().and_then(|frame| frame.file.as_ref()).map_or(Nothing, text);
    LINE "line" "" "" => site.frames.first().and_then(|frame| frame.line).map_or(Nothing, text);
    MODULE "module" "" "" => text(&site.module);
    OFFSET "offset" "" "" => text(format!("{:#x}", site.offset));
    RANKS "ranks" "by ranks" "that came by" => whole(site.ranks);
    CALLS "calls" "calls" "" => Value::Whole(site.calls);
    TIME "seconds" "time" "of all ranks together" => seconds(site.seconds);
    OF_MPI "time_share" "of MPI" "share of the time in MPI" => Number(Share, site.time_share);
    MEAN "" "mean" "" => seconds(ratio(site.seconds, site.calls as f64));
    MOST "most_seconds" "most" "of one call" => seconds(site.most);
    BYTES "bytes" "bytes" "of its calls together" => Bytes(site.bytes);
    ON_PATH "" "on the path" "share of the critical path, in its calls and while messages that it sends are on their way"
        => on_path(site, |of| Number(Share, of.share));
    PASSED "critical_calls" "" "" => on_path(site, |of| Value::Whole(of.calls));
    TRIPS "critical_trips" "trips" "messages on the critical path that it sends: 1 ns more latency costs so many ns"
        => on_path(site, |of| Value::Whole(of.trips));
    PATH_TIME "critical_seconds" "" "" => on_path(site, |of| seconds(of.seconds));
    PATH_COMPUTE "critical_compute_seconds" "" "" => on_path(site, |of| seconds(of.compute));
    NOTE "note" "" "" => site.note.as_ref().map_or(Nothing, text);
}

columns! { cores: CoreSummary, |core|
    HOST "host" "host" "" => text(&core.host);
    CORE "core" "core" "" => text(core.core);
    BUSY "busy_share" "busy" "share of the time that it was not idle" missing "busy share of cores"
        => read(Share, &core.busy);
    RX "net_rx_softirqs" "NET_RX" "receiving network softirqs" missing "NET_RX of cores" => read(Count, &core.softirq_rx);
    RX_TIME "net_rx_seconds" "NET_RX time" "" missing "NET_RX time of cores" => read(Seconds, &core.softirq_rx_seconds);
    TX "net_tx_softirqs" "NET_TX" "sending network softirqs" missing "NET_TX of cores" => read(Count, &core.softirq_tx);
    TX_TIME "net_tx_seconds" "NET_TX time" "" missing "NET_TX time of cores" => read(Seconds, &core.softirq_tx_seconds);
    INTERRUPTS "interrupts" "interrupts" "" missing "interrupts of cores" => read(Count, &core.interrupts);
    RANKS "ranks" "" "" => list(&core.ranks, " ");
    WAIT "wait_share" "wait" "of its ranks, share of their time" missing "wait of a core's ranks"
        => read(Share, &core.wait_share);
    ENERGY "energy_joules" "energy" "of its package while the job ran" missing "energy" => read(Joules, &core.energy);
}

columns! { phases: PhaseSummary, |phase|
    FROM "" "from" "since the start" => seconds(phase.from);
    TO "" "to" "since the start" => seconds(phase.to);
    TOOK "" "took" "" => seconds(phase.to - phase.from);
}

columns! { power: PowerSpan, |span|
    ENERGY "" "energy" "of the covered time" => read(Joules, &span.joules);
    ERROR "" "error" "how far that may be off" => read(Joules, &span.error);
    MEAN "" "mean power" "" => read(Watts, &span.watts);
    ABOVE "" "above floor" "energy above the lowest second of the recording" => read(Joules, &span.above);
    COVERED "" "covered" "share of the time that samples tell of" => Number(Share, span.coverage);
}
