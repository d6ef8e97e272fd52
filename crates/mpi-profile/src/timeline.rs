//! The timelines of a rank's threads, in the format of `record::trace`.

pub mod arguments;
pub mod file;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use record::folder::{self, variable};
use record::layout::{BETWEEN_SIDES, Thread, kind, members_seal};
use record::trace::{Encoder, Header, Matched, Reference};

use crate::clock;
use crate::communicators::{Communicator, NO_RANK};
use crate::complaint::Complaint;
use crate::requests::Begun;

use arguments::Arguments;
use file::File;

/// The timeline of a thread.
#[derive(Debug)]
pub struct Tracing {
    pub file: File,
    pub encoder: Encoder,
    pub arguments: &'static [Arguments],
    thread: u16,
    /// Of the present call: operations begun so far, operations completed, and what their receives matched.
    pub begun: u16,
    pub references: Vec<Reference>,
    pub matched: Vec<Matched>,
    /// Buffer for statuses that the program ignores.
    pub statuses: Vec<u64>,
    /// The communicator of the last receive from any source or with any tag.
    pub last: Option<Arc<Communicator>>,
}

/// The settings and communicators that the timelines of a rank's threads share.
#[derive(Debug)]
pub struct Timeline {
    folder: PathBuf,
    host: String,
    /// Bytes that a thread's timeline may take.
    limit: u64,
    arguments: Vec<Arguments>,
    known: Mutex<HashMap<u32, Arc<Communicator>>>,
}

impl Timeline {
    /// `None` where no timeline is requested.
    pub fn wanted(folder: &Path, host: &str) -> Result<Option<Timeline>, Complaint> {
        let limit = match std::env::var(variable::TRACE) {
            Ok(text) => text.trim().parse().map_err(|_| {
                let cause = format!("{} is no number of bytes: {text}", variable::TRACE);
                Complaint::new(cause, "set it to the bytes that a thread's timeline may take, or leave it out")
            })?,
            Err(_) => 0,
        };
        let timeline = || Timeline {
            folder: folder.to_path_buf(),
            host: host.to_owned(),
            limit,
            arguments: arguments::all(),
            known: Mutex::default(),
        };
        Ok((limit > 0).then(timeline))
    }

    fn path(&self, thread: u16) -> PathBuf {
        folder::trace_file(&self.folder, &self.host, std::process::id(), thread)
    }

    pub fn known(&self, number: u32) -> Option<Arc<Communicator>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }

    /// Kind and records of the region with the members of a communicator or window; `None` where it was met before. The
    /// records of an intercommunicator are the same on both sides; `None` where a member is outside this MPI_COMM_WORLD.
    pub fn met(&self, group: &Arc<Communicator>) -> Option<(u16, Vec<u32>)> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.insert(group.number, group.clone()).is_some() {
            return None;
        }
        let addressed: Vec<u32> =
            (0..group.fan).map(|place| group.world_rank(place as i32).unwrap_or(NO_RANK)).collect();
        let (kind, mut members) = match group.inter {
            false => (kind::MEMBERS, addressed),
            true => (kind::SIDES, sides(group.own.as_deref()?, &addressed)?),
        };
        members.push(members_seal(&members));
        Some((kind, members))
    }
}

/// Both groups of an intercommunicator, in one order on both sides; `None` where a member is outside this world.
fn sides(own: &[u32], other: &[u32]) -> Option<Vec<u32>> {
    let (first, second) = if own.first()? < other.first()? { (own, other) } else { (other, own) };
    let all = [first, &[BETWEEN_SIDES], second].concat();
    (all.iter().filter(|rank| **rank == NO_RANK).count() == 1).then_some(all)
}

impl Tracing {
    pub fn new(timeline: &'static Timeline, clock: u32, index: u16, thread: *mut Thread) -> Option<Tracing> {
        let header = Header::new(clock::shift(clock), clock::ticks(clock), std::process::id(), index);
        match File::create(&timeline.path(index), timeline.limit, &header, thread) {
            Ok(file) => Some(Tracing {
                file,
                encoder: Encoder::new(&header),
                arguments: &timeline.arguments,
                thread: index,
                begun: 0,
                references: Vec::new(),
                matched: Vec::new(),
                statuses: Vec::new(),
                last: None,
            }),
            Err(Complaint { cause, next }) => {
                Complaint::new(format!("thread {index} has no timeline: {cause}"), next).say_lost();
                None
            }
        }
    }

    /// Seals the present block: the thread seems to end.
    pub fn close(&mut self) {
        self.file.close();
    }

    /// The number of an operation that the present call begins.
    pub fn begin(&mut self, any: bool) -> Begun {
        if self.begun == u16::MAX {
            return Begun::NOT;
        }
        let ordinal = self.encoder.next_operation() + u64::from(self.begun);
        self.begun += 1;
        Begun { ordinal, thread: self.thread, any }
    }
}
