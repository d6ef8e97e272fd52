//! BPF on a real kernel: objects verified, attached in a lab, called.

use std::net::UdpSocket;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use machine::site::Direction;
use machine::{FaultKind, Nanoseconds, XdpMode};

use super::*;
use crate::lab::{Host, Lab, Options};

fn echo() -> Option<Object> {
    let Some(code) = bpf::ECHO else {
        skip::test(bpf::MISSING.unwrap_or_default());
        return None;
    };
    match Object::load("echo", code) {
        Ok(object) => Some(object),
        Err(fault) if fault.kind() == FaultKind::NotPermitted => {
            skip::test(fault);
            None
        }
        Err(fault) => panic!("{fault}"),
    }
}

fn lab() -> Option<Lab> {
    Lab::owned(&Options::default()).inspect_err(|why| skip::test(why)).ok()
}

#[test]
fn a_call_runs_in_the_kernel_and_answers() {
    let Some(object) = echo() else { return };
    let call = object.program("call").unwrap();
    let _statistics = RunStatistics::enable().unwrap();
    let before = call.runs().unwrap().count;
    // struct offcode_call
    let mut context = vec![0u8; 16 + 1024];
    context[12..16].copy_from_slice(&8u32.to_ne_bytes());
    context[16..20].copy_from_slice(&40u32.to_ne_bytes());
    context[20..24].copy_from_slice(&2u32.to_ne_bytes());
    assert_eq!(call.call(&mut context).unwrap(), 0);
    assert_eq!(context[16..24], 42u64.to_ne_bytes());
    assert_eq!(context[12..16], 8u32.to_ne_bytes());
    context[8] = 9;
    assert_eq!(call.call(&mut context).unwrap(), 2, "no such method");
    assert_eq!(call.runs().unwrap().count - before, 2);
    assert!(object.program("count_frames").unwrap().call(&mut context).is_err());
}

#[test]
fn words_and_a_ring_cross_between_user_space_and_programs() {
    let Some(object) = echo() else { return };
    let (input, mut output) = (object.shared("IN").unwrap(), object.ring("OUT").unwrap());
    assert!(!output.poll());
    for round in 0..40u64 {
        let slot = input.value(1 + round as usize % 64);
        slot[0].store(8, Ordering::Relaxed);
        slot[1].store(round * 3, Ordering::Relaxed);
        input.value(0)[0].store(round + 1, Ordering::Release);
        assert_eq!(object.program("message").unwrap().call(&mut []).unwrap(), 0);
        assert_eq!(input.value(0)[8].load(Ordering::Acquire), round + 1);
        assert!(output.wait(Nanoseconds(1_000_000)).unwrap());
        let mut got = 0;
        assert!(output.read(|message| got = u64::from_ne_bytes(message.try_into().unwrap())));
        assert_eq!(got, round * 3);
    }
    assert!(!output.poll() && !output.wait(Nanoseconds(1000)).unwrap());
    let dump = object.dump("IN", 3, 1 << 10).unwrap();
    assert!(dump.more && dump.entries[2].1.starts_with("{length 8, bytes [3"), "{dump:?}");
    assert!(object.dump("IN", 8, 4).unwrap().entries.is_empty());
}

#[test]
fn a_full_ring_refuses_and_goes_on_once_it_is_read() {
    let Some(object) = echo() else { return };
    let (input, mut output) = (object.shared("IN").unwrap(), object.ring("OUT").unwrap());
    let message = object.program("message").unwrap();
    let (mut written, mut read) = (0u64, 0u64);
    // 512 KiB hold 127 records of 4 KiB.
    for _ in 0..200 {
        while written - input.value(0)[8].load(Ordering::Acquire) < 64 && written < 500 {
            let slot = input.value(1 + written as usize % 64);
            slot[0].store(4096, Ordering::Relaxed);
            slot[1].store(written, Ordering::Relaxed);
            written += 1;
            input.value(0)[0].store(written, Ordering::Release);
        }
        message.call(&mut []).unwrap();
        for _ in 0..3 {
            output.read(|message| {
                assert_eq!((message.len(), u64::from_ne_bytes(message[..8].try_into().unwrap())), (4096, read));
                read += 1;
            });
        }
    }
    assert_eq!((written, read), (500, 500));
}

