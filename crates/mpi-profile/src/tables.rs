//! The writer's side of the mapped file of a rank's tables (`record::layout`).

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use record::functions;
use record::layout::{DIRECTORY, FIRST_REGION, Header, MAGIC, PAGE, REGIONS, Region, VERSION, contents_seal, kind};
use zerocopy::FromZeros;

use crate::complaint::{Complaint, SPACE, is_full};
use crate::heading::Heading;

/// Bytes by which the file grows at a time.
const STEP: u64 = 256 << 10;

/// A mapping of the whole file up to its limit. Addresses beyond the present length are not accessed.
#[derive(Debug)]
pub struct Tables {
    start: NonNull<u8>,
    file: OwnedFd,
    /// Bytes of the file, all with storage behind them.
    length: u64,
    /// Bytes up to the end of the last region.
    used: u64,
    limit: u64,
    /// The error for which the file cannot grow any more.
    pub full: Option<String>,
}

// SAFETY: the mapping belongs to the process; regions are given out once.
unsafe impl Send for Tables {}

/// A region in use, mapped until the process ends.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    pub start: NonNull<u8>,
    pub entry: NonNull<Region>,
}

// SAFETY: the region is mapped as long as the process runs, and has one owner.
unsafe impl Send for Room {}

impl Tables {
    /// A new file that may grow to `limit` bytes.
    pub fn create(path: &Path, limit: u64) -> Result<(Tables, Heading), Complaint> {
        let shown = path.display();
        // A file that grows beyond the limit of the process kills it by SIGXFSZ.
        let limit = limit.next_multiple_of(PAGE as u64).min(largest_file() / PAGE as u64 * PAGE as u64);
        if limit < FIRST_REGION as u64 + STEP {
            let least = FIRST_REGION as u64 + STEP;
            return Err(Complaint::new(
                format!("{limit} bytes are too few for its tables ({least} at least)"),
                "raise PLIMSOLL_PROFILE_MEMORY, or ulimit -f where that is lower",
            ));
        }
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| {
                let next = "name a folder that every host of the job can write to";
                Complaint::unwritable(format_args!("folder {}", folder.display()), &error, next)
            })?;
        }
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| Complaint::new("the folder's name has a 0 in it", "name another folder"))?;
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        // SAFETY: a valid path and flags.
        let file = unsafe { libc::open(name.as_ptr(), flags, 0o644) };
        if file < 0 {
            let error = std::io::Error::last_os_error();
            return Err(Complaint::unwritable(&shown, &error, "profile into a new folder that can be written"));
        }
        // SAFETY: the descriptor was just opened and has no other owner.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, nothing is replaced.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), limit as usize, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        let mapped = NonNull::new(start.cast::<u8>()).filter(|_| start != libc::MAP_FAILED).ok_or_else(|| {
            let error = std::io::Error::last_os_error();
            Complaint::new(format!("{shown} cannot be mapped: {error}"), "lower PLIMSOLL_PROFILE_MEMORY")
        });
        let grown = mapped.and_then(|start| {
            let used = FIRST_REGION as u64;
            let mut tables = Tables { start, file, length: 0, used, limit, full: None };
            match tables.grow(used) {
                true => Ok(tables),
                false => Err(Complaint::new(format!("{shown}: {}", tables.full.as_deref().unwrap_or_default()), SPACE)),
            }
        });
        let tables = grown.inspect_err(|_| {
            let _ = std::fs::remove_file(path);
        })?;
        let mut header = Header::new_zeroed();
        (header.magic, header.version, header.functions) = (MAGIC, VERSION, functions::digest());
        header.limit = limit;
        // SAFETY: the file is at least as long as the header, and has no other writer.
        let heading = unsafe { Heading::new(tables.header(), header) };
        Ok((tables, heading))
    }

    fn header(&self) -> *mut Header {
        self.start.as_ptr().cast()
    }

    fn entry(&self, place: usize) -> NonNull<Region> {
        debug_assert!(place < REGIONS);
        // SAFETY: the directory has `REGIONS` entries.
        unsafe { self.start.add(DIRECTORY).cast::<Region>().add(place) }
    }

    /// Seals the present contents of every region.
    pub fn close(&mut self) {
        // SAFETY: the header is mapped, and only the holder of the tables changes this word.
        let regions = unsafe { (*self.header()).regions } as usize;
        for place in 0..regions {
            let entry = self.entry(place).as_ptr();
            // SAFETY: entries in use are whole, and mapped as long as the process runs.
            let region = unsafe { entry.read_volatile() };
            // SAFETY: a region lies in the file, and up to the end of its last page is a multiple of four words long.
            // Threads that go on may write to it, word by word.
            let word = |at: usize| unsafe {
                let start = self.start.as_ptr().add(region.offset as usize).cast::<u64>();
                AtomicU64::from_ptr(start.add(at)).load(Ordering::Relaxed)
            };
            let contents = contents_seal(&region, word);
            // SAFETY: the entry is mapped as long as the process runs.
            unsafe { (&raw mut (*entry).contents).write_volatile(contents) };
        }
    }

    /// Bytes that are left.
    pub fn left(&self) -> u64 {
        self.limit - self.used
    }

    /// Allocates storage for the file's first `bytes`: a store to a page without storage would end the process.
    fn grow(&mut self, bytes: u64) -> bool {
        if bytes <= self.length {
            return true;
        }
        if self.full.is_some() {
            return false;
        }
        let wanted = bytes.next_multiple_of(STEP).min(self.limit);
        let more = wanted - self.length;
        // SAFETY: the descriptor is of a file that is open for writing.
        let error = unsafe { libc::posix_fallocate(self.file.as_raw_fd(), self.length as i64, more as i64) };
        if error != 0 {
            let error = std::io::Error::from_raw_os_error(error);
            if self.length > 0 {
                let pid = std::process::id();
                let lost = "what needs more room is lost, and counted";
                crate::complaint::line(&format!(
                    "plimsoll: process {pid}: its tables cannot grow: {error}: {lost}. Next: {SPACE}\n"
                ));
                if is_full(&error) {
                    self.note_full();
                }
            }
            self.full = Some(error.to_string());
            return false;
        }
        self.length = wanted;
        true
    }

    /// Notes in the header that the tables lack storage, not a higher limit.
    fn note_full(&self) {
        let header = self.header();
        // SAFETY: the header is mapped, and these words are only changed as atomics.
        unsafe {
            for counters in [&raw mut (*header).dropped, &raw mut (*header).dropped_again] {
                AtomicU64::from_ptr(&raw mut (*counters).storage).fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// A new region, all zero; `None` where limit, directory or disk are full.
    pub fn region(&mut self, entry: Region) -> Option<Room> {
        let end = self.used.checked_add(entry.bytes())?.next_multiple_of(PAGE as u64);
        let header = self.header();
        // SAFETY: the header is mapped, and only the holder of the tables changes this word.
        let regions = unsafe { (*header).regions } as usize;
        // Call sites take three quarters of the room at most, and leave the rest to the other kinds of regions.
        let share = |all: u64| if entry.kind == kind::SITES { all - all / 4 } else { all };
        if end > share(self.limit) || regions as u64 >= share(REGIONS as u64) || !self.grow(end) {
            return None;
        }
        // SAFETY: regions are within the file, which was just made long enough.
        let start = unsafe { self.start.add(self.used as usize) };
        let place = self.entry(regions);
        // SAFETY: the entry lies in the directory and is given out once; readers read it once it is counted.
        unsafe {
            place.write(Region { offset: self.used, ..entry }.sealed());
            std::sync::atomic::fence(Ordering::Release);
            (&raw mut (*header).regions).write_volatile(regions as u64 + 1);
        }
        self.used = end;
        Some(Room { start, entry: place })
    }
}

/// Bytes that a file of this process may have.
pub fn largest_file() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the record is written by the call.
    match unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) } {
        // Files have at most i64::MAX bytes.
        0 => limit.rlim_cur.min(i64::MAX as u64),
        _ => i64::MAX as u64,
    }
}

