use std::process::ExitCode;

use claims::programs::figures::figures;
use claims::{Calibration, Sweep, judge, open, power, predict, stream};
use linux::output;
use machine::Result;

use super::outputs::{self, Json};
use crate::{claims_page, mappings_page};

/// Holds models against every figure of the papers that plimsoll rests on, beside what a simple rule would say
///
/// Rows that feed a fit and rows that judge are apart: nothing that predicts can read what judges. Modelled, not measured.
#[derive(clap::Args)]
pub struct Arguments {
    /// Explain one row by its ID: its words, the equation, the parameters, what it reads, the score. Or one of three pages:
    /// power (watts saved against performance lost by clock, with the knee), open (what the papers leave open: cores that make
    /// onload equal to offload, and when a node's one engine stops scaling), mappings (paper 002's programs under its mappings,
    /// simulated: who computes, sends and waits, and what a mapping gains)
    #[arg(value_name = "ID|PAGE", conflicts_with = "json")]
    page: Option<String>,
    #[command(flatten)]
    json: Json,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let (rows, sweep, width) = (Calibration::of_papers(), Sweep::default(), output::wide());
    match arguments.page.as_deref() {
        Some("power") => {
            let (curves, knee) = (power::curves(&rows, sweep)?, stream::knee(&rows, sweep)?);
            output::page(&claims_page::power(&curves, knee, power::shares(&rows, sweep)?, width))?;
            return Ok(ExitCode::SUCCESS);
        }
        Some("open") => {
            output::page(&claims_page::open(&open::break_even(&rows, sweep)?, &open::scaling(&rows, sweep)?, width))?;
            return Ok(ExitCode::SUCCESS);
        }
        Some("mappings") => {
            output::page(&mappings_page::page(&figures(&rows, sweep)?, width))?;
            return Ok(ExitCode::SUCCESS);
        }
        _ => {}
    }
    let predictions = outputs::json(&predict(&rows, sweep)?)?;
    let judgement = judge::judge(&predictions, &judge::checks())?;
    if let Some(id) = arguments.page {
        output::page(&claims_page::explain(&id.to_uppercase(), &rows, &judgement, width)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let all = || {
        outputs::json(&serde_json::json!({
            "feeding": rows.rows(),
            "judged": judgement.judged,
            "contradictions": judgement.contradictions,
            "power": power::curves(&rows, sweep)?,
            "break_even": open::break_even(&rows, sweep)?,
            "scaling": open::scaling(&rows, sweep)?,
            "mappings": figures(&rows, sweep)?,
        }))
    };
    arguments.json.tell(all, || output::page(&claims_page::table(&rows, &judgement, width)))?;
    Ok(ExitCode::SUCCESS)
}
