//! The designed set of points: contenders, patterns and sizes of each comparison, within a time budget.

use std::collections::{BTreeMap, BTreeSet};

use machine::choice::Distance;
use machine::{Bytes, CoreId, Fault, Nanoseconds, Result, Site};
use rounds::contrast::FIRST_LOOK;
use rounds::point::{Path, Pattern, PointSpec, Receiver, Stack, StackAt};
use serde::{Deserialize, Serialize};

use crate::findings::Question;
use crate::sweep::sender;

/// Rounds that every comparison gets before any is decided.
pub const MINIMUM_ROUNDS: u32 = FIRST_LOOK;

/// Rounds that a point beside the candidates gets: the whole range of six covers the median in 96.9 % of draws.
pub const REFERENCE_ROUNDS: u32 = 6;

/// Assumed duration of a point's first block, opening sessions and finding the pace included.
const BLOCK: Nanoseconds = Nanoseconds(100_000_000);

/// Share of the budget that the calibrating round may take: 1 over this.
const CALIBRATING: u64 = 4;

/// Cores that an engine on a core of its own takes where both ends are on one host: an application's and an engine's
/// for each end.
const OWN_CORES: usize = 4;

/// The cores of a path: of the two applications, and of the engines where those have cores.
struct Seats {
    local: CoreId,
    remote: CoreId,
    engine: CoreId,
    peer_engine: CoreId,
    /// Whether the engines' cores are free of applications.
    own: bool,
}

/// The conditions for which a design is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grounds {
    /// Cores that the study may use, the two of the applications first, then those of their dedicated engines.
    pub cores: Vec<CoreId>,
    /// Cores of the second host: its application's first, then its dedicated engine's. Empty where one host has both ends;
    /// then, and in designs of earlier studies, `cores` are those of both.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peer_cores: Vec<CoreId>,
    /// Whether the second host gives no engine a core of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_app: bool,
    /// The distance of the first two cores, where the machine reports it reliably.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distance: Option<Distance>,
    /// The path that stands for the network.
    pub network: Path,
    /// Core to which receive processing can be pinned (RPS); `None` where it cannot be steered.
    pub protocol_core: Option<CoreId>,
    /// The engine's networks beside UDP that can be had there: `afxdp`, `xdp`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<StackAt>,
    /// Whether `NPopenmpi` can be run.
    pub open_mpi: bool,
    /// Time that the blocks may take in all.
    pub budget: Nanoseconds,
}

impl Grounds {
    /// `None` where there is no core at all.
    fn seats(&self, path: &Path) -> Option<Seats> {
        let local = *self.cores.first()?;
        let or = |core: Option<&CoreId>, other| core.copied().unwrap_or(other);
        if let (Path::Remote(_), [remote, rest @ ..]) = (path, self.peer_cores.as_slice()) {
            let (engine, peer_engine) = (or(self.cores.get(1), local), or(rest.first(), *remote));
            let own = self.cores.len() > 1 && !rest.is_empty();
            return Some(Seats { local, remote: *remote, engine, peer_engine, own });
        }
        let remote = or(self.cores.get(1), local);
        let (engine, peer_engine) = (or(self.cores.get(2), remote), or(self.cores.get(3), local));
        Some(Seats { local, remote, engine, peer_engine, own: self.cores.len() >= OWN_CORES })
    }

    /// Whether each engine can have a core of its own that no application needs.
    fn has_own_cores(&self, path: &Path) -> bool {
        self.seats(path).is_some_and(|seats| seats.own)
    }
}

/// Points that are measured side by side in every round, so that drift touches all alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub questions: Vec<Question>,
    pub pattern: Pattern,
    pub size: Bytes,
    /// Groups of a higher rank are left out first where the budget is short.
    pub rank: u32,
    pub points: Vec<PointSpec>,
}

