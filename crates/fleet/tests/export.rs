use std::fs::{self, File};
use std::path::Path;

use fleet::export::export;
use fleet::summary::{Gain, Lever, Unjudged};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};

use super::{job, store_of};

fn read(file: &Path) -> Vec<Row> {
    let reader = SerializedFileReader::new(File::open(file).unwrap()).unwrap();
    reader.get_row_iter(None).unwrap().map(Result::unwrap).collect()
}

fn field(row: &Row, name: &str) -> Field {
    row.get_column_iter().find(|(of, _)| *of == name).unwrap_or_else(|| panic!("{name}: {row}")).1.clone()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn all_jobs_are_read_back_from_the_files_of_their_days() {
    let mut jobs: Vec<_> = (0..7).map(|number| job(number, ["solver", "mesher"][number as usize % 2])).collect();
    jobs[5].started += 86_400;
    jobs[6].started += 86_399;
    jobs[6].levers = vec![Gain { lever: Lever::Mapping, share: (-0.25, 0.5) }];
    (jobs[5].wait, jobs[5].program.hash) = (None, None);
    jobs[5].levers.clear();
    jobs[5].unjudged = Some(Unjudged::TooShort);
    let (home, store) = store_of(&jobs);
    let folder = home.path().join("parquet");
    assert_eq!(export(&store, &folder).unwrap(), 7);
    assert_eq!(names(&folder), ["day=2026-01-01", "day=2026-01-02"]);
    assert_eq!(names(&folder.join("day=2026-01-01")), ["part-0.parquet"]);
    let first = read(&folder.join("day=2026-01-01/part-0.parquet"));
    assert_eq!(first.len(), 6);
    let text = |text: &str| Field::Str(text.into());
    assert_eq!(field(&first[0], "program"), text("solver"));
    assert_eq!(field(&first[1], "program"), text("mesher"));
    assert_eq!(field(&first[0], "core_seconds"), Field::Double(36_000.0));
    assert_eq!(field(&first[0], "started"), Field::TimestampMillis(1_767_225_600_000));
    assert_eq!((field(&first[0], "end"), field(&first[0], "unjudged")), (text("finished"), Field::Null));
    assert_eq!(field(&first[5], "mapping_saves_least"), Field::Double(-0.25));
    assert_eq!(
        (field(&first[5], "mapping_saves_most"), field(&first[5], "offload_saves_most")),
        (Field::Double(0.5), Field::Null)
    );
    let second = read(&folder.join("day=2026-01-02/part-0.parquet"));
    assert_eq!(field(&second[0], "unjudged"), text(Unjudged::TooShort.name()));
    assert_eq!((field(&second[0], "wait_share"), field(&second[0], "version")), (Field::Null, Field::Null));
    assert!(export(&store, &folder).unwrap_err().to_string().contains("it has files"));
}

/// The example's year: every job is in one file, and sums over files are those of the store.
#[test]
fn the_example_is_exported_whole() {
    let store = fleet::example::store().unwrap();
    let home = tempfile::tempdir().unwrap();
    let jobs = export(&store, home.path()).unwrap();
    let days = names(home.path());
    assert_eq!((days.len(), &days[0][..], &days[364][..]), (365, "day=2025-01-01", "day=2025-12-31"));
    let all: Vec<Row> = days.iter().flat_map(|day| read(&home.path().join(day).join("part-0.parquet"))).collect();
    let sums = fleet::totals::totals(&store, Default::default(), fleet::totals::By::Month).unwrap();
    assert_eq!((all.len() as u64, sums.jobs), (jobs, jobs));
    let time: f64 =
        all.iter().map(|row| if let Field::Double(time) = field(row, "core_seconds") { time } else { 0.0 }).sum();
    assert!((time / 3_600.0 / sums.core_hours - 1.0).abs() < 1e-9);
}
