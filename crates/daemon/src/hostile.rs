//! Hostile files of users in places where the daemon reads: the daemon never waits for them, and prints no word of them.

use std::cell::RefCell;
use std::fs::{self, File};
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use machine::bounds::PROFILE_JOB;
use mapping::decision;
use profile::job::Job as Run;
use record::folder::{HOSTS, JOB, RANKS, variable};
use record::image::Image;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::jobs::Job;
use crate::process::Environment;
use crate::watched::Host;
use crate::{Daemon, Decision, Settings};

/// The content of a file that the job's user may not read.
const SECRET: &str = "root's own words";

/// The lines of a daemon's log.
type Log = Rc<RefCell<Vec<String>>>;

fn start(home: &Path, only: Option<Job>) -> (Daemon, Log) {
    let settings = Settings {
        window: Duration::from_secs(1),
        dry_run: true,
        only,
        record: None,
        metrics: None,
        deciding: decision::Settings::default(),
    };
    let log = Log::default();
    let told = log.clone();
    let tell = move |decision: &Decision| told.borrow_mut().push(decision.to_string());
    (Daemon::start(&home.join("state"), settings, tell).unwrap(), log)
}

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

#[test]
fn what_is_no_file_of_a_job_is_named_once_and_not_quoted() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path().canonicalize().unwrap();
    let (folder, secret) = (home.join("profile"), home.join("secret"));
    for part in [RANKS, HOSTS] {
        fs::create_dir_all(folder.join(part)).unwrap();
    }
    Run { boot: Host::here().boot, pid: std::process::id(), ..Run::default() }.write(&folder).unwrap();
    fs::write(&secret, SECRET).unwrap();
    let path = |name: &str| folder.join(name);
    let mut strange: Vec<PathBuf> = Vec::new();
    for name in ["ranks/a.1.rank", "hosts/a.samples"] {
        fifo(&path(name));
        strange.push(path(name));
    }
    for (name, target) in [
        ("ranks/b.2.rank", Path::new("/dev/zero")),
        ("ranks/c.3.rank", secret.as_path()),
        ("hosts/b.samples", Path::new("/dev/zero")),
        ("hosts/c.samples", secret.as_path()),
    ] {
        symlink(target, path(name)).unwrap();
        strange.push(path(name));
    }
    let of_another = path("ranks/d.4.rank");
    match rustix::process::geteuid().is_root() {
        true => {
            Image::default().write(&of_another).unwrap();
            chown(&of_another, Some(65534), None).unwrap();
            strange.push(of_another);
        }
        false => skip::part("root alone can give a file away"),
    }
    let (mut daemon, log) = start(&home, Some(Job::named(&folder).unwrap()));
    daemon.turn().unwrap();
    daemon.turn().unwrap();
    for path in &strange {
        let path = path.to_str().unwrap();
        assert_eq!(log.borrow().iter().filter(|line| line.contains(path)).count(), 1, "{path}: {log:?}");
    }
    fs::remove_file(path(JOB)).unwrap();
    symlink(&secret, path(JOB)).unwrap();
    daemon.turn().unwrap();
    assert!(log.borrow().iter().any(|line| line.contains("job.json: it is a link")), "{log:?}");
    let refused = Job::named(&folder).unwrap_err().to_string();
    for name in ["status.json", "decisions.jsonl"] {
        let text = fs::read_to_string(home.join("state").join(name)).unwrap();
        assert!(text.contains("c.samples") && !text.contains(SECRET) && !refused.contains(SECRET), "{text}");
    }
}

#[test]
fn a_job_that_cannot_be_read_is_left_and_noted_once() {
    let endless = |path: &Path| symlink("/dev/zero", path).unwrap();
    let too_long = |path: &Path| File::create(path).unwrap().set_len(PROFILE_JOB.each.bytes().0 + 1).unwrap();
    let no_job = |path: &Path| fs::write(path, SECRET).unwrap();
    let ways: [fn(&Path); 4] = [fifo, endless, too_long, no_job];
    for spoil in ways {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("profile");
        fs::create_dir(&folder).unwrap();
        spoil(&folder.join(JOB));
        let mut child = Command::new("sleep").arg("600").env(variable::FOLDER, &folder).spawn().unwrap();
        // The child has its own environment once it has executed its program.
        while Environment::of(child.id()).and_then(|of| of.get(variable::FOLDER)).is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (mut daemon, log) = start(home.path(), None);
        daemon.find_jobs().unwrap();
        daemon.find_jobs().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let lines: Vec<String> =
            log.borrow().iter().filter(|line| line.contains(folder.to_str().unwrap())).cloned().collect();
        assert!(lines.len() == 1 && lines[0].contains("left: ") && !lines[0].contains(SECRET), "{lines:?}");
    }
}
