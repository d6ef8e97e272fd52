//! The direction of an unreliable multicast channel: its writer never waits and overwrites the oldest message.
//!
//! A seqlock for each slot. The writer marks the slot's word, stores the message by words and then publishes; a reader
//! copies by words and delivers only if the word, read again, is unchanged. So a message is copied once in and once
//! out, all accesses are of atomic words, and no torn message is delivered. A reader that was lapped finds a later
//! message than the one it expected: it skips to the oldest that may still be there and counts the lost ones.

use std::ptr::NonNull;

use super::word::{WRITING, Word, ahead, may_sleep, sleeper_arrived, written};
use crate::sync::{AtomicU64, Ordering, fence};

/// Words of a message that fit in the slot itself.
const INLINE: usize = super::track::INLINE / 8;
/// Most times in a row that a reader may be lapped in one read.
const ATTEMPTS: u32 = 16;

/// A slot of one cache line.
#[repr(C, align(64))]
pub(super) struct Slot {
    word: Word,
    length: AtomicU64,
    payload: [AtomicU64; INLINE],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == 64);

/// The memory of the direction and its owner.
pub(super) struct Track<Owner> {
    slots: NonNull<Slot>,
    buffers: NonNull<AtomicU64>,
    /// Distance of buffers, in words.
    stride: usize,
    /// Size of the largest message, in bytes.
    size: usize,
    mask: u64,
    _owner: Owner,
}

// SAFETY: all of the memory is atomic words.
unsafe impl<Owner: Send> Send for Track<Owner> {}

impl<Owner> Track<Owner> {
    /// # Safety
    /// `slots` points to `count` zeroed or formerly used slots and `buffers` to `count` buffers for `size` bytes, rounded
    /// up to whole words, `stride` words apart (none are needed where `size` fits in a slot); all stay valid while
    /// `owner` lives.
    pub unsafe fn new(
        (slots, count): (NonNull<Slot>, usize),
        (buffers, stride): (NonNull<AtomicU64>, usize),
        size: usize,
        owner: Owner,
    ) -> Self {
        assert!(count.is_power_of_two() && count >= 4, "a ring has a power of two of slots, at least 4");
        assert!(stride * 8 >= size || size <= INLINE * 8, "buffers do not overlap");
        Track { slots, buffers, stride, size, mask: count as u64 - 1, _owner: owner }
    }

    #[inline(always)]
    fn slot(&self, position: u64) -> &Slot {
        // SAFETY: the mask keeps the index under the number of slots, whatever the position.
        unsafe { self.slots.add((position & self.mask) as usize).as_ref() }
    }

    /// The words of a message of `length` bytes, at most the track's size.
    #[inline(always)]
    fn words(&self, position: u64, length: usize) -> &[AtomicU64] {
        let words = length.div_ceil(8);
        if words <= INLINE {
            return &self.slot(position).payload[..words];
        }
        let start = (position & self.mask) as usize * self.stride;
        // SAFETY: inside the buffer, which is `size` bytes rounded up to words.
        unsafe { std::slice::from_raw_parts(self.buffers.as_ptr().add(start), words) }
    }
}

/// One end's buffer for a message, in whole words.
struct Copied(Vec<u64>);

impl Copied {
    fn new(size: usize) -> Self {
        Copied(vec![0; size.div_ceil(8)])
    }

    fn bytes(&self, length: usize) -> &[u8] {
        assert!(length <= self.0.len() * 8);
        // SAFETY: inside the words, as asserted; any bytes are `u8`.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), length) }
    }

    fn bytes_mut(&mut self, length: usize) -> &mut [u8] {
        assert!(length <= self.0.len() * 8);
        // SAFETY: inside the words, as asserted; any bytes are a `u64`.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), length) }
    }
}

/// The end that writes.
pub(super) struct Outlet<Owner> {
    track: Track<Owner>,
    position: u64,
    copied: Copied,
}

impl<Owner> Outlet<Owner> {
    pub fn new(track: Track<Owner>, position: u64) -> Self {
        Outlet { copied: Copied::new(track.size), track, position }
    }

    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether the next message starts another round of the slots.
    #[inline(always)]
    pub fn is_round(&self) -> bool {
        self.position & self.track.mask == 0
    }

