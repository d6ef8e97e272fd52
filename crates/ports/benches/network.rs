//! The ports to other hosts compared, between the two hosts of a lab: `cargo bench -p ports --bench network`, as root.
//! Blocks of all ports alternate, so that a change of the machine affects each; the latency of a cache line between the
//! cores is probed beside every round.
//!
//! Packets carry 8 bytes behind the engine's 24 of sequencing. The stream keeps a window, since these ports drop
//! packets that the receiver has no room for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use linux::affinity;
use linux::lab::{Host, Lab, Options};
use machine::{CoreId, PeerIndex, Port, Result, Sent, XdpMode};
use ports::afxdp::{AfxdpPort, BusyPoll, Nic, NicOptions};
use ports::network::NetworkPort;
use ports::probe::ProbeLines;
use ports::udp::UdpPort;

const SMALL: usize = 32;
const TIMEOUT: Duration = Duration::from_secs(5);
/// Packets of a stream in flight at most, and packets per acknowledgement.
const WINDOW: u64 = 512;
const ANSWERED: u64 = 32;

/// A port of either kind, driven by one thread.
#[allow(clippy::large_enum_variant, reason = "two of them")]
enum Either {
    Udp(UdpPort),
    Afxdp(AfxdpPort),
}

macro_rules! either {
    ($self:expr, $port:ident => $what:expr) => {
        match $self {
            Either::Udp($port) => $what,
            Either::Afxdp($port) => $what,
        }
    };
}

impl Either {
    fn put(&mut self, length: usize, number: u64) -> Result<()> {
        let fill = |into: &mut [u8]| into[..8].copy_from_slice(&number.to_le_bytes());
        while either!(self, port => port.send(PeerIndex(0), length, fill))? != Sent::Taken {
            either!(self, port => port.flush())?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        either!(self, port => port.flush())
    }

    fn receive(&mut self, deliver: impl FnMut(PeerIndex, &[u8])) -> Result<usize> {
        either!(self, port => port.receive(64, deliver))
    }

    fn mtu(&self) -> usize {
        either!(self, port => port.capabilities()).mtu.0 as usize
    }
}

/// Repeats until `done` or a time limit; says whether done.
fn until(mut done: impl FnMut() -> Result<bool>) -> Result<bool> {
    let started = Instant::now();
    loop {
        for _ in 0..1024 {
            if done()? {
                return Ok(true);
            }
        }
        if started.elapsed() > TIMEOUT {
            return Ok(false);
        }
    }
}

/// Nanoseconds of half a round trip, the median of batches.
fn ping(port: &mut Either, rounds: usize) -> Result<Option<f64>> {
    let mut batches = Vec::new();
    for _ in 0..rounds {
        let started = Instant::now();
        for number in 0..64 {
            port.put(SMALL, number)?;
            port.flush()?;
            let mut came = 0;
            if !until(|| {
                came += port.receive(|_, _| ())?;
                Ok(came > 0)
            })? {
                return Ok(None);
            }
        }
        batches.push(started.elapsed().as_nanos() as f64 / 128.0);
    }
    Ok(Some(median(batches)))
}

/// Packets a second of a stream with a window; each flush sends `together`.
fn stream(port: &mut Either, length: usize, together: u64, lasting: Duration) -> Result<Option<f64>> {
    let (mut sent, mut answered) = (0u64, 0u64);
    let started = Instant::now();
    while started.elapsed() < lasting {
        if !until(|| {
            port.receive(|_, packet| answered = answered.max(u64::from_le_bytes(packet[..8].try_into().expect("8"))))?;
            Ok(sent + together <= answered + WINDOW)
        })? {
            return Ok(None);
        }
        for _ in 0..together {
            sent += 1;
            port.put(length, sent)?;
        }
        port.flush()?;
    }
    Ok(Some(answered as f64 / started.elapsed().as_secs_f64()))
}

/// The other end: echoes packets or, while `streaming`, acknowledges the stream.
fn answer(port: &mut Either, streaming: &AtomicBool, stop: &AtomicBool, highest: &AtomicU64) -> Result<()> {
    let (mut last, mut said) = (0u64, 0u64);
    while !stop.load(Ordering::Relaxed) {
        let mut came = 0;
        port.receive(|_, packet| {
            assert!(packet.len() == SMALL || packet.len() > 1000, "a packet of {} bytes", packet.len());
            came += 1;
            last = u64::from_le_bytes(packet[..8].try_into().expect("8"));
        })?;
        if came == 0 {
            continue;
        }
        if !streaming.load(Ordering::Relaxed) {
            (0..came).try_for_each(|_| port.put(SMALL, last))?;
            port.flush()?;
            said = 0;
        } else if last >= said + ANSWERED || last < said {
            said = last;
            port.put(SMALL, last)?;
            port.flush()?;
        }
        highest.store(last, Ordering::Relaxed);
    }
    Ok(())
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Udp,
    Native,
    /// The receiver busy-polls the driver instead of relying on softirqs.
    NativeBusy,
    Generic,
    /// The default: bursts go by the kernel socket.
    Bursts,
}

impl Which {
    const ALL: [Which; 5] = [Which::Udp, Which::Native, Which::NativeBusy, Which::Generic, Which::Bursts];

