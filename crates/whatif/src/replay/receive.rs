//! Receive work: the time of cores that the network's softirqs take while messages come from other hosts.
//!
//! The cores of a host that do it serve one message after the other. With `part` what it is of a message's cost in a stream:
//! ```text
//! received    = max(server, arrived) + part x receive             arrived + part x receive = sent + trip, if it is free
//! ```
//! A rank on such a core goes on as softirqs let it: [`Busy::passed`] says when it has done some time's work. Its computing
//! takes longer by what they take meanwhile; its own work in calls too; its sends begin when they leave it the core; and of
//! its own work for a message the part `after` comes when all pieces are there, which elsewhere is done while they come.
//!
//! A rank in another package than these cores has another cache, and takes `far` times as long for its own work. Costs were
//! measured on cores of which it is not known where these were, `measured` from 0, near, to 1, far:
//! ```text
//! work(near) = far^-measured       work(far) = far^(1 - measured)         over the measured one
//! trip       = measured trip + exposed x what the work of both ends is more
//! ```

use std::cmp::Reverse;
use std::sync::Arc;

use super::{Cause, PS, Replay, Residuals};
use crate::graph::{CallId, Graph, Message, Reach};
use crate::model::{Price, Prices};

/// The part of a core that running softirqs take: nearly all, so that instants stay distinct.
const TAKEN: f64 = 0.98;

/// Network softirqs of a recorded run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Softirqs {
    /// By host: softirq time on all of its cores, ns.
    pub hosts: Vec<f64>,
    /// By rank: the share of its host's softirqs that is done on its core.
    pub shares: Vec<f64>,
    /// By rank: whether it is in another package than the cores that do most of its host's; empty: none is.
    pub far: Vec<bool>,
}

/// Unknown figures of messages' work on cores that receive, and far from them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Places {
    /// The part of a rank's own work for a message, on a core that receives, that comes after the softirqs.
    pub after: f64,
    /// The factor of work in another package over that in the same.
    pub far: f64,
    /// Where costs were measured: from 0, near, to 1, far.
    pub measured: f64,
    /// The part of additional work there that makes the message take longer.
    pub exposed: f64,
}

impl Places {
    /// The figures with one of them set to a place between its least and its most.
    pub fn with(mut self, nth: usize, place: f64, farthest: f64) -> Places {
        match nth {
            0 => self.far = farthest.powf(place),
            1 => self.measured = place,
            2 => self.exposed = place,
            _ => self.after = place,
        }
        self
    }

    /// The figures moved by `part` of the way to `others`.
    pub fn towards(&self, others: &Places, part: f64) -> Places {
        let between = |one: f64, other: f64| one + part * (other - one);
        Places {
            after: between(self.after, others.after),
            far: self.far.powf(1.0 - part) * others.far.powf(part),
            measured: between(self.measured, others.measured),
            exposed: between(self.exposed, others.exposed),
        }
    }

    /// Factors of work over the measured one: near, and far.
    fn factors(&self) -> [f64; 2] {
        [self.far.powf(-self.measured), self.far.powf(1.0 - self.measured)]
    }

    /// The price of a message between ends that are far or not.
    fn price(&self, price: Price, [from, to]: [bool; 2]) -> Price {
        let factors = self.factors();
        let ends = [(price.send, from), (price.receive, to)];
        let [send, receive] = ends.map(|(work, far)| (work as f64 * factors[usize::from(far)]) as i64);
        let more = send - price.send + receive - price.receive;
        let trip = price.trip + (more as f64 * self.exposed) as i64;
        Price { send, receive, trip: trip.max(send).max(receive), ..price }
    }
}

/// Receive work in a replay.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Receive {
    /// By host: receive work over a message's cost in a stream.
    pub part: Vec<f64>,
    /// By host: the part of its softirqs that messages account for.
    pub of_messages: Vec<f64>,
    /// By lane: the share of its host's softirqs that is done on its core.
    pub shares: Vec<f64>,
    /// By lane: whether it is far from the cores that do its host's; empty: none is.
    pub far: Vec<bool>,
    pub places: Places,
    /// By call: softirqs in the recorded gap before it, ps; empty: they are still in the gaps.
    pub taken: Arc<Vec<i64>>,
}

