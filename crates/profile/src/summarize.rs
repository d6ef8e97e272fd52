//! The summary of a profile: figures from the files of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use machine::{Costs, Reading};
use record::functions::{SHUTDOWN, STARTUP, counted, function};
use record::layout::{Peer, words};

use crate::by_function::{functions, sizes};
use crate::injection::Injection;
use crate::measured;
use crate::profile::Profile;
use crate::sites::{name, sites};
use crate::split::{Model, Parts};
use crate::summary::{
    ClassSummary, HostSummary, Inside, JobSummary, Matrix, Outside, PhaseSummary, RankSummary, SCHEMA, Split, State,
    Summary, Totals, ratio,
};
use crate::tables::Tables;
use crate::verdict::{Evidence, Verdict};

impl Summary {
    /// The summary with a verdict by modelled costs.
    pub fn of(profile: &Profile) -> Summary {
        Summary::judged(profile, &Costs::modelled())
    }

    /// The summary with a verdict by `costs`, those of messages on the machine of the run.
    pub fn judged(profile: &Profile, costs: &Costs) -> Summary {
        let model = Model::of(&profile.ranks);
        let ranks = ranks(profile, &model);
        let totals = totals(profile, &ranks);
        let started = Duration::from_nanos(profile.origin());
        let mut summary = Summary {
            schema: SCHEMA,
            job: job(profile, &ranks),
            functions: functions(&profile.ranks, &model, &totals),
            sizes: sizes(&profile.ranks),
            matrices: matrices(profile),
            sites: sites(&profile.ranks, totals.mpi, started),
            cores: Vec::new(),
            capability: Vec::new(),
            power: Vec::new(),
            phases: phases(profile),
            series: None,
            timeline: None,
            critical: None,
            verdict: None,
            totals,
            ranks,
        };
        if let Some(timeline) = &profile.timeline {
            measured::put(timeline, &mut summary);
        }
        crate::cores::fill(profile, &mut summary);
        // Each reader of an unreadable file adds the same note.
        let mut said = BTreeSet::new();
        summary.job.notes.retain(|note| said.insert(note.clone()));
        // Samples separate computing from time blocked or off the core, which `totals` counts as computing.
        summary.totals.balance = balance(&summary.ranks, RankSummary::computing);
        summary.totals.split = Split::sum(summary.ranks.iter().map(|rank| &rank.split));
        summary.verdict = Some(Verdict::of(&Evidence::of(&summary), costs));
        summary
    }
}

impl Totals {
    /// Totals from the ranks' tables alone, without timeline and samples.
    pub fn of(profile: &Profile) -> Totals {
        totals(profile, &ranks(profile, &Model::of(&profile.ranks)))
    }
}

fn ranks(profile: &Profile, model: &Model) -> Vec<RankSummary> {
    let over = profile.over();
    profile.ranks.iter().map(|rank| rank_summary(rank, model, over)).collect()
}

fn job(profile: &Profile, ranks: &[RankSummary]) -> JobSummary {
    let job = &profile.job;
    let expected: usize = profile.worlds.iter().map(|world| world.size as usize).sum();
    let mut hosts: Vec<HostSummary> = Vec::new();
    for rank in ranks {
        match hosts.iter_mut().find(|host| host.name == rank.host) {
            Some(host) => host.ranks += 1,
            None => {
                let cores = Reading::absent("nothing was sampled on this host");
                hosts.push(HostSummary { name: rank.host.clone(), ranks: 1, cores });
            }
        }
    }
    let mut libraries: Vec<String> = profile.ranks.iter().map(|rank| words(&rank.header.library)).collect();
    libraries.sort();
    libraries.dedup();
    let dropped =
        |rank: &Tables| rank.header.dropped != Default::default() || rank.header.failed != 0 || rank.doubt.is_some();
    JobSummary {
        command: job.command.clone(),
        started: profile.origin(),
        seconds: job.ended.filter(|_| job.started > 0).map(|ended| ended.saturating_sub(job.started) as f64 / 1e9),
        exit_code: job.exit_code,
        signal: job.signal,
        ranks: ranks.len(),
        expected,
        worlds: profile.worlds.len(),
        hosts,
        libraries,
        complete: ranks.len() == expected
            && ranks.iter().all(|rank| rank.state == State::Finalized)
            && !profile.ranks.iter().any(dropped),
        perturbed: Injection::of(profile).map(|injection| injection.warning()),
        notes: profile.notes.clone(),
    }
}

