//! Finding the engine's process, or starting it.

use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use linux::rendezvous::{self, is_in_the_way};
use machine::{CoreId, Fault, Result};

use super::meeting_name;

/// Time within which a new process must listen.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to the engine on `core`; where there is none, `program engine --core N` is started. Of several processes
/// started at once, one wins the name and the others end.
pub(super) fn call(core: CoreId, program: Option<&Path>) -> Result<UnixStream> {
    let name = meeting_name(core);
    let absent = match rendezvous::call(&name) {
        Ok(stream) => return Ok(stream),
        Err(fault) if is_in_the_way(&fault) => return Err(fault.within(format!("engine on {core}"))),
        Err(fault) => fault,
    };
    let Some(program) = program else {
        return Err(Fault::new(
            format!("engine on {core}"),
            format!("none serves this user here ({absent})"),
            format!("start it: plimsoll engine --core {} &, or use plimsoll mpirun, which does", core.0),
        ));
    };
    start(core, program)?;
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match rendezvous::call(&name) {
            Ok(stream) => return Ok(stream),
            Err(fault) if is_in_the_way(&fault) || Instant::now() > deadline => {
                return Err(fault.within(format!("engine on {core}, just started")));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Starts this program's `engine --core N` in the background and returns once it takes ranks; at once where one does already.
pub fn detach(core: CoreId) -> Result<()> {
    let name = meeting_name(core);
    linux::affinity::unbind()?;
    linux::affinity::check(core)?;
    let program = machine::here::program()?;
    let mut engine = Command::new(&program)
        .args(["engine", "--core", &core.0.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|e| Fault::because(format!("{}", program.display()), e, "raise the limit on processes (ulimit -u)"))?;
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let has_ended = matches!(engine.try_wait(), Ok(Some(_)));
        match rendezvous::call(&name) {
            // It may have ended because another won the name.
            Ok(_) => return Ok(()),
            Err(fault) if is_in_the_way(&fault) => return Err(fault.within(format!("engine on {core}"))),
            Err(_) if has_ended || Instant::now() > deadline => {
                return Err(Fault::new(
                    format!("engine on {core}"),
                    "it ended, or does not take ranks",
                    format!("run `plimsoll engine --core {}` to see why", core.0),
                ));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// Starts the engine in a process group of its own and without this process's streams, so that it outlives the rank that
/// started it and keeps nothing of the job open.
fn start(core: CoreId, program: &Path) -> Result<()> {
    let status = Command::new(program)
        .args(["engine", "--detach", "--core", &core.0.to_string()])
        .env_remove("LD_PRELOAD")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .status()
        .map_err(|e| {
            Fault::because(format!("{}", program.display()), e, "set FI_PLIMSOLL_PROGRAM to the plimsoll program")
        })?;
    if !status.success() {
        return Err(Fault::new(
            format!("engine on {core}"),
            format!("`{} engine --core {}` ended with {status}", program.display(), core.0),
            "run that command by hand to see its message",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use linux::rendezvous::Meeting;
    use machine::FaultKind;

    use super::*;

    #[test]
    fn a_name_that_another_user_holds_is_a_fault_and_nothing_is_started() {
        let core = CoreId(9_999);
        let name = meeting_name(core);
        let Some(_theirs) = skip::another_user(|| Meeting::open(&name).unwrap()) else { return };
        let fault = call(core, Some(Path::new("/nowhere"))).unwrap_err();
        assert_eq!(fault.kind(), FaultKind::NotPermitted, "{fault}");
        assert!(fault.subject().starts_with("engine on core") && fault.cause().contains("held by user"), "{fault}");
    }
}
