//! What a node does when a job's step has ended there: the last one leaves the step's summary in the spool.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, mpsc};
use std::thread::{self, sleep};
use std::time::{Duration, Instant, SystemTime};

use fleet::harvest::{Known, harvest};
use fleet::spool;
use fleet::summary::{End, Job, Owner, Program, short};
use machine::costs::store;
use machine::{Fault, Result};
use profile::profile::Profile;
use profile::summary::Summary;
use profile::verdict::{Bounds, Evidence, Verdict};
use record::untrusted::Folder;

/// Time that a timeline may take, below the plugin's LIMIT.
const PATIENCE: Duration = Duration::from_secs(8);
/// Bytes of a program that its hash is of.
const HASHED: u64 = 64 << 20;
/// Endings of what a node of the step leaves for the last one, and a node whose ranks are another step's.
const ENDINGS: [&str; 2] = ["node", "helps"];
/// Bytes of what a node leaves for the last one.
const NODE_MOST: u64 = 256;

#[derive(clap::Args)]
pub struct Leave {
    /// The step's profile
    folder: PathBuf,
    /// The spool
    #[arg(long)]
    spool: PathBuf,
    /// ID:ARRAY:STEP:RESTART:CLUSTER, with ARRAY -1 for none
    #[arg(long, value_parser = step)]
    job: Job,
    /// Nodes of the step; 0 where the ranks here are another step's
    #[arg(long)]
    nodes: usize,
    /// Cores that the job holds on this node
    #[arg(long)]
    cores: u32,
    /// As of wait(2): of a task here that failed, else 0
    #[arg(long)]
    status: i32,
    #[arg(long)]
    partition: String,
}

fn step(text: &str) -> Result<Job, String> {
    let mut words = text.splitn(5, ':');
    fn next<T: FromStr>(words: &mut std::str::SplitN<char>, what: &str) -> Result<T, String> {
        words.next().and_then(|word| word.parse().ok()).ok_or_else(|| format!("its {what} is no number"))
    }
    let id = next(&mut words, "job")?;
    let array = next::<i64>(&mut words, "array")?;
    let (step, restart) = (next(&mut words, "step")?, next(&mut words, "restart")?);
    let cluster = words.next().unwrap_or_default().to_owned();
    Ok(Job { cluster, id, array: u32::try_from(array).ok(), step, restart })
}

/// Notes that the step has ended on this node. On the last one, puts the summary into the spool and removes the profile.
pub fn run(arguments: &Leave) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    let Leave { folder, spool, nodes, cores, status, .. } = arguments;
    let unwritten = |e| Fault::because(folder.display().to_string(), e, "free space in the spool");
    let host = launch::this_host();
    let softirqs = softirqs_since(&folder.join(format!("{host}.began"))).unwrap_or(-1.0);
    let helps = *nodes == 0;
    let note = format!("{host}.{}", ENDINGS[usize::from(helps)]);
    let beside = folder.join(format!("{note}.new"));
    fs::write(&beside, format!("{cores} {status} {softirqs}"))
        .and_then(|()| fs::rename(&beside, folder.join(note)))
        .map_err(unwritten)?;
    if helps || nodes_that_ended(folder, ENDINGS[0]).len() < *nodes {
        return Ok(());
    }
    // Other hosts of the launcher end at the same time.
    let hosts = || Profile::without_timeline(folder).map_or(0, |profile| Summary::of(&profile).job.hosts.len());
    for _ in 0..50 {
        if all_that_ended(folder).len() >= hosts() {
            break;
        }
        sleep(Duration::from_millis(100));
    }
    let ended = all_that_ended(folder);
    // Of two nodes that end at once, one has the folder.
    let taken = folder.with_extension("ended");
    if fs::rename(folder, &taken).is_err() {
        return Ok(());
    }
    let left = leave(&taken, arguments, ended, until);
    fs::remove_dir_all(&taken).map_err(|e| Fault::because(taken.display().to_string(), e, "remove it"))?;
    left.and_then(|summary| match summary {
        Some(summary) => {
            spool::put(spool, &summary).map_err(|e| Fault::because(spool.display().to_string(), e, "free space there"))
        }
        // No task called MPI.
        None => Ok(()),
    })
}

/// What a node leaves for the last one.
struct Ended {
    host: String,
    cores: u32,
    status: i32,
    /// Seconds of all its cores in softirqs, of whatever job.
    softirqs: Option<f64>,
}

