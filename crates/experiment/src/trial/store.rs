//! The store of trials: every run is committed before the next one starts.

use machine::{Nanoseconds, Result};
use rusqlite::{Transaction, params};

use super::design::Design;
use super::{Run, Runs};
use crate::database::{Layout, json, nanoseconds, picoseconds, probe};
use crate::designs::{self, Begun, Designed, hash, tables};

const LAYOUT: Layout = Layout {
    number: 4,
    // "plit".
    application: 0x706c_6974,
    tables: tables!(
        "
CREATE TABLE arm (
    design INTEGER NOT NULL REFERENCES design(id),
    arm INTEGER NOT NULL,
    -- The key of its axes, by which trials of the same point can be found.
    point TEXT NOT NULL,
    axes TEXT NOT NULL,
    wrong TEXT,
    -- Of the first: what the results of all are held against.
    reference TEXT,
    PRIMARY KEY (design, arm)
) WITHOUT ROWID;
CREATE TABLE run (
    id INTEGER PRIMARY KEY,
    design INTEGER NOT NULL REFERENCES design(id),
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
    design INTEGER NOT NULL REFERENCES design(id),
    arm INTEGER NOT NULL,
    fault TEXT NOT NULL
);
"
    ),
    what: "trial",
    command: "plimsoll try",
};

pub type Store = designs::Store<Design>;
pub type Trial = Begun<Design>;

impl Designed for Design {
    const LAYOUT: &'static Layout = &LAYOUT;

    fn hash(&self) -> String {
        hash(self)
    }

    fn enter(&self, transaction: &Transaction, id: i64) -> rusqlite::Result<()> {
        for (nth, arm) in self.arms.iter().enumerate() {
            let sql = "INSERT INTO arm (design, arm, point, axes) VALUES (?1, ?2, ?3, ?4)";
            transaction.execute(sql, params![id, nth, arm.axes.key(), json(&arm.axes)])?;
        }
        Ok(())
    }
}

impl Store {
    /// The trial of that number; `None`: the last one begun.
    ///
    /// # Errors
    /// The store has no such trial.
    pub fn trial(&self, number: Option<i64>) -> Result<Trial> {
        match number {
            None => self.all().map(|mut all| all.remove(all.len() - 1)),
            number => self.chosen(number),
        }
    }

    /// Commits one run, and adds `spent` to the trial's time.
    pub fn keep(&mut self, trial: &Trial, arm: usize, run: &Run, spent: Nanoseconds) -> Result<()> {
        self.charge(trial, spent, |transaction| {
            transaction.execute(
                "INSERT INTO run (design, arm, round, place, started_ns, elapsed_ns, cpu_ns, value, probe_before_ps,
                                  probe_after_ps, clocks, status, system_ns)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
                params![
                    trial.id,
                    arm,
                    run.round,
                    run.place,
                    run.started.0 as i64,
                    run.elapsed.0 as i64,
                    run.cpu.map(|cpu| cpu.0 as i64),
                    run.value,
                    picoseconds(run.probes[0]),
                    picoseconds(run.probes[1]),
                    run.clocks.iter().any(|clocks| !clocks.is_empty()).then(|| json(&run.clocks)),
                    run.status,
                    run.system.map(|system| system.0 as i64),
                ],
            )
        })
    }

    /// Commits the failure of a run.
    pub fn keep_failure(&mut self, trial: &Trial, arm: usize, why: &str, spent: Nanoseconds) -> Result<()> {
        let sql = "INSERT INTO failure (design, arm, fault) VALUES (?1, ?2, ?3)";
        self.charge(trial, spent, |transaction| transaction.execute(sql, params![trial.id, arm, why]))
    }

    /// Commits the reference that the results of all arms are compared with.
    pub fn refer(&mut self, trial: &Trial, evidence: &str) -> Result<()> {
        let change = "UPDATE arm SET reference = ?2 WHERE design = ?1 AND arm = 0";
        self.database.try_to(|c| c.execute(change, params![trial.id, evidence]))?;
        Ok(())
    }

    pub fn keep_wrong(&mut self, trial: &Trial, arm: usize, why: &str) -> Result<()> {
        let change = "UPDATE arm SET wrong = ?3 WHERE design = ?1 AND arm = ?2";
        self.database.try_to(|c| c.execute(change, params![trial.id, arm, why]))?;
        Ok(())
    }

    /// All stored runs of a trial.
    pub fn runs(&self, trial: &Trial) -> Result<Runs> {
        let mut runs = Runs::of(trial.design.arms.len());
        let done: Vec<(usize, Run, Option<String>)> = self.database.try_to(|c| {
            let mut statement = c.prepare(
                "SELECT arm, round, place, started_ns, elapsed_ns, cpu_ns, value, probe_before_ps, probe_after_ps,
                        clocks, status, system_ns
                 FROM run WHERE design = ?1 ORDER BY id",
            )?;
            let rows = statement.query_map([trial.id], |row| {
                let run = Run {
                    round: row.get(1)?,
                    place: row.get(2)?,
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
            run.clocks = clocks.map(|text| self.database.parse(&text)).transpose()?.unwrap_or_default();
            runs.done[arm].push(run);
        }
        let failed: Vec<(usize, String)> = self.database.try_to(|c| {
            let mut statement = c.prepare("SELECT arm, fault FROM failure WHERE design = ?1 ORDER BY id")?;
            statement.query_map([trial.id], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })?;
        for (arm, why) in failed {
            runs.failed[arm].push(why);
        }
        runs.wrong = self.database.try_to(|c| {
            let mut statement = c.prepare("SELECT wrong FROM arm WHERE design = ?1 ORDER BY arm")?;
            statement.query_map([trial.id], |row| row.get(0))?.collect()
        })?;
        (runs.spent, runs.reference) = self.database.try_to(|c| {
            let sql = "SELECT spent_ns, reference FROM design JOIN arm ON arm.design = design.id AND arm.arm = 0 WHERE design.id = ?1";
            c.query_row(sql, [trial.id], |row| Ok((nanoseconds(row.get(0)?), row.get(1)?)))
        })?;
        Ok(runs)
    }
}
