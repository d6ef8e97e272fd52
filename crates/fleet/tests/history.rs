use fleet::history::{History, Period, history};
use fleet::summary::{Program, Summary};
use fleet::{page, terminal};
use rounds::random::Random;

use super::{job, store_of};

const DAY: u64 = 86_400;

fn hash(version: u32) -> Option<String> {
    Some(format!("{version:08x}{:024}", 0))
}

/// Two jobs a day by each of three users, from 2026-01-01 on; the wait share is that of the day, with a spread.
fn days(days: u64, wait: impl Fn(u64) -> f64, version: impl Fn(u64) -> u32) -> Vec<Summary> {
    let mut random = Random::new(11);
    let mut jobs = Vec::new();
    for number in 0..6 * days {
        let day = number / 6;
        let mut job = job(number, "solver");
        job.started += day * DAY + number % 6 * 3_600;
        job.owner.user = 1_000 + (number % 3) as u32;
        job.wait = Some(wait(day) + 0.1 * random.unit());
        job.program = Program { hash: hash(version(day)), ..job.program };
        jobs.push(job);
    }
    jobs
}

fn of(jobs: &[Summary]) -> History {
    history(&store_of(jobs).1, "solver").unwrap().unwrap()
}

#[test]
fn rows_are_sums_of_the_jobs_of_a_month() {
    let mut jobs = days(120, |_| 0.1, |_| 1);
    let mut large = Summary { nodes: 3, cores: 5_000, mpi: None, wait: Some(0.5), ..job(9_000, "solver") };
    large.started += 40 * DAY;
    jobs.push(large);
    jobs.push(Summary { wait: None, ..job(9_001, "solver") });
    jobs.push(job(9_002, "mesher"));
    let history = of(&jobs);
    let rows: Vec<_> = history.rows.iter().map(|row| (&row.name[..], row.jobs)).collect();
    assert_eq!(rows, [("2026-01", 187), ("2026-02", 169), ("2026-03", 186), ("2026-04", 180)]);
    assert_eq!(
        (history.by, &history.first_day[..], &history.last_day[..]),
        (Period::Month, "2026-01-01", "2026-04-30")
    );
    let february = &history.rows[1];
    assert!((february.core_hours - 6_680.0).abs() < 1e-6 && (february.nodes - 171.0 / 169.0).abs() < 1e-9);
    assert_eq!(february.mpi, Some(0.5), "of jobs of which it is known");
    let wait = february.wait.unwrap();
    let (low, high) = wait.interval.unwrap();
    // One job makes up three quarters of the month; whoever draws it not, or twice, sees another share.
    assert!((0.40..0.42).contains(&wait.middle) && low < 0.2 && high > 0.45, "{wait:?}");
    assert!(history.rows[2].wait.unwrap().interval.unwrap().1 < 0.17);
    assert_eq!((history.sums.jobs, history.sums.asked.program.as_deref()), (722, Some("solver")));
}

#[test]
fn a_short_span_has_weeks_that_begin_on_mondays() {
    let history = of(&days(20, |_| 0.1, |_| 1));
    let rows: Vec<_> = history.rows.iter().map(|row| (&row.name[..], row.jobs)).collect();
    assert_eq!(rows, [("2025-12-29", 24), ("2026-01-05", 42), ("2026-01-12", 42), ("2026-01-19", 12)]);
    assert_eq!(history.by, Period::Week);
    let one = of(&[job(1, "solver")]);
    assert_eq!((one.rows.len(), one.wait.unwrap().interval, one.steps.len()), (1, None, 0));
}

#[test]
fn a_version_that_waits_more_is_a_step_on_its_first_day() {
    let version = |day| 1 + u32::from(day >= 50) + u32::from(day >= 130);
    let slower = of(&days(200, |day| if day >= 130 { 0.17 } else { 0.1 }, version));
    let versions: Vec<_> =
        slower.versions.iter().map(|version| (version.hash.clone(), &version.first_day[..], version.jobs)).collect();
    assert_eq!(versions, [(hash(1), "2026-01-01", 300), (hash(2), "2026-02-20", 480), (hash(3), "2026-05-11", 420)]);
    assert_eq!(slower.versions[1].last_day, "2026-05-10");
    let [step] = &slower.steps[..] else { panic!("{:?}", slower.steps) };
    assert_eq!((&step.day[..], &step.row[..], step.version.clone()), ("2026-05-11", "2026-05", hash(3)));
    assert!(step.of.change.0 < 0.07 && step.of.change.1 > 0.07 && step.of.change.1 - step.of.change.0 < 0.03);
    assert_eq!(of(&days(200, |_| 0.1, version)).steps.len(), 0, "versions alone are no step");
}

#[test]
fn a_program_that_nobody_ran_has_no_history() {
    assert!(history(&store_of(&[job(1, "solver")]).1, "mesher").unwrap().is_none());
}

/// Years of weekly versions: what a terminal shows stays short, and what is left out is said.
#[test]
fn a_long_history_is_short_on_a_terminal_and_whole_on_the_page() {
    let history = of(&days(1_000, |day| 0.02 * (day / 120 % 4) as f64, |day| (day / 7) as u32));
    assert!(history.rows.len() > 30 && history.versions.len() > 140 && history.steps.len() > 3);
    let text = terminal::history(&history, Some(3.0));
    assert!(text.lines().count() < 30, "{text}");
    assert!(text.contains("Earlier rows: 21. Earlier versions: 138."), "{text}");
    let page = page::history(&history, None, "fleet.db");
    assert!(history.rows.iter().all(|row| page.contains(&row.name)));
    assert!(page.matches("step on").count() > 3);
}
