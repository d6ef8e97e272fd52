use std::path::PathBuf;
use std::process::ExitCode;

use experiment::ledger::{self, Kind, Ledger, Pair, Scores};
use linux::output;
use machine::{Fault, Result};
use whatif::outcome::Forecast;
use whatif::outcome::bank::{Bank, LEVEL, Row};

use super::outputs::{self, Json};

/// Shows what plimsoll predicted beside what came: how often its intervals held, and which missed
///
/// A prediction is stored before its run starts. Kept for each host in ~/.local/state/plimsoll (XDG_STATE_HOME).
#[derive(clap::Args)]
pub struct Arguments {
    /// Write the ledger as an HTML page to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print instead, by kind of prediction and what it changes, how good the intervals were
    ///
    /// HELD: the share of outcomes in their interval, with the 95 % interval of that share, beside the share that was CLAIMED. BIAS:
    /// the median outcome over the expected one. WIDTH: the median of an interval's high end over its low end. WORST: the farthest
    /// outcome, over or under the expected one. SCORE: the interval score on logarithms, width plus misses; less is better.
    #[arg(long, conflicts_with = "html")]
    score: bool,
    #[command(flatten)]
    json: Json,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let ledger = Ledger::open()?;
    if let Some(note) = &ledger.note {
        eprintln!("plimsoll: {note}");
    }
    if arguments.score {
        let of = |place, pairs: &[Pair]| Scores { place, scores: ledger::score(pairs) };
        let all = [
            of("on this host", &ledger::pairs(&ledger)),
            of("shipped: recorded programs, each by the others", &shipped(false)),
            of("shipped: each by the others on another day", &shipped(true)),
        ];
        let page = || all.iter().map(|scores| scores.terminal(output::width())).collect::<Vec<_>>().join("\n");
        arguments.json.tell(|| outputs::json(&all), || output::page(&page()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let all = serde_json::json!({ "predictions": ledger.predictions, "outcomes": ledger.outcomes });
    arguments.json.tell(|| outputs::json(&all), || output::page(&ledger::terminal(&ledger)))?;
    if let Some(file) = arguments.html {
        let written = std::fs::write(&file, ledger::page(&ledger));
        written.map_err(|e| Fault::unwritable(file.display().to_string(), e, "name another file with --html"))?;
        if !arguments.json.is_printed() {
            output::print(&format!("page: {}\n", file.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The outcomes that intervals of `plimsoll whatif` are calibrated by; `apart`: judged by other sessions alone.
fn shipped(apart: bool) -> Vec<Pair> {
    let pair = |(row, forecast): (&Row, Forecast)| match forecast {
        Forecast::Within { time, .. } => {
            let lever = Some(row.kind.word().to_owned());
            Some(Pair { kind: Kind::WhatIf, lever, expected: time, level: LEVEL, value: row.observed })
        }
        _ => None,
    };
    Bank::shipped().cross_judged(apart).into_iter().filter_map(pair).collect()
}
