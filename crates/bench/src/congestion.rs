//! Streams on a link of a lab that is slow and loses packets: one alone, for the cost of loss, and two at once, for how they
//! share it.

use std::fmt;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Scope;
use std::time::{Duration, Instant};

use endpoint::{Endpoint, Paths, Settings, Source, Status, TagSelector};
use linux::lab::{Host, Lab, Options, Switched, Wire};
use machine::text::Table;
use machine::{Bytes, BytesPerSecond, Fault, Nanoseconds, PeerIndex, Probe, Result, figure};
use rounds::blocks::{self, Blocks, Plan, Series};
use serde::Serialize;

/// Bytes of a message, and messages in flight.
const MESSAGE: usize = 64 << 10;
const UNDER_WAY: usize = 16;
/// Warm-up before one stream is counted, and before several are, which find their shares by some losses.
const WARM: Duration = Duration::from_millis(300);
const SETTLES: Duration = Duration::from_secs(2);
/// Factor of the time for which several streams are counted.
const LONGER: u32 = 2;
const ENDS_WITHIN: Duration = Duration::from_secs(20);

#[derive(Debug, Clone)]
pub struct Request {
    pub wire: Wire,
    /// Shares of packets lost in each direction.
    pub losses: Vec<f64>,
    /// Time for which each stream is counted.
    pub counted: Duration,
    pub rounds: u32,
}

/// The transport of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stack {
    /// The kernel's TCP, with this congestion control.
    Tcp(String),
    EngineUdp,
}

impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stack::Tcp(control) => f.pad(&format!("TCP {control}")),
            Stack::EngineUdp => f.pad("engine-udp"),
        }
    }
}

/// Congestion controls of TCP's streams on this machine.
struct Controls {
    /// The algorithm of programs that ask for none.
    default: String,
    available: Vec<String>,
}

impl Controls {
    fn here() -> Result<Controls> {
        let read = |file: &str| {
            let path = format!("/proc/sys/net/ipv4/{file}");
            let fault = |error| Fault::because(&path, error, "mount /proc");
            Ok::<_, Fault>(std::fs::read_to_string(&path).map_err(fault)?.trim().to_owned())
        };
        let available = read("tcp_available_congestion_control")?.split_whitespace().map(str::to_owned).collect();
        Ok(Controls { default: read("tcp_congestion_control")?, available })
    }

    fn named(&self, name: &str) -> Option<Stack> {
        self.available.iter().find(|control| *control == name).map(|control| Stack::Tcp(control.clone()))
    }
}

/// Streams that run at once, and the loss of their link.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setting {
    pub streams: Vec<Stack>,
    pub loss: f64,
}

impl Setting {
    /// Warm-up and counted time.
    fn times(&self, counted: Duration) -> [Duration; 2] {
        if self.streams.len() > 1 { [SETTLES, LONGER * counted] } else { [WARM, counted] }
    }
}

/// Results of a block.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Block {
    /// Goodput of each stream.
    pub goodput: Vec<BytesPerSecond>,
    /// Packets that the link lost meanwhile, in both directions.
    pub lost: u64,
}

#[derive(Debug, Serialize)]
pub struct Findings {
    pub rate: BytesPerSecond,
    pub queue: Nanoseconds,
    pub settings: Vec<Setting>,
    pub series: Vec<Series<Block>>,
    /// False if a signal ended it before all rounds.
    pub whole: bool,
}

/// All settings: each stack alone at each loss, then two streams without loss. Pairs of TCP's controls stand beside those with
/// the engine.
fn settings(losses: &[f64], controls: &Controls) -> Vec<Setting> {
    let usual = Stack::Tcp(controls.default.clone());
    let alone = losses
        .iter()
        .flat_map(|&loss| [usual.clone(), Stack::EngineUdp].map(|stack| Setting { streams: vec![stack], loss }));
    let (ours, cubic, bbr) = (Some(Stack::EngineUdp), controls.named("cubic"), controls.named("bbr"));
    let pairs = [(&ours, &ours), (&cubic, &cubic), (&ours, &cubic), (&cubic, &bbr), (&ours, &bbr)];
    let together = pairs.into_iter().filter_map(|(one, other)| Some(vec![one.clone()?, other.clone()?]));
    alone.chain(together.map(|streams| Setting { streams, loss: 0.0 })).collect()
}

