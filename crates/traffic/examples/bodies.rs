//! The bodies of the sender beside each other, counted and timed by the receiving program at the other end.
//!
//! `cargo run --release -p traffic --example bodies [rate|gaps]`, as root: makes a lab, sends 64-byte frames as fast as
//! each body can, then one every 34 us (paper 003, Table 2), idle and beside a hog, unprotected and shielded. A frame
//! of 64 B on the wire has 60 here, without its check sequence.

use std::net::UdpSocket;
use std::sync::Arc;
use std::thread;

use linux::accounting::{BusyMeter, ThreadMeter, current_thread};
use linux::lab::{Host, Lab, Options};
use linux::shield::{Shield, Wanted};
use linux::{affinity, clock};
use machine::{CoreId, Fault, Nanoseconds, Result, XdpMode};
use offcode::{ChannelId, Context, Offcode, Written};
use ports::afxdp;
use traffic::body::{FrameSender, OpenFrames, OpenSocket, SocketSender, Transmit, Waiting};
use traffic::control::{Asked, ControlBlock, Entry, Pacing, State};
use traffic::frame::{Flow, MacAddress};
use traffic::hog::Hog;
use traffic::kernel_sender::KernelSender;
use traffic::receiver::{Expected, Receiver};

const GAP: Nanoseconds = Nanoseconds(34_000);
const FRAME: u16 = 60;
const PORT: u16 = 9;
const RATE_RUN: Nanoseconds = Nanoseconds(500_000_000);
const GAP_RUN: Nanoseconds = Nanoseconds(1_500_000_000);

struct Site;

impl Context for Site {
    fn now(&self) -> Nanoseconds {
        clock::monotonic()
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
        if std::env::args().any(|argument| argument == "--log") {
            println!("    {line}");
        }
    }
}

#[derive(Clone, Copy)]
enum Body {
    Sockets(Waiting, Transmit),
    Frames,
    /// Live frames of the kernel's XDP program.
    Kernel,
}

impl Body {
    fn make(self, lab: &Arc<Lab>, block: &ControlBlock) -> Box<dyn Offcode> {
        let lab = lab.clone();
        match self {
            Body::Sockets(waiting, transmit) => {
                let open: OpenSocket = Arc::new(move |from| {
                    lab.inside(Host::A, || UdpSocket::bind(from))?
                        .map_err(|e| Fault::because("socket", e, "look at the lab"))
                });
                Box::new(SocketSender::new(block.clone(), waiting, transmit, open))
            }
            Body::Kernel => unreachable!("it has a thread of its own"),
            Body::Frames => {
                let open: OpenFrames = Arc::new(move || {
                    let interface = lab.interface(Host::A);
                    lab.inside(Host::A, || afxdp::Sender::open(interface, &afxdp::Options::default()))?
                });
                Box::new(FrameSender::new(block.clone(), open))
            }
        }
    }
}

fn template(lab: &Lab) -> Result<Vec<u8>> {
    let hardware = |host| -> Result<MacAddress> {
        let path = format!("/sys/class/net/{}/address", lab.interface(host));
        let text = lab.inside(host, || std::fs::read_to_string(&path))?;
        text.map_err(|e| Fault::because(&path, e, "mount sysfs"))?.trim().parse()
    };
    let flow = Flow {
        source_mac: hardware(Host::A)?,
        destination_mac: hardware(Host::B)?,
        source: lab.address(Host::A),
        destination: lab.address(Host::B),
        source_port: 4000,
        destination_port: PORT,
    };
    flow.template(usize::from(FRAME))
}

/// What one run gave.
struct Outcome {
    sent: u64,
    received: u64,
    rate: f64,
    line: String,
}

