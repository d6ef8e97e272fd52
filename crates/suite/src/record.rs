//! The record of a run: a folder to which its parts, in processes of their own, write.

use std::env;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

/// Environment variable with the folder of the run that this process is a part of.
const FOLDER: &str = "PLIMSOLL_RECORD";

/// Environment variable with the file in which `crates/skip` notes skips.
const SKIPS: &str = "PLIMSOLL_SKIPS";

/// Environment variable with this part's name in that run.
const PART: &str = "PLIMSOLL_PART";

pub struct Record {
    folder: PathBuf,
    /// The name of this part where it belongs to another run.
    part_of_another: Option<String>,
}

/// The outcome of a part.
#[derive(Debug)]
pub struct Part {
    pub name: String,
    pub wall: f64,
    pub processor: f64,
    pub passed: u32,
    /// Failed tests; a part that fails without a failed test counts one.
    pub failed: u32,
}

impl Record {
    pub fn open() -> Result<Record, String> {
        if let (Some(folder), Ok(part)) = (env::var_os(FOLDER), env::var(PART)) {
            return Ok(Record { folder: folder.into(), part_of_another: Some(part) });
        }
        // An absolute path, since parts and tests work in other folders.
        let target = env::current_dir().map_err(|error| error.to_string())?.join(target());
        let folder = target.join(format!("suite-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(|error| {
            format!(
                "{}: {error}. Next: name a folder that can be written: CARGO_TARGET_DIR=DIR make ...",
                folder.display()
            )
        })?;
        Ok(Record { folder, part_of_another: None })
    }

    pub fn is_of_another(&self) -> bool {
        self.part_of_another.is_some()
    }

    /// Environment variables by which tests note their skips and parts of the run everything else.
    pub fn environment(&self, part: &str) -> [(&'static str, OsString); 3] {
        [(FOLDER, self.folder.clone().into()), (PART, part.into()), (SKIPS, self.folder.join("skips").into())]
    }

    /// The path of a file or folder of this process's own.
    pub fn scratch(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{}-{name}", std::process::id()))
    }

    /// Adds a line to a list.
    pub fn note(&self, list: &str, line: &str) {
        let to = OpenOptions::new().append(true).create(true).open(self.folder.join(list));
        let noted = to.and_then(|mut to| to.write_all(format!("{line}\n").as_bytes()));
        noted.unwrap_or_else(|error| panic!("{}: {error}", self.folder.display()));
    }

    /// The fields of each line of a list.
    pub fn lines(&self, list: &str) -> Vec<Vec<String>> {
        let text = fs::read_to_string(self.folder.join(list)).unwrap_or_default();
        text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
    }

    /// Runs a part, which may note results and parts of its own.
    pub fn run(&self, part: &str, run: impl FnOnce() -> Result<bool, String>) -> Result<(), String> {
        let (timer, before) = (Timer::start(), self.lines("parts").len());
        let well = run()?;
        if self.lines("parts").len() == before {
            let times = format!("{:.1}\t{:.1}", timer.wall(), timer.processor());
            self.note("parts", &format!("{part}\t{times}\t{}", if well { "passed" } else { "failed" }));
        }
        Ok(())
    }

    /// Notes how many of a program's tests passed and failed, for its part.
    pub fn results(&self, part: &str, passed: u32, failed: u32) {
        let part = self.part_of_another.as_deref().unwrap_or(part);
        self.note("results", &format!("{part}\t{passed}\t{failed}"));
    }

    pub fn parts(&self) -> Vec<Part> {
        let results = self.lines("results");
        let sum = |name: &str, at: usize| {
            results.iter().filter(|row| row[0] == name).filter_map(|row| row[at].parse::<u32>().ok()).sum()
        };
        let part = |row: &Vec<String>| {
            let (passed, failed): (u32, u32) = (sum(&row[0], 1), sum(&row[0], 2));
            let failed = if row[3] == "failed" { failed.max(1) } else { failed };
            let number = |at: usize| row[at].parse().unwrap_or(0.0);
            Part { name: row[0].clone(), wall: number(1), processor: number(2), passed, failed }
        };
        self.lines("parts").iter().map(part).collect()
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if !self.is_of_another() {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// The folder in which cargo builds.
pub fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from)
}

/// Wall time since the start, and processor time of the children that this process has waited for since.
pub struct Timer {
    began: Instant,
    used: f64,
}

impl Timer {
    pub fn start() -> Timer {
        Timer { began: Instant::now(), used: waited_for() }
    }

    pub fn wall(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    pub fn processor(&self) -> f64 {
        waited_for() - self.used
    }
}

/// Processor seconds of waited-for children: the fields cutime and cstime of proc(5), in ticks of 10 ms.
fn waited_for() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(13) + ticks(14)) / 100.0
}