/// Measures each setting once a round. `begin` is told how long that takes.
///
/// # Errors
/// No lab can be made, or its link cannot be set so; every block of a setting failed.
pub fn measure(request: &Request, begin: impl FnOnce(Duration)) -> Result<Findings> {
    let switched = Switched::owned(&Options::default(), request.wire)?;
    let settings = settings(&request.losses, &Controls::here()?);
    let round: Duration = settings.iter().map(|setting| setting.times(request.counted).iter().sum::<Duration>()).sum();
    begin(request.rounds * round);
    let plan = Plan { groups: vec![settings.len()], rounds: request.rounds, seed: 18 };
    let mut streams = Streams { switched: &switched, settings: &settings, counted: request.counted };
    let (series, whole) = blocks::conduct(&mut streams, &plan, |_, _| true);
    if let Some(why) = series.iter().find(|of| of.blocks.is_empty()).and_then(|of| of.failures.first()) {
        return Err(Fault::new("streams over a lab", why.clone(), "run it again; report it if it stays"));
    }
    Ok(Findings { rate: request.wire.rate, queue: request.wire.queue, settings, series, whole })
}

struct Streams<'a> {
    switched: &'a Switched,
    settings: &'a [Setting],
    counted: Duration,
}

impl Blocks for Streams<'_> {
    type Block = Block;

    fn block(&mut self, nth: usize, _: u32) -> Result<Block> {
        let setting = &self.settings[nth];
        self.switched.lose(setting.loss)?;
        let block = run(self.switched, &setting.streams, setting.times(self.counted));
        self.switched.lose(0.0)?;
        block
    }

    // The link is far slower than the cores.
    fn probe(&mut self, _: usize) -> Option<Probe> {
        None
    }

    fn stopped(&self) -> bool {
        linux::signal::interrupted()
    }
}

/// One stream in the view of its supervisor.
#[derive(Default)]
struct Flow {
    received: AtomicU64,
    stops: AtomicBool,
}

/// Runs `streams` from host a to host b at once.
fn run(switched: &Switched, streams: &[Stack], [warm, counted]: [Duration; 2]) -> Result<Block> {
    let lab = switched.lab();
    let flows: Vec<Flow> = streams.iter().map(|_| Flow::default()).collect();
    let begins = Barrier::new(2 * streams.len() + 1);
    std::thread::scope(|scope| {
        let mut ends = Vec::new();
        for (stack, flow) in streams.iter().zip(&flows) {
            let both = match stack {
                Stack::Tcp(control) => tcp(scope, lab, flow, &begins, control),
                Stack::EngineUdp => Ok(engine(scope, lab, flow, &begins)),
            };
            ends.extend(both?);
        }
        begins.wait();
        std::thread::sleep(warm);
        let lost = switched.lost();
        let before: Vec<u64> = flows.iter().map(|flow| flow.received.load(Ordering::Relaxed)).collect();
        let begun = Instant::now();
        std::thread::sleep(counted);
        let seconds = begun.elapsed().as_secs_f64();
        let after = flows.iter().map(|flow| flow.received.load(Ordering::Relaxed));
        let goodput = after.zip(&before).map(|(after, before)| BytesPerSecond((after - before) as f64 / seconds));
        let block = Block { goodput: goodput.collect(), lost: switched.lost()? - lost? };
        flows.iter().for_each(|flow| flow.stops.store(true, Ordering::Relaxed));
        for end in ends {
            end.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(block)
    })
}

type Ends<'scope> = [std::thread::ScopedJoinHandle<'scope, Result<()>>; 2];

