use machine::Probe;
use rounds::blocks::{Blocks, Plan, conduct};
use rounds::random::Random;

use record::layout::injected;

use super::*;

const SECOND: f64 = 1e9;

/// Two ranks that each send `messages` messages in a second.
fn first(messages: u64) -> Shown {
    let amounts = Amounts { delays: [messages, messages, 0], bytes: 1000 * messages, computing: 0.5 * SECOND };
    Shown {
        elapsed: SECOND,
        given: [(2 * messages, 0.0), (2 * messages, 0.0), (0, 0.0)],
        ranks: vec![amounts.clone(), amounts],
        messages: 2 * messages,
        bytes: 2000 * messages,
        sizes: vec![(Bytes(1000), 2 * messages)],
        marks: perturbed::ASKED,
    }
}

fn everywhere(factors: &[Factor]) -> Vec<Target> {
    factors.iter().map(|factor| Target { factor: *factor, place: Place::Everywhere }).collect()
}

/// A program whose time follows from its delays, with noise.
struct Program {
    design: Design,
    first: Shown,
    share: f64,
    noise: f64,
    machinery: f64,
    random: Random,
    /// The distance of the cores in every third run, which also multiplies its time.
    far: Option<f64>,
    runs: u32,
}

impl Program {
    fn new(factors: &[Factor], messages: u64, share: f64) -> Program {
        let first = first(messages);
        let design = Design::of(&everywhere(factors), &first).unwrap();
        let (noise, machinery, random) = (0.002, 0.0, Random::new(7));
        Program { design, first, share, noise, machinery, random, far: None, runs: 0 }
    }

    fn is_far(&self) -> bool {
        self.far.is_some() && self.runs % 3 == 1
    }

    fn measured(&mut self, rounds: u32) -> Findings {
        let (design, first) = (self.design.clone(), self.first.clone());
        let plan = Plan { groups: vec![design.arms.len()], rounds, seed: 3 };
        let (all, _) = conduct(self, &plan, |_, all| design.is_open(all));
        Findings::of(&design, &first, &all)
    }
}

impl Blocks for Program {
    type Block = Shown;

    fn block(&mut self, arm: usize, _: u32) -> Result<Shown> {
        let mut shown = self.first.clone();
        let what = self.design.arms[arm].what;
        let delayed =
            |kind: usize, delay: f64, shown: &mut Shown| shown.given[kind].1 = shown.given[kind].0 as f64 * delay;
        if let Some(what) = what {
            // A spin takes a little longer than requested.
            delayed(injected::SEND, what.at_send(1000).map_or(0.0, |delay| 1.1 * delay), &mut shown);
            delayed(injected::RECEIVE, what.at_receive(1000).unwrap_or(0.0), &mut shown);
            shown.elapsed *= 1.0 + self.machinery;
        }
        shown.elapsed += self.share * shown.given.iter().map(|(_, took)| took).sum::<f64>();
        // Sum of twelve uniform draws: about normal.
        let normal = (0..12).map(|_| self.random.unit()).sum::<f64>() - 6.0;
        shown.elapsed *= 1.0 + self.noise * normal;
        if self.is_far() {
            shown.elapsed *= self.far.unwrap();
        }
        Ok(shown)
    }

    fn probe(&mut self, _: usize) -> Option<Probe> {
        self.runs += 1;
        Some(Probe {
            half_round_trip_ps: if self.runs.div_ceil(2) % 3 == 1 && self.far.is_some() { 200_000 } else { 50_000 },
        })
    }

    fn stopped(&self) -> bool {
        false
    }
}

#[test]
fn doses_take_two_and_four_percent_and_no_delay_is_too_long() {
    let design = Design::of(&everywhere(&[Factor::Send, Factor::Byte, Factor::Compute]), &first(20_000)).unwrap();
    let arms: Vec<_> = design.arms.iter().map(|arm| arm.what).collect();
    assert_eq!((arms.len(), arms[NONE], arms[ZERO].unwrap().send), (8, None, Some(0.0)));
    assert_eq!([arms[2], arms[3]].map(|what| what.unwrap().send), [Some(1000.0), Some(2000.0)]);
    assert_eq!([arms[4], arms[5]].map(|what| what.unwrap().byte), [1.0, 2.0]);
    assert_eq!([arms[6], arms[7]].map(|what| what.unwrap().compute), [0.04, 0.08]);
    let few = Design::of(&everywhere(&[Factor::Send]), &first(50)).unwrap_err();
    assert!(few.cause().contains("50 messages") && few.cause().contains("too few"), "{few}");
    // Every delay of 100 us: 1.5 % of the run.
    let scarce = Design::of(&everywhere(&[Factor::Send]), &first(150)).unwrap();
    assert_eq!(scarce.arms[3].what.unwrap().send, Some(100_000.0));
}

