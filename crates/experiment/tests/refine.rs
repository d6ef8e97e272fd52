//! What a finished study leaves: rows of costs, and its gains for the next to be held against.

#[allow(dead_code, reason = "shared by several tests")]
use experiment::ledger::{Ledger, tallies};
use experiment::refine;
use rounds::point::{Path, Pattern};

use crate::fixture;
use machine::Nanoseconds;

#[test]
fn the_next_study_is_held_against_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = Ledger::at(&folder.path().join("ledger.jsonl")).unwrap();
    let findings = fixture::findings();
    refine::hold(&mut ledger, &findings, "plimsoll study 1", Nanoseconds(1)).unwrap();
    let open = ledger.open_predictions().count();
    assert!(open > 10 && ledger.outcomes.is_empty(), "{open}");
    let named = |of: &str| ledger.predictions.iter().any(|prediction| prediction.quantity == of);
    assert!(named("engine-shm at app over tcp in the kernel, ping-pong at 8 B, loopback"));
    // The same again lies within each interval.
    refine::hold(&mut ledger, &findings, "plimsoll study 2", Nanoseconds(2)).unwrap();
    let [tally] = &tallies(&ledger)[..] else { panic!("one kind") };
    assert_eq!((tally.settled.len(), tally.held()), (open, open));
}

#[test]
fn messages_of_a_stream_are_costs_where_no_rate_was_measured() {
    let mut findings = fixture::findings();
    let is_message = |row: &machine::costs::Row| matches!(row.item, machine::costs::Item::Message(_));
    let rows =
        |findings: &_| refine::rows(findings, "study", Nanoseconds(1)).iter().filter(|row| is_message(row)).count();
    let rates = rows(&findings);
    for point in findings.points.iter_mut().filter(|point| point.spec.pattern == Pattern::PingPong) {
        point.spec.pattern = Pattern::Stream;
    }
    assert_eq!(rows(&findings), rates, "a rate says it better");
    findings.points.retain(|point| point.spec.pattern != Pattern::MessageRate);
    assert!(rates > 0 && rows(&findings) > 0);
}

#[test]
fn what_is_measured_to_a_host_is_no_cost_of_this_machine() {
    let mut findings = fixture::findings();
    let rows = |findings: &_| refine::rows(findings, "study", Nanoseconds(1)).len();
    let all = rows(&findings);
    for point in findings.points.iter_mut().filter(|point| point.spec.path == Path::Lab) {
        point.spec.path = Path::Remote("far".into());
    }
    assert!(rows(&findings) < all);
}
