//! The store of all jobs: a row a job, and sums by month, program, partition and group, which answer questions without reading
//! the rows.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use machine::here::now;
use machine::{Fault, Result, named};
use profile::verdict::Cause;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior, params};

use crate::summary::{Lever, Summary, Unjudged, short};

/// `PRAGMA application_id` and `user_version`.
const APPLICATION: i64 = 0x504c_4654;
const LAYOUT: i64 = 2;
/// Wait for another writer, which holds the store for a batch.
const TIMEOUT: Duration = Duration::from_secs(60);

const TABLES: &str = "
CREATE TABLE word (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE program (id INTEGER PRIMARY KEY, name TEXT NOT NULL, hash TEXT NOT NULL, UNIQUE (name, hash));
CREATE TABLE job (
    id INTEGER PRIMARY KEY,
    -- Begins with `started`, so that jobs of one time are neighbours in the index; what its summary held.
    key BLOB NOT NULL UNIQUE,
    content BLOB NOT NULL,
    -- Seconds since 1970, and of the run.
    started INTEGER NOT NULL,
    seconds REAL NOT NULL,
    program INTEGER NOT NULL REFERENCES program,
    partition INTEGER NOT NULL REFERENCES word,
    grp INTEGER NOT NULL REFERENCES word,
    user INTEGER NOT NULL,
    nodes INTEGER NOT NULL,
    cores INTEGER NOT NULL,
    ranks INTEGER NOT NULL,
    lost INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    mpi REAL,
    wait REAL,
    -- Why no lever was judged, else NULL.
    unjudged INTEGER,
    -- Least and most gain of each lever, in 4-byte floats; NaN where it is not known.
    gains BLOB NOT NULL
);
CREATE INDEX job_of_program ON job (program);
CREATE TABLE sum (
    month INTEGER NOT NULL,
    program INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    grp INTEGER NOT NULL,
    -- A lever, or 0 for all jobs, or -1 - N for those that could not be judged for the reason N, or -100 - N for those that the
    -- Nth cause hindered (0: an unknown one), or -200 and -201 for those whose ranks all had cores of their own, and had not.
    kind INTEGER NOT NULL,
    jobs INTEGER NOT NULL,
    core_seconds REAL NOT NULL,
    -- Of a lever: what it would save of these core seconds. Of all jobs: time in MPI and of it waiting. Of a cause: what it took.
    low REAL NOT NULL,
    high REAL NOT NULL,
    PRIMARY KEY (month, program, partition, grp, kind)
) WITHOUT ROWID;
";
/// Not in layout 1.
const EVENTS: &str = "
CREATE TABLE event (
    what TEXT PRIMARY KEY,
    count INTEGER NOT NULL,
    -- When it last was, in seconds since 1970 by the clock of who adds.
    latest INTEGER NOT NULL
) WITHOUT ROWID;
";

/// From layout 1, whose keys were digests alone. Summaries are gone once they are in a store, so that it has to be converted.
const CONVERT: &str = "UPDATE job SET key = CAST(unhex(printf('%010x', started)) || substr(key, 1, 11) AS BLOB); PRAGMA user_version = 2;";

/// Kinds of sums besides levers, which count from 1.
pub const ALL_JOBS: i64 = 0;

pub const fn kind_of_lever(lever: Lever) -> i64 {
    1 + lever as i64
}

pub const fn kind_of_unjudged(why: Unjudged) -> i64 {
    -1 - why as i64
}

pub fn kind_of_hindrance(cause: Option<Cause>) -> i64 {
    -100 - cause.map_or(0, |cause| 1 + cause as i64)
}

pub const BOUND: i64 = -200;
pub const UNBOUND: i64 = -201;

named! {
    /// What befalls a store.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Event {
        /// All summaries of a spool were taken or set aside.
        Added = "added",
        New = "new",
        Known = "known",
        Aside = "aside",
        /// The folder of a dead step was removed.
        Swept = "swept",
    }
}

/// What became of a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    New,
    /// The store has it.
    Known,
    /// The store has another summary of this step.
    Contradicts,
}

