//! The store of costs: a file a host, `costs-HOST.json`, in the folder of this user's state; `PLIMSOLL_COSTS` lists
//! folders of a computing centre, which are only read.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::{Costs, Interval, Row};
use crate::count;
use crate::fault::{Fault, Result};
use crate::optional;
use crate::processor::Processor;
use crate::source::Source;

/// Raised when a row changes its meaning.
const FORMAT: u32 = 1;

/// Factors that widen intervals after another boot, and after a month.
const OTHER_BOOT: f64 = 1.25;
const OLD: f64 = 1.5;
const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);

/// Values known no better than by this factor are not used: the measurement was cut short, or is many boots old.
const UNKNOWN: f64 = 1000.0;

const NEXT: &str = "run plimsoll calibrate";

/// The machine that costs hold for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The host's name, as its kernel has it.
    pub host: String,
    /// The processor's model.
    pub processor: String,
    /// Cores that are on line.
    pub cores: String,
    /// The kernel's release.
    pub kernel: String,
}

impl Key {
    /// The key of this host.
    pub fn live() -> Key {
        let source = Source::live();
        let word = |path: &str| source.word(path).unwrap_or_else(|| "unknown".into());
        Key {
            host: word("/proc/sys/kernel/hostname"),
            processor: Processor::read(&source).model.unwrap_or_else(|| "unknown".into()),
            cores: word("/sys/devices/system/cpu/online"),
            kernel: word("/proc/sys/kernel/osrelease"),
        }
    }

    /// The first difference, in words.
    fn differs(&self, other: &Key) -> Option<String> {
        let parts = [
            ("processor", &self.processor, &other.processor),
            ("cores", &self.cores, &other.cores),
            ("kernel", &self.kernel, &other.kernel),
        ];
        parts.iter().find(|(_, a, b)| a != b).map(|(what, then, now)| format!("{what} {then} then, {now} now"))
    }
}

/// The file of one host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    format: u32,
    machine: Key,
    /// The boot that the rows were measured in.
    boot: String,
    /// Threads of other programs that ran, on average, when messages were measured.
    #[serde(default)]
    others: Option<f64>,
    rows: Vec<Row>,
}

/// The costs of a host, and what the reader must know of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Known {
    /// Measured where it could be, else modelled.
    pub costs: Costs,
    /// Why nothing measured is used, or why intervals are wider; `None` where all is well.
    pub note: Option<String>,
    /// Files that this user may not look for; `note` names them too.
    pub unseen: Vec<String>,
    /// Whether the costs are so old that they should be measured again.
    pub old: bool,
    /// Threads of other programs that ran, on average, when messages were measured; `None`: not known.
    pub others: Option<f64>,
}

/// The folder of this user's state: `$XDG_STATE_HOME/plimsoll`, or `~/.local/state/plimsoll`.
///
/// # Errors
/// The environment names no home.
pub fn folder() -> Result<PathBuf> {
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    named("XDG_STATE_HOME")
        .or_else(|| Some(named("HOME")?.join(".local/state")))
        .map(|state| state.join("plimsoll"))
        .ok_or_else(|| Fault::new("folder of plimsoll's state", "HOME is not set", "set HOME, or XDG_STATE_HOME"))
}

/// The costs of this host, from this user's folder or one of `PLIMSOLL_COSTS`.
///
/// # Errors
/// A file that is there cannot be read, or is damaged or newer.
pub fn live() -> Result<Known> {
    of(&Key::live(), &boot(), now())
}

/// The costs of this host, as [`keep_below`] stored them.
///
/// # Errors
/// As for [`live`].
pub fn live_below(folder: &Path) -> Result<Known> {
    of_in(&[folder.to_owned()], &Key::live(), &boot(), now())
}

/// The costs of the host of that name, whose file is not compared with the machine unless it is this host.
///
/// # Errors
/// As for [`live`].
pub fn of_host(name: &str) -> Result<Known> {
    if name == Key::live().host {
        return live();
    }
    let mut unseen = Vec::new();
    for folder in folders() {
        if let Some(kept) = read(&folder, name, &mut unseen)? {
            let (rows, note) = used(kept.rows);
            return Ok(known(Costs::of(rows), note, unseen));
        }
    }
    let note = format!("costs are modelled: host {name} was never calibrated");
    Ok(known(Costs::modelled(), Some(note), unseen))
}

fn known(costs: Costs, note: Option<String>, unseen: Vec<String>) -> Known {
    let said: Vec<String> = unseen.iter().cloned().chain(note).collect();
    Known { costs, note: (!said.is_empty()).then(|| said.join("; ")), unseen, old: false, others: None }
}

