//! `plimsoll bench sweep`: message paths, stack by stack and size by size.

use std::path::PathBuf;
use std::process::ExitCode;

use bench::runner::Bench;
use machine::choice::for_polling_here;
use machine::{Bytes, CoreId, Fault, Probe, Result, Site, count};
use rounds::blocks::{self, Blocks, Plan, Series};
use rounds::comparison::Paired;
use rounds::point::{Path, Pattern, PointSpec, Receiver, StackAt};
use rounds::sample::{Runner, Sample};

use super::measuring::{Measuring, TwoCores};
use crate::bench_page::{self, Measured};
use crate::commands::path::{self, Ends, second_host};

/// Measures message paths, stack by stack and size by size
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    messages: Messages,
    /// Path between the ends: loopback, lab, the HOST[:PORT] of a `plimsoll serve`, or allocation (this node of a Slurm or PBS
    /// job and the next) [default: allocation where a job has two nodes that all stacks can pass between, else loopback]
    #[arg(long)]
    path: Option<Ends>,
    /// File with the word that the server at --path HOST was started with (its --key)
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    #[command(flatten)]
    cores: TwoCores,
    /// Core that does the kernel's receive processing (lab only)
    #[arg(long, value_name = "CORE")]
    protocol_core: Option<CoreId>,
    /// What the receiver does with each message: reads, or works (computes on its data)
    #[arg(long, default_value = "reads")]
    receiver: Receiver,
    #[command(flatten)]
    measuring: Measuring,
}

/// Which messages, over what.
#[derive(clap::Args)]
pub struct Messages {
    /// Stacks to compare: engine-shm, engine-udp, engine-afxdp[:IFACE], engine-xdp[:IFACE], tcp, udp, open-mpi
    #[arg(long = "stack", value_name = "STACK", value_delimiter = ',', default_value = "tcp")]
    pub stacks: Vec<StackAt>,
    /// Where the engine's work runs: app or core:N
    #[arg(long, value_name = "SITE", default_value = "app")]
    placement: Site,
    /// Core of the other end's engine, where --placement is core:N [default: a free one near its application]
    #[arg(long, value_name = "CORE")]
    peer_engine: Option<CoreId>,
    /// Pattern of messages: ping-pong, stream, stream-no-cache, bidirectional, window or message-rate
    #[arg(long, default_value = "ping-pong")]
    pub pattern: Pattern,
    /// Message sizes: a list (8,64KiB), or a range in which each size is twice the one before
    #[arg(long, default_value = "2..1MiB", value_parser = sizes)]
    sizes: Sizes,
    /// Bytes by which the message size varies within a block, as in NetPIPE
    #[arg(long, value_name = "BYTES", default_value = "3")]
    perturbation: Bytes,
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

impl Messages {
    /// # Errors
    /// A place is given for an engine that is in none of the stacks, or that has no core of its own.
    pub fn check(&self) -> Result<()> {
        if self.placement != Site::App && !self.stacks.iter().any(|of| of.stack.is_engine()) {
            return Err(Fault::new(
                format!("placement {}", self.placement),
                "none of the chosen stacks is plimsoll's to place",
                "add --stack engine-shm, engine-udp, engine-afxdp or engine-xdp, or leave --placement out",
            ));
        }
        if self.peer_engine.is_some() && self.placement == Site::App {
            let cause = "at placement app an engine has no core of its own";
            return Err(Fault::new(
                "core of the peer's engine",
                cause,
                "add --placement core:N, or leave --peer-engine out",
            ));
        }
        Ok(())
    }

