//! A simulation as a file: machines, link, protocol, mapping, program. Units are in the names of its keys.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

use whatif::goal::{self, Schedule};

use crate::cluster::power::{Joules, Watts, joules};
use crate::cluster::profile::{Overrides, Place, Profile, Progress, Waiting};
use crate::cluster::{Cluster, Core, Finished, Host, Link, Seat, simulate};
use crate::engines::{self, Settings};
use crate::programs::{
    Bidirectional, Fluent, Gather, Gromacs, Halo, Lammps, Lazy, Lulesh, Milc, Phases, PingPong, Pipeline, Stream,
};
use crate::running::Running;
use machine::fault::{Fault, Result};
use machine::reading::Reading;
use machine::spelling::meant;
use machine::{Bytes, CoreId, Machine, count, nesting};
use serde::Deserialize;

mod ours;
pub mod replaced;
#[cfg(test)]
mod tests;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    machine: Vec<MachineOf>,
    link: LinkOf,
    protocol: Protocol,
    mapping: Mapping,
    program: Program,
}

/// Hosts of one kind.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineOf {
    name: String,
    #[serde(default = "one")]
    count: usize,
    /// What `plimsoll machine --json` printed, from the folder of this file.
    description: Option<String>,
    /// Cores by socket, if there is no description.
    sockets: Option<Vec<Vec<u32>>>,
    full_clock_ghz: f64,
    /// Full clock, if `description` has none.
    clock_ghz: Option<f64>,
    /// Clocks of single cores, where they differ.
    #[serde(default)]
    clock_ghz_of_core: BTreeMap<String, f64>,
    /// The core that takes interrupts [default: the first].
    interrupts: Option<u32>,
    #[serde(default)]
    engines: Vec<u32>,
    /// Watts at full clock and use.
    watts: Option<f64>,
}

