//! A file of times and numbers that another program writes, before or while it is read.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use machine::power::Sensor;
use machine::{Fault, Nanoseconds, Result};

use super::command::on_our_clock;
use super::reader::{Look, Reader};
use super::told::{Column, Epoch, Format, MARK, Row, TimeFormat, columns, fields, lacks_zone, separator};
use crate::clock::monotonic;

pub struct Csv {
    sensor: [Sensor; 1],
    path: PathBuf,
    format: Format,
    /// The median time between two of its first lines.
    period: Option<Nanoseconds>,
    /// Number of bytes read, and inode of their file.
    at: u64,
    inode: u64,
    /// The incomplete last line.
    rest: Vec<u8>,
    /// Time of the last line with one.
    last: Option<Nanoseconds>,
    /// That time as written, if it names no zone, until it was compared with the file's own.
    without_zone: Option<Epoch>,
    /// The stated offset of the lines' clock from ours, ns.
    ahead: i64,
    left_out: u64,
    notes: Vec<String>,
}

/// Bytes read at once.
const CHUNK: usize = 256 << 10;

/// Longest line.
const LONGEST: usize = 64 << 10;

impl Csv {
    /// # Errors
    /// The file cannot be read, its first line does not name the columns that are asked for, or none of its first lines
    /// holds a time and a number.
    pub fn open(sensor: Sensor, path: &Path, mut format: Format, ahead: i64) -> Result<Csv> {
        let subject = || path.display().to_string();
        let file = File::open(path).map_err(|e| Fault::because(subject(), e, "name a file with times and watts"))?;
        let mut start = vec![0; CHUNK];
        let got = file.read_at(&mut start, 0).map_err(|e| Fault::because(subject(), e, "name a plain file"))?;
        if start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff]) {
            return Err(Fault::new(subject(), "it is written in UTF-16", "save it as CSV in UTF-8"));
        }
        let text = String::from_utf8_lossy(&start[..got]).trim_start_matches(MARK).to_owned();
        let is_usual = format.value.is_none();
        format.at.get_or_insert(Column::Number(1));
        format.value.get_or_insert(Column::Number(2));
        if format.time == TimeFormat::Now {
            let cause = "the times of a file's lines are in the file";
            return Err(Fault::new(subject(), cause, "leave time=now out, or read it by a command"));
        }
        let first: Vec<&str> = text.lines().filter(|line| is_told(line)).take(20).collect();
        let head = first.first().copied().unwrap_or_default();
        let mut apart = separator(head);
        let heads = fields(head, apart);
        let are_numbers = [&format.at, &format.value].into_iter().flatten().all(|c| matches!(c, Column::Number(_)));
        for column in [&mut format.at, &mut format.value].into_iter().flatten() {
            if let Column::Name(name) = &*column {
                let Some(place) = heads.iter().position(|field| field.eq_ignore_ascii_case(name)) else {
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
        // Lines above columns given by number may hold anything.
        if let (Some(line), true) = (first.iter().find(|line| columns(line, &format).is_ok()), are_numbers) {
            apart = separator(line);
        }
        if !first.is_empty() {
            let count = fields(head, apart).len();
            let has_heads = columns(head, &format).is_err() && count > 1;
            format.count = if has_heads { Some(count) } else { is_usual.then_some(2) };
            format.apart = Some(apart);
        }
        let told: Vec<_> = first.iter().map(|line| columns(line, &format)).collect();
        if let (false, Some(Err(cause))) = (told.iter().any(|told| told.is_ok()), told.last()) {
            let next = "say where they are: csv,at=1,value=3,unit=kW:FILE";
            return Err(Fault::new(subject(), format!("no line gives a time and a number: {cause}"), next));
        }
        let times = text.lines().filter_map(|line| columns(line, &format).ok()?.0);
        let mut times: Vec<i128> = times.collect();
        times.sort_unstable();
        let mut steps: Vec<u64> = times.windows(2).filter_map(|pair| u64::try_from(pair[1] - pair[0]).ok()).collect();
        steps.sort_unstable();
        let period = steps.get(steps.len() / 2).copied().map(Nanoseconds);
        Ok(Csv {
            sensor: [sensor],
            path: path.to_owned(),
            format,
            period,
            at: 0,
            inode: 0,
            rest: Vec::new(),
            last: None,
            without_zone: None,
            ahead,
            left_out: 0,
            notes: Vec::new(),
        })
    }

    /// The median time between its lines; `None` where it has too few.
    pub fn period(&self) -> Option<Nanoseconds> {
        self.period
    }

    /// Reads one more chunk; `None` at the end of the file.
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
        let text: &str = if is_start { text.trim_start_matches(MARK) } else { &text };
        let mut lines = text.lines().filter(|line| is_told(line)).peekable();
        // A heading is not a failed sample.
        if is_start && lines.peek().is_some_and(|line| columns(line, &self.format).is_err()) {
            lines.next();
        }
        lines.for_each(|line| self.take(line, give));
        Ok(Some(()))
    }

    fn take(&mut self, line: &str, give: &mut dyn FnMut(usize, Look)) {
        let row = Row::of(line, &self.format);
        let written = row.time().ok().flatten();
        if let (Some(at), true) = (written, lacks_zone(row.clock())) {
            self.without_zone = Some(at);
        }
        // Samples before the host's start are left out.
        let Some(at) = written.and_then(on_our_clock) else {
            self.left_out += 1;
            return;
        };
        self.last = Some(at);
        match row.value() {
            Ok(micro) => give(0, Look::Value { at, micro }),
            Err(cause) => give(0, Look::Stopped { at, cause: format!("{}: {cause}", self.path.display()) }),
        }
    }
}

