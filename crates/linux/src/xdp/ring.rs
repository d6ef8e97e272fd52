//! Messages from BPF programs to user space: a `BPF_MAP_TYPE_RINGBUF` and its one consumer.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use machine::Nanoseconds;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::shared::Mapping;

/// A flag of a record's header, from `linux/bpf.h`.
const BUSY: u32 = 1 << 31;
const DISCARD: u32 = 1 << 30;
const HEADER: usize = 8;

/// Reads a ring buffer map, which may have one reader only.
#[derive(Debug)]
pub struct RingReader {
    map: OwnedFd,
    consumer: Mapping,
    /// The producer's page and the records, which are mapped twice in a row so that none is split.
    producer: Mapping,
    mask: usize,
    page: usize,
    position: u64,
}

impl RingReader {
    pub(super) fn of(map: OwnedFd, bytes: usize) -> io::Result<RingReader> {
        let page = rustix::param::page_size();
        let consumer = Mapping::of(map.as_fd(), 0, page, true)?;
        let producer = Mapping::of(map.as_fd(), page, page + 2 * bytes, false)?;
        let position = consumer.words()[0].load(Ordering::Acquire);
        Ok(RingReader { map, consumer, producer, mask: bytes - 1, page, position })
    }

    fn consumed(&self) -> &AtomicU64 {
        &self.consumer.words()[0]
    }

    fn produced(&self) -> u64 {
        self.producer.words()[0].load(Ordering::Acquire)
    }

    /// Header of the next record; `None` if there is none, or its program has not finished it.
    fn header(&self) -> Option<u32> {
        if self.position == self.produced() {
            return None;
        }
        let word = &self.producer.words()[(self.page + (self.position as usize & self.mask)) / 8];
        // The kernel publishes the low half of this word: the length with its two flags.
        let header: &AtomicU32 = {
            // SAFETY: the first half of an aligned word of the mapping, live as long as `self`.
            unsafe { &*std::ptr::from_ref(word).cast::<AtomicU32>() }
        };
        Some(header.load(Ordering::Acquire)).filter(|header| header & BUSY == 0)
    }

    fn advance(&mut self, header: u32) {
        let length = (header & !(BUSY | DISCARD)) as usize;
        self.position += (HEADER + length).next_multiple_of(8) as u64;
        self.consumed().store(self.position, Ordering::Release);
    }

    /// Whether [`RingReader::read`] would deliver.
    pub fn poll(&mut self) -> bool {
        while let Some(header) = self.header() {
            if header & DISCARD == 0 {
                return true;
            }
            self.advance(header);
        }
        false
    }

    /// Passes the next message in place to `deliver`, if there is one; says whether there was.
    pub fn read(&mut self, deliver: impl FnOnce(&[u8])) -> bool {
        if !self.poll() {
            return false;
        }
        let Some(header) = self.header() else { return false };
        let at = self.page + (self.position as usize & self.mask) + HEADER;
        // SAFETY: `header` acquired the record and `advance`, below, releases it.
        let Some(record) = (unsafe { self.producer.published(at, (header & !(BUSY | DISCARD)) as usize) }) else {
            return false;
        };
        deliver(record);
        self.advance(header);
        true
    }

    /// Sleeps until there is a message or `limit` has passed; says whether there is one.
    pub fn wait(&mut self, limit: Nanoseconds) -> io::Result<bool> {
        // A program wakes only a reader that has caught up, which must be visible before the last check.
        fence(Ordering::SeqCst);
        if self.poll() {
            return Ok(true);
        }
        let time = Timespec { tv_sec: (limit.0 / 1_000_000_000) as i64, tv_nsec: (limit.0 % 1_000_000_000) as i64 };
        match rustix::event::poll(&mut [PollFd::new(&self.map, PollFlags::IN)], Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(self.poll()),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for RingReader {
    /// A descriptor that becomes readable with the next message, for `poll` and `epoll`.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}
