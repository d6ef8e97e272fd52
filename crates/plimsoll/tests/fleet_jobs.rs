//! Two hundred jobs of eight programs by two users under the plugin. It is known what each program would gain, and what became of
//! each job.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use rounds::statistics::median_interval;
use serde_json::{Value, json};
use testbed::mpi::Mpi;
use testbed::place::Place;

use crate::fleet::{Centre, summaries};

const PROGRAM: &str = include_str!("fleet_jobs.c");

/// Programs that messages to another host hold up.
const GAIN: [&str; 3] = ["messenger", "courier", "misplaced"];
/// One whose messages stay on its host, and programs that no lever would make faster.
const LOCAL: &str = "neighbour";
const OTHERS: [&str; 4] = ["calm", "late", "tardy", "asleep"];

/// Jobs of a kind; one half is of either user.
struct Jobs {
    count: usize,
    options: &'static [&'static str],
    script: String,
    /// Of each step that leaves a summary.
    programs: &'static [&'static str],
    /// Why they are not judged.
    unjudged: Option<&'static str>,
}

const TOO_SHORT: &str = "too_short";
const LOST_RANKS: &str = "lost_ranks";

/// Jobs that are mostly asleep, several on a core.
const CALM: &[&str] = &["--partition=shared", "-N2", "--ntasks-per-node=1"];
const SERIAL: &[&str] = &["--partition=shared", "-N1"];
const OFF: &[&str] = &["--partition=shared", "-N2", "--ntasks-per-node=1", "--plimsoll=off"];
const TRACED: &[&str] = &["-N2", "--ntasks-per-node=1", "--plimsoll=trace"];
const ALONE: &[&str] = &["-N2", "--ntasks-per-node=1", "--exclusive"];

/// Programs of the steps of a job that starts its ranks by `srun`.
const STEPS: [&str; 2] = ["late", "tardy"];

/// `is_direct`: `srun` can start ranks.
fn plan(folder: &Path, is_direct: bool) -> Vec<Jobs> {
    let run = |ranks: usize, words: &str| {
        // Both nodes are one machine, where the folders of two launchers below /tmp have one name.
        format!(
            "T=$(mktemp -d -p {0}); mpirun.openmpi --oversubscribe --bind-to none --mca orte_tmpdir_base $T \
             --mca btl self,vader,tcp --mca mpi_yield_when_idle 1 -n {ranks} --map-by node {1}",
            folder.join("out").display(),
            folder.join(words).display()
        )
    };
    // When all ranks have begun to leave tables.
    let meanwhile = |words: &str, act: &str| {
        let all = "[ $(ls $PLIMSOLL_PROFILE/ranks | wc -l) = 2 ]";
        format!("{} & until {all}; do sleep 0.1; done; {act}; wait", run(2, words))
    };
    let steps = STEPS.map(|program| folder.join(program).display().to_string());
    // A step that its option does not reach leaves no summary.
    let direct = format!(
        "export OMPI_MCA_btl=self,vader,tcp OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none; \
         srun --mpi=pmix -n 2 {}; srun --mpi=pmix --plimsoll=trace -n 2 sh -c \
         '[ $PLIMSOLL_PROFILE_TRACE != 0 ] && exec {}'",
        steps[0], steps[1]
    );
    let of = |count, options, script: String, programs| Jobs { count, options, script, programs, unjudged: None };
    let calm = |count, script| of(count, CALM, script, &["calm"]);
    let lost = meanwhile("calm", "rm $(ls -d $PLIMSOLL_PROFILE/ranks/* | head -n 1)");
    vec![
        calm(12, run(2, "calm")),
        of(34, CALM, run(2, "late"), &["late"]),
        of(6, TRACED, run(2, "tardy"), &["tardy"]),
        if is_direct { of(12, CALM, direct, &STEPS) } else { of(12, CALM, "true".into(), &[]) },
        of(40, CALM, run(2, "asleep"), &["asleep"]),
        Jobs { unjudged: Some(TOO_SHORT), ..calm(10, run(2, "calm brief")) },
        calm(6, run(2, "calm killed")),
        calm(6, run(2, "calm leaves")),
        calm(4, meanwhile("calm stays", "sleep 1.5; scancel ${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID")),
        Jobs { unjudged: Some(LOST_RANKS), ..calm(6, lost) },
        of(6, SERIAL, "true".into(), &[]),
        of(6, SERIAL, folder.join("static").display().to_string(), &[]),
        of(4, OFF, run(2, "calm"), &[]),
        of(24, &["-N1"], run(2, LOCAL), &[LOCAL]),
        of(8, ALONE, run(2, "messenger"), &["messenger"]),
        of(8, ALONE, run(2, "courier"), &["courier"]),
        // Ranks 0 and 1 are on two hosts, and so are 2 and 3.
        of(8, ALONE, run(4, "misplaced"), &["misplaced"]),
    ]
}

