//! Ranks, from the tables that they write.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use machine::Result;
use machine::bounds::PROFILE_TABLES;
use machine::budget::{Budget, Share};
use record::folder::{RANK_SUFFIX, RANKS};
use record::functions::{Class, FunctionId, function};
use record::layout::{Cell, Header, Peer, Thread, clock, words};
use record::live::{Glance, Live};
use record::untrusted::Folder;
use record::worlds;

use super::hosts::Host;
use super::{FunctionNow, Here, LEAST, RankNow, RankState, open_new, used_up};
use crate::sites::name;
use crate::split::{Model, Parts};
use crate::summary::Stall;
use crate::tables::Calls;

/// Length of a tick in ns by host: the same for all ranks of a host.
pub type Ticks = HashMap<[u8; 40], f64>;

/// A rank's file, with its state at the previous look.
pub struct Followed {
    live: Live,
    share: Share,
    /// The reason why the file is no longer read.
    damage: Option<String>,
    glance: Option<Glance>,
    before: Option<Seen>,
    /// Its calls so far; `compared`: time and calls of the previous comparison.
    calls: Vec<Calls>,
    compared: Option<(u64, Vec<Calls>)>,
    /// Whether its tables were checked for consistency.
    is_checked: bool,
    /// Share of its threads' time between the last two looks in calls that are over.
    wait: Option<f64>,
    /// Length of these calls' waits, s: the mean over the time that they waited.
    pause: Option<f64>,
    /// Messages that the rank had sent when its partners were read, and the partners.
    partners: (u64, Vec<u32>),
    /// Unfinished calls: the function, the share of the time since the previous look, and whether the call may be waiting.
    held: Vec<(FunctionId, f64, bool)>,
}

#[derive(Clone, Copy)]
struct Seen {
    at: u64,
    calls: u64,
    messages: u64,
    bytes: u64,
    /// Time in MPI since the start, s.
    mpi: f64,
    /// The part of `mpi` in an unfinished call that may wait, s.
    held: f64,
}

/// Sums of one function over ranks, a second.
#[derive(Default)]
pub struct Sum {
    calls: f64,
    parts: Parts,
}

/// Opens new files and reads the state of every rank.
pub fn follow(
    profile: &Folder,
    ranks: &mut BTreeMap<PathBuf, Followed>,
    memory: &Arc<Budget>,
    notes: &mut Vec<String>,
) {
    open_new(profile, (RANKS, RANK_SUFFIX), ranks, notes, |file| {
        let Some(live) = Live::of(file)? else { return Ok(None) };
        Ok(Some(Followed::new(live, memory.draw(LEAST).map_err(|_| used_up())?)))
    });
    for (path, followed) in ranks.iter_mut() {
        if followed.damage.is_none() {
            match followed.live.glance() {
                Ok(glance) if followed.glance.as_ref().is_none_or(|before| has_grown(before, &glance)) => {
                    followed.glance = Some(glance);
                }
                Ok(_) => _ = followed.give_up(path, "the totals of a thread went backwards"),
                Err(fault) => _ = followed.give_up(path, fault.cause()),
            }
            followed.weigh(path);
        }
        notes.extend(followed.damage.clone());
    }
}

/// Totals only grow; a thread's place may be handed on, but not its totals.
fn has_grown(before: &Glance, now: &Glance) -> bool {
    before.threads.iter().zip(&now.threads).all(|((_, before), (_, now))| {
        let grew = now.calls >= before.calls && now.messages >= before.messages && now.bytes >= before.bytes;
        grew && now.ticks.iter().zip(before.ticks).all(|(now, before)| *now >= before)
    })
}

/// The length of a tick on each host, ns, from the rank that ran longest.
pub fn ticks(ranks: &BTreeMap<PathBuf, Followed>) -> Ticks {
    let mut longest: HashMap<[u8; 40], (u64, f64)> = HashMap::new();
    for header in ranks.values().filter_map(|followed| Some(&followed.glance.as_ref()?.header)) {
        let span = header.latest.ticks.saturating_sub(header.started.ticks);
        if let (Some(tick), clock::COUNTER) = (header.tick(), header.clock) {
            let known = longest.entry(header.boot).or_insert((0, tick));
            if span > known.0 {
                *known = (span, tick);
            }
        }
    }
    longest.into_iter().map(|(boot, (_, tick))| (boot, tick)).collect()
}

