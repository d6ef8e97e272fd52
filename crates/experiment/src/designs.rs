//! The store of designs of one kind, studies or trials: each with its machine, its start and the time spent so far.

use std::marker::PhantomData;
use std::path::Path;

use machine::{Fault, Nanoseconds, Result};
use rusqlite::{OptionalExtension, Row, Transaction, params};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::database::{Database, Layout, json, nanoseconds};
use crate::findings::Fact;

/// The tables of a store of designs.
macro_rules! tables {
    ($further:literal) => {
        concat!(
            "
CREATE TABLE design (
    id INTEGER PRIMARY KEY,
    hash TEXT NOT NULL,
    design TEXT NOT NULL,
    seed INTEGER NOT NULL,
    -- Machine and boot: it goes on only where it began.
    host TEXT NOT NULL,
    version TEXT NOT NULL,
    facts TEXT NOT NULL,
    started_ns INTEGER NOT NULL,
    finished_ns INTEGER,
    spent_ns INTEGER NOT NULL DEFAULT 0
);",
            $further
        )
    };
}
pub(crate) use tables;

const COLUMNS: &str = "id, design, seed, host, version, facts, started_ns, finished_ns, spent_ns";

pub trait Designed: Clone + Serialize + DeserializeOwned {
    /// Layout of the stores of such designs.
    const LAYOUT: &'static Layout;

    /// Hash of the comparison: an unfinished design continues only under the same hash.
    fn hash(&self) -> String;

    /// Adds the rows of the other tables for a new design of this number.
    fn enter(&self, transaction: &Transaction, id: i64) -> rusqlite::Result<()>;
}

/// An open store.
pub struct Store<D> {
    pub(crate) database: Database,
    of: PhantomData<D>,
}

