//! Prints how long offcodes pause while they move: median and 99th percentile of 200 moves of each kind, and how long the
//! longest gap in a stream of messages was beside that of a stream without moves.
//!
//! `cargo bench -p runtime --bench migration -- [MOVES]`. It wants two cores and nothing else on the machine,
//! and root for moves to hooks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linux::lab::{Host, Lab};
use linux::xdp::Point;
use machine::site::Direction;
use machine::{Bytes, CoreId, Fault, Result, Site, XdpMode};
use offcode::channel::{Buffers, Content, Policy};
use offcode::depot::Depot;
use offcode::{
    Channel, ChannelId, Context, Described, Lifecycle, Registry, Specification, State, Written, interface, offcode,
};
use runtime::agent::{Agent, Limits, Options, keys};
use runtime::migration::Moved;
use runtime::site::SiteDriver;
use runtime::site::agent::AgentSite;
use runtime::site::app::AppSite;
use runtime::site::core::CoreSite;
use runtime::site::residents::{Log, Residents};
use runtime::site::xdp::XdpSite;
use runtime::{Catalogue, OffcodeId, Runtime, Wanted};

#[interface(guid = "c0d2cb4e-22d5-4a1f-8bb1-6f0b0a5e0001")]
trait Count {
    fn count(&self) -> u64;
}

/// Hands messages back and counts them; 1 KiB of state.
#[offcode(guid = "c0d2cb4e-22d5-4a1f-8bb1-6f0b0a5e0011", name = "example.echo", version = "1.0.0", implements(Count),
          sites(app, core, agent), state = saved)]
struct Echo {
    count: u64,
    table: [u8; 1024],
}

impl Default for Echo {
    fn default() -> Self {
        Echo { count: 0, table: [0; 1024] }
    }
}

impl Count for Echo {
    fn count(&self) -> u64 {
        self.count
    }
}

impl Lifecycle for Echo {
    fn message(&mut self, channel: ChannelId, message: &[u8], context: &mut dyn Context) {
        self.count += 1;
        let _ = context.write(channel, message);
    }

    fn save(&mut self, state: &mut State, _: &mut dyn Context) -> Result<()> {
        state.keep("count", &self.count);
        state.put("table", &[], &self.table);
        Ok(())
    }

    fn restore(&mut self, state: &State, _: &mut dyn Context) -> Result<()> {
        self.count = state.kept("count")?;
        self.table = state.kept("table")?;
        Ok(())
    }
}

/// What `echo.c` is at hooks.
#[offcode(guid = "c0d2cb4e-22d5-4a1f-8bb1-6f0b0a5e0021", name = "example.mirror", version = "1.0.0", implements(Count), sites(app, xdp, tc),
          bodies(native(app), bpf("echo.o", hook = "count_frames", tc = "count_packets", xdp, tc)), state = saved,
          attributes(LIMIT = 0, refuse_start = 0))]
#[derive(Default)]
struct Mirror {
    frames: u64,
}

impl Count for Mirror {
    fn count(&self) -> u64 {
        self.frames
    }
}

impl Lifecycle for Mirror {
    fn message(&mut self, channel: ChannelId, message: &[u8], context: &mut dyn Context) {
        let _ = context.write(channel, message);
    }

    fn save(&mut self, state: &mut State, _: &mut dyn Context) -> Result<()> {
        state.keep("frames", &self.frames);
        Ok(())
    }

    fn restore(&mut self, state: &State, _: &mut dyn Context) -> Result<()> {
        self.frames = state.kept("frames")?;
        Ok(())
    }
}

fn main() {
    let moves =
        std::env::args().skip(1).find(|word| word != "--bench").and_then(|text| text.parse().ok()).unwrap_or(200);
    if let Err(fault) = all(moves) {
        eprintln!("{fault}");
        std::process::exit(1);
    }
}

fn all(moves: usize) -> Result<()> {
    let log: Log = Arc::new(|_| {});
    let folder = std::env::temp_dir().join(format!("plimsoll-migration-{}", std::process::id()));
    let agent = on_loopback(&folder)?;
    let outcome = measure(moves, &log, &folder, &agent).and_then(|()| hooks(moves, &log, &folder));
    drop(agent);
    std::fs::remove_dir_all(&folder).map_err(|e| Fault::because(folder.display().to_string(), e, "remove it"))?;
    outcome
}