fn run(
    lab: &Arc<Lab>,
    body: Body,
    core: CoreId,
    wanted: Wanted,
    hog: Option<CoreId>,
    pacing: Pacing,
) -> Result<Outcome> {
    let paced = matches!(pacing, Pacing::Paced { .. });
    let expected = Expected { tag: 3, port: PORT, target: GAP, burst: Nanoseconds(1_000), timing: paced, pass: false };
    let receiver = lab.inside(Host::B, || Receiver::attach(lab.interface(Host::B), XdpMode::Native, expected))??;
    let _hog = hog.map(Hog::start).transpose()?;
    let template = template(lab)?;
    let kernel = match body {
        Body::Kernel => Some(lab.inside(Host::A, || KernelSender::open(lab.interface(Host::A)))??),
        _ => None,
    };
    let block = kernel.as_ref().map_or_else(ControlBlock::in_process, |kernel| kernel.block().clone());
    let in_kernel = kernel.is_some();
    let length = if paced { GAP_RUN } else { RATE_RUN };
    let lab = lab.clone();
    let of_block = block.clone();
    let (by, cpu, seconds, busy) = thread::spawn(move || -> Result<_> {
        // Deadline scheduling is a thread's own: the kernel's body raises its shield in the thread that it starts.
        let shield = (!in_kernel).then(|| Shield::raise(core, wanted)).transpose()?;
        // Long enough for what is made before the first frame; a start in the past would be caught up with in a burst.
        let ask = |lead: Nanoseconds| {
            let start = clock::monotonic() + lead;
            of_block.ask(&Asked {
                pacing,
                table: vec![Entry { length: FRAME, gap: GAP }],
                template: template.clone(),
                tag: 3,
                udp_checksum: false,
                frames: None,
                start: Some(start),
                end: Some(start + length),
            })
        };
        ask(Nanoseconds(200_000_000))?;
        if let Some(mut kernel) = kernel {
            kernel.batch(64);
            let (tell, by) = std::sync::mpsc::channel();
            let busy = BusyMeter::begin()?;
            let start = clock::monotonic();
            let running = kernel.start(None, move || {
                let shield = Shield::raise(core, wanted)?;
                let _ = tell.send(shield.by().to_string());
                Ok(Box::new(shield))
            })?;
            running.join()?;
            let seconds = (clock::monotonic() - start).0 as f64 / 1e9;
            return Ok((by.recv().unwrap_or_default(), Nanoseconds(0), seconds, busy.end()?));
        }
        let mut body = body.make(&lab, &of_block);
        body.initialize(&mut Site)?;
        body.start(&mut Site)?;
        let mut meter = ThreadMeter::open("local", "sender", current_thread())?;
        let busy = BusyMeter::begin()?;
        meter.begin()?;
        ask(Nanoseconds(1_000_000))?;
        let start = clock::monotonic();
        while of_block.state() != State::Finished {
            body.turn(&mut Site);
        }
        let seconds = (clock::monotonic() - start).0 as f64 / 1e9;
        let cpu = meter.end()?.cpu.value().copied().unwrap_or_default();
        let busy = busy.end()?;
        body.turn(&mut Site);
        body.stop(&mut Site);
        Ok((shield.map(|shield| shield.by().to_string()).unwrap_or_default(), cpu, seconds, busy))
    })
    .join()
    .expect("the sender does not panic")?;
    thread::sleep(std::time::Duration::from_millis(20));
    let progress = block.progress();
    let arrivals = receiver.read();
    let time = (progress.last - progress.first).0 as f64 / 1e9;
    let mut line = match &arrivals.gaps {
        Some(gaps) => format!(
            "mean {:>8.2} us  sd {:>8.2}  p50 {:>6.1}  p99 {:>7.1}  p99.9 {:>7.1}  max {:>8.1}  within 1 us {:>3.0}%  missed {:>5}",
            gaps.mean / 1e3,
            gaps.deviation / 1e3,
            gaps.percentile(0.5) as f64 / 1e3,
            gaps.percentile(0.99) as f64 / 1e3,
            gaps.percentile(0.999) as f64 / 1e3,
            gaps.most as f64 / 1e3,
            gaps.within[4] as f64 * 100.0 / gaps.count as f64,
            progress.missed,
        ),
        None => format!(
            "{:.3} Mpps sent, {:.3} Mpps received",
            progress.sent as f64 / time / 1e6,
            arrivals.received as f64 / time / 1e6
        ),
    };
    line += &format!("  lost {}  thread CPU {:.0}%", arrivals.lost, cpu.0 as f64 / 1e7 / seconds);
    for core in busy {
        line += &format!("  {} {:.0}%", core.core, core.busy * 100.0);
    }
    if paced {
        line += &format!("  [{by}]");
    }
    Ok(Outcome { sent: progress.sent, received: arrivals.received, rate: arrivals.received as f64 / time, line })
}

