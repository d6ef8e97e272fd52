//! Merge of stores of one study. Keys follow from content, so the order and the number of merges do not matter.

use std::collections::HashMap;
use std::path::Path;

use machine::{Fault, Result};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params};

use super::store::Store;

/// Counts of a merge: rows added, and runs already there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Joined {
    pub sessions: u64,
    pub runs: u64,
    pub failures: u64,
    /// Runs that the store already had.
    pub known: u64,
}

/// Tables whose rows belong to a session and a point: name, number of columns, number of key columns.
const TABLES: [(&str, usize, usize); 2] = [("run", 12, 4), ("failure", 7, 5)];

impl Store {
    /// Adds all rows of another store of this study.
    ///
    /// # Errors
    /// The other store is of another study; a run differs between the two; one of them fails. Then no row is added.
    pub fn join(&mut self, other: &Store) -> Result<Joined> {
        other.check_identity(&self.identity, "merge stores of one study file alone, each into a store of its own")?;
        let rows = other.database.try_to(Rows::read)?;
        let mut conflict = None;
        let joined = self.database.try_to(|c| {
            let transaction = c.unchecked_transaction()?;
            let joined = rows.write(c, &mut conflict)?;
            if conflict.is_none() {
                transaction.commit()?;
            }
            Ok(joined)
        })?;
        match conflict {
            None => Ok(joined),
            Some(what) => {
                let next = "one of the two was changed by hand or is damaged: measure its shard again";
                Err(Fault::new(other.database.subject(), format!("{what} is in both stores and differs"), next))
            }
        }
    }
}

/// All rows of a store.
struct Rows {
    /// Row, key, and the other columns.
    sessions: Vec<(i64, String, Vec<Value>)>,
    points: Vec<(i64, String, String)>,
    tables: [Vec<Vec<Value>>; 2],
}

const SESSION: &str = "host, boot, version, shard, nodes, programs, started_ns, spent_ns";
const SESSION_COLUMNS: usize = 8;

impl Rows {
    fn read(c: &Connection) -> rusqlite::Result<Rows> {
        let mut sessions = c.prepare(&format!("SELECT id, key, {SESSION} FROM session"))?;
        let sessions = sessions.query_map([], |row| {
            let others = (2..2 + SESSION_COLUMNS).map(|at| row.get(at)).collect::<rusqlite::Result<_>>()?;
            Ok((row.get(0)?, row.get(1)?, others))
        })?;
        let sessions = sessions.collect::<rusqlite::Result<_>>()?;
        let mut points = c.prepare("SELECT id, key, axes FROM point")?;
        let points = points.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let points = points.collect::<rusqlite::Result<_>>()?;
        let mut tables = [Vec::new(), Vec::new()];
        for ((table, columns, _), rows) in TABLES.into_iter().zip(&mut tables) {
            let mut found = c.prepare(&format!("SELECT * FROM {table}"))?;
            let found = found.query_map([], |row| (0..columns).map(|at| row.get(at)).collect())?;
            *rows = found.collect::<rusqlite::Result<_>>()?;
        }
        Ok(Rows { sessions, points, tables })
    }

    fn write(self, c: &Connection, conflict: &mut Option<String>) -> rusqlite::Result<Joined> {
        let mut joined = Joined::default();
        let mut sessions: HashMap<i64, i64> = HashMap::new();
        for (theirs, key, others) in self.sessions {
            let mut find = c.prepare_cached("SELECT id FROM session WHERE key = ?1")?;
            let known: Option<i64> = find.query_row([&key], |row| row.get(0)).optional()?;
            if let Some(ours) = known {
                // Of two copies of a session the later one has more time spent.
                c.prepare_cached("UPDATE session SET spent_ns = max(spent_ns, ?2) WHERE id = ?1")?
                    .execute(params![ours, others[SESSION_COLUMNS - 1]])?;
                sessions.insert(theirs, ours);
                continue;
            }
            let mut add = c.prepare_cached(&format!(
                "INSERT INTO session (key, {SESSION}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)"
            ))?;
            add.execute(rusqlite::params_from_iter(std::iter::once(Value::Text(key)).chain(others)))?;
            joined.sessions += 1;
            sessions.insert(theirs, c.last_insert_rowid());
        }
        let mut points: HashMap<i64, i64> = HashMap::new();
        for (theirs, key, axes) in self.points {
            c.prepare_cached("INSERT OR IGNORE INTO point (key, axes) VALUES (?1, ?2)")?.execute(params![key, axes])?;
            let mut find = c.prepare_cached("SELECT id FROM point WHERE key = ?1")?;
            points.insert(theirs, find.query_row([&key], |row| row.get(0))?);
        }
        for ((table, columns, keys), rows) in TABLES.into_iter().zip(self.tables) {
            let marks = vec!["?"; columns].join(", ");
            let mut add = c.prepare(&format!("INSERT OR IGNORE INTO {table} VALUES ({marks})"))?;
            let names = ["session", "point", "round", "place", "started_ns"][..keys].join(" = ? AND ");
            let mut find = c.prepare(&format!("SELECT * FROM {table} WHERE {names} = ?"))?;
            for mut row in rows {
                for (at, map) in [(0, &sessions), (1, &points)] {
                    if let Value::Integer(theirs) = row[at] {
                        row[at] = map.get(&theirs).map_or(Value::Null, |ours| Value::Integer(*ours));
                    }
                }
                let added = add.execute(rusqlite::params_from_iter(&row))? as u64;
                match table {
                    "run" => joined.runs += added,
                    _ => joined.failures += added,
                }
                if added == 0 {
                    let there: Vec<Value> = find.query_row(rusqlite::params_from_iter(&row[..keys]), |found| {
                        (0..columns).map(|at| found.get(at)).collect()
                    })?;
                    if there != row {
                        *conflict = Some(format!("a {table} of round {}", words(&row[2])));
                        return Ok(joined);
                    }
                    joined.known += u64::from(table == "run");
                }
            }
        }
        Ok(joined)
    }
}

fn words(value: &Value) -> String {
    match value {
        Value::Integer(number) => (number + 1).to_string(),
        _ => "?".to_owned(),
    }
}

/// Merges the stores at `inputs` into the one at `output`, which is created if missing. `seen` is called after each.
///
/// # Errors
/// As [`Store::join`]; the inputs before the one that fails stay merged.
pub fn merge(output: &Path, inputs: &[impl AsRef<Path>], mut seen: impl FnMut(&Path, Joined)) -> Result<Store> {
    let subject = || format!("store {}", output.display());
    let Some(first) = inputs.first() else {
        return Err(Fault::new(
            subject(),
            "there is nothing to merge into it",
            "name the stores of the shards after it",
        ));
    };
    // The output decides the study; if it is empty, the first input does.
    let there = output.metadata().is_ok_and(|file| file.len() > 0);
    let identity = Store::read(if there { output } else { first.as_ref() })?.identity;
    let mut store = Store::open(output, &identity)?;
    for input in inputs {
        let input = input.as_ref();
        let is_output = input.canonicalize().ok().is_some_and(|of| output.canonicalize().is_ok_and(|out| out == of));
        if is_output {
            return Err(Fault::new(
                subject(),
                "it is to be merged into itself",
                "name the merged store first, and once",
            ));
        }
        let joined = store.join(&Store::read(input)?)?;
        seen(input, joined);
    }
    Ok(store)
}
