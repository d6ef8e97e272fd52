//! Starting the sampler of this host's cores, where no `plimsoll profile` runs that does it.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Command, Stdio};

use record::folder::{self, variable};

use crate::complaint::Complaint;

/// Goes on by itself once the shell, which is waited for, has ended: it is nobody's child here.
const SCRIPT: &str = r#""$0" profile-sampler "$1" &"#;

/// Of the ranks of a host whose present start is `boot`, the one that makes the mark starts the sampler. Others, and all
/// where the cores are left out, do nothing.
pub fn start(profile: &Path, boot: &str) {
    let Some(plimsoll) = std::env::var_os(variable::SAMPLER).filter(|plimsoll| !plimsoll.is_empty()) else { return };
    let mark = folder::sampled_mark(profile, boot);
    if OpenOptions::new().write(true).create_new(true).open(&mark).is_err() {
        return;
    }
    let shell = Command::new("/bin/sh")
        .args(["-c", SCRIPT])
        .args([plimsoll.as_os_str(), profile.as_os_str()])
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match shell {
        // The program may have taken the news of its end.
        Ok(mut shell) => _ = shell.wait(),
        Err(error) => {
            let _ = std::fs::remove_file(&mark);
            let cause = format!("what the cores of this host do is not sampled: /bin/sh: {error}");
            Complaint::new(cause, "raise the limit on processes (ulimit -u)").say();
        }
    }
}
