//! `plimsoll stop`: ends an offcode or a whole runtime.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use attach::control;
use machine::{Fault, Result};

use linux::output;

use super::ps::no_room;

/// Time limit for a runtime to take everything back.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Ends a runtime that `plimsoll run` started, or one of its offcodes.
#[derive(clap::Args)]
pub struct Arguments {
    /// Process of the runtime; needed only where several runtimes run
    #[arg(long, value_name = "PID")]
    process: Option<u32>,
    /// Stop only this one: an instance's name, or a package's name or GUID of which there is one
    #[arg(value_name = "INSTANCE")]
    offcode: Option<String>,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let process = runtime_of(arguments.process)?;
    let user = control::stop_at(process, arguments.offcode.as_deref())?;
    if let Some(offcode) = arguments.offcode {
        output::print(&format!("{offcode} was stopped in process {process}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    // The answer comes before everything is taken back; the name goes after it.
    let deadline = Instant::now() + TIMEOUT;
    while control::is_up(process, user) {
        if Instant::now() > deadline {
            let cause = format!("it has not ended within {} s", TIMEOUT.as_secs());
            return Err(Fault::new(format!("process {process}"), cause, "look at what it prints"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    output::print(&format!("process {process} has ended its offcodes\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// The process that was named, or the only one of this user that has a runtime.
pub(super) fn runtime_of(process: Option<u32>) -> Result<u32> {
    let Some(process) = process else {
        let found = control::find()?;
        // The runtime may be one of those that take no callers.
        return if found.own.is_empty() && found.busy > 0 {
            Err(no_room(found.busy))
        } else {
            the_only_one(&found.own)
        };
    };
    Ok(process)
}

fn the_only_one(processes: &[u32]) -> Result<u32> {
    match processes {
        [one] => Ok(*one),
        [] => Err(Fault::new("runtime", "none is up", "start one with `plimsoll run APP.toml`")),
        several => {
            let list = several.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            Err(Fault::new("runtime", format!("several are up: processes {list}"), "say which with --process"))
        }
    }
}
