use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::*;
use crate::functions::{functions, named};

const SHIFT: u32 = 1;
const STARTED: u64 = 1 << 40;
const THREAD: u16 = 3;

#[derive(Debug, Clone, PartialEq)]
struct Made {
    call: Call,
    references: Vec<Reference>,
    matched: Vec<Matched>,
}

fn header() -> Header {
    Header::new(SHIFT, STARTED, 77, THREAD)
}

fn encoded(calls: &[Made]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut encoder = Encoder::new(&header());
    for made in calls {
        let mut out = vec![0xee; Encoder::room(made.references.len(), made.matched.len())];
        assert_eq!(encoder.encode(&made.call, &made.references, &made.matched, &mut out[1..]), None);
        let length = encoder.encode(&made.call, &made.references, &made.matched, &mut out).expect("room for it");
        all.push(out[..length].to_vec());
    }
    all
}

/// A file with these calls in one closed block.
fn written(calls: &[Made]) -> Vec<u8> {
    block::file(&header(), &encoded(calls).concat())
}

/// A file in blocks of `many` calls; the last block is open.
fn written_open(calls: &[Made], many: usize) -> Vec<u8> {
    let mut file = header().as_bytes().to_vec();
    let encoded = encoded(calls);
    let blocks: Vec<Vec<u8>> = encoded.chunks(many).map(|calls| calls.concat()).collect();
    for (place, calls) in blocks.iter().enumerate() {
        let at = file.len() as u64;
        let word = if place + 1 == blocks.len() { block::open(at) } else { block::closed(at, calls) };
        file.extend(word.to_le_bytes());
        file.extend(calls);
    }
    file
}

fn read(file: &[u8]) -> (Vec<Event>, bool) {
    let mut decoder = Decoder::new(file).unwrap();
    let mut events = Vec::new();
    loop {
        match decoder.next_event() {
            Ok(Some(event)) => events.push(event.clone()),
            Ok(None) => return (events, true),
            Err(_) => return (events, false),
        }
    }
}

/// The events that a reader must return, with times in units; no call begins before the one before has ended.
fn expected(calls: &[Made]) -> Vec<Event> {
    let (mut last, mut operation) = (STARTED >> SHIFT << SHIFT, 0);
    let cut = |ticks: u64| ticks >> SHIFT << SHIFT;
    calls
        .iter()
        .map(|made| {
            let mut call = made.call;
            call.entered = cut(call.entered).max(last);
            call.left = cut(call.left).max(call.entered);
            last = call.left;
            let first = operation;
            operation += u64::from(call.begun);
            Event { call, operation: first, references: made.references.clone(), matched: made.matched.clone() }
        })
        .collect()
}

/// Seeds of calls; references are resolved by what was begun before.
type Seed =
    ((u16, u16), u32, i32, i32, u64, (u64, u64), Option<(i32, i32, u64)>, (u8, Vec<u64>, u16), Vec<(i32, i32, u64)>);

fn seeds() -> impl Strategy<Value = Vec<Seed>> {
    let wild = || prop_oneof![8 => -4..30i32, 1 => any::<i32>()];
    let bytes = || prop_oneof![4 => 0..5000u64, 1 => any::<u64>()];
    let time = || prop_oneof![8 => 0..10_000u64, 2 => 0..1u64 << 40, 1 => 0..1u64 << 60];
    let seed = (
        (0..functions().len() as u16, prop_oneof![8 => 0..5u16, 1 => any::<u16>()]),
        prop_oneof![8 => 0..4u32, 1 => any::<u32>()],
        wild(),
        wild(),
        bytes(),
        (time(), time()),
        proptest::option::weighted(0.2, (wild(), wild(), bytes())),
        (0..5u8, proptest::collection::vec(any::<u64>(), 0..6), 0..600u16),
        proptest::collection::vec((wild(), wild(), bytes()), 0..2),
    );
    proptest::collection::vec(seed, 0..60)
}