/// Adds unfinished calls: a function in which a rank hangs may have no finished call.
pub fn add_held(ranks: &BTreeMap<PathBuf, Followed>, functions: &mut BTreeMap<(FunctionId, u32), Sum>) {
    for (id, share, waits) in ranks.values().flat_map(|followed| followed.held.iter().copied()) {
        // The group of a call is known at its end; most functions have only one group.
        let group = functions.range((id, 0)..=(id, u32::MAX)).next().map_or(0, |((_, group), _)| *group);
        let parts = match waits {
            true => Parts { wait: share, ..Parts::default() },
            false => Parts { transfer: share, ..Parts::default() },
        };
        functions.entry((id, group)).or_default().parts.add(parts);
    }
}

/// Functions by share of the time in MPI.
pub fn shares(functions: BTreeMap<(FunctionId, u32), Sum>) -> Vec<FunctionNow> {
    let all: f64 = functions.values().map(|sum| sum.parts.sum()).sum();
    let mut shares: Vec<FunctionNow> = functions
        .into_iter()
        .filter(|(_, sum)| sum.calls > 0.0 || sum.parts.sum() > 0.0)
        .map(|((id, group), sum)| {
            let (whole, divided) = (sum.parts.sum(), sum.parts.transfer + sum.parts.wait);
            FunctionNow {
                name: name(id),
                group,
                calls: sum.calls,
                share: if all > 0.0 { whole / all } else { 0.0 },
                wait: (divided > 0.0).then(|| sum.parts.wait / divided),
            }
        })
        .collect();
    shares.sort_by(|a, b| b.share.total_cmp(&a.share));
    shares
}

/// Whether an unfinished call may be waiting: a call that only begins an operation is at work.
fn may_wait(thread: &Thread) -> bool {
    let class = inside(thread).and_then(function).map(|function| function.class);
    !matches!(class, None | Some(Class::Post | Class::Request | Class::OneSided))
}

fn inside(thread: &Thread) -> Option<FunctionId> {
    Some(FunctionId(u16::try_from(thread.inside.checked_sub(1)?).ok()?))
}

impl Followed {
    fn new(live: Live, share: Share) -> Followed {
        Followed {
            live,
            share,
            damage: None,
            glance: None,
            before: None,
            calls: vec![],
            compared: None,
            is_checked: false,
            wait: None,
            pause: None,
            partners: (0, vec![]),
            held: vec![],
        }
    }

    /// Leaves out a rank with damaged tables.
    pub fn give_up(&mut self, path: &Path, why: &str) -> Option<String> {
        self.leave(path, &format!("its tables are damaged: {why}. Next: profile the program again"))
    }

    /// Leaves out a rank and releases its memory; the note names the rank.
    fn leave(&mut self, path: &Path, why: &str) -> Option<String> {
        let whose = self.glance.take().filter(|glance| glance.header.placed != 0);
        let rank = whose.map_or_else(String::new, |glance| format!("rank {}, ", glance.header.rank));
        (self.held, self.calls, self.compared) = Default::default();
        self.live.forget();
        let _ = self.share.resize(LEAST);
        self.damage = Some(format!("left out: {rank}{}: {why}", path.display()));
        self.damage.clone()
    }

    /// Draws the memory that the rank takes; where the budget is used up, the rank is left out.
    fn weigh(&mut self, path: &Path) -> Option<String> {
        // Its calls exist in three copies: in the file's state, as read, and as of the previous look.
        match self.share.resize(LEAST + 3 * self.live.weight() as u64) {
            Ok(()) => None,
            Err(_) => self.leave(path, &used_up().to_string()),
        }
    }

    /// `None` for a process whose rank is not known yet.
    fn placed(&self) -> Option<&Glance> {
        self.glance.as_ref().filter(|glance| glance.header.placed != 0)
    }

    pub fn is_checked(&self) -> bool {
        self.is_checked || self.placed().is_none()
    }