fn totals(profile: &Profile, ranks: &[RankSummary]) -> Totals {
    let sum = |value: fn(&RankSummary) -> f64| ranks.iter().map(value).sum::<f64>();
    let count = |value: fn(&RankSummary) -> u64| ranks.iter().map(value).fold(0, u64::saturating_add);
    let seconds = ranks.iter().map(|rank| rank.seconds).fold(0.0, f64::max);
    let (thread_seconds, mpi) = (sum(|rank| rank.thread_seconds), sum(|rank| rank.mpi));
    let calls = count(|rank| rank.calls);
    let recording = profile.ranks.iter().map(|rank| rank.seconds(rank.header.cost)).fold(0.0, f64::max);
    Totals {
        seconds,
        thread_seconds,
        calls,
        calls_per_second: ratio(calls as f64, seconds),
        mpi,
        mpi_share: ratio(mpi, thread_seconds),
        compute: sum(|rank| rank.compute),
        balance: balance(ranks, |rank| rank.compute),
        split: Split::sum(ranks.iter().map(|rank| &rank.split)),
        messages: count(|rank| rank.messages),
        bytes: count(|rank| rank.bytes),
        recording: match recording {
            0.0 => Reading::absent("no rank measured what recording a call costs"),
            seconds => Reading::Measured(seconds),
        },
    }
}

/// Mean computing time over the greatest.
fn balance(ranks: &[RankSummary], computing: fn(&RankSummary) -> f64) -> f64 {
    let all = || ranks.iter().map(computing);
    ratio(all().sum::<f64>(), ranks.len() as f64 * all().fold(0.0, f64::max))
}

fn rank_summary(rank: &Tables, model: &Model, over: bool) -> RankSummary {
    let (from, to) = rank.run();
    let header = &rank.header;
    let mut classes: BTreeMap<String, (ClassSummary, Parts)> = BTreeMap::new();
    let (mut recorded, mut outside) = (0u64, 0u64);
    let (mut calls, mut calls_outside) = (0u64, 0u64);
    let mut parts = Parts::default();
    for row in &rank.calls {
        if !counted(row.function) {
            outside = outside.saturating_add(row.cell.ticks);
            calls_outside = calls_outside.saturating_add(row.cell.calls);
            continue;
        }
        recorded = recorded.saturating_add(row.cell.ticks);
        calls = calls.saturating_add(row.cell.calls);
        let divided = model.divide(rank.tick, row);
        parts.add(divided);
        let class = function(row.function).map_or("unknown", |function| function.class.name());
        let (sum, class_parts) = classes.entry(class.into()).or_default();
        sum.calls = sum.calls.saturating_add(row.cell.calls);
        sum.seconds += rank.seconds(row.cell.ticks);
        class_parts.add(divided);
    }

    // A thread also counts calls that found no row, and has the call that it is in.
    let threads = || rank.threads.iter().map(|(_, thread)| thread);
    let all_ticks = threads().flat_map(|thread| thread.ticks).fold(0, u64::saturating_add);
    let all_calls = threads().map(|thread| thread.calls).fold(0, u64::saturating_add);
    let inside = threads().filter_map(|thread| {
        let id = u16::try_from(thread.inside.checked_sub(1)?).ok().map(record::functions::FunctionId)?;
        // MPI_Finalize is not part of the run.
        (header.finalized == 0).then_some((id, to.saturating_sub(thread.since.max(from))))
    });
    let inside: Vec<_> = inside.collect();
    let unrecorded = all_ticks.saturating_sub(outside).saturating_sub(recorded);
    let unfinished = inside.iter().map(|(_, ticks)| *ticks).fold(0, u64::saturating_add);
    parts.undivided += rank.seconds(unrecorded.saturating_add(unfinished));
    let mpi = parts.sum();

    let lives = threads().map(|thread| {
        let end = if thread.ended == 0 { to } else { thread.ended.clamp(from, to) };
        end - from
    });
    // Sums may exceed the run where a thread's place is reused, and while the tables are being written.
    let thread_seconds = lives.map(|ticks| rank.seconds(ticks)).sum::<f64>().max(rank.seconds(to - from)).max(mpi);
    let spent = |names: &[&str]| {
        let of = |row: &&crate::tables::Calls| function(row.function).is_some_and(|f| names.contains(&f.name));
        rank.calls.iter().filter(of).map(|row| rank.seconds(row.cell.ticks)).sum()
    };
    let longest = inside.iter().max_by_key(|(_, ticks)| *ticks);
    RankSummary {
        world: rank.world,
        rank: header.rank,
        host: rank.host(),
        pid: header.pid,
        program: words(&header.program),
        state: rank.state(over),
        cores: Reading::absent("nothing was sampled on its host"),
        threads: header.threads.max(rank.threads.len() as u32),
        seconds: rank.seconds(to - from),
        thread_seconds,
        startup: spent(&STARTUP),
        shutdown: spent(&SHUTDOWN),
        calls: calls.max(all_calls.saturating_sub(calls_outside)),
        mpi,
        compute: thread_seconds - mpi,
        split: parts.split(),
        messages: threads().map(|thread| thread.messages).fold(0, u64::saturating_add),
        bytes: threads().map(|thread| thread.bytes).fold(0, u64::saturating_add),
        softirq: Reading::absent("nothing was sampled on its host"),
        involuntary: Reading::absent("nothing was sampled on its host"),
        stopped: Reading::absent("nothing was sampled on its host"),
        // Other threads' is not known.
        run_delay: match header.threads {
            1 => cpu(rank, header.cpu.runnable).map(|delay| delay.min(thread_seconds)),
            _ => Reading::absent("nothing was sampled on its host"),
        },
        stolen: Reading::absent("nothing was sampled on its host"),
        yielded: Reading::absent("nothing was sampled on its host"),
        cpu_of_thread: cpu(rank, header.cpu.thread),
        cpu: cpu(rank, header.cpu.process),
        compute_off_core: Reading::absent("nothing was sampled on its host"),
        outside: Outside::absent("nothing was sampled on its host"),
        classes: classes
            .into_iter()
            .map(|(class, (sum, parts))| (class, ClassSummary { split: parts.split(), ..sum }))
            .collect(),
        caused: Reading::absent("who was waited for is seen in a timeline only: profile with --trace"),
        away: Reading::absent("whether partners were outside of MPI is seen in a timeline only: profile with --trace"),
        waits_for: Vec::new(),
        inside: longest.map(|(id, ticks)| Inside { function: name(*id), seconds: rank.seconds(*ticks) }),
    }
}

