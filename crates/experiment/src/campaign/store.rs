//! The store of a study's runs: each run is committed before the next one starts. Keys follow from content, so that stores
//! of several machines can be merged.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use machine::{Fault, Hertz, Nanoseconds, Probe, Result};
use rusqlite::{OptionalExtension, Row, params};

use super::definition::{Identity, Point};
use super::results::{Results, Run};
use crate::axes::Axes;
use crate::cause::Failure;
use crate::database::{Database, Layout, json, nanoseconds, picoseconds};
use crate::designs::hash;
use crate::patience;

pub(super) const LAYOUT: Layout = Layout {
    number: 1,
    // "plic".
    application: 0x706c_6963,
    tables: "
CREATE TABLE study (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    digest TEXT NOT NULL,
    identity TEXT NOT NULL
);
-- One process that ran the study.
CREATE TABLE session (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    host TEXT NOT NULL,
    boot TEXT NOT NULL,
    version TEXT NOT NULL,
    shard TEXT NOT NULL,
    nodes TEXT NOT NULL,
    -- Files that were run, with digests of what was in them.
    programs TEXT NOT NULL,
    started_ns INTEGER NOT NULL,
    spent_ns INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE point (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    axes TEXT NOT NULL
);
CREATE TABLE run (
    session INTEGER NOT NULL REFERENCES session(id),
    point INTEGER NOT NULL REFERENCES point(id),
    round INTEGER NOT NULL,
    place INTEGER NOT NULL,
    started_ns INTEGER NOT NULL,
    elapsed_ns INTEGER NOT NULL,
    cpu_ns INTEGER,
    clock_before_hz INTEGER,
    clock_after_hz INTEGER,
    probe_before_ps INTEGER,
    probe_after_ps INTEGER,
    -- Eight bytes a figure, little end first; no number where it was not read.
    figures BLOB NOT NULL,
    PRIMARY KEY (session, point, round, place)
) WITHOUT ROWID;
CREATE TABLE failure (
    session INTEGER NOT NULL REFERENCES session(id),
    point INTEGER NOT NULL REFERENCES point(id),
    round INTEGER NOT NULL,
    place INTEGER NOT NULL,
    started_ns INTEGER NOT NULL,
    cause TEXT NOT NULL,
    words TEXT NOT NULL,
    PRIMARY KEY (session, point, round, place, started_ns)
) WITHOUT ROWID;
",
    what: "study",
    command: "plimsoll campaign run",
};

/// An open store.
pub struct Store {
    pub(super) database: Database,
    pub(super) identity: Identity,
    /// Row numbers of the entered points, by index in the file.
    rows: Vec<Option<i64>>,
    /// Row number of the current session.
    pub(super) session: Option<i64>,
}

/// One process that runs a study.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub host: String,
    pub boot: String,
    pub version: String,
    pub shard: String,
    /// Nodes of a batch system's allocation.
    pub nodes: String,
    pub programs: BTreeMap<String, String>,
    pub started: Nanoseconds,
    /// Process number, which distinguishes sessions of one host with the same start.
    pub process: u32,
}

impl Session {
    fn key(&self) -> String {
        let Session { host, boot, started, process, .. } = self;
        format!("s2-{}", hash(&(host, boot, started, process)))
    }
}

/// A run to store.
#[derive(Debug, Clone, PartialEq)]
pub struct NewRun {
    /// Index of the point in the file.
    pub point: usize,
    pub round: u32,
    /// Place within the round.
    pub place: u32,
    /// Wall clock at the start, since the Unix epoch.
    pub started: Nanoseconds,
    pub outcome: std::result::Result<Outcome, Failure>,
}

/// Figures and conditions of a finished run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    pub elapsed: Nanoseconds,
    /// CPU time of all its processes.
    pub cpu: Option<Nanoseconds>,
    /// A value for each of the study's figures.
    pub values: Vec<Option<f64>>,
    /// Effective clock of the first core, before and after the run.
    pub clocks: [Option<Hertz>; 2],
    /// Probe between the first two cores, before and after the run.
    pub probes: [Option<Probe>; 2],
    /// Remark for the user, which is not stored.
    pub note: Option<String>,
}

