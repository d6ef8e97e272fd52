//! Guests that do what they must not: each is named with what it did, and harms nothing but itself.

use crate::crafted::{OUTPUT, POLITE, binary, descriptor, guid, instantiate, store, text};
use crate::recorder::{Recorder, manifest, served};
use machine::{Bytes, Nanoseconds};
use offcode::abi::GONE;
use offcode::{Activity, Attributes, ChannelId, Incoming, Offcode, Refusal};
use wasm::{Limits, Module, Sandboxed};

const CALL: Incoming<'static> = Incoming { interface: 1, method: 2, arguments: b"arguments" };

/// Short, so that loops end soon.
fn limits() -> Limits {
    Limits { time: Nanoseconds(20_000_000), ..Limits::default() }
}

fn running(fields: &str, body: &str) -> (Sandboxed, Recorder) {
    let mut context = Recorder::default();
    let mut guest = instantiate(&text(&descriptor(), fields, body), &limits()).unwrap();
    guest.initialize(&mut context).unwrap();
    guest.start(&mut context).unwrap();
    (guest, context)
}

fn call(guest: &mut Sandboxed, context: &mut Recorder) -> Result<Vec<u8>, Refusal> {
    let mut reply = Vec::new();
    guest.call(CALL, &mut reply, context).map(|()| reply)
}

/// Runs `body` for a call only; the guest must die of it with this in the sentence, and stay dead.
fn dies(fields: &str, body: &str, of: &str) {
    let body = format!("(if (i32.eq (global.get $kind) (i32.const 3)) (then {body})) {POLITE}");
    let (mut guest, mut context) = running(fields, &body);
    guest.turn(&mut context);
    assert!(guest.failure().is_none());
    let refusal = call(&mut guest, &mut context).unwrap_err();
    assert!(refusal.0.contains(of), "{refusal:?} does not say '{of}'");
    assert!(refusal.0.contains("while it handled a call"), "{refusal:?}");
    stays_dead(&mut guest, &mut context, &refusal.0);
}

fn stays_dead(guest: &mut Sandboxed, context: &mut Recorder, why: &str) {
    assert_eq!(guest.failure().unwrap().to_string(), why);
    assert_eq!(context.lines.iter().filter(|line| *line == why).count(), 1, "{:?}", context.lines);
    let entries = guest.counted().entries;
    assert_eq!(call(guest, context), Err(Refusal(why.into())));
    assert_eq!(guest.initialize(context).unwrap_err().to_string(), why);
    assert_eq!(guest.start(context).unwrap_err().to_string(), why);
    for _ in 0..40 {
        guest.message(ChannelId(0), b"lost", context);
    }
    guest.answered(ChannelId(0), 1, Ok(b""), context);
    guest.attached(ChannelId(1), "peer", context);
    assert_eq!(guest.attribute_set("name", "value", context).unwrap_err().to_string(), why);
    assert_eq!(guest.turn(context), Activity::Idle);
    guest.stop(context);
    assert_eq!(guest.counted().entries, entries);
    assert!(guest.counted().lost >= 40);
    assert_eq!(context.lines.iter().filter(|line| *line == why).count(), 1);
}

#[test]
fn a_polite_guest_lives() {
    let (mut guest, mut context) = running("", POLITE);
    assert_eq!(call(&mut guest, &mut context), Ok(vec![]));
    assert_eq!(guest.interfaces(), [guid()]);
    guest.stop(&mut context);
    assert_eq!(guest.counted().entries, 4);
    assert!(guest.failure().is_none() && context.lines.is_empty());
}

#[test]
fn an_endless_loop_is_ended() {
    dies("", "(loop $again (br $again))", "it was ended after more than 20ms of CPU time in handle");
}

#[test]
fn endless_recursion_is_ended() {
    let deep = "(func $deep (param i32) (result i32) (i32.add (call $deep (local.get 0)) (i32.const 1)))";
    dies(deep, "(drop (call $deep (i32.const 0)))", "nested deeper than 262144 bytes of stack in deep");
}

