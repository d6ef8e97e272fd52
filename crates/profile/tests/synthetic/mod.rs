//! Profiles that no program left, whose truth is therefore known.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::fs;
use std::path::Path;

use profile::job::Job;
use record::folder;
use record::functions::named;
use record::image::Image;
use record::layout::{Module, Moment, Peer, Site, Thread, clock, family, kind, text};
use record::samples::{Head, Origins};
use zerocopy::FromZeros;

/// Ticks a nanosecond.
pub const RATE: u64 = 2;
pub const SECOND: u64 = 1_000_000_000;
/// When the job began, ns since 1970.
pub const STARTED: u64 = 1_700_000_000 * SECOND;

/// One rank's calls as durations in ns and sizes in bytes.
pub struct Rank {
    pub image: Image,
    /// What its thread does at the end.
    pub thread: Thread,
    calls: u64,
    ticks: [u64; 16],
    peers: Vec<(u64, u64)>,
    /// Messages that are in no matrix.
    unlisted: u64,
}

impl Rank {
    /// It runs for `nanoseconds` between MPI_Init and MPI_Finalize.
    pub fn new(rank: u32, size: u32, nanoseconds: u64) -> Rank {
        let mut image = Image::default();
        let header = &mut image.header;
        header.pid = 1000 + rank;
        header.family = family::OPEN_MPI;
        (header.placed, header.rank, header.size) = (1, rank, size);
        (header.clock, header.threads, header.thread_level) = (clock::COUNTER, 1, 1);
        // Each process began at another moment of its host's clock.
        let moment = |ns: u64| Moment { ticks: ns * RATE, monotonic: ns + 5 * SECOND, realtime: ns + STARTED };
        let start = 1_000_000 * u64::from(rank + 1);
        header.started = moment(start);
        header.initialized = (start + SECOND / 10) * RATE;
        header.finalized = header.initialized + nanoseconds * RATE;
        header.latest = moment(start + SECOND / 10 + nanoseconds + SECOND / 20);
        header.ended = header.latest.ticks;
        header.cost = 20 * RATE;
        header.host = text("node-a");
        header.boot = text("a-boot");
        header.world = text("world-1");
        header.program = text("/bin/app");
        header.library = text("Open MPI v4.1.4");
        let mut rank =
            Rank { image, thread: Thread::default(), calls: 0, ticks: [0; 16], peers: Vec::new(), unlisted: 0 };
        rank.calls("Init", 0, [(SECOND / 10, 0)]);
        rank.calls("Finalize", 0, [(SECOND / 20, 0)]);
        rank
    }

    /// `(ns, bytes)` of each call.
    pub fn calls(&mut self, function: &str, group: u32, calls: impl IntoIterator<Item = (u64, u64)>) -> &mut Rank {
        let function = named(function).expect("a function of MPI");
        let calls: Vec<_> = calls.into_iter().map(|(ns, bytes)| (ns * RATE, bytes)).collect();
        self.calls += calls.len() as u64;
        self.ticks[function.class as usize] += calls.iter().map(|(ticks, _)| ticks).sum::<u64>();
        self.image.row(0, function.id, group, calls);
        self
    }

    /// `(messages, bytes)` to each rank of the world.
    pub fn peers(&mut self, peers: &[(u64, u64)]) -> &mut Rank {
        let peer = |&(messages, bytes): &(u64, u64)| Peer { messages, bytes, ..Peer::default() };
        self.peers.extend(peers);
        self.image.region(kind::PEERS, 0, (0, 0), &peers.iter().map(peer).collect::<Vec<_>>());
        self
    }

    /// So many messages more than to known peers.
    pub fn unlisted(&mut self, messages: u64) -> &mut Rank {
        self.unlisted += messages;
        self
    }

    /// A module loaded at `base`, and the calls of `function` in it: `(offset, calls, ns)`.
    pub fn sites(&mut self, path: &str, base: u64, function: &str, sites: &[(u64, u64, u64)]) -> &mut Rank {
        let function = named(function).expect("a function of MPI").id.0;
        let site = |&(offset, calls, ns): &(u64, u64, u64)| Site {
            address: base + offset,
            offset,
            module: 1,
            function,
            calls,
            ticks: ns * RATE,
            most: ns * RATE / calls.max(1),
            ..Site::default()
        };
        let module = Module { base, path: text(path), ..Module::new_zeroed() };
        self.image.of_rank(kind::MODULES, &[module]);
        self.image.region(kind::SITES, 0, (0, 0), &sites.iter().map(site).collect::<Vec<_>>());
        self
    }

    /// With what its one thread counted.
    pub fn finished(&mut self) -> &Image {
        let (mut messages, mut bytes) = (self.unlisted, 0);
        for (more, sum) in &self.peers {
            (messages, bytes) = (messages + more, bytes + sum);
        }
        let thread = Thread { tid: 1, calls: self.calls, ticks: self.ticks, messages, bytes, ..self.thread };
        self.image.region(kind::THREAD, 0, (0, 0), &[thread]);
        &self.image
    }

    pub fn write(&mut self, profile: &Path) {
        self.finished();
        let header = &self.image.header;
        let file = folder::rank_file(profile, &record::layout::words(&header.host), header.pid);
        fs::create_dir_all(file.parent().expect("a file in a folder")).unwrap();
        self.image.write(&file).unwrap();
    }
}

/// Of samples of the ranks' host, where all is told.
pub fn head() -> Head {
    Head {
        host: "node-a".into(),
        boot: "a-boot".into(),
        pid: 1,
        monotonic: 5 * SECOND,
        realtime: STARTED,
        interval: SECOND / 50,
        for_ranks: Some(2),
        cores: vec![(0, 0), (1, 0)],
        origins: Origins::measured("told"),
    }
}

pub fn job() -> Job {
    Job {
        command: ["mpirun", "-n", "4", "./app"].map(Into::into).into(),
        host: "node-a".into(),
        started: STARTED,
        ended: Some(STARTED + 11 * SECOND),
        exit_code: Some(0),
        ..Job::default()
    }
}

pub fn write(profile: &Path, job: &Job, ranks: &mut [Rank]) {
    job.write(profile).unwrap();
    for rank in ranks {
        rank.write(profile);
    }
}
