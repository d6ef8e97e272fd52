//! What a traced profile holds, call by call, with what each call waited for; or exported.
//!
//! ```text
//! cargo run -p profile --example timeline -- DIR [perfetto|goal]
//! ```

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use machine::{Fault, Result};
use profile::export;
use record::functions::function;
use timeline::Timeline;

fn main() -> ExitCode {
    match show() {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("{fault}");
            ExitCode::FAILURE
        }
    }
}

fn show() -> Result<()> {
    let usage = || Fault::new("the arguments", "there is no folder", "name one that plimsoll profile --trace made");
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or_else(usage)?;
    let Some(timeline) = Timeline::open(Path::new(&folder))? else {
        return Err(Fault::new(folder, "nothing in it was traced", "profile the program with --trace"));
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    let said = |error: io::Error| Fault::because("the output", error, "write it to somewhere else");
    match arguments.next().as_deref() {
        Some("perfetto") => {
            let done = export::perfetto(&timeline, None, &mut out).map_err(said)?;
            eprintln!("{done:?}");
        }
        Some("goal") => {
            let done = export::goal(&timeline, 0, &mut out).map_err(said)?;
            eprintln!("{done:?}");
        }
        _ => list(&timeline, &mut out).map_err(said)?,
    }
    out.flush().map_err(said)
}

fn list(timeline: &Timeline, out: &mut impl Write) -> io::Result<()> {
    for (place, rank) in timeline.ranks.iter().enumerate() {
        let mut walk = timeline.walk(place);
        while let Some(step) = walk.step() {
            let call = &step.event.call;
            let name = function(call.function).map_or("?", |f| f.name);
            write!(
                out,
                "{}.{} {:>12} {:>9} ns {name:<16}",
                rank.rank,
                step.thread,
                step.entered,
                step.left - step.entered
            )?;
            write!(out, " comm {} peer {} tag {} bytes {}", call.communicator as i32, call.peer, call.tag, call.bytes)?;
            if !step.event.references.is_empty() {
                let ordinals: Vec<_> = step.event.references.iter().map(|reference| reference.ordinal).collect();
                write!(out, " completes {ordinals:?}")?;
            }
            for got in &step.event.matched {
                write!(out, " got {}:{} {} B", got.source, got.tag, got.bytes)?;
            }
            if let (Some(wait), _) = timeline.wait_of(place, &step) {
                write!(out, " {} {} ns for {:?}", wait.state.words(), wait.nanoseconds, wait.whom)?;
            }
            writeln!(out)?;
        }
    }
    let matches = &timeline.matches;
    writeln!(
        out,
        "{} messages, {} ends alone, {} collective operations",
        matches.messages, matches.unmatched, matches.operations
    )?;
    timeline.notes.iter().try_for_each(|note| writeln!(out, "note: {note}"))
}
