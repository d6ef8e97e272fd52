//! Guests as authors build them: one source in Rust does the same linked in and in the sandbox, and C counts right.

#[path = "../guest/filter/src/lib.rs"]
mod filter;

use crate::built;
use crate::recorder::{Recorder, manifest, served};
use filter::PortFilter;
use machine::{Bytes, Nanoseconds};
use offcode::encoding::postcard;
use offcode::map::Maps;
use offcode::{
    Activity, Attributes, ChannelId, Context, Described, Guid, Incoming, Offcode, Refusal, State, Wake, Written,
};
use proptest::prelude::*;
use wasm::{Limits, Module, Sandboxed};

fn cases() -> ProptestConfig {
    ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() }
}

fn guid_of_filter() -> Guid {
    PortFilter::INTERFACES[0]
}

fn sandboxed(bytes: &[u8]) -> Sandboxed {
    Module::compile(bytes, &Limits::default())
        .and_then(|module| Sandboxed::new(&module, &PortFilter::manifest(), &Attributes::default()))
        .unwrap_or_else(|fault| panic!("{fault}"))
}

/// Which of its faults a malformed argument is refused for depends on the width of `usize`; that it is does not.
fn without_the_particulars(refusal: Refusal) -> Refusal {
    match refusal.0.split_once(" do not decode: ") {
        Some((what, _)) => Refusal(format!("{what} do not decode")),
        None => refusal,
    }
}

fn call(body: &mut dyn Offcode, context: &mut dyn Context, method: u16, arguments: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut reply = Vec::new();
    let call = Incoming { interface: guid_of_filter().short(), method, arguments };
    body.call(call, &mut reply, context).map(|()| reply).map_err(without_the_particulars)
}

