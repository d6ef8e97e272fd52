//! A process that outlives a killed owner just long enough to end what the owner left running in its lab.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use machine::{Fault, Result};

use super::namespace::Namespace;

/// Waits for the end of its standard input, which comes when the owner ends in whatever way, then kills whatever lives
/// in the two network namespaces that it was given. A pipe rather than a parent-death signal: that signal follows the
/// *thread* that started the child, and an owner's thread may end long before its lab.
const SCRIPT: &str = r#"
read -r _
tries=0
while [ $tries -lt 100 ]; do
    residents=$(ls -l /proc/[0-9]*/ns/net 2>/dev/null |
        sed -n -e "s|.* /proc/\([0-9]*\)/ns/net -> net:\[$1\]\$|\1|p" -e "s|.* /proc/\([0-9]*\)/ns/net -> net:\[$2\]\$|\1|p")
    [ -n "$residents" ] || exit 0
    kill -9 $residents 2>/dev/null
    tries=$((tries + 1))
    sleep 0.05
done
exit 1
"#;

#[derive(Debug)]
pub(super) struct Warden(Child);

impl Warden {
    pub(super) fn over(hosts: &[Namespace; 2]) -> Result<Warden> {
        Command::new("sh")
            .args(["-c", SCRIPT, "plimsoll-lab-warden"])
            .args(hosts.iter().map(|host| host.inode().to_string()))
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A process group of its own: Ctrl-C at the owner's terminal must not end the warden first.
            .process_group(0)
            .spawn()
            .map(Warden)
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => Fault::new("lab: sh", "not installed", "install a POSIX shell"),
                _ => Fault::because("lab: warden", error, "check the limit on processes (ulimit -u)"),
            })
    }

    #[cfg(test)]
    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Warden {
    /// Lets it look once more and end.
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
