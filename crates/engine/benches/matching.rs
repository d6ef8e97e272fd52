//! Cost of one match with 1 to 100,000 requests outstanding: `cargo bench -p engine --bench matching`. Each figure is
//! nanoseconds per step: one 8-byte eager packet is handled and matched, its completion taken and the next receive
//! posted; the packets are made beforehand. It must not grow with the number outstanding, beyond cache effects.

use std::hint::black_box;
use std::time::Instant;

use engine::{Engine, LinkConfig, Source, TagSelector};
use machine::{Bytes, Capabilities, Nanoseconds, PeerIndex};

const NOW: Nanoseconds = Nanoseconds(0);
const PEER: PeerIndex = PeerIndex(0);
const OUTSTANDING: [usize; 3] = [1, 1_000, 100_000];
const STEPS: usize = 200_000;
const REPEATS: usize = 5;

type Tags = fn(usize) -> u64;

fn link() -> LinkConfig {
    let capabilities = Capabilities { ordered: true, reliable: true, mtu: Bytes(4096), remote_read: false };
    LinkConfig {
        credit_messages: u32::MAX,
        credit_bytes: Bytes(u64::MAX >> 1),
        ..LinkConfig::for_port(&capabilities, 0)
    }
}

fn engine() -> Engine<Vec<u8>> {
    let mut engine = Engine::new();
    engine.add_peer(link());
    engine
}

/// The eager packets that carry messages with these tags.
fn packets(tags: impl Iterator<Item = u64>) -> Vec<Vec<u8>> {
    let mut sender = engine();
    let mut packets = Vec::new();
    for tag in tags {
        sender.send(PEER, tag, vec![7; 8], 0).unwrap();
        let peer = sender.next_ready().expect("a message waits");
        while let Some(length) = sender.plan(NOW, peer) {
            let mut packet = vec![0; length];
            sender.write(NOW, peer, &mut packet);
            packets.push(packet);
        }
        while sender.next_completion().is_some() {}
    }
    packets
}

/// Receives wait; a message comes for each in turn, and a new receive takes its place.
fn posted(outstanding: usize, tags: Tags, wildcards: bool) -> f64 {
    let mut engine = engine();
    let arriving = packets((0..outstanding).map(tags));
    let post = |engine: &mut Engine<Vec<u8>>, i: usize, buffer| {
        // A wildcard class in use that no message fits.
        if wildcards && i < 2 {
            engine.receive(Source::Any, TagSelector::masked(1 << 62, 1 << 62), vec![], 0).unwrap();
        }
        engine.receive(Source::Peer(PEER), TagSelector::exactly(tags(i)), buffer, i as u64).unwrap();
    };
    for i in 0..outstanding {
        post(&mut engine, i, vec![0; 8]);
    }
    let start = Instant::now();
    for step in 0..STEPS {
        engine.handle_packet(NOW, PEER, &arriving[step % outstanding]);
        let done = engine.next_completion().expect("a receive was posted");
        let selector = TagSelector::exactly(tags(step % outstanding));
        engine.receive(Source::Peer(PEER), selector, black_box(done.buffer), 0).unwrap();
        drain(&mut engine);
    }
    start.elapsed().as_nanos() as f64 / STEPS as f64
}

/// Messages wait; a receive takes one and another message takes its place.
fn unexpected(outstanding: usize, tags: Tags, wildcards: bool) -> f64 {
    let mut engine = engine();
    let arriving = packets((0..outstanding).map(tags));
    for packet in &arriving {
        engine.handle_packet(NOW, PEER, packet);
    }
    if wildcards {
        for mask in [0, 1 << 62] {
            engine.probe(Source::Any, TagSelector::masked(0, mask));
        }
    }
    let mut buffer = vec![0; 8];
    let start = Instant::now();
    for step in 0..STEPS {
        let selector = TagSelector::exactly(tags(step % outstanding));
        engine.receive(Source::Peer(PEER), selector, buffer, 0).unwrap();
        buffer = black_box(engine.next_completion().expect("a message waited").buffer);
        engine.handle_packet(NOW, PEER, &arriving[step % outstanding]);
        drain(&mut engine);
    }
    start.elapsed().as_nanos() as f64 / STEPS as f64
}

/// Sends what the engine has to say (credit), as a driver would.
fn drain(engine: &mut Engine<Vec<u8>>) {
    let mut packet = [0; 128];
    while let Some(peer) = engine.next_ready() {
        while let Some(length) = engine.plan(NOW, peer) {
            engine.write(NOW, peer, &mut packet[..length]);
        }
    }
}

fn main() {
    let distinct: Tags = |i| i as u64;
    let same: Tags = |_| 5;
    // Every second message bears one busy tag, the others tags of their own.
    let mixed: Tags = |i| if i % 2 == 0 { 5 } else { i as u64 + 1_000_000 };
    let patterns = [("distinct tags", distinct), ("one tag", same), ("half one tag", mixed)];
    println!("{:44} {:>10} {:>10} {:>10}   ns per step, least of {REPEATS}", "outstanding", 1, 1_000, 100_000);
    type Measure = fn(usize, Tags, bool) -> f64;
    for (queue, measure) in [("posted", posted as Measure), ("unexpected", unexpected as Measure)] {
        for (name, tags) in patterns {
            for wildcards in [false, true] {
                let row = OUTSTANDING.map(|outstanding| {
                    (0..REPEATS).map(|_| measure(outstanding, tags, wildcards)).fold(f64::INFINITY, f64::min)
                });
                let classes = if wildcards { ", wildcard classes present" } else { "" };
                let label = format!("{queue}, {name}{classes}");
                println!("{label:44} {:>10.1} {:>10.1} {:>10.1}", row[0], row[1], row[2]);
            }
        }
    }
}
