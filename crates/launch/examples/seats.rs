//! A command with each rank in its seat of a file, and the proof: `seats FILE PLIMSOLL -- mpirun -n 2 ./a.out`.

use std::path::Path;

use launch::seats::{self, SeatedCommand};
use machine::seat::Seats;
use machine::{Fault, Result};

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [file, plimsoll, _, recorded @ ..] = &words[..] else {
        return Err(Fault::new("arguments", "some are missing", "write FILE PLIMSOLL -- COMMAND"));
    };
    let text = std::fs::read_to_string(file).map_err(|e| Fault::because(file.clone(), e, "check its name"))?;
    let seats: Seats = text.parse()?;
    let folder = std::env::current_dir().map_err(|e| Fault::because("this folder", e, "choose another"))?;
    let line = SeatedCommand::new(recorded, &seats, &folder)?;
    println!("{line}");
    line.replaced.iter().for_each(|option| println!("in place of {option}"));
    print!("{}", seats::verify(&line, &seats, Path::new(plimsoll), seats::TIMEOUT)?);
    Ok(())
}
