//! What ranks could have of each core while a profile was recorded.

use machine::CoreCapability;

use crate::profile::Profile;

/// By host and core; empty where nothing was sampled. [`Summary`](crate::summary::Summary) has the same.
pub fn of(profile: &Profile) -> Vec<CoreCapability> {
    crate::cores::capability(profile)
}

/// Less than this of a core for ranks is worth telling.
const WHOLE: f64 = 0.95;

/// Cores that differ by more are worth telling.
const ALIKE: f64 = 0.02;

/// Whether one of `cores` has so little for ranks, or so much less than another, that it matters which rank is there.
pub fn matters(cores: &[CoreCapability]) -> bool {
    let most = cores.iter().filter(|core| core.taken.value().is_some()).map(|core| core.range().1);
    let (least, greatest) = most.fold((f64::INFINITY, 0.0), |(least, greatest), of| (of.min(least), of.max(greatest)));
    least < WHOLE || greatest - least > ALIKE
}
