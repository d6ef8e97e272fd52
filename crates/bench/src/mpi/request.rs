//! The request of a `plimsoll bench mpi`, from its arguments to a plan.

use std::path::PathBuf;

use launch::carriers::{self, Carrier, Reach};
use launch::installation::{Choice, Installation};
use machine::choice::for_polling_here;
use machine::topology::Topology;
use machine::{Bytes, CoreId, CpuSet, Fault, Result, count};
use rounds::point::Receiver;
use serde::Serialize;

use super::bench::Bench;
use super::block::Measured;
use super::conduct::{Plan, conduct};
use super::contender::{Contender, Hosts, Seats, WantedHosts, usual};
use super::nodes::{Nodes, Pair};
use super::page;
use super::pattern::{Pattern, Task};
use super::seats;
use super::targets::{self, Judged};

/// Numbers of ranks that share two cores.
const CROWDS: [u32; 3] = [4, 8, 32];

/// The interface of each host of a lab.
const INTERFACE: &str = "lab0";

/// Reads a task, as `latency:8`; a pattern alone stands for its usual sizes.
pub fn tasks(text: &str) -> Result<Vec<Task>> {
    let (pattern, sizes) = match text.split_once(':') {
        Some((pattern, size)) => (pattern.parse::<Pattern>()?, vec![size.parse::<Bytes>()?]),
        None => {
            let pattern: Pattern = text.parse()?;
            (pattern, pattern.usual_sizes().iter().copied().map(Bytes).collect())
        }
    };
    Ok(sizes.into_iter().map(|size| Task { pattern, size, receiver: Receiver::Reads }).collect())
}

#[derive(Debug, Clone)]
pub struct Request {
    pub mpi: Choice,
    pub hosts: WantedHosts,
    /// The tasks; empty stands for the usual ones.
    pub tasks: Vec<Task>,
    /// Whether to measure the engine's targets and nothing else.
    pub targets: bool,
    /// Cores of the ranks; `None` chooses them by probing.
    pub cores: Option<(CoreId, CoreId)>,
    pub protocol_core: Option<CoreId>,
    pub rounds: u32,
    /// Whether to add blocks with timed MPI calls, which divide the ranks' CPU time.
    pub divided: bool,
    /// Names of the only contenders ([`Contender::name`]); `None` takes all.
    pub only: Option<Vec<String>>,
    /// This program: the provider lies beside it, and it has the hidden command `host-agent`.
    pub command: PathBuf,
}

/// Results of a request.
#[derive(Debug, Serialize)]
pub struct Findings {
    pub mpi: String,
    pub tasks: Vec<Task>,
    pub measured: Vec<Measured>,
    pub notes: Vec<String>,
    #[serde(skip)]
    targets_only: bool,
    rounds: u32,
}

/// Measures the request. `nodes` replace the lab as the two hosts. Findings come back also if a signal ended it; `begin` is
/// told how often `mpirun` will be started.
pub fn run(request: &Request, nodes: Option<Nodes>, begin: impl FnOnce(usize)) -> Result<(Findings, Result<()>)> {
    let installation = Installation::chosen(&request.mpi)?;
    let cores = for_polling_here(&linux::affinity::allowed()?)?;
    let mut notes = Vec::new();
    let pair = nodes.as_ref().map(|nodes| &nodes.pair);
    let plan = plan(request, &installation, &cores, pair, &mut notes)?;
    let mut bench = Bench::new(installation, request.command.clone(), nodes)?;
    notes.extend_from_slice(bench.notes());
    begin(plan.starts());
    let (measured, end) = conduct(&mut bench, &plan);
    let findings = Findings {
        mpi: bench.installation().to_string(),
        tasks: plan.tasks,
        measured,
        notes,
        targets_only: request.targets,
        rounds: request.rounds,
    };
    Ok((findings, end))
}

