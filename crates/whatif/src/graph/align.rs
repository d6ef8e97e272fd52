//! Clocks of several hosts, aligned by the order of events that waited for each other.
//!
//! Nothing is over before what it waited for began: a message that left host A at `e` on its clock and was received on host B at
//! `x` on its own bounds what B's clock is ahead of A's, `D <= x - e`, and one the other way bounds it from below. Between both
//! clouds lies a band; its line, as many offsets and drifts as there are pieces of time, has as much room on both sides as it
//! can. Hosts are joined by the narrowest bands, a spanning tree; where other pairs contradict it, all hosts are shifted to what
//! all of them allow.

use machine::count;
use timeline::{Collective, Kind, Timeline};

/// The most that the kernel steers a clock by (`adjtimex`: 500 ppm), and so the greatest drift.
const DRIFT: f64 = 5e-4;

/// The most pieces of a clock; one that jumps more often gets a note and one line.
const PIECES: usize = 8;

/// Pairs of instants by `[host that began][host that left]`: the second waited for the first, each on its own clock, ns.
type Orders = Vec<Vec<Vec<(i64, i64)>>>;

/// Conversions of each host's instants to the clock of host 0.
#[derive(Debug)]
pub struct Clocks {
    /// By host: lines, each with the instant of the host's clock from which it holds.
    hosts: Vec<Vec<(i64, Line)>>,
    pub notes: Vec<String>,
}

/// `local = reference + offset + drift x (reference - since)`, ns.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Line {
    since: i64,
    offset: f64,
    drift: f64,
    /// The width of the band at its narrowest.
    width: f64,
}

impl Line {
    const NONE: Line = Line { since: 0, offset: 0.0, drift: 0.0, width: f64::INFINITY };

    fn local(&self, reference: i64) -> f64 {
        let since = (reference - self.since) as f64;
        reference as f64 + self.offset + self.drift * since
    }

    fn reference(&self, local: f64) -> f64 {
        self.since as f64 + (local - self.since as f64 - self.offset) / (1.0 + self.drift)
    }
}

impl Clocks {
    /// The clocks of hosts by the calls of this world; `hosts` by rank.
    pub fn of(timeline: &Timeline, world: usize, hosts: &[u32]) -> Clocks {
        let number = hosts.iter().max().map_or(0, |host| *host as usize + 1);
        if number < 2 {
            return Clocks { hosts: vec![Vec::new(); number], notes: Vec::new() };
        }
        Clocks::aligned(orders(timeline, world, hosts, number))
    }

    /// The instant of a host on the clock of host 0.
    pub fn at(&self, host: u32, local: i64) -> i64 {
        let lines = &self.hosts[host as usize];
        let after = lines.partition_point(|(from, _)| *from <= local).max(1);
        lines.get(after - 1).map_or(local, |(_, line)| line.reference(local as f64).round() as i64)
    }

    fn aligned(orders: Orders) -> Clocks {
        let number = orders.len();
        let mut clocks = Clocks { hosts: vec![Vec::new(); number], notes: Vec::new() };
        let (mut known, mut widest) = (vec![0], 0.0f64);
        while known.len() < number {
            // The narrowest band from a known host to an unknown one.
            let pairs = known.iter().flat_map(|from| (0..number).map(move |to| (*from, to)));
            let bands = pairs.filter(|(_, to)| !known.contains(to)).map(|(from, to)| {
                let lines =
                    lines(&clocks.seen(from, &orders[from][to], true), &clocks.seen(from, &orders[to][from], false));
                let width = lines.iter().map(|line| line.1.width).fold(f64::NEG_INFINITY, f64::max);
                (width, to, lines)
            });
            let Some((width, to, lines)) = bands.min_by(|one, other| one.0.total_cmp(&other.0)) else { break };
            if lines.len() > 1 {
                let pieces = count::of(lines.len() as u64, "piece");
                clocks
                    .notes
                    .push(format!("no steady drift explains the clock of host {to}: it is followed in {pieces}"));
            }
            clocks.hosts[to] = lines;
            known.push(to);
            widest = widest.max(width);
        }
        let shifted = clocks.shift(&orders);
        let all: u64 = orders.iter().flatten().map(|of| of.len() as u64).sum();
        let left = clocks.backwards(&orders);
        let within = match widest {
            width if width.is_finite() => format!("to within {:.3} us", width.max(0.0) / 2e3),
            _ => "in one direction alone, so that their offset has no upper bound".to_owned(),
        };
        let hosts = count::of(number as u64, "host");
        clocks.notes.push(format!(
            "for the replay the clocks of {hosts} are aligned by {}: {within}",
            count::of(all, "message")
        ));
        if shifted {
            clocks
                .notes
                .push("pairs of hosts contradicted each other: all are shifted to what all of them allow".to_owned());
        }
        if left > 0 {
            let orders = count::of(left, "message");
            clocks.notes.push(format!("by no steady clocks of the hosts {orders} came after they were sent"));
        }
        clocks
    }

