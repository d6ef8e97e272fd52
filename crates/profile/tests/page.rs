//! What the page holds, and that nothing gets out of it.

use crate::fixture;
use machine::Reading;
use profile::page::render;

#[test]
fn the_page_says_what_the_summary_says() {
    let page = render(&fixture::traced(8));
    for said in [
        "This program gains from offload",
        "Each rank&#39;s time",
        "exchange_halo (halo.c:120)",
        "MPI_Allreduce",
        "rank 0 to rank 1: 4,900 messages",
        "modelled",
        "no powercap zone on this machine",
        "21 ns a call",
        "The critical path, of what was waited for, took 12 s: 75.0 % of it outside of MPI, 5.0 % in calls of which",
        "What messages cost was not measured",
        "9,602",
    ] {
        assert!(page.contains(said) || page.contains(&said.replace("&#39;", "'")), "{said}");
    }
    let without = render(&fixture::summary(8));
    assert!(without.contains("The ranks spent"), "the figures speak where there is no verdict");
    assert!(!without.contains("id=\"timeline\""));
    assert!(page.contains("On the path") && !without.contains("On the path") && !without.contains("critical path"));
}

/// What may all be waiting is not said to be none.
#[test]
fn time_that_could_not_be_divided_is_not_said_to_be_none() {
    let mut summary = fixture::summary(2);
    let totals = &mut summary.totals;
    (totals.split.wait, totals.split.undivided) = (Reading::Modelled(0.0), 0.9 * totals.thread_seconds);
    assert!(render(&summary).contains("0 to 90 %"));
}

#[test]
fn nothing_from_outside_becomes_an_element() {
    let page = render(&fixture::hostile());
    assert_eq!(page.matches("<script").count(), 1, "our own");
    assert_eq!(page.matches("</script").count(), 1);
    assert!(!page.contains("<img") && !page.contains('\u{1b}') && !page.contains('\0'));
    assert!(page.contains("2 entries name ranks") || page.contains("1 entries name ranks"));
}

#[test]
fn it_loads_nothing() {
    let page = render(&fixture::traced(8));
    for outside in ["http:", "https:", "url(", "@import", "src=", "<link"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn what_is_absent_says_why_and_is_no_number() {
    let page = render(&fixture::without_sensors(4));
    assert!(page.contains("not permitted: tracefs is root"));
    assert!(page.contains("ended by signal 9") && page.contains("12 call sites found no place"));
    assert!(page.contains("in MPI_Wait for 3.2 s"));
    assert!(!page.contains(">NaN") && !page.contains(">inf"));
    let page = render(&fixture::empty());
    assert!(page.contains("No rank was recorded") && !page.contains(">NaN"));
}

#[test]
fn a_thousand_ranks_stay_a_page_that_can_be_sent() {
    let page = render(&fixture::traced(1000));
    assert!(page.len() < 4 << 20, "{} bytes", page.len());
    assert!(page.contains("16 ranks share a cell"));
}
