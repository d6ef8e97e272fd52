//! The quota of CPU time: a cgroup that has used up its time of a period is stopped until the next begins, whatever
//! cores it may use.

use std::fmt;

use crate::count;
use crate::quantity::Nanoseconds;
use crate::source::Source;

/// The quota of one cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    /// The cgroup's path in the hierarchy; a container's may be `/`.
    pub group: String,
    /// CPU time per period, and the period, in microseconds.
    time: u64,
    period: u64,
    folder: String,
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Quota { group, time, period, .. } = self;
        let cores = (self.cores() * 100.0).round() / 100.0;
        let ending = if cores == 1.0 { "" } else { "s" };
        write!(f, "group {group} may use the time of {cores} core{ending} ({time} us of every {period} us)")
    }
}

impl Quota {
    /// The tightest quota of this process's cgroup and its parents; `None`: there is none.
    pub fn tightest(source: &Source) -> Option<Quota> {
        all(source).into_iter().min_by(|one, other| one.cores().total_cmp(&other.cores()))
    }

    /// The number of cores that the quota amounts to.
    pub fn cores(&self) -> f64 {
        self.time as f64 / self.period as f64
    }

    /// Whether the quota stops `processes` spinning processes on `cores` cores for a part of each period.
    pub fn is_short_of(&self, processes: usize, cores: usize) -> bool {
        self.cores() < processes.min(cores) as f64
    }

    fn of(source: &Source, group: &str, folder: String) -> Option<Quota> {
        let unified = || {
            let text = source.word(&format!("{folder}/cpu.max"))?;
            let (time, period) = text.split_once(' ')?;
            Some((time.parse::<u64>().ok()?, period.trim().parse::<u64>().ok()?))
        };
        // The value is -1 without a quota.
        let first = || {
            let number = |name: &str| source.number::<u64>(&format!("{folder}/cpu.cfs_{name}_us"));
            Some((number("quota")?, number("period")?))
        };
        let (time, period) = unified().or_else(first).filter(|(time, period)| *time > 0 && *period > 0)?;
        let group = if group.is_empty() { "/" } else { group }.to_owned();
        Some(Quota { group, time, period, folder })
    }

    fn stopped(&self, source: &Source) -> Option<Stopped> {
        let text = source.text(&format!("{}/cpu.stat", self.folder)).ok()?;
        let field = |name: &str| {
            let (_, value) = text.lines().filter_map(|line| line.split_once(' ')).find(|(of, _)| *of == name)?;
            value.trim().parse::<u64>().ok()
        };
        // cgroup v1 counts nanoseconds.
        let time = field("throttled_usec").map(|time| time.saturating_mul(1000)).or_else(|| field("throttled_time"))?;
        Some(Stopped { times: field("nr_throttled")?, time })
    }
}

/// How often cgroups were stopped, and for how long, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Stopped {
    times: u64,
    time: u64,
}

/// Every quota that applies to this process.
fn all(source: &Source) -> Vec<Quota> {
    let text = source.text("/proc/self/cgroup").unwrap_or_default();
    let mut found = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let mounts = match controllers {
            "" => ["/sys/fs/cgroup".to_owned(), "/sys/fs/cgroup/unified".to_owned()],
            _ if controllers.split(',').any(|of| of == "cpu") => {
                [format!("/sys/fs/cgroup/{controllers}"), "/sys/fs/cgroup/cpu".to_owned()]
            }
            _ => continue,
        };
        let of_mount = |mount: &String| -> Vec<Quota> {
            above(path).filter_map(|group| Quota::of(source, group, format!("{mount}{group}"))).collect()
        };
        // Inside a container the path may be the host's, while the cgroup's own folder is at the mount.
        found.extend(mounts.iter().map(of_mount).find(|quotas| !quotas.is_empty()).unwrap_or_default());
    }
    found
}

/// A cgroup and its parents; the root has no name.
fn above(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path.trim_end_matches('/')), |at| Some(&at[..at.rfind('/')?]))
}

/// A watch over a measurement, of which a quota may stop a part.
#[derive(Debug, Clone)]
pub struct Watch {
    quotas: Vec<Quota>,
    before: Vec<Option<Stopped>>,
}

