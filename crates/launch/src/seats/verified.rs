//! Proof by reading back: each rank that a launcher starts prints its host and cores.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use linux::ending;
use linux::orphans::Awaited;
use linux::warden::Warden;
use machine::seat::{Seat, Seats};
use machine::{CpuSet, Fault, Result, count};

use super::command::SeatedCommand;
use super::dialect::Dialect;
use crate::allocation;
use crate::exit::exit_code;
use crate::trial::{self, scratch};

/// Time within which a launcher starts a small program and ends.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Variable that marks every process of a trial.
const MARK: &str = "PLIMSOLL_SEATS";

/// Prefix of a rank's line, since launchers may label lines.
const SAYS: &str = "plimsoll-seat ";

/// Variables in which launchers give a process its rank.
const RANKS: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"];

/// Ranks that a fault names one by one, at most.
const NAMED: usize = 8;

/// Output of `plimsoll seat`: this process's rank, host and cores. `of_slurm`: the host by its name as a node of Slurm.
///
/// # Errors
/// No launcher has given this process a rank.
pub fn of_this_process(of_slurm: bool) -> Result<String> {
    let rank = RANKS.iter().find_map(|name| std::env::var(name).ok()?.parse::<u32>().ok()).ok_or_else(|| {
        let cause = format!("none of {} is set", RANKS.join(", "));
        Fault::new("this process's rank", cause, "start it by mpirun or srun")
    })?;
    let cores: CpuSet = linux::affinity::current()?.into_iter().collect();
    let node = std::env::var("SLURMD_NODENAME").ok().filter(|_| of_slurm);
    Ok(format!("{SAYS}{rank} {} {cores}\n", node.unwrap_or_else(crate::this_host)))
}

/// Starts `line` with `plimsoll`, this program, in place of the user's, and compares the places of its ranks with `seats`.
/// Returns the places read back, with the hosts' own names.
///
/// # Errors
/// A rank is elsewhere or prints nothing, or the launcher does not end within `limit`.
pub fn verify(line: &SeatedCommand, seats: &Seats, plimsoll: &Path, limit: Duration) -> Result<Seats> {
    line.write()?;
    let folder = tempfile::Builder::new().prefix("plimsoll-seats-").tempdir().map_err(scratch)?;
    let mark = trial::mark(folder.path());
    let mut program = vec![plimsoll.display().to_string(), "seat".to_owned()];
    program.extend((line.dialect == Dialect::Slurm).then(|| "--slurm".to_owned()));
    let mut command = line.with(&program);
    let file = |name: &str| fs::File::create(folder.path().join(name)).map_err(scratch);
    command.env(MARK, &mark).stdin(Stdio::null()).stdout(file("output")?).stderr(file("errors")?);
    linux::affinity::inherit_allowed(&mut command)?;
    let warden = Warden::over_marked(MARK, &mark, folder.path())?;
    let subject = format!("launcher {}", line.words[0]);
    let failed = |e| Fault::because(subject.clone(), e, "check that it may be executed");
    let mut child = command.spawn().map_err(failed)?;
    let _awaited = Awaited::new(&child);
    let process = ending::of(&child).map_err(failed);
    let in_time = process.and_then(|process| trial::wait(&process, &warden, Instant::now() + limit));
    if !matches!(in_time, Ok(true)) {
        let _ = child.kill();
    }
    let status = child.wait().map_err(failed)?;
    let in_time = in_time?;
    let read = |name: &str| trial::read(&folder.path().join(name));
    let (said, complained) = (read("output")?, read("errors")?);
    drop(warden);
    let next = || format!("{}; run it by hand: {line}", next(line.dialect));
    if !in_time {
        let cause = format!("its ranks did not say where they are within {} s", limit.as_secs());
        return Err(Fault::new(subject, cause, next()));
    }
    if !status.success() {
        // The first error causes those that follow.
        let first = complained.lines().find(|line| line.to_lowercase().contains("error"));
        let why = first.map_or_else(|| trial::why(&complained, &said), |line| line.trim().to_owned());
        return Err(Fault::new(subject, format!("exit code {}: {why}", exit_code(status)), next()));
    }
    compared(line.dialect, seats, &said)
}

