//! Bodies between the hosts of an owned lab: what an ordinary socket at the other end gets.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use linux::lab::{self, Host, Lab};
use machine::Result;
use offcode::{ChannelId, Context, Incoming, Offcode, Refusal, Written};
use ports::afxdp;

use super::*;
use crate::control::{Asked, ControlBlock, Entry, Pacing, State};
use crate::{offcodes, stamp};

/// A site that has nothing but a log.
#[derive(Default)]
struct Log(Vec<String>);

impl Context for Log {
    fn now(&self) -> Nanoseconds {
        linux::clock::monotonic()
    }

    fn channel(&self, _: &str) -> Option<ChannelId> {
        None
    }

    fn write(&mut self, _: ChannelId, _: &[u8]) -> Written {
        Written::Gone
    }

    fn attribute(&self, _: &str) -> Option<&str> {
        None
    }

    fn log(&mut self, line: &str) {
        self.0.push(line.into());
    }
}

struct Two {
    lab: Arc<Lab>,
    receiving: UdpSocket,
    template: Vec<u8>,
}

/// A process that another test starts holds a copy of our last socket until it runs its own program.
fn bind(from: SocketAddr) -> UdpSocket {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match UdpSocket::bind(from) {
            Ok(socket) => return socket,
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(e) => panic!("{from}: {e}"),
        }
    }
}

impl Two {
    fn new() -> Option<Two> {
        let lab = match Lab::owned(&lab::Options::default()) {
            Ok(lab) => Arc::new(lab),
            Err(fault) => {
                skip::test(fault);
                return None;
            }
        };
        let mut template = stamp::tests::ipv4(1514);
        let path = format!("/sys/class/net/{}/address", lab.interface(Host::B));
        let hardware = lab.inside(Host::B, || std::fs::read_to_string(path)).unwrap().unwrap();
        for (byte, text) in template.iter_mut().zip(hardware.trim().split(':')) {
            *byte = u8::from_str_radix(text, 16).unwrap();
        }
        template[6] = 2;
        let (_, to) = addresses::of(&template).unwrap();
        let receiving = lab.inside(Host::B, || UdpSocket::bind(to)).unwrap().unwrap();
        receiving.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Some(Two { lab, receiving, template })
    }

    fn asked(&self, pacing: Pacing, table: &[(u16, u64)], frames: u64) -> Asked {
        Asked {
            pacing,
            table: table.iter().map(|&(length, gap)| Entry { length, gap: Nanoseconds(gap) }).collect(),
            template: self.template.clone(),
            tag: 5,
            udp_checksum: true,
            frames: Some(frames),
            start: None,
            end: None,
            alive: None,
            runs: 0,
            batch: 64,
        }
    }

    fn socket(&self, block: &ControlBlock, waiting: Waiting, transmit: Transmit) -> Box<dyn Offcode> {
        let lab = self.lab.clone();
        let open: OpenSocket = Arc::new(move |from| lab.inside(Host::A, || bind(from)));
        Box::new(SocketSender::new(block.clone(), waiting, transmit, open))
    }

    fn frames(&self, block: &ControlBlock) -> Box<dyn Offcode> {
        let lab = self.lab.clone();
        let options = afxdp::Options { ring: 64, transmit_frames: 128, ..afxdp::Options::default() };
        let open: OpenFrames =
            Arc::new(move || lab.inside(Host::A, || afxdp::Sender::open(lab.interface(Host::A), &options))?);
        Box::new(FrameSender::new(block.clone(), open))
    }

    /// Turns until the block is finished, then once more for what is left.
    fn run(&self, body: &mut dyn Offcode, block: &ControlBlock) {
        let (mut log, deadline) = (Log::default(), Instant::now() + Duration::from_secs(20));
        while block.state() != State::Finished {
            body.turn(&mut log);
            assert!(Instant::now() < deadline, "{:?}: {:?}", block.progress(), log.0);
        }
        body.turn(&mut log);
        assert_eq!(log.0, Vec::<String>::new());
    }

    /// The times that `frames` datagrams carry, which must come in order with the lengths of `table`.
    fn receive(&self, table: &[(u16, u64)], frames: u64) -> Vec<u64> {
        let mut buffer = [0; 2048];
        let mut times = Vec::new();
        for (sequence, (length, _)) in (0..frames).zip(table.iter().cycle()) {
            let got = self.receiving.recv(&mut buffer).unwrap();
            let (tag, number, time) = stamp::read(&buffer[..got]).unwrap();
            assert_eq!((tag, number, got + 42), (5, sequence, usize::from(*length)));
            assert!(buffer[stamp::PAYLOAD_BYTES..got].iter().all(|byte| *byte == 0));
            times.push(time.0);
        }
        times
    }
}

fn started(body: &mut dyn Offcode) -> Result<()> {
    body.initialize(&mut Log::default())?;
    body.start(&mut Log::default())?;
    let call = Incoming { interface: offcodes::INTERFACES[0].short(), method: 0, arguments: &[] };
    let begun = body.call(call, &mut Vec::new(), &mut Log::default());
    begun.map_err(|Refusal(why)| fault(why, "see why"))
}

