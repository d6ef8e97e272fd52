//! The last time at which ranks that did not end in order are known to have run. Their own tables lack it: a rank records
//! the time at its start and at its end.

use std::time::{SystemTime, UNIX_EPOCH};

use record::layout::words;
use record::samples::Samples;

use crate::profile::Profile;

/// Sets `seen` of each such rank: the time of its last sample, else the job's end, else, while the job runs, the current
/// time. A rank that is gone and was not sampled has its start.
pub fn set_last_seen(profile: &mut Profile) {
    let unsettled = |profile: &Profile| profile.ranks.iter().any(|rank| rank.header.finalized == 0);
    if !unsettled(profile) {
        return;
    }
    // Unreadable files are noted where samples are joined.
    let hosts: Vec<Samples> =
        Samples::files(&profile.folder).iter().filter_map(|path| Samples::open(path).ok()).collect();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_nanos() as u64);
    let ended = profile.job.ended.or(now);
    for rank in profile.ranks.iter_mut().filter(|rank| rank.header.finalized == 0 && rank.header.ended == 0) {
        let boot = words(&rank.header.boot);
        let sampled = hosts.iter().filter(|host| host.head.boot == boot).filter_map(|host| {
            let samples = host.ranks.get(&rank.header.pid)?;
            let threads = samples.threads.values().filter_map(|thread| Some(thread.work.last()?.0));
            threads.chain(samples.load.last().map(|(time, _)| *time)).max()
        });
        let started = rank.header.started;
        let since = match sampled.max() {
            Some(monotonic) => monotonic.checked_sub(started.monotonic),
            None if rank.gone => None,
            None => ended.and_then(|realtime| realtime.checked_sub(started.realtime)),
        };
        let ticks = since.map_or(0.0, |nanoseconds| nanoseconds as f64 / 1e9 / rank.tick);
        rank.seen = started.ticks.saturating_add(ticks as u64);
    }
}