    /// Instants of a known host on the reference's clock, with a bound of how much the other's clock is ahead.
    fn seen(&self, known: usize, orders: &[(i64, i64)], from_known: bool) -> Vec<(i64, i64)> {
        let one = |(begun, left): &(i64, i64)| {
            let (own, other) = if from_known { (*begun, *left) } else { (*left, *begun) };
            let reference = self.at(known as u32, own);
            (reference, other - reference)
        };
        let mut seen: Vec<(i64, i64)> = orders.iter().map(one).collect();
        seen.sort_unstable();
        seen
    }

    fn backwards(&self, orders: &Orders) -> u64 {
        let mut number = 0;
        for (from, of) in orders.iter().enumerate() {
            for (to, of) in of.iter().enumerate() {
                let is_late = |(begun, left): &&(i64, i64)| self.at(to as u32, *left) < self.at(from as u32, *begun);
                number += of.iter().filter(is_late).count() as u64;
            }
        }
        number
    }

    /// Shifts all hosts to the middle of what every pair allows, where a pair is contradicted and all can be satisfied.
    fn shift(&mut self, orders: &Orders) -> bool {
        let number = orders.len();
        // The bound of how much the clock of the first may still be moved over that of the second.
        let mut room = vec![vec![f64::INFINITY; number]; number];
        for (from, of) in orders.iter().enumerate() {
            for (to, of) in of.iter().enumerate() {
                let least =
                    of.iter().map(|(begun, left)| self.at(to as u32, *left) - self.at(from as u32, *begun)).min();
                room[from][to] = if from == to { 0.0 } else { least.map_or(f64::INFINITY, |least| least as f64) };
            }
        }
        if room.iter().flatten().all(|room| *room >= 0.0) {
            return false;
        }
        for middle in 0..number {
            for from in 0..number {
                for to in 0..number {
                    room[from][to] = room[from][to].min(room[from][middle] + room[middle][to]);
                }
            }
        }
        if (0..number).any(|host| room[host][host] < 0.0) {
            return false;
        }
        for (host, lines) in self.hosts.iter_mut().enumerate().skip(1) {
            let (most, least) = (room[host][0], -room[0][host]);
            let shift = match (most.is_finite(), least.is_finite()) {
                (true, true) => (most + least) / 2.0,
                (true, false) => most.min(0.0),
                (false, true) => least.max(0.0),
                (false, false) => 0.0,
            };
            for (_, line) in lines {
                line.offset -= shift * (1.0 + line.drift);
            }
        }
        true
    }
}

/// The orders between hosts: what completed calls had waited for.
fn orders(timeline: &Timeline, world: usize, hosts: &[u32], number: usize) -> Orders {
    let mut orders: Orders = vec![vec![Vec::new(); number]; number];
    for (place, rank) in timeline.ranks.iter().enumerate().filter(|(_, rank)| rank.world == world) {
        let own = hosts[rank.rank as usize] as usize;
        let mut walk = timeline.walk(place);
        while let Some(step) = walk.step() {
            for operation in step.completed {
                let mut add = |from: u32, begun: i64| {
                    let from = hosts.get(from as usize).map_or(own, |host| *host as usize);
                    if from != own {
                        orders[from][own].push((begun, step.left));
                    }
                };
                match operation.kind {
                    Kind::Send => {}
                    Kind::Receive => {
                        if let Some(partner) = timeline.matches.partner(rank.rank, operation) {
                            add(operation.peer as u32, partner.posted);
                        }
                    }
                    Kind::Collective { who, .. } => {
                        let Some(instance) = timeline.matches.instance(operation).filter(|of| of.whole()) else {
                            continue;
                        };
                        let communicator = &timeline.communicators[operation.communicator.unwrap_or_default() as usize];
                        let at = communicator.place_of(rank.rank).unwrap_or(0);
                        let root = u32::try_from(operation.peer).ok().and_then(|root| communicator.place_of(root));
                        let awaited = match (who, root) {
                            (Collective::All, _) => 0..instance.entries.len(),
                            (Collective::FromRoot, Some(root)) => root..root + 1,
                            (Collective::ToRoot, Some(root)) if root == at => 0..instance.entries.len(),
                            (Collective::Prefix, _) => 0..at,
                            _ => 0..0,
                        };
                        // The last member of each host to enter.
                        let mut last = vec![None; number];
                        for member in awaited {
                            let rank = communicator.members[member];
                            let host = &mut last[hosts.get(rank as usize).map_or(own, |host| *host as usize)];
                            let posted = instance.entries[member].posted;
                            if host.is_none_or(|(known, _)| known < posted) {
                                *host = Some((posted, rank));
                            }
                        }
                        last.into_iter().flatten().for_each(|(posted, rank)| add(rank, posted));
                    }
                }
            }
        }
    }
    orders
}

