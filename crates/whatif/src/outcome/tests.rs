use machine::costs::{ENGINE, Item, Way};
use machine::{Bytes, Costs, Nanoseconds, Reading};
use proptest::prelude::*;
use record::functions::named;
use rounds::random::Random;

use super::bank::{Bank, LEVEL, Row};
use super::*;
use crate::graph::{Adding, Builder, Kind as MessageKind, Step};
use crate::lever::{Change, Mapping};
use crate::model::Ways;

fn features(figures: [f64; 5]) -> Features {
    let [draws, change, noise, taken, unexplained] = figures;
    Features { draws, change, noise, taken, unexplained, trips: 1e4, seconds: 2.0, contradicted: false, moved: 0.0 }
}

fn normal(random: &mut Random) -> f64 {
    let (u, v) = (1.0 - random.unit(), random.unit());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

/// Outcomes of `programs`, whose errors have an effect of the program and follow the scale.
fn outcomes(programs: u32, kinds: &[Kind]) -> Bank {
    let mut random = Random::new(u64::from(programs));
    let mut rows = Vec::new();
    for program in 0..programs {
        let (effect, noise) = (normal(&mut random), 0.03 * random.unit());
        for nth in 0..40 {
            let middle = (normal(&mut random) * 0.5).exp();
            let draws = 0.3 * random.unit();
            let drawn = Interval { low: middle * (-draws).exp(), middle, high: middle * draws.exp() };
            let taken = if nth % 2 == 0 { 0.01 } else { 0.3 };
            let features = features([draws, middle.ln().abs(), noise, taken, 0.2 * random.unit()]);
            // Beside a hog errors are larger than the scale says.
            let error = if nth % 2 == 0 { 0.4 } else { 1.5 } * features.scale() * (effect + normal(&mut random));
            rows.push(Row {
                program: format!("p{program}"),
                carriers: ["vader", "tcp"].map(str::to_owned),
                load: ["calm", "hog"][nth % 2].to_owned(),
                costs: "calm".to_owned(),
                hosts: 1,
                kind: kinds[nth % kinds.len()],
                features,
                drawn,
                observed: middle * error.exp(),
                session: 1,
            });
        }
    }
    Bank::of(rows)
}

/// Of the rows that `fits`, the number, those that all programs but their own answer, and those of them that hold.
fn held(bank: &Bank, fits: impl Fn(&Row) -> bool) -> (usize, usize, usize) {
    let (mut all, mut answered, mut held) = (0, 0, 0);
    for (row, forecast) in bank.cross_judged(false).into_iter().filter(|(row, _)| fits(row)) {
        all += 1;
        if let Forecast::Within { time, .. } = forecast {
            answered += 1;
            held += usize::from(time.holds(row.observed));
        }
    }
    (all, answered, held)
}

#[test]
fn nine_of_ten_outcomes_of_a_program_lie_in_the_intervals_of_the_others() {
    let bank = outcomes(40, &[Kind::Carrier, Kind::Carrier, Kind::Network, Kind::Network]);
    for (kind, load) in [Kind::Carrier, Kind::Network].into_iter().flat_map(|kind| ["calm", "hog"].map(|of| (kind, of)))
    {
        let (all, answered, held) = held(&bank, |row| row.kind == kind && row.load == load);
        let share = held as f64 / answered as f64;
        assert!(
            answered * 10 >= all * 9 && (0.85..0.95).contains(&share),
            "{kind:?} {load}: {answered} of {all}, {share}"
        );
    }
}

#[test]
fn the_shipped_bank_is_read_as_it_was_written() {
    let text = include_str!("bank.tsv");
    let bank = Bank::read(text).unwrap();
    let lines: Vec<String> = bank.rows.iter().map(Row::to_string).collect();
    assert_eq!(text.lines().next(), Some(bank::HEADER));
    assert_eq!(text.lines().skip(1).collect::<Vec<_>>(), lines);
    assert_eq!(Bank::shipped().rows.len(), lines.len());
}

/// Each recorded program is judged by the others.
#[test]
fn shown_intervals_hold_85_to_95_of_100_outcomes() {
    let bank = Bank::shipped();
    let programs: std::collections::BTreeSet<&String> = bank.rows.iter().map(|row| &row.program).collect();
    assert!(programs.len() >= 17, "{programs:?}");
    let share = |fits: &dyn Fn(&Row) -> bool| {
        let (_, answered, held) = held(bank, fits);
        held as f64 / answered as f64
    };
    assert!((0.85..=0.95).contains(&share(&|_| true)), "{}", share(&|_| true));
    // A part of them is of few programs.
    for (kind, load) in [Kind::Same, Kind::Carrier].into_iter().flat_map(|kind| ["calm", "hog"].map(|of| (kind, of))) {
        let share = share(&|row| row.kind == kind && row.load == load);
        assert!((0.80..=0.98).contains(&share), "{kind:?} {load}: {share}");
    }
    // Of a recording that is too short, and of ranks that share cores, nothing is to be told.
    let told = |row: &Row| row.load == "calm" && row.program != "crowd" && row.features.seconds >= bank::SHORTEST;
    let (all, answered, _) = held(bank, told);
    println!("answered of calm recordings that are long enough: {answered} of {all}");
    assert!(answered as f64 >= 0.85 * all as f64, "{answered} of {all} are answered");
}

#[test]
fn a_kind_of_few_programs_is_judged_by_all_and_a_bank_of_few_programs_judges_nothing() {
    let judged = |bank: &Bank, kind| {
        bank.forecast(kind, &features([0.1, 0.2, 0.01, 0.01, 0.05]), Interval { low: 1.1, middle: 1.2, high: 1.3 })
    };
    let few = outcomes(8, &[Kind::Carrier]);
    assert!(matches!(judged(&few, Some(Kind::Carrier)), Forecast::Uncalibrated(_)));
    let mut rows = outcomes(12, &[Kind::Carrier]).rows;
    rows.extend(outcomes(3, &[Kind::Network]).rows);
    let bank = Bank::of(rows);
    let [own, pooled] = [Kind::Carrier, Kind::Network].map(|kind| judged(&bank, Some(kind)));
    assert!(own.level() == Some(LEVEL) && pooled.level() == Some(LEVEL) && own != pooled, "{own:?} {pooled:?}");
    assert_eq!(judged(&bank, None), Forecast::Uncalibrated(Interval { low: 1.1, middle: 1.2, high: 1.3 }));
}

#[test]
fn what_a_recording_cannot_tell_is_refused_with_what_to_record() {
    let bank = outcomes(20, &[Kind::Carrier]);
    let plain = features([0.1, 0.2, 0.01, 0.01, 0.05]);
    let drawn = Interval { low: 1.1, middle: 1.2, high: 1.3 };
    let refused = |features: Features| match bank.forecast(Some(Kind::Carrier), &features, drawn) {
        Forecast::CannotTell { reason, next } => format!("{reason}; {next}"),
        other => panic!("{other:?}"),
    };
    assert!(bank.forecast(Some(Kind::Carrier), &plain, drawn).level().is_some());
    let expected = [
        (Features { contradicted: true, ..plain }, "sooner than the costs say; run plimsoll calibrate"),
        (Features { seconds: 0.05, ..plain }, "lasts 0.050 s; record 4 times as many steps"),
        (Features { trips: 50.0, ..plain }, "only 50 trips are on the critical path; record 4 times"),
        (Features { noise: f64::INFINITY, ..plain }, "too few calls"),
        (Features { noise: 0.3, ..plain }, "uncertain by 30 % by its own parts; record it again"),
        (Features { unexplained: 0.6, ..plain }, "60 % of the critical path are unexplained"),
        (Features { noise: 0.2, ..plain }, "no calibrated program is like this: noise of the recording 20 %"),
        (Features { draws: 0.7, ..plain }, "uncertain costs 70 %"),
    ];
    for (features, words) in expected {
        assert!(refused(features).contains(words), "{}", refused(features));
    }
    // Few messages matter only to an answer that changes something.
    let slight = Features { trips: 50.0, change: 0.01, ..plain };
    assert!(bank.forecast(Some(Kind::Carrier), &slight, Interval::between(1.0, 1.02)).level().is_some());
}

#[test]
fn a_lever_of_no_effect_changes_nothing_and_another_run_differs() {
    let same = Interval::exactly(1.0);
    let steady = features([0.0, 0.0, 0.01, 0.01, 0.05]);
    let forecast = |bank: &Bank| bank.forecast(Some(Kind::Carrier), &steady, same);
    let unchanged = forecast(&Bank::default());
    assert_eq!((unchanged.effect(), unchanged.run(), unchanged.level()), (Some(same), Some(same), None));
    let mut rows = outcomes(12, &[Kind::Same]).rows;
    rows.iter_mut().for_each(|row| row.drawn = same);
    let forecast = forecast(&Bank::of(rows));
    let again = forecast.run().unwrap();
    assert!(forecast.effect() == Some(same) && forecast.level() == Some(LEVEL) && again.low < 1.0 && again.high > 1.0);
}

#[test]
fn causes_of_a_wide_interval_are_named_the_greatest_first() {
    let named = |figures| features(figures).widenings().iter().map(|of| of.cause.words(of.value)).collect::<Vec<_>>();
    assert_eq!(named([0.0; 5]), Vec::<String>::new());
    assert_eq!(named([0.0, 0.0, 0.01, 0.3, 0.0]), ["others had its cores for 30 % of the time"]);
    assert_eq!(named([0.4, 0.1, 0.01, 0.0, 0.1]), ["costs leave 49 %"]);
    let factors: Vec<f64> = features([0.1, 0.1, 0.08, 0.1, 0.1]).widenings().iter().map(|of| of.factor).collect();
    assert!(factors.iter().rev().is_sorted() && factors.iter().all(|factor| *factor > 1.2), "{factors:?}");
}

proptest! {
    #[test]
    fn the_scale_grows_with_each_feature(
        figures in proptest::array::uniform5(0.0..1.0f64), nth in 0..5usize, more in 0.0..1.0f64,
    ) {
        let mut larger = figures;
        larger[nth] += more;
        prop_assert!(features(larger).scale() >= features(figures).scale());
    }
}

fn ways(placement: SiteKind) -> Ways {
    let way = Way { carrier: ENGINE.into(), mpi: "an MPI".into(), placement, network: None };
    Ways { within: way.clone(), between: way, shared_links: false, eager: None }
}

fn costs() -> Costs {
    let row = |item| machine::costs::Row {
        item,
        size: Some(Bytes(8)),
        cost: Reading::Measured(Interval::exactly(1_000.0)),
        source: String::new(),
        taken: Nanoseconds(1),
    };
    let of = |site| [row(Item::HalfTrip(ways(site).within)), row(Item::Message(ways(site).within))];
    Costs::of([SiteKind::App, SiteKind::Core].into_iter().flat_map(of).chain([row(Item::Handover)]).collect())
}

/// Messages from one rank to the other, the n-th after `gap(n)` ns.
fn stream(hosts: [u32; 2], calls: u32, gap: impl Fn(u32) -> i64) -> Graph {
    let mut builder = Builder::new(hosts.to_vec(), calls);
    let reach = if hosts[0] == hosts[1] { Reach::Host } else { Reach::Between };
    (0..calls).for_each(|number| builder.message(number, MessageKind { bytes: 8, reach, trips: 1 }));
    for rank in 0..2 {
        builder.lane(rank, 0);
        for number in 0..calls {
            let (name, steps) = match rank {
                0 => ("Send", [Step::Send(number), Step::Sent(number)]),
                _ => ("Recv", [Step::Post(number), Step::Received(number)]),
            };
            let adding = Adding { function: named(name).unwrap().id, gap: gap(number), inside: 1_000, opaque: false };
            builder.call(adding, &steps);
        }
    }
    builder.finish()
}

#[test]
fn kinds_of_levers_are_those_of_which_outcomes_were_recorded() {
    let costs = costs();
    let of = |hosts: [u32; 2], site, lever: Lever| {
        let graph = stream(hosts, 10, |_| 5_000);
        Kind::of(&Program::new(&graph, &costs, ways(site)).unwrap(), &lever)
    };
    let carried = |site| Lever { ways: Some(ways(site)), ..Lever::default() };
    assert_eq!(of([0, 0], SiteKind::App, carried(SiteKind::App)), Some(Kind::Carrier));
    assert_eq!(of([0, 1], SiteKind::App, carried(SiteKind::App)), Some(Kind::Network));
    assert_eq!(of([0, 0], SiteKind::App, Lever::default()), Some(Kind::Same));
    assert_eq!(of([0, 0], SiteKind::App, carried(SiteKind::Core)), None);
    assert_eq!(of([0, 0], SiteKind::Core, carried(SiteKind::App)), None);
    let slower = Lever { latency: Some(Change::By(1.0)), ..carried(SiteKind::App) };
    assert_eq!(of([0, 0], SiteKind::App, slower), None);
    let mapped = |mapping| of([0, 0], SiteKind::App, Lever { mapping: Some(mapping), ..Lever::default() });
    let there = Mapping::recorded(&stream([0, 0], 10, |_| 5_000));
    assert_eq!(mapped(there.clone()), None);
    let apart = Mapping { hosts: vec![0, 1], ..there };
    assert_eq!(mapped(apart.clone()), Some(Kind::Mapping));
    assert_eq!(mapped(apart.capable(0, 0.5).unwrap()), None);
}

#[test]
fn carriers_without_outcomes_are_not_calibrated() {
    let (costs, graph) = (costs(), stream([0, 0], 100, |_| 5_000));
    let program = Program::new(&graph, &costs, ways(SiteKind::App)).unwrap();
    let quality = Quality::of(&program, None);
    let lever = Lever { ways: Some(ways(SiteKind::App)), ..Lever::default() };
    let answer =
        Answer { time: Interval { low: 1.1, middle: 1.2, high: 1.3 }, ..program.ask(&[&lever]).unwrap()[0].clone() };
    let mut bank = outcomes(20, &[Kind::Carrier]);
    let judged = |bank: &Bank| bank.of_answer(&program, &quality, &lever, &answer);
    assert_eq!(judged(&bank), Forecast::Uncalibrated(answer.time), "vader to tcp");
    bank.rows[0].carriers = ["engine", "engine"].map(str::to_owned);
    assert!(matches!(judged(&bank), Forecast::CannotTell { .. }), "of so few calls");
}

#[test]
fn a_recording_whose_parts_differ_is_noisy() {
    let costs = costs();
    let quality = |calls, gap: &dyn Fn(u32) -> i64| {
        let graph = stream([0, 0], calls, gap);
        Quality::of(&Program::new(&graph, &costs, ways(SiteKind::App)).unwrap(), None)
    };
    let steady = quality(800, &|number| 5_000 + i64::from(number % 10));
    assert!(steady.noise < 1e-9 && (steady.seconds - 0.0048).abs() < 1e-4, "{steady:?}");
    let slower = quality(800, &|number| 5_000 + 10 * i64::from(number));
    assert!(slower.noise > 0.05 && slower.noise < 0.5, "{slower:?}");
    assert!(quality(7, &|_| 5_000).noise.is_infinite());
}
