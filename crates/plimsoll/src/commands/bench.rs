use std::path::PathBuf;
use std::process::ExitCode;

use bench::runner::Bench;
use experiment::comparison::Paired;
use experiment::point::{Path, Pattern, PointSpec, Receiver, Stack, StackAt};
use experiment::rounds::{self, Blocks, Plan, Series};
use experiment::sample::{Runner, Sample};
use experiment::sweep::sender;
use linux::output;
use machine::choice::{Choice, for_polling_here};
use machine::topology::Topology;
use machine::{Bytes, CoreId, Dilation, Fault, Probe, Result, Site, count};

use super::bench_congestion;
use super::bench_dilate;
use super::bench_mapping;
use super::bench_mpi;
use super::bench_profiler;
use super::bench_semantics;
use super::path::{self, Ends, second_host};
use crate::bench_page::{self, Measured};
use crate::sweep_page;

/// Measures message paths, stack by stack and size by size.
#[derive(clap::Args)]
pub struct Arguments {
    /// Stacks to compare: engine-shm, engine-udp, engine-afxdp[:IFACE], engine-xdp[:IFACE], tcp, udp, open-mpi
    #[arg(long = "stack", value_delimiter = ',', default_value = "tcp")]
    stacks: Vec<StackAt>,
    /// Where the engine's work runs: app or core:N
    #[arg(long, default_value = "app")]
    placement: Site,
    /// Pattern of messages: ping-pong, stream, stream-no-cache, bidirectional, window or message-rate
    #[arg(long, default_value = "ping-pong")]
    pattern: Pattern,
    /// Message sizes: a list (8,64KiB), or a range from..to in which each size is twice the one before (2..1MiB)
    #[arg(long, default_value = "2..1MiB", value_parser = sizes)]
    sizes: Sizes,
    /// Bytes by which the message size varies within a block, as in NetPIPE
    #[arg(long, default_value = "3")]
    perturbation: Bytes,
    /// Path between the two ends: loopback, lab, the HOST[:PORT] at which `plimsoll serve` listens, or allocation (this node
    /// and the next one of a Slurm or PBS job) [default: allocation where the job has two nodes and every stack can pass
    /// between them, else loopback]
    #[arg(long)]
    path: Option<Ends>,
    /// File with the word that the server at --path HOST was started with (its --key)
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Core of the other end's engine, where --placement is core:N [default: a free one near its application]
    #[arg(long, value_name = "N", conflicts_with = "mpi")]
    peer_engine: Option<u32>,
    /// Cores of the local and the remote application thread, like 0,1 [default: two near ones; with --mpi a near and a far pair]
    #[arg(long, value_name = "A,B", value_parser = cores)]
    cores: Option<(CoreId, CoreId)>,
    /// Core that does the kernel's receive processing (lab only)
    #[arg(long)]
    protocol_core: Option<u32>,
    /// What the receiver does with each message: reads, works (computes on its data) or, with --sweep-cores, both in
    /// turns
    #[arg(long, default_value = "reads", value_parser = receivers)]
    receiver: Receivers,
    /// Put the receiving process on each core in turn; show interrupts a message and which core bears them
    /// (Narayanaswamy, Balaji and Feng, 2007)
    #[arg(long, requires = "protocol_core", conflicts_with_all = ["cores", "mpi"])]
    sweep_cores: bool,
    /// Stretch protocol work by these factors at both ends, at app and at core:N: how much longer it may take before latency and
    /// rate show it (of engine-shm and 8 B, unless --stack and --sizes name one other)
    #[arg(long, value_name = "K,..", value_delimiter = ',', conflicts_with_all = ["sweep_cores", "mpi", "path", "pattern"])]
    dilate: Vec<Dilation>,
    #[command(flatten)]
    semantics: bench_semantics::Comparison,
    /// Most blocks of each point; a size at which all is decided gets no more
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Print all samples as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    mpi: bench_mpi::Arguments,
    #[command(flatten)]
    profiler: bench_profiler::Arguments,
    #[command(flatten)]
    mapping: bench_mapping::Arguments,
    #[command(flatten)]
    congestion: bench_congestion::Arguments,
}