fn main() -> Result<()> {
    let what = std::env::args().nth(1).unwrap_or_default();
    let cores = affinity::allowed()?;
    let (app, device) = (cores[0], *cores.last().expect("a process has a core"));
    if what != "gaps" {
        rates(device)?;
    }
    if what != "rate" {
        gaps(app, device)?;
    }
    Ok(())
}

fn rates(core: CoreId) -> Result<()> {
    let spin = |transmit| Body::Sockets(Waiting::Spin, transmit);
    for threaded_napi in [false, true] {
        let lab = Arc::new(Lab::owned(&Options { threaded_napi, ..Options::default() })?);
        println!(
            "64 B, as fast as it goes, on {core}; receive {}",
            if threaded_napi { "in a kernel thread" } else { "in the sender's softirq" }
        );
        let mut baseline = None;
        for (name, body) in [
            ("sendto", spin(Transmit::SendTo)),
            ("sendmmsg", spin(Transmit::SendMany)),
            ("GSO", spin(Transmit::Segments)),
            ("AF_XDP", Body::Frames),
            ("XDP", Body::Kernel),
        ] {
            let mut outcomes: Vec<Outcome> = (0..3)
                .map(|_| run(&lab, body, core, Wanted::Nothing, None, Pacing::Rate { clock_every: 32 }))
                .collect::<Result<_>>()?;
            outcomes.sort_by(|a, b| a.rate.total_cmp(&b.rate));
            let median = &outcomes[1];
            let over = median.rate / *baseline.get_or_insert(median.rate);
            println!("  {name:<9} {over:>5.2}x  {}  ({} of {} arrived)", median.line, median.received, median.sent);
        }
    }
    Ok(())
}

fn gaps(app: CoreId, device: CoreId) -> Result<()> {
    println!("64 B every {GAP}; application on {app}, device on {device}");
    let lab = Arc::new(Lab::owned(&Options::default())?);
    let sockets = |waiting| Body::Sockets(waiting, Transmit::SendTo);
    let rows = [
        ("relative sleep, idle", sockets(Waiting::RelativeSleep), app, Wanted::Nothing, None),
        ("relative sleep, hog on its core", sockets(Waiting::RelativeSleep), app, Wanted::Nothing, Some(app)),
        ("absolute sleep, idle", sockets(Waiting::AbsoluteSleep), app, Wanted::Nothing, None),
        ("absolute sleep, hog on its core", sockets(Waiting::AbsoluteSleep), app, Wanted::Nothing, Some(app)),
        ("spinning sendto, idle", sockets(Waiting::Spin), app, Wanted::Nothing, None),
        ("spinning sendto, hog on its core", sockets(Waiting::Spin), app, Wanted::Nothing, Some(app)),
        ("AF_XDP, idle", Body::Frames, device, Wanted::Nothing, None),
        ("AF_XDP, hog on the application's core", Body::Frames, device, Wanted::Nothing, Some(app)),
        ("AF_XDP, hog on the device's core", Body::Frames, device, Wanted::Nothing, Some(device)),
        ("the same, deadline scheduling", Body::Frames, device, Wanted::Deadline, Some(device)),
        ("the same, cpuset", Body::Frames, device, Wanted::Cpuset, Some(device)),
        ("XDP, idle", Body::Kernel, device, Wanted::Nothing, None),
        ("XDP, hog on the application's core", Body::Kernel, device, Wanted::Nothing, Some(app)),
        ("XDP, hog on the device's core", Body::Kernel, device, Wanted::Nothing, Some(device)),
        ("the same, deadline scheduling", Body::Kernel, device, Wanted::Deadline, Some(device)),
        ("the same, cpuset", Body::Kernel, device, Wanted::Cpuset, Some(device)),
        ("cpuset, hog on the application's core", Body::Frames, device, Wanted::Cpuset, Some(app)),
    ];
    for (name, body, core, shield, hog) in rows {
        match run(&lab, body, core, shield, hog, Pacing::Paced { late: Nanoseconds(1_000) }) {
            Ok(outcome) => println!("  {name:<38} {}", outcome.line),
            Err(fault) => println!("  {name:<38} {fault}"),
        }
    }
    Ok(())
}