fn made(seeds: Vec<Seed>) -> Vec<Made> {
    let (mut now, mut begun) = (STARTED, 0u64);
    let mut calls: Vec<Made> = Vec::new();
    for ((function, site), communicator, peer, tag, bytes, (gap, duration), second, (kind, picks, run), matched) in
        seeds
    {
        let mut call = Call::new(FunctionId(function), now.saturating_add(gap), 0);
        call.left = call.entered.saturating_add(duration);
        now = call.left;
        (call.site, call.communicator, call.peer, call.tag, call.bytes) = (site, communicator, peer, tag, bytes);
        if let Some((source, source_tag, source_bytes)) = second {
            (call.source, call.source_tag, call.source_bytes) = (source, source_tag, source_bytes);
        }
        let thread = if kind == 4 { 9 } else { THREAD };
        let references: Vec<_> = match kind {
            0 => Vec::new(),
            1 if begun > 0 => {
                let count = u64::from(run).min(begun);
                (begun - count..begun).map(|ordinal| Reference { thread, ordinal }).collect()
            }
            4 => picks.iter().map(|pick| Reference { thread, ordinal: *pick }).collect(),
            _ if begun > 0 => picks.iter().map(|pick| Reference { thread, ordinal: pick % begun }).collect(),
            _ => Vec::new(),
        };
        call.begun = if kind == 2 { references.len() as u16 } else { u16::from(kind == 0) };
        begun += u64::from(call.begun);
        let matched = matched
            .into_iter()
            .enumerate()
            .map(|(place, (source, tag, bytes))| Matched { place: place as u32, source, tag, bytes })
            .collect();
        calls.push(Made { call, references, matched });
        // Repeat earlier calls, as programs do.
        if kind == 3 && calls.len() > 3 {
            for back in (1..4).rev() {
                let mut again = calls[calls.len() - 3].clone();
                again.call.entered = now.saturating_add(back);
                again.call.left = again.call.entered;
                now = again.call.left;
                begun += u64::from(again.call.begun);
                calls.push(again);
            }
        }
    }
    calls
}