#[test]
fn variables_are_set_before_and_after_loading() {
    let Some(code) = bpf::ECHO else { return skip::test(bpf::MISSING.unwrap_or_default()) };
    let loader = Loader::new("echo", code).variable("LIMIT", &7u64.to_ne_bytes());
    let object = match loader.load() {
        Err(fault) if fault.kind() == FaultKind::NotPermitted => return skip::test(fault),
        object => object.unwrap(),
    };
    let limit = || {
        let mut context = vec![0u8; 16 + 1024];
        context[8] = 2;
        object.program("call").unwrap().call(&mut context).unwrap();
        u64::from_ne_bytes(context[16..24].try_into().unwrap())
    };
    assert_eq!(limit(), 7);
    object.set_variable("LIMIT", 9).unwrap();
    assert_eq!(limit(), 9);
    assert!(object.set_variable("NONE", 9).unwrap_err().to_string().contains("LIMIT"));
    assert!(Loader::new("echo", code).variable("NONE", &[0; 8]).load().is_err());
    assert!(Loader::new("echo", code).variable("LIMIT", &[0; 4]).load().is_err());
}

#[test]
fn what_the_verifier_refuses_is_told_in_a_few_words() {
    let log = "func#0 @0\n0: R1=ctx() R10=fp0\n; int x = *(int *)0; @ bad.c:3\n0: (61) r0 = *(u32 *)(r2 +0)\nR2 !read_ok\n\
        processed 1 insns (limit 1000000) max_states_per_insn 0\n";
    assert_eq!(
        object::shortened(log),
        "R2 !read_ok at instruction 0: (61) r0 = *(u32 *)(r2 +0) of 'int x = *(int *)0; @ bad.c:3'"
    );
    assert_eq!(object::shortened(""), "");
    let hostile = object::shortened("; \x1b[2J @ a.c:1\n0: (95) exit\nno\x07\n");
    assert_eq!(hostile, "no  at instruction 0: (95) exit of ' [2J @ a.c:1'");
    let fault = Object::load("text", b"not an object").unwrap_err();
    assert!(fault.to_string().contains("ELF"), "{fault}");
    let Some(softirq) = bpf::SOFTIRQ else { return skip::part(bpf::MISSING.unwrap_or_default()) };
    let fault = Object::load("softirq", softirq).unwrap_err();
    assert!(fault.to_string().contains("section 'raw_tp"), "{fault}");
}

#[test]
fn a_damaged_object_is_a_fault() {
    let Some(code) = bpf::ECHO else { return skip::test(bpf::MISSING.unwrap_or_default()) };
    if echo().is_none() {
        return;
    }
    // The parser's panics are caught; their messages are suppressed.
    for at in (0..code.len()).step_by(97) {
        let mut bytes = code.to_vec();
        bytes[at] ^= 0x55;
        let _ = Object::load("damaged", &bytes);
        let _ = Object::load("cut", &code[..at]);
    }
}

#[test]
fn a_program_is_attached_in_the_mode_asked_for_and_counts_frames() {
    let (Some(object), Some(lab)) = (echo(), lab()) else { return };
    for mode in [XdpMode::Native, XdpMode::Generic] {
        let program = object.program("count_frames").unwrap();
        let interface = lab.inside(Host::B, || Interface::named(lab.interface(Host::B)).unwrap()).unwrap();
        assert_eq!(interface.driver().as_deref(), Some("veth"));
        // Attached from outside of the namespace, which the interface knows.
        let attachment = Attachment::new(program, &interface, mode).unwrap();
        let found = attachment.prove(&interface).unwrap();
        assert_eq!((found.mode, found.id), (mode, program.id()));
        assert_eq!(found.name.as_deref(), Some("count_frames"));

        let fault = Attachment::new(program, &interface, mode).unwrap_err();
        assert!(fault.to_string().contains(&format!("program {} (count_frames)", program.id())), "{fault}");

        let _statistics = RunStatistics::enable().unwrap();
        let before = program.runs().unwrap().count;
        let send = || {
            let socket = UdpSocket::bind((lab.address(Host::A), 0)).unwrap();
            (0..10).for_each(|_| assert_eq!(socket.send_to(b"x", (lab.address(Host::B), 9)).unwrap(), 1));
        };
        let until = Instant::now() + Duration::from_secs(20);
        lab.inside(Host::A, send).unwrap();
        while program.runs().unwrap().count < before + 10 {
            assert!(Instant::now() < until, "no frames were counted");
        }
        drop(attachment);
        assert_eq!(interface.attached().unwrap(), []);
    }
}