fn nodes_that_ended(folder: &Path, ending: &'static str) -> Vec<Ended> {
    let Ok(folder) = Folder::open(folder, None) else { return Vec::new() };
    let read = |name: OsString| {
        let text = String::from_utf8(folder.read(&name, NODE_MOST).ok()?).ok()?;
        let mut words = text.split(' ');
        let mut next = || words.next();
        Some(Ended {
            host: Path::new(&name).file_stem()?.to_str()?.to_owned(),
            cores: next()?.parse().ok()?,
            status: next()?.parse().ok()?,
            softirqs: next()?.parse().ok().filter(|time| *time >= 0.0),
        })
    };
    folder.names(ending).map(|names| names.filter_map(read).collect()).unwrap_or_default()
}

/// Of each host one.
fn all_that_ended(folder: &Path) -> Vec<Ended> {
    let mut all: Vec<Ended> = ENDINGS.into_iter().flat_map(|ending| nodes_that_ended(folder, ending)).collect();
    all.sort_by(|a, b| (&a.host, b.cores).cmp(&(&b.host, a.cores)));
    all.dedup_by(|a, b| a.host == b.host);
    all
}

/// Most seconds of this host's cores in softirqs since `before`, a first line of /proc/stat, was read.
fn softirqs_since(before: &Path) -> Option<f64> {
    let (before, now) = (fs::read_to_string(before).ok()?, fs::read_to_string("/proc/stat").ok()?);
    Some(
        most_of(softirq_ticks(&now)?.checked_sub(softirq_ticks(&before)?)?)
            / rustix::param::clock_ticks_per_second() as f64,
    )
}

/// From a first line of /proc/stat.
fn softirq_ticks(text: &str) -> Option<u64> {
    // user, nice, system, idle, iowait, irq, softirq
    text.lines().next()?.split_whitespace().nth(7)?.parse().ok()
}

/// Most ticks behind so many that were counted: kernels sample by ticks, so that the time of no tick is not none. Above the upper end
/// of a Poisson mean's 95 % interval.
fn most_of(counted: u64) -> f64 {
    let counted = counted as f64;
    counted + 2.0 * counted.sqrt() + 3.0
}

/// Judges by the tables; the kernel's work for messages is at most all of its softirqs on the hosts.
fn judged(profile: &Profile, nodes: &[Ended]) -> Result<Summary> {
    let Some(rank) = profile.ranks.first() else { return Ok(Summary::of(profile)) };
    let costs = store::of_host(&rank.host())?.costs;
    let mut summary = Summary::judged(profile, &costs);
    let mut evidence = Evidence::of(&summary);
    let ranks_on: Vec<usize> = (0..evidence.hosts.len()).map(|host| evidence.ranks_on(host).count()).collect();
    for rank in &mut evidence.ranks {
        let of = nodes.iter().find(|node| node.host == evidence.hosts[rank.host].name).and_then(|node| node.softirqs);
        if let Some(softirqs) = of {
            // Inside MPI they are in its transfers and waits.
            let most = (softirqs / ranks_on[rank.host] as f64).min(rank.compute).max(rank.protocol.least);
            rank.protocol = Bounds::between(rank.protocol.least, most, "softirqs of all kinds were counted");
        }
    }
    summary.verdict = Some(Verdict::of(&evidence, &costs));
    Ok(summary)
}

/// What `whole` returns, or what `part` does where that takes until `until`.
fn by_then<T: Send + 'static>(
    until: Instant,
    whole: impl FnOnce() -> T + Send + 'static,
    part: impl FnOnce() -> T,
) -> T {
    let (done, found) = mpsc::channel();
    thread::spawn(move || done.send(whole()));
    found.recv_timeout(until.saturating_duration_since(Instant::now())).unwrap_or_else(|_| part())
}

fn leave(folder: &Path, arguments: &Leave, nodes: Vec<Ended>, until: Instant) -> Result<Option<fleet::Summary>> {
    let Leave { job, partition, .. } = arguments;
    let nodes = Arc::new(nodes);
    let judge = |opened: fn(&Path) -> Result<Profile>| {
        let (folder, nodes) = (folder.to_owned(), Arc::clone(&nodes));
        move || opened(&folder).ok().map(|profile| judged(&profile, &nodes).map(|summary| (profile, summary)))
    };
    let Some(found) = by_then(until, judge(Profile::open), judge(Profile::without_timeline)) else { return Ok(None) };
    let (profile, summary) = found?;
    let status = nodes.iter().map(|node| node.status).find(|status| *status != 0).unwrap_or(0);
    let cores = nodes.iter().fold(0_u32, |sum, node| sum.saturating_add(node.cores));
    let end = match (status & 0x7f, status >> 8) {
        (0, 0) => End::Finished,
        (0, _) => End::Failed,
        _ => End::Killed,
    };
    let user = rustix::process::getuid();
    let on_nodes = nodes.len();
    let mut left = harvest(
        &profile,
        &summary,
        Known {
            job: job.clone(),
            owner: Owner { user: user.as_raw(), group: group() },
            partition: partition.clone(),
            program: program(&summary),
            cores,
            end,
            model: env!("CARGO_PKG_VERSION").into(),
        },
    );
    if left.ranks == 0 {
        // Tables that cannot be read, as of ranks that ended within MPI_Init, tell neither when nor where.
        let now = SystemTime::now();
        let began = began(folder).unwrap_or(now);
        left.started = began.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        left.seconds = now.duration_since(began).map_or(0.0, |since| since.as_secs_f64());
        left.nodes = on_nodes as u32;
    }
    Ok(Some(left))
}