    /// Checks the consistency of all tables; returns a note on a contradiction.
    pub fn check(&mut self, path: &Path) -> Option<String> {
        let rank = self.placed()?.header.rank;
        self.is_checked = true;
        match self.live.whole() {
            Ok(Some(tables)) => tables
                .doubt
                .map(|doubt| format!("rank {rank}: its figures may be wrong, since its tables disagree ({doubt})")),
            Ok(None) => {
                let most = PROFILE_TABLES.each;
                Some(format!("rank {rank}: its tables are longer than {most}, and not held against themselves"))
            }
            Err(fault) => self.give_up(path, fault.cause()),
        }
    }

    /// Reads changes of its calls and partners.
    pub fn read(&mut self, path: &Path) -> Option<String> {
        let sent = self.placed()?.threads.iter().fold(0, |sum: u64, (_, thread)| sum.saturating_add(thread.messages));
        match self.changed(sent) {
            Ok(()) => self.weigh(path),
            Err(fault) => self.give_up(path, fault.cause()),
        }
    }

    fn changed(&mut self, sent: u64) -> Result<()> {
        let Some(glance) = &self.glance else { return Ok(()) };
        self.calls.clear();
        self.calls.extend_from_slice(self.live.calls(glance)?);
        // The main partners hardly change before the messages grow by an eighth.
        if sent.saturating_sub(self.partners.0) > self.partners.0 / 8 {
            self.partners = (sent, partners(&self.live.peers()?));
        }
        Ok(())
    }

    /// The size of its world, the length of its ticks in seconds, and its calls.
    pub fn calls(&self, ticks: &Ticks) -> Option<(u32, f64, &[Calls])> {
        let header = &self.placed()?.header;
        Some((header.size, tick(header, ticks).unwrap_or(0.0) / 1e9, &self.calls))
    }

    /// Adds the time of calls since the previous look.
    pub fn compare(
        &mut self,
        ticks: &Ticks,
        model: &Model,
        now: u64,
        functions: &mut BTreeMap<(FunctionId, u32), Sum>,
    ) {
        let Some((_, tick, _)) = self.calls(ticks) else { return };
        if let Some((at, before)) = &self.compared {
            let seconds = now.saturating_sub(*at) as f64 / 1e9;
            if seconds <= 0.0 {
                return;
            }
            let (mut all, mut pauses) = (Parts::default(), 0.0);
            let mut sums: BTreeMap<(FunctionId, u32), Sum> = BTreeMap::new();
            for (place, calls) in self.calls.iter().enumerate() {
                let cell = before.get(place).map_or(calls.cell, |before| since(&calls.cell, &before.cell));
                if cell.calls == 0 {
                    continue;
                }
                let parts = model.divide(tick, &Calls { cell, ..*calls });
                let sum = sums.entry((calls.function, calls.group)).or_default();
                sum.calls += cell.calls as f64 / seconds;
                sum.parts.add(parts);
                all.add(parts);
                pauses += parts.wait * parts.wait / cell.calls as f64;
            }
            let glance = self.glance.as_ref();
            let threads = glance.into_iter().flat_map(|glance| &glance.threads);
            let threads = threads.filter(|(_, thread)| thread.ended == 0).count().max(1) as f64;
            // A call that ended may have begun long before, and was then counted as an unfinished call.
            let rate = (1.0 / seconds).min(threads / all.sum().max(f64::MIN_POSITIVE));
            for (key, sum) in sums {
                let whole = functions.entry(key).or_default();
                whole.calls += sum.calls;
                whole.parts.add(sum.parts.times(rate));
            }
            // Where calls are too few to divide, their wait is unknown.
            let is_told = all.undivided < 0.5 * all.sum() || all.sum() == 0.0;
            self.wait = is_told.then(|| all.wait / seconds / threads);
            self.pause = (is_told && all.wait > 0.0).then(|| pauses / all.wait);
        }
        self.compared = Some((now, std::mem::take(&mut self.calls)));
    }