/// A study as planned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Design {
    pub grounds: Grounds,
    pub minimum_rounds: u32,
    pub groups: Vec<Group>,
    /// Deviations of the design from a reader's expectation, with the reason.
    pub notes: Vec<String>,
}

/// Sizes by importance: a short budget keeps the first ones.
const SIZES: [u64; 9] = [8, 64 << 10, 1 << 20, 4 << 10, 512, 16 << 10, 256 << 10, 64, 2];

/// The main patterns run at every size, the others at the sizes where they add information.
const OTHERS: [(Pattern, &[u64]); 4] = [
    (Pattern::MessageRate, &[8]),
    (Pattern::Window, &[4 << 10, 64 << 10]),
    (Pattern::Bidirectional, &[512, 64 << 10]),
    (Pattern::StreamNoCache, &[64 << 10, 1 << 20]),
];

/// Sizes at which an engine on a core of its own is measured on a machine without a free core.
const BESIDE: [u64; 2] = [8, 64 << 10];

/// Most cores of the sweep, evenly spread over all cores.
const SWEPT: usize = 8;

/// Paper 002 §5.1 sweeps the stream bandwidth; these sizes hold its peak and a size bound by messages.
const SWEEP: [u64; 2] = [64 << 10, 4 << 10];

impl Design {
    /// Designs the main study. Faults where there is no core to run on.
    pub fn of(grounds: Grounds) -> Result<Design> {
        if grounds.cores.is_empty() {
            return Err(Fault::new("study", "there is no core to run on", "name at least one core"));
        }
        let mut design = Design { minimum_rounds: MINIMUM_ROUNDS, groups: Vec::new(), notes: Vec::new(), grounds };
        design.notes_on_grounds();
        let mains = [Pattern::PingPong, Pattern::Stream];
        for (nth, size) in SIZES.into_iter().enumerate() {
            for pattern in mains {
                design.compare(pattern, Bytes(size), nth as u32);
            }
        }
        design.sweep();
        for (pattern, sizes) in OTHERS {
            for (nth, size) in sizes.iter().enumerate() {
                design.compare(pattern, Bytes(*size), 200 + nth as u32);
            }
        }
        design.fit();
        design.groups.sort_by_key(|g| (g.questions.clone(), g.pattern, g.size, g.rank));
        Ok(design)
    }

    /// Every point, once.
    pub fn points(&self) -> BTreeSet<&PointSpec> {
        self.groups.iter().flat_map(|g| &g.points).collect()
    }

    /// The questions of a point in this design.
    pub fn questions_of(&self, spec: &PointSpec) -> Vec<Question> {
        Question::ALL.into_iter().filter(|q| q.asks(spec, &self.grounds.network)).collect()
    }

    /// Whether a verdict may choose `spec`. An engine on a core of its own that would have to share it with an
    /// application is measured beside, since nobody would choose it.
    pub fn is_candidate(&self, spec: &PointSpec) -> bool {
        spec.stack.is_candidate() && (spec.placement == Site::App || self.grounds.has_own_cores(&spec.path))
    }

    fn notes_on_grounds(&mut self) {
        if self.grounds.network == Path::Loopback {
            self.notes.push(
                "loopback stands in for the network: there is no link, no driver and no second host in it; run as root \
                 for the two-host lab"
                    .into(),
            );
        }
        if self.grounds.network == Path::Lab {
            self.notes.push(
                "two network namespaces of this machine stand in for two hosts: there is no wire and no second machine \
                 in it; a job of two nodes, or --path HOST, measures between real ones"
                    .into(),
            );
        }
        if self.grounds.protocol_core.is_none() {
            self.notes.push(
                "paper 002's sweep is left out: receive processing can be pinned to a core in the lab alone, which \
                 needs root"
                    .into(),
            );
        }
        if self.grounds.at_app {
            self.notes.push(
                "between the hosts the engine is measured at app alone: the server there gives it no core of its own, \
                 as one does that was started with --key FILE --allow cores"
                    .into(),
            );
        }
        if !self.grounds.open_mpi {
            self.notes.push("Open MPI is left out: NPopenmpi is not installed (package netpipe-openmpi)".into());
        }
        if let [only] = self.grounds.cores[..] {
            self.notes.push(format!("both ends share {only}: this machine offers no second one"));
        }
        if !self.grounds.has_own_cores(&Path::Loopback) {
            let sizes: Vec<String> = BESIDE.into_iter().map(|size| Bytes(size).to_string()).collect();
            let within = if self.grounds.has_own_cores(&self.grounds.network) { " within a host" } else { "" };
            self.notes.push(format!(
                "a core of its own needs {OWN_CORES} cores{within}, an application's and an engine's for each end; of \
                 the {} here an engine has to share one, so it is measured beside at {} only",
                self.grounds.cores.len(),
                sizes.join(" and ")
            ));
        }
    }

