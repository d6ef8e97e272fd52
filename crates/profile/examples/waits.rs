//! Reads a profile and asks it a question of one's own: which ranks wait most, and where is that?
//!
//! `cargo run -p profile --example waits -- DIR`, where DIR was made by `plimsoll profile -o DIR -- mpirun ...`.

use std::path::PathBuf;
use std::process::ExitCode;

use profile::profile::Profile;
use profile::summary::Summary;
use profile::terminal::{Screen, render};

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: waits DIR");
        return ExitCode::FAILURE;
    };
    let profile = match Profile::open(&folder) {
        Ok(profile) => profile,
        Err(fault) => {
            eprintln!("{fault}");
            return ExitCode::FAILURE;
        }
    };
    let summary = Summary::of(&profile);
    let waited = |rank: &profile::summary::RankSummary| rank.split.wait.value().copied().unwrap_or(0.0);
    match summary.ranks.iter().max_by(|a, b| waited(a).total_cmp(&waited(b))) {
        Some(most) => println!("rank {} waits most: {:.3} s of {:.3} s\n", most.rank, waited(most), most.seconds),
        None => println!("no rank left tables\n"),
    }
    // The rest as `plimsoll report` shows it.
    print!("{}", render(&summary, Screen { width: 140, colour: false, sites: 20 }));
    ExitCode::SUCCESS
}