#[derive(Clone)]
struct Sizes(Vec<Bytes>);

fn sizes(text: &str) -> Result<Sizes> {
    if let Some((from, to)) = text.split_once("..") {
        let (from, to) = (from.parse::<Bytes>()?, to.parse::<Bytes>()?);
        if from.0 == 0 || from > to {
            return Err(Fault::new(format!("sizes {text}"), "the range is empty", "write it like 2..1MiB"));
        }
        let doubling = std::iter::successors(Some(from), |size| size.0.checked_mul(2).map(Bytes));
        return Ok(Sizes(doubling.take_while(|size| *size <= to).collect()));
    }
    text.split(',').map(str::parse).collect::<Result<_>>().map(Sizes)
}

#[derive(Clone)]
struct Receivers(Vec<Receiver>);

fn receivers(text: &str) -> Result<Receivers> {
    if text == "both" { Ok(Receivers(Receiver::ALL.to_vec())) } else { text.parse().map(|one| Receivers(vec![one])) }
}

/// Whether this machine has the cores shows later: the remote one may be another's.
fn cores(text: &str) -> Result<(CoreId, CoreId)> {
    let bad = |cause: &str| Fault::new(format!("cores '{text}'"), cause, "write two like 0,1, or 0,0 for both on one");
    let numbers: std::result::Result<Vec<CoreId>, _> = text.split(',').map(|n| n.trim().parse().map(CoreId)).collect();
    match numbers.map_err(|_| bad("not two core numbers"))?[..] {
        [local, remote] => Ok((local, remote)),
        [one] => {
            linux::affinity::check(one)?;
            Err(bad("one core, where the two ends of a path need one each"))
        }
        _ => Err(bad("not two core numbers")),
    }
}

