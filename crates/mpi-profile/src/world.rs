//! The name of an MPI_COMM_WORLD among those of a job, from what its launcher provides.

use std::fs;

/// Empty where the launcher provides no name.
pub fn name() -> String {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let of = |name: &str| variable(name).map(|value| format!("{name}={value}"));
    let step = || Some(format!("slurm={}.{}", variable("SLURM_JOB_ID")?, variable("SLURM_STEP_ID")?));
    let found =
        of("PMIX_NAMESPACE").or_else(step).or_else(|| of("PMI_JOBID")).or_else(|| of("PMI_KVSNAME")).or_else(hydra);
    let spawned = variable("PMI_SPAWNED").map(|_| ".spawned").unwrap_or_default();
    found.map(|found| found + spawned).unwrap_or_default()
}

/// MPICH's launcher gives ranks no value that is the same on all hosts, but its proxy on each host, an ancestor of the
/// ranks, has the launcher's address among its arguments.
fn hydra() -> Option<String> {
    let mut process = parent(std::process::id())?;
    for _ in 0..8 {
        let line = fs::read(format!("/proc/{process}/cmdline")).ok()?;
        if let Some(found) = control_port(&line) {
            return Some(found);
        }
        process = parent(process)?;
    }
    None
}

fn parent(process: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok().filter(|parent| *parent > 1)
}

fn control_port(line: &[u8]) -> Option<String> {
    let arguments: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let program = arguments.first()?.rsplit('/').next()?.to_owned();
    let after = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).map(|value| value.to_string())
    };
    let port = after("--control-port").filter(|_| program == "hydra_pmi_proxy")?;
    Some(format!("hydra={port}.{}", after("--pgid").unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_launcher_is_named_by_its_helper() {
        let line = b"/usr/bin/hydra_pmi_proxy\0--control-port\0node7:44491\0--rmk\0user\0--pgid\x000\0";
        assert_eq!(control_port(line).as_deref(), Some("hydra=node7:44491.0"));
        assert_eq!(control_port(b"sh\0--control-port\0node7:1\0"), None);
        assert_eq!(control_port(b""), None);
    }
}
