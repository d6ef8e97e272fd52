//! Share of each core that ranks could have while a profile was recorded.

use machine::CoreCapability;

use crate::profile::Profile;

/// Capability by host and core; empty where nothing was sampled. [`Summary`](crate::summary::Summary) has the same list.
pub fn of(profile: &Profile) -> Vec<CoreCapability> {
    crate::cores::capability(profile)
}

/// A core with a smaller share for ranks is reported.
const WHOLE: f64 = 0.95;

/// A greater difference between cores is reported.
const ALIKE: f64 = 0.02;

/// Whether a core has so little for ranks, or so much less than another core, that the placement of ranks matters.
pub fn matters(cores: &[CoreCapability]) -> bool {
    let most = cores.iter().filter(|core| core.taken.value().is_some()).map(|core| core.range().1);
    let (least, greatest) = most.fold((f64::INFINITY, 0.0), |(least, greatest), of| (of.min(least), of.max(greatest)));
    least < WHOLE || greatest - least > ALIKE
}
