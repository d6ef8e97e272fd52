//! A pipeline of three offcodes at each of its places: what is predicted of the place, and what is measured there.
//! `cargo bench -p runtime --bench places -- [RATE]`, where nothing else runs. Exits with 1 where under an
//! objective the place that a plan chooses is more than 10 % worse than the best that was measured.

use std::collections::HashMap;
use std::fmt::Write;
use std::hint::black_box;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use linux::accounting::{own_thread_time, process_time};
use machine::costs::Interval;
use machine::{BodyKind, Bytes, CoreId, Fault, Machine, Result, Site, SiteKind, Source};
use offcode::manifest::{Body, Package, Software, Target};
use offcode::registry::Described;
use offcode::{Activity, Channel, ChannelId, Context, Guid, Incoming, Manifest, Offcode, Refusal, Registry, Written};
use placement::Effort;
use placement::layout::SiteIndex;
use runtime::app_file::AppFile;
use runtime::assembly::{self, Assembly};
use runtime::draft::{Draft, build, draft};
use runtime::ground::Ground;
use runtime::layout::Knowledge;
use runtime::measured::{Build, SourcedInterval, nothing, work_at};
use runtime::objective::Objective;
use runtime::site::core::Protection;
use runtime::{Catalogue, costs, grounds};

const STAGES: usize = 3;
/// How often each stage goes over a message.
const PASSES: [u32; STAGES] = [8, 24, 2];
const MESSAGE: usize = 64;
/// Messages are sent a thousand times a second, as many as the rate wants.
const TICK: Duration = Duration::from_millis(1);
/// What a chosen place may be worse than the best.
const MARGIN: f64 = 1.1;
const TIMEOUT: Duration = Duration::from_secs(20);

/// Messages that came through, and when the last one did.
static ARRIVED: AtomicU64 = AtomicU64::new(0);
static LAST: AtomicU64 = AtomicU64::new(0);

/// Nanoseconds, on one clock for all threads.
fn now() -> u64 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    ORIGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Goes over each message, and passes it on to the next stage.
#[derive(Default)]
struct Stage<const N: usize> {
    next: Option<ChannelId>,
    sum: u64,
}

impl<const N: usize> Offcode for Stage<N> {
    fn interfaces(&self) -> &[Guid] {
        &[]
    }

    fn call(&mut self, _: Incoming<'_>, _: &mut Vec<u8>, _: &mut dyn Context) -> Result<(), Refusal> {
        Err(Refusal("it takes messages".into()))
    }
    fn attached(&mut self, channel: ChannelId, name: &str, _: &mut dyn Context) {
        if name == channel_name(N + 1) {
            self.next = Some(channel);
        }
    }
    fn message(&mut self, _: ChannelId, message: &[u8], context: &mut dyn Context) {
        for _ in 0..PASSES[N] {
            for &byte in black_box(message) {
                self.sum = (self.sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
        }
        black_box(self.sum);
        match self.next {
            Some(next) => {
                if context.write(next, message) != Written::Taken {
                    context.log("a message found no room");
                }
            }
            None => {
                LAST.store(now(), Ordering::Relaxed);
                ARRIVED.fetch_add(1, Ordering::Release);
            }
        }
    }
}

impl<const N: usize> Described for Stage<N> {
    const GUID: Guid =
        Guid::from_bytes([b'p', b'l', b'a', b'c', b'e', b's', b'-', b's', b't', b'a', b'g', b'e', b'-', 0, 0, N as u8]);
    const INTERFACES: &'static [Guid] = &[];
    const SIGNATURE: u64 = offcode::signature(&[]);
    fn manifest() -> Manifest {
        let sites = [SiteKind::App, SiteKind::Core];
        let package = Package {
            guid: Self::GUID,
            name: stage_name(N),
            version: "1".into(),
            description: "Goes over each message.".into(),
            interfaces: Vec::new(),
            bodies: vec![Body {
                kind: BodyKind::Native,
                file: None,
                libraries: Vec::new(),
                sites: sites.to_vec(),
                program: None,
                tc: None,
            }],
            attributes: Vec::new(),
            state: Default::default(),
        };
        let target = |site| Target { site, modes: Vec::new(), memory: Bytes(0), work: None };
        Manifest { package, hardware: sites.map(target).to_vec(), software: Software::default() }
    }
}

fn stage_name(n: usize) -> String {
    format!("stage.{n}")
}

/// To stage `n`.
fn channel_name(n: usize) -> String {
    format!("to-{n}")
}

fn registry() -> Registry {
    Registry::new().with::<Stage<0>>().with::<Stage<1>>().with::<Stage<2>>()
}

/// How much is measured.
pub struct Settings {
    /// Messages a second.
    pub rate: u64,
    /// With messages at that rate, in each round.
    pub time: Duration,
    /// Messages that go through alone, one after the other, in each round.
    pub alone: u64,
    pub rounds: usize,
}

/// What a place was measured to cost.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    /// Cores.
    host: f64,
    app: f64,
    /// Nanoseconds.
    latency: f64,
}

impl Cost {
    fn of(&self, objective: &Objective) -> f64 {
        match objective {
            Objective::HostCpu => self.host,
            Objective::Latency => self.latency,
            Objective::Spare(_) => self.app,
        }
    }
}

/// One application file for each place: a site a stage.
fn file(rate: u64, core: CoreId, place: Option<&[Site]>) -> Result<AppFile> {
    let mut text = format!("name = \"places\"\nsites = [\"app\", \"core:{}\"]\n", core.0);
    for n in 0..STAGES {
        let _ = writeln!(text, "[[offcode]]\ncreate = \"{}\"", stage_name(n));
        if let Some(place) = place {
            let _ = writeln!(text, "at = \"{}\"", place[n]);
        }
    }
    for n in 0..STAGES {
        let from = if n == 0 { "application".to_owned() } else { stage_name(n - 1) };
        let _ = writeln!(text, "[[channel]]\nname = \"{}\"\nfrom = \"{from}\"", channel_name(n));
        let _ = writeln!(text, "to = [\"{}\"]\nrate = {rate}\ncontent = \"messages\"", stage_name(n));
        text.push_str("buffers = 4096\nbuffer-size = \"128 B\"\n");
    }
    AppFile::parse(&text, Path::new("places.toml"))
}

/// The pipeline at one place.
struct Pipeline {
    assembly: Assembly,
    sent: u64,
}

impl Pipeline {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let start = Instant::now();
        while self.assembly.channels[0].1.write(message)? != Written::Taken {
            self.assembly.runtime.turn()?;
            late(start)?;
        }
        self.sent += 1;
        Ok(())
    }

