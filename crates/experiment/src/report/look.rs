//! Looks of contenders: colour and shape stand for the stack, fill and dash for the placement, so that no two differ by
//! colour alone.

use std::collections::{BTreeMap, BTreeSet};

use chart::{Look, Shape};
use rounds::point::{Contender, Stack};

use crate::findings::Findings;

/// One look for each contender, the same on every chart of a report.
pub struct Looks(BTreeMap<Contender, Look>);

impl Looks {
    pub fn of(findings: &Findings) -> Self {
        let mut contenders: BTreeSet<Contender> = findings.points.iter().map(|p| p.spec.contender()).collect();
        for range in &findings.verdict.ranges {
            contenders.extend(range.choice.contenders().iter().cloned());
            contenders.extend(range.rejected.iter().map(|r| r.contender.clone()));
            contenders.extend(range.references.iter().map(|r| r.contender.clone()));
        }
        let mut placements = BTreeMap::<Stack, u8>::new();
        let looks = contenders.into_iter().map(|contender| {
            let nth = placements.entry(contender.stack).or_default();
            let look = look(contender.stack, *nth);
            *nth += 1;
            (contender, look)
        });
        Looks(looks.collect())
    }

    pub fn get(&self, contender: &Contender) -> Look {
        self.0.get(contender).copied().unwrap_or_else(|| look(contender.stack, 0))
    }
}

fn look(stack: Stack, nth: u8) -> Look {
    let (colour, shape) = match stack {
        Stack::EngineShm => (1, Shape::Circle),
        Stack::EngineUdp => (2, Shape::Square),
        Stack::EngineAfxdp => (6, Shape::Right),
        Stack::EngineXdp => (0, Shape::Left),
        Stack::Tcp => (3, Shape::Up),
        Stack::Udp => (4, Shape::Down),
        Stack::OpenMpi => (5, Shape::Diamond),
    };
    Look { colour, shape, line: nth }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::{CoreId, Site};

    #[test]
    fn no_two_stacks_share_a_shape_and_no_two_placements_a_line() {
        let shapes: BTreeSet<_> = Stack::ALL.into_iter().map(|s| look(s, 0).shape as u8).collect();
        assert_eq!(shapes.len(), Stack::ALL.len());
        let at = |placement| Contender { stack: Stack::EngineShm, placement };
        let looks = Looks(BTreeMap::from([
            (at(Site::App), look(Stack::EngineShm, 0)),
            (at(Site::Core(CoreId(1))), look(Stack::EngineShm, 1)),
        ]));
        assert_ne!(looks.get(&at(Site::App)).line, looks.get(&at(Site::Core(CoreId(1)))).line);
    }
}
