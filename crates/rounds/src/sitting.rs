//! The loop by which everything that is measured in rounds is carried out: a study, a trial, a comparison that is
//! printed at once.

use machine::Result;

/// An experiment that is measured in rounds.
pub trait Sitting {
    /// One measurement of a round.
    type Turn;
    /// The result of a turn.
    type Block;

    /// The turns of the next round, in order; none where there is nothing more to learn, or no time.
    ///
    /// # Errors
    /// The experiment cannot go on.
    fn next_round(&mut self) -> Result<Vec<Self::Turn>>;

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
    Finished,
    /// The sitting was stopped; what was kept stays.
    Interrupted,
}

/// Carries a sitting out.
///
/// # Errors
/// The experiment cannot go on.
pub fn sit(sitting: &mut impl Sitting) -> Result<End> {
    loop {
        let turns = sitting.next_round()?;
        if turns.is_empty() {
            return Ok(End::Finished);
        }
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
