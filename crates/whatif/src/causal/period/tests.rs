use machine::costs::Interval;
use profile::job::Job;
use profile::tables::Tables;
use record::image::Image;
use record::layout::{Module, Moment, Site, Thread, clock, kind, text};
use record::rank::Rank;

use super::*;
use crate::causal::within::{Block, Rounds};
use crate::causal::{Amounts, BLOCK_DOSE, Factor, InBlocks, Place, Shown, Target, Work};

const MS: u64 = 1_000_000;

/// A rank that runs 10 s.
fn image(number: u32) -> Image {
    let mut image = Image::default();
    (image.header.rank, image.header.size, image.header.placed) = (number, 2, 1);
    (image.header.clock, image.header.initialized, image.header.finalized) = (clock::MONOTONIC, 1, 10_000 * MS);
    image.header.latest = Moment { ticks: 10_000 * MS, monotonic: 10_000 * MS, realtime: 10_000 * MS };
    image
}

/// A rank that runs 10 s, with marks at these moments, and calls of `Send` at one line and `Recv` at another.
fn marked(number: u32, marks: &[u64], calls: [u64; 2]) -> Image {
    let mut image = image(number);
    image.region(kind::THREAD, 0, (0, 0), &[Thread { tid: 1, ..Thread::default() }.sealed()]);
    let mark = |(nth, ticks): (usize, &u64)| {
        let count = u64::from(COUNTED) * (nth as u64 + 1);
        let mark = Mark { ticks: *ticks, count, on: 1, messages: 0, doses: vec![0] };
        <[u64; 6]>::try_from(mark.words()).unwrap()
    };
    image.of_rank(kind::MARKS, &marks.iter().enumerate().map(mark).collect::<Vec<_>>());
    let module = Module { base: 0, build_id_bytes: 0, seal: 0, build_id: [0; 32], path: text("/opt/step") };
    image.of_rank(kind::MODULES, &[module]);
    let site = |(name, offset, calls): (&str, u64, u64)| Site {
        address: 0x1000 * u64::from(number) + offset,
        offset,
        module: 1,
        function: record::functions::named(name).unwrap().id.0,
        calls,
        ..Site::default()
    };
    let sites = [("Send", 0x10, calls[0]), ("Recv", 0x20, calls[1])].map(site);
    image.region(kind::SITES, 0, (0, 0), &sites);
    image
}

fn rank(number: u32, marks: &[u64], calls: [u64; 2]) -> Tables {
    Tables::of(Rank::read(&marked(number, marks, calls).bytes()).unwrap(), number.to_string()).unwrap()
}

fn profile(marks: [Vec<u64>; 2]) -> Profile {
    let [one, other] = marks;
    Profile::of(Job::default(), vec![rank(0, &one, [500, 900]), rank(1, &other, [400, 900])])
}

/// So many marks from `from` on, `apart` from each other, ms.
fn marks(from: u64, count: u64, apart: u64) -> Vec<u64> {
    (0..count).map(|nth| (from + nth * apart) * MS).collect()
}

/// A start that takes longer than all computing is no part of the run.
#[test]
fn computing_is_the_run_without_its_calls() {
    let rank = |number: u32| {
        let mut image = image(number);
        let id = |name| record::functions::named(name).unwrap().id;
        image.row(0, id("Init"), 0, [(7_000 * MS, 0)]);
        image.row(0, id("Recv"), 0, [(4_000 * MS, 8), (5_000 * MS, 8)]);
        // Another thread's calls go on beside the main one's computing.
        image.row(1, id("Recv"), 0, [(3_000 * MS, 8)]);
        let ticks = |ms: u64| std::array::from_fn(|class| if class == 0 { ms * MS } else { 0 });
        for (thread, ms) in [(0, 16_000), (1, 3_000)] {
            image.region(
                kind::THREAD,
                thread,
                (0, 0),
                &[Thread { tid: 1, ticks: ticks(ms), ..Thread::default() }.sealed()],
            );
        }
        Tables::of(Rank::read(&image.bytes()).unwrap(), number.to_string()).unwrap()
    };
    let shown = Shown::of(&Profile::of(Job::default(), vec![rank(0), rank(1)])).unwrap();
    assert_eq!(shown.ranks.iter().map(|rank| rank.computing.round()).collect::<Vec<_>>(), [1e9 - 1.0; 2]);
}

#[test]
fn period_and_skew_are_those_of_the_marks() {
    // Passes every 2 ms; rank 1 is 3 ms behind.
    let found =
        Period::of(&profile([marks(100, 500, 16), marks(103, 500, 16)]), Progress::Collectives, "all".into()).unwrap();
    assert_eq!((found.passes, found.period.round(), found.skew), (4000, 2e6, 3e6));
    let blocks = found.blocks(4, 7).unwrap();
    // Ten times the skew is 30 ms; twice the skew is 3 passes.
    assert_eq!((blocks.every, blocks.guard, blocks.seed), (15, 3, 7));
    assert_eq!(found.words(), "progress: all, 4,000 times in a run, every 2 ms; ranks are 3 ms apart");
    assert!(
        Period { passes: 100, ..found }
            .blocks(63, 7)
            .unwrap_err()
            .to_string()
            .contains("a round of its delays needs 128")
    );
}