#[test]
fn a_slope_is_found_by_the_recorded_dose_within_its_interval() {
    for share in [0.0, 0.5, 1.0] {
        let findings = Program::new(&[Factor::Send, Factor::Receive], 20_000, share).measured(40);
        assert!(findings.is_null() && findings.notes.is_empty(), "{findings:?}");
        for slope in &findings.slopes {
            let of = slope.interval.unwrap();
            assert!(of.low <= share && share <= of.high && of.high - of.low < 0.4, "{share}: {of:?}");
            assert_eq!(slope.count, 40_000.0);
        }
        // 100 ns less of 40,000 messages, all of which may be on the path.
        let bound = findings.slopes[0].bound(100.0).unwrap();
        assert!(bound >= share * 4e6 && bound < (share + 0.25) * 4e6, "{bound}");
    }
}

#[test]
fn no_more_than_all_of_a_cost_is_gained() {
    let interval = Some(rounds::estimate::Estimate { middle: 0.9, low: -0.5, high: 2.3, samples: 6 });
    let slope = Slope {
        target: everywhere(&[Factor::Send])[0],
        interval,
        count: 1000.0,
        bytes: 0.0,
        doses: vec![0.02, 0.04],
        near_after: None,
        share: None,
    };
    assert_eq!(slope.bound(10.0), Some(10_000.0));
    let possible = slope.possible().unwrap();
    assert_eq!((possible.low, possible.middle, possible.high), (0.0, 0.9, 1.0));
}

#[test]
fn rounds_that_are_needed_follow_from_the_noise_of_those_that_were() {
    let slope = |half: f64, samples| {
        let interval = Some(rounds::estimate::Estimate { middle: 0.4, low: 0.4 - half, high: 0.4 + half, samples });
        Slope {
            target: everywhere(&[Factor::Send])[0],
            interval,
            count: 1000.0,
            bytes: 0.0,
            doses: vec![0.02, 0.04],
            near_after: None,
            share: None,
        }
    };
    // Three times as wide as is wanted: nine times as many.
    assert_eq!((slope(0.75, 12).rounds_needed(), slope(0.25, 12).rounds_needed()), (Some(108), None));
    // Predictions from noisy rounds come true with as many rounds.
    let noisy = |rounds| Program { noise: 0.05, ..Program::new(&[Factor::Send], 20_000, 0.5) }.measured(rounds);
    let few = noisy(12);
    let needed = few.slopes[0].rounds_needed().unwrap();
    assert!(page(&few).contains(&format!("takes about {needed} rounds")) && needed > 24, "{few:?}");
    let many = noisy(needed as u32).slopes[0].interval.unwrap();
    assert!((many.high - many.low) / 2.0 < 1.5 * TOLD, "{needed}: {many:?}");
    assert!(!page(&noisy(needed as u32 * 3)).contains("takes about"));
}

#[test]
fn what_is_known_well_enough_gets_no_more_rounds() {
    let mut program = Program { noise: 0.0001, ..Program::new(&[Factor::Send], 20_000, 0.5) };
    let findings = program.measured(40);
    assert_eq!(findings.slopes[0].interval.unwrap().samples, 6);
}

#[test]
fn machinery_that_costs_is_told() {
    let findings = Program { machinery: 0.02, ..Program::new(&[Factor::Send], 20_000, 0.5) }.measured(40);
    assert!(!findings.is_null() && findings.notes[0].contains("no length alone make a run"), "{findings:?}");
    let page = page(&findings);
    assert!(page.contains("do not read 0, as they must") && page.contains("note: "), "{page}");
}

#[test]
fn runs_on_cores_further_apart_change_no_slope() {
    let findings = Program { far: Some(1.5), ..Program::new(&[Factor::Send], 20_000, 0.5) }.measured(40);
    let of = findings.slopes[0].interval.unwrap();
    assert!(of.low <= 0.5 && 0.5 <= of.high && of.high < 0.8, "{of:?}");
}

#[test]
fn another_carrier_is_predicted_upwards_and_never_downwards() {
    let findings = Program::new(&[Factor::Send, Factor::Receive], 20_000, 0.5).measured(40);
    let dearer = |low: f64, high: f64| {
        let more = rounds::estimate::Estimate { middle: (low + high) / 2.0, low, high, samples: 12 };
        vec![(Bytes(1000), more)]
    };
    let expected = expect(&findings, &dearer(4900.0, 5100.0), "udp").unwrap();
    // 40,000 messages, half of them on the path, 5 us each: 0.1 s of 1 s.
    let machine::costs::Interval { low, middle, high } = expected.ratio;
    assert!(low < 1.1 && 1.1 < high && (middle - 1.1).abs() < 0.03, "{expected:?}");
    for dearer in [dearer(-5100.0, -4900.0), dearer(-10.0, 5000.0), Vec::new()] {
        let back = expect(&findings, &dearer, "afxdp").unwrap_err();
        assert!(back.cause().contains("only bound"), "{back}");
    }
    let refused = expect(&findings, &dearer(10.0, 200_000.0), "udp").unwrap_err();
    assert!(refused.cause().contains("too wide"), "{refused}");
}