pub struct Store {
    connection: Connection,
    path: PathBuf,
    /// What its jobs are, where they are no jobs of this centre.
    label: Option<&'static str>,
}

impl Store {
    /// Opens the store to add to it, and makes it where there is none. One of an earlier layout is converted.
    ///
    /// # Errors
    /// The file is damaged, of another program or version, or may not be written.
    pub fn open(path: &Path) -> Result<Store> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let store = Store::connect(path, flags)?;
        store.check(true)?;
        store.try_to(|c| c.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())))?;
        store.try_to(|c| c.pragma_update(None, "synchronous", "NORMAL"))?;
        Ok(store)
    }

    /// Opens a store to ask it.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn read(path: &Path) -> Result<Store> {
        if !path.exists() {
            let next = "add summaries: plimsoll fleet add DIR, or name the store with --store FILE";
            return Err(Fault::new(format!("store {}", path.display()), "there is none", next));
        }
        let store = Store::connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        store.check(false)?;
        Ok(store)
    }

    /// A store that ends with this process, and what its jobs are.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn in_memory(label: &'static str) -> Result<Store> {
        let store = Store { label: Some(label), ..Store::connect(Path::new(":memory:"), OpenFlags::default())? };
        store.check(true)?;
        Ok(store)
    }

    pub fn label(&self) -> Option<&'static str> {
        self.label
    }

    fn connect(path: &Path, flags: OpenFlags) -> Result<Store> {
        let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)
            .and_then(|connection| {
                connection.busy_timeout(TIMEOUT)?;
                connection.pragma_update(None, "cache_size", -65_536)?;
                Ok(connection)
            })
            .map_err(|error| fault(path, error))?;
        Ok(Store { connection, path: path.into(), label: None })
    }

    fn check(&self, may_make: bool) -> Result<()> {
        let of = |name: &str| self.try_to(|c| c.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0)));
        let tables = |c: &Connection| c.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0));
        if may_make && of("application_id")? == 0 && self.try_to(tables)? == 0 {
            // Of two that make it at once, the second finds it made.
            self.try_to(|c| {
                let made = Transaction::new_unchecked(c, TransactionBehavior::Immediate)?;
                if tables(&made)? == 0 {
                    made.execute_batch(TABLES)?;
                    made.execute_batch(EVENTS)?;
                    made.pragma_update(None, "application_id", APPLICATION)?;
                    made.pragma_update(None, "user_version", LAYOUT)?;
                }
                made.commit()
            })?;
        }
        if may_make && (of("application_id")?, of("user_version")?) == (APPLICATION, 1) {
            self.try_to(|c| {
                let converting = Transaction::new_unchecked(c, TransactionBehavior::Immediate)?;
                if converting.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0))? == 1 {
                    converting.execute_batch(EVENTS)?;
                    converting.execute_batch(CONVERT)?;
                }
                converting.commit()
            })?;
        }
        let subject = format!("store {}", self.path.display());
        match (of("application_id")?, of("user_version")?) {
            // What is asked of a store is the same in both.
            (APPLICATION, 1 | LAYOUT) => Ok(()),
            (APPLICATION, other) => Err(Fault::new(
                subject,
                format!("it has layout {other}; this version knows layout {LAYOUT}"),
                "use the version that wrote it, or name another with --store FILE",
            )),
            _ => Err(Fault::new(subject, "it is no store of jobs", "name another with --store FILE")),
        }
    }

    pub fn try_to<T>(&self, act: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        act(&self.connection).map_err(|error| fault(&self.path, error))
    }

    /// Adds summaries, all or none; tells of each what became of it.
    ///
    /// # Errors
    /// The store cannot be written; it is as it was.
    pub fn add(&mut self, summaries: &[Summary]) -> Result<Vec<Taken>> {
        self.try_to(|c| {
            let transaction = Transaction::new_unchecked(c, TransactionBehavior::Immediate)?;
            let mut batch = Batch::default();
            let taken: Vec<Taken> =
                summaries.iter().map(|summary| batch.add(&transaction, summary)).collect::<Result<_, _>>()?;
            batch.write_sums(&transaction)?;
            let counted = |what| taken.iter().filter(|taken| **taken == what).count() as u64;
            note(&transaction, Event::New, counted(Taken::New))?;
            note(&transaction, Event::Known, counted(Taken::Known))?;
            transaction.commit()?;
            Ok(taken)
        })
    }

    /// Counts an event.
    ///
    /// # Errors
    /// The store cannot be written.
    pub fn note(&mut self, what: Event, count: u64) -> Result<()> {
        self.try_to(|c| note(c, what, count))
    }

    /// How often each event was, and when last, in seconds since 1970; none where nobody counted.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn events(&self) -> Result<Option<BTreeMap<Event, (u64, u64)>>> {
        self.try_to(|c| {
            if !c.table_exists(None, "event")? {
                return Ok(None);
            }
            let mut rows = c.prepare("SELECT what, count, latest FROM event")?;
            let rows = rows.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get(1)?, row.get(2)?)))?;
            let known = |what: &str| Event::ALL.into_iter().find(|event| event.name() == what);
            let found = rows
                .filter_map(|row| row.map(|(what, count, latest)| Some((known(&what)?, (count, latest)))).transpose());
            found.collect::<rusqlite::Result<_>>().map(Some)
        })
    }
}