/// A block is a whole number of repetitions of five passes, so is what is measured of it.
#[test]
fn blocks_are_whole_repetitions() {
    let rank = |number: u32| {
        let mut image = marked(number, &marks(100, 500, 16), [0, 900]);
        let of = record::functions::named("Allreduce").unwrap().id.0;
        let sites = [800, 790].map(|calls| Site { function: of, module: 1, calls, ..Site::default() });
        image.region(kind::SITES, 1, (0, 0), &sites);
        Tables::of(Rank::read(&image.bytes()).unwrap(), number.to_string()).unwrap()
    };
    let profile = Profile::of(Job::default(), vec![rank(0), rank(1)]);
    let found = Period::of(&profile, Progress::Collectives, "all".into()).unwrap();
    let blocks = found.blocks(4, 7).unwrap();
    assert_eq!((found.repeats, blocks.every, blocks.guard), (5, 20, 5));
    let all = Period { repeats: 1, ..found }.blocks(4, 7).unwrap();
    assert_eq!((all.every, all.guard), (10, 2));
}

#[test]
fn what_is_no_period_is_refused() {
    let refused = |one: Vec<u64>, other: Vec<u64>| {
        Period::of(&profile([one, other]), Progress::Collectives, "all".into()).unwrap_err().to_string()
    };
    assert!(refused(marks(0, 500, 16), marks(0, 499, 16)).contains("unequally often: 3992 to 4000"));
    assert!(refused(marks(0, 49, 100), marks(0, 49, 100)).contains("392 passes in a run are too few"));
    assert!(refused(marks(0, 100, 10), marks(0, 100, 10)).contains("10 % of a run pass between"));
    let gap = [marks(0, 100, 40), marks(7000, 100, 20)].concat();
    assert!(refused(gap.clone(), gap).contains("30 % between two"));
    assert!(refused(Vec::new(), Vec::new()).contains("0 passes"));
}

/// The files of two ranks that have gone on for so long, ms, with a pass every 2 ms.
fn going_on(place: &std::path::Path, until: u64, finalized: u64) {
    let ranks = place.join(record::folder::RANKS);
    std::fs::create_dir_all(&ranks).unwrap();
    for number in [0, 1] {
        // Rank 1 is 8 ms behind.
        let later = 8 * u64::from(number);
        let mut image = marked(number, &marks(500 + later, (until - 500) / 16 - u64::from(number), 16), [500, 900]);
        image.header.finalized = finalized * MS;
        let latest = until * MS;
        image.header.latest = Moment { ticks: latest, monotonic: latest, realtime: latest };
        image.write(&ranks.join(format!("here.1.{number}.{}", record::folder::RANK_SUFFIX))).unwrap();
    }
}

#[test]
fn a_run_that_goes_on_tells_its_period_once_it_has_blocks_enough() {
    let place = tempfile::tempdir().unwrap();
    let targets = |of: &[Factor]| of.iter().map(|factor| Target { factor: *factor, place: Place::Ranks }).collect();
    let (few, many): (Vec<Target>, Vec<Target>) = (targets(&[Factor::Send]), targets(&[Factor::Send; 31]));
    let told = |targets: &[Target]| is_told(place.path(), Progress::Collectives, targets);
    assert!(!told(&few), "there is no rank");
    going_on(place.path(), 4_000, 0);
    assert!(!told(&few), "4 s are too short");
    going_on(place.path(), 7_000, 0);
    let part = part(place.path()).unwrap();
    let period = Period::of(&part, Progress::Collectives, "all".into()).unwrap();
    assert!((period.period - 2e6).abs() < 1e4 && period.passes == 405 * 8, "{period:?}");
    assert!(told(&few) && part.ranks.iter().all(|rank| rank.run().1 <= 7_000 * MS));
    // 63 columns need 128 blocks of 80 ms, ten times the ranks' distance.
    assert!(!told(&many), "6.5 s have too few blocks");
    going_on(place.path(), 7_000, 7_000);
    assert!(!told(&few), "it is over");
}

#[test]
fn a_call_site_is_a_candidate_where_all_ranks_pass_it_equally_often() {
    let all = candidates(&profile([Vec::new(), Vec::new()]));
    assert_eq!(all.iter().map(|of| (of.name.as_str(), of.calls)).collect::<Vec<_>>(), [("MPI_Recv at step+0x20", 900)]);
    for name in ["Recv", "MPI_Recv", "step+0x20"] {
        assert_eq!(named(&all, name).unwrap(), &all[0]);
    }
    let refused = named(&all, "Send").unwrap_err();
    assert!(refused.cause().contains("equally often") && refused.next().contains("step+0x20"), "{refused}");
}