    /// Until all that was sent came through.
    fn drain(&mut self) -> Result<()> {
        let start = Instant::now();
        while ARRIVED.load(Ordering::Acquire) < self.sent {
            self.assembly.runtime.turn()?;
            late(start)?;
        }
        Ok(())
    }

    /// Cores of the process and of this thread while `rate` messages a second are sent, and none without a rate.
    fn cores(&mut self, rate: u64, time: Duration) -> Result<(f64, f64)> {
        let process = || process_time(std::process::id()).unwrap_or_default().0;
        let (start, host, app) = (Instant::now(), process(), own_thread_time().0);
        let (mut ticks, mut sent) = (0, 0);
        while start.elapsed() < time {
            ticks += 1;
            while sent < rate * u64::from(ticks) / 1000 {
                self.send(&[7; MESSAGE])?;
                sent += 1;
            }
            while self.assembly.runtime.turn()? == Activity::Worked {}
            std::thread::sleep((TICK * ticks).saturating_sub(start.elapsed()));
        }
        let wall = start.elapsed().as_nanos() as f64;
        let both = ((process() - host) as f64 / wall, (own_thread_time().0 - app) as f64 / wall);
        self.drain()?;
        Ok(both)
    }

    /// Median of the time from the application to the last stage, of messages that meet no other.
    fn latency(&mut self, messages: u64) -> Result<f64> {
        let mut times = Vec::new();
        for _ in 0..messages {
            let start = now();
            self.send(&[7; MESSAGE])?;
            self.drain()?;
            times.push(LAST.load(Ordering::Relaxed).saturating_sub(start) as f64);
        }
        Ok(median(times))
    }
}

