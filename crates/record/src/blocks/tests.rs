use proptest::prelude::*;

use super::*;
use crate::image::Image;
use crate::layout::kind;
use crate::rank::Rank;

fn schedule(columns: usize, seed: u64) -> Schedule {
    let blocks = Blocks { progress: Progress::Collectives, every: 40, guard: 4, seed };
    Schedule {
        blocks: Some(blocks),
        columns: vec![Perturbation { send: Some(0.0), ..Perturbation::default() }; columns],
    }
}

#[test]
fn each_column_is_on_in_half_of_a_round_and_apart_from_every_other() {
    for columns in [1, 2, 3, 4, 7, 8, 17] {
        let of = schedule(columns, 7);
        let on: Vec<u64> = (0..1 + 2 * of.round()).map(|block| of.on(block)).collect();
        let sign = |block: u64, column: usize| if on[block as usize] >> column & 1 == 1 { 1i64 } else { -1 };
        for round in 0..2 {
            let blocks = 1 + round * of.round()..1 + (round + 1) * of.round();
            for one in 0..columns {
                assert_eq!(blocks.clone().map(|block| sign(block, one)).sum::<i64>(), 0, "{columns}");
                for other in 0..one {
                    let both = |block: u64| sign(block, one) * sign(block, other);
                    assert_eq!(blocks.clone().map(both).sum::<i64>(), 0);
                    // Nor is what two do together that of any third.
                    for third in (0..columns.min(9)).filter(|third| ![one, other].contains(third)) {
                        assert_eq!(blocks.clone().map(|block| both(block) * sign(block, third)).sum::<i64>(), 0);
                    }
                }
            }
        }
        assert_eq!(of.on(0), 0);
    }
}

#[test]
fn the_order_of_a_round_is_fair_and_another_with_each_seed() {
    let first = schedule(1, 1);
    let on = |seed| (1..2000).map(|block| schedule(1, seed).on(block)).collect::<Vec<_>>();
    assert_ne!(on(1), on(2));
    // The first block of a round is on in half of the rounds, and neighbouring rounds have nothing in common.
    let begins: Vec<u64> = (0..4000).map(|round| first.on(1 + 2 * round)).collect();
    let ons = begins.iter().sum::<u64>();
    let alike = begins.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert!((1850..2150).contains(&ons) && (1850..2150).contains(&alike), "{ons} {alike}");
    let of = schedule(63, 3);
    let place = |round: u64| (0..128).position(|place| of.on(1 + 128 * round + place) == 0).unwrap();
    let mean = (0..500).map(place).sum::<usize>() as f64 / 500.0;
    assert!((mean - 63.5).abs() < 8.0, "{mean}");
}

#[test]
fn without_blocks_all_is_on_and_the_text_is_that_of_one_perturbation() {
    let plain: Schedule = "send=1us,rank=3".parse().unwrap();
    assert_eq!((plain.blocks, plain.on(0), plain.to_string().as_str()), (None, !0, "send=1us,rank=3"));
    assert_eq!((schedule(3, 0).on(0), schedule(3, 0).on(9)), (7, 7));
}

#[test]
fn what_is_wrong_is_refused() {
    for text in [
        "",
        "send=1us/send=2us",
        "progress=collectives,every=40,guard=4,seed=7",
        "progress=collectives,every=4,guard=4,seed=7/send=0",
        "progress=collectives,guard=0,every=4,seed=7/send=0",
        "progress=Sent+1@2,every=4,guard=0,seed=7/send=0",
        "progress=collectives,every=4,guard=0,seed=7,more=1/send=0",
    ] {
        assert!(text.parse::<Schedule>().is_err(), "{text}");
    }
}

#[test]
fn a_mark_reads_back_and_damage_is_found() {
    let mark = Mark { ticks: 5, count: 40, on: 3, messages: 17, doses: vec![0, 900, 3] };
    let words = mark.words();
    let bytes = words.as_bytes();
    assert_eq!((bytes.len(), Mark::read(bytes)), (Mark::bytes(3), Some(mark)));
    let mut damaged = bytes.to_vec();
    damaged[33] ^= 1;
    assert_eq!((Mark::read(&damaged), Mark::read(&bytes[8..]), Mark::read(&[])), (None, None, None));
}

proptest! {
    #[test]
    fn what_is_written_reads_back(
        every in 1u32..1000, seed: u64, offset: u64, module: u64, of_site: bool, columns in 1usize..64, guard: prop::sample::Index,
    ) {
        let function = functions::named("Allreduce").unwrap().id;
        let progress = if of_site { Progress::Site { function, offset, module } } else { Progress::Collectives };
        let blocks = Blocks { progress, every, guard: guard.index(every as usize) as u32, seed };
        let one = Schedule { blocks: Some(blocks), ..schedule(columns, 0) };
        prop_assert_eq!(one.to_string().parse::<Schedule>().unwrap(), one);
    }

    #[test]
    fn nothing_makes_it_panic(text in "(progress=)?.{0,40}") {
        let _ = text.parse::<Schedule>();
    }
}

#[test]
fn marks_are_read_from_tables_and_a_damaged_one_is_refused() {
    let marks: Vec<Mark> =
        (1..4).map(|nth| Mark { ticks: 100 * nth, count: 8 * nth, on: 1, messages: 7, doses: vec![nth] }).collect();
    let read = |change: u64| {
        let mut image = Image::default();
        let mut words: Vec<[u64; 6]> = marks.iter().map(|mark| mark.words().try_into().unwrap()).collect();
        words[1][4] ^= change;
        image.of_rank(kind::MARKS, &words);
        Rank::read(&image.bytes())
    };
    assert_eq!(read(0).unwrap().marks, marks);
    assert!(read(1).unwrap_err().cause().contains("a record in it is damaged"));
}