#[cfg(test)]
mod tests {
    use record::layout::Peer;
    use record::rank::Rank;
    use skip::disk::Disk;

    use super::*;

    fn peers(capacity: u32) -> Region {
        Region {
            kind: kind::PEERS,
            record_bytes: size_of::<Peer>() as u16,
            capacity,
            used: capacity,
            ..Region::default()
        }
    }

    /// Readers of the tables must not advise a higher limit.
    #[test]
    fn a_full_disk_is_told_from_a_limit() {
        let Some(disk) = Disk::of("1m") else { return };
        let path = disk.path().join("a.1.rank");
        let (mut tables, _heading) = Tables::create(&path, 64 << 20).unwrap();
        while tables.region(peers(1000)).is_some() {}
        assert_eq!(Rank::open(&path).unwrap().header.dropped.storage, 1);
        let refused = Tables::create(&disk.path().join("b.1.rank"), 64 << 20).unwrap_err();
        assert_eq!(refused.next, SPACE, "{refused:?}");
    }

    #[test]
    fn its_reader_reads_what_it_wrote_until_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ranks/a.1.rank");
        let (mut tables, heading) = Tables::create(&path, 1 << 20).unwrap();
        let room = tables.region(peers(100)).unwrap();
        // SAFETY: the region has 100 records.
        unsafe { room.start.cast::<Peer>().add(99).write(Peer { messages: 7, ..Peer::default() }) };
        assert!(tables.region(peers(40_000)).is_none());
        let rank = Rank::open(&path).unwrap();
        assert_eq!((rank.peers.len(), rank.peers[99].messages), (100, 7));
        assert_eq!(rank.header.limit, 1 << 20);
        let mut count = 1;
        while tables.region(peers(100)).is_some() {
            count += 1;
        }
        assert_eq!(count, ((1 << 20) - FIRST_REGION) / PAGE);
        let header = Rank::open(&path).unwrap().header;
        assert_eq!((header.regions, header.dropped.storage), (count as u64, 0));

