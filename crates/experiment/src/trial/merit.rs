//! Figure of merit of a trial: the time of a run, whole or between MPI_Init and MPI_Finalize, or a number in its output.

use std::ops::Range;

use machine::{Fault, Nanoseconds, Result};
use regex_lite::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

/// Word instead of a pattern: the time between MPI_Init and MPI_Finalize.
pub const MPI: &str = "mpi";

/// The figure by which runs are compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merit {
    /// Pattern whose group's last match in a run's output is the figure; `None`: a time.
    pub pattern: Option<String>,
    pub more_is_better: bool,
    /// Whether the time is that between MPI_Init and MPI_Finalize, by the profiler, instead of the whole run's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mpi: bool,
}

impl Merit {
    /// # Errors
    /// The pattern is not valid, or does not have exactly one group.
    pub fn new(pattern: Option<&str>, more_is_better: bool) -> Result<Merit> {
        let mpi = pattern == Some(MPI);
        let pattern = pattern.filter(|_| !mpi);
        if let Some(pattern) = pattern {
            compiled("metric", pattern)?;
        } else if more_is_better {
            let next = "name a number that the program prints with --metric 'Performance: +([0-9.]+)' --more";
            return Err(Fault::new("--more", "a run that takes longer is not better", next));
        }
        Ok(Merit { pattern: pattern.map(str::to_owned), more_is_better, mpi })
    }

    /// Figure of a run, by its time or its output: standard output, else standard error.
    pub fn of(&self, elapsed: Nanoseconds, said: &str, complained: &str) -> Result<f64> {
        let Some(pattern) = &self.pattern else { return Ok(elapsed.0 as f64 / 1e9) };
        let regex = compiled("metric", pattern)?;
        let last = |text: &str| {
            let found = regex.captures_iter(text).last()?;
            let (all, number) = (found.get(0)?, found.get(1)?);
            Some((number.as_str().to_owned(), is_cut(text, all.range(), number.range())))
        };
        let (found, is_cut) = last(said).or_else(|| last(complained)).ok_or_else(|| {
            let next = "run the command alone and see what it prints";
            Fault::new(format!("metric '{pattern}'"), "nothing that the run printed matches it", next)
        })?;
        if is_cut {
            let cause =
                format!("it finds '{found}' beside a comma and a digit: that may be a part of a number like 52,4");
            let next = "have it printed with a point (env LC_ALL=C COMMAND), or write the comma into the pattern";
            return Err(Fault::new(format!("metric '{pattern}'"), cause, next));
        }
        let value = number(&found).filter(|value| value.is_finite() && *value > 0.0);
        value.ok_or_else(|| {
            let cause = format!("it finds '{found}', which is no number above 0");
            Fault::new(format!("metric '{pattern}'"), cause, "let its group match a number alone, like ([0-9.]+)")
        })
    }

    /// Name of the figure, with its unit where known.
    pub fn name(&self) -> String {
        match &self.pattern {
            None if self.mpi => "time between MPI_Init and MPI_Finalize [s]".to_owned(),
            None => "time of a run [s]".to_owned(),
            // The words of the pattern before the number.
            Some(pattern) => {
                let words = pattern.split('(').next().unwrap_or_default();
                let words = words.replace(|c: char| "[]+*?\\^$".contains(c), " ");
                let words = words.trim().trim_end_matches([':', '=']).trim_end();
                if words.is_empty() { pattern.clone() } else { words.to_owned() }
            }
        }
    }
}

/// Whether `number`, the group of a match, begins or ends at a comma between two digits that the pattern does not contain.
fn is_cut(text: &str, all: Range<usize>, number: Range<usize>) -> bool {
    let is_digit = |at: Option<usize>| at.and_then(|at| text.as_bytes().get(at)).is_some_and(u8::is_ascii_digit);
    let is_comma = |at: Option<usize>| at.is_some_and(|at| text.as_bytes().get(at) == Some(&b','));
    let before = |by: usize| number.start.checked_sub(by);
    let begins = all.start == number.start && is_comma(before(1)) && is_digit(before(2));
    begins || (all.end == number.end && is_comma(Some(number.end)) && is_digit(Some(number.end + 1)))
}

/// A number in programs' output: Fortran's double precision has D before the exponent.
pub(super) fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    text.parse::<f64>().or_else(|_| text.replace(['D', 'd'], "e").parse::<f64>()).ok()
}

