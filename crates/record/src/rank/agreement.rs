//! Sums that must agree in tables without a close: the same calls are counted by class of size, of duration, by call
//! site, by peer and by thread.
//!
//! A thread counts a call in this order: its message to a peer, its cell (calls first, the histogram last), its call
//! site, its totals (calls last). A thread whose cells have as many calls as its totals is not counting, and all of its
//! sums must agree to the last tick. A thread whose cells have one call more was counting when it was killed or read.
//! The sums of a thread that went on during the reading lie between its totals before and after.

use std::collections::BTreeMap;

use super::{Read, Row};
use crate::functions::{self, Class, FunctionId};
use crate::layout::{Cell, Header, Peer, Site, Thread};
use crate::scale::{SIZE_CLASSES, TIME_CLASSES, size_floor, time_class, time_floor};

/// The first contradiction, in words.
pub(super) fn disagreement(read: &Read, header: &Header) -> Option<String> {
    if header.dropped != header.dropped_again {
        return Some("what it left out was counted twice, and differently".into());
    }
    let mut sums: BTreeMap<u16, Sums> = BTreeMap::new();
    for (index, before) in &read.before {
        let after = read.after.get(index).unwrap_or(before);
        sums.insert(*index, Sums::new(before, after));
    }
    for row in &read.rows {
        let Some(sums) = sums.get_mut(&row.thread) else { return Some(format!("there is no thread {}", row.thread)) };
        if let Some(why) = sums.add_row(row) {
            return Some(format!("thread {}, MPI_{}: {why}", row.thread, name(row.function)));
        }
    }
    let stands_still = sums.values().all(|sums| sums.passed == 0);
    for (thread, site) in &read.sites {
        let Some(sums) = sums.get_mut(thread) else { return Some(format!("there is no thread {thread}")) };
        if stands_still && site.module as usize > read.modules.len() {
            return Some(format!("a call site of thread {thread} is in a file of code that is not there"));
        }
        sums.add_site(site);
    }
    for (thread, peers) in &read.peers {
        let Some(sums) = sums.get_mut(thread) else { return Some(format!("there is no thread {thread}")) };
        peers.iter().for_each(|peer| sums.add_peer(peer));
    }
    sums.iter().find_map(|(index, sums)| Some(format!("thread {index}: {}", sums.disagreement(header)?)))
}

fn name(id: FunctionId) -> &'static str {
    functions::function(id).map_or("?", |function| function.name)
}

/// Sums of one function, over rows or over call sites.
#[derive(Default, PartialEq, Eq)]
struct OfFunction {
    calls: u128,
    ticks: u128,
    bytes: u128,
    most: u64,
}

struct Sums<'a> {
    before: &'a Thread,
    after: &'a Thread,
    /// Calls of the thread during the reading.
    passed: u64,
    rows: BTreeMap<u16, OfFunction>,
    sites: BTreeMap<u16, OfFunction>,
    messages: u128,
    bytes: u128,
    operation_bytes: u128,
}