impl Receive {
    /// Softirqs that were recorded with `graph`, under `prices`.
    pub fn of(graph: &Graph, prices: &Prices, softirqs: &Softirqs, places: Places) -> Receive {
        let mut cost = vec![0.0; softirqs.hosts.len()];
        for message in &graph.messages {
            if graph.kinds[message.kind as usize].reach == Reach::Between {
                cost[graph.host(message.receiver)] += whole(prices, message.kind);
            }
        }
        let ratio = |(softirqs, cost): (f64, f64)| if cost > 0.0 { softirqs * PS as f64 / cost } else { f64::NAN };
        let ratios: Vec<f64> = softirqs.hosts.iter().copied().zip(cost.iter().copied()).map(ratio).collect();
        // A host to which no message came gets the ratio of all others together.
        let others = ratio((softirqs.hosts.iter().sum(), cost.iter().sum()));
        let part = |ratio: &f64| if ratio.is_nan() { others } else { *ratio };
        let part = |ratio: &f64| Some(part(ratio)).filter(|part| !part.is_nan()).unwrap_or(0.0).min(1.0);
        let of_messages = |ratio: &f64| if *ratio > 0.0 { ratio.recip().min(1.0) } else { 0.0 };
        Receive {
            part: ratios.iter().map(part).collect(),
            of_messages: ratios.iter().map(of_messages).collect(),
            shares: lanes(graph, &softirqs.shares),
            far: lanes(graph, &softirqs.far),
            places,
            taken: Arc::default(),
        }
    }
}

/// By lane, the values that are known by rank; empty: none is.
pub fn lanes<T: Copy>(graph: &Graph, by_rank: &[T]) -> Vec<T> {
    graph.lanes.iter().map_while(|lane| by_rank.get(lane.rank as usize).copied()).collect()
}

/// The cost of a message in a stream, ps.
fn whole(prices: &Prices, kind: u32) -> f64 {
    let price = prices.kinds[kind as usize];
    price.receive.max(price.engine) as f64
}

/// Periods in which the cores of a host did receive work, as far as known, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct Busy(Vec<(i64, i64)>);

impl Busy {
    pub(super) fn serve(&mut self, at: i64, work: i64) -> i64 {
        match self.0.last_mut() {
            Some((_, end)) if at <= *end => {
                *end += work;
                *end
            }
            _ => {
                self.0.push((at, at + work));
                at + work
            }
        }
    }

    fn free(&self) -> i64 {
        self.0.last().map_or(0, |(_, end)| *end)
    }

    fn from(&self, at: i64) -> &[(i64, i64)] {
        &self.0[self.0.partition_point(|(_, end)| *end <= at)..]
    }

    /// The end of `work` that begins at `at`, where these periods take the part `taken` of the core.
    fn passed(&self, mut at: i64, mut work: i64, taken: f64) -> i64 {
        for (start, end) in self.from(at) {
            let free = (start - at).max(0);
            if work <= free {
                break;
            }
            (at, work) = (at + free, work - free);
            let done = ((end - at) as f64 * (1.0 - taken)) as i64;
            if work <= done {
                return at + (work as f64 / (1.0 - taken)) as i64;
            }
            (at, work) = (*end, work - done);
        }
        at + work
    }

    /// The time that they took between two instants.
    fn took(&self, from: i64, to: i64, taken: f64) -> i64 {
        let stretches = self.from(from).iter().take_while(|(start, _)| *start < to);
        let busy: i64 = stretches.map(|(start, end)| (*end).min(to) - (*start).max(from)).sum();
        (busy as f64 * taken) as i64
    }
}

