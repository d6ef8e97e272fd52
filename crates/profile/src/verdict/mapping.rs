//! Would the program gain if its ranks ran on other cores? Paper 002 (6.1): a rank that computes much on the core that does
//! the protocol's work delays all others; a rank that waits anyway can take that core.

use machine::{Reading, count};

use super::{Answer, Choice, Evidence, Judgement, NOISE, RankEvidence, judged, share};

pub fn judge(evidence: &Evidence) -> Judgement {
    let judgement = |answer, gain, why, next| Judgement { choice: Choice::Mapping, answer, gain, why, next };
    let run = evidence.runtime();
    let cannot_tell = |why: String, next: &str| match most(evidence).map(|most| (judged(0.0, most), most)) {
        Some(((Answer::DoesNot, gain), most)) => {
            let known = "ranks lacked a core, and the network worked on theirs, for";
            judgement(Answer::DoesNot, gain, vec![format!("{known} {} of the run at most", share(most))], None)
        }
        // A bound that is no answer is no gain either: most of it may be yields of ranks that wait.
        _ => judgement(Answer::CannotTell, None, vec![why], Some(next.into())),
    };
    if evidence.ranks.len() < 2 && evidence.missing > 0 {
        let why = format!("there are no tables of {}", count::of(evidence.missing as u64, "rank"));
        return cannot_tell(why, "copy the tables of all ranks from their hosts");
    }
    if run <= 0.0 || evidence.ranks.len() < 2 {
        let why = vec!["there are no two ranks whose cores could be exchanged".into()];
        return judgement(Answer::DoesNot, Some((0.0, 0.0)), why, None);
    }
    if let Some(reason) = evidence.bounds(|rank| &rank.protocol).unknown {
        let why = format!("which core does the network's work is not known: {reason}");
        return cannot_tell(why, "profile as root and with the cores sampled, where the kernel has tracepoints");
    }
    let most = evidence.ranks.iter().map(|rank| protocol(rank) / run).fold(0.0, f64::max);
    let wait = evidence.bounds(|rank| &rank.wait);
    if let Some(reason) = wait.unknown().filter(|_| most >= NOISE) {
        let why = format!(
            "a rank shares its core with network work of {} of the run, but who waits is not known: {reason}",
            share(most)
        );
        return cannot_tell(why, "plimsoll profile --trace measures it");
    }
    let best = (0..evidence.hosts.len())
        .filter_map(|host| exchange(evidence, host))
        .max_by(|a, b| a.gain.1.total_cmp(&b.gain.1));
    let Some(found) = best else {
        let unknown = (0..evidence.hosts.len()).find_map(|host| match evidence.has_free_core(host) {
            Reading::Absent { reason } | Reading::NotPermitted { reason, .. } => Some((host, reason)),
            _ => None,
        });
        if let Some((host, reason)) = unknown.filter(|_| most >= NOISE) {
            let why = format!("whether host {} has a core to spare is not known: {reason}", evidence.hosts[host].name);
            return cannot_tell(why, "profile with the cores sampled, and keep the tables of all ranks");
        }
        let why = vec![format!(
            "no rank shares its core with more network work than {} of the run, or none waits that could take it",
            share(most)
        )];
        return judgement(Answer::DoesNot, Some((0.0, 0.0)), why, None);
    };
    let Exchange { loaded, idle, gain } = found;
    let core = |rank: &RankEvidence| rank.core.map_or("an unknown core".into(), |core| format!("core {core}"));
    let host = &evidence.hosts[loaded.host].name;
    let mut why = vec![format!(
        "on host {host}, {} does network work for {} of the run; rank {} computes there {} of the run",
        core(loaded),
        share(protocol(loaded) / run),
        loaded.rank,
        share(loaded.compute / run)
    )];
    let target = match idle {
        Some(rank) => {
            why.push(format!("rank {} on {} waits {} of the run", rank.rank, core(rank), share(waiting(rank) / run)));
            format!("exchange the cores of ranks {} and {}", loaded.rank, rank.rank)
        }
        None => {
            why.push("a core of that host has no rank".into());
            format!("move rank {} to the free core, or the network's interrupts there", loaded.rank)
        }
    };
    if gain.0 <= NOISE && gain.1 >= NOISE {
        why.push(format!(
            "whether the others wait for rank {} is not certain: it waits {} itself",
            loaded.rank,
            share(waiting(loaded) / run)
        ));
    }
    let (answer, gain) = judged(gain.0, gain.1);
    judgement(answer, gain, why, Some(target))
}

/// The most that other cores save: what ranks lacked a core for, and what the kernel's network work may have taken of theirs.
fn most(evidence: &Evidence) -> Option<f64> {
    let lacked = |rank: &RankEvidence| rank.run_delay.value().copied().unwrap_or(rank.runtime);
    (evidence.missing == 0).then(|| evidence.mean(|rank| lacked(rank) + rank.protocol.most))
}

struct Exchange<'a> {
    loaded: &'a RankEvidence,
    /// The rank that would get the loaded core; `None` if a core is free.
    idle: Option<&'a RankEvidence>,
    gain: (f64, f64),
}

/// The most profitable exchange of cores on one host.
fn exchange(evidence: &Evidence, host: usize) -> Option<Exchange<'_>> {
    let run = evidence.runtime();
    let mine: Vec<_> = evidence.ranks_on(host).map(|(_, rank)| rank).collect();
    let loaded = *mine.iter().max_by(|a, b| protocol(a).total_cmp(&protocol(b)))?;
    let free = evidence.has_free_core(host).value() == Some(&true);
    let idle =
        mine.iter().copied().filter(|rank| rank.rank != loaded.rank).max_by(|a, b| waiting(a).total_cmp(&waiting(b)));
    let idle = if free { None } else { Some(idle?) };
    let removed = protocol(loaded) - idle.map_or(0.0, protocol);
    // The rank that takes the core must wait long enough to do its network work.
    if removed / run < NOISE || idle.is_some_and(|rank| waiting(rank) < removed || waiting(rank) <= waiting(loaded)) {
        return None;
    }
    let others = || evidence.ranks.iter().filter(|rank| rank.rank != loaded.rank);
    let mean_wait = others().map(waiting).sum::<f64>() / others().count().max(1) as f64;
    let least_wait = others().map(waiting).fold(f64::INFINITY, f64::min);
    let most = removed.min(mean_wait) / run;
    // The others surely wait for it only if nobody waits less.
    let least = if waiting(loaded) <= least_wait {
        (removed * loaded.compute / loaded.runtime.max(f64::MIN_POSITIVE)).min(least_wait - waiting(loaded)) / run
    } else {
        0.0
    };
    Some(Exchange { loaded, idle, gain: (least.min(most), most) })
}

// Lower bounds suffice: both quantities are nearly exact where they are used.

fn protocol(rank: &RankEvidence) -> f64 {
    rank.protocol.least
}

fn waiting(rank: &RankEvidence) -> f64 {
    rank.wait.least
}
