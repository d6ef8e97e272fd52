//! Commands beside the runs of an arm. Their time is not part of the runs'.

use serde::{Deserialize, Serialize};

machine::named! {
    /// Stage of a trial at which a command beside the runs is started.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Stage {
        /// Once, before the first run of the arm.
        Setup = "setup",
        /// Before each run.
        Prepare = "prepare",
        /// After each run.
        Conclude = "conclude",
        /// Once, after all runs.
        Cleanup = "cleanup",
    }
}

impl Stage {
    /// Whether the command runs after an interruption too.
    pub fn tidies(self) -> bool {
        matches!(self, Stage::Conclude | Stage::Cleanup)
    }
}

/// Words of one arm's commands beside its runs; a command without words is not run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Aside {
    pub setup: Vec<String>,
    pub prepare: Vec<String>,
    pub conclude: Vec<String>,
    pub cleanup: Vec<String>,
}

impl Aside {
    pub fn words(&self, stage: Stage) -> &[String] {
        match stage {
            Stage::Setup => &self.setup,
            Stage::Prepare => &self.prepare,
            Stage::Conclude => &self.conclude,
            Stage::Cleanup => &self.cleanup,
        }
    }
}
