//! Tables of anything: they are refused or summed up and shown, nothing panics, and no figure of a damaged file passes for
//! a fact.

use std::fs;
use std::mem::offset_of;
use std::path::Path;

use crate::synthetic::{Rank, SECOND, job, write};
use profile::csv_tables;
use profile::page;
use profile::printable::json;
use profile::profile::Profile;
use profile::summary::{RankSummary, State, Summary};
use profile::tables::Tables;
use profile::terminal::{Screen, paper, render};
use proptest::prelude::*;
use record::folder;
use record::functions::named;
use record::layout::{Cell, DIRECTORY, FIRST_REGION, Header, Peer, Region, Site, Thread, kind};
use record::scale::size_class;

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

/// Three ranks, of which the last was killed.
fn ranks() -> Vec<Rank> {
    let rank = |me: u32| {
        let mut rank = Rank::new(me, 3, 10 * SECOND);
        rank.calls("Send", 0, (0..500).map(|i| (900 + i, 64))).calls("Allreduce", 3, (0..200).map(|i| (9_000 + i, 8)));
        rank.peers(&[(0, 0), (400, 400 * 64), (100, 6_400)]);
        let sum = (0..500).map(|i| 900 + i).sum::<u64>();
        rank.sites("/no/such", 0x40_0000, "Send", &[(0x1234, 500, sum)]);
        if me == 2 {
            let header = &mut rank.image.header;
            (header.finalized, header.ended) = (0, 0);
            header.dropped.sites = 200 + 2;
        }
        rank
    };
    (0..3).map(rank).collect()
}

/// All ways in which a profile is shown have nothing in them that a terminal obeys.
fn shown(profile: &Path) -> Summary {
    let summary = Summary::of(&Profile::open(profile).unwrap());
    let unprintable = |text: &str| text.chars().find(|c| c.is_control() && *c != '\n');
    let text = render(&summary, Screen { width: 100, colour: false, sites: 5 });
    assert_eq!(unprintable(&text), None, "{text:?}");
    assert_eq!(unprintable(&paper::render(std::slice::from_ref(&summary))), None);
    assert_eq!(unprintable(&json(&summary).unwrap()), None);
    assert_eq!(unprintable(&page::render(&summary)), None);
    for file in csv_tables::write(&summary, &profile.join("csv")).unwrap() {
        assert_eq!(unprintable(&fs::read_to_string(file).unwrap()), None);
    }
    summary
}

/// What the tables of one rank say, whoever else is shown.
fn figures(rank: &RankSummary) -> String {
    let bare = RankSummary { split: Default::default(), classes: Default::default(), ..rank.clone() };
    format!("{bare:?}")
}

fn file(profile: &Path, rank: u32) -> std::path::PathBuf {
    folder::rank_file(profile, "node-a", 1000 + rank)
}

#[test]
fn a_rank_with_overwritten_tables_is_named_and_left_out() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &job(), &mut ranks());
    let whole = shown(folder.path());
    assert!(whole.ranks.len() == 3 && whole.job.notes.iter().all(|note| !note.contains("left out")), "{:?}", whole.job);

    let mut bytes = fs::read(file(folder.path(), 1)).unwrap();
    let rows = FIRST_REGION + 70_000;
    bytes[rows..rows + 3000].fill(0xa5);
    fs::write(file(folder.path(), 1), &bytes).unwrap();
    let summary = shown(folder.path());
    assert_eq!(summary.ranks.iter().map(|rank| rank.rank).collect::<Vec<_>>(), [0, 2]);
    let [note] = summary.job.notes.iter().filter(|note| note.contains("rank 1")).collect::<Vec<_>>()[..] else {
        panic!("{:?}", summary.job.notes)
    };
    assert!(note.starts_with("left out: rank 1, ") && note.contains("its part ") && note.contains("Next: "), "{note}");
    assert!(!summary.job.complete && summary.job.expected == 3);
    assert_eq!(figures(&summary.ranks[0]), figures(&whole.ranks[0]));

    // Of one that was killed what does not agree is shown with that said, but for what cannot be.
    let mut bytes = fs::read(file(folder.path(), 2)).unwrap();
    let thread = offset_of_kind(&bytes, kind::THREAD) + 16;
    bytes[thread] ^= 1;
    fs::write(file(folder.path(), 2), &bytes).unwrap();
    let summary = shown(folder.path());
    assert_eq!(summary.ranks.last().map(|rank| (rank.rank, rank.state)), Some((2, State::Killed)));
    let doubts = |summary: &Summary| summary.job.notes.iter().filter(|note| note.contains("may be wrong")).count();
    assert!(doubts(&summary) == 1 && !summary.job.complete, "{:?}", summary.job.notes);
    // Ticks in MPI of its first class of functions: 2^62 of them.
    bytes[thread + 24 + 7] ^= 0x40;
    fs::write(file(folder.path(), 2), &bytes).unwrap();
    let summary = shown(folder.path());
    assert_eq!((summary.ranks.len(), doubts(&summary)), (1, 0));
    assert!(summary.job.notes.iter().any(|note| note.starts_with("left out: rank 2, ")), "{:?}", summary.job.notes);
}

fn offset_of_kind(bytes: &[u8], kind: u16) -> usize {
    offset_of(bytes, |region| region.kind == kind)
}

fn offset_of(bytes: &[u8], is: impl Fn(&Region) -> bool) -> usize {
    use zerocopy::FromBytes;
    let entries = bytes[DIRECTORY..FIRST_REGION].chunks_exact(size_of::<Region>());
    let mut regions = entries.map(|entry| Region::read_from_bytes(entry).unwrap());
    regions.find(is).unwrap().offset as usize
}