        tables.close();
        heading.close(7);
        let rank = Rank::open(&path).unwrap();
        assert_eq!((rank.header.ended, rank.doubt), (7, None));
        // SAFETY: as above.
        unsafe { room.start.cast::<Peer>().write(Peer { messages: 1, ..Peer::default() }) };
        assert!(Rank::open(&path).is_err() || Rank::open(&path).unwrap().doubt.is_some());
    }

    /// The test has a process of its own, since the limit holds for the whole process.
    #[test]
    fn a_limit_of_files_is_kept_and_not_run_into() {
        const INNER: &str = "PLIMSOLL_TEST_WITH_SMALL_FILES";
        if std::env::var_os(INNER).is_some() {
            let folder = tempfile::tempdir().unwrap();
            let (mut tables, _) = Tables::create(&folder.path().join("a.1.rank"), 64 << 20).unwrap();
            while tables.region(peers(100)).is_some() {}
            assert!(tables.length <= 700_000);
            return;
        }
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "tables::tests::a_limit_of_files_is_kept_and_not_run_into"]).env(INNER, "yes");
        let limit = libc::rlimit { rlim_cur: 700_000, rlim_max: 700_000 };
        // SAFETY: the closure makes one system call between fork and exec.
        unsafe {
            use std::os::unix::process::CommandExt;
            command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_FSIZE, &limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let ended = command.output().unwrap();
        assert!(ended.status.success(), "{:?} {}", ended.status, String::from_utf8_lossy(&ended.stdout));
    }

    #[test]
    fn a_file_that_is_there_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.1.rank");
        std::fs::write(&path, "mine").unwrap();
        assert!(Tables::create(&path, 1 << 20).unwrap_err().cause.contains("exists"));
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    }
}
