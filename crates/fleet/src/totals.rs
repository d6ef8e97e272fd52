//! What all jobs used, and what each lever would have saved of it.
//!
//! A program's gain is known as an interval, and wrong in one way for all of its jobs; another program's jobs say nothing of it. So
//! programs are drawn with replacement, not jobs (a clustered bootstrap; Cameron, Gelbach and Miller 2008, section 3). Least and most
//! gains may also be wrong in one way for all programs, as where memory limits all of them: the interval begins with what the least
//! gains of the drawn programs sum to, and ends with what the most do (of a region; Imbens and Manski 2004).

use std::collections::BTreeMap;

use machine::{Result, named};
use rounds::random::Random;
use rusqlite::params;
use serde::Serialize;

use crate::store::{ALL_JOBS, Store, kind_of_lever, kind_of_unjudged, month_name};
use crate::summary::{Lever, Unjudged};

const DRAWS: usize = 1_000;
const SEED: u64 = 0x000F_1EE7;
/// Share of the draws on either side of the interval.
const TAIL: f64 = 0.025;
/// Programs that are named.
const NAMED: usize = 12;

named! {
    /// What sums are grouped by.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum By("grouping") {
        Month = "month",
        Partition = "partition",
        Program = "program",
        Group = "group",
    }
}

/// Jobs that are asked about: all, but for what is named.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Asked {
    pub program: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Totals {
    /// What the jobs are, where they are no jobs of this centre.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<&'static str>,
    pub asked: Asked,
    pub jobs: u64,
    pub core_hours: f64,
    /// Of core hours, inside MPI.
    pub mpi: f64,
    /// First and last month.
    pub months: Option<(String, String)>,
    pub savings: Vec<Saving>,
    pub unjudged: Vec<Lost>,
    /// Programs by what the best lever would save of them, most first.
    pub programs: Vec<Part>,
    pub groups: Vec<Part>,
    pub by: By,
}

/// What a lever would have saved, as shares of the core hours of all jobs.
#[derive(Debug, Clone, Serialize)]
pub struct Saving {
    pub lever: Lever,
    /// Interval of 95 %, from the least gains to the most.
    pub share: (f64, f64),
    /// Core hours of jobs for which it is known.
    pub judged: f64,
    /// The programs that make up nine tenths of its middle, at most.
    pub nine_tenths: usize,
}

#[derive(Debug, Clone, Serialize)]
pub struct Lost {
    pub why: Unjudged,
    pub jobs: u64,
    pub core_hours: f64,
}

/// Jobs that have a word in common.
#[derive(Debug, Clone, Serialize)]
pub struct Part {
    pub name: String,
    pub jobs: u64,
    pub core_hours: f64,
    pub mpi: f64,
    /// The lever that would save most of it, and its shares of the part.
    pub best: Option<(Lever, (f64, f64))>,
}

/// Sums of one program.
#[derive(Debug, Clone, Default)]
struct Cluster {
    jobs: u64,
    seconds: f64,
    mpi: f64,
    /// Core seconds that are judged, and least and most of them that would be saved.
    levers: [(f64, f64, f64); Lever::ALL.len()],
}

impl Cluster {
    fn add(&mut self, kind: i64, jobs: i64, seconds: f64, low: f64, high: f64) {
        if kind == ALL_JOBS {
            self.jobs += jobs as u64;
            self.seconds += seconds;
            self.mpi += low;
        } else if let Some(lever) = Lever::ALL.into_iter().find(|lever| kind_of_lever(*lever) == kind) {
            let sum = &mut self.levers[lever as usize];
            *sum = (sum.0 + seconds, sum.1 + low, sum.2 + high);
        }
    }

    fn best(&self) -> Option<(Lever, (f64, f64))> {
        let share = |lever: Lever| {
            let (judged, low, high) = self.levers[lever as usize];
            (judged > 0.0).then(|| (lever, (low / self.seconds, high / self.seconds)))
        };
        let middle = |gain: &(Lever, (f64, f64))| gain.1.0 + gain.1.1;
        // A clock is no place.
        Lever::ALL
            .into_iter()
            .filter(|lever| *lever != Lever::Clock)
            .filter_map(share)
            .max_by(|a, b| middle(a).total_cmp(&middle(b)))
    }

    fn part(&self, name: String) -> Part {
        let mpi = if self.seconds > 0.0 { self.mpi / self.seconds } else { 0.0 };
        Part { name, jobs: self.jobs, core_hours: self.seconds / 3600.0, mpi, best: self.best() }
    }
}

