//! All jobs of a store as figures for who watches a centre. They are totals since the store was made, so that shares of any time
//! are asked as ratios of increases.
//!
//! Labels are bounded: partitions by [`FLEET_PARTITIONS`], for users write summaries; all others by what the sources list. Users,
//! groups, programs and jobs are none.

use std::collections::{BTreeMap, BTreeSet};

use linux::metrics::{Kind, Metrics};
use machine::Result;
use machine::bounds::FLEET_PARTITIONS;
use profile::verdict::Cause;

use crate::store::{ALL_JOBS, BOUND, Event, Store, UNBOUND, kind_of_hindrance, kind_of_lever, kind_of_unjudged};
use crate::summary::{Lever, Unjudged, word};

/// What is beyond a label's bound, or has a word that nobody knows.
const OTHER: &str = "other";

/// Sums of a kind of jobs; `low` and `high` are core seconds, as the kind has them.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    jobs: u64,
    seconds: f64,
    low: f64,
    high: f64,
}

#[derive(Default)]
struct Partition(BTreeMap<i64, Sum>);

impl Partition {
    fn of(&self, kind: i64) -> Sum {
        self.0.get(&kind).copied().unwrap_or_default()
    }
}

type Labels = Vec<(&'static str, String)>;

/// All figures in the text format of Prometheus; what nobody counted has no line.
///
/// # Errors
/// The store cannot be read.
pub fn text(store: &Store) -> Result<String> {
    let partitions = partitions(store)?;
    let mut all = Metrics::default();
    let mut family = |kind, name: &str, help: &str, of: &dyn Fn(&Partition) -> Vec<(Labels, f64)>| {
        let mut family = all.family(kind, &format!("plimsoll_fleet_{name}"), help);
        for (name, partition) in &partitions {
            for (labels, value) in of(partition) {
                let labels = labels.iter().map(|(name, value)| (*name, &value[..]));
                family.sample(&[("partition", &name[..])].into_iter().chain(labels).collect::<Vec<_>>(), value);
            }
        }
    };
    family(Kind::Counter, "jobs_total", "Jobs, by whether levers could be judged, else why not.", &judgements);
    type Figure = fn(Sum) -> f64;
    let of_all: [(&str, &str, Figure); 3] = [
        ("core_seconds_total", "Core time that jobs held.", |sum| sum.seconds),
        ("mpi_core_seconds_total", "Core time inside MPI, of jobs that tell it.", |sum| sum.low),
        ("wait_core_seconds_total", "Core time of waits inside MPI, of jobs that tell it.", |sum| sum.high),
    ];
    for (name, help, figure) in of_all {
        family(Kind::Counter, name, help, &|partition| vec![(Vec::new(), figure(partition.of(ALL_JOBS)))]);
    }
    let of_causes: [(&str, &str, Figure); 2] = [
        ("hindered_jobs_total", "Jobs with ranks, or a program, that something kept from running.", |sum| {
            sum.jobs as f64
        }),
        ("hindered_core_seconds_total", "Core time that was lost to what kept ranks from running.", |sum| sum.low),
    ];
    for (name, help, figure) in of_causes {
        family(Kind::Counter, name, help, &|partition| {
            let causes = Cause::ALL.into_iter().map(Some).chain([None]);
            let of = |cause: Option<Cause>| {
                let name = cause.map_or(OTHER, Cause::name).to_owned();
                (vec![("cause", name)], figure(partition.of(kind_of_hindrance(cause))))
            };
            causes.map(of).collect()
        });
    }
    let help = "Jobs that tell it, by whether all their ranks had cores of their own.";
    family(Kind::Counter, "binding_jobs_total", help, &|partition| {
        let of = |(name, kind): (&str, i64)| (vec![("binding", name.to_owned())], partition.of(kind).jobs as f64);
        [("bound", BOUND), ("unbound", UNBOUND)].map(of).to_vec()
    });
    let help = "Core time that a lever would have saved, the sums of the jobs' least and most.";
    family(Kind::Gauge, "saving_core_seconds", help, &|partition| {
        let of = |lever| {
            let Sum { low, high, .. } = partition.of(kind_of_lever(lever));
            [("least", low), ("most", high)]
                .map(|(bound, value)| (vec![("lever", word(lever)), ("bound", bound.to_owned())], value))
        };
        Lever::ALL.into_iter().flat_map(of).collect()
    });
    let Some(events) = store.events()? else { return Ok(all.text()) };
    let mut outcomes =
        all.family(Kind::Counter, "plimsoll_fleet_summaries_total", "Files of spools, by what became of them.");
    for event in [Event::New, Event::Known, Event::Aside] {
        outcomes.sample(&[("outcome", event.name())], events.get(&event).map_or(0, |(count, _)| *count) as f64);
    }
    let help = "Folders of steps that left no summary, removed.";
    let swept = events.get(&Event::Swept).map_or(0, |(count, _)| *count) as f64;
    all.family(Kind::Counter, "plimsoll_fleet_swept_total", help).sample(&[], swept);
    for (name, help, event) in [
        ("taken_time_seconds", "When a whole spool was last taken, in seconds since 1970.", Event::Added),
        ("new_time_seconds", "When a new summary last came, in seconds since 1970.", Event::New),
    ] {
        let mut family = all.family(Kind::Gauge, &format!("plimsoll_fleet_{name}"), help);
        if let Some((_, latest)) = events.get(&event) {
            family.sample(&[], *latest as f64);
        }
    }
    Ok(all.text())
}

fn judgements(partition: &Partition) -> Vec<(Labels, f64)> {
    let label = |name: String, jobs: u64| (vec![("judgement", name)], jobs as f64);
    let unjudged = Unjudged::ALL.map(|why| (why, partition.of(kind_of_unjudged(why)).jobs));
    let judged = partition.of(ALL_JOBS).jobs.saturating_sub(unjudged.iter().map(|(_, jobs)| jobs).sum());
    [label("judged".into(), judged)].into_iter().chain(unjudged.map(|(why, jobs)| label(word(why), jobs))).collect()
}

/// Sums by partition and kind. Of too many partitions, those that the store met first keep their names: no total ever shrinks.
fn partitions(store: &Store) -> Result<BTreeMap<String, Partition>> {
    let most = FLEET_PARTITIONS.total.count();
    store.try_to(|c| {
        // All is asked of one state of the store.
        let c = c.unchecked_transaction()?;
        let mut first = c.prepare("SELECT partition FROM job GROUP BY partition ORDER BY min(id) LIMIT ?1")?;
        let too_many = c.query_row("SELECT count(DISTINCT partition) > ?1 FROM sum", [most], |row| row.get(0))?;
        let named: Option<BTreeSet<i64>> = match too_many {
            true => Some(first.query_map([most], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?),
            false => None,
        };
        let mut rows = c.prepare(
            "SELECT s.partition, w.text, s.kind, sum(s.jobs), sum(s.core_seconds), sum(s.low), sum(s.high) FROM sum s
             JOIN word w ON w.id = s.partition GROUP BY s.partition, s.kind",
        )?;
        let mut rows = rows.query([])?;
        let mut found: BTreeMap<String, Partition> = BTreeMap::new();
        while let Some(row) = rows.next()? {
            let is_named = named.as_ref().is_none_or(|named| row.get(0).is_ok_and(|id| named.contains(&id)));
            let name = if is_named { row.get(1)? } else { OTHER.to_owned() };
            let sum = found.entry(name).or_default().0.entry(row.get(2)?).or_default();
            sum.jobs += row.get::<_, u64>(3)?;
            sum.seconds += row.get::<_, f64>(4)?;
            sum.low += row.get::<_, f64>(5)?;
            sum.high += row.get::<_, f64>(6)?;
        }
        Ok(found)
    })
}
