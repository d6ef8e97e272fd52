//! The control block: one per sender, shared by whoever asks for traffic and the body that makes it, whichever body it is.
//!
//! Plain 64-bit words, so that a BPF program (which maps them as an array), a thread and a process can share them. The
//! same words in C: `crates/bpf/src/programs/traffic.h`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use linux::xdp::SharedWords;
use machine::{Fault, Nanoseconds, Result};

/// Positions of the words. The test compares them with the C header.
#[rustfmt::skip]
pub mod word {
    pub const MODE: usize = 0;
    pub const FRAMES: usize = 1;
    pub const END_NS: usize = 2;
    pub const ENTRIES: usize = 3;
    pub const LENGTH: usize = 4;
    pub const TAG: usize = 5;
    pub const FLAGS: usize = 6;
    pub const CLOCK_EVERY: usize = 7;
    pub const START_NS: usize = 8;
    pub const STOP: usize = 9;
    pub const IP_SUM: usize = 10;
    pub const UDP_SUM: usize = 11;
    pub const LATE_NS: usize = 12;
    pub const RUNS: usize = 13;
    pub const BATCH: usize = 14;
    pub const ALIVE_NS: usize = 15;
    pub const SENT: usize = 16;
    pub const BYTES: usize = 17;
    pub const MISSED: usize = 18;
    pub const ERRORS: usize = 19;
    pub const POSITION: usize = 20;
    pub const DUE_NS: usize = 21;
    pub const FIRST_NS: usize = 22;
    pub const LAST_NS: usize = 23;
    pub const STATE: usize = 24;
    pub const LATEST_NS: usize = 25;
    pub const CLOCK_NS: usize = 26;
    pub const TURNS: usize = 27;
    pub const TEMPLATE: usize = 32;
    pub const TABLE: usize = 256;
    pub const WORDS: usize = 65_792;
}

/// Most entries of a table; a longer schedule repeats or is refused by its maker.
pub const TABLE_ENTRIES: usize = 65_536;

/// The longest frame, Ethernet header included, frame check sequence not.
pub const FRAME_BYTES: usize = 8 * (word::TABLE - word::TEMPLATE);

const NO_LIMIT: u64 = u64::MAX;

/// Memory that holds a block: [`word::WORDS`] words that stay where they are.
pub trait Words: Send + Sync {
    fn words(&self) -> &[AtomicU64];
}

impl Words for SharedWords {
    fn words(&self) -> &[AtomicU64] {
        SharedWords::words(self)
    }
}

impl Words for Vec<AtomicU64> {
    fn words(&self) -> &[AtomicU64] {
        self
    }
}

/// One line of the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Bytes of this frame, frame check sequence not counted.
    pub length: u16,
    /// Time from when this frame is due to when the next one is; below 2^48. Not used in [`Pacing::Rate`].
    pub gap: Nanoseconds,
}

impl Entry {
    fn pack(self) -> u64 {
        self.gap.0 << 16 | u64::from(self.length)
    }

    fn unpack(word: u64) -> Entry {
        Entry { length: word as u16, gap: Nanoseconds(word >> 16) }
    }
}

/// When frames leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pacing {
    /// As fast as possible. The clock is read for one frame in `clock_every` (a power of two); the others carry the
    /// last reading.
    Rate { clock_every: u64 },
    /// By the table; a frame that leaves more than `late` after its time missed its deadline. A sender that was held up
    /// sends what is due at once, so the mean gap is kept.
    Paced { late: Nanoseconds },
}

/// A sender's orders.
#[derive(Debug, Clone)]
pub struct Asked {
    pub pacing: Pacing,
    /// The schedule, 1 to [`TABLE_ENTRIES`] entries, repeated when it ends.
    pub table: Vec<Entry>,
    /// An Ethernet, IPv4 or IPv6, and UDP header and the payload of the longest frame; zeros after the 16 bytes that
    /// the sender writes. IPv4 without options, no VLAN tag.
    pub template: Vec<u8>,
    /// Tells this stream from others.
    pub tag: u16,
    /// Always on with IPv6.
    pub udp_checksum: bool,
    pub frames: Option<u64>,
    /// Start by CLOCK_MONOTONIC; `None` starts at once.
    pub start: Option<Nanoseconds>,
    /// End by CLOCK_MONOTONIC.
    pub end: Option<Nanoseconds>,
    /// End unless [`ControlBlock::alive`] moves it on.
    pub alive: Option<Nanoseconds>,
    /// At a driver hook: runs of the program that one call of the kernel asks for.
    pub runs: u32,
    /// At a driver hook: frames that leave together at full rate, 1 to 256.
    pub batch: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Idle,
    Running,
    Finished,
}

