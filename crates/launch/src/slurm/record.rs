//! Record of a submitted study, beside its stores: its chunks, and the jobs that run them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use machine::{Fault, Hertz, Result};
use serde::{Deserialize, Serialize};

use super::script;

/// A study's submissions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Identity of the study.
    pub study: String,
    /// Text of the file `probe`, by which a node checks that it sees the folder.
    pub probe: String,
    pub chunks: Vec<Chunk>,
    pub arrays: Vec<Array>,
}

/// The points of one task. The chunk's number is its place in the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    pub nodes: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<Hertz>,
    /// Keys of the points, stored in a file of their own.
    #[serde(skip)]
    pub points: Vec<String>,
}

/// A job array that was submitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Array {
    pub job: u32,
    pub chunks: Vec<u32>,
}

fn file(folder: &Path) -> PathBuf {
    folder.join("submitted.json")
}

impl Record {
    /// The record of a folder, if it has one.
    ///
    /// # Errors
    /// The record or a list of points cannot be read.
    pub fn read(folder: &Path) -> Result<Option<Record>> {
        let file = file(folder);
        let next =
            "remove the folder to submit the study anew; `plimsoll campaign merge` takes what its stores have before";
        let broken = |cause: String| Fault::new(format!("record {}", file.display()), cause, next);
        if !file.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(&file).map_err(|error| broken(error.to_string()))?;
        let mut record: Record = serde_json::from_str(&text).map_err(|error| broken(error.to_string()))?;
        for (number, chunk) in (0..).zip(&mut record.chunks) {
            chunk.points = keys(&script::points(folder, number))?.into_iter().collect();
        }
        Ok(Some(record))
    }

    /// Writes the record, whole or not at all, and before it the missing lists of points of its chunks.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        for (number, chunk) in (0..).zip(&self.chunks) {
            let file = script::points(folder, number);
            if !file.exists() {
                put(&file, &(chunk.points.join("\n") + "\n"))?;
            }
        }
        let text = serde_json::to_string_pretty(self).expect("own types always serialize");
        put(&script::probe(folder), &(self.probe.clone() + "\n"))?;
        put(&file(folder), &(text + "\n"))
    }

    /// Job number of the array in which a chunk was submitted last.
    pub fn array_of(&self, number: u32) -> Option<u32> {
        self.arrays.iter().rev().find(|array| array.chunks.contains(&number)).map(|array| array.job)
    }
}

/// Writes a file whole or not at all: under another name first, then renamed.
///
/// # Errors
/// The file cannot be written.
pub fn put(file: &Path, text: &str) -> Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, text).and_then(|()| fs::rename(&new, file)).map_err(|error| {
        Fault::unwritable(format!("file {}", file.display()), error, "choose another place with --store")
    })
}

/// Keys of points in a file, one a line.
///
/// # Errors
/// The file cannot be read.
pub fn keys(file: &Path) -> Result<BTreeSet<String>> {
    let text = fs::read_to_string(file).map_err(|error| {
        let next = "submit the study again, or run it without --points";
        Fault::because(format!("list of points {}", file.display()), error, next)
    })?;
    Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_with_its_points() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Record::read(folder.path()).unwrap(), None);
        let chunk = |points: &[&str]| Chunk {
            nodes: 1,
            clock: Some(Hertz(1_400_000_000)),
            points: points.iter().map(|of| (*of).to_owned()).collect(),
        };
        let arrays = vec![Array { job: 17, chunks: vec![0, 1] }, Array { job: 21, chunks: vec![1] }];
        let chunks = vec![chunk(&["a1", "a2"]), chunk(&["a3"])];
        let record = Record { study: "s".into(), probe: "p".into(), chunks, arrays };
        record.write(folder.path()).unwrap();
        assert_eq!(Record::read(folder.path()).unwrap(), Some(record.clone()));
        assert_eq!((record.array_of(0), record.array_of(1), record.array_of(2)), (Some(17), Some(21), None));
        fs::remove_file(script::points(folder.path(), 1)).unwrap();
        let fault = Record::read(folder.path()).unwrap_err().to_string();
        assert!(fault.contains("1.points") && fault.contains("Next:"), "{fault}");
        fs::write(file(folder.path()), "{").unwrap();
        assert!(Record::read(folder.path()).unwrap_err().to_string().contains("remove the folder"));
    }
}