#[test]
fn a_mode_that_the_driver_lacks_is_a_fault_that_says_what_it_has() {
    let (Some(object), Some(lab)) = (echo(), lab()) else { return };
    let program = object.program("count_frames").unwrap();
    let veth = lab.inside(Host::A, || Interface::named(lab.interface(Host::A)).unwrap()).unwrap();
    let fault = Attachment::new(program, &veth, XdpMode::Hardware).unwrap_err();
    assert!(fault.to_string().contains("(veth) hands no program to a NIC"), "{fault}");
    let made_for = loader_for("echo", bpf::ECHO.unwrap(), &veth, XdpMode::Hardware).load();
    let fault = made_for.map(|_| ()).unwrap_err();
    assert!(fault.to_string().contains("native or generic"), "{fault}");
    let loopback = lab.inside(Host::A, || Interface::named("lo").unwrap()).unwrap();
    let fault = Attachment::new(program, &loopback, XdpMode::Native).unwrap_err();
    assert!(fault.to_string().contains("offers generic mode only"), "{fault}");
    assert_eq!((veth.attached().unwrap(), loopback.attached().unwrap()), (vec![], vec![]));
}

fn at_b(lab: &Lab) -> Interface {
    lab.inside(Host::B, || Interface::named(lab.interface(Host::B)).unwrap()).unwrap()
}

/// A body that counts frames by their number and returns a verdict.
fn body(name: &str, verdict: u64) -> Object {
    Loader::new(name, bpf::VERDICT.unwrap()).variable("VERDICT", &verdict.to_ne_bytes()).load().unwrap()
}

fn stage(object: &Object, place: usize, chains: u32) -> Stage<'_> {
    let program = if object.has_program("verdict") { "verdict" } else { "count_frames" };
    Stage { object, program, place, chains }
}

const PASS: u64 = 2;
const DROP: u64 = 1;
const ONLY_PASS: u32 = 1 << PASS;

#[test]
fn stages_run_in_order_until_a_verdict_ends_it_and_each_is_counted() {
    let Some(echo) = echo() else { return };
    let objects = [body("one", PASS), echo, body("three", DROP), body("four", 3)];
    let mut frame = [7u8; 64];
    (frame[12], frame[13], frame[23]) = (8, 0, 17);
    for spin in [0u64, 3] {
        objects.iter().filter(|o| o.has_program("verdict")).for_each(|o| o.set_variable("SPIN", spin).unwrap());
        let run = |stages: &[Stage]| {
            let (program, counts) = link(XdpMode::Native, stages, 1, None).unwrap();
            let verdict = program.try_frame(&frame).unwrap();
            (verdict, stages.iter().map(|stage| counted(&counts, stage.place).unwrap()).collect::<Vec<_>>())
        };
        let passing: Vec<Stage> = (0..4).map(|n| stage(&objects[n], 9 - n, ONLY_PASS)).collect();
        assert_eq!(run(&passing[..2]).0, 2);
        let (verdict, counts) = run(&passing);
        assert_eq!(verdict, 1, "DROP ends it");
        assert_eq!(counts.iter().map(|counts| counts.runs).collect::<Vec<_>>(), [1, 1, 1, 0]);
        assert_eq!(counts.iter().map(|counts| counts.timed.count).collect::<Vec<_>>(), [1, 1, 1, 0]);
        assert_eq!((counts[0].verdicts, counts[2].verdicts), ([0, 0, 1, 0, 0], [0, 1, 0, 0, 0]));
        let mut going_on = passing.clone();
        going_on[2].chains |= 1 << DROP;
        let (verdict, counts) = run(&going_on);
        assert_eq!((verdict, counts[3].runs), (3, 1), "the last one's verdict is carried out");
        let backwards: Vec<Stage> = passing.iter().rev().copied().collect();
        assert_eq!(run(&backwards).0, 3);
    }
    let seen = |object: &Object| object.shared("SEEN").unwrap().value(0)[7].load(Ordering::Relaxed);
    let shown = |object: &Object, name: &str| object.dump(name, 8, 1 << 10);
    assert_eq!(shown(&objects[0], "SEEN").unwrap().entries, [("0".to_owned(), "[0 0 0 0 0 0 0 6]".to_owned())]);
    assert_eq!(shown(&objects[2], "VERDICT").unwrap().entries, [("VERDICT".to_owned(), "1".to_owned())]);
    assert!(shown(&objects[0], "OUT_first").unwrap_err().to_string().contains("no values to read"));
    assert!(shown(&objects[0], "NONE").unwrap_err().to_string().contains("VERDICT"));
    assert_eq!([seen(&objects[0]), seen(&objects[2]), seen(&objects[3])], [6, 4, 4]);
}