fn cpu(rank: &Tables, nanoseconds: u64) -> Reading<f64> {
    let header = &rank.header;
    let is_whole = header.failed == 0 && [header.finalized, header.aborted, header.ended].iter().any(|end| *end != 0);
    match nanoseconds {
        0 => Reading::absent("the rank did not note it"),
        _ if !is_whole => Reading::absent("a rank notes it when it ends"),
        _ => Reading::Measured(nanoseconds as f64 * 1e-9),
    }
}

fn matrices(profile: &Profile) -> Vec<Matrix> {
    let matrix = |(place, world): (usize, &crate::profile::World)| {
        let mut sums: BTreeMap<(u64, u64), [u64; 4]> = BTreeMap::new();
        for rank in profile.ranks.iter().filter(|rank| rank.world == place) {
            for (to, peer) in rank.peers.iter().enumerate().filter(|(_, peer)| **peer != Peer::default()) {
                let sum = sums.entry((rank.header.rank.into(), to as u64)).or_default();
                let more = [peer.messages, peer.bytes, peer.operations, peer.operation_bytes];
                *sum = std::array::from_fn(|i| sum[i].saturating_add(more[i]));
            }
        }
        let cells = sums.into_iter().map(|((from, to), [a, b, c, d])| [from, to, a, b, c, d]).collect();
        Matrix { world: world.name.clone(), ranks: world.size, cells }
    };
    profile.worlds.iter().enumerate().map(matrix).collect()
}

/// Phases of the first rank of each world.
fn phases(profile: &Profile) -> Vec<PhaseSummary> {
    let started = profile.origin() as f64;
    let since = |rank: &Tables, ticks| (rank.realtime(ticks) - started) / 1e9;
    let mut phases = Vec::new();
    for world in 0..profile.worlds.len() {
        let Some(rank) = profile.ranks.iter().find(|rank| rank.world == world) else { continue };
        let ends = rank.phases.iter().skip(1).map(|next| next.ticks).chain([rank.run().1]);
        for (phase, end) in rank.phases.iter().zip(ends) {
            let (from, to) = (since(rank, phase.ticks), since(rank, end.max(phase.ticks)));
            let (cores, ranks) = (Vec::new(), Vec::new());
            phases.push(PhaseSummary { world, level: phase.level, from, to, cores, ranks });
        }
    }
    phases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_said_once() {
        let folder = tempfile::tempdir().unwrap();
        let notes = ["left out: a", "left out: b", "left out: a"].map(str::to_owned).to_vec();
        let profile = Profile { folder: folder.path().to_owned(), notes, ..Profile::default() };
        assert_eq!(Summary::of(&profile).job.notes, ["left out: a", "left out: b"]);
    }
}
