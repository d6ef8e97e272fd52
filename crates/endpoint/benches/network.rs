//! Endpoints on the two hosts of a lab over each kind of network: `cargo bench -p endpoint --bench network`, as root. Blocks
//! of all networks alternate, so that a change of the machine hits each; the distance of the cores is probed in every round.
//! `NETWORKS="udp afxdp:lab0"` chooses the networks.

use std::sync::Barrier;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use endpoint::{Endpoint, Name, Paths, Settings, Source, TagSelector};
use linux::affinity;
use linux::lab::{Host, Lab, Options};
use machine::{CoreId, PeerIndex, Result};
use ports::probe::ProbeLines;

type Joined = Endpoint<Paths, Vec<u8>>;

const TIMEOUT: Duration = Duration::from_secs(20);
/// Messages in flight where the rate is measured.
const WINDOW: u64 = 64;

/// Results of one block: nanoseconds of half a round trip, messages per second, bytes per second, and packets sent twice.
#[derive(Clone, Copy)]
struct Outcome {
    half_round_trip: f64,
    rate: f64,
    bandwidth: f64,
    again: u64,
}

fn join(lab: &Lab, host: Host, network: &str) -> Result<Joined> {
    Joined::join(&Settings::read(|key| match key {
        "NETWORK" => Some(network.to_owned()),
        "ADDRESS" => Some(lab.address(host).to_string()),
        "SHM" => Some("no".into()),
        _ => None,
    })?)
}

/// Waits until `wanted` requests have ended; their buffers go to `back`.
fn wait(end: &mut Joined, mut wanted: usize, back: &mut Vec<Vec<u8>>) -> Result<()> {
    let started = Instant::now();
    let mut turns = 0u32;
    while wanted > 0 {
        if let Some(done) = end.poll()? {
            back.push(done.buffer);
            wanted -= 1;
        }
        turns += 1;
        assert!(!turns.is_multiple_of(1 << 16) || started.elapsed() < TIMEOUT, "nothing ends");
    }
    Ok(())
}

fn ping(end: &mut Joined, peer: PeerIndex, first: bool, rounds: usize) -> Result<f64> {
    let mut buffers = vec![vec![0; 8], vec![0; 8]];
    let mut batches = Vec::new();
    for _ in 0..rounds {
        let started = Instant::now();
        for _ in 0..64 {
            end.receive(Source::Peer(peer), TagSelector::exactly(1), buffers.pop().expect("two"), 0)?;
            if first {
                end.send(peer, 1, buffers.pop().expect("two"), 0)?;
                wait(end, 2, &mut buffers)?;
            } else {
                // The receive ends first; the send is then waited for with the next one.
                wait(end, 1, &mut buffers)?;
                end.send(peer, 1, buffers.pop().expect("two"), 0)?;
                wait(end, 1, &mut buffers)?;
                buffers.resize(2, vec![0; 8]);
            }
        }
        batches.push(started.elapsed().as_nanos() as f64 / 128.0);
    }
    Ok(median(batches))
}