    /// `over`: whether the job has ended.
    pub fn look(
        &mut self,
        here: &Here,
        over: bool,
        ticks: &Ticks,
        hosts: &BTreeMap<PathBuf, Host>,
        world: usize,
        notes: &mut Vec<String>,
    ) -> Option<RankNow> {
        let glance = self.glance.as_ref()?;
        let header = &glance.header;
        let boot = words(&header.boot);
        let host = hosts.values().find(|host| host.is_of(&boot));
        let is_here = boot == here.boot;
        let at = (here.monotonic)();
        // The clock of the rank's host: on another host, the time of its last sample.
        let clock = if is_here { Some(at) } else { host.map(Host::time).filter(|time| *time > 0) };
        let tick = tick(header, ticks);
        let now = clock.zip(tick).map(|(clock, tick)| counter(header, clock, tick));
        let has_ended = here.has_ended(&boot, header.pid_namespace, header.pid);
        let state = state(glance, over || has_ended, now.zip(tick));
        let is_over = !matches!(state, RankState::Starting | RankState::Computing | RankState::Inside { .. });

        let live = || glance.threads.iter().map(|(_, thread)| thread).filter(|thread| thread.ended == 0);
        let seconds = |ticks: u64| ticks as f64 * tick.unwrap_or(0.0) / 1e9;
        let going_on = |counts: fn(&Thread) -> bool| -> f64 {
            let since = |thread: &Thread| now.map_or(0.0, |now| seconds(now.saturating_sub(thread.since)));
            live().filter(|thread| thread.inside != 0 && counts(thread)).map(since).sum()
        };
        let sum = |of: fn(&Thread) -> u64| glance.threads.iter().fold(0, |sum, (_, t)| of(t).saturating_add(sum));
        let done: u64 = glance.ticks().iter().fold(0, |sum, ticks| ticks.saturating_add(sum));
        let seen = Seen {
            at,
            calls: glance.calls(),
            messages: sum(|thread| thread.messages),
            bytes: sum(|thread| thread.bytes),
            mpi: seconds(done) + if is_over { 0.0 } else { going_on(|_| true) },
            held: if is_over { 0.0 } else { going_on(may_wait) },
        };
        let passed = |before: &Seen| (seen.at.saturating_sub(before.at)) as f64 / 1e9;
        let before = self.before.filter(|before| passed(before) > 0.0);
        let rate =
            |of: fn(&Seen) -> u64| before.map(|before| of(&seen).saturating_sub(of(&before)) as f64 / passed(&before));
        let held = |before: Seen| {
            let share = |thread: &Thread| {
                let long = now.map_or(0.0, |now| seconds(now.saturating_sub(thread.since)));
                Some((inside(thread)?, (long / passed(&before)).min(1.0), may_wait(thread)))
            };
            live().filter_map(share).collect()
        };
        let goes_on: Vec<_> = before.filter(|_| !is_over).map_or_else(Vec::new, held);
        let threads = live().count().max(1) as f64;
        let share = |grown: f64, before: &Seen| (grown / passed(before) / threads).clamp(0.0, 1.0);
        let mpi = before.filter(|_| tick.is_some()).map(|before| share(seen.mpi - before.mpi, &before));
        // All time of an unfinished call counts as wait; when the call ends, the tables contain it.
        let held = before.map_or(0.0, |before| share((seen.held - before.held).max(0.0), &before));
        let wait = match (self.wait, mpi) {
            (Some(wait), Some(mpi)) => Some((wait + held).clamp(0.0, 1.0).min(mpi)),
            (None, Some(_)) if held > 0.5 => Some(held),
            _ => None,
        };
        if header.dropped.calls > 0 {
            notes.push(format!(
                "process {}: {} calls of too many threads are not told",
                header.pid, header.dropped.calls
            ));
        }
        self.before = Some(seen);
        // Tables and samples are of different moments.
        let outside = mpi.map_or(1.0, |mpi| 1.0 - mpi);
        let blocked = host.filter(|_| !is_over).and_then(|host| host.blocked.get(&header.pid).copied());
        let stall = blocked.filter(|(share, _)| *share > 0.5 * outside).filter(|(share, _)| *share >= STALLED);
        let known = RankNow {
            rank: (header.placed != 0).then_some(header.rank),
            world,
            host: words(&header.host),
            pid: header.pid,
            threads: header.threads,
            state,
            calls: rate(|seen| seen.calls),
            mpi,
            wait,
            // A long call that goes on is a wait of its own.
            pause: before.filter(|_| held > 0.5).map(|before| held * passed(&before)).or(self.pause),
            blocked: blocked.map(|(share, _)| share.min(outside)),
            stall: stall.map(|(share, parts)| Stall::most(share, parts)),
            messages: rate(|seen| seen.messages),
            bytes: rate(|seen| seen.bytes),
            partners: self.partners.1.clone(),
            core: host.and_then(|host| host.core(header.pid)),
            involuntary: host.and_then(|host| host.involuntary.get(&header.pid).copied()),
        };
        self.held = goes_on;
        Some(known)
    }
}

