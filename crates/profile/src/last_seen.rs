//! When ranks that did not end in order were last there. Their own tables do not say: a rank notes moments at its start
//! and at its end.

use std::time::{SystemTime, UNIX_EPOCH};

use record::layout::words;
use record::samples::Samples;

use crate::profile::Profile;

/// The best that is known of each such rank: the last sample of it, else the end of the job, else, while it runs, now. Of one
/// that is gone nothing else is known than what its tables say.
pub fn note(profile: &mut Profile) {
    let unsettled = |profile: &Profile| profile.ranks.iter().any(|rank| rank.header.finalized == 0);
    if !unsettled(profile) {
        return;
    }
    // Files that cannot be read are named where samples are joined.
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