/// The counters of a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub state: State,
    /// Frames handed over; only the receiver knows which arrived.
    pub sent: u64,
    pub bytes: u64,
    pub missed: u64,
    pub errors: u64,
    /// Largest lateness of a frame.
    pub latest: Nanoseconds,
    /// Departure of the first and of the last frame.
    pub first: Nanoseconds,
    pub last: Nanoseconds,
    /// How often the body looked whether a frame was due.
    pub turns: u64,
}

/// A handle on one block.
#[derive(Clone)]
pub struct ControlBlock(Arc<dyn Words>);

impl ControlBlock {
    /// A block for bodies of this process.
    pub fn in_process() -> ControlBlock {
        ControlBlock(Arc::new((0..word::WORDS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>()))
    }

    /// A block in memory that others share, such as the map of a BPF body.
    pub fn over(words: Arc<dyn Words>) -> Result<ControlBlock> {
        match words.words().len() {
            word::WORDS.. => Ok(ControlBlock(words)),
            n => Err(Fault::new(
                "traffic: control block",
                format!("the shared memory has {n} words, a block needs {}", word::WORDS),
                "use a body that was built with this program",
            )),
        }
    }

    fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }

    /// Writes the orders and clears the counters. To be called while no sender runs.
    pub fn ask(&self, asked: &Asked) -> Result<()> {
        let layout = crate::stamp::Layout::of(&asked.template)?;
        let refuse = |cause: String| Err(Fault::new("traffic: schedule", cause, "change the profile"));
        if asked.table.is_empty() || asked.table.len() > TABLE_ENTRIES {
            return refuse(format!("its table has {} entries; 1 to {TABLE_ENTRIES} fit", asked.table.len()));
        }
        if asked.template.len() > FRAME_BYTES {
            return refuse(format!("a frame of {} bytes is longer than {FRAME_BYTES}", asked.template.len()));
        }
        let shortest = layout.shortest();
        for entry in &asked.table {
            let length = usize::from(entry.length);
            if length < shortest || length > asked.template.len() {
                return refuse(format!(
                    "a frame of {length} bytes is not from {shortest} (headers, sequence number and timestamp) to {} bytes",
                    asked.template.len()
                ));
            }
            if entry.gap.0 >> 48 != 0 {
                return refuse(format!("a gap of {} is too long", entry.gap));
            }
        }
        let (mode, clock_every, late) = match asked.pacing {
            Pacing::Rate { clock_every } if clock_every.is_power_of_two() => (0, clock_every, 0),
            Pacing::Rate { clock_every } => return refuse(format!("{clock_every} is not a power of two")),
            Pacing::Paced { late } => (1, 1, late.0),
        };
        let words = self.words();
        let put = |at: usize, value: u64| words[at].store(value, Ordering::Relaxed);
        let udp_checksum = asked.udp_checksum || layout.ipv6;
        (word::SENT..word::TEMPLATE).for_each(|at| put(at, 0));
        put(word::MODE, mode);
        put(word::FRAMES, asked.frames.unwrap_or(NO_LIMIT));
        put(word::END_NS, asked.end.map_or(NO_LIMIT, |end| end.0));
        put(word::ENTRIES, asked.table.len() as u64);
        put(word::LENGTH, asked.template.len() as u64);
        put(word::TAG, asked.tag.into());
        put(word::FLAGS, u64::from(layout.ipv6) | u64::from(udp_checksum) << 1);
        put(word::CLOCK_EVERY, clock_every);
        put(word::START_NS, asked.start.map_or(0, |start| start.0));
        put(word::IP_SUM, layout.ip_sum(&asked.template));
        put(word::UDP_SUM, layout.udp_sum(&asked.template));
        put(word::LATE_NS, late);
        put(word::RUNS, asked.runs.into());
        put(word::BATCH, asked.batch.into());
        put(word::ALIVE_NS, asked.alive.map_or(NO_LIMIT, |until| until.0));
        for (at, chunk) in asked.template.chunks(8).enumerate() {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            put(word::TEMPLATE + at, u64::from_ne_bytes(bytes));
        }
        for (at, entry) in asked.table.iter().enumerate() {
            put(word::TABLE + at, entry.pack());
        }
        words[word::STOP].store(0, Ordering::Release);
        Ok(())
    }