fn note(c: &Connection, what: Event, count: u64) -> rusqlite::Result<()> {
    if count == 0 {
        return Ok(());
    }
    let now = now().0 / 1_000_000_000;
    c.prepare_cached(
        "INSERT INTO event VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET count = count + ?2, latest = ?3",
    )?
    .execute(params![what.name(), count, now])?;
    Ok(())
}

type Place = (i64, i64, i64, i64, i64);

/// The identifiers and sums of a batch.
#[derive(Default)]
struct Batch {
    words: HashMap<String, i64>,
    programs: HashMap<(String, String), i64>,
    /// Jobs, core seconds, least and most.
    sums: HashMap<Place, (i64, f64, f64, f64)>,
}

impl Batch {
    fn add(&mut self, c: &Connection, of: &Summary) -> rusqlite::Result<Taken> {
        let key = of.key();
        let content = short(&serde_json::to_vec(of).expect("a summary serializes"));
        let known = c
            .prepare_cached("SELECT content FROM job WHERE key = ?1")?
            .query_map([key], |row| row.get::<_, [u8; 16]>(0))?
            .next()
            .transpose()?;
        match known {
            Some(known) if known == content => return Ok(Taken::Known),
            Some(_) => return Ok(Taken::Contradicts),
            None => {}
        }
        let (partition, group) = (self.word(c, &of.partition)?, self.word(c, &of.owner.group)?);
        let program = self.program(c, &of.program.name, of.program.hash.as_deref().unwrap_or_default())?;
        let gains: Vec<u8> = Lever::ALL
            .into_iter()
            .map(|lever| of.gain(lever).unwrap_or((f64::NAN, f64::NAN)))
            .flat_map(|(low, high)| [(low as f32).to_le_bytes(), (high as f32).to_le_bytes()].concat())
            .collect();
        c.prepare_cached(
            "INSERT INTO job (key, content, started, seconds, program, partition, grp, user, nodes, cores, ranks, lost, ended, \
             mpi, wait, unjudged, gains) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
        )?
        .execute(params![
            key,
            content,
            of.started as i64,
            of.seconds,
            program,
            partition,
            group,
            of.owner.user,
            of.nodes,
            of.cores,
            of.ranks,
            of.expected - of.ranks,
            of.end as i64,
            of.mpi,
            of.wait,
            of.unjudged.map(|why| why as i64),
            gains,
        ])?;
        let time = of.core_seconds();
        let mut count = |kind, low: f64, high: f64| {
            let sum = self.sums.entry((month(of.started), program, partition, group, kind)).or_default();
            *sum = (sum.0 + 1, sum.1 + time, sum.2 + low * time, sum.3 + high * time);
        };
        count(ALL_JOBS, of.mpi.unwrap_or(0.0), of.wait.unwrap_or(0.0));
        if let Some(why) = of.unjudged {
            count(kind_of_unjudged(why), 0.0, 0.0);
        }
        let mut causes: BTreeMap<i64, f64> = BTreeMap::new();
        for hindrance in &of.hindrances {
            let cause = Cause::ALL.into_iter().find(|cause| cause.name() == hindrance.cause);
            *causes.entry(kind_of_hindrance(cause)).or_default() += hindrance.share;
        }
        causes.into_iter().for_each(|(kind, share)| count(kind, share.min(1.0), 0.0));
        if let Some(unbound) = of.unbound {
            count(if unbound == 0 { BOUND } else { UNBOUND }, 0.0, 0.0);
        }
        for gain in &of.levers {
            count(kind_of_lever(gain.lever), gain.share.0, gain.share.1);
        }
        Ok(Taken::New)
    }

