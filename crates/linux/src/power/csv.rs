//! A file of times and numbers that something else writes, before or while it is read.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use machine::power::Sensor;
use machine::{Fault, Nanoseconds, Result};

use super::command::on_our_clock;
use super::reader::{Look, Reader};
use super::told::{Column, Format, TimeFormat, columns, fields, time, value};
use crate::clock::monotonic;

pub struct Csv {
    sensor: [Sensor; 1],
    path: PathBuf,
    format: Format,
    /// The time between two of its first lines, at the middle.
    period: Option<Nanoseconds>,
    /// Bytes read, and the file that they were of.
    at: u64,
    inode: u64,
    /// The last line, as far as it was written.
    rest: Vec<u8>,
    /// Time of the last line that had one.
    last: Option<Nanoseconds>,
    left_out: u64,
    notes: Vec<String>,
}

/// Bytes read at once.
const CHUNK: usize = 256 << 10;

/// No line is longer.
const LONGEST: usize = 64 << 10;

impl Csv {
    /// # Errors
    /// The file cannot be read, its first line does not name the columns that are asked for, or none of its first lines
    /// holds a time and a number.
    pub fn open(sensor: Sensor, path: &Path, mut format: Format) -> Result<Csv> {
        let subject = || path.display().to_string();
        let file = File::open(path).map_err(|e| Fault::because(subject(), e, "name a file with times and watts"))?;
        let mut start = vec![0; CHUNK];
        let got = file.read_at(&mut start, 0).map_err(|e| Fault::because(subject(), e, "name a plain file"))?;
        let text = String::from_utf8_lossy(&start[..got]).into_owned();
        format.at.get_or_insert(Column::Number(1));
        format.value.get_or_insert(Column::Number(2));
        if format.time == TimeFormat::Now {
            let cause = "the times of a file's lines are in the file";
            return Err(Fault::new(subject(), cause, "leave time=now out, or read it by a command"));
        }
        let mut lines = text.lines().filter(|line| is_told(line));
        let head = lines.next();
        for column in [&mut format.at, &mut format.value].into_iter().flatten() {
            if let Column::Name(name) = &*column {
                let named = fields(head.unwrap_or_default()).iter().position(|field| field.eq_ignore_ascii_case(name));
                let Some(place) = named else {
                    let cause = format!("its first line names no column '{name}'");
                    return Err(Fault::new(
                        subject(),
                        cause,
                        "name columns as its first line does, or by number from 1",
                    ));
                };
                *column = Column::Number(place + 1);
            }
        }
        let told = head.into_iter().chain(lines).take(20).map(|line| columns(line, &format)).collect::<Vec<_>>();
        if let (false, Some(Err(cause))) = (told.iter().any(|told| told.is_ok()), told.last()) {
            let next = "say where they are: csv,at=1,value=3,unit=kW:FILE";
            return Err(Fault::new(subject(), format!("no line gives a time and a number: {cause}"), next));
        }
        let times = text.lines().filter_map(|line| columns(line, &format).ok()?.0);
        let mut times: Vec<i128> = times.collect();
        times.sort_unstable();
        let mut apart: Vec<u64> = times.windows(2).filter_map(|pair| u64::try_from(pair[1] - pair[0]).ok()).collect();
        apart.sort_unstable();
        let period = apart.get(apart.len() / 2).copied().map(Nanoseconds);
        Ok(Csv {
            sensor: [sensor],
            path: path.to_owned(),
            format,
            period,
            at: 0,
            inode: 0,
            rest: Vec::new(),
            last: None,
            left_out: 0,
            notes: Vec::new(),
        })
    }

    /// The time between two of its lines; `None` where it has too few.
    pub fn period(&self) -> Option<Nanoseconds> {
        self.period
    }

    /// Reads what came since; `None` at the end of what is written.
    fn more(&mut self, file: &File, give: &mut dyn FnMut(usize, Look)) -> std::io::Result<Option<()>> {
        let mut chunk = vec![0; CHUNK];
        let got = file.read_at(&mut chunk, self.at)?;
        if got == 0 {
            return Ok(None);
        }
        let is_start = self.at == 0;
        self.at += got as u64;
        let mut text = std::mem::take(&mut self.rest);
        text.extend_from_slice(&chunk[..got]);
        let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.rest = text.split_off(end);
        if self.rest.len() > LONGEST {
            self.rest.clear();
            self.left_out += 1;
        }
        let text = String::from_utf8_lossy(&text);
        let mut lines = text.lines().filter(|line| is_told(line)).peekable();
        // A heading is no sample that failed.
        if is_start && lines.peek().is_some_and(|line| columns(line, &self.format).is_err()) {
            lines.next();
        }
        lines.for_each(|line| self.take(line, give));
        Ok(Some(()))
    }

    fn take(&mut self, line: &str, give: &mut dyn FnMut(usize, Look)) {
        let fields = fields(line);
        let field = |column: &Option<Column>| match column {
            Some(Column::Number(number)) => fields.get(number - 1).copied().unwrap_or_default(),
            _ => "",
        };
        let at = time(field(&self.format.at), self.format.time).ok().and_then(on_our_clock);
        // What was before the host's start needs no place.
        let Some(at) = at else {
            self.left_out += 1;
            return;
        };
        self.last = Some(at);
        match value(field(&self.format.value), self.format.unit) {
            Ok(micro) => give(0, Look::Value { at, micro }),
            Err(cause) => give(0, Look::Stopped { at, cause: format!("{}: {cause}", self.path.display()) }),
        }
    }
}

/// Whether a line is more than blanks or a remark.
fn is_told(line: &str) -> bool {
    let line = line.trim();
    !(line.is_empty() || line.starts_with('#'))
}

impl Csv {
    /// Whether something was written lately.
    fn is_written(&self) -> bool {
        let age = std::fs::metadata(&self.path).and_then(|file| file.modified()).ok().and_then(|at| at.elapsed().ok());
        age.is_some_and(|age| age.as_nanos() < 3 * u128::from(self.period.map_or(1_000_000_000, |period| period.0)))
    }
}

impl Reader for Csv {
    fn sensors(&self) -> &[Sensor] {
        &self.sensor
    }

    fn look(&mut self, give: &mut dyn FnMut(usize, Look)) {
        let read = File::open(&self.path).and_then(|file| {
            let metadata = file.metadata()?;
            if metadata.ino() != self.inode || metadata.len() < self.at {
                (self.inode, self.at) = (metadata.ino(), 0);
                self.rest.clear();
            }
            while self.more(&file, give)?.is_some() {}
            Ok(())
        });
        if let Err(error) = read {
            let at = self.last.unwrap_or_else(monotonic);
            give(0, Look::Stopped { at, cause: format!("{}: {error}", self.path.display()) });
        }
        if self.left_out > 0 {
            let count = std::mem::take(&mut self.left_out);
            self.notes.push(format!("{}: {count} lines without a time since this host's start", self.path.display()));
        }
    }

    fn waits(&self) -> bool {
        self.is_written()
    }

    fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }
}