    /// Makes the sender end when it next looks.
    pub fn stop(&self) {
        self.words()[word::STOP].store(1, Ordering::Release);
    }

    pub fn progress(&self) -> Progress {
        let words = self.words();
        let get = |at: usize| words[at].load(Ordering::Relaxed);
        Progress {
            state: self.state(),
            sent: get(word::SENT),
            bytes: get(word::BYTES),
            missed: get(word::MISSED),
            errors: get(word::ERRORS),
            latest: Nanoseconds(get(word::LATEST_NS)),
            first: Nanoseconds(get(word::FIRST_NS)),
            last: Nanoseconds(get(word::LAST_NS)),
            turns: get(word::TURNS),
        }
    }

    /// Lets the sender go on until then.
    pub fn alive(&self, until: Nanoseconds) {
        self.words()[word::ALIVE_NS].store(until.0, Ordering::Relaxed);
    }

    /// The template of the orders.
    pub fn template(&self) -> Vec<u8> {
        let words = self.words();
        let length = words[word::LENGTH].load(Ordering::Relaxed) as usize;
        let bytes = words[word::TEMPLATE..word::TABLE].iter().flat_map(|w| w.load(Ordering::Relaxed).to_ne_bytes());
        bytes.take(length).collect()
    }

    /// Length of the longest frame.
    pub fn length(&self) -> usize {
        self.words()[word::LENGTH].load(Ordering::Relaxed) as usize
    }

    pub fn is_paced(&self) -> bool {
        self.words()[word::MODE].load(Ordering::Relaxed) == 1
    }

    pub fn state(&self) -> State {
        match self.words()[word::STATE].load(Ordering::Acquire) {
            0 => State::Idle,
            1 => State::Running,
            _ => State::Finished,
        }
    }

    /// The tag of this stream.
    pub fn tag(&self) -> u16 {
        self.words()[word::TAG].load(Ordering::Relaxed) as u16
    }

    pub fn has_udp_checksum(&self) -> bool {
        self.words()[word::FLAGS].load(Ordering::Relaxed) >> 1 & 1 == 1
    }

    /// Frames between two looks at the clock.
    pub fn clock_every(&self) -> u64 {
        self.words()[word::CLOCK_EVERY].load(Ordering::Relaxed).max(1)
    }

    /// The sender's side, for a body that runs in user space. One at a time.
    pub fn sender(&self) -> Sender<'_> {
        Sender::new(self.words())
    }

    /// The sender's side where an earlier one left off, for a body that is polled.
    pub fn resume(&self) -> Sender<'_> {
        Sender::resume(self.words())
    }
}

/// The sender's next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Wait until then.
    Wait { due: Nanoseconds },
    /// Send a frame of `length` bytes that carries `sequence`; then call [`Sender::sent`].
    Send { length: usize, sequence: u64 },
    /// All frames are sent, the time is over, or the sender was stopped.
    Finished,
}

/// The schedule as a body in user space follows it, counting as it goes. The BPF body does the same in C.
pub struct Sender<'a> {
    words: &'a [AtomicU64],
    paced: bool,
    frames: u64,
    end: u64,
    entries: usize,
    late: u64,
    sent: u64,
    bytes: u64,
    position: usize,
    due: u64,
}

impl<'a> Sender<'a> {
    fn new(words: &'a [AtomicU64]) -> Self {
        let get = |at: usize| words[at].load(Ordering::Relaxed);
        words[word::STATE].store(1, Ordering::Release);
        Sender {
            words,
            paced: get(word::MODE) == 1,
            frames: get(word::FRAMES),
            end: get(word::END_NS),
            entries: (get(word::ENTRIES) as usize).clamp(1, TABLE_ENTRIES),
            late: get(word::LATE_NS),
            sent: 0,
            bytes: 0,
            position: 0,
            due: get(word::START_NS),
        }
    }

    #[inline]
    fn resume(words: &'a [AtomicU64]) -> Self {
        let get = |at: usize| words[at].load(Ordering::Relaxed);
        let fresh = Sender::new(words);
        let (sent, due) = (get(word::SENT), get(word::DUE_NS));
        let position = (get(word::POSITION) as usize).min(fresh.entries - 1);
        Sender { sent, bytes: get(word::BYTES), position, due: if due == 0 { fresh.due } else { due }, ..fresh }
    }

