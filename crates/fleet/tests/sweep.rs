use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::{Path, PathBuf};

use fleet::sweep::{Swept, sweep};
use machine::{Fault, Nanoseconds};
use rounds::random::Random;

/// A folder as the plugin and the ranks make it.
fn step(running: &Path, name: &str) -> PathBuf {
    let folder = running.join(name);
    for below in ["ranks", "hosts"] {
        fs::create_dir_all(folder.join(below)).unwrap();
    }
    fs::write(folder.join("n1.began"), "cpu 1").unwrap();
    fs::write(folder.join("ranks/n1.7.rank"), "tables").unwrap();
    folder
}

fn spool() -> (tempfile::TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let running = home.path().join("running");
    fs::create_dir(&running).unwrap();
    (home, running)
}

/// A moment after all that was written so far and before all that is written later, by the file system's clock.
fn moment(home: &Path) -> Nanoseconds {
    let written = || {
        let probe = home.join("probe");
        fs::write(&probe, "").unwrap();
        let found = fs::metadata(&probe).unwrap();
        found.ctime() as u64 * 1_000_000_000 + found.ctime_nsec() as u64
    };
    let now = written();
    while written() == now {
        std::thread::yield_now();
    }
    Nanoseconds(now)
}

fn left(running: &Path) -> BTreeSet<String> {
    fs::read_dir(running).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// All that is below a folder, with its content.
fn content(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.symlink_metadata().unwrap().is_dir() {
            true => found.extend(content(&path)),
            false => _ = found.insert(path.clone(), fs::read(&path).unwrap_or_default()),
        }
    }
    found
}

/// Steps, some of jobs that Slurm knows, some written to lately, some in which users put other things: a step of a known job, or
/// that was written to, is as it was.
#[test]
fn no_step_that_may_run_loses_anything() {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse::<u64>().ok()).unwrap_or(64);
    // A case has a dozen steps, and waits for the clock of files.
    for seed in 0..cases.div_ceil(4) {
        let mut random = Random::stream(11, seed);
        let (home, running) = spool();
        let other = home.path().join("other");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("file"), "as it was").unwrap();
        let mut jobs = BTreeSet::new();
        let mut folders = Vec::new();
        for number in 0..1 + random.below(12) {
            let job = random.below(6) as u64;
            let end = ["0", "1", "ended"][random.below(3)];
            let name = format!("{job}.{number}.{end}");
            let folder = step(&running, &name);
            match random.below(5) {
                0 => symlink(&other, folder.join("ranks/link")).unwrap(),
                1 => {
                    fs::remove_dir(folder.join("hosts")).unwrap();
                    symlink(&other, folder.join("hosts")).unwrap();
                }
                2 => fs::create_dir_all(folder.join("ranks/deep/deeper")).unwrap(),
                _ => {}
            }
            if random.below(3) == 0 {
                jobs.insert(job);
            }
            folders.push((job, name, folder));
        }
        let quiet = moment(home.path());
        let mut written = BTreeSet::new();
        for (_, name, folder) in &folders {
            match random.below(4) {
                0 => fs::write(folder.join("ranks/n1.7.rank"), "more").unwrap(),
                1 => fs::write(folder.join("ranks/n1.8.rank"), "new").unwrap(),
                _ => continue,
            }
            written.insert(name.clone());
        }
        let before: Vec<_> = folders.iter().map(|(_, _, folder)| content(folder)).collect();
        let swept = sweep(home.path(), quiet, || Ok(jobs.clone())).unwrap();
        let after = left(&running);
        let mut removed = 0;
        for ((job, name, folder), before) in folders.iter().zip(before) {
            let is_odd = folder.join("ranks/deep").exists();
            if jobs.contains(job) || written.contains(name) || is_odd {
                assert!(after.contains(name) && content(folder) == before, "seed {seed}: {name}");
            } else {
                assert!(!after.contains(name), "seed {seed}: {name} was left: {swept:?}");
                removed += 1;
            }
        }
        assert_eq!(swept.removed, removed, "seed {seed}");
        assert_eq!(fs::read_to_string(other.join("file")).unwrap(), "as it was", "seed {seed}");
    }
}

#[test]
fn what_is_no_steps_folder_is_left() {
    let (home, running) = spool();
    for name in ["1", "1.2", "a.0.0", "1.0.0.0", "1.0.x", "-1.0.0", "99999999999.0.0"] {
        step(&running, name);
    }
    let other = step(home.path(), "other");
    symlink(&other, running.join("2.0.0")).unwrap();
    fs::write(running.join("3.0.0"), "a file").unwrap();
    let names = left(&running);
    let nothing = |swept: Swept| assert_eq!(swept, Swept::default());
    nothing(sweep(home.path(), Nanoseconds(u64::MAX), || Ok(BTreeSet::new())).unwrap());
    assert_eq!(left(&running), names);
    assert!(other.join("ranks/n1.7.rank").exists());
    nothing(sweep(&other, Nanoseconds(u64::MAX), || panic!("there is nothing to ask for")).unwrap());
}

#[test]
fn without_slurms_word_nothing_is_removed() {
    let (home, running) = spool();
    step(&running, "4.0.0");
    let silent = || Err(Fault::new("squeue", "it does not answer", "see with `sinfo` whether Slurm is up"));
    assert!(sweep(home.path(), Nanoseconds(u64::MAX), silent).unwrap_err().to_string().contains("does not answer"));
    assert!(running.join("4.0.0/ranks/n1.7.rank").exists());
    assert_eq!(sweep(home.path(), Nanoseconds(u64::MAX), || Ok([5].into())).unwrap().removed, 1);
    assert!(left(&running).is_empty());
}

/// Who may rename another's folder into their own cannot have root empty it.
#[test]
fn another_users_folder_in_a_steps_is_left_and_told() {
    if !rustix::process::geteuid().is_root() {
        skip::test("folders of two users need root");
        return;
    }
    let (home, running) = spool();
    let folder = step(&running, "6.0.0");
    chown(folder.join("ranks"), Some(65_534), None).unwrap();
    let swept = sweep(home.path(), Nanoseconds(u64::MAX), || Ok(BTreeSet::new())).unwrap();
    assert_eq!((swept.removed, &swept.left[0].1[..]), (0, "it has another user's folder"));
    assert!(folder.join("ranks/n1.7.rank").exists() && folder.join("n1.began").exists());
}
