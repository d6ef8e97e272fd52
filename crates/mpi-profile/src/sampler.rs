//! The start of the sampler of this host's cores, on hosts where no `plimsoll profile` runs that starts it.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Command, Stdio};

use record::folder::{self, variable};

use crate::complaint::Complaint;

/// The sampler outlives the shell, which is waited for: the sampler is no child of the rank's process.
const SCRIPT: &str = r#""$0" profile-sampler "$1" &"#;

/// The rank that creates the mark of this host's present boot starts the sampler. Other ranks do nothing, as all do where
/// [`variable::SAMPLER`] is absent.
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
        // The program may have waited for the shell already: the result is ignored.
        Ok(mut shell) => _ = shell.wait(),
        Err(error) => {
            let _ = std::fs::remove_file(&mark);
            let cause = format!("what the cores of this host do is not sampled: /bin/sh: {error}");
            Complaint::new(cause, "raise the limit on processes (ulimit -u)").say();
        }
    }
}
