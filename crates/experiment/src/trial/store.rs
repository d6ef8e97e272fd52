//! The store of trials: every run is committed before the next one starts.

use std::path::Path;

use machine::{Fault, Nanoseconds, Probe, Result};
use rusqlite::{Connection, OptionalExtension, params};

use super::design::Design;
use super::{Run, Runs};
use crate::database::{Database, Layout, json, nanoseconds};

const LAYOUT: Layout = Layout {
    number: 3,
    // "plit".
    application: 0x706c_6974,
    tables: "
CREATE TABLE trial (
    id INTEGER PRIMARY KEY,
    design_hash TEXT NOT NULL,
    design TEXT NOT NULL,
    seed INTEGER NOT NULL,
    -- Machine and boot: a trial goes on only where it began.
    host TEXT NOT NULL,
    version TEXT NOT NULL,
    started_ns INTEGER NOT NULL,
    finished_ns INTEGER,
    spent_ns INTEGER NOT NULL DEFAULT 0,
    reference TEXT
);
CREATE TABLE arm (
    trial INTEGER NOT NULL REFERENCES trial(id),
    arm INTEGER NOT NULL,
    -- The key of its axes, by which trials of the same point can be found.
    point TEXT NOT NULL,
    axes TEXT NOT NULL,
    wrong TEXT,
    PRIMARY KEY (trial, arm)
) WITHOUT ROWID;
CREATE TABLE run (
    id INTEGER PRIMARY KEY,
    trial INTEGER NOT NULL REFERENCES trial(id),
    arm INTEGER NOT NULL,
    -- NULL for what warms up.
    round INTEGER,
    place INTEGER NOT NULL,
    started_ns INTEGER NOT NULL,
    elapsed_ns INTEGER NOT NULL,
    cpu_ns INTEGER,
    value REAL NOT NULL,
    probe_before_ps INTEGER,
    probe_after_ps INTEGER,
    -- Effective clocks of cores before and after it, hertz.
    clocks TEXT,
    status INTEGER,
    -- What of cpu_ns was in the kernel.
    system_ns INTEGER
);
CREATE TABLE failure (
    id INTEGER PRIMARY KEY,
    trial INTEGER NOT NULL REFERENCES trial(id),
    arm INTEGER NOT NULL,
    fault TEXT NOT NULL
);
",
    what: "trial",
    command: "plimsoll try",
};

/// An open store of trials.
pub struct Store(Database);

/// A trial as its row tells it.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    pub id: i64,
    pub design: Design,
    pub seed: u64,
    /// When it started, since the Unix epoch.
    pub started: Nanoseconds,
    /// When it was settled; `None`: it can go on.
    pub finished: Option<Nanoseconds>,
}

impl Store {
    /// Opens the store at `path` to measure into, or makes it. Faults as [`crate::store::Store::open`] does.
    pub fn open(path: &Path) -> Result<Store> {
        Database::open(path, &LAYOUT).map(Store)
    }

    /// Opens a store that must be there, to read it.
    pub fn read(path: &Path) -> Result<Store> {
        Database::read(path, &LAYOUT).map(Store)
    }

    /// Adds a trial.
    pub fn begin(&mut self, design: Design, seed: u64, host: &str, version: &str, now: Nanoseconds) -> Result<Trial> {
        let id = self.0.try_to(|c| {
            let transaction = c.unchecked_transaction()?;
            transaction.execute(
                "INSERT INTO trial (design_hash, design, seed, host, version, started_ns) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![design.hash(), json(&design), seed as i64, host, version, now.0 as i64],
            )?;
            let id = transaction.last_insert_rowid();
            for (nth, arm) in design.arms.iter().enumerate() {
                transaction.execute(
                    "INSERT INTO arm (trial, arm, point, axes) VALUES (?1, ?2, ?3, ?4)",
                    params![id, nth, arm.axes.key(), json(&arm.axes)],
                )?;
            }
            transaction.commit()?;
            Ok(id)
        })?;
        Ok(Trial { id, design, seed, started: now, finished: None })
    }

    /// The latest trial of this design on this machine and boot that can go on.
    pub fn unfinished(&self, design: &Design, host: &str) -> Result<Option<Trial>> {
        self.0.try_to(|c| {
            c.query_row(
                "SELECT id, seed, started_ns FROM trial WHERE design_hash = ?1 AND host = ?2 AND finished_ns IS NULL
                 ORDER BY id DESC LIMIT 1",
                params![design.hash(), host],
                |row| {
                    let (seed, started) = (row.get::<_, i64>(1)? as u64, nanoseconds(row.get(2)?));
                    Ok(Trial { id: row.get(0)?, design: design.clone(), seed, started, finished: None })
                },
            )
            .optional()
        })
    }

