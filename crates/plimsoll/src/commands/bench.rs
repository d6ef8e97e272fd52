use std::process::ExitCode;

use bench::runner::Bench;
use comfy_table::{CellAlignment, Table, presets};
use machine::{Bytes, CoreId, Fault, Result, Site};
use serde::Serialize;
use study::point::{Path, Pattern, PointSpec, Receiver, Stack};
use study::sample::{Runner, Sample};

/// Measures message paths, stack by stack and size by size.
#[derive(clap::Args)]
pub struct Arguments {
    /// Stacks to compare: engine-shm, engine-udp, tcp, udp, open-mpi
    #[arg(long = "stack", value_delimiter = ',', default_value = "tcp")]
    stacks: Vec<Stack>,
    /// Where the engine's work runs: app or core:N
    #[arg(long, default_value = "app")]
    placement: Site,
    /// ping-pong, stream, stream-no-cache, bidirectional, window or message-rate
    #[arg(long, default_value = "ping-pong")]
    pattern: Pattern,
    /// Message sizes: a list (8,64KiB) or doubling from..to (2..1MiB)
    #[arg(long, default_value = "2..1MiB", value_parser = sizes)]
    sizes: Sizes,
    /// Bytes by which sizes are varied within a block
    #[arg(long, default_value = "3")]
    perturbation: Bytes,
    /// loopback, lab, or HOST[:PORT] of a 'plimsoll serve'
    #[arg(long, default_value = "loopback", value_parser = path)]
    path: Path,
    /// Cores of the local and the remote application thread
    #[arg(long, default_value = "0,1", value_parser = cores)]
    cores: (CoreId, CoreId),
    /// Core that does the kernel's receive processing (lab only)
    #[arg(long)]
    protocol_core: Option<u32>,
    /// What the receiver does with each message: reads or works
    #[arg(long, default_value = "reads")]
    receiver: Receiver,
    /// Blocks of each point
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Print all samples as JSON
    #[arg(long)]
    json: bool,
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

fn path(text: &str) -> Result<Path> {
    match text {
        "loopback" => Ok(Path::Loopback),
        "lab" => Ok(Path::Lab),
        "" => Err(Fault::new("path", "it is empty", "choose loopback, lab or HOST[:PORT]")),
        host => Ok(Path::Remote(host.to_owned())),
    }
}

fn cores(text: &str) -> Result<(CoreId, CoreId)> {
    let bad = || Fault::new(format!("cores '{text}'"), "not two core numbers", "write them like 0,1");
    let (local, remote) = text.split_once(',').ok_or_else(bad)?;
    let core = |text: &str| text.trim().parse().map(CoreId).map_err(|_| bad());
    Ok((core(local)?, core(remote)?))
}

#[derive(Serialize)]
struct Measured {
    spec: PointSpec,
    samples: Vec<Sample>,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let program = std::env::current_exe()
        .map_err(|e| Fault::because("this program's own file", e, "run it from where it is installed"))?;
    let mut bench = Bench::new(program);
    let mut measured: Vec<Measured> = points(&arguments);
    for round in 0..arguments.rounds {
        for (order, point) in measured.iter_mut().enumerate() {
            let sample = bench.run_block(&point.spec, round, order as u32)?;
            point.samples.push(sample);
        }
    }
    bench.close();
    if arguments.json {
        let text = serde_json::to_string_pretty(&measured).map_err(|e| Fault::because("output", e, "report it"))?;
        println!("{text}");
    } else {
        print(&arguments, &measured);
    }
    Ok(ExitCode::SUCCESS)
}

/// Stacks in turn within each size, so that what is compared is measured side by side.
fn points(arguments: &Arguments) -> Vec<Measured> {
    let mut points = Vec::new();
    for size in &arguments.sizes.0 {
        for stack in &arguments.stacks {
            let placement = match stack {
                Stack::EngineShm | Stack::EngineUdp => arguments.placement.clone(),
                _ => Site::App,
            };
            let spec = PointSpec {
                stack: *stack,
                placement,
                pattern: arguments.pattern,
                size: *size,
                perturbation: arguments.perturbation,
                path: arguments.path.clone(),
                local_core: arguments.cores.0,
                remote_core: arguments.cores.1,
                protocol_core: arguments.protocol_core.map(CoreId),
                receiver: arguments.receiver,
            };
            points.push(Measured { spec, samples: Vec::new() });
        }
    }
    points
}

fn print(arguments: &Arguments, measured: &[Measured]) {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["size", "stack", "median", "low", "high", "unit", "lost"]);
    for point in measured {
        let mut values: Vec<f64> = point.samples.iter().map(|sample| sample.value).collect();
        values.sort_by(f64::total_cmp);
        table.add_row([
            point.spec.size.to_string(),
            point.spec.contender().to_string(),
            format!("{:.1}", values[values.len() / 2]),
            format!("{:.1}", values[0]),
            format!("{:.1}", values[values.len() - 1]),
            arguments.pattern.metric().unit().to_owned(),
            point.samples.iter().map(|sample| sample.lost).sum::<u64>().to_string(),
        ]);
    }
    for column in [0, 2, 3, 4, 6] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    println!("{table}");
}
