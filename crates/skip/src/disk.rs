//! A small disk, for tests that fill one.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use crate::{again, is_again, passed, test, test_name, tool};

/// Set in a process that has a disk: where.
const DISK: &str = "PLIMSOLL_TEST_DISK";

/// Set there too: its size, as mount(8) takes it.
const SIZE: &str = "PLIMSOLL_TEST_DISK_SIZE";

/// The disk goes with the process's mount namespace.
const SCRIPT: &str = r#"mount -t tmpfs -o "size=$PLIMSOLL_TEST_DISK_SIZE,mode=700" none "$PLIMSOLL_TEST_DISK" || exit 77
exec "$@""#;

/// A small file system that a test has for itself.
pub struct Disk(PathBuf);

impl Disk {
    /// One of 16 KiB.
    pub fn small() -> Option<Disk> {
        Disk::of("16k")
    }

    /// Runs the test that asks once more in a process that has a disk of so many bytes, as mount(8) takes them, fails with it,
    /// and says `None`; there it says which.
    pub fn of(size: &str) -> Option<Disk> {
        if is_again() {
            return env::var_os(DISK).map(|folder| Disk(folder.into()));
        }
        let unshare = tool("unshare")?;
        let user: &[&str] = if rustix::process::geteuid().is_root() { &[] } else { &["--map-root-user"] };
        let name = format!("plimsoll-disk-{}-{}", process::id(), test_name().replace("::", "-"));
        let folder = env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("tests have a place for files");
        let mut command = Command::new(unshare);
        command.args(user).args(["--mount", "sh", "-c", SCRIPT, "sh"]).env(DISK, &folder).env(SIZE, size);
        command.arg(env::current_exe().expect("a process has a program"));
        let output = again(command);
        let _ = fs::remove_dir(&folder);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.code() == Some(77) || said.contains("unshare failed") {
            test(format_args!("no mount namespace may be made here: {said}"));
        } else {
            passed(output);
        }
        None
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Takes all of its space but so many bytes, of whole pages.
    pub fn fill(&self, left: u64) {
        let mut filler = File::create(self.0.join("filler")).expect("an empty file takes no space");
        while filler.write_all(&[0; 4096]).is_ok() {}
        let length = filler.metadata().expect("it is open").len();
        filler.set_len(length - left).expect("a file that shrinks takes no space");
    }

    /// Gives its space back.
    pub fn free(&self) {
        let _ = fs::remove_file(self.0.join("filler"));
    }
}
