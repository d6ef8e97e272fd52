use fleet::history::history;
use fleet::rows;
use fleet::totals::{Asked, By, totals};

use super::{job, store_of};

fn read(text: &str) -> (Vec<String>, Vec<Vec<String>>) {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let words = |record: &csv::StringRecord| record.iter().map(str::to_owned).collect::<Vec<_>>();
    let head = words(reader.headers().unwrap());
    (head, reader.records().map(|record| words(&record.unwrap())).collect())
}

#[test]
fn words_of_users_are_one_field() {
    let name = "a,\"b\" 'c';d";
    let mut unjudged = job(2, "plain");
    unjudged.levers.clear();
    let (_home, store) = store_of(&[job(1, name), unjudged]);
    let (head, rows) = read(&rows::sums(&totals(&store, Asked::default(), By::Program).unwrap()));
    assert_eq!(head[..4], ["program", "jobs", "core_hours", "mpi_percent"]);
    assert_eq!(rows[0], [name, "1", "10.000000", "50.000000", "offload", "1.000000", "2.000000"]);
    assert_eq!(rows[1], ["plain", "1", "10.000000", "50.000000", "", "", ""]);
}

#[test]
fn what_is_not_known_of_a_program_is_empty() {
    let mut first = job(1, "solver");
    (first.mpi, first.wait) = (None, None);
    let (_home, store) = store_of(&[first, {
        let mut later = job(2, "solver");
        later.started += 200 * 86_400;
        later
    }]);
    let (head, rows) = read(&rows::history(&history(&store, "solver").unwrap().unwrap()));
    assert_eq!(head[5..], ["wait_percent", "wait_least_percent", "wait_most_percent", "step_day", "step_points"]);
    assert_eq!(rows[0], ["2026-01", "1", "10.000000", "1.000000", "", "", "", "", "", ""]);
    assert_eq!(rows[1], ["2026-07", "1", "10.000000", "1.000000", "50.000000", "25.000000", "", "", "", ""]);
}
