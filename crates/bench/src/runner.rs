//! The bench: opens sessions when a point needs them, keeps peers idle between blocks, and measures points.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::Command;

use linux::accounting::HostMeter;
use linux::affinity;
use linux::lab::{Host, Lab, Options};
use machine::accounting::Accounting;
use machine::bounds::BENCH_SESSIONS;
use machine::choice::Choice;
use machine::topology::Topology;
use machine::{CoreId, Dilation, Fault, Nanoseconds, Probe, Reading, Result, Site};
use rounds::clocks::Clocks;
use rounds::point::{Path, Pattern, PointSpec, Receiver, Stack};
use rounds::sample::{Runner, Sample};

use crate::calibration::{
    FIRST_TRIAL, MOST_MESSAGES, TRIAL, block_jobs, block_messages, job, largest, messages_in, verifying, weigh,
};
use crate::control::{Connection, Serving, host_of, reach};
use crate::key::Key;
use crate::reference::netpipe;
use crate::second_host::SecondHost;
use crate::session::Stretched;
use crate::worker::{Peer, Plan, Worker};
use exchange::path::Prepare;

/// Most open sessions; the least recently used makes room. Each holds a peer process and its buffers.
const MOST_SESSIONS: usize = BENCH_SESSIONS.total.count();

/// Identity of a session: points that share it share the processes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SessionKey {
    stack: Stack,
    placement: Site,
    path: Path,
    local_core: CoreId,
    remote_core: CoreId,
    peer_engine: Option<CoreId>,
    interface: Option<String>,
    /// Number of the lab's pair of interfaces.
    link: u8,
    dilation: Option<Dilation>,
}

impl SessionKey {
    fn of(spec: &PointSpec) -> SessionKey {
        SessionKey {
            stack: spec.stack,
            placement: spec.placement.clone(),
            path: spec.path.clone(),
            local_core: spec.local_core,
            remote_core: spec.remote_core,
            peer_engine: spec.peer_engine,
            interface: spec.interface.clone(),
            link: spec.lab_link(),
            dilation: spec.dilation,
        }
    }

    /// Whether this session slows `other` down, even idle: its program sees each packet of the interface before the kernel's
    /// protocols do, and leaves no place for another.
    fn disturbs(&self, other: &SessionKey) -> bool {
        self.stack.attaches() && self != other && (&self.path, self.link) == (&other.path, other.link)
    }
}

/// Measures points on this host, in the lab, or against a served peer.
pub struct Bench {
    /// This program, which starts itself as the peer.
    program: PathBuf,
    /// Open sessions, the most recently used last.
    sessions: Vec<(SessionKey, Worker)>,
    /// The lab, made for the first point that needs it; declared after the sessions, which are dropped first.
    lab: Option<Lab>,
    /// Pairs of interfaces of the lab.
    links: Vec<u8>,
    /// The node that a point's path may name.
    second: Option<SecondHost>,
    /// Key for servers that were started by hand.
    key: Option<Key>,
    /// Core of the lab's receive processing at present.
    steered: Option<CoreId>,
    meter: Option<HostMeter>,
    /// Nanoseconds per message, by points whose payloads were verified.
    paces: HashMap<(SessionKey, Known), f64>,
    /// Nanoseconds per message of NetPIPE.
    reference_pace: HashMap<(Pattern, u64), f64>,
    notes: Vec<String>,
    /// Counts of the engine's dilated work in the last block.
    stretched: Option<Stretched>,
}

impl Bench {
    /// `program` is an executable whose subcommand `peer` ends up in [`crate::peer_process::serve_parent`].
    pub fn new(program: PathBuf) -> Bench {
        let mut notes = Vec::new();
        if !linux::cache::CAN_EVICT {
            notes.push(
                "stream-no-cache: programs cannot evict this processor's caches, which may hold its buffers".into(),
            );
        }
        let meter = HostMeter::open().map_err(|fault| notes.push(format!("no accounting: {fault}"))).ok();
        Bench {
            program,
            sessions: Vec::new(),
            lab: None,
            links: Vec::new(),
            second: None,
            key: None,
            steered: None,
            meter,
            stretched: None,
            paces: HashMap::new(),
            reference_pace: HashMap::new(),
            notes,
        }
    }

