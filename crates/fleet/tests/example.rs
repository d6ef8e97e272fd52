//! The example is the same on every machine, and so are its pages.

use fleet::example::{LABEL, store};
use fleet::history::history;
use fleet::totals::{Asked, By, totals};
use fleet::{page, rows, terminal};

#[test]
fn the_sums_of_the_example() {
    let sums = totals(&store().unwrap(), Asked::default(), By::Partition).unwrap();
    insta::assert_snapshot!(terminal::render(&sums, Some(4.0)));
    insta::assert_snapshot!(rows::sums(&sums));
    assert!(sums.programs.len() >= 8);
}

#[test]
fn a_program_of_the_example() {
    let store = store().unwrap();
    let history = history(&store, "molecules").unwrap().unwrap();
    insta::assert_snapshot!(terminal::history(&history, None));
    insta::assert_snapshot!(rows::history(&history));
    insta::assert_snapshot!(page::history(&history, None, "example").split("<main").nth(1).unwrap());
}

/// One version of one program was made slower, and no other step is found.
#[test]
fn the_example_has_one_step() {
    let store = store().unwrap();
    let programs = totals(&store, Asked::default(), By::Program).unwrap().groups;
    let steps: Vec<_> = programs
        .iter()
        .map(|program| history(&store, &program.name).unwrap().unwrap())
        .flat_map(|history| history.steps.into_iter().map(move |step| (history.program.clone(), step.day)))
        .collect();
    assert_eq!(steps, [("molecules".to_owned(), "2025-08-12".to_owned())]);
}

#[test]
fn every_form_says_that_it_is_an_example() {
    let store = store().unwrap();
    let sums = totals(&store, Asked::default(), By::Month).unwrap();
    let history = history(&store, "ocean").unwrap().unwrap();
    let json = [serde_json::to_value(&sums).unwrap(), serde_json::to_value(&history).unwrap()];
    assert!(json.iter().all(|json| json["label"] == LABEL));
    assert!(
        [terminal::render(&sums, None), terminal::history(&history, None)].iter().all(|text| text.starts_with(LABEL))
    );
    assert!([page::render(&sums, None, ""), page::history(&history, None, "")].iter().all(|page| page.contains(LABEL)));
}