    fn compare(&mut self, pattern: Pattern, size: Bytes, rank: u32) {
        let placed = |stack, dedicated: bool, path: &Path| {
            let seats = self.grounds.seats(path)?;
            Some(PointSpec {
                placement: if dedicated { Site::Core(seats.engine) } else { Site::App },
                perturbation: perturbation(size),
                path: path.clone(),
                peer_engine: dedicated.then_some(seats.peer_engine),
                ..PointSpec::plain(stack, pattern, size.0, (seats.local, seats.remote))
            })
        };
        let host = Path::Loopback;
        let beside = pattern == Pattern::PingPong && BESIDE.contains(&size.0);
        let point = |stack, path: &Path| placed(stack, false, path).expect("a design has a core");
        let engine = |stack, path: &Path| {
            let refused = self.grounds.at_app && matches!(path, Path::Remote(_));
            let has_place = !refused && (beside || self.grounds.has_own_cores(path));
            let dedicated = placed(stack, true, path).filter(|_| has_place);
            std::iter::once(point(stack, path)).chain(dedicated).collect::<Vec<_>>()
        };
        let mut same = engine(Stack::EngineShm, &host);
        same.push(point(Stack::Tcp, &host));
        // A run of NPopenmpi starts two processes: seconds a block, so only the most informative points have one.
        let reference = matches!(pattern, Pattern::PingPong | Pattern::Stream) && SIZES[..3].contains(&size.0);
        if self.grounds.open_mpi && reference {
            same.push(point(Stack::OpenMpi, &host));
        }
        let network = &self.grounds.network;
        let mut between = engine(Stack::EngineUdp, network);
        between.extend(self.grounds.networks.iter().map(|of| {
            let interface = of.interface.clone();
            PointSpec { interface, ..point(of.stack, network) }
        }));
        between.push(point(Stack::Tcp, network));
        // A datagram holds at most 65,507 bytes.
        if size.0 + perturbation(size).0 <= 65_507 && matches!(pattern, Pattern::PingPong) {
            between.push(point(Stack::Udp, network));
        }
        let group = |questions: &[Question], points| Group { questions: questions.into(), pattern, size, rank, points };
        if *network == host {
            let extra: Vec<_> = between.into_iter().filter(|p| !same.contains(p)).collect();
            same.extend(extra);
            self.groups.push(group(&[Question::SameHost, Question::BetweenHosts], same));
        } else {
            self.groups.push(group(&[Question::SameHost], same));
            self.groups.push(group(&[Question::BetweenHosts], between));
        }
    }

