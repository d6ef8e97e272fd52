//! Conditions of every run of a trial, besides its command.

use std::str::FromStr;

use machine::{Fault, Result};
use serde::{Deserialize, Serialize};

use super::aside::{Aside, Stage};

/// Conditions of a trial, which resumes only where they are the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Conditions {
    /// The file that each run reads as its standard input.
    pub input: Option<String>,
    /// The shell that runs the commands; `None`: they run directly.
    pub shell: Option<String>,
    /// Exit statuses other than 0 with which a run counts.
    pub ignored: Ignored,
    /// Whether arms after the first are proposals: a proposal that cannot run is left out, and the trial ends once the best
    /// is known, or once it is known that none gains much (`Judgement::suffices`).
    pub proposed: bool,
    /// Commands of each arm; empty where no arm has any.
    pub aside: Vec<Aside>,
}

impl Conditions {
    pub fn are_usual(&self) -> bool {
        *self == Conditions::default()
    }

    /// Words of a command beside the runs of an arm; empty: there is none.
    pub fn words(&self, arm: usize, stage: Stage) -> &[String] {
        self.aside.get(arm).map_or(&[], |aside| aside.words(stage))
    }
}

/// Exit statuses other than 0 that are no failure.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ignored {
    #[default]
    None,
    /// All from 1 to 125: a signal, or a program that cannot be started, is always a failure.
    All,
    Only(Vec<u8>),
}

impl Ignored {
    pub fn holds(&self, status: u8) -> bool {
        match self {
            Ignored::None => false,
            Ignored::All => (1..=125).contains(&status),
            Ignored::Only(statuses) => statuses.contains(&status),
        }
    }
}

/// Reads `all`, or statuses separated by commas.
impl FromStr for Ignored {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Ignored> {
        if text == "all" {
            return Ok(Ignored::All);
        }
        let status = |text: &str| text.trim().parse::<u8>().ok().filter(|status| (1..=125).contains(status));
        let statuses: Option<Vec<u8>> = text.split(',').map(status).collect();
        statuses.map(Ignored::Only).ok_or_else(|| {
            let cause = "these are no exit statuses from 1 to 125";
            Fault::new(format!("ignored failures '{text}'"), cause, "write them like 1 or 1,2")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_statuses_are_those_named() {
        let only: Ignored = "1, 3".parse().unwrap();
        assert_eq!([1, 2, 3].map(|status| only.holds(status)), [true, false, true]);
        let all: Ignored = "all".parse().unwrap();
        assert_eq!([0, 1, 125, 126].map(|status| all.holds(status)), [false, true, true, false]);
        assert!(!Ignored::None.holds(1));
        for text in ["", "0", "126", "1,", "x", "-1"] {
            assert!(text.parse::<Ignored>().unwrap_err().cause().contains("from 1 to 125"), "{text}");
        }
    }

    #[test]
    fn what_is_usual_is_not_stored() {
        let stored: Conditions = serde_json::from_str("{}").unwrap();
        assert!(stored.are_usual() && stored.words(3, Stage::Setup).is_empty());
        assert!(!Conditions { shell: Some("sh".into()), ..Conditions::default() }.are_usual());
    }
}