/// Those that were named, or two that are near each other and no threads of one core.
fn two_cores(named: Option<(CoreId, CoreId)>) -> Result<(CoreId, CoreId)> {
    if let Some(cores) = named {
        return Ok(cores);
    }
    match for_polling_here(&linux::affinity::allowed()?)?.as_slice() {
        [one, other, ..] => Ok((*one, *other)),
        _ => Err(Fault::new(
            "cores",
            "both ends poll, and this process may use one core",
            "give it more cores (taskset, cpuset), or name the one twice with --cores",
        )),
    }
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let key = path::key(arguments.key.as_deref(), arguments.path.as_ref())?;
    if arguments.semantics.asked() {
        return arguments.semantics.run(two_cores(arguments.cores)?, arguments.rounds, arguments.json);
    }
    let program = std::env::current_exe()
        .map_err(|e| Fault::because("this program's own file", e, "run it from where it is installed"))?;
    if arguments.profiler.profiler {
        let cores = two_cores(arguments.cores)?;
        return bench_profiler::run(arguments.profiler, program, cores, arguments.rounds, arguments.json);
    }
    if arguments.congestion.congestion {
        return bench_congestion::run(&arguments.congestion, arguments.rounds, arguments.json);
    }
    if arguments.mapping.mapping {
        let cores = two_cores(arguments.cores)?;
        return bench_mapping::run(arguments.mapping, program, cores, arguments.rounds, arguments.json);
    }
    if arguments.mpi.mpi {
        let protocol_core = arguments.protocol_core.map(CoreId);
        return bench_mpi::run(
            arguments.mpi,
            program,
            arguments.cores,
            protocol_core,
            arguments.rounds,
            arguments.json,
        );
    }
    if !arguments.dilate.is_empty() {
        let cores = two_cores(arguments.cores)?;
        let stack = match &arguments.stacks[..] {
            [one] if one.stack != Stack::Tcp => one.stack,
            _ => Stack::EngineShm,
        };
        return bench_dilate::run(bench_dilate::Request {
            program,
            dilations: arguments.dilate,
            stack,
            size: if let [size] = arguments.sizes.0[..] { size } else { Bytes(8) },
            cores,
            own: bench_dilate::own_cores(&arguments.placement, arguments.peer_engine, cores)?,
            rounds: arguments.rounds,
            json: arguments.json,
        });
    }
    if arguments.placement != Site::App && !arguments.stacks.iter().any(|of| of.stack.is_engine()) {
        return Err(Fault::new(
            format!("placement {}", arguments.placement),
            "none of the chosen stacks is plimsoll's to place",
            "add --stack engine-shm, engine-udp, engine-afxdp or engine-xdp, or leave --placement out",
        ));
    }
    if arguments.peer_engine.is_some() && arguments.placement == Site::App {
        let cause = "at placement app an engine has no core of its own";
        return Err(Fault::new(
            "core of the peer's engine",
            cause,
            "add --placement core:N, or leave --peer-engine out",
        ));
    }
    if arguments.receiver.0.len() > 1 && !arguments.sweep_cores {
        let cause = "only the sweep sets both beside each other";
        return Err(Fault::new("receiver both", cause, "add --sweep-cores, or choose reads or works"));
    }
    linux::signal::watch()?;
    let within =
        arguments.protocol_core.is_some() || arguments.stacks.iter().any(|of| !of.stack.passes_between_hosts());
    let second = if arguments.path.is_none() && within { None } else { second_host(arguments.path.as_ref())? };
    let path = match (&arguments.path, &second) {
        (Some(Ends::Path(path)), _) => path.clone(),
        (_, Some(second)) => Path::Remote(second.node().to_owned()),
        (_, None) => Path::Loopback,
    };
    let mut bench = Bench::new(program).with(second).showing(key);
    let far = if let Path::Remote(host) = &path { bench.host_of(host)?.cores } else { Vec::new() };
    let mut measured: Vec<Measured> = points(&arguments, &path, &far)?;
    let end = measure(&mut bench, &mut measured, &arguments);
    bench.close();
    // Whatever ended it, what was measured is not lost.
    if measured.iter().any(|point| !point.samples.is_empty()) {
        if arguments.json {
            let text = serde_json::to_string_pretty(&measured).map_err(|e| Fault::because("output", e, "report it"))?;
            output::print(&format!("{text}\n"))?;
        } else if arguments.sweep_cores {
            output::page(&sweep_page::page(&measured, arguments.rounds, output::width()))?;
        } else {
            let compared = arguments.stacks.len();
            output::page(&bench_page::page(&measured, compared, arguments.rounds, output::width()))?;
        }
    }
    end.map(|()| ExitCode::SUCCESS)
}

/// Measures blocks of points; the first that fails ends the bench.
struct Points<'a> {
    bench: &'a mut Bench,
    specs: Vec<PointSpec>,
    /// The present round, and the place of the last block in it.
    order: (u32, u32),
    done: usize,
    fault: Option<Fault>,
}

impl Blocks for Points<'_> {
    type Block = Sample;

    fn block(&mut self, point: usize, round: u32) -> Result<Sample> {
        self.order = if self.order.0 == round { (round, self.order.1 + 1) } else { (round, 0) };
        match self.bench.run_block(&self.specs[point], round, self.order.1) {
            Ok(sample) => {
                self.done += 1;
                Ok(sample)
            }
            // A signal reaches the peers of this process too: a block that fails then says nothing about its point.
            Err(fault) => {
                let cause = fault.cause().to_owned();
                self.fault = (!linux::signal::interrupted()).then_some(fault);
                Err(Fault::new("block", cause, "measure it again"))
            }
        }
    }

    /// The bench probes beside each block, and the sample holds it.
    fn probe(&mut self, _: usize) -> Option<Probe> {
        None
    }

    fn stopped(&self) -> bool {
        self.fault.is_some() || linux::signal::interrupted()
    }
}