#[test]
fn every_way_to_transmit_delivers_all_sizes_in_order_and_can_be_asked_again() {
    let Some(two) = Two::new() else { return };
    let mixed: &[(u16, u64)] = &[(60, 0), (60, 0), (60, 0), (594, 0), (1514, 0)];
    let block = ControlBlock::in_process();
    let rate = Pacing::Rate { clock_every: 8 };
    block.ask(&two.asked(rate, mixed, 1)).unwrap();
    let bodies = [
        two.socket(&block, Waiting::Spin, Transmit::SendTo),
        two.socket(&block, Waiting::Spin, Transmit::SendMany),
        two.socket(&block, Waiting::Spin, Transmit::Segments),
        two.frames(&block),
    ];
    for (n, mut body) in bodies.into_iter().enumerate() {
        if let Err(fault) = started(&mut *body) {
            panic!("body {n}: {fault}");
        }
        for (table, frames) in [(mixed, 150), (&[(60, 0)][..], 200), (mixed, 3)] {
            block.ask(&two.asked(rate, table, frames)).unwrap();
            two.run(&mut *body, &block);
            two.receive(table, frames);
            let progress = block.progress();
            let bytes: u64 = table.iter().cycle().take(frames as usize).map(|entry| u64::from(entry.0)).sum();
            assert_eq!((progress.sent, progress.bytes, progress.missed), (frames, bytes, 0), "body {n}");
        }
        body.stop(&mut Log::default());
    }
}

#[test]
fn no_frame_leaves_before_its_deadline() {
    let Some(two) = Two::new() else { return };
    let table: &[(u16, u64)] = &[(60, 300_000), (100, 150_000)];
    let block = ControlBlock::in_process();
    let paced = Pacing::Paced { late: Nanoseconds(1_000_000_000) };
    block.ask(&two.asked(paced, table, 1)).unwrap();
    let bodies = [
        two.socket(&block, Waiting::RelativeSleep, Transmit::SendTo),
        two.socket(&block, Waiting::AbsoluteSleep, Transmit::SendTo),
        two.socket(&block, Waiting::Spin, Transmit::SendTo),
        two.frames(&block),
    ];
    for (n, mut body) in bodies.into_iter().enumerate() {
        started(&mut *body).unwrap();
        let start = linux::clock::monotonic() + Nanoseconds(2_000_000);
        block.ask(&Asked { start: Some(start), ..two.asked(paced, table, 40) }).unwrap();
        two.run(&mut *body, &block);
        let times = two.receive(table, 40);
        let mut due = start.0;
        for (frame, (time, (_, gap))) in times.iter().zip(table.iter().cycle()).enumerate() {
            assert!(*time >= due, "body {n}, frame {frame}: {} ns early", due - time);
            due += gap;
            // Relative sleep has no deadlines, only gaps.
            assert!(n != 0 || times.get(frame + 1).is_none_or(|next| next - time >= *gap));
        }
        assert_eq!(block.progress().sent, 40);
        body.stop(&mut Log::default());
    }
}

#[test]
fn batches_with_gaps_and_foreign_addresses_are_refused() {
    let Some(two) = Two::new() else { return };
    let block = ControlBlock::in_process();
    block.ask(&two.asked(Pacing::Paced { late: Nanoseconds(0) }, &[(60, 1000)], 1)).unwrap();
    for transmit in [Transmit::SendMany, Transmit::Segments] {
        let fault = started(&mut *two.socket(&block, Waiting::Spin, transmit)).unwrap_err();
        assert!(fault.cause().contains("no gaps"), "{fault}");
    }
    // This machine has no such address outside the lab.
    let mut body = SocketSender::new(block.clone(), Waiting::Spin, Transmit::SendTo, SocketSender::opener());
    let fault = started(&mut body).unwrap_err();
    assert!(fault.cause().contains("198.18.0.1"), "{fault}");
    let small = afxdp::Options { frame_size: 1000, ..afxdp::Options::default() };
    let mut body = FrameSender::new(block, FrameSender::opener("none0", &small));
    assert!(started(&mut body).is_err());
}

#[test]
fn a_stop_ends_the_run_and_nothing_more_is_sent() {
    let Some(two) = Two::new() else { return };
    let block = ControlBlock::in_process();
    let slow = Pacing::Paced { late: Nanoseconds(0) };
    block.ask(&two.asked(slow, &[(60, 1_000_000_000)], u64::MAX - 1)).unwrap();
    let mut body = two.socket(&block, Waiting::AbsoluteSleep, Transmit::SendTo);
    started(&mut *body).unwrap();
    let mut log = Log::default();
    body.turn(&mut log);
    block.stop();
    two.run(&mut *body, &block);
    assert_eq!(block.progress().sent, 1);
    two.receive(&[(60, 0)], 1);
}