/// Each count and time of a killed rank in turn is what none can be. What is summed of all ranks is of the others.
#[test]
fn a_rank_that_did_more_than_its_time_holds_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &job(), &mut ranks());
    let bytes = fs::read(file(folder.path(), 2)).unwrap();
    let send = named("Send").unwrap().id.0;
    let row = offset_of(&bytes, |region| region.kind == kind::ROW && region.function == send);
    let cell = row + size_class(64) * size_of::<Cell>();
    let thread = offset_of_kind(&bytes, kind::THREAD);
    let peer = offset_of_kind(&bytes, kind::PEERS) + size_of::<Peer>();
    let site = offset_of_kind(&bytes, kind::SITES);
    let of_thread = [
        offset_of!(Thread, calls),
        offset_of!(Thread, messages),
        offset_of!(Thread, bytes),
        offset_of!(Thread, ticks) + 3 * 8,
        offset_of!(Thread, injected),
        offset_of!(Thread, injected) + 8,
    ];
    let of_cell = [
        offset_of!(Cell, calls),
        offset_of!(Cell, ticks),
        offset_of!(Cell, bytes),
        offset_of!(Cell, most),
        offset_of!(Cell, histogram) + 5 * 8,
    ];
    let of_site = [offset_of!(Site, calls), offset_of!(Site, ticks), offset_of!(Site, most), offset_of!(Site, bytes)];
    let of_peer = [0, 8, 16, 24];
    let of_dropped = (0..11).map(|place| offset_of!(Header, dropped) + 8 * place);
    let places = of_thread.map(|at| thread + at).into_iter().chain(of_cell.map(|at| cell + at));
    let places = places.chain(of_site.map(|at| site + at)).chain(of_peer.map(|at| peer + at)).chain(of_dropped);
    for place in places {
        for value in [1 << 62, u64::MAX] {
            let mut damaged = bytes.clone();
            damaged[place..place + 8].copy_from_slice(&value.to_le_bytes());
            is_left_out(folder.path(), &damaged, &format!("{value} at {place}"));
        }
    }
    // In a call since a moment that is not yet.
    let mut damaged = bytes.clone();
    damaged[thread + offset_of!(Thread, inside)] = send as u8 + 1;
    damaged[thread + offset_of!(Thread, since)..][..8].copy_from_slice(&u64::MAX.to_le_bytes());
    is_left_out(folder.path(), &damaged, "since");
}

fn is_left_out(profile: &Path, third: &[u8], what: &str) {
    fs::write(file(profile, 2), third).unwrap();
    let summary = shown(profile);
    let notes = &summary.job.notes;
    assert_eq!(summary.ranks.iter().map(|rank| rank.rank).collect::<Vec<_>>(), [0, 1], "{what}: {notes:?}");
    let named = notes.iter().filter(|note| note.starts_with("left out: rank 2, ") && note.contains("by them it "));
    assert_eq!(named.count(), 1, "{what}: {notes:?}");
    assert!(summary.totals.messages == 1000 && !summary.job.complete, "{what}: {:?}", summary.totals);
}

#[test]
fn a_host_that_names_itself_by_escapes_cannot_drive_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let mut ranks = ranks();
    for rank in &mut ranks {
        rank.image.header.program = record::layout::text("/bin/\x1b[2J\u{9b}\x7f\rx");
        rank.image.header.library = record::layout::text("\x1b]0;mine\x07");
        rank.image.header.world = record::layout::text("w\x1b[31m");
    }
    let escaping = profile::job::Job { command: vec!["a\x1b[2J".into(), "\u{9b}31m".into()], ..job() };
    write(folder.path(), &escaping, &mut ranks);
    assert_eq!(shown(folder.path()).ranks.len(), 3);
}

/// Bytes over one run of the file, or over places all over it.
fn overwrite(bytes: &mut [u8], seed: u64, count: usize, scattered: bool) {
    let mut state = seed | 1;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    // Half of the time in the header and the directory's first entries, which are a small part of the file.
    let span = if random() % 2 == 0 { bytes.len() } else { size_of::<Header>() + DIRECTORY + 400 };
    let start = random() as usize % span;
    for nth in 0..count {
        let at = if scattered { random() as usize % span } else { start + nth };
        if let Some(byte) = bytes.get_mut(at) {
            *byte = random() as u8;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    #[ignore = "make check"]
    fn figures_are_of_whole_tables_or_marked(
        which in 0u32..3,
        seed in any::<u64>(),
        count in 1usize..=3000,
        scattered in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &job(), &mut ranks());
        let whole = Summary::of(&Profile::open(folder.path()).unwrap());
        let path = file(folder.path(), which);
        let mut bytes = fs::read(&path).unwrap();
        overwrite(&mut bytes, seed, count, scattered);
        fs::write(&path, &bytes).unwrap();
        let summary = shown(folder.path());
        let names = |note: &&String| note.contains(&format!("rank {which}")) || note.contains(&*path.to_string_lossy());
        let marked = summary.job.notes.iter().any(|note| names(&note));
        for rank in &summary.ranks {
            let known = whole.ranks.iter().find(|known| known.rank == rank.rank);
            let is_fact = known.is_some_and(|known| figures(known) == figures(rank));
            prop_assert!(is_fact || marked, "{:?}\n{rank:?}", summary.job.notes);
        }
        prop_assert!(summary.ranks.len() == 3 || marked, "{:?}", summary.job.notes);
    }
}