/// Whether a line is neither blank nor a comment.
fn is_told(line: &str) -> bool {
    let line = line.trim();
    !(line.is_empty() || line.starts_with('#'))
}

/// Range of the error, in seconds, of local times taken for UTC: from half an hour to the largest zone difference.
const ZONES: std::ops::Range<Epoch> = 1_800..15 * 3_600;

impl Csv {
    fn modified(&self) -> Option<SystemTime> {
        std::fs::metadata(&self.path).and_then(|file| file.modified()).ok()
    }

    /// Whether the file was written lately.
    fn is_written(&self) -> bool {
        let age = self.modified().and_then(|at| at.elapsed().ok());
        age.is_some_and(|age| age.as_nanos() < 3 * u128::from(self.period.map_or(1_000_000_000, |period| period.0)))
    }

    /// Adds a note where the last line's time, which names no zone, differs from the file's as zones do.
    fn compare_zone(&mut self) {
        let Some(written) = self.without_zone.take() else { return };
        let Some(modified) = self.modified().and_then(|at| at.duration_since(UNIX_EPOCH).ok()) else { return };
        let ahead = (written - Epoch::from(self.ahead) - modified.as_nanos() as Epoch) / 1_000_000_000;
        if ZONES.contains(&ahead.abs()) {
            let (path, hours, side) =
                (self.path.display(), ahead.abs() as f64 / 3_600.0, if ahead > 0 { "after" } else { "before" });
            // Zones differ by whole quarters of an hour.
            let offset = self.ahead / 1_000_000_000 + (ahead as f64 / 900.0).round() as i64 * 900;
            self.notes.push(format!(
                "{path}: its times name no zone and are taken for UTC, by which the last is {hours:.1} h {side} the \
                 file was written: where they are local, state offset={offset}"
            ));
        }
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
        self.compare_zone();
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use machine::power::{Band, Covers};

    use super::super::files::named;
    use super::*;

    /// Reads a file of this text, written at 17:05:10 UTC: the numbers of the looks, and the notes.
    fn read(text: &[u8], at: &str, value: &str, ahead: i64) -> Result<(Vec<u64>, Vec<String>)> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file.as_file().set_modified(UNIX_EPOCH + Duration::from_secs(1_795_539_910)).unwrap();
        let column = |text: &str| (!text.is_empty()).then(|| Column::new(text));
        let format = Format {
            at: column(at),
            value: column(value),
            time: TimeFormat::Auto,
            unit: super::super::told::Unit::WATT,
            apart: None,
            count: None,
        };
        let sensor = named("log".to_owned(), Covers::Node, Band::Out, false, None);
        let mut csv = Csv::open(sensor, file.path(), format, ahead)?;
        let mut micro = Vec::new();
        csv.look(&mut |_, look| match look {
            Look::Value { micro: number, .. } => micro.push(number),
            Look::Stopped { cause, .. } => panic!("{cause}"),
        });
        Ok((micro, csv.notes()))
    }

    /// Seconds since 1970, an hour ahead, so after this host's start.
    fn soon() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 3_600
    }

    #[test]
    fn logs_of_spreadsheets_are_read() {
        let (a, b) = (soon(), soon() + 1);
        for (text, columns) in [
            (format!("\u{feff}time;value\r\n{a};100,5\r\n{b};99\r\n"), ("time", "value")),
            (format!("\u{feff}{a};100,5\n{b};99\n"), ("", "")),
            (format!("time\tvolts, V\tvalue\n{a},0\t230,1\t100,5\n{b}\t230\t99\n"), ("time", "value")),
            (format!("time,value\n{a},\"100,5\"\n{b},99\n"), ("1", "2")),
            (format!("Rack 3\ntime,value,state\n{a},100.5,1\n{b},99,1\n"), ("1", "2")),
        ] {
            let (micro, notes) = read(text.as_bytes(), columns.0, columns.1, 0).unwrap_or_else(|e| panic!("{text}{e}"));
            assert_eq!(micro, [100_500_000, 99_000_000], "{text}{notes:?}");
        }
    }

    #[test]
    fn decimal_commas_between_commas_are_refused() {
        let a = soon();
        for text in [format!("time,value\n{a},100,5\n"), format!("{a},100,5\n")] {
            let fault = read(text.as_bytes(), "", "", 0).unwrap_err();
            assert!(fault.cause().contains("a comma"), "{fault}");
        }
        assert_eq!(read(format!("{a},100,5\n").as_bytes(), "1", "2", 0).unwrap().0, [100_000_000], "it is stated");
        assert!(read(b"\xff\xfet\0;\0", "", "", 0).unwrap_err().cause().contains("UTF-16"));
    }

    #[test]
    fn times_without_a_zone_that_are_hours_off_are_told() {
        let of = |clock: &str, ahead: i64| {
            let notes = read(format!("2026-11-24T{clock},5\n").as_bytes(), "", "", ahead).unwrap().1;
            notes.into_iter().find(|note| note.contains("zone"))
        };
        let note = of("19:05:09", 0).expect("two hours are a zone");
        assert!(note.contains("2.0 h after") && note.ends_with("state offset=7200"), "{note}");
        assert!(of("11:35:08", 0).is_some_and(|note| note.contains("5.5 h before") && note.contains("=-19800")));
        for (clock, ahead) in
            [("17:05:09", 0), ("19:05:09Z", 0), ("19:05:09+02:00", 0), ("19:05:09", 7_200_000_000_000)]
        {
            assert_eq!(of(clock, ahead), None, "{clock}");
        }
    }
}
