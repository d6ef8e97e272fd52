//! The store of studies: a row for each point, each block and each study. Every block is committed before the next one
//! starts, and a new study is added to the existing ones.

use std::collections::HashMap;
use std::fmt;

use chart::clock;
use machine::{Fault, Nanoseconds, Result, count};
use rounds::clocks::Clocks;
use rounds::point::{PointKey, PointSpec};
use rounds::sample::Sample;
use rusqlite::{Transaction, params};

use crate::database::{Layout, json, nanoseconds, picoseconds, probe};
use crate::design::Design;
use crate::designs::{self, Begun, Designed, hash, tables};

const LAYOUT: Layout = Layout {
    number: 3,
    // "plim".
    application: 0x706c_696d,
    tables: tables!(
        "
CREATE TABLE point (
    key TEXT PRIMARY KEY,
    spec TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE sample (
    design INTEGER NOT NULL REFERENCES design(id),
    point TEXT NOT NULL REFERENCES point(key),
    round INTEGER NOT NULL,
    place INTEGER NOT NULL,
    started_ns INTEGER NOT NULL,
    took_ns INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    elapsed_ns INTEGER NOT NULL,
    value REAL NOT NULL,
    lost INTEGER NOT NULL,
    probe_ps INTEGER,
    accounting TEXT,
    notes TEXT NOT NULL,
    -- Effective clocks of cores, hertz.
    clocks TEXT,
    PRIMARY KEY (design, point, round)
) WITHOUT ROWID;
CREATE TABLE failure (
    design INTEGER NOT NULL REFERENCES design(id),
    point TEXT NOT NULL REFERENCES point(key),
    round INTEGER NOT NULL,
    fault TEXT NOT NULL,
    PRIMARY KEY (design, point, round)
) WITHOUT ROWID;
"
    ),
    what: "study",
    command: "plimsoll study",
};

pub type Store = designs::Store<Design>;
pub type Study = Begun<Design>;

impl Designed for Design {
    const LAYOUT: &'static Layout = &LAYOUT;

    /// Designs that differ in their notes alone have the same hash.
    fn hash(&self) -> String {
        hash(&(&self.grounds, self.minimum_rounds, &self.groups))
    }

    fn enter(&self, transaction: &Transaction, _: i64) -> rusqlite::Result<()> {
        for spec in self.points() {
            let sql = "INSERT OR IGNORE INTO point (key, spec) VALUES (?1, ?2)";
            transaction.execute(sql, params![spec.key().0, json(spec)])?;
        }
        Ok(())
    }
}

/// A study in the list of its store, from which a reader may choose one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub id: i64,
    /// When it started, since the Unix epoch.
    pub started: Nanoseconds,
    pub finished: bool,
    pub blocks: u64,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = if self.finished { "" } else { ", not finished" };
        let blocks = count::of(self.blocks, "block");
        write!(f, "{}, begun {}, {blocks}{end}", self.id, clock::date(self.started))
    }
}

/// Blocks of a study, and its failures.
#[derive(Debug, Default)]
pub struct Contents {
    /// The samples of each point, in round order.
    pub samples: HashMap<PointKey, Vec<Sample>>,
    /// Wall time of each block, set-up and counters included.
    pub took: HashMap<PointKey, Vec<Nanoseconds>>,
    /// Rounds that failed, with the text of the fault.
    pub failures: HashMap<PointKey, Vec<(u32, String)>>,
}

impl Store {
    /// Every study, the earliest first.
    pub fn entries(&self) -> Result<Vec<Entry>> {
        self.database.try_to(|c| {
            let mut statement = c.prepare(
                "SELECT id, started_ns, finished_ns, (SELECT count(*) FROM sample WHERE design = design.id)
                 FROM design ORDER BY id",
            )?;
            let rows = statement.query_map([], |row| {
                Ok(Entry {
                    id: row.get(0)?,
                    started: nanoseconds(row.get(1)?),
                    finished: row.get::<_, Option<i64>>(2)?.is_some(),
                    blocks: row.get::<_, i64>(3)? as u64,
                })
            })?;
            rows.collect()
        })
    }