/// Lines between two clouds of `(instant of the reference, bound of how much the other clock is ahead)`, both by instant:
/// below all of `most` and above all of `least`. Pieces where one line does not fit, each as long as possible.
fn lines(most: &[(i64, i64)], least: &[(i64, i64)]) -> Vec<(i64, Line)> {
    let mut all: Vec<i64> = most.iter().chain(least).map(|(at, _)| *at).collect();
    all.sort_unstable();
    let (mut rest, mut found, mut before) = ((most, least), Vec::new(), None);
    while let Some(first) = all.first().copied() {
        let part =
            |end: i64| (rest.0.partition_point(|(at, _)| *at <= end), rest.1.partition_point(|(at, _)| *at <= end));
        let line_to = |end: i64| {
            let (most, least) = part(end);
            line(&rest.0[..most], &rest.1[..least], first)
        };
        // A line that fits a set fits each part of it.
        let last = all[all.len() - 1];
        let fits = if found.len() + 1 == PIECES || line_to(last).width >= 0.0 {
            all.len()
        } else {
            let (mut low, mut high) = (1, all.len());
            while high - low > 1 {
                let middle = (low + high) / 2;
                if line_to(all[middle - 1]).width >= 0.0 { low = middle } else { high = middle }
            }
            low
        };
        let end = all[fits - 1];
        let line = line_to(end);
        // Between the last instant of the piece before and the first of this one.
        let from = before.map_or(i64::MIN, |before: f64| ((before + line.local(first)) / 2.0).round() as i64);
        before = Some(line.local(end));
        found.push((from, line));
        let (most, least) = part(end);
        rest = (&rest.0[most..], &rest.1[least..]);
        all.drain(..all.partition_point(|at| *at <= end));
    }
    if found.is_empty() { vec![(i64::MIN, Line::NONE)] } else { found }
}

/// The line with as much room as there is between both clouds, and the least drift that leaves half of it.
fn line(most: &[(i64, i64)], least: &[(i64, i64)], since: i64) -> Line {
    let points = |all: &[(i64, i64)], sign: f64| -> Vec<(f64, f64)> {
        hull(all.iter().map(|(at, ahead)| ((at - since) as f64, *ahead as f64 * sign)))
    };
    let (above, below) = (points(most, 1.0), points(least, -1.0));
    let ceiling = |drift: f64| above.iter().map(|(at, ahead)| ahead - drift * at).fold(f64::INFINITY, f64::min);
    let floor = |drift: f64| below.iter().map(|(at, ahead)| -ahead - drift * at).fold(f64::NEG_INFINITY, f64::max);
    let (drift, offset) = match (above.is_empty(), below.is_empty()) {
        (false, false) => {
            // Concave in the drift.
            let room = |drift: f64| ceiling(drift) - floor(drift);
            let (mut low, mut high) = (-DRIFT, DRIFT);
            for _ in 0..100 {
                let third = (high - low) / 3.0;
                let (one, other) = (room(low + third), room(high - third));
                if one <= other {
                    low += third;
                }
                if other <= one {
                    high -= third;
                }
            }
            let best = (low + high) / 2.0;
            let enough = room(best).min(room(best) / 2.0);
            let (mut least, mut drift) = (0.0, best);
            if room(0.0) >= enough {
                drift = 0.0;
            } else {
                for _ in 0..60 {
                    let middle = (least + drift) / 2.0;
                    if room(middle) >= enough { drift = middle } else { least = middle }
                }
            }
            (drift, (ceiling(drift) + floor(drift)) / 2.0)
        }
        (false, true) => (0.0, ceiling(0.0).min(0.0)),
        (true, false) => (0.0, floor(0.0).max(0.0)),
        (true, true) => (0.0, 0.0),
    };
    Line { since, offset, drift, width: ceiling(drift) - floor(drift) }
}

/// The lower convex hull of points in the order of their first coordinate.
fn hull(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut hull: Vec<(f64, f64)> = Vec::new();
    for (x, y) in points {
        while let [.., (x0, y0), (x1, y1)] = hull[..] {
            if (x1 - x0) * (y - y0) > (y1 - y0) * (x - x0) {
                break;
            }
            hull.pop();
        }
        hull.push((x, y));
    }
    hull
}

#[cfg(test)]
mod tests {
    use rounds::random::Random;

    use super::*;

    const US: f64 = 1e3;
    const SECOND: i64 = 1_000_000_000;

