//! Runs between two cores: the hub's thread on one, a thread that drives all leaves on the other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linux::accounting::{ThreadMeter, current_thread};
use linux::affinity;
use machine::{CoreId, Fault, Result};

use super::layer::{Layer, Message};
use super::wiring::World;
use super::work::stuck;

/// Time after which a block counts as failed.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Polls in vain after which another leaf is polled, and after which the core is yielded.
const POLLS_PER_LEAF: u32 = 8;
const POLLS_PER_YIELD: u32 = 2048;

/// Results of a block between cores.
pub struct Pace {
    pub elapsed: Duration,
    /// CPU time of the hub's thread.
    pub cpu: Duration,
    pub messages: u64,
}

impl Pace {
    pub fn rate(&self) -> f64 {
        self.messages as f64 / self.elapsed.as_secs_f64()
    }

    pub fn cpu_per_message(&self) -> f64 {
        self.cpu.as_nanos() as f64 / self.messages as f64
    }
}

/// State shared by both threads of a block.
struct Between {
    started: AtomicBool,
    /// The leaves' thread is in place; the hub's has finished; the leaves' has finished.
    ready: AtomicBool,
    hub_done: AtomicBool,
    leaves_done: AtomicBool,
    /// Whether one of them has failed.
    failed: AtomicBool,
    /// Whether both share one core, so that waits yield it.
    shared_core: bool,
}

