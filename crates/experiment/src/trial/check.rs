//! Checks that arms have the same result: a faster wrong answer does not count.

use std::path::Path;
use std::time::SystemTime;

use machine::{Fault, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::merit::{compiled, number};

/// The part of a run that must be the same as the first arm's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// The whole standard output.
    Output,
    /// The exit status, which need not be 0.
    Status,
    /// A file that the run writes.
    File(String),
    /// All matches of a pattern's group in the output; numbers may differ by the share `tolerance`.
    Found { pattern: String, tolerance: Option<f64> },
}

impl Check {
    /// Reads `stdout`, `status`, a pattern with a group and perhaps `~SHARE`, or the name of a file: text without a
    /// parenthesis, the name of an existing file, or text that begins with `./`.
    pub fn parse(text: &str) -> Result<Check> {
        if text == "stdout" {
            return Ok(Check::Output);
        }
        if text == "status" {
            return Ok(Check::Status);
        }
        if !text.contains('(') || text.starts_with("./") || Path::new(text).is_file() {
            return Ok(Check::File(text.to_owned()));
        }
        // Before anything but a number, a tilde is part of the pattern.
        let share = text.rsplit_once('~').and_then(|(pattern, share)| Some((pattern, share.parse::<f64>().ok()?)));
        let (pattern, tolerance) = match share {
            Some((pattern, share)) if (0.0..1.0).contains(&share) => (pattern, Some(share)),
            Some((_, share)) => {
                let cause = format!("'{share}' is no share from 0 to 1");
                let next = "write it like 'Energy: (\\S+)~1e-9'; a tilde before a number is [~] in a pattern";
                return Err(Fault::new(format!("check '{text}'"), cause, next));
            }
            None => (text, None),
        };
        compiled("check", pattern)?;
        Ok(Check::Found { pattern: pattern.to_owned(), tolerance })
    }

    /// Evidence of a run that began at `began` and ended with `status`.
    pub fn evidence(
        &self,
        folder: &Path,
        began: SystemTime,
        (said, complained): (&str, &str),
        status: u8,
    ) -> Result<String> {
        let digest = |bytes: &[u8]| Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        match self {
            Check::Output => Ok(digest(said.as_bytes())),
            Check::Status => Ok(status.to_string()),
            Check::File(name) => {
                let path = folder.join(name);
                let subject = || format!("file {} of --check", path.display());
                let failed = |e| Fault::because(subject(), e, "name a file that every run writes");
                let written = path.metadata().and_then(|file| file.modified()).map_err(failed)?;
                // A file system's clock may be coarse.
                if written + std::time::Duration::from_millis(20) < began {
                    return Err(Fault::new(subject(), "the run did not write it", "name a file that every run writes"));
                }
                std::fs::read(&path).map(|bytes| digest(&bytes)).map_err(failed)
            }
            Check::Found { pattern, .. } => {
                let regex = compiled("check", pattern)?;
                let all = |text| -> Vec<String> {
                    regex.captures_iter(text).filter_map(|found| Some(found.get(1)?.as_str().to_owned())).collect()
                };
                let found = match all(said) {
                    none if none.is_empty() => all(complained),
                    found => found,
                };
                if found.is_empty() {
                    let next = "run the command alone and see what it prints";
                    return Err(Fault::new(
                        format!("check '{pattern}'"),
                        "nothing that the run printed matches it",
                        next,
                    ));
                }
                Ok(found.join("\n"))
            }
        }
    }

    /// Difference between `evidence` and the first arm's.
    pub fn difference(&self, evidence: &str, reference: &str) -> Option<String> {
        match self {
            _ if evidence == reference => None,
            Check::Output => Some("it prints something else".to_owned()),
            Check::Status => Some(format!("it ends with exit status {evidence}, not {reference}")),
            Check::File(name) => Some(format!("{name} has something else in it")),
            Check::Found { tolerance, .. } => {
                let (ours, theirs): (Vec<&str>, Vec<&str>) = (evidence.lines().collect(), reference.lines().collect());
                if ours.len() != theirs.len() {
                    return Some(format!("{} results, not {}", ours.len(), theirs.len()));
                }
                let mut pairs = ours.into_iter().zip(theirs);
                pairs
                    .find(|(one, other)| !is_same(one, other, *tolerance))
                    .map(|(one, other)| format!("{one}, not {other}"))
            }
        }
    }
}

