//! The papers' claims: each predicted from the rows that may feed a fit, judged by those that may only judge, beside what a
//! simple rule would have said.
//!
//! [`predict`] takes a [`Calibration`], which holds no check row. [`judge::judge`] takes what was predicted as text, and reads
//! `checks.toml`, which no other file does. The names of quantities are all that both know.

pub mod applications;
pub mod cores;
pub mod draws;
pub mod judge;
pub mod model;
pub mod open;
pub mod power;
pub mod programs;
pub mod rows;
pub mod statement;
pub mod stream;

use machine::Result;

pub use draws::Sweep;
pub use rows::Calibration;
pub use statement::{Prediction, Statement};

/// Every quantity that there is a model for, and those that there is none for, with the reason.
///
/// # Errors
/// A figure that a model reads and no row has.
pub fn predict(rows: &Calibration, sweep: Sweep) -> Result<Vec<Prediction>> {
    let parts = [
        stream::predict(rows, sweep)?,
        power::predict(rows, sweep)?,
        applications::predict(rows, sweep)?,
        cores::predict(rows, sweep)?,
        programs::predict_gromacs(rows, sweep)?,
        programs::predict_lammps(rows, sweep)?,
    ];
    Ok(parts.concat())
}
