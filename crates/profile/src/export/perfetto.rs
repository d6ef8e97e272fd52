//! The trace event format of Chrome, which ui.perfetto.dev opens: a track for each thread of each rank, an arrow for each
//! message, and counters of each core's network work where cores were sampled.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};

use record::functions::function;
use record::trace::{communicator, peer, tag};

use crate::printable::escaped;
use crate::summary::Series;
use timeline::{Kind, Rank, Step, Timeline};

/// Counts of the written events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Perfetto {
    pub calls: u64,
    /// Messages drawn from send to receive.
    pub arrows: u64,
    /// Values of counters.
    pub samples: u64,
}

/// Nanoseconds, written as microseconds, the format's unit.
struct Micro(i64);

impl fmt::Display for Micro {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(f, "{sign}{}.{:03}", self.0.unsigned_abs() / 1000, self.0.unsigned_abs() % 1000)
    }
}

struct Events<'o, W> {
    out: &'o mut W,
    first: bool,
}

impl<W: Write> Events<'_, W> {
    fn put(&mut self, event: fmt::Arguments) -> io::Result<()> {
        self.out.write_all(if self.first { b"\n" } else { b",\n" })?;
        self.first = false;
        self.out.write_fmt(event)
    }

    fn name(&mut self, what: &str, process: usize, thread: u16, name: &str) -> io::Result<()> {
        let name = escaped(&serde_json::Value::from(name).to_string());
        self.put(format_args!(
            r#"{{"ph":"M","name":"{what}","pid":{process},"tid":{thread},"args":{{"name":{name}}}}}"#
        ))
    }
}

/// Writes a timeline call by call: memory does not grow with its length. `series`: samples of the cores, and the origin of
/// their times, ns since 1970.
///
/// # Errors
/// The errors of `out`.
pub fn perfetto(timeline: &Timeline, series: Option<(&Series, u64)>, out: &mut impl Write) -> io::Result<Perfetto> {
    let mut done = Perfetto::default();
    out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    let mut events = Events { out, first: true };
    for (place, rank) in timeline.ranks.iter().enumerate() {
        let world = if timeline.worlds.len() > 1 { format!(" of world {}", rank.world) } else { String::new() };
        let name = format!("rank {}{world} ({}, pid {})", rank.rank, rank.host, rank.pid);
        events.name("process_name", place, 0, &name)?;
        events.put(format_args!(
            r#"{{"ph":"M","name":"process_sort_index","pid":{place},"tid":0,"args":{{"sort_index":{place}}}}}"#
        ))?;
        for lane in &rank.lanes {
            events.name("thread_name", place, lane.thread, &format!("thread {}", lane.thread))?;
        }
        let mut walk = timeline.walk(place);
        while let Some(step) = walk.step() {
            done.calls += 1;
            call(&mut events, timeline, place, &step)?;
            done.arrows += arrows(&mut events, timeline, place, &step)?;
        }
    }
    if let Some((series, started)) = series {
        done.samples = counters(&mut events, timeline, series, started)?;
    }
    let notes = serde_json::Value::from(timeline.notes.clone());
    let origin = timeline.origin;
    write!(
        events.out,
        "\n],\"otherData\":{{\"producer\":\"plimsoll\",\"origin_ns_since_1970\":\"{origin}\",\"notes\":{notes}}}}}\n"
    )?;
    Ok(done)
}