/// `cores` are the candidates, near ones first.
fn plan(
    request: &Request,
    installation: &Installation,
    cores: &[CoreId],
    nodes: Option<&Pair>,
    notes: &mut Vec<String>,
) -> Result<Plan> {
    let apart = nodes.map_or(&[][..], |nodes| &nodes.cores);
    let pairs = pairs(request, cores, apart)?;
    let root = rustix::process::geteuid().is_root();
    let mut all: Vec<Seats> = Vec::new();
    if matches!(request.hosts, WantedHosts::One | WantedHosts::Both) && request.protocol_core.is_none() {
        all.extend(pairs.iter().map(|&cores| Seats { hosts: Hosts::One, cores, protocol_core: None }));
        let crowds = CROWDS.map(|ranks| Seats { hosts: Hosts::Crowd(ranks), cores: pairs[0], protocol_core: None });
        all.extend(crowds);
    }
    if request.targets && request.hosts == WantedHosts::Nodes {
        let cause = "what the engine is held to is of one host and of the lab";
        return Err(Fault::new("targets", cause, "choose --hosts lab, one or both, or leave --targets out"));
    }
    match (request.hosts, nodes, request.protocol_core) {
        (WantedHosts::One, _, None) => {}
        (WantedHosts::One | WantedHosts::Nodes, _, Some(_)) => {
            let cause = "receive processing is steered in the lab only";
            return Err(Fault::new("protocol core", cause, "choose --hosts lab, or leave --protocol-core out"));
        }
        (WantedHosts::Both | WantedHosts::Nodes, Some(nodes), None) => {
            let [here, next] = &nodes.names;
            notes.push(format!("two nodes, {here} and {next} of {}, over {}", nodes.job, nodes.interface));
            let cores = match (request.cores, apart) {
                (Some(named), _) => named,
                (None, []) => pairs[0],
                (None, [there, ..]) => (cores[0], *there),
            };
            all.push(Seats { hosts: Hosts::Nodes, cores, protocol_core: None });
        }
        (WantedHosts::Both, None, None) if !root => notes.push("two hosts left out: the lab needs root".to_owned()),
        // One pair is enough: two hosts have no cores in common.
        (_, _, None) => all.push(Seats { hosts: Hosts::Lab, cores: pairs[0], protocol_core: None }),
        (_, _, Some(core)) => all.extend(seats::around(core, cores)?),
    }
    let mut tasks = request.tasks.clone();
    if request.targets {
        tasks = targets::tasks();
    } else if tasks.is_empty() {
        for pattern in Pattern::ALL {
            tasks.extend(self::tasks(pattern.name())?);
        }
        if request.protocol_core.is_some() {
            // Paper 002's effect needs a receiver that works on its data; one that only reads gains from the cache.
            tasks.push(Task { pattern: Pattern::Bandwidth, size: Bytes(1 << 16), receiver: Receiver::Works });
        }
    }
    all.retain(|seats| tasks.iter().any(|task| seats.hosts.can(task)));
    let known: Vec<Carrier> = carriers::known()?;
    let of_mpi = known.into_iter().filter(|of| of.variables(installation, Reach::Host).is_some());
    let (here, absent): (Vec<_>, Vec<_>) = of_mpi.partition(|of| of.missing(installation).is_none());
    if !absent.is_empty() {
        let names: Vec<&str> = absent.iter().map(|carrier| carrier.name.as_str()).collect();
        notes.push(format!("{} left out: not on this machine", names.join(", ")));
    }
    // A note on a file, not on one carrier, is given once.
    for note in here.iter().filter_map(Carrier::note) {
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    let topology = Topology::live()?;
    let mut known: Vec<String> = Vec::new();
    let places: Vec<(Seats, Vec<Contender>)> = all
        .into_iter()
        .map(|seats| {
            let interface = nodes.filter(|_| seats.hosts == Hosts::Nodes).map_or(INTERFACE, |nodes| &nodes.interface);
            let is_one = matches!(seats.hosts, Hosts::One | Hosts::Crowd(_));
            let reach = if is_one { Reach::Host } else { Reach::Between(interface) };
            let apart = if seats.hosts == Hosts::Nodes { apart } else { &[] };
            let free = match seats.hosts {
                Hosts::Crowd(_) => Err("the ranks share all cores that they have".to_owned()),
                _ => free(topology, cores, apart, seats.cores),
            };
            let can = |of: &&Carrier| of.variables(installation, reach).is_some();
            let carriers = here.iter().filter(can).cloned().collect();
            let (mut contenders, left_out) = usual(&seats, free, interface, carriers);
            contenders.retain(|contender| tasks.iter().any(|task| contender.can(&seats, task)));
            if let Some(only) = &request.only {
                known.extend(contenders.iter().filter_map(Contender::name).map(str::to_owned));
                contenders
                    .retain(|contender: &Contender| only.iter().any(|name| contender.name() == Some(name.as_str())));
                return (seats, contenders);
            }
            for note in left_out {
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
            (seats, contenders)
        })
        .collect();
    let is_unknown = |name: &&String| !known.contains(name);
    if let Some(name) = request.only.iter().flatten().find(is_unknown) {
        let next = format!("choose of {}", known.join(", "));
        return Err(Fault::new(
            format!("carrier '{}'", name.escape_debug()),
            "nothing of this name carries messages here",
            next,
        ));
    }
    let accounted_rounds = if request.divided { request.rounds.div_ceil(3) } else { 0 };
    Ok(Plan { places, tasks, rounds: request.rounds, accounted_rounds, targets: request.targets })
}

/// Pairs of cores for ranks of one machine; none if each rank has a machine of its own. `apart` are the cores of a second
/// machine.
fn pairs(request: &Request, cores: &[CoreId], apart: &[CoreId]) -> Result<Vec<(CoreId, CoreId)>> {
    let one_machine = apart.is_empty() || request.hosts != WantedHosts::Nodes;
    let Some(named) = request.cores else {
        return if one_machine { seats::pairs(cores) } else { Ok(Vec::new()) };
    };
    let subject = format!("cores {},{}", named.0.0, named.1.0);
    linux::affinity::check(named.0)?;
    if !apart.is_empty() && !apart.contains(&named.1) {
        let cause = format!("the other node has {}", CpuSet::from_iter(apart.iter().copied()));
        return Err(Fault::new(subject, cause, "choose the second of these"));
    }
    if !one_machine {
        return Ok(Vec::new());
    }
    if named.0 == named.1 {
        return Err(Fault::new(subject, "two ranks that poll would share one", "choose two cores"));
    }
    linux::affinity::check(named.1)?;
    Ok(vec![named])
}

/// A core for the engine beside those of the ranks, or the reason why there is none. It must also be free among `apart`, the
/// cores of a second machine: an engine has one number on all hosts.
fn free(topology: &Topology, cores: &[CoreId], apart: &[CoreId], ranks: (CoreId, CoreId)) -> Result<CoreId, String> {
    let (first, second) = ranks;
    let both = cores.iter().copied().filter(|core| apart.is_empty() || *core == first || apart.contains(core));
    let beside = machine::choice::Choice::among(topology, both).without([first, second]);
    let found = beside.nearest(first).filter(|core| beside.is_free(*core));
    found.ok_or_else(|| match apart {
        [] => format!("two ranks and the engine's core need 3 cores, this process has {}", cores.len()),
        _ => "no core is free under one number on both nodes".to_owned(),
    })
}

impl Findings {
    /// Whether there is anything to show.
    pub fn is_empty(&self) -> bool {
        self.measured.iter().all(|of| of.series.blocks.is_empty() && of.series.failures.is_empty())
    }

    /// What was not measured, and why.
    pub fn left_out(&self) -> Vec<String> {
        let failed = self
            .measured
            .iter()
            .filter_map(|measured| Some(format!("{}: {}", measured.contender, measured.series.failures.first()?)));
        self.notes.iter().cloned().chain(failed).collect()
    }

    pub fn judged(&self) -> Vec<Judged<'_>> {
        targets::judge(&self.measured)
    }

    /// The findings as text, in so many columns.
    pub fn page(&self, width: usize) -> String {
        let done = self.measured.iter().map(|measured| measured.series.blocks.len()).max().unwrap_or(0);
        let rounds = count::of(self.rounds.into(), "round");
        let heading = format!("ranks of {}, {done} of {rounds}, each a start of its own", self.mpi);
        let page = page::page(&heading, &self.measured, &self.tasks, &self.notes, width);
        match self.targets_only {
            true => format!("{}\n{page}", page::targets(&self.judged(), width)),
            false => page,
        }
    }
}

#[cfg(test)]
mod tests {
    use launch::family::Family;

    use super::*;

    #[test]
    fn tasks_are_patterns_with_sizes() {
        let task = |text| tasks(text).unwrap().iter().map(Task::to_string).collect::<Vec<_>>().join("|");
        assert_eq!(task("latency:64"), "64 B latency");
        assert_eq!(task("bandwidth"), "1 MiB bandwidth");
        assert_eq!(task("latency"), "8 B latency|4 KiB latency");
        assert!(tasks("triangle:8").is_err() && tasks("rate:x").is_err());
    }

    fn request() -> Request {
        Request {
            mpi: Choice::OfProgram,
            hosts: WantedHosts::Both,
            tasks: Vec::new(),
            targets: false,
            cores: None,
            protocol_core: None,
            rounds: 7,
            divided: true,
            only: None,
            command: PathBuf::new(),
        }
    }

    #[test]
    fn the_targets_are_measured_without_timed_calls() {
        let allowed = linux::affinity::allowed().unwrap();
        if allowed.len() < 2 {
            return skip::test("one core only");
        }
        let (family, version, launcher) = (Family::OpenMpi, "4.1.4".to_owned(), PathBuf::from("/nowhere/mpirun"));
        let installation = Installation { family, version, launcher, device: None, libraries: None };
        let plan_of = |request: &Request| plan(request, &installation, &allowed[..2], None, &mut Vec::new());
        let plan = plan_of(&Request { targets: true, divided: false, hosts: WantedHosts::One, ..request() }).unwrap();
        let hosts: Vec<Hosts> = plan.places.iter().map(|(seats, _)| seats.hosts).collect();
        assert_eq!(
            (plan.accounted_rounds, &hosts[..]),
            (0, &[Hosts::One, Hosts::Crowd(4), Hosts::Crowd(8), Hosts::Crowd(32)][..])
        );
        assert!(targets::ALL.iter().all(|target| plan.tasks.contains(&target.task)));
        let latency =
            plan_of(&Request { tasks: tasks("latency:8").unwrap(), hosts: WantedHosts::One, ..request() }).unwrap();
        assert_eq!(latency.places.len(), 1, "a place with nothing to do is none");
        let both = plan_of(&Request { hosts: WantedHosts::Lab, protocol_core: Some(allowed[0]), ..request() }).unwrap();
        assert_eq!((both.places.len(), both.accounted_rounds), (2, 3));
        assert!(both.tasks.iter().any(|task| task.receiver == Receiver::Works));
        let same = Request { cores: Some((allowed[0], allowed[0])), ..request() };
        assert!(plan_of(&same).unwrap_err().to_string().contains("would share one"));
        assert!(plan_of(&Request { hosts: WantedHosts::One, protocol_core: Some(allowed[0]), ..request() }).is_err());
    }

    #[test]
    fn two_nodes_take_the_place_of_the_lab() {
        let allowed = linux::affinity::allowed().unwrap();
        if allowed.len() < 2 {
            return skip::test("one core only");
        }
        let (first, second) = (allowed[0], allowed[1]);
        let (family, version, launcher) = (Family::OpenMpi, "4.1.4".to_owned(), PathBuf::from("/nowhere/mpirun"));
        let installation = Installation { family, version, launcher, device: None, libraries: None };
        let names = ["n1", "n2"].map(str::to_owned);
        let pair = |cores: &[CoreId]| Pair {
            names: names.clone(),
            job: "Slurm job 17".to_owned(),
            interface: "ib0".to_owned(),
            cores: cores.to_vec(),
        };
        let plan_of = |request: &Request, cores: &[CoreId]| {
            let mut notes = Vec::new();
            plan(request, &installation, &allowed[..2], Some(&pair(cores)), &mut notes).map(|plan| (plan, notes))
        };
        let nodes = Request { hosts: WantedHosts::Nodes, ..request() };
        let far = [second, CoreId(901)];
        let (apart, notes) = plan_of(&nodes, &far).unwrap();
        assert_eq!(notes[0], "two nodes, n1 and n2 of Slurm job 17, over ib0");
        let [(seats, contenders)] = &apart.places[..] else { panic!("{:?}", apart.places) };
        assert_eq!((seats.hosts, seats.cores), (Hosts::Nodes, (first, second)));
        let named: Vec<_> = contenders.iter().map(ToString::to_string).collect();
        assert!(named.contains(&"plimsoll at app, afxdp:ib0".to_owned()), "{named:?}");
        assert!(!named.contains(&"vader".to_owned()), "{named:?}");

        // The first rank's core is also the second's, on another machine: the engine's has to be free on both.
        let (same, _) = plan_of(&Request { cores: Some((first, CoreId(901))), ..nodes.clone() }, &far).unwrap();
        let engines: Vec<_> = same.places[0].1.iter().filter_map(Contender::core).collect();
        assert_eq!((same.places[0].0.cores, &engines[..]), ((first, CoreId(901)), &[second][..]));
        let unknown = Request { cores: Some((first, CoreId(902))), ..nodes.clone() };
        assert!(plan_of(&unknown, &far).unwrap_err().to_string().contains("the other node has"));
        // If the next node is this machine, ranks share its cores.
        let (together, _) = plan_of(&nodes, &[]).unwrap();
        assert_eq!(together.places[0].0.cores, (first, second));
        let (both, _) = plan_of(&request(), &far).unwrap();
        let hosts: Vec<_> = both.places.iter().map(|(seats, _)| seats.hosts).collect();
        assert_eq!(hosts, [Hosts::One, Hosts::Crowd(4), Hosts::Crowd(8), Hosts::Crowd(32), Hosts::Nodes]);

        for refused in
            [Request { targets: true, ..nodes.clone() }, Request { protocol_core: Some(first), ..nodes.clone() }]
        {
            assert!(plan_of(&refused, &far).unwrap_err().to_string().contains("choose --hosts lab"));
        }
    }
}