/// Measures until all points have their blocks or are decided, a block fails, or a signal comes.
fn measure(bench: &mut Bench, measured: &mut [Measured], arguments: &Arguments) -> Result<()> {
    let compared = arguments.stacks.len();
    let groups =
        if arguments.sweep_cores { vec![1; measured.len()] } else { vec![compared; measured.len() / compared] };
    let plan = Plan { groups, rounds: arguments.rounds, seed: SEED };
    let specs: Vec<PointSpec> = measured.iter().map(|point| point.spec.clone()).collect();
    let metric = arguments.pattern.metric();
    let mut points = Points { bench, specs, order: (0, 0), done: 0, fault: None };
    let (all, whole) = rounds::conduct(&mut points, &plan, |_, all| {
        let samples: Vec<Vec<Sample>> = all.iter().map(samples).collect();
        compared == 1 || samples[1..].iter().any(|of| Paired::performance(of, &samples[0], metric).is_open())
    });
    for (point, series) in measured.iter_mut().zip(&all) {
        point.samples = samples(series);
    }
    match points.fault {
        Some(fault) => Err(fault),
        None if whole => Ok(()),
        None => {
            let blocks = count::of(u64::from(arguments.rounds) * measured.len() as u64, "block");
            let cause = format!("a signal ended it after {} of {blocks}", points.done);
            let next =
                if points.done == 0 { "run it again" } else { "use what was measured until then, or run it again" };
            Err(Fault::new("plimsoll bench", cause, next))
        }
    }
}

fn samples(series: &Series<Sample>) -> Vec<Sample> {
    series.blocks.iter().map(|taken| taken.block.clone()).collect()
}

const SEED: u64 = 0x0051_1A11_0000_0001;

/// Of both ends; `far` are the cores of a second host.
fn application_cores(named: Option<(CoreId, CoreId)>, far: &[CoreId]) -> Result<(CoreId, CoreId)> {
    match (named, far) {
        (None, [remote, ..]) => {
            let here = for_polling_here(&linux::affinity::allowed()?)?;
            Ok((here.first().copied().unwrap_or(CoreId(0)), *remote))
        }
        (named, _) => two_cores(named),
    }
}

/// The core of the other end's engine, if it is to have one.
fn peer_engine(
    arguments: &Arguments,
    placement: &Site,
    (local, remote): (CoreId, CoreId),
    far: &[CoreId],
) -> Result<Option<CoreId>> {
    let Site::Core(engine) = placement else { return Ok(None) };
    Ok(Some(match (arguments.peer_engine, far) {
        (Some(named), _) => CoreId(named),
        (None, []) => bench::runner::peer_engine(*engine, local, remote)?,
        (None, far) => far.iter().copied().find(|core| *core != remote).unwrap_or(remote),
    }))
}

/// Stacks in turn within each size, so that what is compared is measured side by side; in a sweep, within each stack
/// what the receiver does, and where its process is.
fn points(arguments: &Arguments, path: &Path, far: &[CoreId]) -> Result<Vec<Measured>> {
    let protocol_core = arguments.protocol_core.map(CoreId);
    let stops: Vec<(CoreId, CoreId)> = match protocol_core.filter(|_| arguments.sweep_cores) {
        None => vec![application_cores(arguments.cores, far)?],
        Some(protocol) => {
            let cores = linux::affinity::allowed()?;
            let choice = Choice::among(Topology::live()?, cores.iter().copied());
            let beside = |process| choice.clone().without([process, protocol]).nearest(process);
            let sender = |process| beside(process).unwrap_or_else(|| sender(&cores, process, protocol));
            cores.iter().map(|&process| (sender(process), process)).collect()
        }
    };
    let mut points = Vec::new();
    for size in &arguments.sizes.0 {
        for StackAt { stack, interface } in &arguments.stacks {
            let placement = if stack.is_engine() { arguments.placement.clone() } else { Site::App };
            for receiver in &arguments.receiver.0 {
                for (local_core, remote_core) in &stops {
                    let spec = PointSpec {
                        stack: *stack,
                        placement: placement.clone(),
                        pattern: arguments.pattern,
                        size: *size,
                        perturbation: arguments.perturbation,
                        path: path.clone(),
                        local_core: *local_core,
                        remote_core: *remote_core,
                        protocol_core,
                        receiver: *receiver,
                        peer_engine: peer_engine(arguments, &placement, (*local_core, *remote_core), far)?,
                        interface: interface.clone(),
                        dilation: None,
                    };
                    points.push(Measured { spec, samples: Vec::new() });
                }
            }
        }
    }
    Ok(points)
}
