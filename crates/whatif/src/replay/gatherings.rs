//! Collective operations: which members wait for which.

use timeline::Collective;

use super::messages::Begun;
use super::{NO_LANE, Replay, UNKNOWN};
use crate::graph::Gathering;

impl Replay<'_, '_> {
    pub(super) fn gather(&mut self, member: u32, begun: Begun) {
        let number = self.graph.gathering(member);
        let gathering = self.graph.gatherings[number as usize];
        let at = number as usize;
        self.entered[member as usize] = begun;
        self.came[at] += 1;
        let latest = self.latest_member[at];
        if latest == u32::MAX || self.entered[latest as usize].at < begun.at {
            self.latest_member[at] = member;
        }
        let all = self.came[at] == gathering.members;
        let wakes = match gathering.who {
            Collective::All | Collective::ToRoot | Collective::Neighbours => all,
            Collective::FromRoot => member == gathering.first + gathering.root,
            Collective::Prefix => true,
        };
        if wakes {
            let lane = std::mem::replace(&mut self.waiting[at], NO_LANE);
            self.wake_all(lane);
        }
    }

    /// When a member may leave, and the lower bound of that.
    pub(super) fn leave(&mut self, place: usize, member: u32) -> Option<(i64, i64)> {
        let number = self.graph.gathering(member);
        let gathering = self.graph.gatherings[number as usize];
        let Some(last) = self.awaited(&gathering, number, member) else {
            self.cursors[place].next = std::mem::replace(&mut self.waiting[number as usize], place as u32);
            return None;
        };
        let Begun { at: begun, entered } = self.entered[last as usize];
        let price = self.conditions.prices.kinds[gathering.kind as usize];
        let root = gathering.first + gathering.root;
        let hands_over = match gathering.who {
            Collective::ToRoot => member != root,
            Collective::FromRoot => member == root,
            _ => false,
        };
        Some((begun + if hands_over { price.send } else { price.trip }, entered))
    }

    /// The member whose entry decides when `member` leaves; `None`: some member has not come.
    fn awaited(&self, gathering: &Gathering, number: u32, member: u32) -> Option<u32> {
        let root = gathering.first + gathering.root;
        let came = |of: u32| self.entered[of as usize].at != UNKNOWN;
        match gathering.who {
            Collective::All | Collective::Neighbours => {
                (self.came[number as usize] == gathering.members).then_some(self.latest_member[number as usize])
            }
            Collective::FromRoot => came(root).then_some(root),
            Collective::ToRoot if member != root => Some(member),
            Collective::ToRoot => {
                (self.came[number as usize] == gathering.members).then_some(self.latest_member[number as usize])
            }
            Collective::Prefix => {
                let before = gathering.first..=member;
                before.clone().all(came).then(|| before.max_by_key(|of| self.entered[*of as usize].at))?
            }
        }
    }
}
