//! The loop by which everything that is measured in rounds is carried out: a study, a trial, a comparison that is
//! printed at once.

use std::ops::ControlFlow;

use machine::Result;

/// What fails so often is left out of the rest.
pub const FAILURES: usize = 2;

/// What is measured in rounds.
pub trait Sitting {
    /// One measurement of a round.
    type Turn;
    /// The result of a turn.
    type Block;

    /// The turns of the next round, in order; none where there is nothing more to learn, or no time.
    ///
    /// # Errors
    /// The experiment cannot go on.
    fn next_round(&mut self) -> Result<ControlFlow<End, Vec<Self::Turn>>>;

    /// Whether a turn is still wanted when it comes.
    fn is_due(&self, turn: &Self::Turn) -> bool;

    /// Measures a turn.
    ///
    /// # Errors
    /// The turn could not be measured.
    fn block(&mut self, turn: &Self::Turn) -> Result<Self::Block>;

    /// Stores the outcome of a turn.
    ///
    /// # Errors
    /// The experiment cannot go on.
    fn keep(&mut self, turn: Self::Turn, outcome: Result<Self::Block>) -> Result<()>;

    /// Whether to end now.
    fn stopped(&self) -> bool;
}

/// Why a sitting ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// There is nothing more to learn.
    Finished,
    OutOfTime,
    /// It was stopped, and can go on: what was kept stays.
    Interrupted,
}

/// Carries a sitting out.
///
/// # Errors
/// The experiment cannot go on.
pub fn sit(sitting: &mut impl Sitting) -> Result<End> {
    loop {
        let turns = match sitting.next_round()? {
            ControlFlow::Continue(turns) => turns,
            ControlFlow::Break(end) => return Ok(end),
        };
        for turn in turns {
            if !sitting.is_due(&turn) {
                continue;
            }
            if sitting.stopped() {
                return Ok(End::Interrupted);
            }
            let outcome = sitting.block(&turn);
            // The signal that ends a sitting also reaches the programs that it measures: that is no failure.
            if outcome.is_err() && sitting.stopped() {
                return Ok(End::Interrupted);
            }
            sitting.keep(turn, outcome)?;
        }
    }
}