fn tcp<'scope>(
    scope: &'scope Scope<'scope, '_>,
    lab: &Lab,
    flow: &'scope Flow,
    begins: &'scope Barrier,
    control: &str,
) -> Result<Ends<'scope>> {
    let fault = |error| Fault::because("a TCP stream of the lab", error, "run it again");
    let at = SocketAddr::new(lab.address(Host::B), 0);
    let listener = lab.inside(Host::B, || TcpListener::bind(at))?.map_err(fault)?;
    let to = listener.local_addr().map_err(fault)?;
    let mut sender = lab.inside(Host::A, || TcpStream::connect(to))?.map_err(fault)?;
    rustix::net::sockopt::set_tcp_congestion(&sender, control)
        .map_err(|error| Fault::because(format!("TCP's congestion control {control}"), error, "run as root"))?;
    let mut receiver = listener.accept().map_err(fault)?.0;
    receiver.set_read_timeout(Some(ENDS_WITHIN)).map_err(fault)?;
    let sends = scope.spawn(move || {
        let bytes = vec![7; MESSAGE];
        begins.wait();
        while !flow.stops.load(Ordering::Relaxed) {
            sender.write_all(&bytes).map_err(fault)?;
        }
        sender.shutdown(Shutdown::Write).map_err(fault)
    });
    let receives = scope.spawn(move || {
        let mut bytes = vec![0; MESSAGE];
        begins.wait();
        loop {
            match receiver.read(&mut bytes).map_err(fault)? {
                0 => return Ok(()),
                length => flow.received.fetch_add(length as u64, Ordering::Relaxed),
            };
        }
    });
    Ok([sends, receives])
}

fn engine<'scope>(
    scope: &'scope Scope<'scope, '_>,
    lab: &'scope Lab,
    flow: &'scope Flow,
    begins: &'scope Barrier,
) -> Ends<'scope> {
    let (tells, hears) = std::sync::mpsc::channel();
    let sends = scope.spawn(move || {
        lab.inside(Host::A, move || {
            let met = joined(lab, Host::A).and_then(|mut sender| {
                let gone = |_| Fault::new("a stream of the lab", "its receiver did not open", "see its own fault");
                let to = sender.insert(&hears.recv().map_err(gone)?)?;
                Ok((sender, to))
            });
            begins.wait();
            let (sender, to) = met?;
            send(sender, to, flow)
        })?
    });
    let receives = scope.spawn(move || {
        lab.inside(Host::B, move || {
            let met = joined(lab, Host::B).map(|mut receiver| {
                // A sender that has gone tells why itself.
                let _ = tells.send(receiver.name());
                receiver
            });
            drop(tells);
            begins.wait();
            receive(met?, flow)
        })?
    });
    [sends, receives]
}

type Joined = Endpoint<Paths, Vec<u8>>;

fn joined(lab: &Lab, host: Host) -> Result<Joined> {
    // Without shared memory, which the hosts of a lab have: the link is to be measured.
    Endpoint::join(&Settings { address: Some(lab.address(host)), shm: false, ..Settings::default() })
}

fn send(mut sender: Joined, to: PeerIndex, flow: &Flow) -> Result<()> {
    for _ in 0..UNDER_WAY {
        sender.send(to, 1, vec![7; MESSAGE], 0)?;
    }
    let mut left = UNDER_WAY;
    let until = until(flow);
    while left > 0 {
        let Some(done) = sender.poll()? else {
            sender.relax();
            until()?;
            continue;
        };
        check(done.status)?;
        left -= 1;
        if !flow.stops.load(Ordering::Relaxed) {
            sender.send(to, 1, done.buffer, 0)?;
            left += 1;
        }
    }
    // An empty message ends the stream.
    sender.send(to, 2, Vec::new(), 0)?;
    sender.settle(ENDS_WITHIN)
}

fn receive(mut receiver: Joined, flow: &Flow) -> Result<()> {
    for _ in 0..UNDER_WAY {
        receiver.receive(Source::Any, TagSelector::any(), vec![0; MESSAGE], 0)?;
    }
    let until = until(flow);
    loop {
        let Some(done) = receiver.poll()? else {
            receiver.relax();
            until()?;
            continue;
        };
        check(done.status)?;
        if done.envelope.tag == 2 {
            // Its last acknowledgement may be lost once the sender has gone.
            let _ = receiver.settle(ENDS_WITHIN);
            return Ok(());
        }
        flow.received.fetch_add(done.envelope.length, Ordering::Relaxed);
        receiver.receive(Source::Any, TagSelector::any(), done.buffer, 0)?;
    }
}

/// A fault once a stopped stream has run on for too long.
fn until(flow: &Flow) -> impl Fn() -> Result<()> {
    let since = std::cell::Cell::new(None);
    move || {
        if !flow.stops.load(Ordering::Relaxed) {
            return Ok(());
        }
        let begun: Instant = since.get().unwrap_or_else(Instant::now);
        since.set(Some(begun));
        match begun.elapsed() > ENDS_WITHIN {
            true => Err(Fault::new("a stream of the lab", "it did not end", "run it again; report it if it stays")),
            false => Ok(()),
        }
    }
}

