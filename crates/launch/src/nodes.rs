//! A command on several nodes of an allocation at once, and its output from each.

use std::ffi::OsString;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use machine::{Fault, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::allocation::Allocation;

/// Nodes on which the command runs at the same time, at most.
const AT_ONCE: usize = 32;

/// Runs `program` with `arguments` on each of `nodes`, for `patience` at most. Returns the outputs in the order of `nodes`.
pub fn each(
    allocation: &Allocation,
    nodes: &[String],
    program: &Path,
    arguments: &[OsString],
    patience: Duration,
) -> Vec<Result<String>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(node) = nodes.get(place) else { return done };
            done.push((place, one(allocation, node, program, arguments, patience)));
        }
    };
    let mut all: Vec<(usize, Result<String>)> = scope(|scope| {
        let workers: Vec<_> = (0..nodes.len().min(AT_ONCE)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_default()).collect()
    });
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, answer)| answer).collect()
}

fn one(
    allocation: &Allocation,
    node: &str,
    program: &Path,
    arguments: &[OsString],
    patience: Duration,
) -> Result<String> {
    let mut command = allocation.on(node, program, arguments)?;
    let launcher = command.get_program().to_string_lossy().into_owned();
    let next = format!("start plimsoll from a folder that all nodes have and see that `{launcher}` works");
    let failed = |e: std::io::Error| Fault::because(format!("node {node}"), e, next.clone());
    let (mut out, mut said) = (tempfile::tempfile().map_err(failed)?, tempfile::tempfile().map_err(failed)?);
    // A process group of its own: Ctrl-C at the terminal reaches this process alone, which then ends the child.
    command.process_group(0).stdout(out.try_clone().map_err(failed)?).stderr(said.try_clone().map_err(failed)?);
    let mut child = command.spawn().map_err(failed)?;
    let status = wait(&mut child, patience).map_err(failed)?;
    let text = |file: &mut std::fs::File| {
        let mut bytes = Vec::new();
        let _ = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let said = text(&mut said);
    let said = telling(&said).map(|line| format!(": {line}")).unwrap_or_default();
    match status {
        Some(status) if status.success() => Ok(text(&mut out)),
        Some(status) => Err(Fault::new(format!("node {node}"), format!("{launcher} ended with {status}{said}"), next)),
        None => {
            let cause = format!("it gave no answer within {} s{said}", patience.as_secs());
            Err(Fault::new(format!("node {node}"), cause, next))
        }
    }
}

/// Status of `child`; `None` where this function ended the child, after `patience` or a signal.
fn wait(child: &mut Child, patience: Duration) -> std::io::Result<Option<ExitStatus>> {
    let until = Instant::now() + patience;
    while Instant::now() < until && !linux::signal::interrupted() {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        sleep(Duration::from_millis(10));
    }
    // The batch system ends the processes that its launcher started.
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
    child.wait().map(|_| None)
}

/// The line of a launcher's errors that names the cause. srun adds lines on CPU binding and on the end of the task.
pub fn telling(said: &str) -> Option<&str> {
    let lines = || said.lines().map(str::trim).filter(|line| !line.is_empty() && !line.contains("for cpu binding"));
    lines().find(|line| !line.contains(": task 0: ")).or(lines().next())
}

#[cfg(test)]
mod tests {
    use super::telling;

    #[test]
    fn of_what_srun_says_the_cause_is_told() {
        let binding = "srun: cluster configuration lacks support for cpu binding\n";
        let ended = "srun: error: node2: task 0: Exited with exit code 2\n";
        let cause = "slurmstepd-node2: error: execve(): /x/plimsoll: No such file or directory\n";
        for order in [[binding, ended, cause], [cause, binding, ended]] {
            assert_eq!(telling(&order.concat()), Some(cause.trim()));
        }
        assert_eq!(telling(ended), Some(ended.trim()));
        assert_eq!(telling(binding), None);
    }
}