/// Builds a program that no library can be preloaded to.
fn static_program(folder: &Path) {
    let source = folder.join("static.c");
    fs::write(&source, "int main(void) { return 0; }").unwrap();
    let built = Command::new("cc").arg("-static").arg("-o").arg(folder.join("static")).arg(source).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}

/// A summary in the spool, and its file.
fn first_of(spool: &Path, program: &str) -> (PathBuf, Value) {
    let files = fs::read_dir(spool).unwrap().map(|file| file.unwrap().path());
    let mut read = files
        .filter(|path| path.extension().is_some_and(|ending| ending == "job"))
        .map(|path| (path.clone(), serde_json::from_str::<Value>(&fs::read_to_string(path).unwrap()).unwrap()));
    read.find(|(_, of)| of["program"]["name"] == program && of["unjudged"].is_null()).unwrap()
}

/// Damages a summary, leaves another twice, and three that are none, each as a file of `user`.
fn damage(spool: &Path) {
    let [(damaged, _), (path, summary)] = ["calm", "late"].map(|program| first_of(spool, program));
    let text = fs::read(&damaged).unwrap();
    fs::write(damaged, &text[..text.len() / 2]).unwrap();
    let user = summary["owner"]["user"].as_u64().unwrap() as u32;
    let leave = |name: &str, key: &str, value: Value| {
        let mut summary = summary.clone();
        *summary.pointer_mut(key).unwrap() = value;
        fs::write(spool.join(name), summary.to_string()).unwrap();
        chown(spool.join(name), Some(user), None).unwrap();
    };
    fs::copy(&path, spool.join("zz-twice.job")).unwrap();
    leave("zz-other.job", "/owner/user", json!(user + 1));
    leave("zz-changed.job", "/seconds", json!(1_000_000.0));
    leave("zz-newer.job", "/version", json!(2));
}

