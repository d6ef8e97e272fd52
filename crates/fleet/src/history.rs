//! One program over time: what it used and waited, its versions, and the steps in its waiting.

use std::collections::BTreeMap;

use chart::clock::date;
use machine::{Nanoseconds, Result};
use rounds::random::Random;
use serde::Serialize;

use crate::steps::{self, Unit};
use crate::store::{Store, month, month_name};
use crate::totals::{Asked, By, Totals, totals};

pub(crate) const DAY: u64 = 86_400;
/// Days from which on a row is a month, else a week.
const MONTHS_FROM: u64 = 100;
const DRAWS: usize = 400;
const SEED: u64 = 0x0B15_7081;
const TAIL: f64 = 0.025;

#[derive(Debug, Clone, Serialize)]
pub struct History {
    /// As in [`Totals`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<&'static str>,
    pub program: String,
    pub sums: Totals,
    pub first_day: String,
    pub last_day: String,
    /// Of the time of all jobs of which it is known, waiting inside MPI.
    pub wait: Option<Share>,
    pub by: Period,
    pub rows: Vec<Row>,
    /// By their first days.
    pub versions: Vec<Version>,
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Period {
    Month,
    Week,
}

#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// A month, or the Monday of a week.
    pub name: String,
    pub jobs: u64,
    pub core_hours: f64,
    /// Of a job, in the mean.
    pub nodes: f64,
    /// Of the time of jobs of which it is known.
    pub mpi: Option<f64>,
    pub wait: Option<Share>,
}

/// A share, with its interval of 95 % where two users or days are behind it: what one user ran on one day is one draw.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Share {
    pub middle: f64,
    pub interval: Option<(f64, f64)>,
}

/// A file content of the program.
#[derive(Debug, Clone, Serialize)]
pub struct Version {
    /// `None` where the file could not be read.
    pub hash: Option<String>,
    pub first_day: String,
    pub last_day: String,
    pub jobs: u64,
    pub core_hours: f64,
}

#[derive(Debug, Clone, Serialize)]
pub struct Step {
    pub day: String,
    /// The row that the day is in.
    pub row: String,
    /// The version that came with it.
    pub version: Option<String>,
    #[serde(flatten)]
    pub of: steps::Step,
}

/// A job as far as the history needs it.
struct Ran {
    started: u64,
    core_seconds: f64,
    nodes: u32,
    mpi: Option<f64>,
    wait: Option<f64>,
    user: u32,
    hash: String,
}

/// Core seconds of which the waiting is known, and of them waiting, of a user's day.
type Waited = BTreeMap<(u64, u32), (f64, f64)>;

#[derive(Default)]
struct Sum {
    jobs: u64,
    core_seconds: f64,
    nodes: f64,
    /// Core seconds of which the share of MPI is known, and of them in MPI.
    mpi: (f64, f64),
    waited: Waited,
}

impl Sum {
    fn add(&mut self, job: &Ran) {
        self.jobs += 1;
        self.core_seconds += job.core_seconds;
        self.nodes += f64::from(job.nodes);
        if let Some(mpi) = job.mpi {
            self.mpi = (self.mpi.0 + job.core_seconds, self.mpi.1 + mpi * job.core_seconds);
        }
        if let Some(wait) = job.wait {
            let sum = self.waited.entry((job.started / DAY, job.user)).or_default();
            *sum = (sum.0 + job.core_seconds, sum.1 + wait * job.core_seconds);
        }
    }

    fn row(&self, name: String) -> Row {
        let (jobs, core_hours) = (self.jobs, self.core_seconds / 3600.0);
        let mpi = (self.mpi.0 > 0.0).then(|| self.mpi.1 / self.mpi.0);
        Row { name, jobs, core_hours, nodes: self.nodes / jobs as f64, mpi, wait: share(&self.waited) }
    }
}

/// The share of all units together. Units are drawn with replacement (a clustered bootstrap, as in [`crate::totals`]).
fn share(of: &Waited) -> Option<Share> {
    let units: Vec<(f64, f64)> = of.values().copied().filter(|(time, _)| *time > 0.0).collect();
    let ratio = |(time, waited): (f64, f64)| waited / time;
    let add = |sum: (f64, f64), unit: (f64, f64)| (sum.0 + unit.0, sum.1 + unit.1);
    let middle = units.iter().copied().reduce(add).map(ratio)?;
    let interval = (units.len() > 1).then(|| {
        let mut random = Random::new(SEED);
        let mut draw = || ratio((0..units.len()).map(|_| units[random.below(units.len())]).fold((0.0, 0.0), add));
        let mut shares: Vec<f64> = (0..DRAWS).map(|_| draw()).collect();
        shares.sort_by(f64::total_cmp);
        let at = |share: f64| shares[((DRAWS - 1) as f64 * share).round() as usize];
        (at(TAIL), at(1.0 - TAIL))
    });
    Some(Share { middle, interval })
}

