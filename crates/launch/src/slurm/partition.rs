//! A partition of Slurm, as `scontrol --oneliner show partition` prints it.

use std::time::Duration;

use machine::{Fault, Result};

use super::output::{field, time};

/// A set of nodes with limits on its jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    pub name: String,
    pub is_default: bool,
    /// `UP`, `DOWN`, `DRAIN`, `INACTIVE`.
    pub state: String,
    /// Longest time of a job; `None`: no limit.
    pub most_time: Option<Duration>,
    pub nodes: u32,
    /// Most nodes of one job.
    pub most_nodes: u32,
}

/// All partitions in scontrol's output.
pub fn read(text: &str) -> Vec<Partition> {
    text.lines().filter_map(read_line).collect()
}

fn read_line(line: &str) -> Option<Partition> {
    let nodes = field(line, "TotalNodes").and_then(|nodes| nodes.parse().ok()).unwrap_or(0);
    Some(Partition {
        name: field(line, "PartitionName")?.to_owned(),
        is_default: field(line, "Default") == Some("YES"),
        state: field(line, "State")?.to_owned(),
        most_time: time(field(line, "MaxTime")?),
        nodes,
        most_nodes: field(line, "MaxNodes").and_then(|nodes| nodes.parse().ok()).unwrap_or(nodes).min(nodes),
    })
}

/// The partition of that name, or the cluster's default.
///
/// # Errors
/// There is no such partition, or its state is not `UP`.
pub fn chosen(all: &[Partition], name: Option<&str>) -> Result<Partition> {
    let names = || all.iter().map(|of| of.name.as_str()).collect::<Vec<_>>().join(", ");
    let found = match name {
        Some(name) => all.iter().find(|of| of.name == name).ok_or_else(|| {
            let next = format!("choose one of {} with --partition", names());
            Fault::new(format!("partition '{name}'"), "this cluster has none of that name", next)
        })?,
        None => all.iter().find(|of| of.is_default).ok_or_else(|| {
            let next = format!("name one of {} with --partition", names());
            Fault::new("partition", "this cluster has none for jobs that name none", next)
        })?,
    };
    if found.state != "UP" {
        let others: Vec<&str> = all.iter().filter(|of| of.state == "UP").map(|of| of.name.as_str()).collect();
        let next = match others.is_empty() {
            true => "submit again when it is up: `sinfo` shows it".to_owned(),
            false => format!("choose another with --partition: {}", others.join(", ")),
        };
        return Err(Fault::new(format!("partition {}", found.name), format!("it is {}", found.state), next));
    }
    Ok(found.clone())
}

impl Partition {
    /// # Errors
    /// A job in this partition may not have so many nodes.
    pub fn check_nodes(&self, nodes: u32) -> Result<()> {
        if nodes <= self.most_nodes {
            return Ok(());
        }
        let cause = format!("a point needs {nodes} nodes, and a job there may have {}", self.most_nodes);
        let next = "choose another with --partition, or leave these points out of the file";
        Err(Fault::new(format!("partition {}", self.name), cause, next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: &str = "PartitionName=short AllowGroups=ALL Default=YES DefaultTime=NONE MaxNodes=UNLIMITED MaxTime=01:00:00 \
        Nodes=n[1-2] State=UP TotalCPUs=4 TotalNodes=2\n\
        PartitionName=long Default=NO MaxNodes=4 MaxTime=7-00:00:00 Nodes=n[1-9] State=DRAIN TotalNodes=9\n\
        PartitionName=open Default=NO MaxNodes=40 MaxTime=UNLIMITED State=UP TotalNodes=9\n";

    #[test]
    fn partitions_are_read_as_scontrol_tells_them() {
        let all = read(TOLD);
        let times: Vec<_> = all.iter().map(|of| of.most_time.map(|time| time.as_secs())).collect();
        assert_eq!(times, [Some(3600), Some(7 * 86_400), None]);
        assert_eq!(all.iter().map(|of| of.most_nodes).collect::<Vec<_>>(), [2, 4, 9]);
        assert_eq!(chosen(&all, None).unwrap().name, "short");
        assert_eq!(chosen(&all, Some("open")).unwrap().nodes, 9);
        assert!(read("slurm_load_partitions error: Unable to contact slurm controller\n").is_empty());
    }

    #[test]
    fn a_partition_that_takes_no_jobs_is_refused_with_others() {
        let all = read(TOLD);
        let refused = |name| chosen(&all, Some(name)).unwrap_err().to_string();
        assert_eq!(refused("long"), "partition long: it is DRAIN. Next: choose another with --partition: short, open");
        assert!(refused("other").contains("choose one of short, long, open"));
        assert!(chosen(&all[1..], None).unwrap_err().to_string().contains("name one of long, open"));
        let fault = chosen(&all, None).unwrap().check_nodes(3).unwrap_err();
        assert!(fault.to_string().contains("needs 3 nodes, and a job there may have 2"), "{fault}");
    }
}
