//! Arms of a trial, and the terms of their comparison.

use machine::{Fault, Result};
use serde::{Deserialize, Serialize};

use super::check::Check;
use super::conditions::Conditions;
use super::merit::Merit;
use crate::axes::Axes;

/// Most arms of a trial: a page shows no more side by side.
pub const MOST_ARMS: usize = 12;

/// A command that a trial compares with others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// Difference from the other arms, in words.
    pub name: String,
    /// Values of the axes.
    pub axes: Axes,
    /// Words of the command.
    pub command: Vec<String>,
    /// Variables of the arm's environment.
    pub variables: Vec<(String, String)>,
    /// Whether a run counts only if plimsoll carried its messages.
    pub proven: bool,
    /// Command line that runs the arm without a trial.
    pub line: String,
}

/// Arms, and the terms of their comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Design {
    /// The first is the command in use today.
    pub arms: Vec<Arm>,
    pub merit: Merit,
    pub check: Option<Check>,
    /// Share within which differences do not count.
    pub margin: f64,
    /// Warm-up runs of each arm.
    pub warmup: u32,
    /// Working folder of the runs.
    pub folder: String,
    /// Files that are run, with their digests: a rebuilt program is another one.
    pub programs: Vec<(String, String)>,
    /// The nodes of a batch system's allocation.
    pub nodes: String,
    #[serde(default, skip_serializing_if = "Conditions::are_usual")]
    pub conditions: Conditions,
}

impl Design {
    /// # Errors
    /// There are too few arms to compare, or too many.
    pub fn checked(self) -> Result<Design> {
        let next = "write two commands, `plimsoll try -- A -- B`, or vary one, `plimsoll try --vary NAME=1,2 -- A`";
        match self.arms.len() {
            0 => Err(Fault::new("a trial", "there is no command to run", next)),
            1 => Err(Fault::new("a trial", "one command alone has nothing to be held against", next)),
            2..=MOST_ARMS => Ok(self),
            many => {
                let cause = format!("{many} are more than the {MOST_ARMS} that one trial compares");
                Err(Fault::new("a trial", cause, "vary fewer settings, or fewer values of each"))
            }
        }
    }
}

/// Letter of an arm.
pub fn letter(arm: usize) -> char {
    (b'A' + (arm % 26) as u8) as char
}