fn measure(moves: usize, log: &Log, folder: &std::path::Path, agent: &Served) -> Result<()> {
    let origin = Instant::now();
    let cores = linux::affinity::allowed()?;
    let mut sites: Vec<Box<dyn SiteDriver>> =
        vec![Box::new(AppSite::new(Residents::new(Site::App, origin, log.clone())))];
    let mut beside = Vec::new();
    // The first is the application's own.
    for &core in cores.iter().skip(1).take(2) {
        let (site, excluded) = CoreSite::open(core, origin, log.clone())?;
        beside.push(excluded);
        sites.push(Box::new(site));
    }
    sites.push(Box::new(AgentSite::connect(&agent.address, &folder.join("client"))?));
    let there = Site::Agent(agent.address.clone());
    let catalogue = Catalogue::new(Registry::new().with::<Echo>(), Vec::new())?;
    let mut runtime = Runtime::new(catalogue, sites, log.clone())?;
    let echo = runtime.create_offcode(&Wanted::new("example.echo").at(Site::App))?;
    println!("{moves} moves of each kind; pause of the offcode, and the longest gap of a stream through it");
    let core = |n: usize| cores.get(n).map(|core| Site::Core(CoreId(core.0)));
    let kinds = [
        core(1).map(|core| (Site::App, core)),
        core(1).zip(core(2)),
        Some((Site::App, there.clone())),
        core(1).map(|core| (core, there)),
    ];
    let mut stream = Stream::through(&mut runtime, echo)?;
    for (one, other) in kinds.into_iter().flatten() {
        back_and_forth(&mut runtime, (echo, &mut stream), (&one, &other), moves)?;
    }
    Ok(())
}

/// Moves between `app` and hooks of an interface of a lab.
fn hooks(moves: usize, log: &Log, folder: &std::path::Path) -> Result<()> {
    let (object, lab) = match (bpf::ECHO, Lab::owned(&linux::lab::Options::default())) {
        (Some(object), Ok(lab)) => (object, lab),
        (object, lab) => {
            let why = lab.err().map(|why| why.to_string()).filter(|_| object.is_some());
            println!("  moves to hooks are left out: {}", why.as_deref().or(bpf::MISSING).unwrap_or_default());
            return Ok(());
        }
    };
    let package = folder.join("depot/example.mirror");
    let write = || {
        std::fs::create_dir_all(&package)?;
        std::fs::write(package.join("odf.xml"), offcode::odf::write(&Mirror::manifest()).unwrap_or_default())?;
        std::fs::write(package.join("echo.o"), object)
    };
    write().map_err(|e| Fault::because(package.display().to_string(), e, "name another TMPDIR"))?;
    let interface = lab.interface(Host::B);
    let points = [Point::Xdp(XdpMode::Native), Point::Tc(Direction::Ingress)];
    let app = AppSite::new(Residents::new(Site::App, Instant::now(), log.clone()));
    let mut sites: Vec<Box<dyn SiteDriver>> = vec![Box::new(app)];
    for point in points {
        sites.push(Box::new(lab.inside(Host::B, || XdpSite::open(interface, point))??));
    }
    let [xdp, tc] = [sites[1].site().clone(), sites[2].site().clone()];
    let catalogue = Catalogue::new(Registry::new().with::<Mirror>(), vec![Depot::open(&folder.join("depot"))?])?;
    let mut runtime = Runtime::new(catalogue, sites, log.clone())?;
    let mirror = runtime.create_offcode(&Wanted::new("example.mirror").at(Site::App))?;
    let mut stream = Stream::through(&mut runtime, mirror)?;
    for (one, other) in [(&Site::App, &xdp), (&Site::App, &tc), (&xdp, &tc)] {
        back_and_forth(&mut runtime, (mirror, &mut stream), (one, other), moves)?;
    }
    Ok(())
}

/// A stream that the offcode hands back, and the longest time in which nothing came.
struct Stream {
    channel: runtime::Pathway,
    last: Instant,
    longest: Duration,
}

