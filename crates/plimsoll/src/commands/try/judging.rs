//! Options for the figure by which runs are judged, and for checks of results.

use experiment::trial::check::Check;
use experiment::trial::merit::Merit;
use machine::Result;

#[derive(clap::Args)]
#[group(skip)]
pub struct Judging {
    /// Go by the last number that the group of this pattern finds in what is printed, or by the time between MPI_Init and
    /// MPI_Finalize: mpi [default: the time of a run]
    #[arg(long, value_name = "REGEX|mpi")]
    metric: Option<String>,
    /// More of the metric is better
    #[arg(long)]
    more: bool,
    /// Hold results against the first command's: stdout, status (the exit status, which then need not be 0), a FILE that each
    /// run writes, or 'REGEX' with a group, numbers within 'REGEX~SHARE'
    #[arg(long, value_name = "WHAT")]
    check: Option<String>,
}

impl Judging {
    /// Whether the user chose a figure in place of the time of a run.
    pub fn is_chosen(&self) -> bool {
        self.metric.is_some()
    }

    /// # Errors
    /// The metric is no pattern with a group.
    pub fn merit(&self) -> Result<Merit> {
        Merit::new(self.metric.as_deref(), self.more)
    }

    /// # Errors
    /// The check is not valid.
    pub fn check(&self) -> Result<Option<Check>> {
        self.check.as_deref().map(Check::parse).transpose()
    }
}