    /// Messages between all hosts, each `delay` to twice `delay` ns on its way; `ahead` gives how much a host's clock is
    /// ahead at a true instant.
    fn recorded(hosts: usize, number: u64, delay: f64, ahead: impl Fn(usize, i64) -> f64) -> Orders {
        let mut orders: Orders = vec![vec![Vec::new(); hosts]; hosts];
        let mut random = Random::stream(7, number);
        for nth in 0..number {
            let begun = (nth as i64) * SECOND / 100;
            let from = (random.unit() * hosts as f64) as usize % hosts;
            let to = (from + 1 + (random.unit() * (hosts - 1) as f64) as usize) % hosts;
            if from != to {
                let left = begun + (delay * (1.0 + random.unit())) as i64;
                let local = |host, at: i64| at + ahead(host, at).round() as i64;
                orders[from][to].push((local(from, begun), local(to, left)));
            }
        }
        orders
    }

    #[test]
    fn planted_offsets_and_drifts_are_found_within_the_band() {
        // Offsets of seconds: CLOCK_REALTIME of a host that nobody set.
        let ahead = |host: usize, at: i64| [0.0, 3e9, -7e6][host] + [0.0, 4e-5, -2e-5][host] * at as f64;
        for hosts in [2, 3] {
            let orders = recorded(hosts, 3_000, 20.0 * US, ahead);
            let clocks = Clocks::aligned(orders.clone());
            assert_eq!(clocks.backwards(&orders), 0, "{:?}", clocks.notes);
            for at in (0..30).map(|second| second * SECOND) {
                for host in 1..hosts {
                    let local = at + ahead(host, at).round() as i64;
                    let wrong = (clocks.at(host as u32, local) - at) as f64;
                    assert!(wrong.abs() <= 2.0 * 20.0 * US * (hosts - 1) as f64, "{host} {at}: {wrong}");
                }
            }
            assert!(clocks.notes[0].contains("to within"), "{:?}", clocks.notes);
        }
    }

    #[test]
    fn a_clock_that_jumps_is_followed_in_pieces() {
        let ahead = |host: usize, at: i64| if host == 1 && at > 12 * SECOND { 5e6 } else { 0.0 };
        let orders = recorded(2, 3_000, 20.0 * US, ahead);
        let clocks = Clocks::aligned(orders.clone());
        assert!(clocks.notes[0].contains("2 pieces"), "{:?}", clocks.notes);
        assert_eq!(clocks.backwards(&orders), 0, "{:?}", clocks.notes);
        let wrong = |at: i64| clocks.at(1, at + ahead(1, at) as i64) - at;
        assert!(wrong(11 * SECOND).abs() <= 40_000 && wrong(20 * SECOND).abs() <= 40_000);
    }

    #[test]
    fn what_no_clocks_explain_is_told() {
        // Each of two hosts comes before the other at the same moment, repeatedly.
        let mut orders: Orders = vec![vec![Vec::new(); 2]; 2];
        for nth in 0..100 {
            let at = nth * SECOND;
            orders[0][1].push((at, at - 1_000));
            orders[1][0].push((at, at - 1_000));
        }
        let clocks = Clocks::aligned(orders.clone());
        assert!(clocks.backwards(&orders) > 0 && clocks.notes.iter().any(|note| note.contains("by no steady clocks")));
    }

    #[test]
    fn messages_in_one_direction_move_a_clock_no_more_than_they_must() {
        let mut orders: Orders = vec![vec![Vec::new(); 2]; 2];
        orders[0][1] = vec![(1_000, 400), (2_000, 1_900)];
        let clocks = Clocks::aligned(orders.clone());
        assert_eq!((clocks.backwards(&orders), clocks.at(1, 400)), (0, 1_000));
        assert!(clocks.notes[0].contains("in one direction alone"), "{:?}", clocks.notes);
        orders[0][1] = vec![(1_000, 4_000)];
        assert_eq!(Clocks::aligned(orders).at(1, 400), 400);
    }

    #[test]
    fn pairs_that_contradict_a_tree_shift_all_hosts() {
        // Bands of 0 and 1 and of 0 and 2 have their middles at 0; 1 and 2 demand that 1 is ahead by 8 more.
        let mut orders: Orders = vec![vec![Vec::new(); 3]; 3];
        for host in [1, 2] {
            orders[0][host] = vec![(1_000, 1_010)];
            orders[host][0] = vec![(1_000, 1_010)];
        }
        orders[2][1] = vec![(1_000, 1_100)];
        orders[1][2] = vec![(1_000, 992)];
        let clocks = Clocks::aligned(orders.clone());
        assert_eq!(clocks.backwards(&orders), 0, "{clocks:?}");
        assert!(clocks.notes.iter().any(|note| note.contains("contradicted each other")), "{:?}", clocks.notes);
    }
}
