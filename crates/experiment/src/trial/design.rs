//! What a trial compares, and by what.

use machine::{Fault, Result};
use serde::{Deserialize, Serialize};

use super::check::Check;
use super::conditions::Conditions;
use super::merit::Merit;
use crate::axes::Axes;

/// As many arms as a page can show side by side.
pub const MOST_ARMS: usize = 12;

/// One way to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// What sets it apart from the others, in words.
    pub name: String,
    /// What is asked of it.
    pub axes: Axes,
    /// The words that are run.
    pub command: Vec<String>,
    /// Variables that are set for it.
    pub variables: Vec<(String, String)>,
    /// Whether plimsoll must have carried its messages.
    pub proven: bool,
    /// A command line that runs it without a trial.
    pub line: String,
}

/// What a trial compares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Design {
    /// The first is what is used today.
    pub arms: Vec<Arm>,
    pub merit: Merit,
    pub check: Option<Check>,
    /// Differences within this share do not count.
    pub margin: f64,
    /// Runs of each arm before those that count.
    pub warmup: u32,
    /// Where they run.
    pub folder: String,
    /// The files that are run, with what was in them: a program that was built anew is another.
    pub programs: Vec<(String, String)>,
    /// The nodes of a batch system's allocation.
    pub nodes: String,
    #[serde(default, skip_serializing_if = "Conditions::are_usual")]
    pub conditions: Conditions,
}

impl Design {
    /// # Errors
    /// There is nothing to compare, or too much.
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

/// The letter that stands for an arm.
pub fn letter(arm: usize) -> char {
    (b'A' + (arm % 26) as u8) as char
}