    /// Stacks in turn within each size, so that compared points are measured side by side; within each stack the receiver's
    /// ways and the two cores.
    pub fn points(
        &self,
        between: &Between,
        receivers: &[Receiver],
        stops: &[(CoreId, CoreId)],
    ) -> Result<Vec<Measured>> {
        let mut points = Vec::new();
        for size in &self.sizes.0 {
            for StackAt { stack, interface } in &self.stacks {
                let placement = if stack.is_engine() { self.placement.clone() } else { Site::App };
                for receiver in receivers {
                    for (local_core, remote_core) in stops {
                        let spec = PointSpec {
                            stack: *stack,
                            placement: placement.clone(),
                            pattern: self.pattern,
                            size: *size,
                            perturbation: self.perturbation,
                            path: between.path.clone(),
                            local_core: *local_core,
                            remote_core: *remote_core,
                            protocol_core: between.protocol_core,
                            receiver: *receiver,
                            peer_engine: self.engine_of_peer(&placement, (*local_core, *remote_core), between.far)?,
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

    /// The core of the other end's engine, if it has one.
    fn engine_of_peer(
        &self,
        placement: &Site,
        (local, remote): (CoreId, CoreId),
        far: &[CoreId],
    ) -> Result<Option<CoreId>> {
        let Site::Core(engine) = placement else { return Ok(None) };
        Ok(Some(match (self.peer_engine, far) {
            (Some(named), _) => named,
            (None, []) => bench::runner::peer_engine(*engine, local, remote)?,
            (None, far) => far.iter().copied().find(|core| *core != remote).unwrap_or(remote),
        }))
    }
}

/// The path between the two ends.
pub struct Between<'a> {
    pub path: &'a Path,
    pub protocol_core: Option<CoreId>,
    /// Cores of a second host.
    pub far: &'a [CoreId],
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let Arguments { messages, measuring, .. } = &arguments;
    let key = path::key(arguments.key.as_deref(), arguments.path.as_ref())?;
    messages.check()?;
    linux::signal::watch()?;
    let within = arguments.protocol_core.is_some() || messages.stacks.iter().any(|of| !of.stack.passes_between_hosts());
    let second = if arguments.path.is_none() && within { None } else { second_host(arguments.path.as_ref())? };
    let path = match (&arguments.path, &second) {
        (Some(Ends::Path(path)), _) => path.clone(),
        (_, Some(second)) => Path::Remote(second.node().to_owned()),
        (_, None) => Path::Loopback,
    };
    let mut bench = Bench::new(machine::here::program()?).with(second).showing(key);
    let far = if let Path::Remote(host) = &path { bench.host_of(host)?.cores } else { Vec::new() };
    let between = Between { path: &path, protocol_core: arguments.protocol_core, far: &far };
    let cores = application_cores(&arguments.cores, &far)?;
    let mut measured = messages.points(&between, &[arguments.receiver], &[cores])?;
    let compared = messages.stacks.len();
    let end = measure(&mut bench, &mut measured, compared, measuring.rounds);
    bench.close();
    show(&measured, measuring, || bench_page::page(&measured, compared, measuring.rounds, linux::output::width()))?;
    end.map(|()| ExitCode::SUCCESS)
}

/// Prints the results so far: whatever ended the bench, measured blocks are not lost.
pub fn show(measured: &[Measured], measuring: &Measuring, page: impl FnOnce() -> String) -> Result<()> {
    match measured.iter().any(|point| !point.samples.is_empty()) {
        true => measuring.print(&measured, || Ok(page())),
        false => Ok(()),
    }
}

/// The cores of both ends' applications; `far` are those of a second host.
fn application_cores(cores: &TwoCores, far: &[CoreId]) -> Result<(CoreId, CoreId)> {
    match (cores.named()?, far) {
        (None, [remote, ..]) => {
            let here = for_polling_here(&linux::affinity::allowed()?)?;
            Ok((here.first().copied().unwrap_or(CoreId(0)), *remote))
        }
        _ => cores.chosen(),
    }
}

/// A runner of points' blocks; the first failure ends the bench.
struct Points<'a> {
    bench: &'a mut Bench,
    specs: Vec<PointSpec>,
    /// The present round, and the index of the last block in it.
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
            // A signal also reaches the peers of this process: a failed block then says nothing about its point.
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

/// Measures until all points have their blocks or are decided, a block fails, or a signal comes. So many points are `compared`
/// side by side, with the first of them.
pub fn measure(bench: &mut Bench, measured: &mut [Measured], compared: usize, rounds: u32) -> Result<()> {
    let plan = Plan { groups: vec![compared; measured.len() / compared.max(1)], rounds, seed: SEED };
    let specs: Vec<PointSpec> = measured.iter().map(|point| point.spec.clone()).collect();
    let mut points = Points { bench, specs, order: (0, 0), done: 0, fault: None };
    let metric = measured.first().map(|point| point.spec.pattern.metric());
    let (all, whole) = blocks::conduct(&mut points, &plan, |_, all| {
        let samples: Vec<Vec<Sample>> = all.iter().map(samples).collect();
        let is_open = |metric| samples[1..].iter().any(|of| Paired::performance(of, &samples[0], metric).is_open());
        compared == 1 || metric.is_some_and(is_open)
    });
    for (point, series) in measured.iter_mut().zip(&all) {
        point.samples = samples(series);
    }
    match points.fault {
        Some(fault) => Err(fault),
        None if whole => Ok(()),
        None => {
            let blocks = count::of(u64::from(rounds) * measured.len() as u64, "block");
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