/// A counting run of two ranks in 10 s, and its period of 2 ms.
fn counted() -> (Shown, Period) {
    let amounts = Amounts { delays: [10_000, 10_000, 0], bytes: 0, computing: 5e9 };
    let first = Shown {
        elapsed: 1e10,
        given: [(0, 0.0); 3],
        ranks: vec![amounts.clone(), amounts],
        messages: 20_000,
        bytes: 0,
        sizes: Vec::new(),
        marks: 0,
    };
    let period = Period {
        progress: Progress::Collectives,
        name: "all".into(),
        passes: 4000,
        period: 2e6,
        repeats: 1,
        skew: 0.0,
    };
    (first, period)
}

#[test]
fn doses_of_blocks_leave_room_for_all_factors_of_a_rank() {
    let (first, period) = counted();
    let of = |targets: &[Target]| InBlocks::of(targets, &first, period.clone(), 7, BLOCK_DOSE).unwrap();
    let target = |factor, place| Target { factor, place };
    let one = of(&target(Factor::Send, Place::Ranks).each(2));
    // 4 % of 10 s for 10,000 messages, in each rank alone.
    let columns: Vec<_> = one.schedule.columns.iter().map(|column| (column.send, column.rank)).collect();
    assert_eq!(columns, [(Some(0.0), None), (Some(40_000.0), Some(0)), (Some(40_000.0), Some(1))]);
    let all = [Factor::Send, Factor::Receive, Factor::Compute].map(|factor| target(factor, Place::Everywhere));
    let three = of(&all);
    assert_eq!(three.schedule.columns[2].receive, Some(30_000.0));
    assert!((three.schedule.columns[3].compute - 0.06).abs() < 1e-9);
}

/// Two ranks, blocks of 10 passes of 2 ms; in each `send` takes 1 ms of each of both ranks' blocks where it is on, of which all
/// lengthens the block; the next block is `later` times as much longer.
fn findings(later: f64, slower: f64) -> crate::causal::Findings {
    let (first, period) = counted();
    let targets = [Factor::Send, Factor::Compute].map(|factor| Target { factor, place: Place::Everywhere });
    let design = InBlocks::of(&targets, &first, period, 7, BLOCK_DOSE).unwrap();
    let mut rounds = Rounds::new(&design.schedule);
    let on = |number: u64, column: usize| (design.schedule.on(number) >> column & 1) as f64;
    let before = |number: u64| if number > 0 { on(number - 1, 1) } else { 0.0 };
    let blocks: Vec<Block> = (0..400)
        .map(|number| Block {
            number,
            took: 16e6 * slower
                + 2e6 * on(number, 1)
                + later * 2e6 * before(number)
                + 1e6 * on(number, 2)
                + (number % 7) as f64 * 1e3,
            doses: vec![0.0, 2e6 * on(number, 1), 2e6 * on(number, 2)],
            messages: 40.0,
        })
        .collect();
    rounds.add(&blocks, &design.schedule);
    let mut findings = crate::causal::Findings::within(&design, &first, &rounds, 1, 0);
    findings.weigh(&first, None);
    findings
}

#[test]
fn the_page_has_slopes_with_the_profiles_share_and_says_what_is_doubtful() {
    let found = findings(0.0, 1.0);
    let [send, compute] = &found.slopes[..] else { panic!("{found:?}") };
    let middle = |slope: &crate::causal::Slope| (100.0 * slope.interval.unwrap().middle).round();
    assert_eq!((middle(send), middle(compute)), (100.0, 50.0));
    // Both ranks compute half of the run, and half of what is added to that counts.
    let share = compute.share.unwrap();
    assert_eq!((send.share, (100.0 * share.on_path.middle).round(), share.mean, share.most), (None, 50.0, 0.5, 0.5));
    let page = crate::causal::page(&found);
    assert!(found.notes.is_empty() && found.is_null() && !found.is_open(), "{page}");
    assert!(page.contains("Delays are on in half of 392 blocks of 17.50 ms in 1 run.\n"), "{page}");
    assert!(page.contains("  compute: 50.0 % (50.0 .. 50.0 %); ranks 50.0 % on average, 50.0 % at most\n"), "{page}");
    assert!(page.contains("send: delays before messages, 10.8 % of a block in all ranks together\n"), "{page}");
    // Each rank sends 10,000 messages, 10 us of work each, in 10 s.
    let mut priced = found;
    let work = Work { message: Interval::exactly(1e4), byte: Interval::exactly(0.0) };
    priced.weigh(&counted().0, Some(&work));
    let page = crate::causal::page(&priced);
    assert!(page.contains("  send: 2.0 % (2.0 .. 2.0 %); ranks 1.0 % on average, 1.0 % at most\n"), "{page}");
    assert!(page.contains("  sum: 52.0 % (52.0 .. 52.0 %); ranks 51.0 %\n"), "{page}");
    let later = findings(0.5, 1.0);
    assert!(
        later.notes.iter().any(|note| note.contains("delays of send change the next block too, by 50 %")),
        "{later:?}"
    );
    let slower = findings(0.0, 3.0);
    assert!(slower.notes.iter().any(|note| note.contains("times as long as in the first run")), "{slower:?}");
}