/// The stored runs of a point.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PointRuns {
    /// Runs that count, in the order of their rounds.
    pub done: Vec<CountedRun>,
    /// Failed runs, with their rounds.
    pub failures: Vec<(u32, Failure)>,
}

impl PointRuns {
    /// Durations of the runs that count.
    pub(super) fn took(&self) -> impl Iterator<Item = Nanoseconds> {
        self.done.iter().map(|run| run.elapsed)
    }

    pub(super) fn usual(&self) -> Option<Nanoseconds> {
        patience::usual(self.took())
    }
}

/// A run that counts.
#[derive(Debug, Clone, PartialEq)]
pub struct CountedRun {
    /// Row number of the session.
    pub session: Option<i64>,
    pub round: u32,
    pub elapsed: Nanoseconds,
    pub values: Vec<Option<f64>>,
}

impl Store {
    /// Opens the store at `path` for writing, or creates it.
    ///
    /// # Errors
    /// As [`crate::designs::Store::open`]; the store holds another study.
    pub fn open(path: &Path, identity: &Identity) -> Result<Store> {
        let database = Database::open(path, &LAYOUT)?;
        database.try_to(|c| {
            let sql = "INSERT OR IGNORE INTO study (id, digest, identity) VALUES (1, ?1, ?2)";
            c.execute(sql, params![identity.digest(), json(identity)])
        })?;
        let store = Store::of(database)?;
        let next = "give another place with --store FILE: results of one study are never mixed with another's";
        store.check_identity(identity, next).map(|()| store)
    }

    /// Opens an existing store for reading.
    pub fn read(path: &Path) -> Result<Store> {
        Store::of(Database::read(path, &LAYOUT)?)
    }

    fn of(database: Database) -> Result<Store> {
        let sql = "SELECT identity FROM study";
        let text: Option<String> = database.try_to(|c| c.query_row(sql, [], |row| row.get(0)).optional())?;
        let text = text.ok_or_else(|| database.holds_none())?;
        let identity = database.parse(&text)?;
        Ok(Store { database, identity, rows: Vec::new(), session: None })
    }