    /// Adds a second host that was started for the bench.
    pub fn with(self, second: Option<SecondHost>) -> Bench {
        Bench { second, ..self }
    }

    /// Adds the `key` for servers that were started by hand.
    pub fn showing(self, key: Option<Key>) -> Bench {
        Bench { key, ..self }
    }

    /// Ends all sessions in good order, then the lab and the second host.
    pub fn close(&mut self) {
        self.sessions.clear();
        self.lab = None;
        self.second = None;
    }

    fn worker(&mut self, spec: &PointSpec) -> Result<&mut Worker> {
        let key = SessionKey::of(spec);
        self.sessions.retain(|(held, _)| !held.disturbs(&key));
        match self.sessions.iter().position(|(held, _)| *held == key) {
            Some(at) => {
                let held = self.sessions.remove(at);
                self.sessions.push(held);
            }
            None => {
                if self.sessions.len() == MOST_SESSIONS {
                    self.sessions.remove(0);
                }
                let worker = self.open(spec)?;
                self.sessions.push((key, worker));
            }
        }
        Ok(&mut self.sessions.last_mut().expect("one was just pushed").1)
    }

    fn open(&mut self, spec: &PointSpec) -> Result<Worker> {
        let away = match (&spec.placement, spec.peer_engine) {
            (Site::Core(_), Some(core)) => Site::Core(core),
            (local, _) => local.clone(),
        };
        let end = |core, placement, address| Prepare {
            stack: spec.stack,
            placement,
            core: Some(core),
            address,
            interface: None,
            dilation: spec.dilation,
            polite: shares_a_core(spec),
        };
        let plan = |peer, listen, peer_address| Plan {
            core: spec.local_core,
            peer,
            local: Prepare {
                interface: spec.interface.clone(),
                ..end(spec.local_core, spec.placement.clone(), listen)
            },
            remote: end(spec.remote_core, away.clone(), listen),
            peer_address,
        };
        let mut command = self.peer_command();
        match &spec.path {
            Path::Loopback => {
                let loopback = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
                Worker::start(plan(Peer::Child(Box::new(command)), loopback, loopback))
            }
            Path::Remote(host) => {
                let (control, address) = self.reach(host)?;
                Worker::start(plan(Peer::Served(control), None, Some(address)))
            }
            Path::Lab => {
                let link = spec.lab_link();
                let lab = self.lab(link)?;
                lab.enter(Host::B, &mut command)?;
                let there = Some(lab.address_on(link, Host::B));
                // The application's thread and its sockets are made in host A.
                lab.inside(Host::A, || Worker::start(plan(Peer::Child(Box::new(command)), there, there)))?
            }
        }
    }

    fn reach(&self, host: &str) -> Result<(Connection, IpAddr)> {
        if let Some(second) = self.second.as_ref().filter(|second| second.node() == host) {
            return second.reach();
        }
        let (mut control, address) = reach(host)?;
        self.key.as_ref().map_or(Ok(()), |key| key.present(&mut control))?;
        Ok((control, address))
    }

    /// The host of a server: its grants, and its cores for parties that poll, near ones first; no cores if it is this machine,
    /// in a namespace or container, whose cores both ends share.
    ///
    /// # Errors
    /// No server is there.
    pub fn host_of(&self, host: &str) -> Result<Serving> {
        host_of(&mut self.reach(host)?.0)
    }