/// When the first node of the step wrote what it began with.
fn began(folder: &Path) -> Option<SystemTime> {
    let names = Folder::open(folder, None).ok()?.names("began").ok()?;
    names.filter_map(|name| fs::symlink_metadata(folder.join(name)).ok()?.modified().ok()).min()
}

/// The name of this process's group, or its number.
fn group() -> String {
    let number = rustix::process::getgid().as_raw().to_string();
    let groups = fs::read_to_string("/etc/group").unwrap_or_default();
    let named = groups.lines().find_map(|line| {
        let mut words = line.split(':');
        let name = words.next()?;
        (words.nth(1)? == number).then(|| name.to_owned())
    });
    named.unwrap_or(number)
}

/// The program whose ranks took most time.
fn program(of: &Summary) -> Program {
    let most = of.ranks.iter().max_by(|a, b| a.thread_seconds.total_cmp(&b.thread_seconds));
    let path = most.map(|rank| PathBuf::from(&rank.program)).unwrap_or_default();
    let name = path.file_name().map_or("(unknown)".into(), |name| name.as_bytes().escape_ascii().to_string());
    let read = || {
        let mut bytes = Vec::new();
        File::open(&path)?.take(HASHED).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>(bytes)
    };
    let hash = read().ok().map(|bytes| short(&bytes).iter().map(|byte| format!("{byte:02x}")).collect());
    Program { hash, name: name.chars().take(64).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_long_is_not_waited_for() {
        let (go, wait) = mpsc::channel::<()>();
        let endless = move || wait.recv().map_or("all", |()| "all");
        assert_eq!(by_then(Instant::now(), endless, || "a part"), "a part");
        drop(go);
        assert_eq!(by_then(Instant::now() + Duration::from_secs(600), || "all", || "a part"), "all");
    }

    #[test]
    fn a_step_without_a_readable_table_has_its_time_and_nodes() {
        let home = tempfile::tempdir().unwrap();
        let (folder, spool) = (home.path().join("step"), home.path().join("spool"));
        let (host, hour) = (launch::this_host(), Duration::from_secs(3600));
        let table = record::folder::rank_file(&folder, &host, 1);
        fs::create_dir_all(table.parent().unwrap()).unwrap();
        fs::create_dir(&spool).unwrap();
        fs::write(table, "no table").unwrap();
        let first = SystemTime::now() - hour;
        for (host, began) in [(&host[..], first), ("another", SystemTime::now())] {
            let file = File::create(folder.join(format!("{host}.began"))).unwrap();
            file.set_modified(began).unwrap();
        }
        fs::write(folder.join("another.node"), "3 0 -1").unwrap();
        let job = step("7:-1:0:0:c").unwrap();
        let partition = "all".to_owned();
        run(&Leave { folder, spool: spool.clone(), job, nodes: 2, cores: 4, status: 256, partition }).unwrap();
        let left = fs::read_dir(spool).unwrap().find_map(|file| fs::read_to_string(file.unwrap().path()).ok()).unwrap();
        let left: fleet::Summary = serde_json::from_str(&left).unwrap();
        let seconds = |of: SystemTime| of.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        assert_eq!((left.started, left.nodes, left.cores, left.end), (seconds(first), 2, 7, End::Failed));
        assert!(left.seconds >= hour.as_secs_f64() && left.unjudged == Some(fleet::summary::Unjudged::NoTables));
        assert_eq!((left.program.name.as_str(), left.program.hash), ("(unknown)", None));
    }

    #[test]
    fn ticks_bound_a_time_from_above() {
        let line = "cpu  1 2 3 4 5 6 70 8\ncpu0 9 9 9 9 9 9 9 9\n";
        assert_eq!(softirq_ticks(line), Some(70));
        assert_eq!(most_of(0), 3.0);
        // Garwood's interval: 5.57 of 1, 18.39 of 10, 121.63 of 100.
        for (counted, exact) in [(1, 5.57), (10, 18.39), (100, 121.63)] {
            assert!((exact..1.1 * exact).contains(&most_of(counted)), "{counted}");
        }
    }
}
