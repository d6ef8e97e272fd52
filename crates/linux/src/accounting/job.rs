//! CPU time of a job's threads by core: of processes and of all their descendants.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use machine::{CoreId, Fault, Nanoseconds, Result};

use super::thread::core_of_stat;

/// A process of a job; its children belong to the job too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobProcess {
    Number(u32),
    /// All processes that run a program of this name.
    Name(String),
}

impl FromStr for JobProcess {
    type Err = Fault;

    fn from_str(text: &str) -> Result<JobProcess> {
        match (text.trim(), text.trim().parse()) {
            ("" | "0", _) => Err(Fault::new("process", format!("'{text}' names none"), "give its number or its name")),
            (_, Ok(number)) => Ok(JobProcess::Number(number)),
            (name, _) => Ok(JobProcess::Name(name.to_owned())),
        }
    }
}

impl fmt::Display for JobProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobProcess::Number(number) => write!(f, "{number}"),
            JobProcess::Name(name) => f.write_str(name),
        }
    }
}

/// Length to which the kernel cuts a name.
const KEPT: usize = 15;

impl JobProcess {
    fn is(&self, number: u32, stat: &Stat) -> bool {
        match self {
            JobProcess::Number(own) => *own == number,
            JobProcess::Name(own) => own.bytes().take(KEPT).eq(stat.name.bytes()),
        }
    }
}

/// Fields of the `stat` file of a process or thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stat {
    pub name: String,
    pub parent: u32,
    /// CPU time, in ticks of USER_HZ.
    ticks: u64,
    core: CoreId,
}

impl Stat {
    pub fn of(text: &str) -> Option<Stat> {
        let (before, after) = text.rsplit_once(')')?;
        let field = |number: usize| after.split_ascii_whitespace().nth(number - 3)?.parse::<u64>().ok();
        Some(Stat {
            name: before.split_once('(')?.1.to_owned(),
            parent: u32::try_from(field(4)?).ok()?,
            ticks: field(14)?.saturating_add(field(15)?),
            core: core_of_stat(text)?,
        })
    }

    /// The CPU time as a duration.
    pub fn time(&self) -> Nanoseconds {
        let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        Nanoseconds(self.ticks.saturating_mul(tick))
    }
}

/// The processes that the procfs at `root` shows.
pub(super) fn processes(root: &Path) -> BTreeMap<u32, Stat> {
    let of = |number: u32| Some((number, Stat::of(&fs::read_to_string(root.join(format!("{number}/stat"))).ok()?)?));
    numbers(root).filter_map(of).collect()
}

/// The entries of a folder that are numbers.
fn numbers(folder: &Path) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Threads of a job, and the CPU time that they used on each core.
#[derive(Debug)]
pub(super) struct JobThreads {
    /// The folder of a procfs.
    root: PathBuf,
    of: Vec<JobProcess>,
    members: BTreeSet<u32>,
    /// CPU time and core at the last look, by process and thread.
    seen: BTreeMap<(u32, u32), (Nanoseconds, CoreId)>,
    spent: BTreeMap<CoreId, Nanoseconds>,
}

impl JobThreads {
    /// # Errors
    /// A named process does not run.
    pub fn begin(root: &Path, of: &[JobProcess]) -> Result<JobThreads> {
        let mut job = JobThreads {
            root: root.to_owned(),
            of: of.to_vec(),
            members: BTreeSet::new(),
            seen: BTreeMap::new(),
            spent: BTreeMap::new(),
        };
        let all = job.survey();
        if let Some(missing) = of.iter().find(|wanted| !all.iter().any(|(number, stat)| wanted.is(*number, stat))) {
            let next = "name processes that run now, by number or by name: `ps -u $USER`";
            return Err(Fault::new(format!("process {missing}"), "it does not run here, or /proc hides it", next));
        }
        job.look();
        // CPU time before the begin does not count.
        job.spent.clear();
        Ok(job)
    }

    /// Updates the set of the job's processes.
    pub fn survey(&mut self) -> BTreeMap<u32, Stat> {
        if self.of.is_empty() {
            return BTreeMap::new();
        }
        let all = processes(&self.root);
        let named = all.iter().filter(|(number, stat)| self.of.iter().any(|wanted| wanted.is(**number, stat)));
        let mut members: BTreeSet<u32> = named.map(|(number, _)| *number).collect();
        loop {
            let children = all.iter().filter(|(_, stat)| members.contains(&stat.parent)).map(|(number, _)| *number);
            let grown: BTreeSet<u32> = children.filter(|number| !members.contains(number)).collect();
            if grown.is_empty() {
                break;
            }
            members.extend(grown);
        }
        self.members = members;
        all
    }

