//! How fast and how evenly the kernel's bodies send, in a lab of their own, counted at the receiver.
//!
//! `cargo run --release -p traffic --example driver_hook -- [NAME=VALUE...]`, as root. Names: `gap` in ns (0: as fast as
//! possible), `size` in bytes with the frame check sequence, `seconds`, `batch`, `clock_every`, `timing` (0 or 1), `core`
//! (of the sender), `steer` (core of the receiving softirq), `threaded` (0 or 1), `gro` (0 or 1).

use std::any::Any;
use std::time::{Duration, Instant};

use linux::affinity;
use linux::lab::{Host, Lab, Options};
use machine::{CoreId, Nanoseconds, Result, XdpMode};
use traffic::control::{Asked, Entry, Pacing};
use traffic::kernel_sender::KernelSender;
use traffic::receiver::{Expected, Receiver};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str, otherwise: u64| {
        let found = arguments.iter().find_map(|argument| argument.strip_prefix(name)?.strip_prefix('='));
        found.map_or(otherwise, |value| value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number")))
    };
    let core = |name: &str| match number(name, u64::MAX) {
        u64::MAX => None,
        core => Some(CoreId(core as u32)),
    };
    let (gap, seconds, timing) = (number("gap", 0), number("seconds", 1), number("timing", 1) != 0);
    let length = number("size", 64) as u16 - 4;
    let options = Options {
        threaded_napi: number("threaded", 0) != 0,
        gro: number("gro", 1) != 0,
        protocol_core: core("steer"),
        ..Options::default()
    };
    let lab = Lab::owned(&options)?;
    let expected =
        Expected { tag: 1, port: 9, target: Nanoseconds(gap), burst: Nanoseconds(gap / 10), timing, pass: false };
    let receiver = lab.inside(Host::B, || Receiver::attach(lab.interface(Host::B), XdpMode::Native, expected))??;
    let mut sender = lab.inside(Host::A, || KernelSender::open(lab.interface(Host::A)))??;
    let mut template = vec![2; 12];
    template.extend([8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2, 0, 9, 0, 9]);
    template.resize(length.into(), 0);
    sender.block().ask(&Asked {
        pacing: match gap {
            0 => Pacing::Rate { clock_every: number("clock_every", 64) },
            _ => Pacing::Paced { late: Nanoseconds(gap / 10) },
        },
        table: vec![Entry { length, gap: Nanoseconds(gap) }],
        template,
        tag: 1,
        udp_checksum: false,
        frames: None,
        start: None,
        end: None,
    })?;
    sender.batch(number("batch", 64) as u32);
    let core = core("core").or(affinity::allowed()?.last().copied());
    let running = sender.start(core, || Ok(Box::new(()) as Box<dyn Any>))?;
    let block = running.block().clone();
    std::thread::sleep(Duration::from_millis(100));
    let (start, received, sent) = (Instant::now(), receiver.received(), block.progress().sent);
    std::thread::sleep(Duration::from_secs(seconds));
    let (time, arrived, left) =
        (start.elapsed().as_secs_f64(), receiver.received() - received, block.progress().sent - sent);
    running.stop()?;
    let progress = block.progress();
    println!("sent     {:10.0} frames/s, {} missed, latest {}", left as f64 / time, progress.missed, progress.latest);
    let found = receiver.read();
    println!(
        "received {:10.0} frames/s, {} lost, {} duplicated, {} reordered",
        arrived as f64 / time,
        found.lost,
        found.duplicated,
        found.reordered
    );
    if let Some(gaps) = found.gaps {
        println!(
            "gaps     mean {:.1} ns, deviation {:.1} ns, {} to {}",
            gaps.mean, gaps.deviation, gaps.least, gaps.most
        );
        let share = |n: u64| 100.0 * n as f64 / gaps.count as f64;
        println!(
            "within   64/128/256/512/1000 ns: {:.1?} %, bursts {:.2} %",
            gaps.within.map(share),
            share(gaps.bursts)
        );
        let at = [0.5, 0.99, 0.999].map(|share| gaps.percentile(share));
        println!("p50, p99, p99.9: {at:?} ns");
    }
    Ok(())
}
