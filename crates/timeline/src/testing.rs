//! Profiles with given calls, for tests.

use std::collections::BTreeMap;
use std::path::Path;

use record::functions::{function, named};
use record::image::Image;
use record::layout::{Moment, Site, Thread, kind, text};
use record::samples::{Head, Origins, ThreadStop, ThreadWork, Writer};
use record::trace::{Call, Encoder, Header, Matched, Reference, block, tag};
use tempfile::TempDir;

/// Ticks at the start; a tick is a nanosecond here.
pub const STARTED: u64 = 1_000_000_000;
const MONOTONIC: u64 = 5_000;
/// When ranks began, ns since 1970.
pub const REALTIME: u64 = 7_000_000_000;

/// One rank's calls, thread by thread.
pub struct Written {
    pub rank: u32,
    pub threads: Vec<Lines>,
}

/// The calls of a thread, with the numbers of what they begin.
#[derive(Default)]
pub struct Lines {
    pub thread: u16,
    pub calls: Vec<(Call, Vec<Reference>, Vec<Matched>)>,
    pub begun: u64,
    pub sites: Vec<Site>,
}

impl Lines {
    /// `entered` and `left` are nanoseconds since the start.
    pub fn call(&mut self, name: &str, (entered, left): (u64, u64), to: (i32, i32, u64)) -> u64 {
        let function = named(name).unwrap();
        let mut call = Call::new(function.id, STARTED + entered, STARTED + left);
        (call.communicator, call.peer, call.tag, call.bytes) = (0, to.0, to.1, to.2);
        call.begun = u16::from(function.argument("request").is_some() && !["Wait", "Test"].contains(&name));
        self.calls.push((call, Vec::new(), Vec::new()));
        self.begun += u64::from(call.begun);
        self.begun.wrapping_sub(1)
    }

    /// Sets the site of the last call.
    pub fn at(&mut self, site: u16) {
        self.calls.last_mut().unwrap().0.site = site;
    }

    pub fn collective(&mut self, name: &str, times: (u64, u64), root: i32, bytes: u64) -> u64 {
        self.call(name, times, (root, tag::NONE, bytes))
    }

    /// Adds a completion, or a start, of operations of this thread.
    pub fn complete(&mut self, name: &str, (entered, left): (u64, u64), operations: &[u64]) {
        let mut call = Call::new(named(name).unwrap().id, STARTED + entered, STARTED + left);
        if name.starts_with("Start") {
            call.begun = operations.len() as u16;
            self.begun += u64::from(call.begun);
        }
        let references = operations.iter().map(|ordinal| Reference { thread: self.thread, ordinal: *ordinal });
        self.calls.push((call, references.collect(), Vec::new()));
    }

    /// Sets what the last call received, for the `place`th operation that it completes.
    pub fn got(&mut self, place: u32, source: i32, tag: i32, bytes: u64) {
        self.calls.last_mut().unwrap().2.push(Matched { place, source, tag, bytes });
    }

    pub fn exchange(&mut self, times: (u64, u64), to: (i32, i32, u64), from: (i32, i32, u64)) {
        self.call("Sendrecv", times, to);
        let call = &mut self.calls.last_mut().unwrap().0;
        (call.source, call.source_tag, call.source_bytes) = from;
    }

    fn file(&self, shift: u32) -> Vec<u8> {
        let header = Header::new(shift, STARTED, 1, self.thread);
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&header);
        for (call, references, matched) in &self.calls {
            let mut out = vec![0; Encoder::room(references.len(), matched.len())];
            let length = encoder.encode(call, references, matched, &mut out).unwrap();
            file.extend_from_slice(&out[..length]);
        }
        block::file(&header, &file)
    }
}

/// A profile of ranks of one host, in which communicator 0 is MPI_COMM_WORLD.
pub fn profile(ranks: Vec<Lines>) -> TempDir {
    let size = ranks.len() as u32;
    let written =
        ranks.into_iter().enumerate().map(|(rank, lines)| Written { rank: rank as u32, threads: vec![lines] });
    let folder = tempfile::tempdir().unwrap();
    for written in written {
        write(folder.path(), size, &written, &[(0, (0..size).collect())]);
    }
    folder
}

