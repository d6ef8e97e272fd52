//! A real kernel: objects verified, attached in a lab, called.

use std::net::UdpSocket;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

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
    // The parser's panics are caught; they need not be seen.
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
        // From outside the namespace: the interface knows where it is.
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