proptest! {
    #[test]
    fn what_is_written_is_read(seeds in seeds()) {
        let calls = made(seeds);
        let (events, whole) = read(&written(&calls));
        prop_assert!(whole);
        prop_assert_eq!(events, expected(&calls));
    }

    #[test]
    fn blocks_follow_each_other_without_a_seam(seeds in seeds(), many in 1usize..20) {
        let calls = made(seeds);
        let (events, whole) = read(&written_open(&calls, many));
        prop_assert!(whole);
        prop_assert_eq!(events, expected(&calls));
    }

    #[test]
    fn an_open_block_cut_anywhere_gives_its_whole_calls(seeds in seeds(), cut in any::<prop::sample::Index>()) {
        let calls = made(seeds);
        let file = written_open(&calls, usize::MAX);
        let cut = size_of::<Header>() + cut.index(file.len() + 1 - size_of::<Header>());
        let (events, whole) = read(&file[..cut]);
        prop_assert!(whole);
        prop_assert_eq!(&events[..], &expected(&calls)[..events.len()]);
        if cut == file.len() {
            prop_assert_eq!(events.len(), calls.len());
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut file = written_open(&[], 1);
        file.extend(block::open(file.len() as u64).to_le_bytes());
        file.extend(&bytes);
        let (events, _) = read(&file);
        prop_assert!(events.len() <= bytes.len());
        prop_assert!(events.windows(2).all(|pair| pair[0].call.left <= pair[1].call.entered));
        let _ = Decoder::new(&bytes);
    }

    /// Random bytes at a random place: calls before this place are read as written, and the damage is reported.
    #[test]
    fn a_closed_block_that_was_overwritten_is_no_calls(
        seeds in seeds(),
        many in 1usize..20,
        at in any::<prop::sample::Index>(),
        noise in proptest::collection::vec(any::<u8>(), 1..300),
    ) {
        let calls = made(seeds);
        let open = written_open(&calls, many);
        // All blocks are closed.
        let mut file = header().as_bytes().to_vec();
        for calls in encoded(&calls).chunks(many) {
            let calls = calls.concat();
            file.extend(block::closed(file.len() as u64, &calls).to_le_bytes());
            file.extend(calls);
        }
        prop_assert_eq!(open.len(), file.len());
        let whole = file.clone();
        let at = at.index(file.len());
        let length = noise.len().min(file.len() - at);
        file[at..at + length].copy_from_slice(&noise[..length]);
        if let Ok(mut decoder) = Decoder::new(&file) {
            let all = expected(&calls);
            let mut events = Vec::new();
            let end = loop {
                match decoder.next_event() {
                    Ok(Some(event)) => events.push(event.clone()),
                    end => break end.map(|_| ()),
                }
            };
            prop_assert_eq!(&events[..], &all[..events.len()]);
            prop_assert!(events.len() == all.len() || end.is_err(), "{} of {} calls, and no fault", events.len(), all.len());
            prop_assert!(end.is_err() || file[..40] == whole[..40]);
        }
    }
}

#[test]
fn zeros_end_a_timeline() {
    let send = Made {
        call: Call::new(named("Send").unwrap().id, STARTED + 100, STARTED + 200),
        references: vec![],
        matched: vec![],
    };
    let mut file = written(&[send.clone(), send]);
    let length = file.len();
    file.resize(length + 5000, 0);
    let mut decoder = Decoder::new(&file).unwrap();
    while decoder.next_event().unwrap().is_some() {}
    assert_eq!(decoder.position(), length);
    assert_eq!(read(&file).0.len(), 2);
}

#[test]
fn a_steady_exchange_takes_few_bytes() {
    let id = |name: &str| named(name).unwrap().id;
    let (mut now, mut calls) = (STARTED, Vec::new());
    for step in 0..1000 {
        for (site, (count, name)) in [(26, "Irecv"), (26, "Isend"), (1, "Waitall")].into_iter().enumerate() {
            for place in 0..count {
                let mut call = Call::new(id(name), now + 400 + step % 7, now + 500 + step % 11);
                now = call.left;
                // Each direction has its own call sites.
                call.site = 10 * (site as u16 + 1) + place as u16 % 3;
                let mut references = Vec::new();
                if name == "Waitall" {
                    references = (0..52).map(|k| Reference { thread: THREAD, ordinal: step * 52 + k }).collect();
                } else {
                    (call.begun, call.communicator, call.peer, call.tag, call.bytes) = (1, 0, place, 7, 64 << place);
                }
                calls.push(Made { call, references, matched: Vec::new() });
            }
        }
    }
    let file = written(&calls);
    assert_eq!(read(&file).0, expected(&calls));
    let bytes = file.len() as f64 / calls.len() as f64;
    assert!(bytes < 4.1, "{bytes} bytes a call");
}

#[test]
fn files_of_something_else_are_refused() {
    let refused = |file: &[u8]| Decoder::new(file).unwrap_err().to_string();
    assert!(refused(b"PLIM").contains("too short"));
    let mut file = written(&[]);
    file[0] = b'p';
    assert!(refused(&file).contains("does not begin as one"));
    let mut file = written(&[]);
    file[8] = 99;
    assert!(refused(&file).contains("another version") && refused(&file).contains("profile it again"));
}

/// A timeline of a version without call sites.
#[test]
fn timelines_without_sites_are_read() {
    let mut file = include_bytes!("version-2.trace").to_vec();
    // The table of functions may have grown since.
    file[16..24].copy_from_slice(&crate::functions::digest().to_le_bytes());
    let (old, _) = Header::read_from_prefix(&file).unwrap();
    assert_eq!(old.version, WITHOUT_SITES);
    file[..size_of::<Header>()].copy_from_slice(old.sealed().as_bytes());
    let (events, whole) = read(&file);
    assert!(whole && events.iter().all(|event| event.call.site == site::ABSENT), "{events:?}");
    let told = |event: &Event| {
        let Call { function, peer, tag, bytes, .. } = event.call;
        (function.0, peer, tag, bytes, event.references.len())
    };
    let expected = |at: usize| {
        let (peer, tag) = if at.is_multiple_of(3) { (1, 7) } else { (-1, -1) };
        ([12, 8, 21, 56][at % 4], peer, tag, 8 << (at % 12), usize::from(at % 4 == 2))
    };
    assert_eq!(events.iter().map(told).collect::<Vec<_>>(), (0..40).map(expected).collect::<Vec<_>>());
}

#[test]
fn a_line_that_is_called_in_turn_with_another_costs_nothing_more() {
    let calls = |lines: u16| -> usize {
        let id = named("Send").unwrap().id;
        let made = (0..1000u64).map(|at| {
            let mut call = Call::new(id, STARTED + 300 * at, STARTED + 300 * at + 200);
            (call.site, call.peer, call.tag, call.bytes) = (1 + at as u16 % lines, at as i32 % 8, 3, 64);
            Made { call, references: vec![], matched: vec![] }
        });
        written(&made.collect::<Vec<_>>()).len()
    };
    let (one, eight) = (calls(1), calls(8));
    assert!(eight - one <= 8, "{one} and {eight} bytes");
}
