//! Small layouts from a seed: ties, impossible places and capacities that sometimes bind, sometimes clash.

use machine::{Bytes, CoreId, Site};
use placement::layout::{Candidate, Crossing, Layout, Load, Place, SiteIndex, Tie, Unit, UnitIndex};

pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x9e37_79b9_7f4a_7c15)
    }

    pub fn roll(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n
    }

    pub fn share(&mut self) -> f64 {
        self.roll(1000) as f64 / 1000.0
    }
}

/// `tightness` 0: capacities never bind; 10: they often leave nothing.
pub fn small(seed: u64, units: usize, sites: usize, tightness: usize) -> Layout {
    let mut dice = Dice::new(seed);
    let mut layout = Layout::default();
    for site in 0..sites {
        let name = match site {
            0 => Site::App,
            1 => Site::Xdp("eth0".into()),
            n => Site::Core(CoreId(n as u32)),
        };
        let spare = 1.5 - 0.1 * tightness as f64;
        let fair = units as f64 / sites as f64;
        layout.sites.push(Candidate {
            site: name,
            capacity: if tightness == 0 {
                Load(f64::INFINITY)
            } else {
                Load(fair * 0.5 * (spare + 0.5 * dice.share()))
            },
            memory: if tightness < 3 { Bytes(u64::MAX) } else { Bytes((fair * 50.0 * (spare + 0.5)) as u64) },
            slots: if dice.roll(12) < tightness { 1 + dice.roll(units + 1) } else { usize::MAX },
            price: [1.0, 1.0, 0.0, 0.3][dice.roll(4)],
            opening: [0.0, 0.2, 1.0, 2.0][dice.roll(4)] * dice.share(),
        });
    }
    for unit in 0..units {
        let place = |site: usize| match dice.roll(7) {
            0 => Place::Impossible(format!("no body for site {site}")),
            _ => Place::Possible(Load(0.1 + 0.8 * dice.share())),
        };
        let places = (0..sites).map(place).collect();
        layout.units.push(Unit {
            name: format!("u{unit}"),
            priority: [100, 100, 0, 50, 1000][dice.roll(5)],
            memory: Bytes(dice.roll(100) as u64),
            places,
        });
    }
    for a in 0..sites {
        let row = (0..sites).map(|b| if a == b { 10.0 } else { 50.0 + 500.0 * dice.share() });
        layout.crossing_ns.push(row.collect());
    }
    if units > 1 {
        for _ in 0..dice.roll(2 * units) {
            let (a, b) = two(&mut dice, units);
            layout.channels.push(Crossing { from: a, to: b, rate: 3e6 * dice.share() });
        }
        for _ in 0..dice.roll(units) {
            let (a, b) = two(&mut dice, units);
            layout.constraints.push(match dice.roll(5) {
                0 | 1 => Tie::Pull(a, b),
                2 | 3 => Tie::Gang(a, b),
                _ => Tie::Pin(a, SiteIndex(dice.roll(sites))),
            });
        }
    }
    layout
}

fn two(dice: &mut Dice, units: usize) -> (UnitIndex, UnitIndex) {
    let a = dice.roll(units);
    let b = (a + 1 + dice.roll(units - 1)) % units;
    (UnitIndex(a), UnitIndex(b))
}