#[test]
fn values_of_all_cores_are_not_taken_for_one() {
    let Some(_) = echo() else { return };
    let object = body("one", PASS);
    let (_, counts) = link(XdpMode::Native, &[stage(&object, 0, ONLY_PASS)], 1, None).unwrap();
    let (key, value) = (0u32.to_ne_bytes(), vec![0; counts.value_size()]);
    for outcome in [counts.look_up(&key).map(drop), counts.put_at(&key, &value)] {
        assert_eq!(outcome.unwrap_err().kind(), std::io::ErrorKind::Unsupported);
    }
    assert_eq!(counted(&counts, 0).unwrap().runs, 0);
}

#[test]
fn a_program_that_is_not_proven_in_its_place_gives_it_back() {
    let (Some(_), Some(lab)) = (echo(), lab()) else { return };
    let elsewhere = lab.inside(Host::A, || Interface::named(lab.interface(Host::A)).unwrap()).unwrap();
    let (interface, objects) = (at_b(&lab), [body("one", PASS), body("two", PASS)]);
    let programs = |name: &str| objects.each_ref().map(|object| object.program(name).unwrap());

    let [one, two] = programs("verdict");
    let mut attachment = Attachment::new(one, &interface, XdpMode::Native).unwrap();
    // No program is attached to the interface given here.
    attachment.replace(one, two, &elsewhere).unwrap_err();
    assert_eq!(attachment.prove(&interface).unwrap().id, one.id());
    attachment.replace(one, two, &interface).unwrap();
    assert_eq!(attachment.prove(&interface).unwrap().id, two.id());

    let [one, two] = programs("verdict_of_packet");
    let mut attachment = tcx::Attachment::new(one, &interface, Direction::Ingress).unwrap();
    attachment.replace(one, two, &elsewhere).unwrap_err();
    assert_eq!(attachment.prove(&interface).unwrap().1[0].id, one.id());
    attachment.replace(one, two, &interface).unwrap();
    assert_eq!(attachment.prove(&interface).unwrap().1[0].id, two.id());
}

#[test]
fn a_hook_holds_ten_and_says_so() {
    let (Some(_), Some(lab)) = (echo(), lab()) else { return };
    let objects: Vec<Object> = (0..11).map(|n| body(&format!("body{n}"), PASS)).collect();
    let mut chain = Chain::new(at_b(&lab).into(), XdpMode::Native);
    let stages: Vec<Stage> = objects.iter().enumerate().map(|(n, o)| stage(o, n, ONLY_PASS)).collect();
    let fault = chain.set(&stages).unwrap_err();
    assert!(fault.to_string().contains("11 programs are more than the 10"), "{fault}");
    chain.set(&stages[..10]).unwrap();
    assert_eq!(chain.prove().unwrap().unwrap().name.as_deref(), Some("plimsoll"));
    chain.set(&[]).unwrap();
    assert!(chain.is_empty() && chain.prove().unwrap().is_none());
}