fn one() -> usize {
    1
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkOf {
    latency_us: f64,
    gigabits_a_second: f64,
    /// The share of packets that is lost, and the seed of the losses.
    loss: Option<f64>,
    seed: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Protocol {
    profile: String,
    place: Option<PlaceOf>,
    progress: Option<ProgressOf>,
    waiting: Option<WaitingOf>,
    /// The network that carries plimsoll's packets between hosts.
    network: Option<String>,
    #[serde(default)]
    constants: BTreeMap<String, ConstantOf>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConstantOf {
    value: Reading<f64>,
    source: String,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PlaceOf {
    Rank,
    Softirq,
    Engine,
    Device,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ProgressOf {
    Calls,
    Thread,
    Device,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WaitingOf {
    Spin,
    Sleep,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mapping {
    /// By host: the rank on each core, as the papers' tables have them; -1: none.
    table: Option<Vec<Vec<i64>>>,
    /// The number of ranks on each host, on its cores in order, engines left out.
    ranks_a_host: Option<usize>,
    slice_ms: Option<f64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case", deny_unknown_fields)]
enum Kind {
    PingPong { bytes: u64, rounds: u32 },
    Stream { bytes: u64, messages: u32 },
    Bidirectional { bytes: u64, rounds: u32 },
    Pipeline { bytes: u64, messages: u32 },
    Gather { bytes: u64 },
    Halo { dimensions: usize, steps: u32, bytes: u64, computing_us: f64, uneven_us: f64, seed: u64, sum: bool },
    Milc { iterations: u32, gathers: u32, bytes: u64, computing_us: f64, uneven_us: f64, seed: u64 },
    Lulesh { iterations: u32, elements: u64, computing_us: f64, exchanges: u32 },
    Fluent { steps: u32, cells: u64, cell_ns: u64, messages: u32, bytes: u64 },
    Gromacs { steps: u32, computing_us: f64, bytes: u64, pulses: u32, idle: f64 },
    Lammps { steps: u32, computing_us: f64, bytes: u64 },
    Goal { file: String },
}

#[derive(Debug, Deserialize)]
struct Program {
    /// The share of computing that follows the clock.
    follows_clock: Option<f64>,
    #[serde(flatten)]
    kind: toml::Table,
}

enum Runs {
    Rule(Box<dyn Phases + Send + Sync>),
    Schedule(Box<Schedule>),
}

/// A file's simulation, ready to run.
pub struct Simulation {
    pub cluster: Cluster,
    /// Watts by host; `None`: the file does not give them for all hosts.
    pub watts: Option<Vec<Watts>>,
    /// The program's name in the file.
    pub program: String,
    runs: Runs,
    /// The settings of plimsoll's own engine, if it runs in place of a protocol of constants.
    engines: Option<Settings>,
}

/// The result of a run, with its energy.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    pub finished: Finished,
    /// Joules by host, if watts are known.
    pub joules: Option<Vec<Joules>>,
    /// The result of plimsoll's own engines, if they ran.
    pub engines: Option<engines::Outcome>,
}

/// The path of the page that describes such files.
fn guide() -> String {
    machine::page("docs/whatif.md")
}

fn like_those() -> String {
    format!("name a file like those of {}", guide())
}

fn has_keys() -> String {
    format!("{} has each part and program with its keys", guide())
}

/// The most cores of all hosts, and ranks of all of them.
const MOST: usize = 1 << 20;

/// The permitted clocks, GHz.
const CLOCKS: RangeInclusive<f64> = 0.001..=1000.0;

/// The largest file that is read for another file.
const LARGEST: Bytes = Bytes(1 << 30);

/// The most phases of a rank, which are counted in 32 bits.
const MOST_PHASES: u64 = 1 << 31;

/// Phases of a step beside its messages: computing, borders, and the sum over the most ranks there can be.
const AROUND: u64 = 36;

/// Checks that a number is from 0 to `bound`, which NaN is not.
fn within(value: f64, name: &str, bound: f64) -> Result<f64> {
    match (0.0..=bound).contains(&value) {
        true => Ok(value),
        false => Err(Fault::new(name, format!("{value} is not from 0 to {bound}"), "give such a number")),
    }
}

/// Whole nanoseconds from the microseconds at a key.
fn ns(us: f64, name: &str) -> Result<u64> {
    Ok((within(us, name, 1e12)? * 1000.0) as u64)
}

impl Simulation {
    /// # Errors
    /// The file cannot be read, lacks a part or has one too much, names a machine, profile or program that is not there, ranks on
    /// cores that are not there, no core left for an engine; for plimsoll's engines, what they cannot do or nobody measured.
    pub fn read(path: &Path) -> Result<Simulation> {
        let text = read(path, &like_those())?;
        let folder = path.parent().unwrap_or(Path::new("."));
        Simulation::parse(&text, folder).map_err(|fault| fault.within(path.display()))
    }

    /// `folder`: where files that it names are.
    ///
    /// # Errors
    /// As [`Simulation::read`].
    pub fn parse(text: &str, folder: &Path) -> Result<Simulation> {
        nesting::read(|| {
            let file: File = toml::from_str(text).map_err(|e| {
                let (line, _) = machine::fault::line_and_column(text, e.span().map_or(0, |span| span.start));
                let next = meant(e.message(), &has_keys());
                Fault::new(format!("line {line}"), e.message(), next)
            })?;
            Simulation::of(file, folder)
        })
    }

    fn of(file: File, folder: &Path) -> Result<Simulation> {
        let File { machine: machines, link, protocol, mapping, program } = file;
        let mut hosts: Vec<Host> = Vec::new();
        let mut cores = 0usize;
        for of in &machines {
            let host = of.host(folder)?;
            cores = cores.saturating_add(of.count.saturating_mul(host.cores.len()));
            if cores > MOST {
                let cause = format!("with it there are more than {} cores", count::grouped(MOST as u64));
                return Err(Fault::new(format!("machine {}", of.name), cause, "simulate fewer machines: count"));
            }
            of.watts.map_or(Ok(0.0), |watts| within(watts, "watts", 1e9))?;
            let named = |at: usize| if of.count == 1 { host.name.clone() } else { format!("{}-{at}", host.name) };
            hosts.extend((0..of.count).map(|at| Host { name: named(at), ..host.clone() }));
        }
        let seats = mapping.seats(&hosts)?;
        let (profile, mut engines) = if protocol.profile == ours::NAME {
            let (profile, settings) = ours::protocol(&machines, &link, &protocol, &mapping, &seats)?;
            (profile, Some(settings))
        } else {
            ours::check_others(&link, &protocol)?;
            (protocol.profile()?, None)
        };
        let rate = within(link.gigabits_a_second, "gigabits_a_second", 1e6)?;
        let clocked = within(program.follows_clock.unwrap_or(1.0), "follows_clock", 1.0)?;
        let slice = within(mapping.slice_ms.unwrap_or(3.0), "slice_ms", 1e6)?;
        let latency = within(link.latency_us, "latency_us", 1e9)?;
        let of_hosts = machines.iter().flat_map(|machine| std::iter::repeat_n(machine.watts, machine.count));
        let watts = of_hosts.map(|full| Some(Watts::of(full?, &profile))).collect();
        let cluster = Cluster {
            link: Link { latency: (latency * 1e6) as u64, byte: if rate > 0.0 { 8.0 / rate } else { 0.0 } },
            seats,
            slice: (slice * 1e9) as u64,
            clocked,
            hosts,
            profile,
        };
        let (name, runs) = program.runs(cluster.seats.len() as u32, folder)?;
        let ranks = match &runs {
            Runs::Rule(phases) => phases.ranks(),
            Runs::Schedule(schedule) => schedule.ranks(),
        };
        cluster.check(ranks)?;
        engines.as_mut().map_or(Ok(()), |settings| ours::seat(settings, &cluster))?;
        Ok(Simulation { cluster, watts, program: name, runs, engines })
    }

    /// Whether plimsoll's own engines carry the messages.
    pub fn over_engines(&self) -> bool {
        self.engines.is_some()
    }

    /// The program, from its beginning.
    pub fn start(&self) -> Box<dyn crate::Program + '_> {
        match &self.runs {
            Runs::Rule(phases) => Box::new(Lazy::of(&**phases)),
            Runs::Schedule(schedule) => Box::new(Running::of(schedule)),
        }
    }

    /// # Errors
    /// As [`simulate`]; a run that takes no time, which has no rate.
    pub fn run(self) -> Result<(Cluster, Outcome)> {
        let (finished, engines) = over(&mut *self.start(), &self.cluster, self.engines.as_ref())?;
        if finished.total() == 0 {
            let next = "give it steps, rounds or messages, and costs";
            return Err(Fault::new("the program", "it takes no time", next));
        }
        let joules = self.watts.as_deref().map(|watts| joules(&self.cluster, &finished, watts));
        Ok((self.cluster, Outcome { finished, joules, engines }))
    }
}

fn over(
    program: &mut dyn crate::Program,
    cluster: &Cluster,
    engines: Option<&Settings>,
) -> Result<(Finished, Option<engines::Outcome>)> {
    match engines {
        None => Ok((simulate(program, cluster)?, None)),
        Some(settings) => ours::run(program, cluster, settings).map(|(finished, outcome)| (finished, Some(outcome))),
    }
}

fn read(path: &Path, next: &str) -> Result<String> {
    std::fs::read_to_string(path).map_err(|e| Fault::because(path.display().to_string(), e, next))
}

/// Reads a file that another file names, whoever wrote that: devices, which have no end, and pipes, which may have no writer, are
/// refused.
fn read_named(path: &Path, next: &str) -> Result<String> {
    let refused = |cause: String| Err(Fault::new(path.display().to_string(), cause, next));
    match std::fs::metadata(path) {
        Ok(of) if !of.is_file() => refused("it is no regular file".to_owned()),
        Ok(of) if of.len() > LARGEST.0 => refused(format!("it has more than {LARGEST}")),
        _ => read(path, next),
    }
}

impl MachineOf {
    fn host(&self, folder: &Path) -> Result<Host> {
        let subject = || format!("machine {}", self.name);
        if self.name.len() > 64 || self.name.contains(char::is_control) {
            return Err(Fault::new(subject(), "it will not do as a name", "write up to 64 letters"));
        }
        let packages: Vec<(u32, u32)> = match (&self.description, &self.sockets) {
            (Some(path), None) => {
                let path = folder.join(path);
                let text = read_named(&path, "print it with: plimsoll machine --json")?;
                let machine: Machine = serde_json::from_str(&text).map_err(|e| {
                    Fault::because(path.display().to_string(), e, "print it with: plimsoll machine --json")
                })?;
                machine.topology.cpus.iter().map(|cpu| (cpu.id.0, cpu.package)).collect()
            }
            (None, Some(sockets)) => {
                let of = |(package, cores): (usize, &Vec<u32>)| {
                    cores.iter().map(move |core| (*core, package as u32)).collect::<Vec<_>>()
                };
                let mut cores: Vec<_> = sockets.iter().enumerate().flat_map(of).collect();
                cores.sort_unstable();
                cores
            }
            _ => {
                let next = "give description = \"FILE\" of plimsoll machine --json, or sockets = [[0, 1], [2, 3]]";
                return Err(Fault::new(subject(), "it has not one description of its cores", next));
            }
        };
        let mut ids: Vec<u32> = packages.iter().map(|(core, _)| *core).collect();
        ids.sort_unstable();
        if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Fault::new(subject(), format!("it has core {} twice", twice[0]), "name each core once"));
        }
        let own = |name: &str| self.clock_ghz_of_core.get(name).copied();
        let clock = |core: u32| own(&core.to_string()).or(self.clock_ghz).unwrap_or(self.full_clock_ghz);
        let clocked = |(core, _): &(u32, u32)| CLOCKS.contains(&clock(*core));
        if packages.is_empty() || !CLOCKS.contains(&self.full_clock_ghz) || !packages.iter().all(clocked) {
            let next = format!("give clocks from {} to {} GHz", CLOCKS.start(), CLOCKS.end());
            return Err(Fault::new(subject(), "it has no cores, or one without a clock", next));
        }
        let core = |(id, package): &(u32, u32)| Core {
            id: CoreId(*id),
            package: *package,
            dilation: self.full_clock_ghz / clock(*id),
        };
        let place = |id: u32| {
            packages.iter().position(|(core, _)| *core == id).ok_or_else(|| {
                let known: Vec<String> = packages.iter().map(|(core, _)| core.to_string()).collect();
                let next = format!("name one of {}", known.join(", "));
                Fault::new(subject(), format!("it has no core {id}"), next)
            })
        };
        if let Some(name) =
            self.clock_ghz_of_core.keys().find(|name| name.parse().ok().is_none_or(|id| place(id).is_err()))
        {
            return Err(Fault::new(subject(), format!("it has no core {name} to clock"), "name one of its cores"));
        }
        Ok(Host {
            name: self.name.clone(),
            cores: packages.iter().map(core).collect(),
            interrupts: self.interrupts.map_or(Ok(0), place)?,
            engines: self.engines.iter().map(|id| place(*id)).collect::<Result<_>>()?,
        })
    }
}

impl Protocol {
    fn given(&self) -> Overrides {
        self.constants.iter().map(|(name, of)| (name.clone(), (of.value.clone(), of.source.clone()))).collect()
    }

    fn profile(&self) -> Result<Profile> {
        let mut profile = Profile::named(&self.profile, &self.given())?;
        if let Some(place) = self.place {
            profile.place = match place {
                PlaceOf::Rank => Place::Rank,
                PlaceOf::Softirq => Place::Softirq,
                PlaceOf::Engine => Place::Engine,
                PlaceOf::Device => Place::Device,
            };
        }
        if let Some(progress) = self.progress {
            profile.progress = match progress {
                ProgressOf::Calls => Progress::Calls,
                ProgressOf::Thread => Progress::Thread,
                ProgressOf::Device => Progress::Device,
            };
        }
        if let Some(waiting) = self.waiting {
            profile.waiting = match waiting {
                WaitingOf::Spin => Waiting::Spin,
                WaitingOf::Sleep => Waiting::Sleep,
            };
        }
        Ok(profile)
    }
}

impl Mapping {
    fn seats(&self, hosts: &[Host]) -> Result<Vec<Seat>> {
        let next = "give table = [[0, 1], [2, 3]] with the rank of each core, -1 for none, or ranks_a_host = N";
        let mut seats: BTreeMap<i64, Seat> = BTreeMap::new();
        match (&self.table, self.ranks_a_host) {
            (Some(table), None) => {
                for (host, cores) in table.iter().enumerate() {
                    for (core, rank) in cores.iter().enumerate().filter(|(_, rank)| **rank >= 0) {
                        if seats.insert(*rank, Seat { host, core }).is_some() {
                            return Err(Fault::new(format!("rank {rank}"), "the mapping has it twice", next));
                        }
                    }
                }
            }
            (None, Some(each)) if each.saturating_mul(hosts.len()) > MOST => {
                let cause = format!("it has more than {} ranks", count::grouped(MOST as u64));
                return Err(Fault::new("mapping", cause, "simulate fewer: ranks_a_host"));
            }
            (None, Some(each)) => {
                for (at, host) in hosts.iter().enumerate() {
                    let free: Vec<usize> = (0..host.cores.len()).filter(|core| !host.engines.contains(core)).collect();
                    if free.is_empty() {
                        return Err(Fault::new(&host.name, "its engines leave no core to ranks", "name fewer engines"));
                    }
                    for rank in 0..each {
                        seats.insert(seats.len() as i64, Seat { host: at, core: free[rank % free.len()] });
                    }
                }
            }
            _ => return Err(Fault::new("mapping", "it is not said in one way", next)),
        }
        match seats.keys().enumerate().find(|(at, rank)| *at as i64 != **rank) {
            Some((at, _)) => Err(Fault::new(format!("rank {at}"), "the mapping does not have it", next)),
            None if seats.is_empty() => Err(Fault::new("mapping", "it has no rank", next)),
            None => Ok(seats.into_values().collect()),
        }
    }
}

impl Kind {
    /// Refuses programs with more phases than can be counted.
    fn check(&self) -> Result<()> {
        let (steps, each) = match *self {
            Kind::PingPong { rounds, .. } => (rounds, 2),
            Kind::Bidirectional { rounds, .. } => (rounds, 1),
            Kind::Stream { messages, .. } => (messages, 1),
            Kind::Pipeline { messages, .. } => (messages, 2),
            Kind::Gather { .. } | Kind::Goal { .. } => return Ok(()),
            Kind::Halo { steps, .. } => (steps, AROUND),
            Kind::Milc { iterations, gathers, .. } => (iterations, 2 * u64::from(gathers) + AROUND),
            Kind::Lulesh { iterations, exchanges, .. } => (iterations, u64::from(exchanges) + AROUND),
            Kind::Fluent { steps, messages, .. } => (steps, 1 + u64::from(messages)),
            Kind::Gromacs { steps, pulses, .. } => (steps, 2 + 2 * u64::from(pulses)),
            Kind::Lammps { steps, .. } => (steps, u64::from(Lammps::PHASES)),
        };
        let phases = u64::from(steps.max(1)).saturating_mul(each);
        if phases < MOST_PHASES {
            return Ok(());
        }
        let cause = format!("each rank would have {} phases or more", count::grouped(phases));
        Err(Fault::new("program", cause, "simulate fewer steps, rounds or messages"))
    }
}

impl Program {
    fn runs(self, ranks: u32, folder: &Path) -> Result<(String, Runs)> {
        let name = self.kind.get("name").and_then(|name| name.as_str()).unwrap_or("").to_owned();
        let kind = Kind::deserialize(self.kind)
            .map_err(|e| Fault::new("program", e.message(), meant(e.message(), &has_keys())))?;
        kind.check()?;
        let computed = |us: f64| ns(us, "computing_us");
        let halo = |dimensions, steps, bytes, computing: f64, uneven: f64, seed, sum| -> Result<Halo> {
            let extents = Halo::extents(ranks, dimensions);
            let (computing, uneven) = (computed(computing)?, ns(uneven, "uneven_us")?);
            Ok(Halo { extents, steps, bytes, computing, uneven, seed, sum })
        };
        let phases: Box<dyn Phases + Send + Sync> = match kind {
            Kind::PingPong { bytes, rounds } => Box::new(PingPong { bytes, rounds }),
            Kind::Stream { bytes, messages } => Box::new(Stream { bytes, messages }),
            Kind::Bidirectional { bytes, rounds } => Box::new(Bidirectional { bytes, rounds }),
            Kind::Pipeline { bytes, messages } => Box::new(Pipeline { ranks, bytes, messages }),
            Kind::Gather { bytes } => Box::new(Gather { ranks, bytes }),
            Kind::Halo { dimensions, steps, bytes, computing_us, uneven_us, seed, sum } => {
                Box::new(halo(dimensions.clamp(1, 16), steps, bytes, computing_us, uneven_us, seed, sum)?)
            }
            Kind::Milc { iterations, gathers, bytes, computing_us, uneven_us, seed } => {
                let halo = halo(4, iterations, bytes, computing_us, uneven_us, seed, true)?;
                Box::new(Milc { halo, gathers: gathers.max(1) })
            }
            Kind::Lulesh { iterations, elements, computing_us, exchanges } => {
                let edge = (1..=ranks).take_while(|edge| edge.saturating_pow(3) <= ranks).last().unwrap_or(1);
                if edge.pow(3) != ranks {
                    let next = format!("map a cube of ranks, such as {}", edge.pow(3));
                    return Err(Fault::new("program", format!("{ranks} ranks are no cube"), next));
                }
                Box::new(Lulesh { edge, iterations, elements, computing: computed(computing_us)?, exchanges })
            }
            Kind::Fluent { steps, cells, cell_ns, messages, bytes } => {
                Box::new(Fluent { ranks, steps, cells, cell: cell_ns, messages, bytes })
            }
            Kind::Gromacs { steps, computing_us, bytes, pulses, idle } => {
                let (computing, idle) = (computed(computing_us)?, within(idle, "idle", 1.0)?);
                Box::new(Gromacs { steps, computing, bytes, pulses, idle })
            }
            Kind::Lammps { steps, computing_us, bytes } => {
                Box::new(Lammps { steps, computing: computed(computing_us)?, uneven: 0, bytes })
            }
            Kind::Goal { file } => {
                let path = folder.join(&file);
                let text = read_named(&path, "write one with: plimsoll report DIR --export goal -o FILE")?;
                let schedule = goal::read(text.as_bytes()).map_err(|fault| fault.within(path.display()))?;
                return Ok((file, Runs::Schedule(Box::new(schedule))));
            }
        };
        Ok((name, Runs::Rule(phases)))
    }
}