    fn name(self) -> &'static str {
        match self {
            Which::Udp => "udp",
            Which::Native => "afxdp, native",
            Which::NativeBusy => "afxdp, native, busy polling",
            Which::Generic => "afxdp, generic",
            Which::Bursts => "afxdp, generic, bursts by udp",
        }
    }
}

struct Outcome {
    half_round_trip: Option<f64>,
    lone: Option<f64>,
    together: Option<f64>,
    bulk: Option<f64>,
}

/// One block: a fresh lab, both ports, all patterns.
fn block(which: Which, mtu: u16, scale: usize) -> Result<Outcome> {
    let lab = Lab::owned(&Options { mtu, ..Options::default() })?;
    let open = |host: Host| -> Result<Either> {
        let at = SocketAddr::new(lab.address(host), 7471);
        lab.inside(host, || {
            Ok(match which {
                Which::Udp => Either::Udp(UdpPort::open(at)?),
                which => {
                    let busy_poll = (which == Which::NativeBusy).then_some(BusyPoll { microseconds: 20, budget: 16 });
                    let hook = if matches!(which, Which::Native | Which::NativeBusy) {
                        XdpMode::Native
                    } else {
                        XdpMode::Generic
                    };
                    let options = NicOptions { hook: Some(hook), busy_poll, ..NicOptions::default() };
                    let nic = Nic::shared(lab.interface(host), &options)?;
                    let mut port = AfxdpPort::on(Arc::clone(&nic), at)?;
                    if which != Which::Bursts {
                        port.set_burst(None);
                    }
                    Either::Afxdp(port)
                }
            })
        })?
    };
    let (mut a, mut b) = (open(Host::A)?, open(Host::B)?);
    let address = |host| SocketAddr::new(lab.address(host), 7471);
    match &mut a {
        Either::Udp(port) => port.add_peer(address(Host::B))?,
        Either::Afxdp(port) => port.add_peer(address(Host::B))?,
    };
    match &mut b {
        Either::Udp(port) => port.add_peer(address(Host::A))?,
        Either::Afxdp(port) => port.add_peer(address(Host::A))?,
    };
    let (streaming, stop, highest) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (streaming, stop, highest) = (&streaming, &stop, &highest);
        let other = scope.spawn(move || -> Result<Either> {
            let _pinned = affinity::pin(CoreId(1))?;
            answer(&mut b, streaming, stop, highest)?;
            Ok(b)
        });
        let mut measure = || -> Result<Outcome> {
            let _pinned = affinity::pin(CoreId(0))?;
            ping(&mut a, 20)?;
            let half_round_trip = ping(&mut a, 50 * scale)?;
            streaming.store(true, Ordering::Relaxed);
            let lasting = Duration::from_millis(100 * scale as u64);
            let lone = stream(&mut a, SMALL, 1, lasting)?;
            let together = stream(&mut a, SMALL, 32, lasting)?;
            let mtu = a.mtu();
            let bulk = stream(&mut a, mtu, 64, lasting)?.map(|rate| rate * mtu as f64);
            Ok(Outcome { half_round_trip, lone, together, bulk })
        };
        let outcome = measure();
        stop.store(true, Ordering::Relaxed);
        let b = other.join().expect("the other end does not panic")?;
        if std::env::var_os("COUNTERS").is_some()
            && let Either::Afxdp(port) = &a
        {
            println!("{:?}\n{:?}\n{:?}", port.counters(), port.kernel_counters(), port.nic().counters()?);
            if let Either::Afxdp(port) = &b {
                println!("{:?}\n{:?}\n{:?}", port.counters(), port.kernel_counters(), port.nic().counters()?);
            }
        }
        outcome
    })
}

fn main() -> Result<()> {
    if let Err(fault) = Lab::owned(&Options::default()) {
        skip::test(fault);
        return Ok(());
    }
    let number =
        |name: &str, otherwise: usize| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let (blocks, scale, mtu) = (number("BLOCKS", 5), number("SCALE", 1), number("MTU", 1500));
    let lines = ProbeLines::create()?;
    let mut outcomes: Vec<Vec<Outcome>> = Which::ALL.iter().map(|_| Vec::new()).collect();
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
        for (which, outcomes) in Which::ALL.iter().zip(&mut outcomes) {
            outcomes.push(block(*which, mtu as u16, scale)?);
        }
    }
    println!("between cores 0 and 1, mtu {mtu}, medians of {blocks} blocks; a cache line takes {near:.0?} ns");
    println!("{:28} {:>12} {:>12} {:>12} {:>12}", "port", "8 B half RTT", "8 B, 1/flush", "8 B, 32", "bulk");
    for (which, outcomes) in Which::ALL.iter().zip(&outcomes) {
        let of = |value: fn(&Outcome) -> Option<f64>, unit: f64, name: &str| {
            let values: Vec<f64> = outcomes.iter().filter_map(value).collect();
            if values.is_empty() { "lost".into() } else { format!("{:.2} {name}", median(values) / unit) }
        };
        println!(
            "{:28} {:>12} {:>12} {:>12} {:>12}",
            which.name(),
            of(|o| o.half_round_trip, 1e3, "us"),
            of(|o| o.lone, 1e6, "M/s"),
            of(|o| o.together, 1e6, "M/s"),
            of(|o| o.bulk, 1e9, "GB/s"),
        );
    }
    Ok(())
}
