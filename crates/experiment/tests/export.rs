//! Golden exports of a small study.

use experiment::conduct::conduct;
use experiment::designs::Beginning;
use experiment::export::{Format, export};
use experiment::findings::Fact;
use experiment::store::Store;
use rounds::point::PointSpec;
use rounds::sitting::End;

use crate::simulated::{Notes, Simulated, duel, plausible};
use machine::{Nanoseconds, Result};

fn exported(format: Format) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(&folder.path().join("study.sqlite")).unwrap();
    let design = duel();
    let facts = [Fact { name: "processor".into(), value: "simulated".into() }];
    let mut study = store
        .begin(&Beginning { design: &design, seed: 4, host: "h", version: "0", facts: &facts, now: Nanoseconds(7) })
        .unwrap();
    let asked = std::cell::Cell::new(0);
    let stop = || asked.replace(asked.get() + 1) == 4;
    let mut runner = Simulated { noise: 0.0, ..Simulated::new(plausible, 1) };
    assert_eq!(conduct(&mut store, &mut study, &mut runner, &mut Notes::default(), &stop).unwrap(), End::Interrupted);
    // How long a simulated block took is the one thing that is not a formula.
    study.spent = Nanoseconds(0);
    let mut out = Vec::new();
    export(&study, &store.contents(&study).unwrap(), format, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn csv() {
    insta::assert_snapshot!(exported(Format::Csv));
}

#[test]
fn json() {
    insta::assert_snapshot!(exported(Format::Json));
}

#[test]
fn csv_quotes_what_needs_it() -> Result<()> {
    struct Talkative(Simulated);
    impl rounds::sample::Runner for Talkative {
        fn run_block(&mut self, spec: &PointSpec, round: u32, order: u32) -> Result<rounds::sample::Sample> {
            let mut sample = self.0.run_block(spec, round, order)?;
            sample.notes = vec!["engine yields, \"core 1\" is the peer's".into(), "a second\nline".into()];
            Ok(sample)
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(&folder.path().join("study.sqlite"))?;
    let design = duel();
    let mut study = store.begin(&Beginning {
        design: &design,
        seed: 4,
        host: "h",
        version: "0",
        facts: &[],
        now: Nanoseconds(7),
    })?;
    conduct(&mut store, &mut study, &mut Talkative(Simulated::new(plausible, 1)), &mut Notes::default(), &|| false)?;
    let mut out = Vec::new();
    export(&study, &store.contents(&study)?, Format::Csv, &mut out)?;
    let mut reader = csv::Reader::from_reader(out.as_slice());
    let notes: Vec<_> = reader.records().map(|r| r.unwrap().iter().next_back().unwrap().to_string()).collect();
    assert!(notes.len() >= 10);
    assert!(notes.iter().all(|n| n == "engine yields, \"core 1\" is the peer's; a second\nline"));
    Ok(())
}

#[test]
fn a_full_output_is_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(&folder.path().join("study.sqlite")).unwrap();
    let design = duel();
    let study = store
        .begin(&Beginning { design: &design, seed: 4, host: "h", version: "0", facts: &[], now: Nanoseconds(7) })
        .unwrap();
    let mut full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    for format in [Format::Csv, Format::Json] {
        let fault = export(&study, &store.contents(&study).unwrap(), format, &mut full).unwrap_err();
        assert!(fault.cause().contains("No space left"), "{fault}");
    }
}