fn totals(lines: &Lines) -> Thread {
    let mut totals = Thread::default();
    for (call, ..) in &lines.calls {
        let Some(function) = function(call.function) else { continue };
        totals.calls += 1;
        totals.ticks[function.class as usize] += call.left - call.entered;
        if function.argument("dest").is_some() {
            totals.messages += 1;
            totals.bytes += call.bytes;
        }
    }
    totals
}

/// Writes samples of the ranks' host. Rank 0 was stopped in the times `stops`, ns since the start, each found by a
/// sample at its end. Samples end at `end`.
pub fn sample_stops(folder: &Path, ranks: u32, stops: &[(u64, u64)], end: u64) {
    let head = Head {
        host: "here".into(),
        boot: "b".into(),
        pid: 9,
        monotonic: MONOTONIC,
        realtime: REALTIME,
        interval: 1,
        for_ranks: Some(ranks),
        cores: (0..ranks).map(|core| (core, 0)).collect(),
        origins: Origins::measured("told"),
    };
    let mut file = Vec::new();
    let mut writer = Writer::begin(&mut file, &head).unwrap();
    let mut look = |since: u64, stopped: u64| {
        for rank in 0..ranks {
            let pid = 100 + rank;
            let work = ThreadWork { core: 1 + u64::from(rank), ..ThreadWork::default() };
            writer.thread_work(pid, 0, pid, &work).unwrap();
            writer.thread_stop(pid, 0, pid, &ThreadStop { stopped: if rank == 0 { stopped } else { 0 } }).unwrap();
        }
        writer.end_work(MONOTONIC + since).unwrap();
    };
    look(0, 0);
    let mut stopped = 0;
    for (from, to) in stops {
        look(*from, stopped);
        stopped += to - from;
        look(*to, stopped);
    }
    look(end, stopped);
    writer.finish(MONOTONIC + end).unwrap();
    std::fs::create_dir_all(folder.join(record::folder::HOSTS)).unwrap();
    std::fs::write(record::folder::samples_file(folder, "here"), file).unwrap();
}

pub fn write(folder: &Path, size: u32, written: &Written, communicators: &[(u32, Vec<u32>)]) {
    let mut image = Image::default();
    let (rank, pid) = (written.rank, 100 + written.rank);
    let header = &mut image.header;
    (header.placed, header.rank, header.size, header.pid) = (1, rank, size, pid);
    header.clock = record::layout::clock::COUNTER;
    header.started = Moment { ticks: STARTED, monotonic: MONOTONIC, realtime: REALTIME };
    // A rank lasts until its last call, at least a millisecond.
    let calls = || written.threads.iter().flat_map(|lines| &lines.calls);
    let length = calls().map(|(call, ..)| call.left - STARTED).fold(1_000_000, u64::max);
    header.latest = Moment { ticks: STARTED + length, monotonic: MONOTONIC + length, realtime: REALTIME + length };
    header.host = text("here");
    header.world = text("w");
    header.boot = text("b");
    header.threads = written.threads.len() as u32;
    for (number, members) in communicators {
        let is_inter = members.contains(&record::layout::BETWEEN_SIDES);
        let kind = if is_inter { kind::SIDES } else { kind::MEMBERS };
        image.region::<u32>(kind, record::layout::WHOLE_RANK, (0, *number), members);
    }
    let ranks = folder.join(record::folder::RANKS);
    std::fs::create_dir_all(&ranks).unwrap();
    for lines in &written.threads {
        let file = lines.file(0);
        let state = Thread { traced: file.len() as u64, ..totals(lines) };
        image.region(kind::THREAD, lines.thread, (0, 0), &[state]);
        image.region(kind::SITES, lines.thread, (0, 0), &lines.sites);
        // The tables have the same calls.
        let mut rows: BTreeMap<_, Vec<(u64, u64)>> = BTreeMap::new();
        for (call, ..) in &lines.calls {
            rows.entry(call.function).or_default().push((call.left - call.entered, call.bytes));
        }
        for (id, calls) in rows {
            let collective = function(id).unwrap().class == record::functions::Class::Collective;
            image.row(lines.thread, id, if collective { size } else { 0 }, calls);
        }
        // The file is longer than its complete part.
        let longer = [&file[..], &[0; 100]].concat();
        std::fs::write(record::folder::trace_file(folder, "here", pid, lines.thread), longer).unwrap();
    }
    image.write(&record::folder::rank_file(folder, "here", pid)).unwrap();
}
