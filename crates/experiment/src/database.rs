//! The SQLite file of a store. One process at a time writes to it; others may read it meanwhile. Commits survive any end of
//! the process.

mod log;

use std::fs::File;
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use machine::lock::{Lock, beside};
use machine::{Fault, Nanoseconds, Probe, Result};
use rusqlite::{Connection, ErrorCode, MAIN_DB, OpenFlags};

/// The kind and layout of a store.
#[derive(Debug)]
pub struct Layout {
    /// Number of the layout, in `PRAGMA user_version`.
    pub number: i64,
    /// Identifies the kind of store, in `PRAGMA application_id`.
    pub application: i64,
    pub tables: &'static str,
    /// Name of the stored experiment: "study".
    pub what: &'static str,
    /// The command that fills the store.
    pub command: &'static str,
}

/// Largest store, in bytes, that is read from a copy; a larger one is read in place, with a lock.
const MOST_COPIED: u64 = 1 << 30;

/// An open store.
pub struct Database {
    layout: &'static Layout,
    connection: Connection,
    path: PathBuf,
    /// The writer's lock; `None` for a reader.
    _measures: Option<Lock>,
}

/// Wait for the lock, which a process just forked also holds until its exec.
const TIMEOUT: Duration = Duration::from_millis(200);
const IN_USE: &str = "wait until that one ends, or give another place with --store FILE";

impl Database {
    /// Opens the store at `path` for writing, or creates it. Faults if the store is corrupt, foreign, of another layout, not
    /// writable or in use by another writer; the file is left unchanged.
    pub fn open(path: &FilePath, layout: &'static Layout) -> Result<Database> {
        if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(|error| {
                Fault::because(format!("store {}", path.display()), error, "give another place with --store FILE")
            })?;
        }
        // This descriptor is closed before SQLite connects: the locks of a process on a file end when any of its descriptors
        // of the file is closed.
        File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(|error| {
            Fault::because(
                format!("store {}", path.display()),
                error,
                "give a place that you may write with --store FILE",
            )
        })?;
        let lock = Lock::take(&beside(path), &format!("store {}", path.display()), TIMEOUT, IN_USE)?;
        let fail = |error| fault(path, layout, error);
        let connection = connect(path.as_os_str(), OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(fail)?;
        let database = Database { layout, connection, path: path.to_path_buf(), _measures: Some(lock) };
        database.check(true)?;
        // A commit is in the log, hence in the kernel, before it returns: kill -9 loses nothing; NORMAL keeps fsync out of
        // the time between two blocks.
        database.try_to(|c| c.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())))?;
        database.try_to(|c| c.pragma_update(None, "synchronous", "NORMAL"))?;
        database.try_to(|c| c.pragma_update(None, "foreign_keys", true))?;
        Ok(database)
    }

    /// Opens an existing store for reading, also while a study writes to it.
    pub fn read(path: &FilePath, layout: &'static Layout) -> Result<Database> {
        let there = path.canonicalize().map_err(|error| {
            let next = format!("run `{}` first, or name its store with --store FILE", layout.command);
            Fault::because(format!("store {}", path.display()), error, next)
        })?;
        // A store at rest is copied: a copy needs no lock, no file beside it, nor a writable folder, and stays as it
        // is when a study begins.
        let connection = match idle_bytes(&there) {
            Some(bytes) => copy(bytes),
            None => open_with_log(&there),
        };
        let connection = connection.map_err(|error| unread(path, layout, error))?;
        let database = Database { layout, connection, path: path.to_path_buf(), _measures: None };
        database.check(false)?;
        Ok(database)
    }

    fn check(&self, may_make: bool) -> Result<()> {
        let verdict: String = self.try_to(|c| c.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)))?;
        if verdict != "ok" {
            return Err(corrupt(&self.path, self.layout, &verdict));
        }
        let layout: i64 = self.try_to(|c| c.query_row("PRAGMA user_version", [], |row| row.get(0)))?;
        let application: i64 = self.try_to(|c| c.query_row("PRAGMA application_id", [], |row| row.get(0)))?;
        let tables: i64 = self.try_to(|c| c.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)))?;
        match (application, layout) {
            (0, 0) if tables == 0 && !may_make => Err(self.holds_none()),
            (0, 0) if tables == 0 => self.try_to(|c| {
                let Layout { tables, application, number, .. } = self.layout;
                c.execute_batch(&format!(
                    "BEGIN IMMEDIATE; {tables} PRAGMA application_id = {application}; PRAGMA user_version = {number}; COMMIT;"
                ))
            }),
            (application, number) if (application, number) == (self.layout.application, self.layout.number) => Ok(()),
            (application, other) if application == self.layout.application => Err(Fault::new(
                self.subject(),
                format!("it has layout {other}; this version knows layout {}", self.layout.number),
                "use the version that wrote it, or give another place with --store FILE",
            )),
            _ => Err(Fault::new(
                self.subject(),
                "it is a database of another program",
                "give another place with --store FILE",
            )),
        }
    }

    pub fn try_to<T>(&self, act: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        act(&self.connection).map_err(|error| fault(&self.path, self.layout, error))
    }

    pub fn subject(&self) -> String {
        format!("store {}", self.path.display())
    }

    /// Name of the stored experiment: "study".
    pub fn what(&self) -> &'static str {
        self.layout.what
    }

    pub fn holds_none(&self) -> Fault {
        let Layout { what, command, .. } = self.layout;
        let next = format!("run `{command}` first, or name another with --store FILE");
        Fault::new(self.subject(), format!("it holds no {what}"), next)
    }

    pub fn parse<T: serde::de::DeserializeOwned>(&self, text: &str) -> Result<T> {
        serde_json::from_str(text).map_err(|error| corrupt(&self.path, self.layout, &error.to_string()))
    }
}

