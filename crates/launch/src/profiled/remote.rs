//! The sampler of a host without `plimsoll profile`: the host's first rank starts it.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use machine::{Nanoseconds, Result};
use profile::job::Job;
use record::folder;

use super::sampler::{Account, Sampler, Settings};

/// Patience without a rank after the first: more may be about to start.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Patience before the first rank.
const FIRST_PATIENCE: Duration = Duration::from_secs(60);

/// Leaves the session and the descriptors of the rank that started this process, by executing `anew` in its place. Returns
/// where that fails; the session and the descriptors then last as long as the sampler.
pub fn leave(anew: &mut Command) {
    let _ = rustix::process::setsid();
    if linux::inherited::end_at_exec().is_ok() {
        let _ = anew.exec();
    }
}

/// Samples this host for the profile at `profile` until its ranks are gone.
///
/// For a process of one thread, which a rank started: the process leaves the cores of that rank.
pub fn sample(profile: &Path) -> Result<Account> {
    linux::affinity::unbind()?;
    let job = Job::read(profile)?;
    let interval = job.interval.map(Nanoseconds);
    let power = job.power.iter().map(|source| source.parse()).collect::<Result<_>>()?;
    let sampler = Sampler::open(&Settings { folder: profile.to_owned(), interval, power })?;
    let mut alone_since = Instant::now();
    let account = sampler.run(|patience, watched| {
        std::thread::sleep(patience);
        if watched.has_seen() && !watched.is_over() {
            alone_since = Instant::now();
        }
        let limit = if watched.has_seen() { TIMEOUT } else { FIRST_PATIENCE };
        alone_since.elapsed() > limit
    });
    // The first rank of a later job starts another sampler.
    let _ = std::fs::remove_file(folder::sampled_mark(profile, &machine::here::boot().unwrap_or_default()));
    account
}