/// Adds up the jobs of a store.
///
/// # Errors
/// The store cannot be read.
pub fn totals(store: &Store, asked: Asked, by: By) -> Result<Totals> {
    let mut programs: BTreeMap<String, Cluster> = BTreeMap::new();
    let mut groups: BTreeMap<String, Cluster> = BTreeMap::new();
    let mut unjudged: BTreeMap<Unjudged, (u64, f64)> = BTreeMap::new();
    let mut months: Option<(i64, i64)> = None;
    store.try_to(|c| {
        let mut rows = c.prepare(
            "SELECT p.name, s.month, w.text, g.text, s.kind, s.jobs, s.core_seconds, s.low, s.high FROM sum s
             JOIN program p ON p.id = s.program JOIN word w ON w.id = s.partition JOIN word g ON g.id = s.grp
             WHERE ?1 IS NULL OR p.name = ?1",
        )?;
        let mut rows = rows.query(params![asked.program])?;
        while let Some(row) = rows.next()? {
            let (kind, jobs, seconds): (i64, i64, f64) = (row.get(4)?, row.get(5)?, row.get(6)?);
            let (low, high): (f64, f64) = (row.get(7)?, row.get(8)?);
            let month: i64 = row.get(1)?;
            months = Some(months.map_or((month, month), |(first, last)| (first.min(month), last.max(month))));
            if let Some(why) = Unjudged::ALL.into_iter().find(|why| kind_of_unjudged(*why) == kind) {
                let lost = unjudged.entry(why).or_default();
                *lost = (lost.0 + jobs as u64, lost.1 + seconds);
                continue;
            }
            let name: String = row.get(0)?;
            let group = match by {
                By::Month => month_name(month),
                By::Partition => row.get(2)?,
                By::Program => name.clone(),
                By::Group => row.get(3)?,
            };
            programs.entry(name).or_default().add(kind, jobs, seconds, low, high);
            groups.entry(group).or_default().add(kind, jobs, seconds, low, high);
        }
        Ok(())
    })?;
    let clusters: Vec<&Cluster> = programs.values().collect();
    let seconds: f64 = clusters.iter().map(|cluster| cluster.seconds).sum();
    let savings = Lever::ALL.into_iter().filter_map(|lever| saving(lever, &clusters)).collect();
    let mut parts: Vec<Part> = programs.iter().map(|(name, cluster)| cluster.part(name.clone())).collect();
    parts.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    parts.truncate(NAMED);
    Ok(Totals {
        label: store.label(),
        asked,
        jobs: clusters.iter().map(|cluster| cluster.jobs).sum(),
        core_hours: seconds / 3600.0,
        mpi: if seconds > 0.0 { clusters.iter().map(|cluster| cluster.mpi).sum::<f64>() / seconds } else { 0.0 },
        months: months.map(|(first, last)| (month_name(first), month_name(last))),
        savings,
        unjudged: unjudged
            .into_iter()
            .map(|(why, (jobs, time))| Lost { why, jobs, core_hours: time / 3600.0 })
            .collect(),
        programs: parts,
        groups: groups.iter().map(|(name, cluster)| cluster.part(name.clone())).collect(),
        by,
    })
}

/// Core hours in the middle of what the best lever would save.
fn weight(part: &Part) -> f64 {
    part.best.map_or(0.0, |(_, (low, high))| part.core_hours * (low + high) / 2.0)
}

fn saving(lever: Lever, clusters: &[&Cluster]) -> Option<Saving> {
    let of = |cluster: &Cluster| cluster.levers[lever as usize];
    let judged: f64 = clusters.iter().map(|cluster| of(cluster).0).sum();
    let seconds: f64 = clusters.iter().map(|cluster| cluster.seconds).sum();
    if judged <= 0.0 {
        return None;
    }
    let mut random = Random::new(SEED);
    let mut ends = [const { Vec::new() }; 2];
    for _ in 0..DRAWS {
        let (mut least, mut most, mut time) = (0.0, 0.0, 0.0);
        for _ in clusters {
            let cluster = clusters[random.below(clusters.len())];
            let (_, low, high) = of(cluster);
            (least, most, time) = (least + low, most + high, time + cluster.seconds);
        }
        let share = |saved: f64| if time > 0.0 { saved / time } else { 0.0 };
        ends.iter_mut().zip([least, most]).for_each(|(ends, saved)| ends.push(share(saved)));
    }
    ends.iter_mut().for_each(|ends| ends.sort_by(f64::total_cmp));
    let at = |end: usize, part: f64| ends[end][((DRAWS - 1) as f64 * part).round() as usize];
    let mut middles: Vec<f64> =
        clusters.iter().map(|cluster| (of(cluster).1 + of(cluster).2) / 2.0).filter(|m| *m > 0.0).collect();
    middles.sort_by(|a, b| b.total_cmp(a));
    let most: f64 = middles.iter().sum();
    let mut so_far = 0.0;
    let nine_tenths = middles
        .iter()
        .take_while(|middle| {
            let more = so_far < 0.9 * most;
            so_far += **middle;
            more
        })
        .count();
    debug_assert!(seconds >= judged * 0.999);
    Some(Saving { lever, share: (at(0, TAIL), at(1, 1.0 - TAIL)), judged: judged / 3600.0, nine_tenths })
}