impl Watch {
    /// Begins to watch a measurement on so many cores. A quota of more cores stops nothing.
    pub fn begin(source: &Source, cores: usize) -> Watch {
        let quotas: Vec<Quota> = all(source).into_iter().filter(|quota| quota.cores() < cores as f64).collect();
        let before = quotas.iter().map(|quota| quota.stopped(source)).collect();
        Watch { quotas, before }
    }

    /// A note on the quota and how often it has stopped the measurement so far; `None`: there is no quota.
    pub fn note(&self, source: &Source) -> Option<String> {
        let tightest = self.quotas.iter().min_by(|one, other| one.cores().total_cmp(&other.cores()))?;
        let since = |(quota, before): (&Quota, &Option<Stopped>)| {
            let (now, before) = (quota.stopped(source)?, (*before)?);
            Some(Stopped { times: now.times.saturating_sub(before.times), time: now.time.saturating_sub(before.time) })
        };
        let counted: Vec<Stopped> = self.quotas.iter().zip(&self.before).filter_map(since).collect();
        let times: u64 = counted.iter().map(|stopped| stopped.times).sum();
        let time = Nanoseconds(counted.iter().map(|stopped| stopped.time).sum());
        let said = match times {
            _ if counted.is_empty() => "it cannot be seen whether it stopped the processes".to_owned(),
            0 => "it stopped nothing".to_owned(),
            _ => format!(
                "it stopped the processes {} for {time} in all, and the times are those of the quota. Next: measure where there \
                 is none, or with fewer processes than it is worth cores",
                count::of(times, "time")
            ),
        };
        Some(format!("{tightest}: {said}"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn the_quota_of_a_group_above_counts_and_so_does_what_it_stops() {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            &[
                ("proc/self/cgroup", "0::/slurm/job_1/step\n"),
                ("sys/fs/cgroup/slurm/job_1/step/cpu.max", "max 100000\n"),
                ("sys/fs/cgroup/slurm/job_1/cpu.max", "150000 100000\n"),
                ("sys/fs/cgroup/slurm/cpu.max", "1600000 100000\n"),
                ("sys/fs/cgroup/slurm/job_1/cpu.stat", "usage_usec 9\nnr_throttled 3\nthrottled_usec 100\n"),
            ],
        );
        let source = Source::open(root.path()).unwrap();
        let quota = Quota::tightest(&source).unwrap();
        let words = "group /slurm/job_1 may use the time of 1.5 cores (150000 us of every 100000 us)";
        assert_eq!(quota.to_string(), words);
        assert!(quota.is_short_of(2, 2) && !quota.is_short_of(1, 2) && !quota.is_short_of(2, 1));
        let watch = Watch::begin(&source, 2);
        assert_eq!(watch.note(&source).unwrap(), format!("{words}: it stopped nothing"));
        write(
            root.path(),
            &[("sys/fs/cgroup/slurm/job_1/cpu.stat", "usage_usec 9\nnr_throttled 40\nthrottled_usec 1900100\n")],
        );
        let note = watch.note(&source).unwrap();
        assert!(
            note.contains("it stopped the processes 37 times for 1.9 s in all") && note.contains("Next: "),
            "{note}"
        );
        // A single core cannot use up this quota.
        assert_eq!(Watch::begin(&source, 1).note(&source), None);
    }

    #[test]
    fn version_1_has_it_at_the_mount_of_a_container() {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            &[
                ("proc/self/cgroup", "4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n0::/\n"),
                ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "100000\n"),
                ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
                ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n"),
                ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
                ("sys/fs/cgroup/cpu,cpuacct/cpu.stat", "nr_periods 9\nnr_throttled 2\nthrottled_time 5\n"),
            ],
        );
        let source = Source::open(root.path()).unwrap();
        assert_eq!(all(&source).len(), 1, "one group under two names");
        let quota = Quota::tightest(&source).unwrap();
        assert_eq!((quota.group.as_str(), quota.cores()), ("/", 1.0));
        assert_eq!(quota.stopped(&source), Some(Stopped { times: 2, time: 5 }));
        write(
            root.path(),
            &[("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"), ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")],
        );
        assert_eq!(Quota::tightest(&Source::open(root.path()).unwrap()), None);
    }
}