    /// The lab, with the pair of interfaces `link`.
    fn lab(&mut self, link: u8) -> Result<&Lab> {
        let options = Options::default();
        if self.lab.is_none() {
            self.lab = Some(Lab::owned(&options)?);
            self.links = vec![0];
            self.steered = None;
        }
        let lab = self.lab.as_ref().expect("it was just made");
        if !self.links.contains(&link) {
            lab.add_link(link, &options)?;
            self.links.push(link);
        }
        Ok(lab)
    }

    /// Steers the lab's receive processing to the point's core, and reads the setting back.
    fn steer(&mut self, spec: &PointSpec) -> Result<()> {
        if spec.path != Path::Lab {
            return match spec.protocol_core {
                None => Ok(()),
                Some(core) => Err(Fault::new(
                    format!("protocol core {}", core.0),
                    format!("receive processing is not plimsoll's to steer on path {}", spec.path),
                    "choose --path lab, or leave --protocol-core out",
                )),
            };
        }
        let asked = spec.protocol_core;
        self.lab(0)?;
        if self.steered != asked {
            let lab = self.lab.as_ref().expect("it was just made");
            let steering = lab.steer(asked)?;
            if !steering.holds() {
                return Err(Fault::new(
                    format!(
                        "receive processing on {}",
                        asked.map_or("the sender's core".to_owned(), |c| c.to_string())
                    ),
                    format!("the kernel reports {:?} instead", steering.in_force(Host::B)),
                    "see whether another program sets rps_cpus in every network namespace",
                ));
            }
            self.steered = asked;
        }
        Ok(())
    }

    fn peer_command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("peer");
        command
    }

    fn measure(&mut self, spec: &PointSpec, round: u32, order: u32) -> Result<Sample> {
        check(spec)?;
        self.steer(spec)?;
        let mut notes = self.notes.clone();
        let probe = probe(spec, &mut notes);
        let clocks = clocks(spec);
        if spec.stack == Stack::OpenMpi {
            return self.refer(spec, (round, order), (probe, clocks), notes);
        }
        let (known, pace) = (known(spec), self.pace(spec)?);
        // Warms up the path, which was idle since its last block.
        self.worker(spec)?.run(&[job(spec, spec.size.0 as usize, messages_in(TRIAL / 2, pace))])?;
        let jobs = block_jobs(spec, block_messages(pace));
        let started = machine::here::now();
        self.meter.as_mut().map(HostMeter::begin).transpose()?;
        let worker = self.worker(spec)?;
        let block = worker.run(&jobs)?;
        let worth = weigh(spec.pattern, &jobs, &block.local, &block.remote.outcomes)?;
        let asked: u64 = jobs.iter().map(|job| job.messages).sum();
        self.paces.insert(known, worth.elapsed.as_nanos() as f64 / asked as f64);
        if shares_a_core(spec) {
            notes.push(format!("both ends share {}: polls that find nothing give it away", spec.local_core));
        }
        notes.extend(block.notes);
        self.stretched = block.stretched;
        let accounting = match self.meter.as_mut() {
            None => None,
            Some(meter) => {
                let cores = meter.end()?;
                let mut threads = block.threads;
                threads.extend(block.remote.threads);
                let remote_cores = match block.remote.cores {
                    Reading::Measured(cores) | Reading::Modelled(cores) => Some(cores),
                    Reading::Absent { .. } | Reading::NotPermitted { .. } => None,
                };
                Some(Accounting { cores, remote_cores, threads, overhead: meter.overhead() })
            }
        };
        Ok(Sample {
            round,
            order,
            started,
            messages: worth.messages,
            elapsed: Nanoseconds(worth.elapsed.as_nanos() as u64),
            value: worth.value,
            lost: worth.lost,
            probe,
            clocks,
            accounting,
            notes,
        })
    }

    /// Counts of this end's dilated work in the last block, if the point dilates it.
    pub fn stretched(&self) -> Option<Stretched> {
        self.stretched
    }

    /// Drops the session if `outcome` is a fault; the next block opens a new one.
    fn kept<T>(&mut self, spec: &PointSpec, outcome: Result<T>) -> Result<T> {
        if outcome.is_err() {
            let key = SessionKey::of(spec);
            self.sessions.retain(|(held, _)| *held != key);
            self.paces.retain(|(held, _), _| *held != key);
        }
        outcome
    }

    /// Nanoseconds per message of `spec`; measured, after verifying payloads, if not known yet.
    fn pace(&mut self, spec: &PointSpec) -> Result<f64> {
        if let Some(pace) = self.paces.get(&known(spec)) {
            return Ok(*pace);
        }
        let worker = self.worker(spec)?;
        worker.run(&[verifying(spec, 1)])?;
        let pace = calibrate(worker, spec)?;
        worker.run(&[verifying(spec, messages_in(TRIAL, pace))])?;
        self.paces.insert(known(spec), pace);
        Ok(pace)
    }

    /// Runs one block of the outside reference, which starts its own processes.
    fn refer(
        &mut self,
        spec: &PointSpec,
        (round, order): (u32, u32),
        (probe, clocks): (Option<Probe>, Clocks),
        mut notes: Vec<String>,
    ) -> Result<Sample> {
        let known = (spec.pattern, spec.size.0);
        let started = machine::here::now();
        let reference = netpipe::measure(spec, self.reference_pace.get(&known).copied())?;
        let elapsed = reference.elapsed.as_nanos() as f64;
        self.reference_pace.insert(known, elapsed / reference.messages as f64);
        notes.extend(reference.notes);
        Ok(Sample {
            round,
            order,
            started,
            messages: reference.messages,
            elapsed: Nanoseconds(elapsed as u64),
            value: reference.value,
            lost: 0,
            probe,
            clocks,
            accounting: None,
            notes,
        })
    }
}