    /// Writes the next message, of at most the track's size. The number of messages is kept in `progress`, a line that
    /// stays with the writer: only readers that were lapped read it. `sleepers`: see [`super::word::admit`]. Says
    /// whether a reader may sleep, whose bell must be rung.
    #[inline(always)]
    pub fn write(
        &mut self,
        length: usize,
        sleepers: &AtomicU64,
        progress: &AtomicU64,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        fill(self.copied.bytes_mut(length));
        let slot = self.track.slot(self.position);
        let begun = written(self.position) | WRITING;
        // A word that is being written cannot be marked, so this exchange finds the last mark.
        let marked = may_sleep(sleepers);
        let mut asleep = false;
        if marked {
            asleep = slot.word.exchange(begun);
        } else {
            slot.word.store(begun);
        }
        // Pairs with the reader's fence: a reader that sees any of the words below sees the WRITING flag too.
        fence(Ordering::Release);
        slot.length.store(length as u64, Ordering::Relaxed);
        for (place, word) in self.track.words(self.position, length).iter().zip(&self.copied.0) {
            place.store(*word, Ordering::Relaxed);
        }
        slot.word.store(written(self.position));
        asleep |= !marked && sleeper_arrived(sleepers);
        if asleep {
            slot.word.wake();
        }
        self.position += 1;
        progress.store(self.position, Ordering::Release);
        asleep
    }

    /// Wakes sleeping readers for another reason than a message.
    pub fn rouse(&self) {
        let word = &self.track.slot(self.position).word;
        if word.unmark() {
            word.wake();
        }
    }
}

/// An end that reads.
pub(super) struct Inlet<Owner> {
    track: Track<Owner>,
    position: u64,
    dropped: u64,
    copied: Copied,
}

impl<Owner> Inlet<Owner> {
    pub fn new(track: Track<Owner>, position: u64, dropped: u64) -> Self {
        Inlet { copied: Copied::new(track.size), track, position, dropped }
    }

    /// Number of messages delivered or lost.
    pub fn position(&self) -> u64 {
        self.position
    }

    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The word that changes with the next message.
    pub fn word(&self) -> &Word {
        &self.track.slot(self.position).word
    }

    /// Whether a message is there, or one was lost.
    #[inline(always)]
    pub fn is_ready(&self) -> bool {
        let word = self.word().load();
        let ahead = ahead(word, written(self.position));
        ahead > 0 || (ahead == 0 && word & WRITING == 0)
    }

    /// Passes a copy of the next message to `deliver`, if there is one; says whether there was. `progress` gives the
    /// writer's progress.
    #[inline(always)]
    pub fn read<'a>(&mut self, progress: impl Fn() -> &'a AtomicU64, deliver: impl FnOnce(&[u8])) -> bool {
        for attempt in 0..ATTEMPTS {
            let word = self.word().load();
            let ahead = ahead(word, written(self.position));
            if ahead > 0 {
                self.skip(ahead as u64, attempt, progress());
                continue;
            }
            if ahead < 0 || word & WRITING != 0 {
                return false;
            }
            let slot = self.track.slot(self.position);
            let length = (slot.length.load(Ordering::Relaxed) as usize).min(self.track.size);
            for (place, word) in self.copied.0.iter_mut().zip(self.track.words(self.position, length)) {
                *place = word.load(Ordering::Relaxed);
            }
            // Pairs with the writer's fence: had a word of a later message been read, its WRITING flag would be seen now.
            fence(Ordering::Acquire);
            if slot.word.load_relaxed() == word {
                self.position = self.position.wrapping_add(1);
                deliver(self.copied.bytes(length));
                return true;
            }
        }
        false
    }

    /// Skips lost messages, as the next slot holds a message that is `ahead`: to the oldest that is still there, and
    /// with every further attempt closer to the newest, which the writer overwrites last.
    #[cold]
    fn skip(&mut self, ahead: u64, attempt: u32, progress: &AtomicU64) {
        // The slot's word is evidence of at least `ahead` messages, whatever `progress` says.
        let behind = progress.load(Ordering::Acquire).wrapping_sub(self.position).max(ahead);
        let kept = ((self.track.mask + 1) >> attempt).max(1);
        let lost = behind.saturating_sub(kept).max(1);
        self.position = self.position.wrapping_add(lost);
        self.dropped = self.dropped.wrapping_add(lost);
    }
}

#[cfg(test)]
pub(super) mod heap {
    //! A lapping track in the memory of one process, for tests and models.

    use super::*;
    use crate::sync::Arc;

    pub struct Heap(Box<[Slot]>);