    /// The step to take at `now` (CLOCK_MONOTONIC).
    #[inline]
    pub fn step(&mut self, now: Nanoseconds) -> Step {
        self.words[word::TURNS].store(self.words[word::TURNS].load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let stopped = self.words[word::STOP].load(Ordering::Relaxed) != 0;
        if stopped
            || self.sent >= self.frames
            || now.0 >= self.end
            || now.0 >= self.words[word::ALIVE_NS].load(Ordering::Relaxed)
        {
            self.finish();
            return Step::Finished;
        }
        if self.due == 0 {
            self.due = now.0;
        }
        if self.due > now.0 && (self.paced || self.sent == 0) {
            return Step::Wait { due: Nanoseconds(self.due) };
        }
        let entry = Entry::unpack(self.words[word::TABLE + self.position].load(Ordering::Relaxed));
        Step::Send { length: usize::from(entry.length), sequence: self.sent }
    }

    /// The frame of the last [`Step::Send`] has left; `now` is when it was handed over. Returns the gap that the table
    /// has after it.
    #[inline]
    pub fn sent(&mut self, now: Nanoseconds) -> Nanoseconds {
        let put = |at: usize, value: u64| self.words[at].store(value, Ordering::Relaxed);
        let entry = Entry::unpack(self.words[word::TABLE + self.position].load(Ordering::Relaxed));
        if self.sent == 0 {
            put(word::FIRST_NS, now.0);
        }
        if self.paced {
            let behind = now.0.saturating_sub(self.due);
            if behind > self.late {
                put(word::MISSED, self.words[word::MISSED].load(Ordering::Relaxed) + 1);
            }
            if behind > self.words[word::LATEST_NS].load(Ordering::Relaxed) {
                put(word::LATEST_NS, behind);
            }
            self.due += entry.gap.0;
            put(word::DUE_NS, self.due);
        }
        self.sent += 1;
        self.bytes += u64::from(entry.length);
        self.position = if self.position + 1 == self.entries { 0 } else { self.position + 1 };
        put(word::POSITION, self.position as u64);
        put(word::BYTES, self.bytes);
        put(word::LAST_NS, now.0);
        self.words[word::SENT].store(self.sent, Ordering::Release);
        entry.gap
    }

    /// No more will be sent, whatever was asked.
    pub fn finish(&mut self) {
        self.words[word::STATE].store(2, Ordering::Release);
    }

    /// The frame of the last [`Step::Send`] could not be handed over; it will be tried again.
    #[inline]
    pub fn failed(&mut self) {
        self.words[word::ERRORS].store(self.words[word::ERRORS].load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = include_str!("../../bpf/src/programs/traffic.h");

    /// `NAME = NUMBER,` of the C header.
    fn in_c(name: &str) -> usize {
        let line = HEADER.lines().find_map(|line| line.trim().strip_prefix(name)?.trim_start().strip_prefix('='));
        let number = line.unwrap_or_else(|| panic!("traffic.h has no {name}")).trim();
        number[..number.find(',').unwrap()].parse().unwrap()
    }

    #[test]
    fn the_words_are_those_of_the_c_header() {
        macro_rules! same {
            ($($name:ident)*) => {
                [$((concat!("CONTROL_", stringify!($name)), word::$name)),*]
            };
        }
        let ours = same!(MODE FRAMES END_NS ENTRIES LENGTH TAG FLAGS CLOCK_EVERY START_NS STOP IP_SUM UDP_SUM LATE_NS RUNS
            BATCH ALIVE_NS
            SENT BYTES MISSED ERRORS POSITION DUE_NS FIRST_NS LAST_NS STATE LATEST_NS CLOCK_NS TURNS TEMPLATE TABLE WORDS);
        for (name, at) in ours {
            assert_eq!(in_c(name), at, "{name}");
        }
        let in_header = HEADER.lines().filter(|line| line.trim().starts_with("CONTROL_")).count();
        assert_eq!(in_header, ours.len(), "traffic.h has words that are not mirrored");
        assert_eq!(in_c("TABLE_ENTRIES"), TABLE_ENTRIES);
        assert_eq!(word::TABLE + TABLE_ENTRIES, word::WORDS);
    }

    fn asked(pacing: Pacing, table: &[(u16, u64)]) -> Asked {
        Asked {
            pacing,
            table: table.iter().map(|&(length, gap)| Entry { length, gap: Nanoseconds(gap) }).collect(),
            template: crate::stamp::tests::ipv4(128),
            tag: 7,
            udp_checksum: false,
            frames: None,
            start: None,
            end: None,
            alive: None,
            runs: 0,
            batch: 64,
        }
    }

    #[test]
    fn a_paced_sender_keeps_to_the_table_and_counts_what_it_missed() {
        let block = ControlBlock::in_process();
        let table = [(60, 100), (128, 50)];
        let paced = Pacing::Paced { late: Nanoseconds(10) };
        block.ask(&Asked { frames: Some(3), ..asked(paced, &table) }).unwrap();
        let mut sender = block.sender();
        assert_eq!(sender.step(Nanoseconds(1000)), Step::Send { length: 60, sequence: 0 });
        sender.sent(Nanoseconds(1000));
        assert_eq!(sender.step(Nanoseconds(1099)), Step::Wait { due: Nanoseconds(1100) });
        assert_eq!(sender.step(Nanoseconds(1111)), Step::Send { length: 128, sequence: 1 });
        sender.sent(Nanoseconds(1111));
        // Due 50 after the frame before was due, not after it left.
        assert_eq!(sender.step(Nanoseconds(1150)), Step::Send { length: 60, sequence: 2 });
        sender.failed();
        sender.sent(Nanoseconds(1150));
        assert_eq!(sender.step(Nanoseconds(9999)), Step::Finished);
        let progress = block.progress();
        assert_eq!((progress.sent, progress.bytes, progress.missed, progress.errors), (3, 248, 1, 1));
        assert_eq!((progress.first.0, progress.last.0, progress.latest.0), (1000, 1150, 11));
        assert_eq!(progress.state, State::Finished);
    }

    #[test]
    fn a_sender_that_resumes_goes_on_where_it_was() {
        let block = ControlBlock::in_process();
        let paced = Pacing::Paced { late: Nanoseconds(10) };
        block.ask(&Asked { frames: Some(3), ..asked(paced, &[(60, 100), (128, 50)]) }).unwrap();
        for (now, length, gap) in [(1000, 60, 100), (1100, 128, 50), (1150, 60, 100)] {
            let mut sender = block.resume();
            let sequence = block.progress().sent;
            assert_eq!(sender.step(Nanoseconds(now)), Step::Send { length, sequence });
            assert_eq!(sender.sent(Nanoseconds(now)), Nanoseconds(gap));
            assert_eq!(block.resume().step(Nanoseconds(now)) == Step::Finished, sequence == 2);
        }
        let progress = block.progress();
        assert_eq!((progress.sent, progress.bytes, progress.state), (3, 248, State::Finished));
    }

    #[test]
    fn rate_ignores_gaps_and_stop_and_end_are_honoured() {
        let block = ControlBlock::in_process();
        block
            .ask(&Asked { end: Some(Nanoseconds(50)), ..asked(Pacing::Rate { clock_every: 4 }, &[(60, 99)]) })
            .unwrap();
        let mut sender = block.sender();
        for sequence in 0..3 {
            assert_eq!(sender.step(Nanoseconds(10)), Step::Send { length: 60, sequence });
            sender.sent(Nanoseconds(10));
        }
        assert_eq!(sender.step(Nanoseconds(50)), Step::Finished);
        block.ask(&asked(Pacing::Rate { clock_every: 1 }, &[(60, 0)])).unwrap();
        assert_eq!(block.progress().sent, 0, "asking anew clears the counters");
        let mut sender = block.sender();
        block.stop();
        assert_eq!(sender.step(Nanoseconds(1)), Step::Finished);
    }

    #[test]
    fn what_no_sender_can_do_is_refused() {
        let block = ControlBlock::in_process();
        let rate = Pacing::Rate { clock_every: 1 };
        for (bad, word) in [
            (asked(rate, &[]), "0 entries"),
            (asked(rate, &[(57, 0)]), "57 bytes"),
            (asked(rate, &[(129, 0)]), "129 bytes"),
            (asked(rate, &[(60, 1 << 48)]), "too long"),
            (asked(Pacing::Rate { clock_every: 3 }, &[(60, 0)]), "power of two"),
        ] {
            let fault = block.ask(&bad).unwrap_err();
            assert!(fault.to_string().contains(word), "{fault}");
        }
        assert!(ControlBlock::over(Arc::new(Vec::new())).is_err());
    }
}