impl<'a> Sums<'a> {
    fn new(before: &'a Thread, after: &'a Thread) -> Sums<'a> {
        Sums {
            before,
            after,
            passed: after.calls.saturating_sub(before.calls),
            rows: BTreeMap::new(),
            sites: BTreeMap::new(),
            messages: 0,
            bytes: 0,
            operation_bytes: 0,
        }
    }

    /// Calls by which a sum may differ.
    fn slack(&self) -> u64 {
        if self.passed == 0 && self.after.inside == 0 { 0 } else { self.passed.saturating_add(1) }
    }

    fn add_row(&mut self, row: &Row) -> Option<&'static str> {
        let (slack, passed) = (self.slack(), self.passed);
        let sum = self.rows.entry(row.function.0).or_default();
        for (class, cell) in row.cells.iter().enumerate() {
            sum.calls += u128::from(cell.calls);
            sum.ticks += u128::from(cell.ticks);
            sum.bytes += u128::from(cell.bytes);
            sum.most = sum.most.max(cell.most);
            if let Some(why) = disagreement_of(cell, class, slack, passed == 0) {
                return Some(why);
            }
        }
        None
    }

    fn add_site(&mut self, site: &Site) {
        let sum = self.sites.entry(site.function).or_default();
        sum.calls += u128::from(site.calls);
        sum.ticks += u128::from(site.ticks);
        sum.bytes += u128::from(site.bytes);
        sum.most = sum.most.max(site.most);
    }

    fn add_peer(&mut self, peer: &Peer) {
        self.messages += u128::from(peer.messages);
        self.bytes += u128::from(peer.bytes);
        self.operation_bytes += u128::from(peer.operation_bytes);
    }

    fn disagreement(&self, header: &Header) -> Option<&'static str> {
        let (before, after, dropped) = (self.before, self.after, &header.dropped);
        // The identity of the thread may be in the middle of a write at one of the two moments.
        let is_set = |thread: &Thread| thread.is_whole() || (thread.tid, thread.ended, thread.seal) == (0, 0, 0);
        if !is_set(before) && !is_set(after) {
            return Some("whose totals they are cannot be");
        }
        let grew = after.calls >= before.calls && after.messages >= before.messages && after.bytes >= before.bytes;
        if !grew || after.ticks.iter().zip(before.ticks).any(|(after, before)| *after < before) {
            return Some("its totals went backwards");
        }
        let inside = after.inside.checked_sub(1).map(|id| u16::try_from(id).ok().map(FunctionId));
        let inside = match inside {
            Some(id) => match id.and_then(functions::function) {
                Some(function) => Some(function),
                None => return Some("it is in a function that there is not"),
            },
            None => None,
        };
        let by_row = self.against(&self.rows, dropped.rows == 0, inside.map(|function| function.class));
        if let Err(off) = by_row {
            return Some(off.unwrap_or("its totals are not those of its functions"));
        }
        let by_site =
            self.against(&self.sites, dropped.rows == 0 && dropped.sites == 0, inside.map(|function| function.class));
        if by_site.is_err() {
            return Some("its totals are not those of its call sites");
        }
        let is_at_rest = self.passed == 0 && by_row == Ok(0) && by_site == Ok(0);
        if is_at_rest && dropped.rows == 0 && dropped.sites == 0 {
            let rows = self.rows.iter().filter(|(_, sum)| sum.calls > 0);
            let sites = self.sites.iter().filter(|(_, sum)| sum.calls > 0);
            if !rows.eq(sites) {
                return Some("the calls of a function are not those of its call sites");
            }
        }
        self.of_messages(header)
    }

    /// Number of calls that `sums` have beyond the totals: at most the one being counted, where the thread made no call during
    /// the reading. `whole`: no call is missing in the sums. `class`: class of the function that the thread is in.
    fn against(
        &self,
        sums: &BTreeMap<u16, OfFunction>,
        whole: bool,
        class: Option<Class>,
    ) -> Result<u64, Option<&'static str>> {
        let calls: u128 = sums.values().map(|sum| sum.calls).sum();
        let beyond = calls.saturating_sub(self.after.calls.into());
        if beyond > u128::from(class.is_some()) || (whole && calls < self.before.calls.into()) {
            return Err(None);
        }
        let counts = class.filter(|_| self.passed > 0 || beyond > 0).map(|class| class as usize);
        let mut ticks = [0u128; 16];
        for (id, sum) in sums {
            if let Some(function) = functions::function(FunctionId(*id)) {
                ticks[function.class as usize] += sum.ticks;
            }
        }
        for (class, sum) in ticks.into_iter().enumerate() {
            let is_below = whole && sum < self.before.ticks[class].into();
            if is_below || (sum > self.after.ticks[class].into() && counts != Some(class)) {
                return Err(Some("its time in MPI is not that of its calls"));
            }
        }
        Ok(beyond as u64)
    }

    /// Checks messages. A message is counted before its call, so that the messages of one call may be ahead.
    fn of_messages(&self, header: &Header) -> Option<&'static str> {
        let (before, after) = (self.before, self.after);
        let is_at_rest = self.passed == 0 && after.inside == 0;
        let is_whole = header.dropped.peers == 0;
        let off = |sum: u128, before: u64, after: u64| {
            (is_whole && sum < before.into()) || (is_at_rest && sum > after.into())
        };
        if off(self.messages, before.messages, after.messages) || off(self.bytes, before.bytes, after.bytes) {
            return Some("its messages are not those to its peers");
        }
        let one_sided = |id: &u16| functions::function(FunctionId(*id)).is_some_and(|f| f.class == Class::OneSided);
        let moved: u128 = self.rows.iter().filter(|(id, _)| one_sided(id)).map(|(_, sum)| sum.bytes).sum();
        if is_at_rest && is_whole && header.dropped.rows == 0 && moved != self.operation_bytes {
            return Some("its one-sided operations are not those to its peers");
        }
        None
    }
}

/// The contradiction in a cell whose counts may be off by `slack` calls.
fn disagreement_of(cell: &Cell, size_class: usize, slack: u64, stands: bool) -> Option<&'static str> {
    let counted = cell.histogram.iter().try_fold(0u64, |sum, calls| sum.checked_add(*calls));
    let Some(counted) = counted.filter(|counted| counted.abs_diff(cell.calls) <= slack) else {
        return Some("its calls are not those of its durations");
    };
    let floor = u128::from(size_floor(size_class));
    let least = u128::from(cell.calls.saturating_sub(slack)) * floor;
    let most = match size_class {
        0 => 0,
        _ if size_class == SIZE_CLASSES - 1 => u128::MAX,
        _ => (u128::from(cell.calls) + u128::from(slack)) * (2 * floor - 1),
    };
    if !(least..=most).contains(&cell.bytes.into()) {
        return Some("its bytes are not those of so many calls");
    }
    // The cell is not being updated.
    if stands && counted == cell.calls {
        let mut used = cell.histogram.iter().enumerate().filter(|(_, calls)| **calls > 0);
        let lowest =
            used.clone().map(|(class, calls)| u128::from(*calls) * u128::from(time_floor(class))).sum::<u128>();
        let highest = used.clone().fold(0u128, |sum, (class, calls)| match class {
            _ if class == TIME_CLASSES - 1 => u128::MAX,
            _ => sum.saturating_add(u128::from(*calls) * u128::from(time_floor(class + 1) - 1)),
        });
        let (first, last) = (used.next(), used.next_back());
        let last = last.or(first);
        let is_of =
            |class: Option<(usize, &u64)>, ticks: u64| class.is_some_and(|(class, _)| time_class(ticks) == class);
        let (most, least) = (cell.most, !cell.least_from_top);
        if cell.calls == 0 && (cell.ticks, cell.most, cell.least_from_top) != (0, 0, 0) {
            return Some("it has time without calls");
        }
        if cell.calls > 0
            && (!(lowest..=highest).contains(&cell.ticks.into()) || !is_of(last, most) || !is_of(first, least))
        {
            return Some("its time is not that of its durations");
        }
    }
    None
}