impl Stream {
    fn through(runtime: &mut Runtime, offcode: OffcodeId) -> Result<Stream> {
        let buffers = Buffers { count: 64, size: Bytes(64), policy: Policy::Any };
        let specification = Specification { content: Content::Messages, buffers, ..Specification::default() };
        let mut channel = runtime.create_channel(specification)?;
        runtime.attach(&mut channel, offcode, "stream")?;
        Ok(Stream { channel, last: Instant::now(), longest: Duration::ZERO })
    }

    fn turn(&mut self, runtime: &mut Runtime) -> Result<()> {
        runtime.turn()?;
        let _full: Written = self.channel.write(b"sixteen bytes ok")?;
        let mut came = false;
        while self.channel.read_with(&mut |_| came = true)? {}
        if came {
            self.longest = self.longest.max(self.last.elapsed());
            self.last = Instant::now();
        }
        Ok(())
    }

    fn run(&mut self, runtime: &mut Runtime, time: Duration) -> Result<Duration> {
        let begun = Instant::now();
        (self.last, self.longest) = (begun, Duration::ZERO);
        while begun.elapsed() < time {
            self.turn(runtime)?;
        }
        Ok(self.longest)
    }
}

/// Streams run so long before and after a move.
const AROUND: Duration = Duration::from_millis(3);

fn back_and_forth(
    runtime: &mut Runtime,
    (offcode, stream): (OffcodeId, &mut Stream),
    between: (&Site, &Site),
    moves: usize,
) -> Result<()> {
    if runtime.site_of(offcode)? != between.0 {
        runtime.migrate(offcode, between.0)?;
    }
    let mut pauses = [Vec::new(), Vec::new()];
    let (mut gaps, mut quiet): (Vec<f64>, Vec<f64>) = Default::default();
    for n in 0..2 * moves {
        let to = if n % 2 == 0 { between.1 } else { between.0 };
        quiet.push(micros(stream.run(runtime, AROUND)?));
        (stream.last, stream.longest) = (Instant::now(), Duration::ZERO);
        let mut migration = runtime.migration(offcode, to)?;
        loop {
            let over = migration.advance(runtime);
            stream.turn(runtime)?;
            if over {
                break;
            }
        }
        let moved: Moved = migration.outcome()?;
        let begun = Instant::now();
        while begun.elapsed() < AROUND {
            stream.turn(runtime)?;
        }
        gaps.push(micros(stream.longest));
        pauses[n % 2].push(moved.pause.0 as f64 / 1e3);
    }
    let (from, to) = between;
    for (pauses, way) in pauses.iter_mut().zip([format!("{from} -> {to}"), format!("{to} -> {from}")]) {
        println!("  {way:<44} pause {}", figures(pauses));
    }
    println!("  {:<44} gap   {}; without moves {}", "both ways", figures(&mut gaps), figures(&mut quiet));
    Ok(())
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn figures(values: &mut [f64]) -> String {
    values.sort_by(f64::total_cmp);
    let at = |part: f64| values.get(((values.len() - 1) as f64 * part).round() as usize).copied().unwrap_or(f64::NAN);
    format!("median {:.1} us, p99 {:.1} us", at(0.5), at(0.99))
}

/// An agent in a thread of this process.
struct Served {
    address: String,
    stop: Arc<AtomicBool>,
    bell: Arc<dyn machine::channel::Bell>,
    thread: Option<std::thread::JoinHandle<()>>,
}

fn on_loopback(folder: &std::path::Path) -> Result<Served> {
    keys::make(folder, &["127.0.0.1".into()])?;
    let listen = "127.0.0.1:0".parse().map_err(|e| Fault::because("127.0.0.1:0", e, "report this"))?;
    let options = Options { listen, keys: folder.join("127.0.0.1"), limits: Limits::default() };
    let site = AppSite::new(Residents::new(Site::App, Instant::now(), Arc::new(|_| {})));
    let agent = Agent::bind(&options, Registry::new().with::<Echo>(), vec![Box::new(site)], |_| {})?;
    let address = agent.address()?.to_string();
    let stop = Arc::new(AtomicBool::new(false));
    let asked = stop.clone();
    let bell = agent.bell();
    let thread = std::thread::spawn(move || {
        if let Err(fault) = agent.run(|| asked.load(Ordering::Relaxed)) {
            eprintln!("{fault}");
        }
    });
    Ok(Served { address, stop, bell, thread: Some(thread) })
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
