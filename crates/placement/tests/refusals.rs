//! Layouts that make no sense, extreme values, and layouts that are hard to fill.

use machine::{Bytes, CoreId, Fault, Site};
use placement::layout::{Candidate, Crossing, Demand, Layout, Load, Place, Resource, SiteIndex, Tie, Unit, UnitIndex};
use placement::{Effort, MAX_SITES, Minimality, Reason, Unsolved, solve};

/// `units` alike, at `app` and as many cores as make `sites`.
fn plain(units: usize, sites: usize, load: f64) -> Layout {
    let site = |n: usize| if n == 0 { Site::App } else { Site::Core(CoreId(n as u32)) };
    Layout {
        units: (0..units)
            .map(|n| Unit {
                name: format!("u{n}"),
                priority: 100,
                memory: Bytes(1),
                places: vec![Place::Possible(Load(load)); sites],
            })
            .collect(),
        sites: (0..sites)
            .map(|n| Candidate {
                site: site(n),
                capacity: Load(1.0),
                memory: Bytes(1 << 40),
                slots: usize::MAX,
                price: 1.0,
                opening: 0.0,
            })
            .collect(),
        channels: Vec::new(),
        constraints: Vec::new(),
        crossing_ns: vec![vec![100.0; sites]; sites],
    }
}

fn refused(change: impl Fn(&mut Layout)) -> String {
    let mut layout = plain(3, 3, 0.1);
    change(&mut layout);
    match solve(&layout, &Effort::default()) {
        Err(Unsolved::Invalid(fault)) => fault.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn nonsense_is_refused_and_named() {
    let unit = UnitIndex;
    let cases: [(&str, String); 15] = [
        ("places", refused(|l| l.units[1].places.truncate(2))),
        ("rows", refused(|l| l.crossing_ns[2].truncate(2))),
        ("NaN", refused(|l| l.crossing_ns[1][2] = f64::NAN)),
        ("-1 ns", refused(|l| l.crossing_ns[1][2] = -1.0)),
        ("load at core:1 is NaN", refused(|l| l.units[0].places[1] = Place::Possible(Load(f64::NAN)))),
        ("load at core:1 is -0.5", refused(|l| l.units[0].places[1] = Place::Possible(Load(-0.5)))),
        ("load at core:1 is inf", refused(|l| l.units[0].places[1] = Place::Possible(Load(f64::INFINITY)))),
        ("capacity is NaN", refused(|l| l.sites[0].capacity = Load(f64::NAN))),
        ("twice", refused(|l| l.sites[1].site = Site::App)),
        ("ends at no unit", refused(|l| l.channels.push(Crossing { from: unit(0), to: unit(3), rate: 1.0 }))),
        ("leads back", refused(|l| l.channels.push(Crossing { from: unit(1), to: unit(1), rate: 1.0 }))),
        ("rate is inf", refused(|l| l.channels.push(Crossing { from: unit(0), to: unit(1), rate: f64::INFINITY }))),
        ("ties u2 to itself", refused(|l| l.constraints.push(Tie::Pull(unit(2), unit(2))))),
        ("names no unit or no site", refused(|l| l.constraints.push(Tie::Pin(unit(2), SiteIndex(3))))),
        ("priority is 1001", refused(|l| l.units[0].priority = 1001)),
    ];
    for (words, text) in cases {
        assert!(text.contains(words), "'{words}' is not in '{text}'");
    }
    let many = plain(1, MAX_SITES + 1, 0.1);
    assert!(matches!(solve(&many, &Effort::default()), Err(Unsolved::Invalid(_))));
    let mut nowhere = plain(1, 0, 0.1);
    nowhere.units[0].places.clear();
    assert!(matches!(solve(&nowhere, &Effort::default()), Err(Unsolved::Invalid(_))));
}

#[test]
fn nothing_is_placed_nowhere() {
    let plan = solve(&Layout::default(), &Effort::default()).unwrap();
    assert!(plan.assignment.is_empty());
    assert_eq!(plan.cost.total, 0.0);
}

#[test]
fn extreme_values_are_no_trouble() {
    let mut layout = plain(4, 3, 1e5);
    for candidate in &mut layout.sites {
        candidate.capacity = Load(f64::INFINITY);
        candidate.memory = Bytes(u64::MAX);
    }
    layout.units[0].memory = Bytes(1 << 49);
    layout.units[1].places =
        vec![Place::Possible(Load(0.0)), Place::Possible(Load(f64::MIN_POSITIVE)), Place::Possible(Load(1e5))];
    layout.channels.push(Crossing { from: UnitIndex(0), to: UnitIndex(1), rate: f64::MIN_POSITIVE });
    layout.channels.push(Crossing { from: UnitIndex(1), to: UnitIndex(2), rate: 1e9 });
    layout.crossing_ns[0][1] = 1e6;
    let plan = solve(&layout, &Effort::default()).unwrap();
    assert!(plan.cost.total.is_finite());
    assert!(solve(&layout, &Effort { steps: 0, ..Effort::default() }).is_ok());
}

/// 0.1 + 0.2 is more than 0.3 in binary, but not in nanoseconds.
#[test]
fn thirds_and_tenths_fill_a_core_exactly() {
    let mut layout = plain(3, 1, 0.1);
    layout.units[1].places[0] = Place::Possible(Load(0.2));
    layout.units[2].places[0] = Place::Possible(Load(0.7));
    assert!(solve(&layout, &Effort::default()).is_ok());
}

/// Perfect packings, shuffled: any unit at the wrong core leaves another without a place.
#[test]
fn full_sites_are_filled() {
    for seed in 1..20u64 {
        let mut layout = plain(0, 6, 0.0);
        let mut state = seed;
        let mut shares = Vec::new();
        for _ in 0..6 {
            // Cuts a core into four.
            let mut cuts: Vec<u64> = (0..3)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 33) % 99 + 1
                })
                .collect();
            cuts.extend([0, 100]);
            cuts.sort_unstable();
            shares.extend(cuts.windows(2).map(|w| (w[1] - w[0]) as f64 / 100.0));
        }
        shares.sort_by_key(|share| share.to_bits().wrapping_mul(seed | 1));
        for (n, &share) in shares.iter().enumerate() {
            let places = vec![Place::Possible(Load(share)); 6];
            layout.units.push(Unit { name: format!("u{n}"), priority: 100, memory: Bytes(0), places });
        }
        let plan = solve(&layout, &Effort::default()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert!(plan.usage.iter().all(|usage| usage.load.0 <= 1.0 + 1e-9));
    }
}

