//! The latest totals in a growing file of samples: each look reads the bytes added since the last.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use machine::{Fault, Result};

use super::frame::{Cursor, kind};
use super::reader::{head, shape};
use super::series::{MOST, Totals};
use super::{CoreLoad, CoreWork, Head, MAGIC, ThreadBlocked, ThreadLoad, ThreadWork, VERSION};
use crate::untrusted;

/// Bytes read at once.
const CHUNK: usize = 1 << 18;
/// Longest frame, far above a moment of thousands of subjects; a frame that claims more is refused.
const LONGEST: usize = 1 << 23;
/// Most subjects or cores, far above those of the largest hosts.
const SUBJECTS: usize = 1 << 16;
/// Longest name of a host or a boot.
const NAME: usize = 256;

/// A file of samples, held open.
#[derive(Debug)]
pub struct Tail {
    file: File,
    at: u64,
    /// Bytes read that are not yet a whole frame.
    rest: Vec<u8>,
    head: Option<Head>,
    /// Number of bytes of the head in the file.
    begun: usize,
    subjects: Vec<Subject>,
    time: u64,
    ended: bool,
}

#[derive(Debug)]
struct Subject {
    kind: u8,
    numbers: [u32; 3],
    values: [u64; MOST],
}

impl Tail {
    /// # Errors
    /// The file cannot be read. One without a head yet is no error.
    pub fn open(path: &Path) -> Result<Tail> {
        let fault = |e| Fault::because(path.display().to_string(), e, "profile the program again");
        untrusted::open(path).map(Tail::of).map_err(fault)
    }

    /// As [`Tail::open`], for an open file.
    pub fn of(file: File) -> Tail {
        Tail { file, at: 0, rest: vec![], head: None, begun: 0, subjects: vec![], time: 0, ended: false }
    }

    /// Approximate memory in use, in bytes.
    pub fn weight(&self) -> usize {
        // A core takes at least two bytes of the head, and eight in memory.
        self.rest.capacity() + 4 * self.begun + size_of_val(&self.subjects[..])
    }

    /// Frees the memory of [`Tail::weight`]: nothing more is read.
    pub fn forget(&mut self) {
        (self.rest, self.head, self.begun, self.subjects) = Default::default();
    }

    /// Reads the frames added since the last time.
    ///
    /// # Errors
    /// The file is damaged or not of this version; totals read before stay.
    pub fn advance(&mut self) -> Result<()> {
        let refused = |cause: &str| Fault::new("samples", cause, "profile the program again");
        let unread = |e: std::io::Error| refused(&e.to_string());
        let mut chunk = vec![0; CHUNK];
        // The end is read once: the file may grow as fast as it is read.
        let end = self.file.metadata().map_err(unread)?.len();
        while self.at < end {
            let got = self.file.read_at(&mut chunk, self.at).map_err(unread)?;
            if got == 0 {
                break;
            }
            self.at += got as u64;
            self.rest.extend_from_slice(&chunk[..got]);
            let rest = std::mem::take(&mut self.rest);
            let mut cursor = Cursor(&rest);
            let damaged = || refused("a frame of them is damaged");
            if self.head.is_some() || self.begin(&mut cursor, &refused)? {
                while let Some((kind, contents)) = cursor.frame().map_err(|_| damaged())? {
                    self.take(kind, contents).ok_or_else(damaged)?;
                }
            }
            if cursor.0.len() > LONGEST {
                return Err(refused("a frame of them is longer than any"));
            }
            self.rest = cursor.0.to_vec();
        }
        Ok(())
    }

    /// Reads the start of the file; false where it is not complete.
    fn begin(&mut self, cursor: &mut Cursor, refused: &dyn Fn(&str) -> Fault) -> Result<bool> {
        let start = MAGIC.len() + size_of_val(&VERSION);
        let Some(begun) = cursor.0.get(..start) else { return Ok(false) };
        if !begun.starts_with(&MAGIC) || begun[MAGIC.len()..] != VERSION.to_le_bytes() {
            return Err(refused("the file does not begin as samples of this version do"));
        }
        let mut ahead = Cursor(&cursor.0[start..]);
        let frame = match ahead.frame() {
            Ok(None) => return Ok(false),
            frame => frame.ok().flatten(),
        };
        let fits = |head: &Head| head.host.len().max(head.boot.len()) <= NAME && head.cores.len() <= SUBJECTS;
        let head = frame.filter(|(kind, _)| *kind == kind::HEAD).and_then(|(_, contents)| head(contents));
        let head = head.filter(fits).ok_or_else(|| refused("their head is damaged"))?;
        self.begun = cursor.0.len() - ahead.0.len();
        self.time = head.monotonic;
        self.head = Some(head);
        *cursor = ahead;
        Ok(true)
    }

    fn take(&mut self, kind: u8, mut contents: Cursor) -> Option<()> {
        match kind {
            kind::TRACK => {
                let kind = contents.byte()?;
                let numbers = [contents.small()?, contents.small()?, contents.small()?];
                if self.subjects.len() == SUBJECTS {
                    return None;
                }
                self.subjects.push(Subject { kind, numbers, values: [0; MOST] });
            }
            kind::WORK | kind::LOAD => {
                self.time = self.time.checked_add(contents.number()?)?;
                while !contents.is_at_end() {
                    let place = usize::try_from(contents.number()?).ok()?;
                    let mask = contents.number()?;
                    let subject = self.subjects.get_mut(place)?;
                    let (fields, absolute) = shape(subject.kind)?;
                    if mask >> fields != 0 {
                        return None;
                    }
                    for field in (0..fields).filter(|field| mask >> field & 1 == 1) {
                        let number = contents.number()?;
                        let value = &mut subject.values[field];
                        *value = if absolute >> field & 1 == 1 { number } else { value.wrapping_add(number) };
                    }
                }
            }
            kind::END => self.ended = true,
            _ => {}
        }
        Some(())
    }