#[test]
fn growth_beyond_the_limit_fails_inside_the_guest() {
    // It grows until it is refused, then traps as a guest's allocator does.
    let bomb = "(loop $again (br_if $again (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable";
    dies("", bomb, "wasm `unreachable` instruction executed in handle; before that it asked for");
    // One that takes the refusal lives.
    let body = format!("(drop (memory.grow (i32.const 60000))) {POLITE}");
    let (mut guest, mut context) = running("", &body);
    assert_eq!(call(&mut guest, &mut context), Ok(vec![]));
}

#[test]
fn tables_are_bounded_together() {
    let tables = "(table $a 9000 funcref) (table $b 900 funcref)";
    let grow = "(if (i32.eq (table.grow $b (ref.null func) (i32.const 200)) (i32.const -1)) (then unreachable))";
    dies(tables, grow, "it asked for 10100 elements of tables, the limit is 10000");
    let fault = instantiate(&text(&descriptor(), "(table 10001 funcref)", POLITE), &limits()).err().unwrap();
    assert!(fault.to_string().contains("tables"), "{fault}");
}

#[test]
fn traps_are_named_with_their_function() {
    let thrower = "(func $thrower unreachable) (func $middle call $thrower)";
    dies(thrower, "call $middle", "`unreachable` instruction executed in thrower, called from middle, handle");
    dies("", "(drop (i32.div_u (i32.const 1) (i32.const 0)))", "integer divide by zero in handle");
    dies("", "(drop (i32.load (i32.const -4)))", "out of bounds memory access in handle");
    dies("", "(memory.fill (i32.const 0) (i32.const 255) (i32.const -1))", "out of bounds memory access");
    dies("", "(memory.copy (i32.const 0) (i32.const 1) (i32.const 0x7fffffff))", "out of bounds memory access");
    dies("(table 1 funcref)", "(call_indirect (i32.const 0))", "uninitialized element");
}