fn of(key: &Key, boot: &str, now: Duration) -> Result<Known> {
    of_in(&folders(), key, boot, now)
}

fn of_in(folders: &[PathBuf], key: &Key, boot: &str, now: Duration) -> Result<Known> {
    let mut why = format!("costs are modelled: {NEXT}");
    let mut unseen = Vec::new();
    for folder in folders {
        let Some(kept) = read(folder, &key.host, &mut unseen)? else { continue };
        if let Some(differs) = kept.machine.differs(key) {
            why = format!("costs are modelled: those that are kept are of another machine ({differs}); {NEXT}");
            continue;
        }
        let taken = kept.rows.iter().map(|row| row.taken.0).min().unwrap_or(0);
        let age = now.saturating_sub(Duration::from_nanos(taken));
        let days = age.as_secs() / (24 * 3600);
        let (rows, note) = used(kept.rows);
        let costs = Costs::of(rows);
        let found = match (age > MONTH, kept.boot == boot) {
            (true, _) => {
                let note = format!("costs were measured {days} days ago, their intervals are wider: {NEXT}");
                Known { old: true, ..known(costs.widened(OLD), Some(note), unseen) }
            }
            (false, false) => known(costs.widened(OTHER_BOOT), note, unseen),
            (false, true) => known(costs, note, unseen),
        };
        return Ok(Known { others: kept.others, ..found });
    }
    Ok(known(Costs::modelled(), Some(why), unseen))
}

/// The rows that are known well enough, and a note of how many are not.
fn used(mut rows: Vec<Row>) -> (Vec<Row>, Option<String>) {
    let kept = rows.len();
    let tells = |of: &Interval| of.low <= 0.0 || of.high <= UNKNOWN * of.low;
    rows.retain(|row| row.cost.value().is_none_or(tells));
    let none = (kept - rows.len()) as u64;
    let note = (none > 0).then(|| {
        let costs = count::of(none, "cost");
        format!("{costs} not used, known no better than by a factor of {UNKNOWN}: {NEXT}")
    });
    (rows, note)
}

/// Stores `rows` in place of older ones of this host. Returns the file. `others`: [`Known::others`], where `rows` have messages.
///
/// # Errors
/// The file cannot be written.
pub fn keep(rows: Vec<Row>, others: Option<f64>) -> Result<PathBuf> {
    keep_in(&folder()?, Key::live(), boot(), rows, others)
}

/// As [`keep`], in another folder.
///
/// # Errors
/// The file cannot be written.
pub fn keep_below(folder: &Path, rows: Vec<Row>) -> Result<PathBuf> {
    keep_in(folder, Key::live(), boot(), rows, None)
}

fn keep_in(folder: &Path, machine: Key, boot: String, rows: Vec<Row>, others: Option<f64>) -> Result<PathBuf> {
    let path = file(folder, &machine.host);
    let failed = |e: io::Error| {
        Fault::unwritable(path.display().to_string(), e, "set XDG_STATE_HOME to a folder that can be written")
    };
    fs::create_dir_all(folder).map_err(failed)?;
    #[cfg(unix)]
    let _lock = {
        let (subject, patience) = (path.display().to_string(), Duration::from_secs(10));
        crate::lock::Lock::take(&crate::lock::beside(&path), &subject, patience, "wait until that ends")?
    };
    // Rows of another machine are dropped, those of another boot widened.
    let older = read(folder, &machine.host, &mut Vec::new()).ok().flatten().filter(|kept| kept.machine == machine);
    let others = others.or(older.as_ref().and_then(|kept| kept.others));
    let older = match older {
        Some(kept) if kept.boot == boot => Costs::of(kept.rows),
        Some(kept) => Costs::of(kept.rows).widened(OTHER_BOOT),
        None => Costs::default(),
    };
    let rows = older.refined(rows).rows;
    let kept = Kept { format: FORMAT, machine, boot, others, rows };
    let text = serde_json::to_string_pretty(&kept).map_err(|e| Fault::because("costs", e, "report it"))?;
    let part = path.with_extension("part");
    let written = File::create(&part).and_then(|mut to| to.write_all(text.as_bytes()).and_then(|()| to.sync_all()));
    written.and_then(|()| fs::rename(&part, &path)).map_err(failed)?;
    Ok(path)
}

fn folders() -> Vec<PathBuf> {
    let centre = std::env::var_os("PLIMSOLL_COSTS").unwrap_or_default();
    folder().into_iter().chain(std::env::split_paths(&centre)).collect()
}

