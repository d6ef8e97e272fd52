//! `plimsoll fleet` and its plugin in a real Slurm of two nodes, where two users run programs of which it is known what they gain.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use testbed::mpi::Mpi;
use testbed::place::Place;
use testbed::slurm::{Cluster, within};

const PLUGIN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fleet/slurm/plimsoll.c");
const PROGRAM: &str = include_str!("fleet.c");
/// Users of this machine.
pub const USERS: [&str; 2] = ["nobody", "daemon"];

/// A cluster whose jobs all leave summaries.
pub struct Centre {
    pub cluster: Cluster,
    pub spool: PathBuf,
    next: std::cell::Cell<usize>,
}

impl Centre {
    /// `source` is compiled once; each program is a copy with contents of its own.
    pub fn start(mpi: &Mpi, source: &str, programs: &[&str]) -> Option<Centre> {
        skip::package::file("/usr/include/slurm/spank.h").map_err(skip::test).ok()?;
        let cluster = Cluster::with_plugins(|folder| {
            let open = |name: &str| {
                let path = folder.join(name);
                fs::create_dir(&path).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o1777)).unwrap();
            };
            ["spool", "spool/running", "out"].into_iter().for_each(open);
            let (command, library) = (folder.join("plimsoll"), folder.join("libplimsoll_profile.so"));
            fs::copy(env!("CARGO_BIN_EXE_plimsoll"), &command).unwrap();
            fs::copy(testbed::recording::library(), &library).unwrap();
            let first = folder.join(programs[0]);
            mpi.compile_text(source, &first);
            for name in &programs[1..] {
                fs::copy(&first, folder.join(name)).unwrap();
                let copy = fs::File::options().append(true).open(folder.join(name));
                copy.and_then(|mut copy| copy.write_all(name.as_bytes())).unwrap();
            }
            let plugin = folder.join("spank.so");
            let built = Command::new("cc")
                .args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"])
                .arg(&plugin)
                .arg(PLUGIN)
                .output();
            let said = String::from_utf8_lossy(&built.unwrap().stderr).into_owned();
            assert!(plugin.exists(), "{said}");
            let spool = folder.join("spool");
            Some(format!(
                "required {} spool={} library={} command={}\n",
                plugin.display(),
                spool.display(),
                library.display(),
                command.display()
            ))
        })?;
        let spool = cluster.path().join("spool");
        Some(Centre { cluster, spool, next: 0.into() })
    }

    /// A command of Slurm's, by one user after the other.
    pub fn as_user(&self, name: &str) -> Command {
        let user = USERS[self.next.replace(self.next.get() + 1) % USERS.len()];
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={user}"), "--regid=65534", "--clear-groups", name]);
        command.current_dir("/tmp").env("HOME", "/tmp").stdin(Stdio::null());
        self.cluster.enter(&mut command);
        command
    }

    /// Submits a script.
    pub fn submit(&self, options: &[&str], script: &str) {
        let mut command = self.as_user("sbatch");
        command.arg("-o").arg(self.cluster.path().join("out/%j")).args(options).arg(format!("--wrap={script}"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stderr), self.cluster.logs());
    }

    /// Waits until no job is left and nothing is on its way to the spool.
    pub fn settle(&self) {
        within(8 * skip::LIMIT, "the end of all jobs", || {
            self.cluster.said("squeue", &["-h"]).trim().is_empty().then_some(())
        });
        let running = self.spool.join("running");
        within(skip::LIMIT, "the last summary", || fs::read_dir(&running).unwrap().next().is_none().then_some(()));
    }

    pub fn outputs(&self) -> String {
        let files = fs::read_dir(self.cluster.path().join("out")).unwrap();
        files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap_or_default()).collect()
    }

    pub fn ask(&self, words: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(["fleet", "--store"]).arg(self.cluster.path().join("fleet.db")).args(words);
        let output = self.cluster.enter(&mut command).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    }
}

pub fn summaries(spool: &Path) -> Vec<Value> {
    let files = fs::read_dir(spool).unwrap().map(|file| file.unwrap().path());
    let read = |path: PathBuf| serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    files.filter(|path| path.extension().is_some_and(|ending| ending == "job")).map(read).collect()
}

/// The command of a script that runs `program` on both nodes.
pub fn across(folder: &Path, program: &str) -> String {
    format!("mpirun.openmpi --bind-to none --mca btl self,tcp -n 2 --map-by node {}", folder.join(program).display())
}