/// Receive work of the hosts in a replay.
#[derive(Debug)]
pub(super) struct Receiving {
    busy: Vec<Busy>,
    /// By lane: its host, and the part of its core that running softirqs take; 0: none.
    lanes: Vec<(u32, f64)>,
    /// By host: the factor by which all of its cores are faster than one that did all receive work.
    speed: Vec<f64>,
    /// By message: whether its sender and its receiver are far; empty: none is.
    far: Vec<[bool; 2]>,
    /// By call: softirqs in the gap before it, ps.
    pub(super) taken: Vec<i64>,
}

impl Receiving {
    pub(super) fn of(graph: &Graph, receive: Option<&Receive>) -> Option<Box<Receiving>> {
        let receive = receive.filter(|receive| receive.part.iter().any(|part| *part > 0.0))?;
        let host = |lane: &crate::graph::Lane| graph.hosts[lane.rank as usize];
        let hosts = graph.hosts.iter().max().map_or(0, |host| *host as usize + 1);
        let (mut most, mut sum, mut seen) = (vec![0.0f64; hosts], vec![0.0; hosts], vec![false; graph.hosts.len()]);
        for (lane, share) in graph.lanes.iter().zip(&receive.shares) {
            let at = host(lane) as usize;
            most[at] = most[at].max(*share);
            if !std::mem::replace(&mut seen[lane.rank as usize], true) {
                sum[at] += share;
            }
        }
        // Receive work on no rank's core is assumed to be on one core.
        let most: Vec<f64> = most.iter().zip(&sum).map(|(most, sum)| most.max(1.0 - sum)).collect();
        let taken = |(lane, share): (&crate::graph::Lane, &f64)| {
            let at = host(lane);
            (at, TAKEN * share / most[at as usize])
        };
        let far = |call: CallId| receive.far.get(graph.lane(call)).copied().unwrap_or(false);
        let ends = |message: &Message| [message.sender, message.receiver].map(far);
        let far = if receive.far.is_empty() { Vec::new() } else { graph.messages.iter().map(ends).collect() };
        Some(Box::new(Receiving {
            far,
            busy: vec![Busy::default(); hosts],
            lanes: graph.lanes.iter().zip(&receive.shares).map(taken).collect(),
            speed: most.iter().map(|most| most.recip()).collect(),
            taken: vec![0; graph.len()],
        }))
    }

    fn of_lane(&self, place: usize) -> Option<(&Busy, f64)> {
        let (host, taken) = self.lanes[place];
        (taken > 0.0).then(|| (&self.busy[host as usize], taken))
    }

    /// The end of the receive work of a message that came to a host at `at`.
    pub(super) fn serve(&mut self, host: usize, at: i64, work: i64) -> i64 {
        let work = (work as f64 / self.speed[host]) as i64;
        self.busy[host].serve(at, work)
    }
}

impl Replay<'_, '_> {
    /// The price of a message between its sender's and its receiver's cores.
    pub(super) fn price(&self, message: u32) -> Price {
        let price = self.conditions.prices.kinds[self.graph.messages[message as usize].kind as usize];
        let far = self.receiving.as_ref().and_then(|receiving| receiving.far.get(message as usize));
        match (far, &self.conditions.receive) {
            (Some(far), Some(receive)) => receive.places.price(price, *far),
            _ => price,
        }
    }

    /// The receive work for a part of a message's bytes, ps; 0: none.
    pub(super) fn receive_work(&self, message: u32, part_of_it: f64) -> i64 {
        let Some(receive) = self.conditions.receive.as_ref().filter(|_| self.receiving.is_some()) else { return 0 };
        let of = self.graph.messages[message as usize];
        if self.graph.kinds[of.kind as usize].reach != Reach::Between {
            return 0;
        }
        let host = self.graph.host(of.receiver);
        let part = receive.part.get(host).copied().unwrap_or(0.0);
        (part * part_of_it * whole(&self.conditions.prices, of.kind)) as i64
    }

    /// When a message that came to a host at `at` is received.
    pub(super) fn received(&mut self, host: usize, at: i64, work: i64) -> i64 {
        match self.receiving.as_mut().filter(|_| work > 0) {
            Some(receiving) => receiving.serve(host, at, work),
            None => at,
        }
    }