impl Runner for Bench {
    fn prepare(&mut self, spec: &PointSpec) -> Result<()> {
        // The outside reference starts anew with each block.
        if spec.stack == Stack::OpenMpi {
            return Ok(());
        }
        check(spec)?;
        self.steer(spec)?;
        let pace = self.pace(spec);
        self.kept(spec, pace).map(drop)
    }

    fn run_block(&mut self, spec: &PointSpec, round: u32, order: u32) -> Result<Sample> {
        let sample = self.measure(spec, round, order);
        self.kept(spec, sample)
    }
}

/// Identity of a point within its session.
type Known = (Pattern, u64, Receiver);

fn known(spec: &PointSpec) -> (SessionKey, Known) {
    (SessionKey::of(spec), (spec.pattern, spec.size.0, spec.receiver))
}

fn shares_a_core(spec: &PointSpec) -> bool {
    spec.local_core == spec.remote_core && !matches!(spec.path, Path::Remote(_))
}

/// Clocks at present of this host's cores that do the block's work.
fn clocks(spec: &PointSpec) -> Clocks {
    let here = !matches!(spec.path, Path::Remote(_));
    let engine = if let Site::Core(core) = &spec.placement { Some(*core) } else { None };
    let there = [Some(spec.remote_core), spec.peer_engine].into_iter().flatten().filter(|_| here);
    crate::clocks([spec.local_core].into_iter().chain(engine).chain(there).chain(spec.protocol_core))
}

/// Distance of the two cores at present, if both are of this host.
fn probe(spec: &PointSpec, notes: &mut Vec<String>) -> Option<Probe> {
    if spec.local_core == spec.remote_core || matches!(spec.path, Path::Remote(_)) {
        return None;
    }
    match ports::probe::between(spec.local_core, spec.remote_core) {
        Ok(found) => Some(found),
        Err(fault) => {
            notes.push(format!("no probe: {fault}"));
            None
        }
    }
}