/// Messages of `length` bytes one way, `window` between two answers; returns messages per second.
fn stream(end: &mut Joined, peer: PeerIndex, first: bool, length: usize, window: u64, rounds: usize) -> Result<f64> {
    let mut buffers: Vec<Vec<u8>> = (0..window).map(|_| vec![1; length]).collect();
    let mut answer = vec![vec![0; 1]];
    let started = Instant::now();
    for _ in 0..rounds {
        for _ in 0..window {
            let buffer = buffers.pop().expect("as many");
            if first {
                end.send(peer, 2, buffer, 0)?
            } else {
                end.receive(Source::Peer(peer), TagSelector::exactly(2), buffer, 0)?
            };
        }
        wait(end, window as usize, &mut buffers)?;
        let buffer = answer.pop().expect("one");
        if first {
            end.receive(Source::Peer(peer), TagSelector::exactly(3), buffer, 0)?
        } else {
            end.send(peer, 3, buffer, 0)?
        };
        wait(end, 1, &mut answer)?;
    }
    Ok((rounds as u64 * window) as f64 / started.elapsed().as_secs_f64())
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn side(
    (lab, host, network): (&Lab, Host, &str),
    (tell, hear): (Sender<Name>, Receiver<Name>),
    together: &Barrier,
    scale: usize,
) -> Result<Outcome> {
    let _pinned = affinity::pin(CoreId(host as u32))?;
    let mut end = join(lab, host, network)?;
    tell.send(end.name()).expect("the other is there");
    let peer = end.insert(&hear.recv_timeout(TIMEOUT).expect("the other tells its name"))?;
    let first = host == Host::A;
    ping(&mut end, peer, first, 20)?;
    let half_round_trip = ping(&mut end, peer, first, 50 * scale)?;
    let rate = stream(&mut end, peer, first, 8, WINDOW, 500 * scale)?;
    let bandwidth = stream(&mut end, peer, first, 1 << 20, 8, 25 * scale)? * (1 << 20) as f64;
    // The other end may still wait for an acknowledgement.
    let ends = Instant::now() + Duration::from_millis(20);
    while Instant::now() < ends {
        end.poll()?;
    }
    together.wait();
    let report = end.report()?;
    if first && std::env::var_os("REPORT").is_some() {
        println!("{report:?}");
    }
    Ok(Outcome { half_round_trip, rate, bandwidth, again: report.counters.retransmitted })
}

fn block(network: &str, scale: usize) -> Result<Outcome> {
    let lab = Lab::owned(&Options::default())?;
    let together = Barrier::new(2);
    let ((to_b, from_a), (to_a, from_b)) = (channel(), channel());
    std::thread::scope(|scope| {
        let (lab, together) = (&lab, &together);
        let other =
            scope.spawn(move || lab.inside(Host::B, || side((lab, Host::B, network), (to_a, from_a), together, scale)));
        let outcome = lab.inside(Host::A, || side((lab, Host::A, network), (to_b, from_b), together, scale))?;
        let theirs = other.join().expect("host b does not panic")??;
        outcome.map(|mine| Outcome { again: mine.again + theirs.again, ..mine })
    })
}

fn main() -> Result<()> {
    if let Err(fault) = Lab::owned(&Options::default()) {
        skip::test(fault);
        return Ok(());
    }
    let number =
        |name: &str, otherwise: usize| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let (blocks, scale) = (number("BLOCKS", 7), number("SCALE", 1));
    let networks = std::env::var("NETWORKS").unwrap_or("udp afxdp:lab0".into());
    let networks: Vec<&str> = networks.split(' ').collect();
    let lines = ProbeLines::create()?;
    let mut outcomes: Vec<Vec<Outcome>> = networks.iter().map(|_| Vec::new()).collect();
    let mut near = Vec::new();
    for _ in 0..blocks {
        near.extend(std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let _pinned = affinity::pin(CoreId(1));
                lines.follow();
            });
            let _pinned = affinity::pin(CoreId(0));
            let line = lines.lead().map(|line| line.nanoseconds());
            other.join().expect("the follower does not panic");
            line
        }));
        for (network, outcomes) in networks.iter().zip(&mut outcomes) {
            outcomes.push(block(network, scale)?);
        }
    }
    println!("endpoints on cores 0 and 1, medians of {blocks} blocks; a cache line takes {near:.0?} ns");
    println!("{:20} {:>14} {:>16} {:>12} {:>12}", "network", "8 B half RTT", "8 B, 64 a window", "1 MiB", "sent twice");
    for (network, outcomes) in networks.iter().zip(&outcomes) {
        let of = |value: fn(&Outcome) -> f64| median(outcomes.iter().map(value).collect());
        println!(
            "{network:20} {:>11.2} us {:>12.2} M/s {:>7.2} GB/s {:>12}",
            of(|o| o.half_round_trip) / 1e3,
            of(|o| o.rate) / 1e6,
            of(|o| o.bandwidth) / 1e9,
            outcomes.iter().map(|o| o.again).sum::<u64>(),
        );
    }
    Ok(())
}