/// The file of a host, whose name is made a single component of a path.
fn file(folder: &Path, host: &str) -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_') { c } else { '_' };
    folder.join(format!("costs-{}.json", host.chars().map(plain).collect::<String>()))
}

fn read(folder: &Path, host: &str, unseen: &mut Vec<String>) -> Result<Option<Kept>> {
    let path = file(folder, host);
    let next = format!("remove it, and {NEXT}");
    let text = match optional::read(&path, unseen) {
        Ok(Some(text)) => text,
        Ok(None) => return Ok(None),
        Err(e) => return Err(Fault::because(path.display().to_string(), e, next)),
    };
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let bad = |e: serde_json::Error| Fault::new(path.display().to_string(), format!("it is damaged: {e}"), &next);
    let Format { format } = serde_json::from_slice(&text).map_err(bad)?;
    if format != FORMAT {
        let cause = format!("it has format {format}, and this plimsoll reads {FORMAT}");
        return Err(Fault::new(path.display().to_string(), cause, next));
    }
    serde_json::from_slice(&text).map(Some).map_err(bad)
}

fn boot() -> String {
    crate::here::boot().unwrap_or_else(|| "unknown".into())
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::BodyKind;
    use crate::costs::{Item, Way};
    use crate::quantity::Nanoseconds;
    use crate::reading::Reading;
    use crate::site::SiteKind;

    fn handover(ns: f64) -> Row {
        let cost = Reading::Measured(Interval::between(ns * 0.9, ns / 0.9));
        Row { item: Item::Handover, size: None, cost, source: "calibrate".into(), taken: Nanoseconds(1) }
    }

    fn there(folder: &Path, host: &str) -> Result<Option<Kept>> {
        read(folder, host, &mut Vec::new())
    }

    #[test]
    fn costs_that_may_not_be_looked_for_are_modelled_with_a_note() {
        let folder = tempfile::tempdir().unwrap();
        let no_folder = folder.path().join("file");
        fs::write(&no_folder, "").unwrap();
        let centre = folder.path().join("centre");
        let known = of_in(std::slice::from_ref(&no_folder), &key(), "one", Duration::ZERO).unwrap();
        assert_eq!(known.costs, Costs::modelled());
        let note = known.note.unwrap();
        assert!(note.contains("file/costs-a_b.json may not be looked for") && note.contains(NEXT), "{note}");
        // Later folders are still searched.
        keep_in(&centre, key(), "one".into(), vec![handover(50.0)], None).unwrap();
        let known = of_in(&[no_folder, centre], &key(), "one", Duration::ZERO).unwrap();
        assert_eq!((known.costs.rows, known.unseen.len()), (vec![handover(50.0)], 1));
    }

    fn key() -> Key {
        Key { host: "a/b".into(), processor: "p".into(), cores: "0-1".into(), kernel: "6.1".into() }
    }

    #[test]
    fn rows_are_kept_until_the_machine_is_another_and_are_wider_after_a_boot() {
        let folder = tempfile::tempdir().unwrap();
        let keep = |machine: Key, boot: &str, row: Row| {
            keep_in(folder.path(), machine, boot.into(), vec![row], None).unwrap();
            there(folder.path(), "a/b").unwrap().unwrap().rows
        };
        let call = Row { item: Item::Call, ..handover(20.0) };
        assert_eq!(keep(key(), "one", handover(50.0)), [handover(50.0)]);
        assert_eq!(keep(key(), "one", call.clone()), [handover(50.0), call.clone()]);
        let rows = keep(key(), "two", call.clone());
        let wider = handover(50.0).cost.map(|interval| interval.widened(OTHER_BOOT));
        assert_eq!((&rows[0].cost, &rows[1]), (&wider, &call));
        assert_eq!(keep(Key { kernel: "6.2".into(), ..key() }, "two", handover(50.0)).len(), 1);
    }

    #[test]
    fn other_users_lock_what_they_may_read_and_hold_nobody_up() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        keep_in(folder.path(), key(), "one".into(), vec![handover(50.0)], None).unwrap();
        let opened = skip::another_user(|| {
            let files = fs::read_dir(folder.path()).unwrap().map(|entry| File::open(entry.unwrap().path()));
            files.flatten().inspect(|file| file.try_lock().unwrap()).collect::<Vec<File>>()
        });
        let Some(_opened) = opened else { return };
        let (send, receive) = std::sync::mpsc::channel();
        let place = folder.path().to_owned();
        std::thread::spawn(move || send.send(keep_in(&place, key(), "one".into(), vec![handover(60.0)], None)));
        receive.recv_timeout(Duration::from_secs(60)).expect("nobody is waited for").unwrap();
    }

    #[test]
    fn entries_are_named_as_they_always_were() {
        for (kind, word) in BodyKind::ALL.into_iter().zip(["native", "wasm", "bpf"]) {
            let item = Item::Entry(kind);
            assert_eq!(serde_json::to_string(&item).unwrap(), format!(r#"{{"entry":"{word}"}}"#));
            assert_eq!(item.to_string(), format!("a call of a {word} body"));
        }
        let folder = tempfile::tempdir().unwrap();
        let row = |item: &str| {
            format!(
                r#"{{"item":{item},"size":null,"cost":{{"measured":{{"low":1.0,"middle":2.0,"high":3.0}}}},"source":"s","taken":1}}"#
            )
        };
        for (rows, count) in [(row(r#""call""#), 1), ([r#""call""#, r#"{"entry":"wasm"}"#].map(row).join(","), 2)] {
            let text = format!(
                r#"{{"format":1,"machine":{{"host":"h","processor":"p","cores":"0","kernel":"6"}},"boot":"b","rows":[{rows}]}}"#
            );
            fs::write(file(folder.path(), "h"), text).unwrap();
            let kept = there(folder.path(), "h").unwrap().unwrap();
            assert_eq!(kept.rows.len(), count);
            let wasm = Costs::of(kept.rows).get(&Item::Entry(BodyKind::Wasm)).reading;
            assert_eq!(matches!(wasm, Reading::Measured(_)), count == 2, "{wasm:?}");
        }
    }

    #[test]
    fn costs_of_format_1_are_read() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(file(folder.path(), "h"), include_str!("format-1.json")).unwrap();
        let kept = there(folder.path(), "h").unwrap().unwrap();
        assert_eq!((kept.rows.len(), kept.others), (10, Some(0.25)));
        let way = |network: Option<&str>, placement| Way {
            carrier: super::super::ENGINE.into(),
            mpi: "Open MPI 4.1.4".into(),
            placement,
            network: network.map(str::to_owned),
        };
        let items = [
            Item::HalfTrip(way(None, SiteKind::App)),
            Item::Message(way(None, SiteKind::App)),
            Item::Softirq(way(Some("udp"), SiteKind::Core)),
            Item::Handover,
            Item::Crossing(SiteKind::App, SiteKind::Core),
            Item::Call,
            Item::Entry(BodyKind::Wasm),
            Item::Work,
            Item::Transit,
            Item::DevicePost,
        ];
        assert_eq!(kept.rows.iter().map(|row| row.item.clone()).collect::<Vec<_>>(), items);
        assert_eq!(kept.rows[1].cost, Reading::Measured(Interval { low: 4100.0, middle: 4300.5, high: 4600.0 }));
        assert!(matches!(kept.rows[9].cost, Reading::Modelled(_)));
    }

    #[test]
    fn what_is_damaged_or_newer_is_a_fault_that_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = file(folder.path(), "h");
        for text in ["", "{", r#"{"format":1,"machine":3}"#, r#"{"format":2}"#] {
            fs::write(&path, text).unwrap();
            let fault = there(folder.path(), "h").unwrap_err().to_string();
            assert!(fault.contains("costs-h.json") && fault.contains("plimsoll calibrate"), "{text}: {fault}");
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(there(folder.path(), "h").unwrap(), None);
    }

    #[test]
    fn what_is_hardly_known_is_not_used() {
        let row = |low, high| Row { cost: Reading::Measured(Interval::between(low, high)), ..handover(50.0) };
        let (rows, note) = used(vec![row(2.0, 46_945.0), row(100.0, 900.0)]);
        assert_eq!(rows, [row(100.0, 900.0)]);
        assert!(
            note.is_some_and(|note| note.starts_with("1 cost not used") && note.ends_with("run plimsoll calibrate"))
        );
        let absent = Row { cost: Reading::absent("no such thing"), ..handover(50.0) };
        assert_eq!(used(vec![absent.clone()]), (vec![absent], None));
    }

    #[test]
    fn another_machine_is_told_by_what_differs() {
        let newer = Key { kernel: "6.2".into(), ..key() };
        assert_eq!(key().differs(&newer).unwrap(), "kernel 6.1 then, 6.2 now");
        assert_eq!(key().differs(&key()), None);
    }
}