fn connect(name: impl AsRef<FilePath>, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(name, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(Duration::from_millis(200))?;
    Ok(connection)
}

/// The bytes of a store without a writer; `None` if it has a log, changes meanwhile or exceeds [`MOST_COPIED`].
fn idle_bytes(path: &FilePath) -> Option<Vec<u8>> {
    // Every writer keeps one of these files while it writes.
    let logs = ["-wal", "-journal"].map(|end| ending(path, end));
    let state = || {
        let file = std::fs::metadata(path).ok()?;
        logs.iter().all(|log| !log.exists()).then(|| (file.len(), file.modified().ok()))
    };
    let before = state().filter(|(length, _)| *length <= MOST_COPIED)?;
    let bytes = std::fs::read(path).ok()?;
    (state() == Some(before)).then_some(bytes)
}

fn ending(path: &FilePath, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

/// Opens a store that has a log, of a running or a killed study. SQLite writes beside a store even to read it; where the
/// folder is not writable, a copy of store and log is read.
fn open_with_log(path: &FilePath) -> rusqlite::Result<Connection> {
    let direct = connect(path.as_os_str(), OpenFlags::SQLITE_OPEN_READ_ONLY).and_then(|connection| {
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        Ok(connection)
    });
    match direct {
        Err(error) if may_not_write(&error) => match bytes_with_log(path) {
            Some(bytes) => copy(bytes),
            None => Err(error),
        },
        direct => direct,
    }
}

/// The bytes of a store with its log applied; `None` if they change during three reads or exceed [`MOST_COPIED`].
fn bytes_with_log(path: &FilePath) -> Option<Vec<u8>> {
    let files = [path.to_owned(), ending(path, "-wal")];
    let state = |file: &PathBuf| std::fs::metadata(file).ok().map(|file| (file.len(), file.modified().ok()));
    for _ in 0..3 {
        let before = [state(&files[0])?, state(&files[1])?];
        if before.iter().map(|(length, _)| length).sum::<u64>() > MOST_COPIED {
            return None;
        }
        let (bytes, written) = (std::fs::read(&files[0]).ok()?, std::fs::read(&files[1]).ok()?);
        if files.iter().map(state).eq(before.map(Some)) {
            return Some(log::applied(bytes, &written));
        }
    }
    None
}

/// Opens a database in memory with these bytes.
fn copy(mut bytes: Vec<u8>) -> rusqlite::Result<Connection> {
    let mut connection = connect(":memory:", OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // Bytes 18 and 19 of the header are 2 in WAL mode; the copy has no log.
    if bytes.get(18..20) == Some(&[2, 2][..]) {
        bytes[18..20].fill(1);
    }
    if !bytes.is_empty() {
        connection.deserialize_read_exact(MAIN_DB, &bytes[..], bytes.len(), true)?;
    }
    Ok(connection)
}

pub fn json<T: serde::Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("own types always serialize")
}

pub fn picoseconds(probe: Option<Probe>) -> Option<i64> {
    probe.map(|probe| probe.half_round_trip_ps as i64)
}

pub fn probe(picoseconds: Option<i64>) -> Option<Probe> {
    picoseconds.map(|ps| Probe { half_round_trip_ps: ps as u64 })
}

pub fn nanoseconds(stored: i64) -> Nanoseconds {
    Nanoseconds(stored as u64)
}

fn corrupt(path: &FilePath, layout: &Layout, cause: &str) -> Fault {
    Fault::new(
        format!("store {}", path.display()),
        format!("it is damaged ({}); nothing was deleted or changed", cause.trim_end_matches('.')),
        format!("move it away (mv {0} {0}.damaged) and run `{1}` again", path.display(), layout.command),
    )
}

fn may_not_write(error: &rusqlite::Error) -> bool {
    use ErrorCode::{CannotOpen, PermissionDenied, ReadOnly};
    matches!(error.sqlite_error_code(), Some(CannotOpen | ReadOnly | PermissionDenied))
}

/// The fault of a store that could not be read, for a caller that only reads.
fn unread(path: &FilePath, layout: &Layout, error: rusqlite::Error) -> Fault {
    match may_not_write(&error) {
        true => {
            let next = "copy it with the file NAME-wal beside it to a folder of yours, and name that copy";
            Fault::because(format!("store {}", path.display()), error, next)
        }
        false => fault(path, layout, error),
    }
}

fn in_use(path: &FilePath, layout: &Layout) -> Fault {
    Fault::new(format!("store {}", path.display()), format!("another {} measures into it", layout.what), IN_USE)
}

fn fault(path: &FilePath, layout: &Layout, error: rusqlite::Error) -> Fault {
    let subject = format!("store {}", path.display());
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => corrupt(path, layout, &error.to_string()),
        Some(ErrorCode::DiskFull) => Fault::because(
            format!("{subject}: the disk is full; everything finished is kept"),
            error,
            format!("free some space and run `{}` again: it goes on where it stopped", layout.command),
        ),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => in_use(path, layout),
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            Fault::because(subject, error, "give a place that you may write with --store FILE")
        }
        Some(ErrorCode::SystemIoFailure) => Fault::because(
            format!("{subject}: the disk refused to write or read; everything finished is kept"),
            error,
            format!(
                "check the disk and its free space, then run `{}` again: it goes on where it stopped",
                layout.command
            ),
        ),
        _ => Fault::because(subject, error, "give another place with --store FILE"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static LAYOUT: Layout = Layout {
        number: 1,
        application: 7,
        tables: "CREATE TABLE t(x INTEGER, bytes BLOB);",
        what: "study",
        command: "plimsoll study",
    };

    fn change(path: &FilePath, how: &str) {
        Database::open(path, &LAYOUT).unwrap().try_to(|c| c.execute_batch(how)).unwrap();
    }

    #[test]
    fn what_a_reader_has_opened_stays_whole_when_a_study_begins() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        // More pages than SQLite caches.
        change(
            &path,
            "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
             INSERT INTO t SELECT 1, randomblob(2000) FROM n;",
        );
        let reader = Database::read(&path, &LAYOUT).unwrap();
        change(&path, "UPDATE t SET x = 2; DELETE FROM t WHERE rowid % 3 = 0;");
        let seen: (i64, i64, i64) = reader
            .try_to(|c| {
                c.query_row("SELECT count(*), min(x), max(x) FROM t", [], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                })
            })
            .unwrap();
        assert_eq!(seen, (2000, 1, 1));
    }

    #[test]
    fn a_store_with_its_log_is_read_where_nothing_may_be_written_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let measures = Database::open(&path, &LAYOUT).unwrap();
        let measure = || measures.try_to(|c| c.execute_batch("INSERT INTO t VALUES (1, randomblob(9000));")).unwrap();
        (0..9).for_each(|_| measure());
        let copied = folder.path().join("copied");
        std::fs::copy(&path, &copied).unwrap();
        let log = std::fs::read(ending(&path, "-wal")).unwrap();
        // A dangling link in place of the index: not even root can create it.
        std::os::unix::fs::symlink(folder.path().join("none/shm"), ending(&copied, "-shm")).unwrap();
        let rows = |log: &[u8]| {
            std::fs::write(ending(&copied, "-wal"), log).unwrap();
            let reader = Database::read(&copied, &LAYOUT).unwrap();
            reader.try_to(|c| c.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0))).unwrap()
        };
        assert_eq!(rows(&log), 9);
        assert_eq!(rows(&log[..log.len() - 1]), 8, "the last commit is not whole");
        std::fs::remove_file(ending(&copied, "-wal")).unwrap();
        std::fs::create_dir(ending(&copied, "-wal")).unwrap();
        let fault = Database::read(&copied, &LAYOUT).err().unwrap();
        assert!(!fault.to_string().contains("that you may write"), "{fault}");
    }

    #[test]
    fn a_study_that_has_begun_is_read_as_it_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let measures = Database::open(&path, &LAYOUT).unwrap();
        let measure = || measures.try_to(|c| c.execute_batch("INSERT INTO t VALUES (1, NULL);")).unwrap();
        measure();
        let reader = Database::read(&path, &LAYOUT).unwrap();
        measure();
        let seen: i64 = reader.try_to(|c| c.query_row("SELECT count(*) FROM t", [], |row| row.get(0))).unwrap();
        assert_eq!(seen, 2);
    }
}