/// Nanoseconds per message, by longer and longer trials until one is long enough.
fn calibrate(worker: &mut Worker, spec: &PointSpec) -> Result<f64> {
    let mut messages = FIRST_TRIAL;
    loop {
        let jobs = [job(spec, spec.size.0 as usize, messages)];
        let block = worker.run(&jobs)?;
        let worth = weigh(spec.pattern, &jobs, &block.local, &block.remote.outcomes)?;
        let pace = worth.elapsed.as_nanos() as f64 / messages as f64;
        if worth.elapsed >= TRIAL || messages == MOST_MESSAGES {
            return Ok(pace);
        }
        messages = messages_in(TRIAL + TRIAL / 4, pace).clamp(2 * messages, 64 * messages).min(MOST_MESSAGES);
    }
}

/// The core of the peer's engine on this host, if ours is on `engine`: a free one near the peer's application, or else the
/// core of the other end's application, as ours may have to use.
///
/// # Errors
/// The topology cannot be read.
pub fn peer_engine(engine: CoreId, local: CoreId, remote: CoreId) -> Result<CoreId> {
    let choice = Choice::among(Topology::live()?, affinity::allowed()?);
    Ok(choice.without([engine, local, remote]).nearest(remote).unwrap_or(local))
}

fn check(spec: &PointSpec) -> Result<()> {
    // A peer on another host checks its own cores.
    let far = matches!(spec.path, Path::Remote(_));
    affinity::check(spec.local_core)?;
    if !far {
        affinity::check(spec.remote_core)?;
    }
    if let Site::Core(core) = spec.placement {
        affinity::check(core).map_err(|fault| fault.within(format!("placement {}", spec.placement)))?;
    }
    let kernel = matches!(spec.stack, Stack::Tcp | Stack::Udp | Stack::OpenMpi);
    if kernel && spec.placement != Site::App {
        return Err(Fault::new(
            format!("placement {}", spec.placement),
            format!("{}'s message processing is not plimsoll's to place", spec.stack),
            "choose --placement app; steer the kernel's receive work with --protocol-core",
        ));
    }
    if !matches!(spec.placement, Site::App | Site::Core(_)) {
        return Err(Fault::new(
            format!("placement {}", spec.placement),
            "the message engine runs at app or core:N only",
            "choose --placement app or core:N",
        ));
    }
    if spec.stack == Stack::EngineShm && spec.path != Path::Loopback {
        return Err(Fault::new(
            format!("stack engine-shm over {}", spec.path),
            "two hosts share no memory",
            "choose --path loopback, or another stack",
        ));
    }
    if spec.size.0 == 0 || largest(spec).0 > crate::serve::LARGEST.0 {
        return Err(Fault::new(
            format!("message size {}", spec.size),
            "it is outside what a bench measures",
            format!("choose sizes from 1 B to {}", crate::serve::LARGEST),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(stack: Stack, path: Path, interface: Option<&str>) -> SessionKey {
        SessionKey::of(&PointSpec {
            path,
            interface: interface.map(str::to_owned),
            ..PointSpec::plain(stack, Pattern::PingPong, 8, (CoreId(0), CoreId(1)))
        })
    }

    #[test]
    fn a_program_at_an_interface_of_its_own_disturbs_nobody() {
        let networks = [Stack::EngineUdp, Stack::EngineAfxdp, Stack::EngineXdp, Stack::Tcp];
        let disturbances = |path: &Path, interface: Option<&str>| {
            let at = |stack: Stack| key(stack, path.clone(), interface.filter(|_| stack.attaches()));
            let pairs = networks.iter().flat_map(|one| networks.map(|other| (at(*one), at(other))));
            pairs.filter(|(one, other)| one.disturbs(other)).count()
        };
        assert_eq!(disturbances(&Path::Lab, None), 0, "each has its own pair");
        assert_eq!(disturbances(&Path::Remote("far".into()), None), 6);
        assert_eq!(disturbances(&Path::Lab, Some("lab0")), 6, "one interface was asked for");
    }
}
