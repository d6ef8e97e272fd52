//! The file of a thread's timeline, written through a mapped window that is moved on when it is full. The rare cases, the
//! end of a block and the end of the window, share one test with the room that every call needs.

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use record::layout::{PAGE, Thread};
use record::trace::{Encoder, Header, block};
use zerocopy::IntoBytes;

use crate::complaint::{Complaint, is_full};
use crate::tables;

/// Bytes of the first window, and of the largest. Each window is as long as the data before it, so that a short timeline
/// is a short file.
const FIRST: u64 = 64 << 10;
const LARGEST: u64 = 1 << 20;

#[derive(Debug)]
pub struct File {
    window: *mut u8,
    length: usize,
    /// Offset of the window in the file.
    base: u64,
    /// Bytes of the window that are written.
    at: usize,
    /// Offset in the window of the present block's calls; 0: no block is open.
    block: usize,
    /// Offset in the window up to which calls may be written.
    end: usize,
    file: OwnedFd,
    limit: u64,
    thread: *mut Thread,
    /// Nothing more is written.
    pub full: bool,
    /// The timeline is full because its file system is.
    pub unstored: bool,
}

// SAFETY: the window belongs to the owner of the file.
unsafe impl Send for File {}

impl File {
    /// `thread`, mapped as long as the process runs, receives the number of complete bytes.
    pub fn create(path: &Path, limit: u64, header: &Header, thread: *mut Thread) -> Result<File, Complaint> {
        let failed = |error: std::io::Error| {
            Complaint::unwritable(path.display(), &error, "profile into a folder that can be written")
        };
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| failed(error.into()))?;
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        // SAFETY: a valid path and flags.
        let file = unsafe { libc::open(name.as_ptr(), flags, 0o644) };
        if file < 0 {
            return Err(failed(std::io::Error::last_os_error()));
        }
        // SAFETY: the descriptor was just opened and has no other owner.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        // Growth beyond this limit would end the process.
        let limit = limit.min(tables::largest_file());
        let (window, full, unstored) = (ptr::null_mut(), false, false);
        let mut file =
            File { window, length: 0, base: 0, at: 0, block: 0, end: 0, file, limit, thread, full, unstored };
        let room = size_of::<Header>() + block::HEAD + Encoder::room(0, 0);
        if limit < room as u64 {
            return Err(Complaint::new(
                format!("{limit} bytes are too few for a timeline"),
                "raise PLIMSOLL_PROFILE_TRACE",
            ));
        }
        file.advance(room).map_err(failed)?;
        file.end = file.length;
        file.write(|out| {
            let header = header.as_bytes();
            out[..header.len()].copy_from_slice(header);
            Some(header.len())
        });
        file.end = 0;
        Ok(file)
    }

    /// Writes with `encode`, which gets [`Encoder::room`] bytes or more for the references and matches.
    #[inline]
    pub fn put(&mut self, references: usize, matched: usize, encode: impl FnOnce(&mut [u8]) -> Option<usize>) {
        let room = Encoder::room(references, matched);
        if self.full || self.end.saturating_sub(self.at) < room && !self.make_room(room) {
            return;
        }
        self.write(encode);
    }

    #[inline]
    fn write(&mut self, encode: impl FnOnce(&mut [u8]) -> Option<usize>) {
        // SAFETY: the window has `length` bytes, `end` at most, all with storage behind them, and nobody else writes to it.
        let out = unsafe { std::slice::from_raw_parts_mut(self.window.add(self.at), self.end - self.at) };
        if let Some(length) = encode(out) {
            self.at += length;
            // SAFETY: by `create`'s contract. Readers take the word for the length of the complete data.
            unsafe { (&raw mut (*self.thread).traced).write_volatile(self.base + self.at as u64) };
        }
    }

    /// Seals the present block, where one is open: readers check its calls against the seal.
    pub fn close(&mut self) {
        if self.block == 0 {
            return;
        }
        // SAFETY: as in `write`; the block is within the window.
        let calls = unsafe { std::slice::from_raw_parts(self.window.add(self.block), self.at - self.block) };
        let word = block::closed(self.base + (self.block - block::HEAD) as u64, calls);
        self.put_word(self.block - block::HEAD, word);
        (self.block, self.end) = (0, 0);
    }

    fn put_word(&mut self, at: usize, word: u64) {
        // SAFETY: as in `write`; there is room for the word, which may be unaligned since calls have any length.
        unsafe { self.window.add(at).cast::<u64>().write_unaligned(word) };
    }

    /// Opens the next block, with `room` bytes at least; `false` where the file is full.
    #[cold]
    fn make_room(&mut self, room: usize) -> bool {
        self.close();
        let wanted = room + block::HEAD;
        if self.length - self.at >= wanted || self.move_on(wanted) {
            self.put_word(self.at, block::open(self.base + self.at as u64));
            self.at += block::HEAD;
            self.block = self.at;
            self.end = (self.at + room.max(block::BYTES)).min(self.length);
            return true;
        }
        false
    }

    fn move_on(&mut self, room: usize) -> bool {
        let moved = self.advance(room);
        if let Err(error) = &moved
            && error.raw_os_error().is_some()
        {
            let next = "see what is wrong with the folder of the profile";
            Complaint::unwritable("a timeline ends early", error, next).say_lost();
            self.unstored = is_full(error);
        }
        self.full = moved.is_err();
        !self.full
    }

    /// Moves the window on, to one with `room` free bytes at least.
    fn advance(&mut self, room: usize) -> std::io::Result<()> {
        let written = self.base + self.at as u64;
        let base = written / PAGE as u64 * PAGE as u64;
        let ahead = (written - base) as usize;
        let most = self.limit.saturating_sub(base);
        let wanted = written.clamp(FIRST, LARGEST).max((ahead + room) as u64).next_multiple_of(PAGE as u64).min(most);
        if wanted < (ahead + room) as u64 {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        // SAFETY: the descriptor is of a file that is open for writing. A store to a page without storage would end the
        // process.
        let error = unsafe { libc::posix_fallocate(self.file.as_raw_fd(), base as i64, wanted as i64) };
        if error != 0 {
            return Err(std::io::Error::from_raw_os_error(error));
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let descriptor = self.file.as_raw_fd();
        // SAFETY: a new mapping, nothing is replaced.
        let window = unsafe {
            libc::mmap(ptr::null_mut(), wanted as usize, protection, libc::MAP_SHARED, descriptor, base as i64)
        };
        if window == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        if !self.window.is_null() {
            // SAFETY: the old window is not used any more.
            unsafe { libc::munmap(self.window.cast(), self.length) };
        }
        (self.window, self.length, self.base, self.at) = (window.cast(), wanted as usize, base, ahead);
        Ok(())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if !self.window.is_null() {
            // SAFETY: the window is not used any more.
            unsafe { libc::munmap(self.window.cast(), self.length) };
        }
    }
}

#[cfg(test)]
mod tests {
    use record::functions::FunctionId;
    use record::trace::{Call, Decoder};
    use zerocopy::FromZeros;

    use super::*;

    fn filled(limit: u64, calls: u64, is_closed: bool) -> (u64, u64, u64, Vec<u8>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.1.0.trace");
        let header = Header::new(0, 1000, 1, 0);
        let mut thread = Thread::new_zeroed();
        let mut file = File::create(&path, limit, &header, &mut thread).unwrap();
        let mut encoder = Encoder::new(&header);
        let mut kept = 0;
        for at in 0..calls {
            let mut call = Call::new(FunctionId(3), 1000 + at * 500, 1100 + at * 500);
            call.bytes = at * 7919;
            file.put(0, 0, |out| encoder.encode(&call, &[], &[], out));
            kept += u64::from(!file.full);
        }
        if is_closed {
            file.close();
        }
        drop(file);
        let bytes = std::fs::read(&path).unwrap();
        (kept, thread.traced, bytes.len() as u64, bytes)
    }

    fn decoded(bytes: &[u8]) -> u64 {
        let mut decoder = Decoder::new(bytes).unwrap();
        let mut read = 0;
        while let Some(event) = decoder.next_event().unwrap() {
            assert_eq!(event.call.bytes, read * 7919);
            read += 1;
        }
        read
    }

    #[test]
    fn windows_follow_each_other_without_a_seam() {
        for is_closed in [false, true] {
            let (kept, complete, length, bytes) = filled(1 << 30, 300_000, is_closed);
            assert_eq!(kept, 300_000);
            assert!(complete > 2 * LARGEST && length - complete <= LARGEST + PAGE as u64);
            assert_eq!(decoded(&bytes[..complete as usize]), 300_000);
        }
    }

    #[test]
    fn what_was_changed_afterwards_is_no_call() {
        let (kept, complete, _, bytes) = filled(1 << 30, 5000, true);
        let whole = &bytes[..complete as usize];
        for at in (0..whole.len()).step_by(211) {
            let mut bytes = whole.to_vec();
            bytes[at] ^= 0x10;
            let Ok(mut decoder) = Decoder::new(&bytes) else { continue };
            let mut read = 0;
            while let Ok(Some(event)) = decoder.next_event() {
                assert_eq!(event.call.bytes, read * 7919, "after the change at {at}");
                read += 1;
            }
            assert!(read < kept && decoder.next_event().is_err(), "{at}");
        }
    }

    #[test]
    fn it_ends_at_its_limit_with_a_whole_call() {
        for limit in [1000, 70_000, 500_001] {
            let (kept, complete, length, bytes) = filled(limit, 100_000, true);
            assert!(kept < 100_000 && length <= limit && limit - complete < 500, "{limit}: {complete} of {length}");
            assert_eq!(decoded(&bytes[..complete as usize]), kept);
        }
        let folder = tempfile::tempdir().unwrap();
        let mut thread = Thread::new_zeroed();
        let header = Header::new(0, 0, 1, 0);
        let refused = File::create(&folder.path().join("t"), 50, &header, &mut thread).unwrap_err();
        assert!(refused.cause.contains("too few"), "{refused:?}");
    }
}