    /// # Errors
    /// The store holds another study; `next` is the advice of the fault.
    pub fn check_identity(&self, identity: &Identity, next: &str) -> Result<()> {
        let refused = |why| Fault::new(self.database.subject(), format!("it holds another study: {why}"), next);
        identity.difference(&self.identity).map_or(Ok(()), |why| Err(refused(why)))
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Adds a session, to which later runs belong.
    pub fn begin(&mut self, session: &Session) -> Result<()> {
        let Session { host, boot, version, shard, nodes, programs, started, .. } = session;
        let row = self.database.try_to(|c| {
            c.execute(
                "INSERT INTO session (key, host, boot, version, shard, nodes, programs, started_ns)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                params![session.key(), host, boot, version, shard, nodes, json(programs), started.0 as i64],
            )?;
            Ok(c.last_insert_rowid())
        })?;
        self.session = Some(row);
        Ok(())
    }

    /// Adds the points that are `wanted`, so that their runs can be stored.
    pub fn add_points(&mut self, points: &[Point], wanted: &[bool]) -> Result<()> {
        let mut rows = vec![None; points.len()];
        self.database.try_to(|c| {
            let transaction = c.unchecked_transaction()?;
            let mut add = c.prepare("INSERT OR IGNORE INTO point (key, axes) VALUES (?1, ?2)")?;
            let mut find = c.prepare("SELECT id FROM point WHERE key = ?1")?;
            for (nth, point) in points.iter().enumerate().filter(|(nth, _)| wanted[*nth]) {
                let key = point.axes.key();
                add.execute(params![key, json(&point.axes)])?;
                rows[nth] = Some(find.query_row([&key], |row| row.get(0))?);
            }
            transaction.commit()
        })?;
        self.rows = rows;
        Ok(())
    }

    /// Commits runs of entered points, and adds `spent` to the time of the session.
    pub fn keep(&mut self, runs: &[NewRun], spent: Nanoseconds) -> Result<()> {
        let clock = |clock: Option<Hertz>| clock.map(|clock| clock.0 as i64);
        self.database.try_to(|c| {
            let (transaction, session) = (c.unchecked_transaction()?, self.session);
            for NewRun { point, round, place, started, outcome } in runs {
                let (row, started) = (self.rows.get(*point).copied().flatten(), started.0 as i64);
                match outcome {
                    Ok(Outcome { elapsed, cpu, values, clocks, probes, .. }) => c
                        .prepare_cached("INSERT INTO run VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)")?
                        .execute(params![
                            session,
                            row,
                            round,
                            place,
                            started,
                            elapsed.0 as i64,
                            cpu.map(|cpu| cpu.0 as i64),
                            clock(clocks[0]),
                            clock(clocks[1]),
                            picoseconds(probes[0]),
                            picoseconds(probes[1]),
                            packed(values),
                        ])?,
                    Err(Failure { cause, words }) => c
                        .prepare_cached("INSERT OR REPLACE INTO failure VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?
                        .execute(params![session, row, round, place, started, cause.to_string(), words])?,
                };
            }
            c.prepare_cached("UPDATE session SET spent_ns = spent_ns + ?2 WHERE id = ?1")?
                .execute(params![session, spent.0 as i64])?;
            transaction.commit()
        })
    }

    /// The stored runs of points, by index in the file.
    pub fn known(&self, points: &[Point]) -> Result<Vec<PointRuns>> {
        let mut known = vec![PointRuns::default(); points.len()];
        let keys: HashMap<String, usize> = points.iter().enumerate().map(|(at, of)| (of.axes.key(), at)).collect();
        let place: HashMap<i64, usize> = self.database.try_to(|c| {
            let mut rows = c.prepare("SELECT id, key FROM point")?;
            let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
            rows.filter_map(|row| row.map(|(id, key)| Some((id, *keys.get(&key)?))).transpose()).collect()
        })?;
        self.database.try_to(|c| {
            let mut rows =
                c.prepare("SELECT point, session, round, elapsed_ns, figures FROM run ORDER BY round, started_ns")?;
            let mut rows = rows.query([])?;
            while let Some(row) = rows.next()? {
                let Some(&at) = place.get(&row.get(0)?) else { continue };
                let values = unpacked(row.get_ref(4)?.as_blob()?);
                let (session, round) = (row.get(1)?, row.get(2)?);
                known[at].done.push(CountedRun { session, round, elapsed: nanoseconds(row.get(3)?), values });
            }
            let mut rows = c.prepare("SELECT point, cause, words, round FROM failure ORDER BY started_ns")?;
            let mut rows = rows.query([])?;
            while let Some(row) = rows.next()? {
                let Some(&at) = place.get(&row.get(0)?) else { continue };
                if let Ok(cause) = row.get::<_, String>(1)?.parse() {
                    known[at].failures.push((row.get(3)?, Failure { cause, words: row.get(2)? }));
                }
            }
            Ok(())
        })?;
        Ok(known)
    }

    /// Time spent by all sessions.
    pub fn spent(&self) -> Result<Nanoseconds> {
        let sql = "SELECT coalesce(sum(spent_ns), 0) FROM session";
        self.database.try_to(|c| c.query_row(sql, [], |row| Ok(nanoseconds(row.get(0)?))))
    }

    /// Files that ran on a host, with digests of their contents in the latest session.
    pub fn programs(&self, host: &str) -> Result<BTreeMap<String, String>> {
        let sql = "SELECT programs FROM session WHERE host = ?1 ORDER BY started_ns";
        let texts: Vec<String> = self.database.try_to(|c| {
            let mut rows = c.prepare(sql)?;
            rows.query_map([host], |row| row.get(0))?.collect()
        })?;
        let mut all = BTreeMap::new();
        for text in texts {
            all.extend(self.database.parse::<BTreeMap<String, String>>(&text)?);
        }
        Ok(all)
    }

    /// All runs, in an order that does not depend on the order of merges.
    pub fn results(&self) -> Result<Results> {
        let mut results = Results { figures: self.identity.figures.clone(), ..Results::default() };
        let stored: Vec<(i64, String)> = self.database.try_to(|c| {
            let mut rows = c.prepare("SELECT id, axes FROM point")?;
            rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })?;
        let mut points: Vec<(Axes, i64)> =
            stored.into_iter().map(|(id, axes)| Ok((self.database.parse(&axes)?, id))).collect::<Result<_>>()?;
        points.sort();
        let place: HashMap<i64, u32> = points.iter().zip(0..).map(|((_, id), at)| (*id, at)).collect();
        results.points = points.into_iter().map(|(axes, _)| axes).collect();
        results.simulated = results.points.iter().map(|axes| self.identity.is_simulated(axes)).collect();
        let sessions: Vec<(i64, String)> = self.database.try_to(|c| {
            let mut rows = c.prepare("SELECT id, host FROM session ORDER BY host, started_ns, key")?;
            rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })?;
        results.hosts = sessions.iter().map(|(_, host)| host.clone()).collect();
        results.hosts.dedup();
        self.database.try_to(|c| {
            let columns =
                "SELECT point, round, started_ns, elapsed_ns, figures, clock_before_hz, clock_after_hz, place";
            let mut runs = c.prepare(&format!("{columns} FROM run WHERE session = ?1"))?;
            let mut failures =
                c.prepare("SELECT point, cause, words FROM failure WHERE session = ?1 ORDER BY started_ns")?;
            // The machine may differ after an interruption: sessions do not share rounds.
            let (mut first, mut of) = (0, "");
            for (session, host) in &sessions {
                if of != host {
                    (first, of) = (0, host);
                }
                let host = results.hosts.iter().position(|name| name == host).unwrap_or(0) as u32;
                let mut found: Vec<(u32, Run)> = runs
                    .query_map([session], |row| Ok((row.get(7)?, read_run(row, &place, host, first)?)))?
                    .collect::<rusqlite::Result<_>>()?;
                found.sort_by_key(|(nth, run)| (run.round, *nth, run.point));
                first = found.last().map_or(first, |(_, run)| run.round + 1);
                results.runs.extend(found.into_iter().map(|(_, run)| run));
                let found = failures.query_map([session], |row| {
                    let point = place.get(&row.get(0)?).copied().unwrap_or(0);
                    Ok((point, format!("{}: {}", row.get::<_, String>(1)?, row.get::<_, String>(2)?)))
                })?;
                results.failures.extend(found.collect::<rusqlite::Result<Vec<_>>>()?);
            }
            Ok(())
        })?;
        Ok(results)
    }
}

fn read_run(row: &Row, place: &HashMap<i64, u32>, host: u32, first: u32) -> rusqlite::Result<Run> {
    let clock = |at| -> rusqlite::Result<Option<i64>> { row.get(at) };
    let clock = match (clock(5)?, clock(6)?) {
        (Some(before), Some(after)) => Some((before + after) / 2),
        (one, other) => one.or(other),
    };
    Ok(Run {
        point: place.get(&row.get(0)?).copied().unwrap_or(0),
        host,
        round: first + row.get::<_, u32>(1)?,
        started: nanoseconds(row.get(2)?),
        elapsed: nanoseconds(row.get(3)?),
        values: unpacked(row.get_ref(4)?.as_blob()?),
        clock: clock.map(|clock| Hertz(clock as u64)),
    })
}

fn packed(values: &[Option<f64>]) -> Vec<u8> {
    values.iter().flat_map(|value| value.unwrap_or(f64::NAN).to_le_bytes()).collect()
}

fn unpacked(bytes: &[u8]) -> Vec<Option<f64>> {
    let (values, _) = bytes.as_chunks::<8>();
    values.iter().map(|bytes| Some(f64::from_le_bytes(*bytes)).filter(|value| !value.is_nan())).collect()
}