fn is_same(one: &str, other: &str, tolerance: Option<f64>) -> bool {
    one == other
        || match (tolerance, number(one), number(other)) {
            (Some(share), Some(one), Some(other)) => (one - other).abs() <= share * other.abs().max(one.abs()),
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_read_as_they_are_written() {
        assert_eq!(Check::parse("stdout").unwrap(), Check::Output);
        assert_eq!(Check::parse("out/log.txt").unwrap(), Check::File("out/log.txt".into()));
        let found = |tolerance| Check::Found { pattern: "E: (\\S+)".into(), tolerance };
        assert_eq!(Check::parse("E: (\\S+)").unwrap(), found(None));
        assert_eq!(Check::parse("E: (\\S+)~1e-9").unwrap(), found(Some(1e-9)));
        for wrong in ["E: (\\S+)~2", "(a)(b)", "(a"] {
            assert!(Check::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_tilde_may_be_a_part_of_a_pattern_and_a_parenthesis_of_a_file() {
        let found = |pattern: &str, tolerance| Check::Found { pattern: pattern.into(), tolerance };
        for (text, pattern, tolerance) in [
            ("E ~ (\\S+)", "E ~ (\\S+)", None),
            ("E ~ (\\S+)~1e-9", "E ~ (\\S+)", Some(1e-9)),
            ("(\\S+)[~]5", "(\\S+)[~]5", None),
        ] {
            assert_eq!(Check::parse(text).unwrap(), found(pattern, tolerance));
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("out(1).dat");
        let name = file.to_str().unwrap();
        assert_eq!(Check::parse(name).unwrap(), found(name, None));
        std::fs::write(&file, "").unwrap();
        assert_eq!(Check::parse(name).unwrap(), Check::File(name.into()));
        assert_eq!(Check::parse("./out(1).dat").unwrap(), Check::File("./out(1).dat".into()));
    }

    #[test]
    fn numbers_may_differ_by_their_tolerance_and_words_not() {
        let check = Check::parse("E: (\\S+)~1e-3").unwrap();
        let of = |text| check.evidence(Path::new("."), SystemTime::now(), (text, ""), 0).unwrap();
        let reference = of("E: -4.70 and E: done");
        assert_eq!(check.difference(&of("E: -4.7004 and E: done"), &reference), None);
        assert_eq!(check.difference(&of("E: -4.61 and E: done"), &reference).unwrap(), "-4.61, not -4.70");
        assert_eq!(check.difference(&of("E: -4.70 and E: over"), &reference).unwrap(), "over, not done");
        assert_eq!(check.difference(&of("E: -4.70"), &reference).unwrap(), "1 results, not 2");
        assert!(check.difference(&of("E: nan and E: done"), &reference).is_some());
        assert!(check.evidence(Path::new("."), SystemTime::now(), ("", ""), 0).is_err());
    }

    #[test]
    fn a_file_must_be_written_by_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let check = Check::parse("out").unwrap();
        assert!(check.evidence(folder.path(), SystemTime::now(), ("", ""), 0).is_err());
        std::fs::write(folder.path().join("out"), "1").unwrap();
        let now = SystemTime::now();
        let reference = check.evidence(folder.path(), now, ("", ""), 0).unwrap();
        let later = now + std::time::Duration::from_secs(1);
        let fault = check.evidence(folder.path(), later, ("", ""), 0).unwrap_err();
        assert!(fault.cause().contains("did not write it"), "{fault}");
        std::fs::write(folder.path().join("out"), "2").unwrap();
        assert!(check.difference(&check.evidence(folder.path(), now, ("", ""), 0).unwrap(), &reference).is_some());
    }
}