    /// Paper 002 §5.1: the receiving process on each core in turn, receive processing pinned to one; the sender keeps
    /// off the receiver's core and, where there are enough cores, off the protocol's.
    fn sweep(&mut self) {
        let Some(protocol) = self.grounds.protocol_core else { return };
        let cores = self.grounds.cores.clone();
        let visits = cores.len().min(SWEPT);
        let visited: Vec<CoreId> = (0..visits).map(|nth| cores[nth * cores.len() / visits]).collect();
        if visits < cores.len() {
            let names: Vec<String> = visited.iter().map(|c| c.0.to_string()).collect();
            self.notes.push(format!("the sweep visits cores {} of {}", names.join(", "), cores.len()));
        }
        for (nth, size) in SWEEP.into_iter().enumerate() {
            for receiver in Receiver::ALL {
                let points = visited.iter().map(|&process| PointSpec {
                    path: self.grounds.network.clone(),
                    protocol_core: Some(protocol),
                    receiver,
                    ..PointSpec::plain(Stack::Tcp, Pattern::Stream, size, (sender(&cores, process, protocol), process))
                });
                let group = Group {
                    questions: vec![Question::ProtocolCore],
                    pattern: Pattern::Stream,
                    size: Bytes(size),
                    rank: 100 + nth as u32,
                    points: points.collect(),
                };
                self.groups.push(group);
            }
        }
    }

    /// Leaves out the groups of highest rank until the calibrating round of the rest takes no more than its share of the
    /// budget. The measured costs of blocks may leave out more after that round.
    fn fit(&mut self) {
        let round = |groups: &[Group]| groups.iter().map(|g| g.points.len() as u64).sum::<u64>() * BLOCK.0;
        let whole = Nanoseconds(round(&self.groups) * u64::from(MINIMUM_ROUNDS));
        let mut dropped = Vec::new();
        while round(&self.groups) > self.grounds.budget.0 / CALIBRATING {
            let last = self.groups.iter().map(|g| g.rank).max();
            let Some(last) = last.filter(|&rank| rank > 0) else { break };
            dropped.extend(self.groups.extract_if(.., |g| g.rank == last));
        }
        if !dropped.is_empty() {
            self.notes.push(too_short(&dropped.iter().collect::<Vec<_>>(), self.grounds.budget, whole));
        }
    }
}

/// Names groups that exceed `budget`, and a sufficient budget: `enough`, rounded up.
pub fn too_short(groups: &[&Group], budget: Nanoseconds, enough: Nanoseconds) -> String {
    let named = places(groups.iter().map(|group| (group.pattern, group.size)));
    let enough = enough.0.div_ceil(10_000_000_000) * 10;
    format!("left out to fit {budget}: {named}; --budget {enough} would hold them")
}

/// `ping-pong at 8 B, 64 KiB; stream at 2 B`: sizes of one pattern together.
pub fn places(of: impl Iterator<Item = (Pattern, Bytes)>) -> String {
    let mut sizes: BTreeMap<Pattern, BTreeSet<Bytes>> = BTreeMap::new();
    for (pattern, size) in of {
        sizes.entry(pattern).or_default().insert(size);
    }
    let named = sizes.iter().map(|(pattern, sizes)| {
        let sizes: Vec<String> = sizes.iter().map(Bytes::to_string).collect();
        format!("{pattern} at {}", sizes.join(", "))
    });
    named.collect::<Vec<_>>().join("; ")
}