    /// One outlet and `readers` inlets over `count` slots, for messages of up to `size` bytes: 48 at most.
    pub fn track(count: usize, size: usize, readers: usize) -> (Outlet<Arc<Heap>>, Vec<Inlet<Arc<Heap>>>) {
        assert!(size <= INLINE * 8);
        let word = || AtomicU64::new(0);
        let slot = |_| Slot { word: Word::new(), length: word(), payload: std::array::from_fn(|_| word()) };
        let heap = Arc::new(Heap((0..count).map(slot).collect()));
        let track = || {
            let slots = NonNull::from(&heap.0[..]).cast();
            // SAFETY: boxes stay where they are while `heap` lives, which the track keeps.
            unsafe { Track::new((slots, count), (NonNull::dangling(), 0), size, heap.clone()) }
        };
        (Outlet::new(track(), 0), (0..readers).map(|_| Inlet::new(track(), 0, 0)).collect())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Messages read were written, in order and whole; read and lost ones add up; a reader less than a round behind
        /// loses nothing.
        #[test]
        fn a_reader_gets_or_counts_each(steps in proptest::collection::vec((0usize..20, 0usize..12, 0usize..=48), 1..60)) {
            let (mut outlet, mut inlets) = heap::track(8, 48, 1);
            let (inlet, progress) = (&mut inlets[0], AtomicU64::new(0));
            let mut lengths = Vec::new();
            let mut read = 0;
            for (writes, reads, length) in steps {
                for _ in 0..writes {
                    outlet.write(length, &AtomicU64::new(0), &progress, |into| into.fill(lengths.len() as u8));
                    lengths.push(length);
                }
                for _ in 0..reads {
                    let (behind, lost) = (lengths.len() as u64 - inlet.position(), inlet.dropped());
                    let mut found = None;
                    let said = inlet.read(|| &progress, |message| found = Some(message.to_vec()));
                    prop_assert_eq!(said, behind > 0);
                    read += u64::from(said);
                    prop_assert_eq!(read + inlet.dropped(), inlet.position());
                    prop_assert_eq!(inlet.dropped() - lost, behind.saturating_sub(8));
                    if let Some(message) = found {
                        let number = inlet.position() as usize - 1;
                        prop_assert_eq!(message, vec![number as u8; lengths[number]]);
                    }
                }
            }
        }
    }

    #[test]
    fn garbage_in_the_memory_garbles_messages_and_nothing_else() {
        let (mut outlet, mut inlets) = heap::track(4, 48, 1);
        let (inlet, progress) = (&mut inlets[0], AtomicU64::new(0));
        outlet.write(8, &AtomicU64::new(0), &progress, |into| into.fill(1));
        inlet.track.slot(0).length.store(u64::MAX, Ordering::Relaxed);
        assert!(inlet.read(|| &progress, |message| assert_eq!(message.len(), 48)));
        for nonsense in [u64::MAX, 1 << 63, 1 << 62, (1 << 63) - 1, 0, 2] {
            (0..4).for_each(|slot| inlet.track.slot(slot).word.store(nonsense));
            progress.store(!nonsense, Ordering::Relaxed);
            inlet.read(|| &progress, |_| ());
            inlet.is_ready();
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::sync::Arc;

    /// A reader that is lapped repeatedly delivers whole messages in order, and counts all losses.
    #[test]
    fn what_a_lapped_reader_delivers_is_whole() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(|| {
            const MESSAGES: u8 = 6;
            let (mut outlet, mut inlets) = heap::track(4, 16, 1);
            let mut inlet = inlets.pop().unwrap();
            let progress = Arc::new(AtomicU64::new(0));
            let kept = progress.clone();
            // Enough messages that the first slot is overwritten while it is read.
            for number in 0..4 {
                outlet.write(16, &AtomicU64::new(0), &kept, |into| into.fill(number));
            }
            let writer = loom::thread::spawn(move || {
                for number in 4..MESSAGES {
                    outlet.write(16, &AtomicU64::new(0), &kept, |into| into.fill(number));
                }
            });
            let (mut next, mut read) = (0, 0);
            let mut look = |inlet: &mut Inlet<_>| {
                inlet.read(
                    || &progress,
                    |message| {
                        assert_eq!(message, [message[0]; 16]);
                        assert!(message[0] >= next, "{} after {next}", message[0]);
                        (next, read) = (message[0] + 1, read + 1);
                    },
                )
            };
            look(&mut inlet);
            writer.join().unwrap();
            while look(&mut inlet) {}
            assert_eq!(next, MESSAGES);
            assert_eq!(read + inlet.dropped(), u64::from(MESSAGES));
        });
    }
}
