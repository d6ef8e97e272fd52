//! Losses by a program's own shape, wherever ranks and protocol work are placed: too many calls, waits that follow
//! from its order, transfers without overlapping computation.

use super::evidence::{Evidence, SizeEvidence};
use super::hindrance::{Cause, Hindrance, WORTH_SAYING};
use super::{NOISE, amount, share};
use machine::count::grouped;
use machine::figure;

/// Bytes below which a message's cost hardly depends on its size.
const TINY: u64 = 1 << 10;
/// Least messages a second of each thread that count as many.
const MANY: f64 = 1000.0;
/// Longest cost of a message as such, in seconds; a longer time has another cause.
const OF_A_MESSAGE: f64 = 50e-6;

/// Bytes from which a transfer is long enough to overlap with computation.
const LARGE: u64 = 64 << 10;

/// Calls that take this many times as long as their bytes need are waits.
const FAR_LONGER: f64 = 20.0;

pub fn find(evidence: &Evidence) -> Vec<Hindrance> {
    [tiny(evidence), serialised(evidence), without_overlap(evidence)].into_iter().flatten().collect()
}

fn of_program(cause: Cause, cost: f64, words: String, next: &str) -> Hindrance {
    let (rank, host, core) = (None, String::new(), None);
    Hindrance { cause, rank, host, core, share: cost, cost, words, next: next.into() }
}

/// Sums over sizes: calls, bytes, and the share of the run that the calls take when nobody is late.
fn sums<'a>(sizes: impl Iterator<Item = &'a SizeEvidence>) -> (u64, u64, f64) {
    sizes.fold((0, 0, 0.0), |(calls, bytes, work), size| {
        (calls.saturating_add(size.calls), bytes.saturating_add(size.bytes), work + size.work)
    })
}

fn tiny(evidence: &Evidence) -> Option<Hindrance> {
    const SENDING: [&str; 3] = ["send", "post", "exchange"];
    const CARRYING: [&str; 5] = ["send", "post", "exchange", "receive", "completion"];
    let of = |classes: &'static [&'static str]| {
        // A test in which nothing completed has no bytes.
        let is = move |size: &&SizeEvidence| {
            let class = size.class.as_str();
            classes.contains(&class) && size.floor < TINY && (size.floor > 0 || class != "completion")
        };
        sums(evidence.sizes.iter().filter(is))
    };
    let ((messages, bytes, _), (_, _, cost)) = (of(&SENDING), of(&CARRYING));
    let each = cost * evidence.spent / messages.max(1) as f64;
    if cost < WORTH_SAYING || (messages as f64) < MANY * evidence.spent || each > OF_A_MESSAGE {
        return None;
    }
    let words = format!(
        "{} messages of less than 1 KiB, {} bytes each in the mean, take {} of the run, {} each{}",
        grouped(messages),
        amount(bytes as f64 / messages as f64),
        share(cost),
        figure::nanoseconds(each * 1e9),
        evidence.most_in(&CARRYING)
    );
    let next = "send together what goes to the same rank: such messages cost by their number, not by their bytes, wherever they \
                are processed";
    Some(of_program(Cause::TinyMessages, cost, words, next))
}

/// One after the other: all ranks together compute hardly more than one would, each of them a part, and wait for messages
/// meanwhile.
fn serialised(evidence: &Evidence) -> Option<Hindrance> {
    const WAITING: [&str; 5] = ["receive", "completion", "exchange", "probe", "send"];
    let (run, ranks) = (evidence.runtime(), evidence.ranks.len());
    let computing: f64 = evidence.ranks.iter().map(|rank| rank.compute / run).sum();
    let most = evidence.ranks.iter().map(|rank| rank.compute / run).fold(0.0, f64::max);
    let within = evidence.share_in(&WAITING);
    let site = evidence.first_of(&WAITING)?;
    // A nanosecond a byte and a microsecond a message.
    let needed = 1e-6 + 1e-9 * site.bytes as f64 / site.calls.max(1) as f64;
    let is_turn = ranks > 2 && (0.5..=1.3).contains(&computing) && most <= 0.6 * computing;
    if !is_turn || within < 0.4 || site.mean < FAR_LONGER * needed {
        return None;
    }
    let words = format!(
        "ranks work one after the other: together they compute for {} of the time of one, each for {} at most, and spend {} of \
         the run in calls that wait for messages{}",
        share(computing),
        share(most),
        share(within),
        evidence.most_in(&WAITING)
    );
    let next = "cut the work that is handed on into smaller pieces, so that a rank goes on with the next while the one after it \
                has the first, or give ranks work that does not depend on each other's";
    Some(of_program(Cause::Serialised, within, words, next))
}

fn without_overlap(evidence: &Evidence) -> Option<Hindrance> {
    const CARRYING: [&str; 4] = ["send", "receive", "exchange", "completion"];
    let large = |size: &&SizeEvidence| CARRYING.contains(&size.class.as_str()) && size.floor >= LARGE;
    let (calls, bytes, work) = sums(evidence.sizes.iter().filter(large));
    let away = if calls > 0 { evidence.mean(|rank| rank.away.least) } else { 0.0 };
    let taken = work.max(away);
    // Overlap hides no more transfer than there is computation.
    let cost = taken.min(evidence.mean(|rank| rank.compute));
    if cost < WORTH_SAYING {
        return None;
    }
    let absent = match away > NOISE {
        true => format!(", {} of it waiting for ranks that had begun their half and computed", share(away)),
        false => String::new(),
    };
    let words = format!(
        "calls that move 64 KiB and more, {} KiB each in the mean, take {} of the run, and nothing is computed \
         meanwhile{absent}{}",
        amount(bytes as f64 / calls as f64 / 1024.0),
        share(taken),
        evidence.most_in(&CARRYING)
    );
    let next = "begin them by MPI_Isend and MPI_Irecv before the computing that does not need them, and complete them after it; that \
                they move meanwhile takes calls of MPI_Test, or a core or device that moves them (plimsoll mpirun --placement)";
    Some(of_program(Cause::NoOverlap, cost, words, next))
}
