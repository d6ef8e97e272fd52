//! Takes report lines out of the ranks' standard error, and passes all else on as it comes.

use std::io::{self, Read, Write};

use machine::bounds::{REPORT_LINE, REPORTS};

/// Start of a report line.
pub const MARK: &str = "plimsoll-report ";

/// Bytes of a launcher's longest tag before a line ("[1,0]<stderr>:" or "[0] ").
const LONGEST_TAG: usize = 96;

/// Most bytes of a line that is held until its end, and of all reports.
const LONGEST: usize = REPORT_LINE.each.bytes().0 as usize;
const MOST: usize = REPORTS.total.bytes().0 as usize;

/// State of a stream that is sifted.
#[derive(Debug, Default)]
pub struct Sieve {
    /// The line so far, while it may still be a report.
    held: Vec<u8>,
    /// Whether the rest of the line is passed on.
    passing: bool,
    reports: Vec<String>,
    /// Bytes of the reports.
    taken: usize,
}

impl Sieve {
    /// Sifts `bytes` as they arrive; all but reports goes to `out`.
    pub fn sift(&mut self, bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let ends = part.ends_with(b"\n");
            if self.passing {
                out.write_all(part)?;
            } else {
                self.held.extend_from_slice(part);
                match judge(&self.held) {
                    Verdict::Report(from) if ends && self.has_room() => {
                        let line = String::from_utf8_lossy(&self.held[from..]).trim_end().to_owned();
                        self.taken += line.len();
                        self.reports.push(line);
                        self.held.clear();
                    }
                    Verdict::Report(_) | Verdict::Open if !ends && self.has_room() => {}
                    _ => {
                        out.write_all(&self.held)?;
                        self.held.clear();
                        self.passing = true;
                    }
                }
            }
            if ends {
                self.passing = false;
            }
        }
        out.flush()
    }

    /// Whether the held line is within the limits of a report and of all reports.
    fn has_room(&self) -> bool {
        self.held.len() <= LONGEST && self.taken + self.held.len() <= MOST
    }

    /// Ends the stream: writes the held line unless it is a report. Returns the reports' texts without their marks.
    pub fn finish(mut self, out: &mut impl Write) -> io::Result<Vec<String>> {
        match judge(&self.held) {
            Verdict::Report(from) => self.reports.push(String::from_utf8_lossy(&self.held[from..]).into_owned()),
            _ => out.write_all(&self.held)?,
        }
        out.flush()?;
        Ok(self.reports)
    }
}

/// Sifts `from` until it ends. Bytes that cannot be written to `out` are lost, so that no rank is held up.
pub fn run(mut from: impl Read, mut out: impl Write) -> Vec<String> {
    let mut sieve = Sieve::default();
    let mut buffer = [0; 16 * 1024];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => {
                let _ = sieve.sift(&buffer[..length], &mut out);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    sieve.finish(&mut out).unwrap_or_default()
}

#[derive(Debug, PartialEq)]
enum Verdict {
    /// The line is a report, whose text begins here.
    Report(usize),
    /// The line may become a report.
    Open,
    No,
}

fn judge(line: &[u8]) -> Verdict {
    let mark = MARK.as_bytes();
    if line.starts_with(b"[") {
        if let Some(at) = line.windows(mark.len()).take(LONGEST_TAG).position(|window| window == mark) {
            return Verdict::Report(at + mark.len());
        }
        return if line.len() < LONGEST_TAG { Verdict::Open } else { Verdict::No };
    }
    if line.starts_with(mark) {
        Verdict::Report(mark.len())
    } else if mark.starts_with(line) {
        Verdict::Open
    } else {
        Verdict::No
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sifted(parts: &[&[u8]]) -> (String, Vec<String>) {
        let mut out = Vec::new();
        let mut sieve = Sieve::default();
        for part in parts {
            sieve.sift(part, &mut out).unwrap();
        }
        let reports = sieve.finish(&mut out).unwrap();
        (String::from_utf8(out).unwrap(), reports)
    }

    #[test]
    fn reports_are_taken_out_and_the_rest_stays() {
        let (rest, reports) =
            sifted(&[b"before\nplimsoll-rep", b"ort {\"rank\":0}\nplims", b"oll is a ship's mark\nend"]);
        assert_eq!(rest, "before\nplimsoll is a ship's mark\nend");
        assert_eq!(reports, ["{\"rank\":0}"]);
    }

    #[test]
    fn tags_of_launchers_are_seen_through() {
        let (rest, reports) = sifted(&[b"[1,0]<stderr>:plimsoll-report {}\n[1] plimsoll-report {}\n[a] said\n"]);
        assert_eq!(rest, "[a] said\n");
        assert_eq!(reports, ["{}", "{}"]);
    }

    #[test]
    fn a_report_without_end_is_let_through_and_not_kept() {
        let mut sieve = Sieve::default();
        let (mut out, part) = (Vec::new(), [b'x'; 10_000]);
        sieve.sift(MARK.as_bytes(), &mut out).unwrap();
        for _ in 0..100 {
            sieve.sift(&part, &mut out).unwrap();
            assert!(sieve.held.len() <= LONGEST + part.len());
        }
        sieve.sift(b"\nplimsoll-report {}\n", &mut out).unwrap();
        assert_eq!(out.len(), MARK.len() + 100 * part.len() + 1, "not a byte is lost");
        assert_eq!(sieve.finish(&mut out).unwrap(), ["{}"]);
    }

    #[test]
    fn reports_beyond_those_of_a_job_are_let_through() {
        let mut sieve = Sieve { taken: MOST - 40, ..Sieve::default() };
        let mut out = Vec::new();
        for _ in 0..4 {
            sieve.sift(b"plimsoll-report {\"rank\":0}\n", &mut out).unwrap();
        }
        assert!(out.starts_with(b"plimsoll-report"));
        assert!(sieve.taken <= MOST && !sieve.reports.is_empty());
    }

    #[test]
    fn an_unfinished_line_is_not_held_back() {
        let mut out = Vec::new();
        Sieve::default().sift(b"password: ", &mut out).unwrap();
        assert_eq!(out, b"password: ");
    }

    #[test]
    fn a_mark_within_a_line_is_no_report() {
        let line = "it printed plimsoll-report {}\n";
        assert_eq!(sifted(&[line.as_bytes()]), (line.to_owned(), vec![]));
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(lines in prop::collection::vec("(plimsoll-report [a-z]{0,9}|\\[1\\] ?[a-z]{0,9}|[a-z ]{0,30})", 0..8), cut in 1usize..20) {
            let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
            let whole = sifted(&[text.as_bytes()]);
            let parts: Vec<&[u8]> = text.as_bytes().chunks(cut).collect();
            prop_assert_eq!(&sifted(&parts), &whole);
            let expected: String = text.split_inclusive('\n').filter(|line| !line.starts_with(MARK)).collect();
            prop_assert_eq!(whole.0, expected);
        }
    }
}
