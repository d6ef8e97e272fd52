//! A daemon's figures in the text format of Prometheus, as node_exporter's textfile collector reads it.

use linux::metrics::{Kind, Metrics};

use crate::state::{JobStatus, RankStatus, Status};

/// All figures; an unknown figure has no line.
pub fn text(status: &Status) -> String {
    let mut all = Metrics::default();
    let counts = &status.counts;
    for (name, help, value) in [
        ("windows", "Windows of observation that ended.", counts.windows),
        ("moves", "Moves of ranks that were carried out, undone ones included.", counts.moves),
        ("moves_confirmed", "Moves after which the job did better.", counts.confirmed),
        ("moves_undone", "Moves that were taken back because the job did no better.", counts.undone),
        ("moves_refused", "Moves that the kernel or a program did not let happen.", counts.refused),
        ("processes_restored", "Processes that got the affinity back that they had.", counts.restored),
    ] {
        all.family(Kind::Counter, &format!("plimsoll_daemon_{name}_total"), help).sample(&[], value as f64);
    }
    for (name, help, value) in [
        ("start_time_seconds", "When the daemon started, in seconds since 1970.", status.started as f64),
        ("updated_time_seconds", "When its last window ended, in seconds since 1970.", status.updated as f64),
        ("cpu_ratio", "Processor time that the daemon used over the time since it started.", status.cpu_share),
    ] {
        all.family(Kind::Gauge, &format!("plimsoll_daemon_{name}"), help).sample(&[], value);
    }
    let mut ranks = all.family(Kind::Gauge, "plimsoll_daemon_job_ranks", "Ranks of a job that is watched.");
    for job in &status.jobs {
        ranks.sample(&[("job", &job.name)], job.ranks.len() as f64);
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
        let mut family = all.family(Kind::Gauge, &name, help);
        for (JobStatus { name: job, .. }, rank) in
            status.jobs.iter().flat_map(|job| job.ranks.iter().map(move |rank| (job, rank)))
        {
            if let Some(value) = of(rank) {
                let number = rank.rank.to_string();
                family.sample(&[("job", job), ("rank", &number), ("host", &rank.host)], value);
            }
        }
    }
    all.text()
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