#[test]
fn last_words_are_reported_and_cannot_forge_a_line() {
    let fields = r#"(data $words "\0c\00\00\00boom\0d\0aroot: ok")"#;
    let body = "(memory.init $words (i32.const 512) (i32.const 0) (i32.const 16)) unreachable";
    dies(fields, body, "its last words: boom\\r root: ");
    // A length that is a lie.
    dies(r#"(data (i32.const 512) "\ff\ff\ff\ff")"#, "unreachable", "executed in handle; the instance is dead");
}

#[test]
fn a_trap_in_each_phase() {
    for (kind, what) in [
        "initialize",
        "start",
        "a call",
        "an answer",
        "an attached channel",
        "messages",
        "a turn",
        "an attribute",
        "stop",
    ]
    .iter()
    .enumerate()
    {
        let kind = kind + 1;
        let mut context = Recorder::default();
        let body = format!("(if (i32.eq (global.get $kind) (i32.const {kind})) (then unreachable)) {POLITE}");
        let mut guest = instantiate(&text(&descriptor(), "", &body), &limits()).unwrap();
        let initialized = guest.initialize(&mut context);
        assert_eq!(initialized.is_err(), kind == 1);
        if initialized.is_ok() {
            assert_eq!(guest.start(&mut context).is_err(), kind == 2);
        }
        if kind > 2 {
            assert_eq!(call(&mut guest, &mut context).is_err(), kind == 3);
            guest.answered(ChannelId(0), 7, Err(&Refusal("no".into())), &mut context);
            guest.attached(ChannelId(1), "peer", &mut context);
            guest.message(ChannelId(1), b"message", &mut context);
            guest.turn(&mut context);
            guest.turn(&mut context);
            let _ = guest.attribute_set("name", "value", &mut context);
            guest.stop(&mut context);
        }
        let failure = guest.failure().unwrap_or_else(|| panic!("{what} did not fail")).to_string();
        // Messages go with the turn.
        let what = if *what == "messages" { "a turn" } else { what };
        assert!(failure.contains(&format!("while it handled {what},")), "{what}: {failure}");
        assert_eq!(context.lines, [failure]);
    }
}

#[test]
fn lies_about_the_output_are_found() {
    let lie = |words: &[u32], length: u32, of: &str| {
        dies("", &format!("{} (return (i32.const {}))", store(words), length as i32), of)
    };
    // kind and detail, length, channel, id.
    lie(&[], 65537, "returned 65537 as the length of its output");
    lie(&[], u32::MAX, "returned 4294967295 as the length of its output");
    lie(&[3, 0, 0, 0], 15, "the record at byte 0 has 15 of 16 bytes");
    lie(&[3, 1, 0, 0], 16, "the record at byte 0 states a payload of 1 bytes where 0 are left");
    lie(&[3, u32::MAX, 0, 0], 65536, "states a payload of 4294967295 bytes");
    lie(&[3, 0xFFFF_FFF9, 0, 0], 65536, "states a payload of 4294967289 bytes");
    lie(&[3, 65521, 0, 0], 65536, "states a payload of 65521 bytes where 65520 are left");
    lie(&[0, 0, 0, 0], 16, "action 0 does not exist");
    lie(&[99, 0, 0, 0], 16, "action 99 does not exist");
    lie(&[], 0, "it returned from a call without a reply");
    lie(&[3, 0, 0, 0, 3, 0, 0, 0], 32, "it answered twice");
    lie(&[3, 0, 0, 0, 4, 0, 0, 0], 32, "it answered twice");
    lie(&[5, 0, 0, 0], 16, "it told of a turn where there was none");
    lie(&[1, 0, 1, 0], 16, "it wrote to channel 1, which it does not have");
    lie(&[1, 0, GONE, 0], 16, "it wrote to channel 0xffffffff, a peer that it does not have");
}

#[test]
fn nothing_is_carried_out_of_an_output_that_is_wrong() {
    let body = format!(
        "(if (i32.eq (global.get $kind) (i32.const 7)) (then {} (return (i32.const 32)))) {POLITE}",
        store(&[1, 0, 0, 0, 3, 0, 0, 0])
    );
    let (mut guest, mut context) = running("", &body);
    assert_eq!(guest.turn(&mut context), Activity::Idle);
    assert!(guest.failure().unwrap().to_string().contains("it answered (action 3) where nothing was asked"));
    assert!(context.written.is_empty());
}

#[test]
fn a_reply_beyond_the_limit_is_refused_and_the_guest_lives() {
    let body = format!("{} (return (i32.const 65536))", store(&[3, 65520, 0, 0]));
    let body = format!("(if (i32.eq (global.get $kind) (i32.const 3)) (then {body})) {POLITE}");
    let limits = Limits { reply: Bytes(1000), ..limits() };
    let mut guest = instantiate(&text(&descriptor(), "", &body), &limits).unwrap();
    let mut context = Recorder::default();
    guest.initialize(&mut context).unwrap();
    for _ in 0..2 {
        let refusal = call(&mut guest, &mut context).unwrap_err();
        assert_eq!(refusal.0, "the reply of 65520 bytes is longer than the limit of 1000 B");
    }
    assert!(guest.failure().is_none());
}

#[test]
fn a_state_that_is_none_or_has_no_end_is_refused() {
    let save = |descriptor: [u32; 9], body: &str| {
        let body = format!("(if (i32.eq (global.get $kind) (i32.const 10)) (then {body})) {POLITE}");
        let mut guest = instantiate(&text(&descriptor, "", &body), &limits()).unwrap();
        let mut context = Recorder::default();
        guest.initialize(&mut context).unwrap();
        let said = guest.save(&mut offcode::State::default(), &mut context).unwrap_err().to_string();
        (said, guest.failure().is_some())
    };
    let part = |length: u32| format!("{} (return (i32.const {}))", store(&[6, length, 0, 0]), 16 + length);
    let of = |version: u32| [&[version], &descriptor()[1..]].concat().try_into().unwrap();
    let (old, new): ([u32; 9], [u32; 9]) = (of(1), of(2));
    for (descriptor, body, of, dies) in [
        (old, part(0), "written for version 1 of the interface, which has no state", false),
        (new, part(0), "end within a record", false),
        (new, part(65520), "4194304 along at most", false),
        (new, "(return (i32.const 0))".into(), "neither a part of it nor a refusal", true),
        (new, format!("{} (return (i32.const 16))", store(&[3, 0, 0, 0])), "where nothing was asked", true),
    ] {
        let (said, dead) = save(descriptor, &body);
        assert!(said.contains(of) && dead == dies, "{said}");
    }
}

#[test]
fn a_state_in_ever_more_parts_is_cut_off() {
    let spin = "(global.set $n (i32.const 0))
        (loop $again
          (global.set $n (i32.add (global.get $n) (i32.const 1)))
          (br_if $again (i32.lt_u (global.get $n) (i32.const 250000))))";
    let body = format!(
        "(if (i32.ge_u (global.get $kind) (i32.const 10)) (then {spin}))
         (if (i32.eq (global.get $kind) (i32.const 10)) (then {} (return (i32.const 24)))) {POLITE}",
        store(&[6, 8, 0, 0, 0, 0])
    );
    // The smallest input area, so that what it restores comes in 4096 parts, each of which takes far more than a 80th of an
    // entry's time and far less than all of it.
    let mut words = descriptor();
    (words[0], words[2]) = (2, offcode::abi::HEAD as u32 + 1024);
    let limits = Limits { time: Nanoseconds(3_000_000), ..limits() };
    let mut guest = instantiate(&text(&words, "(global $n (mut i32) (i32.const 0))", &body), &limits).unwrap();
    let (mut context, mut state) = (Recorder::default(), offcode::State::new(2));
    guest.initialize(&mut context).unwrap();
    let said = guest.save(&mut state, &mut context).unwrap_err().to_string();
    assert!(said.contains("save took more than 150ms of CPU time"), "{said}");
    state.put("a", b"", &vec![0; (4 << 20) - 64]);
    let said = guest.restore(&state, &mut context).unwrap_err().to_string();
    assert!(said.contains("restore took more than 150ms of CPU time"), "{said}");
    assert!(guest.failure().is_none());
}

#[test]
fn descriptors_that_lie_are_refused() {
    let refused = |change: fn(&mut [u32; 9]), of: &str| {
        let mut descriptor = descriptor();
        change(&mut descriptor);
        let fault = instantiate(&text(&descriptor, "", POLITE), &limits()).err().unwrap().to_string();
        assert!(fault.contains(of), "{fault}");
    };
    refused(|d| d[0] = 5, "written for version 5 of the interface");
    refused(|d| d[0] = 0, "written for version 0 of the interface");
    refused(|d| d[1] = 4 * 65536 - 65528, "its input area at 0x30008 of 65536 bytes is not within its memory");
    refused(|d| d[2] = u32::MAX, "is not within its memory");
    refused(|d| d[2] = 1000, "its input area of 1000 bytes is smaller than");
    refused(|d| d[1] += 4, "not aligned");
    refused(|d| d[3] = d[1] + 8, "overlap");
    refused(|d| d[5] = u32::MAX, "its place for last words");
    refused(|d| d[7] = 4 * 65536 - 15, "its list of 1 interfaces");
    refused(|d| d[8] = u32::MAX, "its list of 4294967295 interfaces");
    refused(|d| d[8] = 0, "declares interface");
    refused(|d| (d[7], d[8]) = (48, 2), "which its manifest does not declare");

    let limits = Limits { output: Bytes(65535), ..limits() };
    let fault = instantiate(&text(&descriptor(), "", POLITE), &limits).err().unwrap().to_string();
    assert!(fault.contains("its output area is 65536 bytes, the limit is 65535"), "{fault}");
    for (describe, of) in [
        ("(i32.const -8)", "its descriptor at 0xfffffff8"),
        ("(i32.const 262110)", "its descriptor at 0x3ffde"),
        ("unreachable", "in describe"),
        ("(loop $l (br $l)) unreachable", "it was ended after"),
    ] {
        let text =
            text(&descriptor(), "", POLITE).replace("(result i32) i32.const 16", &format!("(result i32) {describe}"));
        let fault = instantiate(&text, &limits).err().unwrap().to_string();
        assert!(fault.contains(of), "{fault}");
    }
}

#[test]
fn start_functions_are_bounded_too() {
    for fields in
        ["(func $begin (loop $l (br $l))) (start $begin)", "(func $begin (export \"_initialize\") (loop $l (br $l)))"]
    {
        let fault = instantiate(&text(&descriptor(), fields, POLITE), &limits()).err().unwrap().to_string();
        assert!(fault.contains("it was ended after more than 20ms of CPU time in begin"), "{fault}");
    }
    let fields = "(func $begin unreachable) (start $begin)";
    let fault = instantiate(&text(&descriptor(), fields, POLITE), &limits()).err().unwrap().to_string();
    assert!(fault.contains("executed in begin"), "{fault}");
}

#[test]
fn modules_are_refused_before_they_are_compiled() {
    let refused = |bytes: &[u8], limits: &Limits, of: &str| {
        let fault = Module::compile(bytes, limits).err().unwrap_or_else(|| panic!("compiled in spite of '{of}'"));
        assert!(fault.to_string().contains(of), "{fault}");
    };
    let imports =
        "(module (import \"wasi_snapshot_preview1\" \"fd_write\" (func)) (import \"env\" \"memory\" (memory 1)))";
    refused(&binary(imports), &limits(), "it imports function wasi_snapshot_preview1.fd_write, memory env.memory");
    refused(b"", &limits(), "it does not parse");
    refused(b"(module)", &limits(), "it does not parse");
    refused(b"\0asm\x0d\0\x01\0", &limits(), "it is a component");
    refused(&binary("(module)"), &limits(), "it exports no memory");
    refused(&binary("(module (memory (export \"memory\") 1))"), &limits(), "it exports no function offcode_describe");
    let wrong = text(&descriptor(), "", POLITE).replace("(param $length i32)", "(param $length i64)");
    refused(&binary(&wrong), &limits(), "its offcode_handle does not take 1 i32 and return one i32");
    let large = text(&descriptor(), "", POLITE).replace("\"memory\") 4", "\"memory\") 257");
    refused(&binary(&large), &limits(), "it starts with 16448 KiB of memory, the limit is 16 MiB");
    let whole = binary(&text(&descriptor(), "", POLITE));
    refused(&whole, &Limits { module: Bytes(100), ..limits() }, "are more than the limit of 100 B");
    refused(&whole[..whole.len() - 3], &limits(), "it does not parse");
    let long = format!("{} {POLITE}", "(drop (i32.const 1))".repeat(50_000));
    refused(&binary(&text(&descriptor(), "", &long)), &limits(), "a function has");
    // Few bytes, and much to compile.
    let variables = |count, functions| {
        let function = format!("(func (local{}))", " i64".repeat(count));
        binary(&text(&descriptor(), &function.repeat(functions), POLITE))
    };
    refused(&variables(140_000, 1), &limits(), "a function has");
    let little = Limits { module: Bytes(20_000), ..limits() };
    refused(&variables(2_000, 10), &little, "each local variable counted as 1 B; the limit is 20000 B");
    let values = |count: usize| format!("(type (func (param{}) (result i32)))", " i32".repeat(count));
    Module::compile(&binary(&text(&descriptor(), &values(31), POLITE)), &limits()).unwrap();
    let said = "a type has 33 parameters and results, the limit is 32";
    refused(&binary(&text(&descriptor(), &values(32), POLITE)), &limits(), said);
    // A name that would clear a terminal.
    let twice = "(func (export \"\\1b[2J\"))".repeat(2);
    refused(&binary(&text(&descriptor(), &twice, POLITE)), &limits(), "name `\\u{1b}[2J` already defined");
    // Valid to the parser, not to the validator.
    refused(&binary(&text(&descriptor(), "(func $f (result i32))", POLITE)), &limits(), "it does not compile");
    refused(&binary(&text(&descriptor(), "(memory 1)", POLITE)), &limits(), "it does not compile");
}

#[test]
fn the_death_of_one_instance_leaves_others_of_its_module_alone() {
    let body = format!("(if (i32.eq (global.get $kind) (i32.const 7)) (then (loop $l (br $l)))) {POLITE}");
    let module = Module::compile(&binary(&text(&descriptor(), "", &body)), &limits()).unwrap();
    let make = || Sandboxed::new(&module, &manifest("test.crafted", &[guid()]), &Attributes::default()).unwrap();
    let (mut one, mut other, mut context) = (make(), make(), Recorder::default());
    one.turn(&mut context);
    assert!(one.failure().is_some());
    drop(one);
    assert_eq!(call(&mut other, &mut context), Ok(vec![]));
    // The ticker outlives its first user.
    other.turn(&mut context);
    assert!(other.failure().is_some());
}

#[test]
fn room_is_promised_and_kept_to() {
    // A turn writes one message of 8 bytes to channel 0, whatever room it has.
    let body = format!(
        "(if (i32.eq (global.get $kind) (i32.const 7)) (then {} (return (i32.const 24)))) {POLITE}",
        store(&[1, 8, 0, 0, 1, 2])
    );
    let mut guest = instantiate(&text(&descriptor(), "", &body), &Limits { kept: 3, ..limits() }).unwrap();
    let mut context = Recorder { room: [(0, 1)].into(), ..Recorder::default() };
    guest.initialize(&mut context).unwrap();
    for written in [1, 1, 1] {
        guest.turn(&mut context);
        assert_eq!(context.written.len(), written);
    }
    // Room outside: what waited leaves first, and in order.
    context.room.insert(0, 1);
    assert_eq!(guest.turn(&mut context), Activity::Worked);
    assert_eq!(context.written.len(), 2);
    guest.turn(&mut context);
    assert!(guest.failure().is_none());
    guest.turn(&mut context);
    let failure = guest.failure().unwrap().to_string();
    assert!(failure.contains("it wrote to channel 0 beyond the room that it was told"), "{failure}");
    assert_eq!((OUTPUT, context.written.len()), (131072, 2));
}

#[test]
fn a_flood_of_lines_is_cut() {
    let flood = "(memory.fill (i32.const 131072) (i32.const 0) (i32.const 65536))
        (loop $again
          (i32.store8 (i32.add (i32.const 131072) (global.get $at)) (i32.const 2))
          (global.set $at (i32.add (global.get $at) (i32.const 16)))
          (br_if $again (i32.lt_u (global.get $at) (i32.const 65536))))
        (return (i32.const 65536))";
    let body = format!("(if (i32.eq (global.get $kind) (i32.const 7)) (then {flood})) {POLITE}");
    let (mut guest, mut context) = running("(global $at (mut i32) (i32.const 0))", &body);
    guest.turn(&mut context);
    assert!(guest.failure().is_none());
    assert_eq!(context.lines.len(), 17);
    assert_eq!(context.lines[16], "4080 more lines of the same moment are left out");
}

/// A guest of the newest version whose manifest asks for services, which does `body` in its first phase.
fn asks(version: u32, body: &str) -> Result<Vec<String>, machine::Fault> {
    let mut words = descriptor();
    words[0] = version;
    let module = Module::compile(&binary(&text(&words, "", &format!("{body} (i32.const 0)"))), &limits())?;
    let mut guest =
        Sandboxed::new(&module.within(Bytes(5 << 16)), &served("test.crafted", &[guid()]), &Attributes::default())?;
    let mut context = Recorder::default();
    guest.initialize(&mut context)?;
    Ok(context.lines)
}

/// One action with a payload of at most two words, and nothing else.
fn action(kind: u32, length: u32, channel: u32, id: u32) -> String {
    let span = offcode::abi::Record::span(length as usize);
    format!("{} (return (i32.const {span}))", store(&[kind, length, channel, id, 1, 0, 2, 0]))
}

#[test]
fn services_are_for_those_who_ask_and_within_bounds() {
    let dies_of = |body: &str, of: &str| {
        let said = asks(4, body).unwrap_err().to_string();
        assert!(said.contains(of), "{said} does not say '{of}'");
    };
    asks(4, &action(7, 16, 0, 15)).unwrap();
    dies_of(&action(7, 16, 0, 16), "timers are 0 to 15");
    dies_of(&action(7, 8, 0, 1), "a timer to no time");
    dies_of(&action(9, 16, 0, 0), "words 0, which it has not shared");
    dies_of(&action(9, 12, 0, 0), "a part of a word");
    dies_of(&action(8, 1, 0, 8193), "8192 at most");
    dies_of(&action(10, 1, 0, u32::MAX), "8192 at most");
    asks(4, &action(8, 1, 0, 8192)).unwrap();
    let said = asks(2, "").unwrap_err().to_string();
    assert!(said.contains("version 2") && said.contains("no services"), "{said}");
    let said = asks(3, "").unwrap_err().to_string();
    assert!(said.contains("version 3") && said.contains("no maps"), "{said}");
    // Guests of all versions whose manifests ask for nothing.
    for kind in [7, 8, 9, 10, 11] {
        dies("", &action(kind, 16, 0, 1), "does not ask for");
    }
}

/// Says that a map of the name `a` lies at `at`.
fn opens(entries: u32, key: u32, value: u32, at: u32) -> String {
    let name = u32::from(b'a');
    format!("{} (return (i32.const 32))", store(&[11, 13, 0, entries, key, value, at, name]))
}

#[test]
fn maps_lie_within_the_guest_and_keep_to_their_bounds() {
    let (memory, most) = (4 << 16, u32::MAX);
    asks(4, &opens(4, 4, 4, memory - 40)).unwrap();
    asks(4, &opens(1, 512, 65_536, 0)).unwrap();
    for (body, of) in [
        (opens(4, 4, 4, memory - 39), "is not within its memory"),
        (opens(4, 4, 4, memory), "is not within its memory"),
        (opens(4, 4, 4, most), "is not within its memory"),
        (opens(1 << 16, 4, 4, 0), "is not within its memory"),
        (opens(most, 4, 4, 0), "at most"),
        (opens(most, 512, 65_536, most), "at most"),
        (opens(0, 4, 4, 0), "no entries"),
        (opens(4, 0, 4, 0), "keys have 0 bytes"),
        (opens(4, most, 4, 0), "1 to 512"),
        (opens(4, 4, most, 0), "1 to 65536"),
        (action(11, 8, 0, 4), "no sizes"),
        (action(11, 12, 0, 4), "a name has 1 to 128 bytes"),
        (format!("{} (return (i32.const 32))", store(&[11, 13, 0, 4, 4, 4, 0, 0xFF])), "no UTF-8"),
        (format!("{} (return (i32.const 64))", store(&[[11, 13, 0, 4, 4, 4, 0, 97]; 2].concat())), "one of the name a"),
    ] {
        let said = asks(4, &body).unwrap_err().to_string();
        assert!(said.contains(of), "{said} does not say '{of}'");
    }
    let many = (0..17u32).flat_map(|n| [11, 13, 0, 4, 4, 4, 0, 97 + n]).collect::<Vec<u32>>();
    let said = asks(4, &format!("{} (return (i32.const 544))", store(&many))).unwrap_err().to_string();
    assert!(said.contains("16 maps at most"), "{said}");
}

#[test]
fn what_a_guest_says_is_in_a_map_is_shown_as_far_as_it_fits() {
    // A number of entries beyond all bounds, over the guest's own code of the descriptor.
    let mut words = descriptor();
    words[0] = 4;
    let body = format!(
        "(i32.store (i32.const 2048) (i32.const -1)) (i32.store (i32.const 2056) (i32.const 7)) {}",
        opens(3, 4, 4, 2048)
    );
    let module = Module::compile(&binary(&text(&words, "", &body)), &limits()).unwrap();
    let mut guest = Sandboxed::new(&module, &served("test.crafted", &[guid()]), &Attributes::default()).unwrap();
    guest.initialize(&mut Recorder::default()).unwrap();
    let maps = guest.own_maps();
    let [(name, entries)] = maps.as_slice() else { panic!("{} maps", maps.len()) };
    assert_eq!((*name, entries.clone().count()), ("a", 3));
    assert_eq!(entries.clone().next(), Some((&[7, 0, 0, 0][..], &[0; 4][..])));
}