/// Every datagram is numbered; a body of each generation is in the first place, and the last place counts the rest.
#[test]
#[ignore = "make check"]
fn under_load_every_frame_is_handled_by_the_old_programs_or_the_new_ones() {
    let (Some(_), Some(lab)) = (echo(), lab()) else { return };
    let mut chain = Chain::new(at_b(&lab).into(), XdpMode::Native);
    let generations: Vec<Object> = (0..2).map(|n| body(&format!("generation{n}"), PASS)).collect();
    let last = body("last", DROP);
    let sum = |object: &Object| {
        let seen = object.shared("SEEN").unwrap();
        (1..256).map(|at| seen.value(0)[at].load(Ordering::Relaxed)).sum::<u64>()
    };
    chain.set(&[stage(&generations[0], 0, ONLY_PASS), stage(&last, 2, ONLY_PASS)]).unwrap();
    let (stop, sent) = (std::sync::atomic::AtomicBool::new(false), std::sync::atomic::AtomicU64::new(0));
    /// Stops the sender, even if the test fails.
    struct Stop<'a>(&'a std::sync::atomic::AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }
    let replaced = std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| {
            let send = || {
                let socket = UdpSocket::bind((lab.address(Host::A), 0)).unwrap();
                while !stop.load(Ordering::Acquire) {
                    // A link whose queue is full drops frames before any program sees them.
                    if sent.load(Ordering::Relaxed).saturating_sub(sum(&last)) >= 64 {
                        std::thread::yield_now();
                        continue;
                    }
                    // Datagrams refused by the sender's own stack do not count as sent.
                    let number = 1 + (sent.load(Ordering::Relaxed) % 255) as u8;
                    if socket.send_to(&[number], (lab.address(Host::B), 9)).is_ok() {
                        sent.fetch_add(1, Ordering::Release);
                    }
                }
            };
            lab.inside(Host::A, send).unwrap();
        });
        let until = Instant::now() + Duration::from_secs(60);
        let mut replaced = 0;
        while replaced < 30 || sent.load(Ordering::Acquire) < 3_000 {
            assert!(Instant::now() < until, "{replaced} replaced, {sent:?} sent");
            let new = (replaced + 1) % 2;
            chain.set(&[stage(&generations[new], new, ONLY_PASS), stage(&last, 2, ONLY_PASS)]).unwrap();
            replaced += 1;
        }
        replaced
    });
    let sent = sent.load(Ordering::Acquire);
    let until = Instant::now() + Duration::from_secs(20);
    while sum(&last) < sent && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    let handled: Vec<u64> = generations.iter().map(&sum).collect();
    assert_eq!(sum(&last), sent, "a datagram was lost or seen twice in {replaced} replacements");
    assert_eq!(handled.iter().sum::<u64>(), sent, "a datagram passed neither or both of {handled:?}");
    assert!(handled.iter().all(|&handled| handled > 0), "{handled:?}");
    let counts = |place| chain.counts(place).unwrap().unwrap();
    // Other frames than datagrams come too.
    assert!(counts(0).runs + counts(1).runs == counts(2).runs && counts(2).runs >= sent);
    assert_eq!((counts(2) - counts(2)).runs, 0);
}

/// libxdp puts programs behind a dispatcher where the kernel has type EXT, and else attaches them alone.
#[test]
fn programs_of_libxdp_are_named_and_neither_takes_the_hook_from_the_other() {
    let (Some(_), Some(lab)) = (echo(), lab()) else { return };
    let Some(loader) = skip::tool("xdp-loader") else { return };
    let theirs = tempfile::NamedTempFile::with_suffix(".o").unwrap();
    std::fs::write(theirs.path(), bpf::IDLE.unwrap()).unwrap();
    let interface = at_b(&lab);
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(&loader);
        command.args(arguments);
        lab.enter(Host::B, &mut command).unwrap().output().unwrap()
    };
    let path = theirs.path().to_str().unwrap();
    let load = ["load", "-m", "native", interface.name(), path];
    let loaded = run(&load);
    assert!(loaded.status.success(), "{loaded:?}");
    let found = interface.attached().unwrap();
    let ours = body("ours", PASS);
    let mut chain = Chain::new(at_b(&lab).into(), XdpMode::Native);
    let fault = chain.set(&[stage(&ours, 0, ONLY_PASS)]).unwrap_err();
    let name = found[0].name.clone().unwrap();
    assert!(name == "idle" || name == "xdp_dispatcher", "{name}");
    assert!(fault.to_string().contains(&format!("program {} ({name}) in native mode", found[0].id)), "{fault}");
    assert_eq!(interface.attached().unwrap(), found);
    assert!(run(&["unload", interface.name(), "--all"]).status.success());
    chain.set(&[stage(&ours, 0, ONLY_PASS)]).unwrap();
    assert!(!run(&load).status.success(), "a link is not replaced");
    chain.prove().unwrap();
}