fn late(start: Instant) -> Result<()> {
    if start.elapsed() < TIMEOUT {
        return Ok(());
    }
    Err(Fault::new("the pipeline", "a message did not come through", "look at what the offcodes logged"))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// What runs measured, by offcode and quantity: as the ledger keeps it of `plimsoll run`.
type Works = HashMap<(String, String), f64>;

/// Starts the pipeline at a place, measures it, and notes what its offcodes took.
fn measure(settings: &Settings, core: CoreId, place: &[Site], works: &mut Works) -> Result<(Cost, (f64, f64))> {
    let file = file(settings.rate, core, Some(place))?;
    let planned = assembly::plan(&file, registry(), &Objective::HostCpu, &nothing)?;
    let expected = planned.expected.clone();
    ARRIVED.store(0, Ordering::Relaxed);
    let assembly = assembly::start(planned, Protection::Nothing, Arc::new(|line| eprintln!("{line}")))?;
    let mut pipeline = Pipeline { assembly, sent: 0 };
    let idle = pipeline.cores(0, settings.time / 4)?;
    let (host, app) = pipeline.cores(settings.rate, settings.time)?;
    let latency = pipeline.latency(settings.alone)?;
    for line in pipeline.assembly.runtime.status() {
        let Some(of) = expected.iter().find(|of| of.build.offcode == line.offcode) else { continue };
        if let Some(timed) = line.evidence.ok().and_then(|evidence| evidence.timed) {
            works.insert((line.offcode, work_at(&of.site)), (timed.each() - of.ends).max(1.0));
        }
    }
    Ok((Cost { host, app, latency }, idle))
}

/// Measures every place, and returns the page and whether every chosen place is near the best.
pub fn run(settings: &Settings) -> Result<(String, bool)> {
    let usable = linux::affinity::allowed()?;
    let core = *usable.last().filter(|_| usable.len() > 1).ok_or_else(|| {
        Fault::new("this process", "it may use one core, and the application needs that", "run it on two cores or more")
    })?;
    let sites = [Site::App, Site::Core(core)];
    let places: Vec<Vec<Site>> =
        (0..1 << STAGES).map(|bits: usize| (0..STAGES).map(|n| sites[bits >> n & 1].clone()).collect()).collect();
    let mut works = Works::new();
    let (mut all, mut idle) = (vec![Vec::new(); places.len()], Vec::new());
    for _ in 0..settings.rounds {
        for (place, costs) in places.iter().zip(&mut all) {
            let (cost, alone) = measure(settings, core, place, &mut works)?;
            costs.push(cost);
            if place.iter().all(|site| *site == Site::App) {
                idle.push(alone);
            }
        }
    }
    let middle = |costs: &[Cost], of: fn(&Cost) -> f64| median(costs.iter().map(of).collect());
    let measured: Vec<Cost> = all
        .iter()
        .map(|of| Cost { host: middle(of, |c| c.host), app: middle(of, |c| c.app), latency: middle(of, |c| c.latency) })
        .collect();
    // What the application takes without a message is in each measurement, and in no plan.
    let idle = (median(idle.iter().map(|idle| idle.0).collect()), median(idle.iter().map(|idle| idle.1).collect()));
    compare(settings.rate, core, &places, &measured, idle, &works)
}

fn compare(
    rate: u64,
    core: CoreId,
    places: &[Vec<Site>],
    measured: &[Cost],
    idle: (f64, f64),
    works: &Works,
) -> Result<(String, bool)> {
    let file = file(rate, core, None)?;
    let catalogue = Catalogue::new(registry(), Vec::new())?;
    let machine = Machine::read(&Source::live())?;
    let grounds: Vec<Ground> = grounds::survey(&file, &machine, &linux::affinity::allowed()?);
    let (costs, _) = costs::known()?;
    let earlier = |of: &Build, quantity: &str| {
        let work = works.get(&(of.offcode.clone(), quantity.to_owned()))?;
        Some(SourcedInterval { interval: Interval::exactly(*work), how: "this example".into() })
    };
    let mut page = format!("{rate} messages a second; the application alone takes {:.2} millicores\n", idle.1 * 1e3);
    let mut near = true;
    for objective in [Objective::HostCpu, Objective::Latency, Objective::Spare(Site::App)] {
        let know = Knowledge { costs: &costs, build: &build(&catalogue), earlier: &earlier, objective: &objective };
        let Draft { laid, .. } = draft(&catalogue, &grounds, &know, &file.offcodes, &file.channels, &[])?;
        let plan = placement::solve(&laid.layout, &Effort::default())?;
        let index = |site: &Site| SiteIndex(grounds.iter().position(|ground| ground.site == *site).unwrap_or(0));
        let predicted = |place: &[Site]| {
            let at: Vec<SiteIndex> = place.iter().chain([&Site::App]).map(index).collect();
            let cost = laid.layout.cost(&at).total;
            match objective {
                Objective::HostCpu => cost + idle.0,
                Objective::Latency => cost / rate as f64 * 1e9,
                Objective::Spare(_) => cost + idle.1,
            }
        };
        let shown = |value: f64| match objective {
            Objective::Latency => format!("{value:.0} ns"),
            _ => format!("{:.2} mcores", value * 1e3),
        };
        let _ = writeln!(page, "{:<26} {:>14} {:>14}", objective.to_string(), "predicted", "measured");
        let chosen = |place: &[Site]| place.iter().map(index).eq(plan.assignment[..STAGES].iter().copied());
        let mut taken = f64::NAN;
        for (place, cost) in places.iter().zip(measured) {
            let mark = if chosen(place) { " chosen" } else { "" };
            if chosen(place) {
                taken = cost.of(&objective);
            }
            let name = place.iter().map(Site::to_string).collect::<Vec<_>>().join(" ");
            let (predicted, measured) = (shown(predicted(place)), shown(cost.of(&objective)));
            let _ = writeln!(page, "  {name:<24} {predicted:>14} {measured:>14}{mark}");
        }
        let best = measured.iter().map(|cost| cost.of(&objective)).fold(f64::INFINITY, f64::min);
        let held = taken <= best * MARGIN;
        near &= held;
        let said = if held { "within" } else { "NOT within" };
        let _ = writeln!(page, "  the chosen one is {said} 10 % of the best: {} to {}", shown(taken), shown(best));
    }
    Ok((page, near))
}

fn main() -> Result<ExitCode> {
    let rate =
        std::env::args().skip(1).find(|word| word != "--bench").and_then(|rate| rate.parse().ok()).unwrap_or(20_000);
    let settings = Settings { rate, time: Duration::from_secs(1), alone: 2000, rounds: 3 };
    let (page, near) = run(&settings)?;
    print!("{page}");
    Ok(ExitCode::from(u8::from(!near)))
}
