//! `plimsoll migrate`: moves a running offcode to another site.

use std::process::ExitCode;

use attach::control;
use attach::moved::Moved;
use machine::{Result, SiteInMode};

use super::stop::runtime_of;
use linux::output;

/// Moves a running offcode to another site of its application, with its state and its channels, and those that are pulled to
/// it
///
/// No message of a reliable channel is lost, doubled or overtaken. Where a step fails, everything stays as it was.
#[derive(clap::Args)]
pub struct Arguments {
    /// An instance's name, or a package's name or GUID of which there is one
    #[arg(value_name = "INSTANCE")]
    offcode: String,
    /// app, core:N, xdp:IFACE[:MODE], tc:IFACE or agent:HOST
    #[arg(value_name = "SITE")]
    site: SiteInMode,
    /// Process of the runtime; needed only where several runtimes run
    #[arg(long, value_name = "PID")]
    process: Option<u32>,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let moved = control::migrate_at(runtime_of(arguments.process)?, &arguments.offcode, &arguments.site)?;
    output::print(&page(&moved))?;
    Ok(ExitCode::SUCCESS)
}

/// What a move was, step by step.
pub(super) fn page(moved: &Moved) -> String {
    let what = moved.offcodes.join(", ");
    let way = if moved.from == moved.to {
        format!("at {}", moved.to)
    } else {
        format!("from {} to {}", moved.from, moved.to)
    };
    let mut text = format!("{what}: {way}, paused for {}, {} bytes of state", moved.pause, moved.state);
    if moved.lost > 0 {
        text += &format!(", {} messages of unreliable channels lost by the move", moved.lost);
    }
    text.push('\n');
    for (step, time) in &moved.steps {
        text += &format!("  {:<9}{time:>12}\n", format!("{step:?}").to_lowercase());
    }
    text
}