#[test]
fn every_job_leaves_a_summary_and_the_sums_tell_which_would_gain() {
    let Some(mpi) = Mpi::system(launch::family::Family::OpenMpi) else { return };
    let _turn = Place::new().before_all();
    let Some(centre) = Centre::start(&mpi, PROGRAM, &["chatty", "calm", "crashing"]) else { return };
    let folder = centre.cluster.path().to_owned();
    for _ in 0..2 {
        centre.submit(&["-N2", "--ntasks-per-node=1", "--exclusive"], &across(&folder, "chatty"));
        centre.submit(&["-N1", "-n2", "--exclusive"], &across(&folder, "calm"));
    }
    centre.submit(&["-N1", "-n2", "--exclusive"], &across(&folder, "crashing"));
    centre.submit(&["-N1"], "true");
    centre.submit(&["-N1", "--plimsoll=off"], &format!("mpirun.openmpi -n 1 {}", folder.join("calm").display()));
    centre.settle();
    let outputs = centre.outputs();
    assert!(!outputs.contains("plimsoll: "), "users are told nothing: {outputs}");
    let left = summaries(&centre.spool);
    let of = |name: &str| left.iter().filter(|summary| summary["program"]["name"] == name).collect::<Vec<_>>();
    assert_eq!(
        (of("chatty").len(), of("calm").len(), of("crashing").len()),
        (2, 2, 1),
        "{left:#?}{outputs}{}",
        centre.cluster.logs()
    );
    assert!(
        of("chatty")
            .iter()
            .all(|summary| summary["nodes"] == 2 && summary["ranks"] == 2 && summary["end"] == "finished")
    );
    assert!(of("crashing")[0]["end"] != "finished" && of("crashing")[0]["ranks"] == 2, "{:#?}", of("crashing"));
    assert_eq!(left.len(), 5);
    // Two ranks without bindings share the cores of a node; one has them to itself.
    let shared = if std::thread::available_parallelism().unwrap().get() > 1 { 2 } else { 0 };
    assert!(of("calm").iter().all(|summary| summary["unbound"] == shared), "{left:#?}");
    assert!(of("chatty").iter().all(|summary| summary["unbound"] == 0), "{left:#?}");
    fs::write(centre.spool.join("damaged.job"), "{").unwrap();
    let added = centre.ask(&["add", centre.spool.to_str().unwrap()]);
    assert!(
        added.starts_with("5 new, 0 known, 1 kept aside\n") && added.contains("damaged.job: it is damaged"),
        "{added}"
    );
    assert!(fs::read_to_string(centre.spool.join("aside/damaged.job.why")).unwrap().starts_with("it is damaged"));
    // Slurm is asked, and what was written today stays.
    let dead = centre.spool.join("running/4294.0.0");
    fs::create_dir(&dead).unwrap();
    let swept = centre.ask(&["add", centre.spool.to_str().unwrap(), "--sweep", "1d"]);
    assert!(swept.ends_with("\n0 swept\n") && dead.exists(), "{swept}");
    let figures = centre.ask(&["--metrics"]);
    let partition = left[0]["partition"].as_str().unwrap();
    for (name, value) in [("bound", if shared > 0 { 2 } else { 5 }), ("unbound", if shared > 0 { 3 } else { 0 })] {
        let line =
            format!("plimsoll_fleet_binding_jobs_total{{partition=\"{partition}\",binding=\"{name}\"}} {value}\n");
        assert!(figures.contains(&line), "{line}{figures}");
    }
    assert!(left.iter().all(|summary| summary["clocks_apart"].is_null()), "both nodes are this machine: {left:#?}");
    let chatty: Value = serde_json::from_str(&centre.ask(&["--json", "--program", "chatty"])).unwrap();
    assert_eq!(
        (&chatty["rows"][0]["jobs"], chatty["versions"].as_array().unwrap().len()),
        (&2.into(), 1),
        "{chatty:#}"
    );
    let sums: Value = serde_json::from_str(&centre.ask(&["--json", "--per", "program"])).unwrap();
    // Tables alone bound a gain; only a timeline tells how much of it is certain.
    let best = |name: &str| {
        let part = sums["groups"].as_array().unwrap().iter().find(|part| part["name"] == name).unwrap();
        (part["best"][0].as_str().unwrap(), part["best"][1][1].as_f64().unwrap())
    };
    assert!(matches!(best("chatty"), ("offload", 0.05..)), "{sums:#}");
    assert_eq!(best("calm").1, 0.0, "it sends nothing to another host: {sums:#}");
    assert_eq!(sums["programs"][0]["name"], "chatty", "it has most to gain");
}

#[test]
fn the_example_needs_no_store_and_only_one_form_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let ask = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        let output = command.arg("fleet").args(words).current_dir(folder.path()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    let (_, page, _) = ask(&["--example", "--program", "molecules", "--html", "page.html", "--csv=rows.csv"]);
    assert!(
        page.starts_with("An example") && page.contains("step on 2025-08-12") && page.lines().count() < 30,
        "{page}"
    );
    assert!(fs::read_to_string(folder.path().join("page.html")).unwrap().contains("An example"));
    let (_, rows, _) = ask(&["--example", "--program", "molecules", "--csv", "--json=all.json"]);
    assert_eq!(fs::read_to_string(folder.path().join("rows.csv")).unwrap(), rows);
    let all: Value = serde_json::from_str(&fs::read_to_string(folder.path().join("all.json")).unwrap()).unwrap();
    assert_eq!(all["rows"].as_array().unwrap().len(), rows.lines().count() - 1);
    let (_, months, _) = ask(&["--example", "--program", "molecules", "--per", "group", "--csv"]);
    assert!(months.starts_with("group,jobs,core_hours,") && months.lines().count() == 2, "{months}");
    let (_, exported, _) = ask(&["--example", "export", "days"]);
    assert!(exported.contains("jobs exported") && folder.path().join("days/day=2025-12-31/part-0.parquet").exists());
    let (_, figures, _) = ask(&["--example", "--metrics"]);
    let (_, nothing, _) = ask(&["--example", "--metrics=all.prom"]);
    // The two runs have their own moments.
    let totals = |text: &str| text.lines().filter(|line| !line.contains("time_seconds")).map(str::to_owned).collect();
    let (written, printed): (Vec<_>, Vec<_>) =
        (totals(&fs::read_to_string(folder.path().join("all.prom")).unwrap()), totals(&figures));
    assert!(written == printed && nothing.is_empty() && written.len() > 100, "{written:#?}{printed:#?}");
    for (words, said) in [
        (&["--example", "--metrics", "--csv"][..], "cannot be used with"),
        (&["add", "spool", "--sweep", "1h"], "it is not from 24h to"),
        (&["--example", "--csv", "--json"], "only one of --json and --csv"),
        (&["--example", "--program", "nothing"], "the store has no job of it"),
        (&["--example", "--store", "a.db"], "cannot be used with"),
    ] {
        let (is_success, out, err) = ask(words);
        assert!(!is_success && out.is_empty() && err.contains(said), "{words:?}: {out}{err}");
    }
}