/// NetPIPE's perturbation: 3 bytes either side, less where a message would vanish.
fn perturbation(size: Bytes) -> Bytes {
    Bytes(size.0.saturating_sub(1).min(3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::designs::Designed;

    fn grounds(cores: u32, network: Path) -> Grounds {
        Grounds {
            cores: (0..cores).map(CoreId).collect(),
            peer_cores: Vec::new(),
            at_app: false,
            distance: None,
            protocol_core: (network == Path::Lab).then_some(CoreId(0)),
            network,
            networks: Stack::ALL.into_iter().filter(|stack| stack.attaches()).map(Into::into).collect(),
            open_mpi: true,
            budget: Nanoseconds(170_000_000_000),
        }
    }

    #[test]
    fn shared_memory_never_meets_a_network_path() {
        for network in [Path::Lab, Path::Loopback, Path::Remote("far".into())] {
            let design = Design::of(grounds(4, network.clone())).unwrap();
            for group in &design.groups {
                for &question in &group.questions {
                    let met: Vec<_> = group.points.iter().filter(|p| question.asks(p, &network)).collect();
                    assert!(met.len() >= 2, "{question} {} {} compares nothing", group.pattern, group.size);
                    let paths: BTreeSet<_> = met.iter().map(|p| &p.path).collect();
                    assert_eq!(paths.len(), 1, "{question}");
                    let shm = met.iter().any(|p| p.stack == Stack::EngineShm);
                    let udp = met.iter().any(|p| p.stack == Stack::EngineUdp);
                    assert!(!(shm && udp), "{question}");
                }
            }
        }
    }

    #[test]
    fn every_point_answers_a_question_and_is_measured_once_a_round() {
        for network in [Path::Lab, Path::Loopback] {
            let design = Design::of(grounds(2, network)).unwrap();
            let all: usize = design.groups.iter().map(|g| g.points.len()).sum();
            assert_eq!(all, design.points().len());
            assert!(design.points().iter().all(|p| !design.questions_of(p).is_empty()));
        }
    }

    #[test]
    fn the_sweep_puts_the_receiver_on_every_core() {
        let design = Design::of(grounds(4, Path::Lab)).unwrap();
        let sweep: Vec<_> = design.points().into_iter().filter(|p| p.protocol_core.is_some()).collect();
        for receiver in Receiver::ALL {
            let cores: BTreeSet<_> = sweep.iter().filter(|p| p.receiver == receiver).map(|p| p.remote_core).collect();
            assert_eq!(cores.len(), 4);
        }
        assert!(sweep.iter().all(|p| p.local_core != p.remote_core && p.local_core != CoreId(0)));
    }

    #[test]
    fn a_large_machine_is_swept_at_a_sample_of_its_cores() {
        let design = Design::of(grounds(96, Path::Lab)).unwrap();
        let cores: BTreeSet<_> =
            design.points().into_iter().filter(|p| p.protocol_core.is_some()).map(|p| p.remote_core.0).collect();
        assert_eq!(cores.into_iter().collect::<Vec<_>>(), [0, 12, 24, 36, 48, 60, 72, 84]);
        assert!(design.notes.iter().any(|n| n.contains("0, 12, 24, 36, 48, 60, 72, 84 of 96")), "{:?}", design.notes);
    }

    #[test]
    fn a_short_budget_keeps_the_most_telling_sizes_and_says_what_it_left_out() {
        let mut short = grounds(2, Path::Lab);
        short.budget = Nanoseconds(30_000_000_000);
        let design = Design::of(short).unwrap();
        assert!(design.points().iter().any(|p| p.size == Bytes(8) && p.pattern == Pattern::PingPong));
        assert!(design.points().iter().all(|p| p.pattern != Pattern::Bidirectional));
        let left_out = design.notes.iter().find(|n| n.starts_with("left out")).expect("it says so");
        assert!(left_out.contains("bidirectional at 512 B, 64 KiB") && left_out.contains("--budget "), "{left_out}");
    }

    #[test]
    fn every_network_is_asked_about_within_the_default_budget() {
        let design = Design::of(Grounds { budget: Nanoseconds(150_000_000_000), ..grounds(2, Path::Lab) }).unwrap();
        let rounds = Nanoseconds(design.points().len() as u64 * u64::from(MINIMUM_ROUNDS) * BLOCK.0);
        assert!(rounds < design.grounds.budget, "the first look takes {rounds}");
        assert!(design.notes.iter().all(|note| !note.starts_with("left out")), "{:?}", design.notes);
        let asked: BTreeSet<Stack> = design.points().into_iter().map(|point| point.stack).collect();
        assert_eq!(asked.len(), Stack::ALL.len());
    }

    #[test]
    fn one_core_is_said_and_none_is_a_fault() {
        let design = Design::of(grounds(1, Path::Loopback)).unwrap();
        assert!(design.notes.iter().any(|n| n.contains("both ends share core 0")), "{:?}", design.notes);
        assert!(Design::of(grounds(0, Path::Loopback)).is_err());
    }

    #[test]
    fn a_dedicated_engine_gets_the_third_core() {
        let design = Design::of(grounds(4, Path::Lab)).unwrap();
        let dedicated: BTreeSet<_> =
            design.points().into_iter().map(|p| (p.placement.clone(), p.peer_engine)).collect();
        let expected = [(Site::App, None), (Site::Core(CoreId(2)), Some(CoreId(3)))];
        assert_eq!(dedicated.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_second_host_has_cores_of_its_own() {
        let far = Path::Remote("far".into());
        let design = |cores, peer: &[u32]| {
            let peer_cores = peer.iter().copied().map(CoreId).collect();
            Design::of(Grounds { peer_cores, ..grounds(cores, far.clone()) }).unwrap()
        };
        let two = design(2, &[8, 9]);
        let points = two.points();
        let own: BTreeSet<_> = points.iter().filter(|p| p.placement != Site::App).collect();
        let between: Vec<_> = own.iter().filter(|p| p.path == far).collect();
        assert!(between.len() > 4 && between.iter().all(|p| two.is_candidate(p)));
        assert!(between.iter().all(|p| p.placement == Site::Core(CoreId(1)) && p.peer_engine == Some(CoreId(9))));
        assert!(points.iter().all(|p| p.remote_core == CoreId(if p.path == far { 8 } else { 1 })));
        assert!(own.iter().any(|p| p.path != far) && own.iter().all(|p| p.path == far || !two.is_candidate(p)));
        assert!(two.notes.iter().any(|note| note.contains("needs 4 cores within a host")), "{:?}", two.notes);
        let one = design(2, &[8]);
        assert!(one.points().iter().all(|p| p.placement == Site::App || !one.is_candidate(p)));
    }

    #[test]
    fn a_second_host_that_gives_no_cores_is_not_asked_for_them() {
        let far = Path::Remote("far".into());
        let design = Design::of(Grounds { at_app: true, ..grounds(4, far.clone()) }).unwrap();
        let points = design.points();
        let (between, within): (Vec<&PointSpec>, Vec<&PointSpec>) = points.into_iter().partition(|p| p.path == far);
        assert!(between.len() > 4 && between.iter().all(|p| p.placement == Site::App));
        assert!(within.iter().any(|p| p.placement != Site::App));
        assert!(design.notes.iter().any(|note| note.contains("--allow cores")), "{:?}", design.notes);
    }

    #[test]
    fn an_engine_that_must_share_its_core_is_measured_beside_and_in_few_questions() {
        for (cores, candidates) in [(2, false), (3, false), (4, true)] {
            let design = Design::of(grounds(cores, Path::Lab)).unwrap();
            let own: Vec<_> = design.points().into_iter().filter(|p| p.placement != Site::App).collect();
            assert!(own.iter().all(|p| design.is_candidate(p) == candidates), "{cores} cores");
            assert_eq!(own.len() > 4, candidates, "{cores} cores: {}", own.len());
            assert_eq!(design.notes.iter().any(|n| n.contains("measured beside")), !candidates);
        }
    }

    #[test]
    fn the_hash_names_the_design() {
        let hash =
            |budget| Design::of(Grounds { budget: Nanoseconds(budget), ..grounds(2, Path::Lab) }).unwrap().hash();
        assert_eq!(hash(170_000_000_000), hash(170_000_000_000));
        let plain = Design::of(grounds(2, Path::Lab)).unwrap();
        let noted = Design { notes: vec!["a word".into()], ..plain.clone() };
        assert_eq!(plain.hash(), noted.hash());
        assert_ne!(hash(170_000_000_000), hash(60_000_000_000));
    }
}