fn check(status: Status) -> Result<()> {
    match status {
        Status::Done => Ok(()),
        other => Err(Fault::new("a message of the stream", format!("it ended as {other:?}"), "run it again")),
    }
}

impl Findings {
    /// The findings as text, in so many columns.
    pub fn page(&self, width: usize) -> String {
        let (rate, queue) = (self.rate.0 * 8.0 / 1e6, self.queue.0 as f64 / 1e6);
        let mut page = format!(
            "streams of {} messages from host a to host b of a lab: a link of {rate:.0} Mbit/s (token bucket), up to {queue} ms of queue\n\n",
            Bytes(MESSAGE as u64)
        );
        page += "one stream alone, goodput by the share of packets lost each way\n";
        let usual = self.settings.first().and_then(|setting| setting.streams.first()).map(Stack::to_string);
        let usual = usual.unwrap_or_default();
        let mut table = Table::new(["lost", &usual, "engine-udp", "engine-udp over TCP"]).right([0, 1, 2]);
        let alone = self.settings.iter().zip(&self.series).filter(|(setting, _)| setting.streams.len() == 1);
        let alone: Vec<_> = alone.collect();
        for both in alone.chunks(2) {
            let [(setting, tcp), (_, engine)] = both else { continue };
            let first = |block: &Block| block.goodput.first().map(|rate| rate.0);
            let ratio = match engine.over(tcp, first).interval() {
                Some(of) => of.ratio(2, "x"),
                None => "too few rounds".to_owned(),
            };
            let middle = |series: &Series<Block>| middle(&series.values(first));
            let lost = format!("{} %", setting.loss * 100.0);
            table.row([lost, middle(tcp), middle(engine), ratio]);
        }
        page += &table.text(width);
        page += "\ntwo streams at once, without loss but what the queue drops\n";
        let mut table = Table::new(["first and second", "first", "second", "share of the first"]).right([1, 2]);
        for (setting, series) in self.settings.iter().zip(&self.series) {
            let [one, other] = &setting.streams[..] else { continue };
            let of = |nth: usize| move |block: &Block| block.goodput.get(nth).map(|rate| rate.0);
            let share = |block: &Block| Some(100.0 * block.goodput[0].0 / (block.goodput[0].0 + block.goodput[1].0));
            let share = match blocks::difference(&series.values(share)) {
                Some(of) => format!("{:.0} % ({})", of.middle, of.range(|end| format!("{:.0}", end.clamp(0.0, 100.0)))),
                None => "too few rounds".to_owned(),
            };
            let values = |nth| middle(&series.values(of(nth)));
            table.row([format!("{one} and {other}"), values(0), values(1), share]);
        }
        page += &table.text(width);
        for failure in self.series.iter().flat_map(|series| &series.failures) {
            page += &format!("  failed: {failure}\n");
        }
        page
    }
}

fn middle(values: &[f64]) -> String {
    rounds::statistics::median(values).map_or("-".to_owned(), |value| figure::digits(value * 8.0 / 1e6) + " Mbit/s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "make check"]
    fn streams_pass_a_link_that_is_slow_and_loses_packets() {
        if !rustix::process::geteuid().is_root() {
            return skip::test("a lab needs root");
        }
        if let Some(why) = linux::lab::Wire::cannot() {
            return skip::test(why);
        }
        let wire = Wire { rate: BytesPerSecond(100e6 / 8.0), queue: Nanoseconds(10_000_000) };
        let counted = Duration::from_millis(300);
        let request = Request { wire, losses: vec![0.0, 0.01], counted, rounds: 1 };
        let findings = measure(&request, |_| ()).unwrap();
        for (setting, series) in findings.settings.iter().zip(&findings.series) {
            let block = &series.blocks[0].block;
            let sum: f64 = block.goodput.iter().map(|rate| rate.0).sum();
            assert!(sum > 1e5 && sum < 1.1 * wire.rate.0, "{setting:?}: {block:?}");
            assert_eq!(block.lost > 0, setting.loss > 0.0, "{setting:?}: {block:?}");
        }
        let page = findings.page(100);
        assert!(page.contains("100 Mbit/s") && page.contains("engine-udp and engine-udp"), "{page}");
    }
}
