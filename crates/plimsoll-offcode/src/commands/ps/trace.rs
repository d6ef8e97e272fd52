//! The calls of an offcode as they come.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use attach::control;
use attach::watched::{Call, Outcome};
use linux::doorbell::Doorbell;
use linux::output;
use machine::{Result, count};

use super::of_first;

/// Time between two requests for new calls.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Prints what the first runtime that has the offcode notes of its calls.
pub fn follow(processes: &[u32], offcode: &str, limit: Option<Duration>) -> Result<ExitCode> {
    linux::signal::watch()?;
    let start = Instant::now();
    let bell = Doorbell::new()?;
    let (process, first) = of_first(processes, offcode, |process| control::calls_of(process, offcode, None))?;
    if let Some(why) = &first.unseen {
        eprintln!("plimsoll ps: {why}");
    }
    output::print(&format!("watching {offcode} of process {process}\n"))?;
    let mut next = first.next;
    loop {
        let left = limit.map(|limit| limit.saturating_sub(start.elapsed()));
        let mut sleep = bell.sleep();
        sleep.at_most(left.map_or(POLL_INTERVAL, |left| left.min(POLL_INTERVAL)));
        sleep.until_interrupted();
        sleep.begin();
        let said = control::calls_of(process, offcode, Some(next))?;
        let missed = said.calls.first().map_or(said.next, |call| call.number).saturating_sub(next);
        if missed > 0 {
            output::print(&format!("{} before these that are not shown\n", count::of(missed, "call")))?;
        }
        output::print(&said.calls.iter().map(line).collect::<String>())?;
        next = said.next;
        if linux::signal::interrupted() || left.is_some_and(|left| left.is_zero()) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

fn line(call: &Call) -> String {
    let took = call.took.map_or(String::new(), |took| format!(", {took}"));
    let outcome = match &call.outcome {
        Outcome::Result(bytes) => format!("result of {bytes} B"),
        Outcome::Refused(why) => format!("refused: {why}"),
        Outcome::OneWay => "no answer wanted".into(),
    };
    // UTC: of the day.
    let (seconds, micros) = (call.time.0 / 1_000_000_000, call.time.0 / 1000 % 1_000_000);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let time = format!("{hour:02}:{minute:02}:{second:02}.{micros:06}Z");
    let outcome: String = outcome.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("{time} {}: {} of {} B: {outcome}{took}\n", call.from, call.method, call.bytes)
}
