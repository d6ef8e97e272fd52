//! The command that starts a program with each rank in its seat, and the proof that the launcher keeps the seats.
//!
//! A recorded command, with [`Seats`](machine::seat::Seats), becomes a [`SeatedCommand`] of the same launcher. All options
//! stay that do not contradict the seats. [`verify`] starts the command with a small program in place of the user's, which
//! reads back its host and cores.
//!
//! ```no_run
//! # fn main() -> machine::Result<()> {
//! use launch::seats::{self, SeatedCommand};
//! use machine::seat::Seats;
//!
//! let recorded = ["mpirun", "-n", "2", "--bind-to", "core", "./a.out"].map(str::to_owned);
//! let seats: Seats = "0 node1 1\n1 node1 0".parse()?;
//! let line = SeatedCommand::new(&recorded, &seats, std::path::Path::new("/home/me/seats"))?;
//! println!("{line}"); // mpirun --oversubscribe ... --rankfile /home/me/seats/rankfile -n 2 ./a.out
//! assert_eq!(line.replaced, ["--bind-to core"]);
//! let verified = seats::verify(&line, &seats, std::path::Path::new("/usr/bin/plimsoll"), seats::TIMEOUT)?;
//! assert_eq!(verified, seats);
//! # Ok(())
//! # }
//! ```

mod command;
mod dialect;
mod form;
mod hosts;
mod settings;
mod verified;

pub use command::SeatedCommand;
pub use dialect::Dialect;
pub(crate) use form::{LauncherInput, by_host, renamed, write};
pub(crate) use hosts::{check, is_here, is_here_alone};
pub use verified::{TIMEOUT, of_this_process, threads_elsewhere, verify};

#[cfg(test)]
mod tests;