/// Compiles a pattern. Lines end at LF, at CR LF as from a pseudo-terminal, and at CR as in progress output.
///
/// # Errors
/// The pattern is not valid, or does not have exactly one group.
pub(super) fn compiled(what: &str, pattern: &str) -> Result<Regex> {
    let subject = || format!("{what} '{pattern}'");
    let regex = RegexBuilder::new(pattern).multi_line(true).crlf(true).build().map_err(|error| {
        Fault::because(subject(), error, "write a regular expression like 'Loop time of ([0-9.]+)'")
    })?;
    match regex.captures_len() {
        2 => Ok(regex),
        groups => Err(Fault::new(
            subject(),
            format!("it has {} groups in parentheses, not one", groups - 1),
            "put parentheses round the number alone; where others are needed write (?:...)",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanoseconds = Nanoseconds(1_500_000_000);

    #[test]
    fn the_last_number_counts_and_standard_output_first() {
        let merit = Merit::new(Some("time ([0-9.e+-]+)"), false).unwrap();
        let of = |said, complained| merit.of(SECOND, said, complained);
        assert_eq!(of("time 1\ntime 2.5\n", "time 9").unwrap(), 2.5);
        assert_eq!(of("", "x time 4e-3 s").unwrap(), 0.004);
        assert!(of("no such", "").unwrap_err().cause().contains("nothing that the run printed"));
        assert!(of("time 0", "").unwrap_err().cause().contains("no number above 0"));
        assert_eq!(Merit::new(None, false).unwrap().of(SECOND, "", "").unwrap(), 1.5);
        assert_eq!(
            (merit.name().as_str(), Merit::new(Some("([0-9]+) ns"), false).unwrap().name().as_str()),
            ("time", "([0-9]+) ns")
        );
    }

    #[test]
    fn a_part_of_a_number_with_a_comma_is_refused() {
        let of = |pattern, said| Merit::new(Some(pattern), false).unwrap().of(SECOND, said, "");
        for (pattern, said) in
            [("time ([0-9.]+)", "time 52,4 s"), ("([0-9.]+) ns", "time 52,4 ns"), ("([0-9.]+)", "1,234.5")]
        {
            let fault = of(pattern, said).unwrap_err();
            assert!(fault.cause().contains("a comma"), "{pattern}: {fault}");
        }
        for (pattern, said) in [
            (",([0-9.]+)$", "a,3,52.4"),
            ("([0-9.]+),", "52.4,3"),
            ("time ([0-9.]+)", "time 52.4, then 3"),
            ("time ([0-9.]+)", "time 52.4,\ntime 52.4"),
        ] {
            assert_eq!(of(pattern, said).unwrap(), 52.4, "{pattern}");
        }
    }

    #[test]
    fn lines_end_at_cr_too_and_fortrans_exponents_are_read() {
        let of = |pattern, said| Merit::new(Some(pattern), false).unwrap().of(SECOND, said, "").unwrap();
        assert_eq!(of("^time (.*)$", "time 1.5\r\ntime 2.5\r\nend\r\n"), 2.5);
        assert_eq!(of("^time (.*)$", "10 %\r20 %\rtime 3.5\r"), 3.5);
        assert_eq!(of("E = (.*)", "E = 0.1234D+02"), 12.34);
        assert_eq!([number("1d-3"), number("nad"), number("1,5")], [Some(1e-3), None, None]);
    }

    #[test]
    fn the_time_of_mpi_is_a_time_and_changes_no_other_trial() {
        let merit = Merit::new(Some(MPI), false).unwrap();
        assert_eq!((merit.of(SECOND, "", "").unwrap(), merit.mpi, merit.pattern.is_none()), (1.5, true, true));
        assert!(Merit::new(Some(MPI), true).is_err());
        let before = r#"{"pattern":null,"more_is_better":false}"#;
        assert_eq!(serde_json::to_string(&Merit::new(None, false).unwrap()).unwrap(), before);
        assert!(!serde_json::from_str::<Merit>(before).unwrap().mpi);
    }

    #[test]
    fn a_pattern_has_one_group() {
        for (pattern, why) in [("time (", "metric 'time ('"), ("time", "0 groups"), ("(a)(b)", "2 groups")] {
            let fault = Merit::new(Some(pattern), false).unwrap_err().to_string();
            assert!(fault.contains(why), "{fault}");
        }
        assert!(Merit::new(Some("(?:a|b)([0-9]+)"), true).is_ok());
        assert!(Merit::new(None, true).is_err());
    }
}
