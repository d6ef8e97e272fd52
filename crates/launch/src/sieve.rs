//! Takes report lines out of what ranks write to standard error, and lets all else through as it comes.

use std::io::{self, Read, Write};

/// How a report line starts.
pub const MARK: &str = "plimsoll-report ";

/// The longest tag that a launcher puts before a line ("[1,0]<stderr>:" or "[0] ") that is waited for.
const LONGEST_TAG: usize = 96;

/// One stream being sifted.
#[derive(Debug, Default)]
pub struct Sieve {
    /// The line so far, while it may still become a report.
    held: Vec<u8>,
    /// The rest of the line goes through.
    passing: bool,
    reports: Vec<String>,
}

impl Sieve {
    /// Sifts `bytes` as they arrive; what is no report goes to `out`.
    pub fn sift(&mut self, bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let ends = part.ends_with(b"\n");
            if self.passing {
                out.write_all(part)?;
            } else {
                self.held.extend_from_slice(part);
                match judge(&self.held) {
                    Verdict::Report(from) if ends => {
                        let line = String::from_utf8_lossy(&self.held[from..]).trim_end().to_owned();
                        self.reports.push(line);
                        self.held.clear();
                    }
                    Verdict::Report(_) | Verdict::Open if !ends => {}
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

    /// The stream has ended: lets go what was held, and gives the text of each report without its mark.
    pub fn finish(mut self, out: &mut impl Write) -> io::Result<Vec<String>> {
        match judge(&self.held) {
            Verdict::Report(from) => self.reports.push(String::from_utf8_lossy(&self.held[from..]).into_owned()),
            _ => out.write_all(&self.held)?,
        }
        out.flush()?;
        Ok(self.reports)
    }
}

/// Sifts `from` until it ends. What cannot be written to `out` is dropped, so that no rank is held up by it.
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
    /// It is one; its text starts here.
    Report(usize),
    /// It may become one.
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