fn call<W: Write>(events: &mut Events<W>, timeline: &Timeline, place: usize, step: &Step) -> io::Result<()> {
    let call = &step.event.call;
    let known = function(call.function);
    let (name, class) = known.map_or(("?", "?"), |f| (f.name, f.class.name()));
    let mut arguments = String::new();
    let mut argument = |text: fmt::Arguments| {
        use fmt::Write;
        let _ = write!(arguments, "{}{text}", if arguments.is_empty() { "" } else { "," });
    };
    if known.is_some_and(|f| f.bytes.is_some()) {
        argument(format_args!("\"bytes\":{}", call.bytes));
    }
    if call.peer != peer::NONE {
        argument(format_args!("\"peer\":{}", Peer(call.peer)));
    }
    if call.tag != tag::NONE {
        argument(format_args!("\"tag\":{}", call.tag));
    }
    if call.source != peer::NONE {
        let (bytes, tag) = (call.source_bytes, call.source_tag);
        argument(format_args!("\"source\":{},\"source_tag\":{tag},\"source_bytes\":{bytes}", Peer(call.source)));
    }
    if call.communicator != communicator::NONE {
        argument(format_args!("\"communicator\":{}", call.communicator));
    }
    if !step.event.references.is_empty() {
        argument(format_args!("\"operations\":{}", step.event.references.len()));
    }
    if let [matched] = &step.event.matched[..] {
        argument(format_args!(
            "\"got_from\":{},\"got_tag\":{},\"got_bytes\":{}",
            Peer(matched.source),
            matched.tag,
            matched.bytes
        ));
    }
    if let (Some(wait), _) = timeline.wait_of(place, step) {
        // A partner that began in time may be away afterwards: `away` without a wait.
        if wait.nanoseconds > 0 {
            argument(format_args!("\"waited_us\":{},\"wait\":\"{}\"", Micro(wait.nanoseconds), wait.state.words()));
        }
        if wait.away > 0 {
            argument(format_args!("\"away_us\":{}", Micro(wait.away)));
        }
        if let Some(whom) = wait.whom {
            argument(format_args!("\"waited_for\":{}", timeline.ranks[whom].rank));
        }
    }
    let (at, took, thread) = (Micro(step.entered), Micro(step.left - step.entered), step.thread);
    events.put(format_args!(
        r#"{{"ph":"X","name":"MPI_{name}","cat":"{class}","pid":{place},"tid":{thread},"ts":{at},"dur":{took},"args":{{{arguments}}}}}"#
    ))
}

struct Peer(i32);

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.0 {
            peer::ANY => f.write_str("\"any\""),
            peer::NULL => f.write_str("\"null\""),
            peer::UNKNOWN => f.write_str("\"unknown\""),
            rank => write!(f, "{rank}"),
        }
    }
}

/// An arrow begins in the call that begins the send and ends in the call that completes the receive.
fn arrows<W: Write>(events: &mut Events<W>, timeline: &Timeline, place: usize, step: &Step) -> io::Result<u64> {
    let rank: &Rank = &timeline.ranks[place];
    let mut arrows = 0;
    // The end of an arrow lies within its call, which ends at `left`.
    let end = Micro((step.left - 1).max(step.entered));
    let (begin, thread) = (Micro(step.entered), step.thread);
    for operation in step.begun.iter().filter(|operation| operation.kind == Kind::Send) {
        if let Some((id, _)) = timeline.matches.number(rank.rank, operation) {
            arrows += 1;
            events.put(format_args!(
                r#"{{"ph":"s","name":"message","cat":"message","id":{id},"pid":{place},"tid":{thread},"ts":{begin}}}"#
            ))?;
        }
    }
    for operation in step.completed.iter().filter(|operation| operation.kind == Kind::Receive) {
        if let Some((id, _)) = timeline.matches.number(rank.rank, operation) {
            events.put(format_args!(
                r#"{{"ph":"f","bp":"e","name":"message","cat":"message","id":{id},"pid":{place},"tid":{thread},"ts":{end}}}"#
            ))?;
        }
    }
    Ok(arrows)
}

/// A process for each host, with counters for each of its cores.
fn counters<W: Write>(events: &mut Events<W>, timeline: &Timeline, series: &Series, started: u64) -> io::Result<u64> {
    let mut hosts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut samples = 0;
    let since = started as i64 - timeline.origin as i64;
    for core in &series.cores {
        let next = timeline.ranks.len() + hosts.len();
        let known = hosts.contains_key(core.host.as_str());
        let process = *hosts.entry(&core.host).or_insert(next);
        if !known {
            events.name("process_name", process, 0, &format!("cores of {}", core.host))?;
        }
        let id = core.core;
        for (name, unit, values) in [
            ("network softirq", "share", &core.softirq),
            ("busy", "share", &core.busy),
            ("network softirqs", "per_second", &core.softirqs),
            ("interrupts", "per_second", &core.interrupts),
        ] {
            for (column, value) in values.iter().enumerate() {
                let Some(value) = value.filter(|value| value.is_finite()) else { continue };
                let at = Micro(since + ((series.from + series.step * column as f64) * 1e9) as i64);
                samples += 1;
                events.put(format_args!(
                    r#"{{"ph":"C","name":"core {id} {name}","pid":{process},"ts":{at},"args":{{"{unit}":{value}}}}}"#
                ))?;
            }
        }
    }
    Ok(samples)
}