/// What happens to an offcode after its start.
#[derive(Debug, Clone)]
enum Step {
    Call(u16, Vec<u8>),
    Message(Vec<u8>),
    /// To this port, which some others share.
    Packet(u16, usize),
    Turn,
    Attribute(&'static str, String),
    Attached(&'static str),
    Answered(bool),
    Timer(u8),
    /// Time passes, after what has gathered was handled.
    Later,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let arguments = prop::collection::vec(any::<u8>(), 0..8);
    let pass = any::<u16>().prop_map(|port| {
        let mut bytes = Vec::new();
        postcard::put(&port, &mut bytes).unwrap();
        Step::Call(0, bytes)
    });
    let step = prop_oneof![
        2 => pass,
        1 => prop_oneof![Just(9000u16), Just(53)].prop_map(|port| {
            let mut bytes = Vec::new();
            postcard::put(&port, &mut bytes).unwrap();
            Step::Call(4, bytes)
        }),
        2 => Just(Step::Call(1, vec![])),
        1 => "[a-zA-Z ]{0,12}".prop_map(|text| {
            let mut bytes = Vec::new();
            postcard::put(&text, &mut bytes).unwrap();
            Step::Call(2, bytes)
        }),
        1 => (0u16..3, arguments).prop_map(|(method, arguments)| Step::Call(method, arguments)),
        3 => prop::collection::vec(any::<u8>(), 0..100).prop_map(Step::Message),
        12 => (prop_oneof![Just(9000u16), Just(53), Just(9001)], 42usize..1500).prop_map(|(port, length)| Step::Packet(port, length)),
        4 => Just(Step::Turn),
        1 => (prop_oneof![Just("port"), Just("other")], prop_oneof![Just("53".to_owned()), Just("x".to_owned())])
            .prop_map(|(name, value)| Step::Attribute(name, value)),
        1 => prop_oneof![Just("next"), Just("tap")].prop_map(Step::Attached),
        1 => any::<bool>().prop_map(Step::Answered),
        1 => Just(Step::Later),
        1 => (0u8..16).prop_map(Step::Timer),
    ];
    prop::collection::vec(step, 0..120)
}

fn packet(port: u16, length: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..length).map(|i| i as u8).collect();
    bytes[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
    bytes[23] = 17;
    bytes[36..38].copy_from_slice(&port.to_be_bytes());
    bytes
}

/// Everything that can be seen of a body from outside: results, writes, lines.
fn seen(body: &mut dyn Offcode, steps: &[Step]) -> (Vec<Result<Vec<u8>, Refusal>>, Recorder) {
    seen_over(vec![(body, steps)])
}

/// The same over several bodies, each of which goes on from what the one before saved.
fn seen_over(parts: Vec<(&mut dyn Offcode, &[Step])>) -> (Vec<Result<Vec<u8>, Refusal>>, Recorder) {
    let mut context = Recorder { now: 5, ..Recorder::default() };
    for (name, value) in &PortFilter::manifest().package.attributes {
        context.attributes.set(name, value).unwrap();
    }
    let (mut results, mut taps) = (Vec::new(), 1);
    let mut names = vec![(ChannelId(1), "next")];
    let mut saved: Option<State> = None;
    let last = parts.len() - 1;
    for (n, (body, steps)) in parts.into_iter().enumerate() {
        context.maps = Maps::default();
        body.initialize(&mut context).unwrap();
        match saved.take() {
            None => {
                context.channels.insert("next".into(), ChannelId(1));
                body.start(&mut context).unwrap();
                body.attached(ChannelId(1), "next", &mut context);
            }
            Some(mut state) => {
                context.maps.restore(&mut state).unwrap();
                names.iter().for_each(|(channel, name)| body.had(*channel, name, &mut context));
                body.restore(&state, &mut context).unwrap();
            }
        }
        do_all(body, steps, &mut context, &mut results, &mut taps, &mut names);
        if n == last {
            body.stop(&mut context);
        } else {
            let mut state = State::default();
            body.save(&mut state, &mut context).unwrap();
            context.maps.save(&mut state).unwrap();
            for (channel, message) in body.unsent() {
                assert_eq!(context.write(channel, &message), Written::Taken);
            }
            saved = Some(State::decode(&state.encode().unwrap()).unwrap());
        }
    }
    (results, context)
}

fn do_all(
    body: &mut dyn Offcode,
    steps: &[Step],
    context: &mut Recorder,
    results: &mut Vec<Result<Vec<u8>, Refusal>>,
    taps: &mut u32,
    names: &mut Vec<(ChannelId, &'static str)>,
) {
    for step in steps {
        match step {
            Step::Call(method, arguments) => results.push(call(body, context, *method, arguments)),
            Step::Message(bytes) => body.message(ChannelId(1), bytes, context),
            Step::Packet(port, length) => body.message(ChannelId(0), &packet(*port, *length), context),
            Step::Turn => results.push(match body.turn(context) {
                Activity::Worked => Ok(b"worked".to_vec()),
                Activity::Idle => Ok(vec![]),
            }),
            Step::Attribute(name, value) => {
                // The words around the author's differ.
                let set = body.attribute_set(name, value, context);
                results.push(set.map(|()| vec![]).map_err(|_| Refusal("it does not take the value".into())));
            }
            Step::Attached(name) => {
                *taps += 1;
                names.push((ChannelId(*taps % 64), name));
                body.attached(ChannelId(*taps % 64), name, context);
            }
            Step::Answered(true) => body.answered(ChannelId(1), 3, Ok(b"result"), context),
            Step::Answered(false) => body.answered(ChannelId(1), 3, Err(&Refusal("no".into())), context),
            Step::Timer(timer) => body.timer(*timer, context),
            Step::Later => {
                results.push(call(body, context, 1, &[]));
                context.now += 1;
            }
        }
    }
}

/// Attributes that were set come with the deployment of the next body.
fn attributes(steps: &[Step]) -> Attributes {
    let mut attributes = Attributes::default();
    for step in steps {
        if let Step::Attribute(name, value) = step {
            attributes.set(name, value).unwrap();
        }
    }
    attributes
}

#[test]
fn a_filter_that_moves_in_and_out_of_the_sandbox_does_what_one_does_that_stays() {
    let Some(bytes) = built::or_skip(built::filter()) else { return };
    let module = Module::compile(bytes, &Limits::default()).unwrap();
    proptest!(cases(), |(steps in steps(), first in 0usize..60, second in 0usize..60)| {
        let first = first.min(steps.len());
        let second = (first + second).min(steps.len());
        let parts = [&steps[..first], &steps[first..second], &steps[second..]];
        let mut stays = PortFilter::default();
        let (results, context) = seen(&mut stays, &steps);
        let mut guest = Sandboxed::new(&module, &PortFilter::manifest(), &attributes(&steps[..first])).unwrap();
        let (mut one, mut three) = (PortFilter::default(), PortFilter::default());
        let bodies: Vec<(&mut dyn Offcode, &[Step])> =
            vec![(&mut one, parts[0]), (&mut guest, parts[1]), (&mut three, parts[2])];
        let (moved, moved_context) = seen_over(bodies);
        prop_assert!(guest.failure().is_none(), "{:?}", guest.failure());
        prop_assert_eq!(results, moved);
        prop_assert_eq!(&context.written, &moved_context.written);
        prop_assert_eq!(&context.stored, &moved_context.stored);
        prop_assert_eq!(context.mapped(&stays), moved_context.mapped(&three));
        let said = |lines: &[String]| -> Vec<String> {
            lines.iter().filter(|line| !line.contains("is no port")).cloned().collect()
        };
        prop_assert_eq!(said(&context.lines), said(&moved_context.lines), "what initialize says comes once for each body");
    });
}

#[test]
fn a_state_of_another_version_is_refused_and_a_body_lives_on() {
    let Some(bytes) = built::or_skip(built::filter()) else { return };
    let (mut guest, mut context) = (sandboxed(bytes), Recorder::default());
    guest.initialize(&mut context).unwrap();
    let said = guest.restore(&State::new(2), &mut context).unwrap_err().to_string();
    assert!(said.contains("version 1") && guest.failure().is_none(), "{said}");
}

#[test]
fn the_sandboxed_filter_does_what_the_native_one_does() {
    let Some(bytes) = built::or_skip(built::filter()) else { return };
    let module = Module::compile(bytes, &Limits::default()).unwrap();
    println!("filter.wasm: {} bytes", bytes.len());
    proptest!(cases(), |(steps in steps())| {
        let mut native = PortFilter::default();
        let mut guest = Sandboxed::new(&module, &PortFilter::manifest(), &Attributes::default()).unwrap();
        let (results, context) = seen(&mut native, &steps);
        let (guest_results, guest_context) = seen(&mut guest, &steps);
        prop_assert!(guest.failure().is_none(), "{:?}", guest.failure());
        prop_assert_eq!(results, guest_results);
        prop_assert_eq!(&context.written, &guest_context.written);
        prop_assert_eq!(&context.lines, &guest_context.lines);
        prop_assert_eq!(&context.timers, &guest_context.timers);
        prop_assert_eq!(&context.stored, &guest_context.stored);
        prop_assert_eq!(context.mapped(&native), guest_context.mapped(&guest));
    });
}

#[test]
fn what_a_full_channel_does_not_take_leaves_later_in_order() {
    let Some(bytes) = built::or_skip(built::filter()) else { return };
    let (mut guest, mut context) = (sandboxed(bytes), Recorder::default());
    context.channels.insert("next".into(), ChannelId(1));
    guest.initialize(&mut context).unwrap();
    guest.start(&mut context).unwrap();
    guest.attached(ChannelId(1), "next", &mut context);
    context.room.insert(1, 0);
    // More than the host keeps: the guest learns that the channel is full and drops the rest.
    for i in 0..100 {
        guest.message(ChannelId(0), &packet(9000, 60 + i), &mut context);
    }
    guest.turn(&mut context);
    let counts = call(&mut guest, &mut context, 1, &[]).unwrap();
    assert_eq!(postcard::whole::<(u64, u64, u64)>(&counts).unwrap(), (64, 36, 1));
    assert!(context.written.is_empty());
    for room in [10, 10, 100] {
        context.room.insert(1, room);
        assert_eq!(guest.turn(&mut context), Activity::Worked);
    }
    let lengths: Vec<usize> = context.written.iter().map(|(_, message)| message.len()).collect();
    assert_eq!(lengths, (60..124).collect::<Vec<_>>());
    // No other end: writes go nowhere and the guest is told.
    context.gone.insert(1);
    guest.message(ChannelId(0), &packet(9000, 60), &mut context);
    guest.turn(&mut context);
    guest.message(ChannelId(0), &packet(9000, 60), &mut context);
    let counts = call(&mut guest, &mut context, 1, &[]).unwrap();
    assert_eq!(postcard::whole::<(u64, u64, u64)>(&counts).unwrap().0, 65);
    assert!(guest.failure().is_none());
}

#[test]
fn a_panic_is_reported_in_its_own_words() {
    let Some(bytes) = built::or_skip(built::filter()) else { return };
    let (mut guest, mut context) = (sandboxed(bytes), Recorder::default());
    guest.initialize(&mut context).unwrap();
    let index = |index: u32| {
        let mut bytes = Vec::new();
        postcard::put(&index, &mut bytes).unwrap();
        bytes
    };
    assert_eq!(call(&mut guest, &mut context, 3, &index(2)), Ok(vec![3]));
    let refusal = call(&mut guest, &mut context, 3, &index(7)).unwrap_err();
    println!("{}", refusal.0);
    assert!(refusal.0.contains("index out of bounds: the len is 3 but the index is 7"), "{refusal:?}");
    assert!(refusal.0.contains("lib.rs"), "{refusal:?}");
}

#[test]
fn a_body_of_another_interface_is_refused() {
    let Some(bytes) = built::or_skip(built::filter()) else { return };
    let module = Module::compile(bytes, &Limits::default()).unwrap();
    let other = manifest("test.other", &[Guid::named("other")]);
    let fault = Sandboxed::new(&module, &other, &Attributes::default()).err().unwrap();
    assert!(fault.to_string().contains("which it does not serve"), "{fault}");
}

const CHECKSUM: Guid =
    Guid::from_bytes([0x6d, 0x1c, 0x2a, 0x5e, 0x4f, 0x0b, 0x4c, 0x1e, 0x9a, 0x57, 0x0c, 0x7d, 0x8e, 0x9f, 0x1a, 0x2b]);

/// RFC 1071, by the book, over messages that are each padded to an even length.
fn checksum(messages: &[Vec<u8>]) -> u64 {
    let mut sum = 0u64;
    for pair in messages.iter().flat_map(|message| message.chunks(2)) {
        sum += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
    }
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum
}

#[test]
fn the_checksum_in_c_counts_right() {
    let Some(bytes) = built::or_skip(built::checksum()) else { return };
    println!("checksum.wasm: {} bytes", bytes.len());
    let module = Module::compile(bytes, &Limits::default()).unwrap();
    let manifest = manifest("test.checksum", &[CHECKSUM]);
    proptest!(cases(), |(messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..100))| {
        let (mut guest, mut context) = (Sandboxed::new(&module, &manifest, &Attributes::default()).unwrap(), Recorder::default());
        guest.initialize(&mut context).unwrap();
        guest.start(&mut context).unwrap();
        guest.attached(ChannelId(1), "report", &mut context);
        for message in &messages {
            guest.message(ChannelId(0), message, &mut context);
        }
        guest.turn(&mut context);
        let mut totals = Vec::new();
        let call = |method, arguments| Incoming { interface: CHECKSUM.short(), method, arguments };
        guest.call(call(0, &[]), &mut totals, &mut context).unwrap();
        let totals: Vec<u64> = totals.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let length = messages.iter().map(|message| message.len() as u64).sum();
        prop_assert_eq!(&totals, &[messages.len() as u64, length, checksum(&messages)]);
        prop_assert_eq!(context.written.len(), messages.len() / 16);
        for (report, upto) in context.written.iter().zip((16..).step_by(16)) {
            prop_assert_eq!(&report.1[16..24], &checksum(&messages[..upto]).to_le_bytes());
        }
        prop_assert!(guest.call(call(2, &[]), &mut Vec::new(), &mut context).is_err());
        prop_assert!(guest.call(call(0, &[1]), &mut Vec::new(), &mut context).is_err());
        // One that refuses an attribute keeps what it has.
        prop_assert!(guest.attribute_set("every", "1000", &mut context).is_ok());
        for value in ["", "0", "1000000", "99999999999999999999", "1x", "-1"] {
            let said = guest.attribute_set("every", value, &mut context).unwrap_err().to_string();
            prop_assert!(said.contains("it is no number of messages below a million"), "{}", said);
        }
        prop_assert!(guest.attribute_set("ever", "x", &mut context).is_ok() && guest.failure().is_none());
        // What it saves another goes on from.
        let mut state = State::default();
        guest.save(&mut state, &mut context).unwrap();
        let mut next = Sandboxed::new(&module, &manifest, &Attributes::default()).unwrap();
        next.initialize(&mut context).unwrap();
        next.restore(&state, &mut context).unwrap();
        let mut again = Vec::new();
        next.call(call(0, &[]), &mut again, &mut context).unwrap();
        let words: Vec<u64> = again.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        prop_assert_eq!(words, totals);
        guest.stop(&mut context);
        prop_assert_eq!(&context.lines, &["checksum stops"]);
    });
}

const PULSE: Guid =
    Guid::from_bytes([0x5b, 0x0e, 0x64, 0x18, 0x2c, 0x3f, 0x4b, 0x5d, 0x8e, 0x21, 0x77, 0x10, 0x9a, 0x6c, 0x3d, 0x42]);

#[test]
fn the_pulse_in_c_beats_and_reads_what_others_share() {
    let Some(bytes) = built::or_skip(built::pulse()) else { return };
    let module = Module::compile(bytes, &Limits::default()).unwrap();
    let mut guest = Sandboxed::new(&module, &served("test.pulse", &[PULSE]), &Attributes::default()).unwrap();
    let mut context = Recorder { now: 7_000, ..Recorder::default() };
    guest.initialize(&mut context).unwrap();
    guest.start(&mut context).unwrap();
    let beat = Wake::at(Nanoseconds(1_007_000)).every(Nanoseconds(1_000_000));
    assert_eq!((&context.timers[..], &context.words["beats"][..]), (&[(2, beat)][..], &[0, 0][..]));
    guest.timer(2, &mut context);
    assert_eq!(context.words["beats"], [1, 0], "nobody shares a level");
    context.words.insert("test.other/level".into(), vec![0, 0, 40, 0]);
    guest.timer(2, &mut context);
    assert_eq!(context.words["beats"], [2, 40]);
    context.words.insert("test.other/level".into(), vec![0, 0, 41, 0]);
    guest.timer(2, &mut context);
    guest.timer(7, &mut context);
    assert_eq!(context.words["beats"], [3, 41], "another timer is not its own");
    // Fewer than it asked for.
    context.words.insert("test.other/level".into(), vec![9]);
    guest.timer(2, &mut context);
    guest.timer(2, &mut context);
    assert_eq!(context.words["beats"], [5, 41]);
    let levels = [(0u64, 1u64), (40, 1), (41, 3)]
        .map(|(level, seen)| (level.to_le_bytes().to_vec(), seen.to_le_bytes().to_vec()));
    assert_eq!(context.mapped(&guest), [("levels".to_owned(), levels.into())]);
    assert_eq!(context.lines.len(), 1, "{:?}", context.lines);
    assert!(context.lines[0].contains("words test.other/level are not passed on"), "{:?}", context.lines);
    assert!(guest.failure().is_none());
}

#[test]
fn the_memory_of_a_manifest_is_the_limit_of_memory_and_words_together() {
    let Some(bytes) = built::or_skip(built::pulse()) else { return };
    let module = Module::compile(bytes, &Limits::default()).unwrap();
    let initial = module.initial();
    let run = |memory: Bytes| {
        let module = module.clone().within(memory);
        let mut guest = Sandboxed::new(&module, &served("test.pulse", &[PULSE]), &Attributes::default())?;
        guest.initialize(&mut Recorder::default())
    };
    let said = run(Bytes(initial.0 - 1)).unwrap_err().to_string();
    assert!(said.contains("bytes of memory, the limit is"), "{said}");
    let said = run(Bytes(initial.0 + 15)).unwrap_err().to_string();
    assert!(said.contains("16 bytes of shared words beside"), "{said}");
    run(Bytes(initial.0 + 16)).unwrap();
}