    fn word(&mut self, c: &Connection, text: &str) -> rusqlite::Result<i64> {
        if let Some(&id) = self.words.get(text) {
            return Ok(id);
        }
        c.prepare_cached("INSERT OR IGNORE INTO word (text) VALUES (?1)")?.execute([text])?;
        let id = c.prepare_cached("SELECT id FROM word WHERE text = ?1")?.query_row([text], |row| row.get(0))?;
        self.words.insert(text.to_owned(), id);
        Ok(id)
    }

    fn program(&mut self, c: &Connection, name: &str, hash: &str) -> rusqlite::Result<i64> {
        let key = (name.to_owned(), hash.to_owned());
        if let Some(&id) = self.programs.get(&key) {
            return Ok(id);
        }
        c.prepare_cached("INSERT OR IGNORE INTO program (name, hash) VALUES (?1, ?2)")?.execute([name, hash])?;
        let found = "SELECT id FROM program WHERE name = ?1 AND hash = ?2";
        let id = c.prepare_cached(found)?.query_row([name, hash], |row| row.get(0))?;
        self.programs.insert(key, id);
        Ok(id)
    }

    fn write_sums(&self, c: &Connection) -> rusqlite::Result<()> {
        let mut write = c.prepare_cached(
            "INSERT INTO sum VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
             ON CONFLICT DO UPDATE SET jobs = jobs + ?6, core_seconds = core_seconds + ?7, low = low + ?8, high = high + ?9",
        )?;
        for (&(month, program, partition, group, kind), &(jobs, seconds, low, high)) in &self.sums {
            write.execute(params![month, program, partition, group, kind, jobs, seconds, low, high])?;
        }
        Ok(())
    }
}

/// Months since the year 0 of a moment in seconds since 1970, by UTC.
pub fn month(seconds: u64) -> i64 {
    // Days to a civil date (Howard Hinnant, 'chrono-compatible low-level date algorithms').
    let days = (seconds / 86_400) as i64 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let (year, month) = (year + era * 400, (shifted + 2) % 12);
    (year + i64::from(month < 2)) * 12 + month
}

/// A month as `2026-11`.
pub fn month_name(month: i64) -> String {
    format!("{}-{:02}", month / 12, month % 12 + 1)
}

fn fault(path: &Path, error: rusqlite::Error) -> Fault {
    let subject = format!("store {}", path.display());
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            let next = format!("move it away (mv {0} {0}.damaged) and add summaries anew", path.display());
            Fault::because(subject, error, next)
        }
        Some(ErrorCode::DiskFull) => {
            Fault::because(subject, error, "free some space and add again: what was not taken is still in the spool")
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            Fault::new(subject, "another process adds to it for more than a minute", "add again when it has ended")
        }
        _ => Fault::because(subject, error, "name a place that you may read and write with --store FILE"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_are_those_of_the_calendar() {
        let of = |seconds| month_name(month(seconds));
        assert_eq!([of(0), of(951_782_400), of(951_868_800)], ["1970-01", "2000-02", "2000-03"]);
        assert_eq!([of(1_767_225_599), of(1_767_225_600)], ["2025-12", "2026-01"]);
    }
}