/// Packets that our programs pass are seen by others', which stay when ours are attached, changed and detached.
#[test]
fn at_a_tc_hook_programs_of_others_keep_running() {
    let (Some(_), Some(lab)) = (echo(), lab()) else { return };
    const PASS: u64 = 0;
    const DROP: u64 = 2;
    let body = |name: &str, verdict: u64| {
        Loader::new(name, bpf::VERDICT.unwrap()).variable("TC_VERDICT", &verdict.to_ne_bytes()).load().unwrap()
    };
    let [theirs, first, second, blocking] =
        [("theirs", PASS), ("first", PASS), ("second", PASS), ("blocking", DROP)].map(|(name, v)| body(name, v));
    let seen = |object: &Object| object.shared("SEEN").unwrap().value(0)[7].load(Ordering::Relaxed);
    for direction in [Direction::Ingress, Direction::Egress] {
        let usual = Point::Tc(direction).usual_chains();
        let stage = |object, place| Stage { object, program: "verdict_of_packet", place, chains: usual };
        let interface = std::sync::Arc::new(at_b(&lab));
        let foreign =
            tcx::Attachment::new(theirs.program("verdict_of_packet").unwrap(), &interface, direction).unwrap();
        let mut chain = Chain::new(interface.clone(), direction);
        chain.check_room().unwrap();
        // Ten datagrams through the hook: those that arrive at B, or those that leave it.
        let (from, to) = if direction == Direction::Ingress { (Host::A, Host::B) } else { (Host::B, Host::A) };
        let send = || {
            let socket = UdpSocket::bind((lab.address(from), 0)).unwrap();
            // The sender may get an error for what a hook drops on its way out.
            (0..10).for_each(|_| drop(socket.send_to(&[7], (lab.address(to), 9))));
        };
        let mut expected = [&theirs, &first, &second, &blocking].map(&seen);
        let mut through = |chain: &Chain, grow: [u64; 4], what: &str| {
            expected.iter_mut().zip(grow).for_each(|(all, more)| *all += more);
            lab.inside(from, send).unwrap();
            let until = Instant::now() + Duration::from_secs(20);
            while [&theirs, &first, &second, &blocking].map(&seen) != expected {
                let now = [&theirs, &first, &second, &blocking].map(&seen);
                assert!(Instant::now() < until, "{direction}, {what}: {now:?}, not {expected:?}");
                std::thread::sleep(Duration::from_millis(1));
            }
            let whereabouts = chain.prove().unwrap().map(|proof| proof.whereabouts);
            assert_eq!(whereabouts, (!chain.is_empty()).then(|| format!("tc {direction}, program 1 of 2")), "{what}");
            let (place, all) = foreign.prove(&interface).unwrap();
            assert_eq!((place, all.len()), if chain.is_empty() { (0, 1) } else { (1, 2) });
        };
        through(&chain, [10, 0, 0, 0], "theirs alone");
        chain.set(&[stage(&first, 0), stage(&second, 1)]).unwrap();
        through(&chain, [10, 10, 10, 0], "two before theirs");
        let counts = chain.counts(0).unwrap().unwrap();
        assert!(counts.verdicts[1] >= 10 && counts.verdicts[2] == 0, "{counts:?}");
        chain.set(&[stage(&first, 0), stage(&blocking, 2)]).unwrap();
        through(&chain, [0, 10, 0, 10], "DROP is carried out");
        assert!(chain.counts(2).unwrap().unwrap().verdicts[2] >= 10);
        // PASS is final for a stage that does not chain it.
        chain.set(&[Stage { chains: 1, ..stage(&second, 1) }]).unwrap();
        through(&chain, [0, 0, 10, 0], "PASS ends it");
        chain.set(&[]).unwrap();
        through(&chain, [10, 0, 0, 0], "theirs alone again");
        drop(foreign);
        assert_eq!(tcx::attached(&interface, direction).unwrap(), []);
    }
    let fault = tcx::Attachment::new(theirs.program("verdict").unwrap(), &at_b(&lab), Direction::Ingress).unwrap_err();
    assert!(fault.to_string().contains("SEC(\"classifier\")"), "{fault}");
}