    /// Adds the CPU time of each thread since the last look, half each to its core then and its core now.
    pub fn look(&mut self) {
        let mut seen = BTreeMap::new();
        for process in &self.members {
            let threads = self.root.join(format!("{process}/task"));
            for thread in numbers(&threads) {
                let read = |name: &str| fs::read_to_string(threads.join(format!("{thread}/{name}"))).ok();
                let Some(stat) = read("stat").as_deref().and_then(Stat::of) else { continue };
                let exact = read("schedstat").as_deref().and_then(time_of_schedstat);
                let time = exact.unwrap_or_else(|| stat.time());
                let (before, core) = self.seen.get(&(*process, thread)).copied().unwrap_or((Nanoseconds(0), stat.core));
                let grown = time.0.saturating_sub(before.0);
                let mut add = |core, part| {
                    let spent = self.spent.entry(core).or_default();
                    *spent = *spent + Nanoseconds(part);
                };
                add(core, grown / 2);
                add(stat.core, grown - grown / 2);
                seen.insert((*process, thread), (time, stat.core));
            }
        }
        self.seen = seen;
    }

    /// CPU time on each core since the last call, or since the begin.
    pub fn spent(&mut self) -> BTreeMap<CoreId, Nanoseconds> {
        std::mem::take(&mut self.spent)
    }
}

/// The CPU time in the text of a `schedstat` file: its first field. `None` where the kernel keeps no such statistics.
pub(super) fn time_of_schedstat(text: &str) -> Option<Nanoseconds> {
    let mut numbers = text.split_ascii_whitespace().map(|word| word.parse::<u64>().ok());
    let (ran, delay, times) = (numbers.next()??, numbers.next()??, numbers.next()??);
    ((ran, delay, times) != (0, 0, 0)).then_some(Nanoseconds(ran))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    /// A line `NUMBER (NAME) S PARENT .. utime stime .. core`.
    fn stat(number: u32, name: &str, parent: u32, ticks: u64, core: u32) -> String {
        let fields: Vec<String> = (5..=52)
            .map(|field| match field {
                14 => ticks.to_string(),
                39 => core.to_string(),
                _ => "0".to_owned(),
            })
            .collect();
        format!("{number} ({name}) S {parent} {}\n", fields.join(" "))
    }

    /// A thread of a procfs: process, thread, parent, name, ticks, core, ns of schedstat.
    type Row<'a> = (u32, u32, u32, &'a str, u64, u32, Option<u64>);

    fn write(root: &Path, rows: &[Row]) {
        for (process, thread, parent, name, ticks, core, exact) in rows {
            let folder = root.join(format!("{process}/task/{thread}"));
            fs::create_dir_all(&folder).unwrap();
            let text = stat(*thread, name, *parent, *ticks, *core);
            fs::write(folder.join("stat"), &text).unwrap();
            if let Some(exact) = exact {
                fs::write(folder.join("schedstat"), format!("{exact} 5 7\n")).unwrap();
            }
            if process == thread {
                fs::write(root.join(format!("{process}/stat")), text).unwrap();
            }
        }
    }

    #[test]
    fn time_goes_to_the_core_where_a_thread_was_and_children_belong_to_the_job() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(
            root,
            &[
                (10, 10, 1, "mpirun", 100, 0, Some(1000 * MS)),
                (11, 11, 10, "a (b) c", 7, 1, Some(70 * MS)),
                (11, 12, 10, "a (b) c", 0, 2, None),
                (20, 20, 1, "other", 50, 3, Some(500 * MS)),
            ],
        );
        let mut job = JobThreads::begin(root, &[JobProcess::Number(10)]).unwrap();
        write(
            root,
            &[
                (10, 10, 1, "mpirun", 100, 0, Some(1003 * MS)),
                (11, 11, 10, "a (b) c", 7, 2, Some(80 * MS)),
                (11, 12, 10, "a (b) c", 4, 2, None),
                (20, 20, 1, "other", 90, 3, Some(900 * MS)),
                (13, 13, 11, "late", 1, 4, Some(6 * MS)),
            ],
        );
        job.survey();
        job.look();
        let spent: Vec<_> = job.spent().into_iter().map(|(core, time)| (core.0, time.0 / MS)).collect();
        assert_eq!(spent, [(0, 3), (1, 5), (2, 45), (4, 6)]);
        assert!(job.spent().is_empty());
    }

    #[test]
    fn a_job_is_named_by_its_program_too_and_must_be_there() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, &[(10, 10, 1, "a_long_program_", 1, 0, None), (11, 11, 1, "x", 1, 0, None)]);
        let named = |name: &str| JobThreads::begin(root, &[name.parse().unwrap()]);
        assert_eq!(named("a_long_program_name").unwrap().members, BTreeSet::from([10]));
        assert_eq!(named("11").unwrap().members, BTreeSet::from([11]));
        assert_eq!(named("a_long").unwrap_err().subject(), "process a_long");
        assert!(named("12").is_err() && "".parse::<JobProcess>().is_err() && "0".parse::<JobProcess>().is_err());
    }

    proptest! {
        #[test]
        fn any_text_reads_without_panic(text in "[ -~\n]{0,300}") {
            let _ = (Stat::of(&text), time_of_schedstat(&text));
        }
    }
}
