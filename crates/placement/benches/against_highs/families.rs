//! Seeded layouts of a few shapes. Loads are a few percent of a core, crossings 30 ns to 5 us, as on real hosts.

use machine::{Bytes, CoreId, Site};
use placement::layout::{Candidate, Crossing, Layout, Load, Place, Tie, Unit, UnitIndex};

pub const FAMILIES: [&str; 9] =
    ["loose", "tight", "very-tight", "no-links", "link-heavy", "pull-groups", "gang", "chains", "polling"];

#[derive(Clone, Copy)]
pub struct Size {
    pub units: usize,
    pub sites: usize,
}

struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n
    }
    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

pub fn family(name: &str, size: Size, seed: u64) -> Layout {
    let mut dice = Dice(seed.wrapping_mul(0x1234_5678_9abc_def1) ^ name.len() as u64);
    let Size { units, sites } = size;
    let mut layout = Layout::default();
    // Mean load of a unit at its sites, and how full the sites become.
    let fill = match name {
        "loose" | "chains" | "polling" => 0.3,
        "very-tight" => 0.97,
        "pull-groups" => 0.85,
        _ => 0.92,
    };
    let fair = units as f64 / sites as f64;
    for site in 0..sites {
        let kind = match site {
            0 => Site::App,
            1 => Site::Xdp("eth0".into()),
            2 => Site::Agent("dpu".into()),
            n => Site::Core(CoreId(n as u32)),
        };
        // A core of its own polls: it burns, whatever it is given.
        let (price, opening) = if name == "polling" && site > 2 { (0.0, 1.0) } else { (1.0, 0.0) };
        let memory = Bytes((fair * 64e6 * dice.between(1.1, 1.6)) as u64);
        layout.sites.push(Candidate {
            site: kind,
            capacity: Load(0.0),
            memory,
            slots: (2.0 * fair) as usize + 2,
            price,
            opening,
        });
    }
    let mut least = 0.0;
    for unit in 0..units {
        let base = dice.between(0.01, 0.08);
        let loads: Vec<f64> = (0..sites).map(|_| base * dice.between(0.7, 1.5)).collect();
        least += base * 1.1;
        let place = |load: f64, dice: &mut Dice| match dice.below(10) {
            0 => Place::Impossible("its manifest names no body for it".into()),
            _ => Place::Possible(Load(load)),
        };
        let mut places: Vec<Place> = loads.iter().map(|&load| place(load, &mut dice)).collect();
        if name == "pull-groups" {
            // Pulled units would seldom have a site in common.
            places = loads.iter().map(|&load| Place::Possible(Load(load))).collect();
        }
        layout.units.push(Unit {
            name: format!("u{unit}"),
            priority: [100, 100, 100, 200, 50][dice.below(5)],
            memory: Bytes((64e6 * dice.between(0.2, 1.8)) as u64),
            places,
        });
    }
    for site in 0..sites {
        layout.sites[site].capacity = Load(least / fill / sites as f64 * dice.between(0.85, 1.15));
    }
    for a in 0..sites {
        let row = (0..sites)
            .map(|b| if a == b { 5.0 } else { dice.between(30.0, 300.0) * if a < 3 || b < 3 { 4.0 } else { 1.0 } });
        layout.crossing_ns.push(row.collect());
    }
    let channels = match name {
        "no-links" => 0,
        "link-heavy" => units * 5,
        "chains" => units - 1,
        _ => units * 3 / 2,
    };
    for channel in 0..channels {
        let (from, to) = match name {
            "chains" => (channel, channel + 1),
            _ => {
                let a = dice.below(units);
                (a, (a + 1 + dice.below(units - 1)) % units)
            }
        };
        layout.channels.push(Crossing { from: UnitIndex(from), to: UnitIndex(to), rate: dice.between(1e3, 2e5) });
    }
    let ties = match name {
        "pull-groups" | "gang" => units / 4,
        _ => 0,
    };
    for _ in 0..ties {
        let a = dice.below(units);
        let b = (a + 1 + dice.below(units - 1)) % units;
        let tie = if name == "gang" { Tie::Gang } else { Tie::Pull };
        layout.constraints.push(tie(UnitIndex(a), UnitIndex(b)));
    }
    layout
}
