//! A small disk, for tests that fill one.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use crate::{again, is_again, passed, test, test_name, tool};

/// Environment variable that names the folder of the disk, in a process that has one.
const DISK: &str = "PLIMSOLL_TEST_DISK";

/// Environment variable with the disk's size, as mount(8) takes it.
const SIZE: &str = "PLIMSOLL_TEST_DISK_SIZE";

/// Command that mounts the disk, which goes with the process's mount namespace.
const SCRIPT: &str = r#"mount -t tmpfs -o "size=$PLIMSOLL_TEST_DISK_SIZE,mode=700" none "$PLIMSOLL_TEST_DISK" || exit 77
exec "$@""#;

/// A small file system that a test has for itself.
pub struct Disk(PathBuf);

impl Disk {
    /// A disk of 16 KiB.
    pub fn small() -> Option<Disk> {
        Disk::of("16k")
    }

    /// Runs the calling test once more in a process that has a disk of `size`, as mount(8) takes it, fails with it, and returns
    /// `None`; in that process, returns the disk.
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

    /// Fills the disk until `left` bytes are free, in whole pages.
    pub fn fill(&self, left: u64) {
        let mut filler = File::create(self.0.join("filler")).expect("an empty file takes no space");
        while filler.write_all(&[0; 4096]).is_ok() {}
        let length = filler.metadata().expect("it is open").len();
        filler.set_len(length - left).expect("a file that shrinks takes no space");
    }

    /// Frees the space that [`Disk::fill`] took.
    pub fn free(&self) {
        let _ = fs::remove_file(self.0.join("filler"));
    }
}