/// `2026-11-21`
pub(crate) fn day_name(day: u64) -> String {
    date(Nanoseconds(day * DAY * 1_000_000_000)).chars().take(10).collect()
}

impl Period {
    fn name(self, day: u64) -> String {
        match self {
            Period::Month => month_name(month(day * DAY)),
            // 1970 began on a Thursday.
            Period::Week => day_name(day.saturating_sub((day + 3) % 7)),
        }
    }
}

/// The history of a program; `None` where the store has no job of it.
///
/// # Errors
/// The store cannot be read.
pub fn history(store: &Store, program: &str) -> Result<Option<History>> {
    let jobs = jobs(store, program)?;
    let (Some(first), Some(last)) = (jobs.first(), jobs.last()) else { return Ok(None) };
    let (first, last) = (first.started / DAY, last.started / DAY);
    let by = if last - first < MONTHS_FROM { Period::Week } else { Period::Month };
    let mut rows: BTreeMap<String, (u64, Sum)> = BTreeMap::new();
    let mut versions: BTreeMap<&str, (u64, u64, Sum)> = BTreeMap::new();
    let mut waited = Waited::new();
    for job in &jobs {
        let day = job.started / DAY;
        rows.entry(by.name(day)).or_insert_with(|| (day, Sum::default())).1.add(job);
        let version = versions.entry(&job.hash).or_insert_with(|| (day, day, Sum::default()));
        version.1 = day;
        version.2.add(job);
    }
    rows.values().for_each(|(_, sum)| waited.extend(&sum.waited));
    let units: Vec<Unit> = waited
        .iter()
        .filter(|(_, (time, _))| *time > 0.0)
        .map(|(&(day, _), &(time, wait))| Unit { day, wait: wait / time })
        .collect();
    let mut versions: Vec<_> = versions.into_iter().collect();
    versions.sort_by_key(|(_, (first, ..))| *first);
    let known = |hash: &str| (!hash.is_empty()).then(|| hash.to_owned());
    let firsts = rows.values().map(|(day, _)| *day).chain(versions.iter().map(|(_, (first, ..))| *first));
    let steps = steps::steps(&units, &firsts.collect::<Vec<_>>());
    let step = |of: steps::Step| {
        let new = versions.iter().find(|(_, (first, ..))| (of.last + 1..=of.day).contains(first));
        Step { day: day_name(of.day), row: by.name(of.day), version: new.and_then(|(hash, _)| known(hash)), of }
    };
    Ok(Some(History {
        label: store.label(),
        program: program.to_owned(),
        sums: totals(store, Asked { program: Some(program.to_owned()) }, By::Month)?,
        first_day: day_name(first),
        last_day: day_name(last),
        wait: share(&waited),
        by,
        steps: steps.into_iter().map(step).collect(),
        rows: rows.into_iter().map(|(name, (_, sum))| sum.row(name)).collect(),
        versions: versions
            .iter()
            .map(|(hash, (first, last, sum))| Version {
                hash: known(hash),
                first_day: day_name(*first),
                last_day: day_name(*last),
                jobs: sum.jobs,
                core_hours: sum.core_seconds / 3600.0,
            })
            .collect(),
    }))
}

/// The jobs of a program by their beginnings.
fn jobs(store: &Store, program: &str) -> Result<Vec<Ran>> {
    store.try_to(|c| {
        let mut rows = c.prepare(
            "SELECT j.started, j.seconds * j.cores, j.nodes, j.mpi, j.wait, j.user, p.hash
             FROM program p JOIN job j ON j.program = p.id WHERE p.name = ?1 ORDER BY j.started, j.id",
        )?;
        let job = |row: &rusqlite::Row| {
            Ok(Ran {
                started: row.get::<_, i64>(0)? as u64,
                core_seconds: row.get(1)?,
                nodes: row.get(2)?,
                mpi: row.get(3)?,
                wait: row.get(4)?,
                user: row.get(5)?,
                hash: row.get(6)?,
            })
        };
        rows.query_map([program], job)?.collect()
    })
}