impl Between {
    /// Waits after a poll in vain.
    #[inline]
    fn wait(&self, polls: &mut u32, began: Instant) -> Result<()> {
        *polls += 1;
        if self.shared_core || polls.is_multiple_of(POLLS_PER_YIELD) {
            if self.failed.load(Ordering::Relaxed) {
                return Err(Fault::new("the other thread", "it has failed", "see its fault"));
            }
            if began.elapsed() > TIMEOUT {
                return Err(stuck("a block between cores"));
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}

/// The leaves in the view of their thread.
struct Leaves<'a, L> {
    all: &'a mut [L],
    /// Spare buffers of each leaf, and numbers of messages that came and were not asked for yet.
    spare: Vec<Vec<Message>>,
    came: Vec<u32>,
    turn: usize,
}

impl<'a, L: Layer> Leaves<'a, L> {
    fn new(all: &'a mut [L], buffers: u32, size: usize) -> Self {
        let spare = (0..all.len()).map(|_| (0..buffers).map(|_| vec![1; size]).collect()).collect();
        Leaves { spare, came: vec![0; all.len()], turn: 0, all }
    }

    /// Polls a leaf once; with `again`, receives that ended are posted anew.
    #[inline]
    fn turn(&mut self, leaf: usize, again: bool) -> Result<()> {
        self.all[leaf].turn()?;
        while let Some(ended) = self.all[leaf].ended()? {
            if ended.received {
                self.came[leaf] += 1;
                if again {
                    self.all[leaf].receive(0, ended.message)?;
                    continue;
                }
            }
            self.spare[leaf].push(ended.message);
        }
        Ok(())
    }

    /// After polls of one leaf in vain, polls another: it may owe its peer an acknowledgement.
    #[inline]
    fn look_round(&mut self, polls: u32, again: bool) -> Result<()> {
        if polls.is_multiple_of(POLLS_PER_LEAF) {
            self.turn = (self.turn + 1) % self.all.len();
            self.turn(self.turn, again)?;
        }
        Ok(())
    }
}

impl<L: Layer> World<L> {
    /// Runs `at_hub` here, pinned and metered, and `at_leaves` on the other core; both get the signal to start first.
    fn between(
        &mut self,
        cores: (CoreId, CoreId),
        messages: u64,
        at_hub: impl FnOnce(&mut L, &Between, Instant) -> Result<()>,
        at_leaves: impl FnOnce(&mut [L], &Between, Instant) -> Result<()> + Send,
    ) -> Result<Pace> {
        let World { hub, leaves } = self;
        let between = Between {
            started: AtomicBool::new(false),
            ready: AtomicBool::new(false),
            hub_done: AtomicBool::new(false),
            leaves_done: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            shared_core: cores.0 == cores.1,
        };
        let between = &between;
        let began = Instant::now();
        let _pinned = affinity::pin(cores.0)?;
        let mut meter = ThreadMeter::open("local", "hub", current_thread())?;
        std::thread::scope(|scope| {
            let other = scope.spawn(move || {
                let run = || {
                    let _pinned = affinity::pin(cores.1)?;
                    at_leaves(leaves, between, began)
                };
                let ended = run();
                between.failed.fetch_or(ended.is_err(), Ordering::Relaxed);
                between.ready.store(true, Ordering::Release);
                between.leaves_done.store(true, Ordering::Release);
                ended
            });
            let run = || {
                while !between.ready.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                meter.begin()?;
                let start = Instant::now();
                between.started.store(true, Ordering::Release);
                at_hub(hub, between, began)?;
                let elapsed = start.elapsed();
                Ok((elapsed, meter.end()?))
            };
            let ours: Result<_> = run();
            between.failed.fetch_or(ours.is_err(), Ordering::Relaxed);
            // Also if this end failed before it started: the other must not wait for ever.
            between.started.store(true, Ordering::Release);
            between.hub_done.store(true, Ordering::Release);
            let theirs = other.join().expect("the leaves' thread does not panic");
            let (elapsed, cost) = match (ours, theirs) {
                (Ok(ours), Ok(())) => ours,
                (Err(fault), Ok(())) | (_, Err(fault)) => return Err(fault),
            };
            let cpu = cost.cpu.value().map_or(Duration::ZERO, |cpu| Duration::from_nanos(cpu.0));
            Ok(Pace { elapsed, cpu, messages })
        })
    }

    /// The hub receives `times` the messages of `sequence`, `each` of them from every peer.
    pub fn receive_rate(
        &mut self,
        sequence: &[u32],
        each: u32,
        times: u32,
        size: usize,
        cores: (CoreId, CoreId),
    ) -> Result<Pace> {
        let total = sequence.len() as u64 * u64::from(times);
        let peers = self.leaves.len() as u32;
        let mut left: Vec<u32> = vec![each * (times - 1); peers as usize];
        for peer in 0..peers {
            for _ in 0..each {
                self.hub.receive(peer, vec![1; size])?;
            }
        }
        self.between(
            cores,
            total,
            |hub, between, began| {
                let (mut received, mut polls) = (0, 0);
                while received < total {
                    if !hub.turn()? {
                        between.wait(&mut polls, began)?;
                    }
                    while let Some(ended) = hub.ended()? {
                        if ended.received {
                            received += 1;
                            let left = &mut left[ended.peer as usize];
                            if *left > 0 {
                                *left -= 1;
                                hub.receive(ended.peer, ended.message)?;
                            }
                        }
                    }
                }
                Ok(())
            },
            |leaves, between, began| {
                let mut leaves = Leaves::new(leaves, each, size);
                between.ready.store(true, Ordering::Release);
                while !between.started.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                let mut polls = 0;
                for _ in 0..times {
                    for &peer in sequence {
                        let leaf = peer as usize;
                        let message = loop {
                            if let Some(message) = leaves.spare[leaf].pop() {
                                break message;
                            }
                            leaves.turn(leaf, false)?;
                            if leaves.spare[leaf].is_empty() {
                                between.wait(&mut polls, began)?;
                                leaves.look_round(polls, false)?;
                            }
                        };
                        leaves.all[leaf].send(0, message)?;
                        while let Some(ended) = leaves.all[leaf].ended()? {
                            leaves.spare[leaf].push(ended.message);
                        }
                        leaves.all[leaf].flush()?;
                    }
                }
                while !between.hub_done.load(Ordering::Acquire) {
                    for leaf in 0..leaves.all.len() {
                        leaves.turn(leaf, false)?;
                    }
                    between.wait(&mut polls, began)?;
                }
                Ok(())
            },
        )
    }

    /// The hub sends `times` the messages of `sequence`; returns the time until the last has arrived.
    pub fn send_rate(
        &mut self,
        sequence: &[u32],
        each: u32,
        times: u32,
        size: usize,
        cores: (CoreId, CoreId),
    ) -> Result<Pace> {
        let total = sequence.len() as u64 * u64::from(times);
        let mut spare: Vec<Message> = (0..sequence.len().min(1024)).map(|_| vec![1; size]).collect();
        for leaf in &mut self.leaves {
            for _ in 0..each {
                leaf.receive(0, vec![1; size])?;
            }
        }
        let pace = self.between(
            cores,
            total,
            |hub, between, began| {
                let mut polls = 0;
                for _ in 0..times {
                    for &peer in sequence {
                        let message = loop {
                            if let Some(message) = spare.pop() {
                                break message;
                            }
                            hub.turn()?;
                            while let Some(ended) = hub.ended()? {
                                spare.push(ended.message);
                            }
                            if spare.is_empty() {
                                between.wait(&mut polls, began)?;
                            }
                        };
                        hub.send(peer, message)?;
                        while let Some(ended) = hub.ended()? {
                            spare.push(ended.message);
                        }
                    }
                }
                hub.flush()?;
                while !between.leaves_done.load(Ordering::Acquire) {
                    hub.turn()?;
                    while hub.ended()?.is_some() {}
                    between.wait(&mut polls, began)?;
                }
                Ok(())
            },
            |leaves, between, began| {
                let mut leaves = Leaves::new(leaves, 0, size);
                between.ready.store(true, Ordering::Release);
                let mut polls = 0;
                for _ in 0..times {
                    for &peer in sequence {
                        let leaf = peer as usize;
                        while leaves.came[leaf] == 0 {
                            leaves.turn(leaf, true)?;
                            if leaves.came[leaf] == 0 {
                                between.wait(&mut polls, began)?;
                                leaves.look_round(polls, true)?;
                            }
                        }
                        leaves.came[leaf] -= 1;
                    }
                }
                Ok(())
            },
        )?;
        // Receives posted anew after the last message are used up, so that the next block starts clean.
        self.use_up(each, size)?;
        Ok(pace)
    }

    /// Sends every leaf as many messages as it has receives posted.
    fn use_up(&mut self, each: u32, size: usize) -> Result<()> {
        let World { hub, leaves } = self;
        for _ in 0..each {
            for peer in 0..leaves.len() as u32 {
                hub.send(peer, vec![1; size])?;
                while hub.ended()?.is_some() {}
            }
        }
        let (mut missing, began) = (u64::from(each) * leaves.len() as u64, Instant::now());
        while missing > 0 {
            hub.turn()?;
            while hub.ended()?.is_some() {}
            for leaf in leaves.iter_mut() {
                leaf.turn()?;
                while let Some(ended) = leaf.ended()? {
                    missing -= u64::from(ended.received);
                }
            }
            if began.elapsed() > TIMEOUT {
                return Err(stuck("receives left over"));
            }
        }
        Ok(())
    }

    /// Sends one message to each peer of `sequence` and receives its answer, one peer after the other.
    pub fn round_trips(&mut self, sequence: &[u32], size: usize, cores: (CoreId, CoreId)) -> Result<Pace> {
        let mut message = Some(vec![1; size]);
        let mut answer = Some(vec![1; size]);
        self.between(
            cores,
            sequence.len() as u64,
            |hub, between, began| {
                let mut polls = 0;
                for &peer in sequence {
                    hub.receive(peer, answer.take().unwrap_or_default())?;
                    hub.send(peer, message.take().unwrap_or_default())?;
                    hub.flush()?;
                    while message.is_none() || answer.is_none() {
                        if !hub.turn()? {
                            between.wait(&mut polls, began)?;
                        }
                        while let Some(ended) = hub.ended()? {
                            *(if ended.received { &mut answer } else { &mut message }) = Some(ended.message);
                        }
                    }
                }
                Ok(())
            },
            |leaves, between, began| {
                let mut leaves = Leaves::new(leaves, 0, size);
                let mut message = Some(vec![1; size]);
                between.ready.store(true, Ordering::Release);
                let mut polls = 0;
                for &peer in sequence {
                    let leaf = peer as usize;
                    leaves.all[leaf].receive(0, message.take().unwrap_or_default())?;
                    while leaves.came[leaf] == 0 {
                        leaves.turn(leaf, false)?;
                        if leaves.came[leaf] == 0 {
                            between.wait(&mut polls, began)?;
                            leaves.look_round(polls, false)?;
                        }
                    }
                    leaves.came[leaf] = 0;
                    let back = leaves.spare[leaf].pop().unwrap_or_default();
                    leaves.all[leaf].send(0, back)?;
                    leaves.all[leaf].flush()?;
                    loop {
                        while let Some(ended) = leaves.all[leaf].ended()? {
                            leaves.spare[leaf].push(ended.message);
                        }
                        if let Some(back) = leaves.spare[leaf].pop() {
                            message = Some(back);
                            break;
                        }
                        leaves.turn(leaf, false)?;
                        between.wait(&mut polls, began)?;
                    }
                }
                while !between.hub_done.load(Ordering::Acquire) {
                    for leaf in 0..leaves.all.len() {
                        leaves.turn(leaf, false)?;
                    }
                    between.wait(&mut polls, began)?;
                }
                Ok(())
            },
        )
    }
}
