use std::process::ExitCode;

use linux::output;
use machine::{Fault, Result};
use whatif::claims::programs::figures::figures;
use whatif::claims::{Calibration, Sweep, judge, open, power, predict, stream};

use crate::{claims_page, mappings_page};

/// Holds models against every figure of the papers that plimsoll rests on, beside what a simple rule would say
///
/// Rows that feed a fit and rows that judge are apart: nothing that predicts can read what judges. Modelled, not measured.
#[derive(clap::Args)]
pub struct Arguments {
    /// Explain one row: its words, the equation, the parameters, what it reads, the score
    #[arg(value_name = "ID", conflicts_with_all = ["power", "open", "mappings"])]
    id: Option<String>,
    /// Watts saved against performance lost by clock, with the knee
    #[arg(long)]
    power: bool,
    /// What the papers leave open: cores that make onload equal to offload, and when a node's one engine stops scaling
    #[arg(long)]
    open: bool,
    /// Paper 002's programs under its mappings, simulated: who computes, sends and waits, and what a mapping gains
    #[arg(long)]
    mappings: bool,
    /// Print rows, predictions, scores and all pages as JSON
    #[arg(long, conflicts_with_all = ["id", "power", "open", "mappings"])]
    json: bool,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let (rows, sweep, width) = (Calibration::of_papers(), Sweep::default(), output::width());
    if arguments.power || arguments.open || arguments.mappings {
        if arguments.power {
            let (curves, knee) = (power::curves(&rows, sweep)?, stream::knee(&rows, sweep)?);
            output::page(&claims_page::power(&curves, knee, power::shares(&rows, sweep)?, width))?;
        }
        if arguments.open {
            output::page(&claims_page::open(&open::break_even(&rows, sweep)?, &open::scaling(&rows, sweep)?, width))?;
        }
        if arguments.mappings {
            output::page(&mappings_page::page(&figures(&rows, sweep)?, width))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let predictions = text(&predict(&rows, sweep)?)?;
    let judgement = judge::judge(&predictions, &judge::checks())?;
    match arguments.id {
        Some(id) => output::page(&claims_page::explain(&id.to_uppercase(), &rows, &judgement, width)?)?,
        None if arguments.json => {
            let all = text(&serde_json::json!({
                "feeding": rows.rows(),
                "judged": judgement.judged,
                "contradictions": judgement.contradictions,
                "power": power::curves(&rows, sweep)?,
                "break_even": open::break_even(&rows, sweep)?,
                "scaling": open::scaling(&rows, sweep)?,
                "mappings": figures(&rows, sweep)?,
            }))?;
            output::print(&(all + "\n"))?;
        }
        None => output::page(&claims_page::table(&rows, &judgement, width))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn text(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string_pretty(value).map_err(|e| Fault::because("output", e, "report it"))
}