#[test]
#[ignore = "make check"]
fn of_two_hundred_jobs_the_page_names_those_that_were_made_to_gain() {
    let Some(mpi) = Mpi::system(launch::family::Family::OpenMpi) else { return };
    let _turn = Place::new().before_all();
    let programs = [&GAIN[..], &[LOCAL], &OTHERS].concat();
    let Some(centre) = Centre::start(&mpi, PROGRAM, &programs) else { return };
    let folder = centre.cluster.path().to_owned();
    static_program(&folder);
    let shared = ["create", "PartitionName=shared", "Nodes=n[1-2]", "OverSubscribe=FORCE:4", "State=UP"];
    assert_eq!(centre.cluster.said("scontrol", &shared).trim(), "");
    let is_direct = centre.cluster.said("srun", &["--mpi=list"]).contains("pmix");
    if !is_direct {
        skip::part("srun of this Slurm has no pmix: install its plugin");
    }
    let plan = plan(&folder, is_direct);
    assert_eq!(plan.iter().map(|jobs| jobs.count).sum::<usize>(), 200);
    // The kernel's work for the busy ones is that of both nodes, so that they are not beside the others.
    let is_busy = |jobs: &&Jobs| jobs.programs.iter().any(|name| *name == LOCAL || GAIN.contains(name));
    let (busy, quiet): (Vec<_>, Vec<_>) = plan.iter().partition(is_busy);
    let began = Instant::now();
    // Softirqs of other tests, as a share of a core, while jobs run that send little.
    let mut others = 0.0;
    for (wave, is_quiet) in [(quiet, true), (busy, false)] {
        let (ticks, from) = (softirq_seconds(), Instant::now());
        for jobs in wave {
            let half = format!("--array=1-{}", jobs.count / 2);
            let options = [&[&half[..]], jobs.options].concat();
            (0..2).for_each(|_| centre.submit(&options, &jobs.script));
        }
        centre.settle();
        if is_quiet {
            others = (softirq_seconds() - ticks) / from.elapsed().as_secs_f64();
        }
    }
    println!("200 jobs took {:.0} s", began.elapsed().as_secs_f64());

    let left = summaries(&centre.spool);
    let said = || format!("{left:#?}{}{}", centre.outputs(), centre.cluster.logs());
    for program in &programs {
        for why in [None, Some(TOO_SHORT), Some(LOST_RANKS)] {
            let planned = plan.iter().filter(|jobs| jobs.programs.contains(program) && jobs.unjudged == why);
            let ended = left.iter().filter(|of| of["program"]["name"] == *program && of["unjudged"].as_str() == why);
            let (planned, ended): (usize, usize) = (planned.map(|jobs| jobs.count).sum(), ended.count());
            assert_eq!(ended, planned, "{program} {why:?}: {}", said());
        }
    }
    let count = |key: &str, value: &Value| left.iter().filter(|of| of.pointer(key) == Some(value)).count();
    let all: usize = plan.iter().map(|jobs| jobs.count * jobs.programs.len()).sum();
    let finished = count("/end", &json!("finished"));
    assert_eq!((left.len(), finished), (all, all - 16), "16 were killed or left MPI: {}", said());
    let users: BTreeSet<u64> = left.iter().map(|of| of["owner"]["user"].as_u64().unwrap()).collect();
    assert!(users.len() == 2 && users.iter().all(|user| count("/owner/user", &json!(user)) == all / 2), "{}", said());
    assert_eq!(left.iter().map(|of| of["job"].to_string()).collect::<BTreeSet<_>>().len(), all, "{}", said());
    for (step, program) in STEPS.into_iter().enumerate().filter(|_| is_direct) {
        let of: Vec<&Value> = left.iter().filter(|of| of["job"]["step"] == step).collect();
        let is_whole = |of: &&Value| {
            of["program"]["name"] == program
                && ["ranks", "expected", "nodes", "cores"].iter().all(|what| of[what] == 2)
                && of["end"] == "finished"
        };
        assert!(of.len() == 12 && of.iter().all(is_whole), "{step}: {of:#?}{}", said());
    }
    let programs_of = |of: &Value| of["program"]["hash"].as_str().unwrap().to_owned();
    assert_eq!(left.iter().map(programs_of).collect::<BTreeSet<_>>().len(), 8);

    damage(&centre.spool);
    let added = centre.ask(&["add", centre.spool.to_str().unwrap()]);
    assert!(added.starts_with(&format!("{} new, 1 known, 4 kept aside\n", all - 1)), "{added}");
    for why in ["it is damaged", "newer plimsoll", "another user's job", "another summary of this step"] {
        assert!(added.contains(why), "{why}: {added}");
    }
    assert_eq!(summaries(&centre.spool).len(), 0);
    // It widens the bounds of all jobs.
    match others <= MOST_BY_OTHERS {
        true => the_page_tells_truly(&centre, &programs, all - 1),
        false => skip::part(format!("other work's messages take {:.0} % of a core: bounds are wide", 100.0 * others)),
    }
}

/// Share of a core.
const MOST_BY_OTHERS: f64 = 0.03;

/// Seconds that all cores have spent in softirqs.
fn softirq_seconds() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap();
    let ticks: f64 = text.lines().next().unwrap().split_whitespace().nth(7).unwrap().parse().unwrap();
    ticks / rustix::param::clock_ticks_per_second() as f64
}