/// The world of each rank. A process whose rank is not known yet is shown with the last world.
pub fn worlds(ranks: &BTreeMap<PathBuf, Followed>) -> Vec<usize> {
    let (worlds, places) = worlds::of(ranks.values().filter_map(|followed| Some(&followed.placed()?.header)));
    let (last, mut places) = (worlds.len().saturating_sub(1), places.into_iter());
    ranks.values().map(|followed| followed.placed().and_then(|_| places.next()).unwrap_or(last)).collect()
}

/// The length of the rank's ticks, ns.
fn tick(header: &Header, ticks: &Ticks) -> Option<f64> {
    match header.clock {
        clock::MONOTONIC => Some(1.0),
        _ => ticks.get(&header.boot).copied().or_else(|| header.tick()),
    }
}

/// Least share of its time for which a rank counts as blocked.
const STALLED: f64 = 0.05;

/// Mean bytes from which messages do not fit into a connection's buffers.
const LARGE: u64 = 64 << 10;
/// Most partners of a rank that are shown.
const PARTNERS: usize = 4;

/// The main receivers, most first, where their messages are large.
fn partners(peers: &[Peer]) -> Vec<u32> {
    let mut large: Vec<(u64, u32)> = (0..)
        .zip(peers)
        .filter(|(_, peer)| peer.messages > 0 && peer.bytes / peer.messages >= LARGE)
        .map(|(rank, peer)| (peer.bytes, rank))
        .collect();
    large.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    large.into_iter().take(PARTNERS).map(|(_, rank)| rank).collect()
}

/// The present value of the counter of a rank's host.
fn counter(header: &Header, monotonic: u64, tick: f64) -> u64 {
    let since = monotonic.saturating_sub(header.started.monotonic) as f64;
    header.started.ticks + (since / tick) as u64
}

/// `gone`: the process has ended. `now`: the present counter, and the length of a tick, ns.
fn state(glance: &Glance, gone: bool, now: Option<(u64, f64)>) -> RankState {
    let header = &glance.header;
    let longest = || {
        let live = glance.threads.iter().map(|(_, thread)| thread).filter(|thread| thread.ended == 0);
        live.filter_map(|thread| Some((inside(thread)?, thread.since))).min_by_key(|(_, since)| *since)
    };
    match () {
        () if header.aborted != 0 => RankState::Aborted,
        () if header.finalized != 0 => RankState::Finalized,
        () if header.ended != 0 => RankState::Exited,
        () if gone => RankState::Killed,
        () if header.initialized == 0 && header.placed == 0 => RankState::Starting,
        () => match longest() {
            Some((id, since)) => RankState::Inside {
                function: name(id),
                seconds: now.map(|(now, tick)| now.saturating_sub(since) as f64 * tick / 1e9),
            },
            None => RankState::Computing,
        },
    }
}

/// The calls added to a cell since `before`. Their longest is unknown.
fn since(now: &Cell, before: &Cell) -> Cell {
    let mut cell = Cell {
        calls: now.calls.saturating_sub(before.calls),
        ticks: now.ticks.saturating_sub(before.ticks),
        bytes: now.bytes.saturating_sub(before.bytes),
        ..Cell::EMPTY
    };
    for ((grown, now), before) in cell.histogram.iter_mut().zip(now.histogram).zip(before.histogram) {
        *grown = now.saturating_sub(before);
    }
    cell
}