/// Compares the ranks' output with the requested seats.
fn compared(by: Dialect, seats: &Seats, said: &str) -> Result<Seats> {
    let mut found: Vec<Option<Seat>> = vec![None; seats.0.len()];
    for (rank, seat) in said.lines().filter_map(|line| Seats::line_of(line.split_once(SAYS)?.1)) {
        if let Some(place) = found.get_mut(rank as usize) {
            *place = Some(seat);
        }
    }
    let differs = |(rank, (asked, got)): (usize, (&Seat, &Option<Seat>))| match got {
        Some(got) if is_host(&asked.host, &got.host) && asked.cores == got.cores => None,
        Some(got) => Some(format!("rank {rank}: asked {asked}, got {got}")),
        None => Some(format!("rank {rank}: asked {asked}, it said nothing")),
    };
    let differing: Vec<String> = seats.0.iter().zip(&found).enumerate().filter_map(differs).collect();
    if differing.is_empty() {
        return Ok(Seats(found.into_iter().flatten().collect()));
    }
    let more = differing.len().saturating_sub(NAMED);
    let named = differing[..differing.len() - more].join("; ");
    let cause = if more > 0 { format!("{named}; and {}", count::of(more as u64, "more rank")) } else { named };
    Err(Fault::new(format!("seats by {by}"), format!("the launcher did not keep them: {cause}"), next(by)))
}

fn next(by: Dialect) -> &'static str {
    match by {
        Dialect::OpenMpi4 => "look for variables OMPI_MCA_rmaps_* and OMPI_MCA_hwloc_*, and at its --report-bindings",
        Dialect::OpenMpi5 => "look for variables PRTE_MCA_*, and whether every host is built like this one",
        Dialect::Mpich => "look for variables HYDRA_*, or start it by srun",
        Dialect::Slurm => "start it within `salloc --exclusive`, on a Slurm with TaskPlugin=task/affinity",
        Dialect::Plimsoll => "leave options that place ranks out of its --mpirun-args",
    }
}

/// Whether a launcher's name for a host means the host named `own`. An address always does: hosts do not know theirs.
fn is_host(asked: &str, own: &str) -> bool {
    allocation::is_host(asked, own)
        || asked == "localhost" && own == crate::this_host()
        || asked.parse::<std::net::IpAddr>().is_ok()
}

/// Threads of a process whose allowed cores are not `cores`, each with its own; empty where all keep to them.
///
/// # Errors
/// The process has ended.
pub fn threads_elsewhere(process: u32, cores: &CpuSet) -> Result<Vec<(u32, CpuSet)>> {
    let gone = |e| Fault::because(format!("process {process}"), e, "start it again");
    let mut elsewhere = Vec::new();
    for entry in fs::read_dir(format!("/proc/{process}/task")).map_err(gone)? {
        let thread = entry.map_err(gone)?.file_name().to_str().and_then(|name| name.parse().ok());
        // A thread that has ended meanwhile is left out.
        let Some((thread, now)) = thread.and_then(|thread| Some((thread, linux::affinity::of_process(thread).ok()?)))
        else {
            continue;
        };
        if now != *cores {
            elsewhere.push((thread, now));
        }
    }
    Ok(elsewhere)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_are_elsewhere_are_named_with_what_was_asked() {
        let seats: Seats = "0 node1 1\n1 node1 0\n2 node2 0-3\n".parse().unwrap();
        let said = |text: &str| compared(Dialect::Slurm, &seats, text).map(|found| found.to_string());
        let right = "[1,0]<stdout>:plimsoll-seat 1 node1.cluster 0\n2: plimsoll-seat 2 node2 0-3\nplimsoll-seat 0 node1 1\nhello\n";
        assert_eq!(said(right).unwrap(), "0 node1 1\n1 node1.cluster 0\n2 node2 0-3\n");
        let wrong = said("plimsoll-seat 0 node2 1\nplimsoll-seat 1 node1 0-1\n").unwrap_err().to_string();
        for expected in [
            "rank 0: asked node1:1, got node2:1",
            "rank 1: asked node1:0, got node1:0-1",
            "rank 2: asked node2:0-3, it said nothing",
            "Next: start it within `salloc --exclusive`",
        ] {
            assert!(wrong.contains(expected), "{wrong}");
        }
        let many = Seats(vec![seats.0[0].clone(); 20]);
        let fault = compared(Dialect::Mpich, &many, "").unwrap_err().to_string();
        assert!(
            fault.contains("rank 7:") && !fault.contains("rank 8:") && fault.contains("and 12 more ranks"),
            "{fault}"
        );
    }

    #[test]
    fn a_thread_that_leaves_its_process_is_found() {
        let all = linux::affinity::reachable().unwrap();
        let core: CpuSet = all.first().into_iter().collect();
        let (told, heard) = std::sync::mpsc::channel();
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            linux::affinity::settle(&core.iter().collect::<Vec<_>>()).unwrap();
            told.send((rustix::thread::gettid().as_raw_nonzero().get() as u32, core)).unwrap();
            let _ = wait.recv();
        });
        let (id, core) = heard.recv().unwrap();
        if all.len() > 1 {
            let elsewhere = threads_elsewhere(std::process::id(), &all).unwrap();
            assert!(elsewhere.contains(&(id, core.clone())), "{elsewhere:?}");
        }
        assert!(!threads_elsewhere(std::process::id(), &core).unwrap().iter().any(|(thread, _)| *thread == id));
        drop(done);
        thread.join().unwrap();
    }
}
