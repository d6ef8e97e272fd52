//! Offcodes that nobody uses any more (`OBSOLETE_TIME`) are stopped, those that require others first, and none that one
//! which stays requires.

use std::time::{Duration, Instant};

use machine::Result;

use crate::application::Runtime;
use crate::live::OffcodeId;

impl Runtime {
    pub(crate) fn remove_obsolete(&mut self) -> Result<()> {
        let running: Vec<OffcodeId> = self.running().collect();
        let unused = running.iter().map(|&id| self.unused_for(id)).collect::<Result<Vec<_>>>()?;
        if unused.iter().all(Option::is_none) {
            return Ok(());
        }
        let place = |peer: OffcodeId| running.iter().position(|&id| id == peer);
        let peers = |&id: &OffcodeId| {
            let peers = self.live(id).map(|live| live.peers.clone()).unwrap_or_default();
            peers.into_iter().flatten().filter_map(place).collect()
        };
        let requires: Vec<Vec<usize>> = running.iter().map(peers).collect();
        let is_unused: Vec<bool> = unused.iter().map(Option::is_some).collect();
        for at in obsolete(&is_unused, &requires) {
            let limit = unused[at].unwrap_or_default().as_millis();
            (self.log)(&format!("{}: obsolete, unused for {limit} ms", self.live(running[at])?.name));
            self.stop(running[at])?;
        }
        Ok(())
    }

    /// The offcode's limit, where it has not been used for that long.
    fn unused_for(&mut self, id: OffcodeId) -> Result<Option<Duration>> {
        let live = self.live(id)?;
        let Some(limit) = live.obsolete_after() else { return Ok(None) };
        let (seated, before) = (live.seated, live.before);
        let used = self.sites[seated.site].evidence(seated.slot)?.uses + before;
        let Some(live) = self.live_mut(id) else { return Ok(None) };
        if used != live.used.0 {
            live.used = (used, Instant::now());
        }
        Ok(Some(limit).filter(|&limit| live.used.1.elapsed() > limit))
    }
}

/// Offcodes that can go: unused, and required only by others that go. A requirer comes before what it requires, unless
/// they require each other.
fn obsolete(unused: &[bool], requires: &[Vec<usize>]) -> Vec<usize> {
    let mut goes = unused.to_vec();
    let mut kept: Vec<usize> = (0..goes.len()).filter(|&n| !goes[n]).collect();
    while let Some(of) = kept.pop() {
        for &peer in &requires[of] {
            if std::mem::take(&mut goes[peer]) {
                kept.push(peer);
            }
        }
    }
    let mut left: Vec<usize> = (0..goes.len()).filter(|&n| goes[n]).collect();
    let mut order = Vec::new();
    while !left.is_empty() {
        let is_free = |one: &usize| left.iter().all(|other| other == one || !requires[*other].contains(one));
        let next = left.iter().position(is_free).unwrap_or(left.len() - 1);
        order.push(left.remove(next));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::obsolete;

    #[test]
    fn what_one_that_stays_requires_stays_and_a_group_goes_requirers_first() {
        // 0 requires 1, which requires 2.
        let chain = [vec![1], vec![2], vec![]];
        assert_eq!(obsolete(&[false, true, true], &chain), [0; 0]);
        assert_eq!(obsolete(&[true, false, true], &chain), [0]);
        assert_eq!(obsolete(&[true, true, false], &chain), [0, 1]);
        assert_eq!(obsolete(&[true; 3], &chain), [0, 1, 2]);
        assert_eq!(obsolete(&[true; 3], &[vec![], vec![0], vec![1]]), [2, 1, 0]);
        // Of two that require the same one stays, and with it what they require.
        assert_eq!(obsolete(&[true, false, true], &[vec![2], vec![2], vec![]]), [0]);
        // Two that require each other go together, and so does who requires them.
        let ring = [vec![1], vec![0], vec![0]];
        assert_eq!(obsolete(&[true, true, false], &ring), [0; 0]);
        assert_eq!(obsolete(&[true; 3], &ring)[0], 2);
        assert_eq!(obsolete(&[true; 3], &ring).len(), 3);
    }
}