/// Seven halves and a bit on six cores: no two fit one, which sums do not show.
#[test]
fn pigeons_without_a_hole_clash() {
    let layout = plain(7, 6, 0.51);
    let Err(Unsolved::Clash(clash)) = solve(&layout, &Effort::default()) else { panic!("it has no assignment") };
    assert_eq!(clash.minimality, Minimality::Smallest);
    assert_eq!(clash.parts.len(), 6, "{clash}");
    assert!(clash.parts.iter().all(|part| matches!(part.demand, Demand::Capacity(_, Resource::Load))));
}

/// One unit too many for the slots of two hundred cores: decided by matching, not by trying.
#[test]
fn one_slot_short_of_many_is_decided() {
    let mut layout = plain(61, 60, 0.1);
    for candidate in &mut layout.sites {
        candidate.slots = 1;
    }
    assert!(matches!(solve(&layout, &Effort::default()), Err(Unsolved::Clash(_) | Unsolved::Nothing)));
    layout.units.pop();
    assert!(solve(&layout, &Effort::default()).is_ok());
}

#[test]
fn a_chain_of_pulls_is_named_in_the_reason() {
    let mut layout = plain(3, 2, 0.1);
    layout.units[2].places[1] = Place::Impossible("no body for core".into());
    layout.constraints = vec![Tie::Pull(UnitIndex(1), UnitIndex(0)), Tie::Pull(UnitIndex(1), UnitIndex(2))];
    let plan = solve(&layout, &Effort::default()).unwrap();
    let by = Demand::Impossible(UnitIndex(2), SiteIndex(1));
    assert_eq!(plan.rejected[0][0].reason, Reason::Forbidden { by, chain: vec![0, 1] });
    let text = plan.explain(&layout).to_string();
    assert!(text.contains("forbidden: u2 cannot be at core:1: no body for core, reached because"), "{text}");
    assert!(plan.dot(&layout).contains("u1 -> u0 [dir=none, style=bold, label=Pull]"));
}

#[test]
fn a_pinned_gang_member_at_app_clashes() {
    let mut layout = plain(2, 2, 0.1);
    layout.constraints = vec![Tie::Gang(UnitIndex(0), UnitIndex(1)), Tie::Pin(UnitIndex(1), SiteIndex(0))];
    let Err(unsolved) = solve(&layout, &Effort::default()) else { panic!("it has no assignment") };
    let Unsolved::Clash(clash) = &unsolved else { panic!("{unsolved}") };
    let demands: Vec<Demand> = clash.parts.iter().map(|part| part.demand).collect();
    assert_eq!(demands, [Demand::Tie(0), Demand::Tie(1)]);
    let fault: Fault = unsolved.into();
    assert!(fault.to_string().contains("u1 must be at app (Pin)"), "{fault}");
}

#[test]
fn a_caller_who_stops_gets_an_answer() {
    let stop = || true;
    let effort = Effort { stop: Some(&stop), ..Effort::default() };
    assert!(solve(&plain(40, 4, 0.05), &effort).is_ok());
}
