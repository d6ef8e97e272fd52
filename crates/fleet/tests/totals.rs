use fleet::store::Store;
use fleet::summary::{Gain, Lever, Summary, Unjudged};
use fleet::terminal;
use fleet::totals::{Asked, By, Totals, totals};
use rounds::random::Random;

use super::{job, store_of};

fn asked(store: &Store, by: By) -> Totals {
    totals(store, Asked::default(), by).unwrap()
}

#[test]
fn sums_are_those_of_the_jobs() {
    let mut jobs: Vec<Summary> =
        (0..4).map(|number| job(number, if number < 3 { "solver" } else { "mesher" })).collect();
    jobs[1].started += 40 * 86_400;
    jobs[2].levers.clear();
    jobs[2].unjudged = Some(Unjudged::LostRanks);
    jobs[3].levers = vec![Gain { lever: Lever::Mapping, share: (0.0, 0.0) }];
    let (_home, store) = store_of(&jobs);
    let sums = asked(&store, By::Program);
    assert_eq!((sums.jobs, sums.core_hours, sums.mpi), (4, 40.0, 0.5));
    assert_eq!(sums.months, Some(("2026-01".into(), "2026-02".into())));
    assert_eq!(
        sums.unjudged.iter().map(|lost| (lost.why, lost.jobs, lost.core_hours)).collect::<Vec<_>>(),
        [(Unjudged::LostRanks, 1, 10.0)]
    );
    let parts: Vec<_> = sums.groups.iter().map(|part| (&part.name[..], part.jobs, part.best)).collect();
    // Two of three jobs are judged: 2 to 4 of 30 core hours.
    assert_eq!(parts[0], ("mesher", 1, Some((Lever::Mapping, (0.0, 0.0)))));
    assert_eq!((parts[1].0, parts[1].1), ("solver", 3));
    let (got, want) = (parts[1].2.unwrap().1, (2.0 / 30.0, 4.0 / 30.0));
    assert!((got.0 - want.0).abs() < 1e-9 && (got.1 - want.1).abs() < 1e-9, "{got:?}");
    assert_eq!(asked(&store, By::Month).groups.iter().map(|part| part.jobs).collect::<Vec<_>>(), [3, 1]);
    let one = totals(&store, Asked { program: Some("mesher".into()) }, By::Month).unwrap();
    assert_eq!((one.jobs, one.savings.len()), (1, 1));
}

#[test]
fn a_lever_of_which_a_part_of_the_jobs_tells_says_so() {
    let mut jobs: Vec<Summary> = (0..4).map(|number| job(number, "solver")).collect();
    jobs[0].levers.push(Gain { lever: Lever::Clock, share: (0.0, 0.05) });
    let (_home, store) = store_of(&jobs);
    let page = terminal::render(&asked(&store, By::Month), None);
    let line = |begin: &str| page.lines().find(|line| line.starts_with(begin)).unwrap().to_owned();
    assert!(line("An adapter").ends_with("one program makes up nine tenths."), "all tell it: {page}");
    assert!(line("Clocks").ends_with("known for 25.0 % of them."), "{page}");
    assert_eq!(line("Other cores"), "Other cores for the ranks would save: no job tells.");
}

/// Many jobs of one program tell no more than one: the interval does not shrink with their number, as it would if each were a draw.
#[test]
fn jobs_of_one_program_are_one_draw() {
    let few: Vec<Summary> = (0..10).map(|number| job(number, "solver")).collect();
    let many: Vec<Summary> = (0..2_000).map(|number| job(number, "solver")).collect();
    let width = |jobs: &[Summary]| {
        let (_home, store) = store_of(jobs);
        let share = asked(&store, By::Month).savings[0].share;
        share.1 - share.0
    };
    assert!((width(&many) / width(&few) - 1.0).abs() < 1e-6);
    assert!(width(&many) > 0.09, "nearly the whole of 10 .. 20 %");
}

/// What bounds the gains of many programs may be wrong in one way for all of them, as where memory limits each.
#[test]
fn gains_that_may_be_none_of_any_program_may_be_none_of_all() {
    let mut jobs: Vec<Summary> = (0..50).map(|number| job(number, &format!("program-{number}"))).collect();
    jobs.iter_mut().for_each(|job| job.levers = vec![Gain { lever: Lever::Offload, share: (0.0, 0.08) }]);
    let (_home, store) = store_of(&jobs);
    let (low, high) = asked(&store, By::Month).savings[0].share;
    assert!(low == 0.0 && (high - 0.08).abs() < 1e-6, "{low} .. {high}");
}

/// A year of programs drawn from a population of which the truth is known: 95 % of the intervals hold what all of it would save.
#[test]
fn intervals_hold_the_share_of_the_population() {
    let (years, mut held) = (200, 0);
    for year in 0..years {
        let mut random = Random::stream(3, year);
        let mut jobs = Vec::new();
        for program in 0..60 {
            // Gains of 0 to 20 %, 10 % in the mean, known as an interval that holds them.
            let truth = 0.2 * random.unit();
            let below = 0.05 * random.unit();
            let share = (truth - below, truth - below + 0.05);
            for _ in 0..=random.below(4) {
                let mut job = job(jobs.len() as u64, &format!("program-{program}"));
                job.levers = vec![Gain { lever: Lever::Offload, share }];
                jobs.push(job);
            }
        }
        let (_home, store) = store_of(&jobs);
        let (low, high) = asked(&store, By::Month).savings[0].share;
        held += u32::from((low..=high).contains(&0.1));
    }
    assert!(f64::from(held) >= 0.9 * years as f64, "{held} of {years}");
}