/// Hash of the content, in 32 hexadecimal digits.
pub(crate) fn hash(of: &impl Serialize) -> String {
    let canonical = serde_json::to_vec(of).expect("a design always serializes");
    Sha256::digest(canonical)[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A study or a trial that was begun, as stored in its row.
#[derive(Debug, Clone, PartialEq)]
pub struct Begun<D> {
    pub id: i64,
    pub design: D,
    pub seed: u64,
    pub host: String,
    pub version: String,
    /// Facts about the machine.
    pub facts: Vec<Fact>,
    /// Time since the Unix epoch, like `finished`.
    pub started: Nanoseconds,
    /// `None` while it can go on.
    pub finished: Option<Nanoseconds>,
    /// Time that it took, over all sittings.
    pub spent: Nanoseconds,
}

/// The data with which a study or a trial begins.
pub struct Beginning<'a, D> {
    pub design: &'a D,
    pub seed: u64,
    /// Identifies machine and boot.
    pub host: &'a str,
    pub version: &'a str,
    pub facts: &'a [Fact],
    pub now: Nanoseconds,
}

impl<D: Designed> Store<D> {
    /// Opens the store at `path` to measure into, or makes it. Faults where it is corrupt, foreign, newer, measured into
    /// by another process or not writable; the file is left as it is.
    pub fn open(path: &Path) -> Result<Store<D>> {
        Ok(Store { database: Database::open(path, D::LAYOUT)?, of: PhantomData })
    }

    /// Opens a store that must be there, to read it, also while another process measures into it.
    pub fn read(path: &Path) -> Result<Store<D>> {
        Ok(Store { database: Database::read(path, D::LAYOUT)?, of: PhantomData })
    }

    /// Adds a design.
    pub fn begin(&mut self, beginning: &Beginning<D>) -> Result<Begun<D>> {
        let Beginning { design, seed, host, version, facts, now } = *beginning;
        let id = self.database.try_to(|c| {
            let transaction = c.unchecked_transaction()?;
            transaction.execute(
                "INSERT INTO design (hash, design, seed, host, version, facts, started_ns) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![design.hash(), json(design), seed as i64, host, version, json(facts), now.0 as i64],
            )?;
            let id = transaction.last_insert_rowid();
            design.enter(&transaction, id)?;
            transaction.commit()?;
            Ok(id)
        })?;
        self.numbered(id)
    }

    /// The latest of this design on this machine and boot that can go on.
    pub fn unfinished(&self, design: &D, host: &str) -> Result<Option<Begun<D>>> {
        let sql = "SELECT max(id) FROM design WHERE hash = ?1 AND host = ?2 AND finished_ns IS NULL";
        let id: Option<i64> =
            self.database.try_to(|c| c.query_row(sql, params![design.hash(), host], |row| row.get(0)))?;
        id.map(|id| self.numbered(id)).transpose()
    }

    /// All designs, in the order in which they were begun.
    ///
    /// # Errors
    /// The store has no design.
    pub fn all(&self) -> Result<Vec<Begun<D>>> {
        let ids: Vec<i64> = self.database.try_to(|c| {
            let mut rows = c.prepare("SELECT id FROM design ORDER BY id")?;
            rows.query_map([], |row| row.get(0))?.collect()
        })?;
        if ids.is_empty() {
            Err(self.database.holds_none())
        } else {
            ids.into_iter().map(|id| self.numbered(id)).collect()
        }
    }

    /// The design of that number; without a number the latest that finished, or the latest of all where none has.
    ///
    /// # Errors
    /// The store has no design, or none of that number.
    pub fn chosen(&self, number: Option<i64>) -> Result<Begun<D>> {
        let [chosen, last]: [Option<i64>; 2] = self.database.try_to(|c| {
            let latest = "SELECT max(CASE WHEN finished_ns IS NULL THEN NULL ELSE id END), max(id) FROM design";
            let (finished, last): (Option<i64>, Option<i64>) =
                c.query_row(latest, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let there = |id: i64| c.query_row("SELECT id FROM design WHERE id = ?1", [id], |row| row.get(0)).optional();
            Ok([number.map_or(Ok(finished.or(last)), there)?, last])
        })?;
        match (chosen, last) {
            (Some(id), _) => self.numbered(id),
            (None, None) => Err(self.database.holds_none()),
            (None, Some(last)) => {
                let cause = format!("it holds no {} {}", self.database.what(), number.unwrap_or_default());
                Err(Fault::new(self.database.subject(), cause, format!("name one from 1 to {last}")))
            }
        }
    }

    fn numbered(&self, id: i64) -> Result<Begun<D>> {
        let sql = format!("SELECT {COLUMNS} FROM design WHERE id = ?1");
        let (begun, design, facts): (_, String, String) =
            self.database.try_to(|c| c.query_row(&sql, [id], |row| Ok((of(row)?, row.get(1)?, row.get(5)?))))?;
        let Begun { id, seed, host, version, started, finished, spent, .. } = begun;
        let (design, facts) = (self.database.parse(&design)?, self.database.parse(&facts)?);
        Ok(Begun { id, design, seed, host, version, facts, started, finished, spent })
    }

    /// Commits the outcome of a run or a block, and charges the design for its time.
    pub(crate) fn charge(
        &self,
        begun: &Begun<D>,
        spent: Nanoseconds,
        keep: impl FnOnce(&Transaction) -> rusqlite::Result<usize>,
    ) -> Result<()> {
        self.database.try_to(|c| {
            let transaction = c.unchecked_transaction()?;
            keep(&transaction)?;
            let sql = "UPDATE design SET spent_ns = spent_ns + ?2 WHERE id = ?1";
            transaction.prepare_cached(sql)?.execute(params![begun.id, spent.0 as i64])?;
            transaction.commit()
        })
    }

    /// Marks a design as done.
    pub fn finish(&mut self, begun: &mut Begun<D>, now: Nanoseconds) -> Result<()> {
        let sql = "UPDATE design SET finished_ns = ?2 WHERE id = ?1";
        self.database.try_to(|c| c.execute(sql, params![begun.id, now.0 as i64]))?;
        begun.finished = Some(now);
        Ok(())
    }
}

/// The row without the columns stored as JSON.
fn of(row: &Row) -> rusqlite::Result<Begun<()>> {
    Ok(Begun {
        id: row.get(0)?,
        design: (),
        seed: row.get::<_, i64>(2)? as u64,
        host: row.get(3)?,
        version: row.get(4)?,
        facts: Vec::new(),
        started: nanoseconds(row.get(6)?),
        finished: row.get::<_, Option<i64>>(7)?.map(nanoseconds),
        spent: nanoseconds(row.get(8)?),
    })
}