    /// Whether softirqs take part of a lane's core.
    pub(super) fn is_burdened(&self, place: usize) -> bool {
        self.receiving.as_ref().is_some_and(|receiving| receiving.lanes[place].1 > 0.0)
    }

    /// When the softirqs on a lane's core let it continue, from `now` on.
    pub(super) fn let_by(&self, place: usize, now: i64) -> i64 {
        let of_lane = self.receiving.as_ref().and_then(|receiving| receiving.of_lane(place));
        of_lane.map_or(now, |(busy, taken)| now + ((busy.free() - now).max(0) as f64 * taken) as i64)
    }

    /// Whether a burdened lane between calls enters its next call now. If not, it is scheduled for when it may.
    pub(super) fn has_computed(&mut self, place: usize, call: CallId) -> bool {
        let (left, now) = (self.cursors[place].left, self.cursors[place].entered);
        let gap = self.conditions.gap(self.graph, place, call);
        let is_learning = matches!(self.residuals, Residuals::Learn(_));
        let Some(receiving) = self.receiving.as_mut() else { return true };
        let Some((busy, taken)) = receiving.of_lane(place) else { return true };
        if is_learning {
            receiving.taken[call as usize] = busy.took(left, now, taken);
            return true;
        }
        let entered = busy.passed(left, gap, taken);
        if entered > now {
            self.cursors[place].entered = entered;
            self.ready.push(Reverse((entered, place as u32)));
            return false;
        }
        receiving.taken[call as usize] = now - left - gap;
        true
    }

    /// For a burdened lane, when a message that is over at `until` is taken out, and when its last work for it began.
    pub(super) fn taken_out(&self, message: u32, until: i64) -> (i64, i64) {
        let own = self.price(message).receive;
        match self.conditions.receive.as_ref() {
            Some(receive) if self.receive_work(message, 1.0) > 0 => {
                (until + (receive.places.after * own as f64) as i64, until)
            }
            _ => (until, until - own),
        }
    }

    /// Whether a burdened lane whose call has done all its steps leaves it now, with the exit before its residual. If not,
    /// it is scheduled for when it may.
    pub(super) fn leaves(&mut self, place: usize, now: i64) -> bool {
        let Some((busy, taken)) = self.receiving.as_ref().and_then(|receiving| receiving.of_lane(place)) else {
            return true;
        };
        let cursor = &self.cursors[place];
        let (call, at) = (cursor.call, cursor.call as usize);
        let mut latest = cursor.until.max(busy.passed(cursor.entered, cursor.own, taken));
        if cursor.cause != Cause::OWN {
            latest = latest.max(busy.passed(cursor.since, cursor.until - cursor.since, taken));
        }
        let exit = match &self.residuals {
            Residuals::Learn(_) => cursor.entered + self.graph.calls.inside.get(call) * PS,
            Residuals::Own(all) => latest + all[at],
            Residuals::Class(all) => latest + all[self.graph.calls.class[at] as usize],
            Residuals::None => latest,
        };
        let exit = exit.max(cursor.floor);
        self.cursors[place].latest = latest;
        if exit > now {
            self.ready.push(Reverse((exit, place as u32)));
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_passes_as_softirqs_let_it() {
        let mut busy = Busy::default();
        assert_eq!(busy.serve(100, 50), 150);
        assert_eq!(busy.serve(120, 50), 200);
        assert_eq!(busy.serve(300, 100), 400);
        assert_eq!(busy.0, [(100, 200), (300, 400)]);
        let half = |at, work| busy.passed(at, work, 0.5);
        assert_eq!([half(0, 100), half(0, 101), half(0, 150), half(0, 151)], [100, 102, 200, 201]);
        assert_eq!([half(150, 25), half(150, 125), half(150, 150), half(500, 7)], [200, 300, 350, 507]);
        for (at, work) in [(0, 150), (150, 125), (150, 150), (90, 400)] {
            let to = half(at, work);
            assert_eq!(to - at - busy.took(at, to, 0.5), work);
        }
    }
}
