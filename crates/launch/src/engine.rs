//! The engine's process of placement `core:N`, started before the ranks.
//!
//! A rank that finds none starts one itself. It would then have the rank's cores, which leave the engine's core out, and
//! the job's mark, by which it would be ended while ranks of another job use it.

use std::path::Path;
use std::process::{Command, Stdio};

use linux::lab::{Host, Lab};
use machine::{CoreId, Fault, Result};

/// Starts `command engine --detach --core N` on this host, or on both hosts of `lab`; a host that has one keeps it.
pub fn start(command: &Path, core: CoreId, lab: Option<&Lab>) -> Result<()> {
    match lab {
        None => once(engine(command, core)),
        Some(lab) => Host::BOTH.into_iter().try_for_each(|host| {
            let mut command = engine(command, core);
            lab.enter(host, &mut command)?;
            once(command).map_err(|fault| fault.within(host))
        }),
    }
}

fn engine(command: &Path, core: CoreId) -> Command {
    let mut engine = Command::new(command);
    engine.args(["engine", "--detach", "--core", &core.0.to_string()]).current_dir("/");
    engine
}

fn once(mut command: Command) -> Result<()> {
    let next = "run `plimsoll engine --core N` to see why, or choose --placement app";
    linux::affinity::inherit_allowed(&mut command)?;
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| Fault::because("the engine's process", e, "check that plimsoll may be executed"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let why = said.lines().next().unwrap_or("it said nothing").trim_start_matches("plimsoll: ");
    Err(Fault::new("the engine's process", format!("it did not start: {why}"), next))
}