/// What the page says of all jobs and of each program is what they were made for.
fn the_page_tells_truly(centre: &Centre, programs: &[&str], jobs: usize) {
    let ask = |words: &[&str]| -> Value { serde_json::from_str(&centre.ask(&[&["--json"], words].concat())).unwrap() };
    let sums = ask(&["--per", "program"]);
    let unjudged = sums["unjudged"].as_array().unwrap();
    let counts: BTreeMap<&str, u64> =
        unjudged.iter().map(|of| (of["why"].as_str().unwrap(), of["jobs"].as_u64().unwrap())).collect();
    assert_eq!((&sums["jobs"], counts), (&json!(jobs), [(LOST_RANKS, 6), (TOO_SHORT, 10)].into()), "{sums:#}");

    let savings = |program: &str| ask(&["--program", program, "--per", "month"]);
    let share = |of: &Value, lever: &str, end: usize| {
        let saving = of["savings"].as_array().unwrap().iter().find(|saving| saving["lever"] == lever).unwrap();
        saving["share"][end].as_f64().unwrap()
    };
    // Most that an adapter and a core of its own would save, as shares, and the core hours in the middle of the first.
    let mut saved: BTreeMap<&str, (f64, f64, f64)> = BTreeMap::new();
    for program in programs {
        let of = savings(program);
        let share = |lever: &str, end: usize| share(&of, lever, end);
        let middle = (share("offload", 0) + share("offload", 1)) / 2.0 * of["core_hours"].as_f64().unwrap();
        saved.insert(program, (share("offload", 1), share("dedicated_core", 1), middle));
    }
    println!("{saved:.4?}");
    let adapter = |program: &&str| saved[program].0;
    let least = GAIN.iter().map(adapter).fold(1.0, f64::min);
    let most = OTHERS.iter().map(|program| adapter(program).max(saved[program].1)).fold(0.0, f64::max);
    assert!(least > 2.0 * most, "{least} of those made to gain, {most} of the others: {saved:?}");
    assert_eq!((saved[LOCAL].0, saved["asleep"].0), (0.0, 0.0), "they send nothing to another host");
    assert!(saved["asleep"].1 <= 0.0, "it sends nothing at all");
    let [asleep, busy] = ["asleep", "messenger"].map(savings);
    let clocks = [&asleep, &busy].map(|of| share(of, "clock", 1));
    assert!(clocks[0] < clocks[1], "no clock shortens sleep: {clocks:?}");
    let middles = |of: &[&str]| of.iter().map(|program| saved[program].2).sum::<f64>();
    assert!(middles(&GAIN) > 0.75 * middles(programs), "{saved:?}");
    let named = sums["programs"].as_array().unwrap()[..3].iter();
    let named: BTreeSet<&str> =
        named.filter(|of| of["best"][0] == "offload").map(|of| of["name"].as_str().unwrap()).collect();
    assert_eq!(named, GAIN.into(), "{sums:#}");

    let file = centre.cluster.path().join("page.html");
    let said = centre.ask(&["--per", "program", "--html", file.to_str().unwrap()]);
    let page = fs::read_to_string(file).unwrap();
    for line in said.lines().take_while(|line| !line.is_empty()) {
        assert!(page.contains(line), "{line}: {page}");
    }
    println!("{said}");
}

/// What the plugin adds to jobs, printed: to the start and end of one of 64 ranks, and to many short ones. `PLIMSOLL_ROUNDS=8` tries
/// so many of each.
#[test]
#[ignore = "make check"]
fn a_job_of_64_ranks_starts_with_and_without_the_plugin() {
    let Some(mpi) = Mpi::system(launch::family::Family::OpenMpi) else { return };
    let _turn = Place::new().before_all();
    let Some(centre) = Centre::start(&mpi, PROGRAM, &["asleep"]) else { return };
    let folder = centre.cluster.path().to_owned();
    let rounds = std::env::var("PLIMSOLL_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap());
    let run = |ranks: usize| {
        let mpirun = format!(
            "mpirun.openmpi --oversubscribe --bind-to none --mca btl self,vader --mca plm isolated --mca ras ^slurm -n {ranks}"
        );
        format!("T=$(mktemp -d -p {0}/out); {mpirun} --mca orte_tmpdir_base $T {0}/asleep brief", folder.display())
    };
    // Seconds with the plugin on, then off.
    let (mut starts, mut jobs) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    const MANY: usize = 16;
    for round in 0..rounds {
        for at in [round % 2, 1 - round % 2] {
            let option = ["--plimsoll=tables", "--plimsoll=off"][at];
            let began = Instant::now();
            let output = centre.as_user("srun").args(["-N1", "-n1", "-c2", option, "sh", "-c", &run(64)]).output();
            starts[at].push(began.elapsed().as_secs_f64());
            let output = output.unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let began = Instant::now();
            centre.submit(&["-N1", "-n1", &format!("--array=1-{MANY}"), option], &run(2));
            centre.settle();
            jobs[at].push(MANY as f64 / began.elapsed().as_secs_f64());
        }
    }
    for (what, [on, off]) in [("start and end of 64 ranks, s", starts), ("jobs of two ranks a second", jobs)] {
        let ratios: Vec<f64> = on.iter().zip(&off).map(|(on, off)| on / off).collect();
        let ratio = median_interval(&ratios).map_or("too few rounds to tell".into(), |of| of.ratio(2, "x"));
        println!("{what}: with {on:.2?}, without {off:.2?}, ratio {ratio}");
    }
    let left = summaries(&centre.spool);
    let of = |ranks: usize| left.iter().filter(|of| of["ranks"] == ranks && of["expected"] == ranks).count();
    assert_eq!((of(64), of(2), left.len()), (rounds, MANY * rounds, (MANY + 1) * rounds), "{left:#?}");
}