    /// Commits one block, with the time it took in all, and charges the study for it.
    pub fn keep(
        &mut self,
        study: &Study,
        spec: &PointSpec,
        sample: &Sample,
        took: Nanoseconds,
        spent: Nanoseconds,
    ) -> Result<()> {
        self.charge(study, spent, |transaction| {
            transaction
                .prepare_cached(
                    "INSERT INTO sample (design, point, round, place, started_ns, took_ns, messages, elapsed_ns, value,
                                         lost, probe_ps, accounting, notes, clocks)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
                )?
                .execute(params![
                    study.id,
                    spec.key().0,
                    sample.round,
                    sample.order,
                    sample.started.0 as i64,
                    took.0 as i64,
                    sample.messages as i64,
                    sample.elapsed.0 as i64,
                    sample.value,
                    sample.lost as i64,
                    picoseconds(sample.probe),
                    sample.accounting.as_ref().map(json),
                    json(&sample.notes),
                    (!sample.clocks.is_empty()).then(|| json(&sample.clocks)),
                ])
        })
    }

    /// Commits that a block could not be measured.
    pub fn keep_failure(
        &mut self,
        study: &Study,
        spec: &PointSpec,
        round: u32,
        reason: &Fault,
        spent: Nanoseconds,
    ) -> Result<()> {
        self.charge(study, spent, |transaction| {
            transaction.execute(
                "INSERT OR REPLACE INTO failure (design, point, round, fault) VALUES (?1, ?2, ?3, ?4)",
                params![study.id, spec.key().0, round, reason.to_string()],
            )
        })
    }

    /// Every block of a study.
    pub fn contents(&self, study: &Study) -> Result<Contents> {
        let rows = self.database.try_to(|c| {
            let mut statement = c.prepare(
                "SELECT point, round, place, started_ns, took_ns, messages, elapsed_ns, value, lost, probe_ps,
                        accounting, notes, clocks
                 FROM sample WHERE design = ?1 ORDER BY point, round",
            )?;
            let rows = statement.query_map([study.id], |row| {
                let sample = Sample {
                    round: row.get(1)?,
                    order: row.get(2)?,
                    started: nanoseconds(row.get(3)?),
                    messages: row.get::<_, i64>(5)? as u64,
                    elapsed: nanoseconds(row.get(6)?),
                    value: row.get(7)?,
                    lost: row.get::<_, i64>(8)? as u64,
                    probe: probe(row.get(9)?),
                    clocks: Clocks::default(),
                    accounting: None,
                    notes: Vec::new(),
                };
                let accounting: Option<String> = row.get(10)?;
                let texts: (String, Option<String>) = (row.get(11)?, row.get(12)?);
                Ok((PointKey(row.get(0)?), sample, nanoseconds(row.get(4)?), accounting, texts))
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        })?;
        let mut contents = Contents::default();
        for (key, mut sample, took, accounting, (notes, clocks)) in rows {
            sample.accounting = accounting.map(|text| self.database.parse(&text)).transpose()?;
            sample.notes = self.database.parse(&notes)?;
            sample.clocks = clocks.map(|text| self.database.parse(&text)).transpose()?.unwrap_or_default();
            contents.samples.entry(key.clone()).or_default().push(sample);
            contents.took.entry(key).or_default().push(took);
        }
        let failures = self.database.try_to(|c| {
            let mut statement =
                c.prepare("SELECT point, round, fault FROM failure WHERE design = ?1 ORDER BY point, round")?;
            let rows = statement.query_map([study.id], |row| {
                Ok((PointKey(row.get(0)?), (row.get::<_, u32>(1)?, row.get::<_, String>(2)?)))
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        })?;
        for (key, failure) in failures {
            contents.failures.entry(key).or_default().push(failure);
        }
        Ok(contents)
    }
}
