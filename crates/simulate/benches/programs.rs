//! Speed and memory of simulated programs: `cargo bench -p simulate --bench programs -- ...`
//!
//! ```text
//! (nothing)                     a 4-D halo of 8, 64, 1,000 and 8,000 ranks, the last step's sum over all included, under LogGOPS,
//! then on hosts of 8 cores, by each profile
//! FILE [L=..,o=..,g=..,G=..]    a GOAL schedule: when its ranks end
//! --write RANKS STEPS           that halo as GOAL, for LogGOPSim
//! ```

use std::io::{BufWriter, stdout};
use std::time::Instant;

use machine::CoreId;
use machine::fault::{Fault, Result};
use simulate::cluster::profile::{PROFILES, Profile};
use simulate::cluster::{self, Cluster, Core, Host, Link, Seat};
use simulate::loggops::{Finished, Parameters, simulate};
use simulate::programs::{Halo, Lazy, Phases, write};
use whatif::goal;

fn halo(ranks: u32, steps: u32) -> Halo {
    let extents = Halo::extents(ranks, 4);
    Halo { extents, steps, bytes: 4096, computing: 20_000, uneven: 5_000, seed: 1, sum: true }
}

/// Hosts of eight cores, a rank on each.
fn hosts(ranks: u32, profile: &str) -> Result<Cluster> {
    let core = |id: u32| Core { id: CoreId(id), package: id / 4, dilation: 1.0 };
    let host = |at: u32| Host {
        name: format!("host {at}"),
        cores: (0..8).map(core).collect(),
        interrupts: 0,
        engines: Vec::new(),
    };
    let seat = |rank: u32| Seat { host: rank as usize / 8, core: rank as usize % 8 };
    Ok(Cluster {
        hosts: (0..ranks.div_ceil(8)).map(host).collect(),
        link: Link { latency: 1_000_000, byte: 0.25 },
        profile: Profile::named(profile, &Default::default())?,
        seats: (0..ranks).map(seat).collect(),
        slice: 3_000_000_000,
        clocked: 1.0,
    })
}

/// Processor time of this thread, s.
fn on_core() -> Result<f64> {
    let path = "/proc/thread-self/schedstat";
    let text = std::fs::read_to_string(path).map_err(|error| Fault::because(path, error, "mount /proc"))?;
    let first = text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok());
    first
        .map(|ns| ns / 1e9)
        .ok_or_else(|| Fault::new(path, "it has no time on the core", "use a kernel with schedstats"))
}

fn report(finished: &Finished, cpu: f64, wall: f64) {
    println!(
        "{:>6} ranks, {:>10} messages: {cpu:6.2} CPU-seconds, {wall:6.2} s, {:6.2} million messages a CPU-second; \
         {:>5} bytes a rank; ends at {} ns",
        finished.ranks.len(),
        finished.messages,
        finished.messages as f64 / cpu / 1e6,
        finished.memory / finished.ranks.len().max(1),
        finished.total(),
    );
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| {
        text.parse::<u32>().map_err(|error| Fault::because(text, error, "give the numbers of ranks and of steps"))
    };
    match arguments[..] {
        ["--write", ranks, steps] => {
            let mut out = BufWriter::new(stdout().lock());
            write(&halo(number(ranks)?, number(steps)?), &mut out)
                .map_err(|error| Fault::unwritable("the schedule", error, "write it elsewhere"))
        }
        [file, ref parameters @ ..] => {
            let parameters: Parameters = parameters.join(",").parse()?;
            let text = std::fs::read(file).map_err(|error| Fault::because(file, error, "name a GOAL schedule"))?;
            let begun = (on_core()?, Instant::now());
            let schedule = goal::read(&text)?;
            println!("read {} operations in {:.2} CPU-seconds", schedule.operations(), on_core()? - begun.0);
            let begun = (on_core()?, Instant::now());
            let finished = simulate::run(&schedule, &parameters)?;
            report(&finished, on_core()? - begun.0, begun.1.elapsed().as_secs_f64());
            for (rank, end) in finished.ranks.iter().enumerate().take(16) {
                println!("rank {rank}: {end} ns");
            }
            Ok(())
        }
        [] => {
            for (ranks, steps) in [(8, 20_000), (64, 2_000), (1_000, 100), (8_000, 10)] {
                let program = halo(ranks, steps);
                assert_eq!(program.ranks(), ranks);
                let begun = (on_core()?, Instant::now());
                let finished = simulate(&mut Lazy::of(program), &Parameters::default())?;
                report(&finished, on_core()? - begun.0, begun.1.elapsed().as_secs_f64());
            }
            for profile in PROFILES {
                println!("on machines, {profile}:");
                for (ranks, steps) in [(8, 2_000), (64, 300), (1_000, 30), (8_000, 4)] {
                    let cluster = hosts(ranks, profile)?;
                    let begun = (on_core()?, Instant::now());
                    let finished = cluster::simulate(&mut Lazy::of(halo(ranks, steps)), &cluster)?;
                    let (cpu, wall) = (on_core()? - begun.0, begun.1.elapsed().as_secs_f64());
                    println!(
                        "{ranks:>6} ranks, {:>10} messages: {cpu:6.2} CPU-seconds, {wall:6.2} s, {:6.2} million messages a \
                         CPU-second; {:>5} bytes a rank; ends at {} ps",
                        finished.messages,
                        finished.messages as f64 / cpu / 1e6,
                        finished.memory / ranks as usize,
                        finished.total(),
                    );
                }
            }
            Ok(())
        }
    }
}