    /// The head; `None` while the file does not have it yet.
    pub fn head(&self) -> Option<&Head> {
        self.head.as_ref()
    }

    /// Time of the last moment: CLOCK_MONOTONIC of the host, ns.
    pub fn time(&self) -> u64 {
        self.time
    }

    /// Whether sampling ended in order.
    pub fn ended(&self) -> bool {
        self.ended
    }

    pub fn core_work(&self) -> BTreeMap<u32, CoreWork> {
        self.sums_by(|numbers| numbers[0])
    }

    pub fn core_load(&self) -> BTreeMap<u32, CoreLoad> {
        self.sums_by(|numbers| numbers[0])
    }

    /// Work of each thread, by process and the thread's index in its tables.
    pub fn thread_work(&self) -> BTreeMap<(u32, u16), ThreadWork> {
        self.sums_by(|numbers| (numbers[0], numbers[1] as u16))
    }

    /// Load of each thread, by process and the thread's index in its tables.
    pub fn thread_load(&self) -> BTreeMap<(u32, u16), ThreadLoad> {
        self.sums_by(|numbers| (numbers[0], numbers[1] as u16))
    }

    /// Blocked time of each thread, by process and the thread's index in its tables.
    pub fn thread_blocked(&self) -> BTreeMap<(u32, u16), ThreadBlocked> {
        self.sums_by(|numbers| (numbers[0], numbers[1] as u16))
    }

    fn sums_by<T: Totals, K: Ord>(&self, key: impl Fn([u32; 3]) -> K) -> BTreeMap<K, T> {
        let subjects = self.subjects.iter().filter(|subject| subject.kind == T::KIND);
        subjects.map(|subject| (key(subject.numbers), T::of(&subject.values))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::samples::{Origins, Samples, Writer};

    fn head_of() -> Head {
        Head {
            host: "a".into(),
            boot: "b".into(),
            pid: 1,
            monotonic: 1000,
            realtime: 5000,
            interval: 10,
            for_ranks: Some(2),
            cores: vec![(0, 0), (1, 0)],
            origins: Origins::measured("counted"),
        }
    }

    fn file() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::begin(&mut bytes, &head_of()).unwrap();
        for moment in 1..=50_u64 {
            writer
                .core_work(0, &CoreWork { net_rx: 7 * moment, net_rx_time: moment * moment, ..CoreWork::default() })
                .unwrap();
            let work = ThreadWork { core: 2, inside: moment % 3, calls: 100 * moment, ..ThreadWork::default() };
            writer.thread_work(42, 0, 43, &work).unwrap();
            writer.end_work(1000 + 10 * moment).unwrap();
            writer.core_load(1, &CoreLoad { idle: moment, stolen: 0 }).unwrap();
            writer.end_load(1001 + 10 * moment).unwrap();
        }
        writer.finish(2000).unwrap();
        bytes
    }

    #[test]
    fn a_file_that_grows_byte_by_byte_ends_as_it_is_read_whole() {
        let bytes = file();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.samples");
        let mut out = File::create(&path).unwrap();
        let mut tail = Tail::open(&path).unwrap();
        let mut calls = 0;
        for part in bytes.chunks(3) {
            out.write_all(part).unwrap();
            tail.advance().unwrap();
            let now = tail.thread_work().get(&(42, 0)).map_or(0, |work| work.calls);
            assert!(now >= calls, "totals only grow");
            calls = now;
        }
        let whole = Samples::read(&bytes).unwrap();
        assert_eq!(tail.core_work()[&0], whole.cores[&0].work.last().unwrap().1);
        assert_eq!(tail.core_load()[&1], whole.cores[&1].load.last().unwrap().1);
        assert_eq!(tail.thread_work()[&(42, 0)], whole.ranks[&42].threads[&0].work.last().unwrap().1);
        assert_eq!((tail.head(), tail.ended(), calls), (Some(&head_of()), true, 5000));
    }

    /// The file is sparse.
    #[test]
    fn a_frame_without_end_does_not_fill_the_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.samples");
        let start = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
        for mut endless in [start, file()] {
            // The length of the frame.
            endless.extend([0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]);
            std::fs::write(&path, &endless).unwrap();
            File::options().write(true).open(&path).unwrap().set_len(1 << 32).unwrap();
            let mut tail = Tail::open(&path).unwrap();
            assert!(tail.advance().is_err() && tail.weight() < 1 << 25);
            tail.forget();
            assert_eq!(tail.weight(), 0);
        }
    }

    #[test]
    fn what_is_damaged_is_refused_and_never_panics() {
        let bytes = file();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.samples");
        std::fs::write(&path, b"no samples at all").unwrap();
        assert!(Tail::open(&path).unwrap().advance().is_err());
        for place in 12..bytes.len() {
            let mut bad = bytes.clone();
            bad[place] ^= 0xa5;
            std::fs::write(&path, &bad).unwrap();
            let _ = Tail::open(&path).unwrap().advance();
        }
    }
}
