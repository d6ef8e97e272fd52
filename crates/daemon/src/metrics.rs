//! A daemon's figures in the text format of Prometheus, as node_exporter's textfile collector reads it.

use std::fmt::Write;

use crate::state::{JobStatus, RankStatus, Status};

/// The value of a label.
fn label(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn single(text: &mut String, name: &str, kind: &str, help: &str, value: f64) {
    head(text, name, kind, help);
    let _ = writeln!(text, "{name} {value}");
}

/// All figures. What is not known has no line.
pub fn text(status: &Status) -> String {
    let mut text = String::new();
    let counts = &status.counts;
    for (name, help, value) in [
        ("windows", "Windows of observation that ended.", counts.windows),
        ("moves", "Moves of ranks that were carried out, undone ones included.", counts.moves),
        ("moves_confirmed", "Moves after which the job did better.", counts.confirmed),
        ("moves_undone", "Moves that were taken back because the job did no better.", counts.undone),
        ("moves_refused", "Moves that the kernel or a program did not let happen.", counts.refused),
        ("processes_restored", "Processes that got the affinity back that they had.", counts.restored),
    ] {
        single(&mut text, &format!("plimsoll_daemon_{name}_total"), "counter", help, value as f64);
    }
    let started = "When the daemon started, in seconds since 1970.";
    single(&mut text, "plimsoll_daemon_start_time_seconds", "gauge", started, status.started as f64);
    let updated = "When its last window ended, in seconds since 1970.";
    single(&mut text, "plimsoll_daemon_updated_time_seconds", "gauge", updated, status.updated as f64);
    single(
        &mut text,
        "plimsoll_daemon_cpu_ratio",
        "gauge",
        "Processor time that the daemon used over the time since it started.",
        status.cpu_share,
    );
    head(&mut text, "plimsoll_daemon_job_ranks", "gauge", "Ranks of a job that is watched.");
    for job in &status.jobs {
        let _ = writeln!(text, "plimsoll_daemon_job_ranks{{job=\"{}\"}} {}", label(&job.name), job.ranks.len());
    }
    type Share = fn(&RankStatus) -> Option<f64>;
    let shares: [(&str, &str, Share); 4] = [
        ("mpi", "Share of a rank's time in MPI.", |rank| rank.mpi),
        ("wait", "Share of a rank's time in which it waits for others.", |rank| rank.wait),
        ("core_taken", "Share that others take of a rank's cores.", |rank| rank.taken),
        ("held", "Whether a rank is left alone.", |rank| Some(f64::from(u8::from(rank.held.is_some())))),
    ];
    for (name, help, of) in shares {
        let name = format!("plimsoll_rank_{name}_ratio").replace("held_ratio", "held");
        head(&mut text, &name, "gauge", help);
        for (JobStatus { name: job, .. }, rank) in
            status.jobs.iter().flat_map(|job| job.ranks.iter().map(move |rank| (job, rank)))
        {
            if let Some(value) = of(rank) {
                let (job, host) = (label(job), label(&rank.host));
                let _ = writeln!(text, "{name}{{job=\"{job}\",rank=\"{}\",host=\"{host}\"}} {value}", rank.rank);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_what_is_unknown_has_no_line() {
        let rank = RankStatus { rank: 3, host: "h\\1".into(), wait: Some(0.25), ..RankStatus::default() };
        let job = JobStatus { name: "a \"b\"\nc".into(), ranks: vec![rank], ..JobStatus::default() };
        let text = text(&Status { jobs: vec![job], ..Status::default() });
        let labels = r#"{job="a \"b\"\nc",rank="3",host="h\\1"}"#;
        assert!(text.contains(&format!("\nplimsoll_rank_wait_ratio{labels} 0.25\n")), "{text}");
        assert!(!text.contains("plimsoll_rank_mpi_ratio{"), "{text}");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(['{', ' ']).next().unwrap();
            assert!(text.contains(&format!("# TYPE {name} ")) && text.contains(&format!("# HELP {name} ")), "{line}");
        }
        assert!(text.ends_with('\n'));
    }
}