    /// All trials, in the order in which they were begun.
    ///
    /// # Errors
    /// There is none.
    pub fn trials(&self) -> Result<Vec<Trial>> {
        let rows: Vec<(i64, String, i64, i64, Option<i64>)> = self.0.try_to(|c| {
            let mut statement = c.prepare("SELECT id, design, seed, started_ns, finished_ns FROM trial ORDER BY id")?;
            let rows =
                statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)))?;
            rows.collect()
        })?;
        if rows.is_empty() {
            return Err(self.0.holds_none());
        }
        let mut trials = Vec::new();
        for (id, design, seed, started, finished) in rows {
            let (started, finished) = (nanoseconds(started), finished.map(nanoseconds));
            trials.push(Trial { id, design: self.0.parse(&design)?, seed: seed as u64, started, finished });
        }
        Ok(trials)
    }

    /// The trial that was begun last, or the one of that number.
    ///
    /// # Errors
    /// There is none.
    pub fn trial(&self, number: Option<i64>) -> Result<Trial> {
        let mut trials = self.trials()?;
        let at = match number {
            None => trials.len() - 1,
            Some(number) => trials.iter().position(|trial| trial.id == number).ok_or_else(|| {
                let cause = format!("it holds no trial {number}");
                Fault::new(self.0.subject(), cause, "see which it holds: plimsoll try --list")
            })?,
        };
        Ok(trials.swap_remove(at))
    }

    /// Commits one run, and charges the trial for it.
    pub fn keep(&mut self, trial: &Trial, arm: usize, run: &Run, spent: Nanoseconds) -> Result<()> {
        let probe = |probe: Option<Probe>| probe.map(|probe| probe.half_round_trip_ps as i64);
        self.0.try_to(|c| {
            let transaction = c.unchecked_transaction()?;
            transaction.execute(
                "INSERT INTO run (trial, arm, round, place, started_ns, elapsed_ns, cpu_ns, value, probe_before_ps,
                                  probe_after_ps, clocks, status, system_ns)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
                params![
                    trial.id,
                    arm,
                    run.round,
                    run.order,
                    run.started.0 as i64,
                    run.elapsed.0 as i64,
                    run.cpu.map(|cpu| cpu.0 as i64),
                    run.value,
                    probe(run.probes[0]),
                    probe(run.probes[1]),
                    run.clocks.iter().any(|clocks| !clocks.is_empty()).then(|| json(&run.clocks)),
                    run.status,
                    run.system.map(|system| system.0 as i64),
                ],
            )?;
            charge(&transaction, trial, spent)?;
            transaction.commit()
        })
    }

    /// Commits that a run failed.
    pub fn keep_failure(&mut self, trial: &Trial, arm: usize, why: &str, spent: Nanoseconds) -> Result<()> {
        self.0.try_to(|c| {
            let transaction = c.unchecked_transaction()?;
            transaction
                .execute("INSERT INTO failure (trial, arm, fault) VALUES (?1, ?2, ?3)", params![trial.id, arm, why])?;
            charge(&transaction, trial, spent)?;
            transaction.commit()
        })
    }

    /// What the results of all arms are held against.
    pub fn refer(&mut self, trial: &Trial, evidence: &str) -> Result<()> {
        self.0.try_to(|c| c.execute("UPDATE trial SET reference = ?2 WHERE id = ?1", params![trial.id, evidence]))?;
        Ok(())
    }

    pub fn keep_wrong(&mut self, trial: &Trial, arm: usize, why: &str) -> Result<()> {
        let change = "UPDATE arm SET wrong = ?3 WHERE trial = ?1 AND arm = ?2";
        self.0.try_to(|c| c.execute(change, params![trial.id, arm, why]))?;
        Ok(())
    }

    /// Marks the trial as done.
    pub fn finish(&mut self, trial: &Trial, now: Nanoseconds) -> Result<()> {
        self.0.try_to(|c| {
            c.execute("UPDATE trial SET finished_ns = ?2 WHERE id = ?1", params![trial.id, now.0 as i64])
        })?;
        Ok(())
    }

    /// All that is stored of a trial.
    pub fn runs(&self, trial: &Trial) -> Result<Runs> {
        let mut runs = Runs::of(trial.design.arms.len());
        let probe = |ps: Option<i64>| ps.map(|ps| Probe { half_round_trip_ps: ps as u64 });
        let done: Vec<(usize, Run, Option<String>)> = self.0.try_to(|c| {
            let mut statement = c.prepare(
                "SELECT arm, round, place, started_ns, elapsed_ns, cpu_ns, value, probe_before_ps, probe_after_ps,
                        clocks, status, system_ns
                 FROM run WHERE trial = ?1 ORDER BY id",
            )?;
            let rows = statement.query_map([trial.id], |row| {
                let run = Run {
                    round: row.get(1)?,
                    order: row.get(2)?,
                    started: nanoseconds(row.get(3)?),
                    elapsed: nanoseconds(row.get(4)?),
                    cpu: row.get::<_, Option<i64>>(5)?.map(nanoseconds),
                    system: row.get::<_, Option<i64>>(11)?.map(nanoseconds),
                    status: row.get(10)?,
                    value: row.get(6)?,
                    probes: [probe(row.get(7)?), probe(row.get(8)?)],
                    clocks: Default::default(),
                };
                Ok((row.get(0)?, run, row.get(9)?))
            })?;
            rows.collect()
        })?;
        for (arm, mut run, clocks) in done {
            run.clocks = clocks.map(|text| self.0.parse(&text)).transpose()?.unwrap_or_default();
            runs.done[arm].push(run);
        }
        let failed: Vec<(usize, String)> = self.0.try_to(|c| {
            let mut statement = c.prepare("SELECT arm, fault FROM failure WHERE trial = ?1 ORDER BY id")?;
            statement.query_map([trial.id], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })?;
        for (arm, why) in failed {
            runs.failed[arm].push(why);
        }
        runs.wrong = self.0.try_to(|c| {
            let mut statement = c.prepare("SELECT wrong FROM arm WHERE trial = ?1 ORDER BY arm")?;
            statement.query_map([trial.id], |row| row.get(0))?.collect()
        })?;
        let (spent, reference) = self.0.try_to(|c| {
            let columns = "SELECT spent_ns, reference FROM trial WHERE id = ?1";
            c.query_row(columns, [trial.id], |row| Ok((row.get(0)?, row.get(1)?)))
        })?;
        (runs.spent, runs.reference) = (nanoseconds(spent), reference);
        Ok(runs)
    }
}

fn charge(connection: &Connection, trial: &Trial, spent: Nanoseconds) -> rusqlite::Result<usize> {
    connection.execute("UPDATE trial SET spent_ns = spent_ns + ?2 WHERE id = ?1", params![trial.id, spent.0 as i64])
}
