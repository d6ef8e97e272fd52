//! Tables of anything: they are refused or summed up and shown, and nothing panics.

mod synthetic;

use profile::profile::Profile;
use profile::summary::Summary;
use profile::tables::Tables;
use profile::terminal::{Screen, paper, render};
use proptest::prelude::*;
use record::layout::{DIRECTORY, FIRST_REGION};
use synthetic::{Rank, SECOND, job};

fn tables() -> Vec<u8> {
    let mut rank = Rank::new(1, 3, SECOND);
    rank.calls("Send", 0, (0..50).map(|i| (900 + i, 64))).calls("Allreduce", 3, [(1, 8), (1 << 40, 9)]);
    rank.peers(&[(3, 100), (0, 0), (9, 1)]).sites("/no/such", 4096, "Send", &[(17, 3, 900), (21, 1, 5)]);
    rank.finished().bytes()
}

fn show(files: &[Vec<u8>]) -> usize {
    let read = files.iter().filter_map(|bytes| record::rank::Rank::read(bytes).ok());
    let tables: Vec<Tables> = read.filter_map(|rank| Tables::of(rank, "a file".into()).ok()).collect();
    let summary = Summary::of(&Profile::of(job(), tables));
    let text = render(&summary, Screen { width: 100, colour: false, sites: 5 });
    assert!(!text.contains('\x1b') && !paper::render(std::slice::from_ref(&summary)).is_empty());
    assert!(serde_json::to_string(&summary).is_ok());
    summary.ranks.len()
}

#[test]
fn whole_tables_are_shown() {
    assert_eq!(show(&[tables(), tables()]), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn changed_tables_do_not_panic(changes in prop::collection::vec((0usize..1 << 20, prop::sample::select(vec![0u8, 1, 0x7f, 0xff])), 1..60)) {
        let mut bytes = tables();
        for (place, value) in changes {
            // Past the version, in the directory's first entries, and in the records.
            let at = match place % 3 {
                0 => 24 + place / 3 % 900,
                1 => DIRECTORY + place / 3 % 320,
                _ => FIRST_REGION + place / 3 % (bytes.len() - FIRST_REGION),
            };
            bytes[at] = value;
        }
        show(&[tables(), bytes]);
    }
}
