//! The bench: opens sessions when a point needs them, keeps peers at rest between blocks, and measures points.

use std::net::{IpAddr, Ipv4Addr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use machine::{CoreId, Fault, Nanoseconds, Result, Site};
use study::point::{Path, PointSpec, Stack};
use study::sample::{Runner, Sample};

use crate::cache;
use crate::calibration::{
    BLOCK, FIRST_TRIAL, MOST_MESSAGES, TRIAL, block_jobs, job, largest, messages_in, verifying, weigh,
};
use crate::control::Connection;
use crate::stack::Prepare;
use crate::worker::{Peer, Plan, Worker};

/// Port of `plimsoll serve` where none is named.
pub const SERVE_PORT: u16 = 5310;

/// Sessions held open at once; the one not used for longest makes room. Each holds a peer process and its buffers.
const MOST_SESSIONS: usize = 8;

/// Longest line that a served peer may send.
const LONGEST_REMOTE_LINE: usize = 1 << 18;

/// What names a session: points that share it share the processes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SessionKey {
    stack: Stack,
    placement: Site,
    path: Path,
    local_core: CoreId,
    remote_core: CoreId,
    protocol_core: Option<CoreId>,
}

/// Measures points on this host, in the lab, or against a served peer.
pub struct Bench {
    /// This program, which starts itself as the peer.
    program: PathBuf,
    /// Most recently used last.
    sessions: Vec<(SessionKey, Worker)>,
    notes: Vec<String>,
}

impl Bench {
    /// `program` is an executable whose subcommand `peer` ends up in [`crate::peer_process::serve_parent`].
    pub fn new(program: PathBuf) -> Bench {
        let mut notes = Vec::new();
        if cache::last_level().value().is_none() {
            notes.push(format!("last-level cache size unknown: buffers rotate over {}", cache::WHERE_UNKNOWN));
        }
        Bench { program, sessions: Vec::new(), notes }
    }

    /// Ends all sessions in good order.
    pub fn close(&mut self) {
        self.sessions.clear();
    }

    fn worker(&mut self, spec: &PointSpec) -> Result<&mut Worker> {
        let key = SessionKey {
            stack: spec.stack,
            placement: spec.placement.clone(),
            path: spec.path.clone(),
            local_core: spec.local_core,
            remote_core: spec.remote_core,
            protocol_core: spec.protocol_core,
        };
        match self.sessions.iter().position(|(held, _)| *held == key) {
            Some(at) => {
                let held = self.sessions.remove(at);
                self.sessions.push(held);
            }
            None => {
                if self.sessions.len() == MOST_SESSIONS {
                    self.sessions.remove(0);
                }
                let worker = Worker::start(self.plan(spec)?)?;
                self.sessions.push((key, worker));
            }
        }
        Ok(&mut self.sessions.last_mut().expect("one was just pushed").1)
    }

    fn plan(&self, spec: &PointSpec) -> Result<Plan> {
        check(spec)?;
        let polite = spec.local_core == spec.remote_core && !matches!(spec.path, Path::Remote(_));
        let (peer, address, peer_address) = match &spec.path {
            Path::Loopback => {
                let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
                (Peer::Child(Box::new(self.peer_command())), Some(loopback), Some(loopback))
            }
            Path::Remote(host) => {
                let (control, address) = reach(host)?;
                (Peer::Served(control), None, Some(address))
            }
            Path::Lab => {
                return Err(Fault::new("path lab", "this build has no lab", "choose --path loopback"));
            }
        };
        let end = |core, placement| Prepare { stack: spec.stack, placement, core: Some(core), address, polite };
        Ok(Plan {
            core: spec.local_core,
            peer,
            local: end(spec.local_core, spec.placement.clone()),
            remote: end(spec.remote_core, remote_placement(spec)?),
            peer_address,
        })
    }

    fn peer_command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("peer");
        command
    }

    fn measure(&mut self, spec: &PointSpec, round: u32, order: u32) -> Result<Sample> {
        let worker = self.worker(spec)?;
        let known = (spec.pattern, spec.size.0, spec.receiver);
        let pace = match worker.pace.get(&known) {
            Some(pace) => {
                let pace = *pace;
                // The path has rested since its last block.
                worker.run(&[job(spec, spec.size.0 as usize, messages_in(TRIAL / 2, pace))])?;
                pace
            }
            None => {
                worker.run(&[verifying(spec)])?;
                calibrate(worker, spec)?
            }
        };
        let jobs = block_jobs(spec, messages_in(BLOCK, pace));
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let block = worker.run(&jobs)?;
        let worth = weigh(spec.pattern, &jobs, &block.local, &block.remote.outcomes)?;
        let asked: u64 = jobs.iter().map(|job| job.messages).sum();
        worker.pace.insert(known, worth.elapsed.as_nanos() as f64 / asked as f64);
        let mut notes = self.notes.clone();
        if spec.local_core == spec.remote_core && !matches!(spec.path, Path::Remote(_)) {
            notes.push(format!("both ends share {}: polls that find nothing give it away", spec.local_core));
        }
        notes.extend(block.notes);
        Ok(Sample {
            round,
            order,
            started: Nanoseconds(started.as_nanos() as u64),
            messages: worth.messages,
            elapsed: Nanoseconds(worth.elapsed.as_nanos() as u64),
            value: worth.value,
            lost: worth.lost,
            probe: None,
            accounting: None,
            notes,
        })
    }
}

impl Runner for Bench {
    fn run_block(&mut self, spec: &PointSpec, round: u32, order: u32) -> Result<Sample> {
        self.measure(spec, round, order).inspect_err(|_| {
            // A session that failed is not used again; the next block opens a new one.
            self.sessions.pop();
        })
    }
}

/// Longer and longer trials, until one is long enough to tell the time per message in nanoseconds.
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

/// Where the peer's engine runs. On a host of its own it has the same core as ours; on this host a free one, or else,
/// as ours may have to, the core of the other end's application.
fn remote_placement(spec: &PointSpec) -> Result<Site> {
    let Site::Core(core) = spec.placement else { return Ok(spec.placement.clone()) };
    if matches!(spec.path, Path::Remote(_)) {
        return Ok(spec.placement.clone());
    }
    let taken = [core, spec.local_core, spec.remote_core];
    let free = linux::affinity::allowed()?.into_iter().find(|core| !taken.contains(core));
    Ok(Site::Core(free.unwrap_or(spec.local_core)))
}

fn check(spec: &PointSpec) -> Result<()> {
    let kernel = matches!(spec.stack, Stack::Tcp | Stack::Udp);
    if kernel && spec.placement != Site::App {
        return Err(Fault::new(
            format!("placement {}", spec.placement),
            format!("the kernel does {}'s message processing, not a site of plimsoll's", spec.stack),
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
    if spec.size.0 == 0 || largest(spec).0 > crate::serve::LARGEST.0 {
        return Err(Fault::new(
            format!("message size {}", spec.size),
            "it is outside what a bench measures",
            format!("choose sizes from 1 B to {}", crate::serve::LARGEST),
        ));
    }
    Ok(())
}

/// Connects to a `plimsoll serve`.
fn reach(host: &str) -> Result<(Connection, IpAddr)> {
    let named = if host.contains(':') && !host.ends_with(']') && host.matches(':').count() == 1 {
        host.to_owned()
    } else {
        format!("{host}:{SERVE_PORT}")
    };
    let next = "start 'plimsoll serve --listen ADDRESS' there and check the route and firewall";
    let addresses = named.to_socket_addrs().map_err(|e| Fault::because(format!("host {host}"), e, next))?;
    let mut last = Fault::new(format!("host {host}"), "its name has no address", next);
    for address in addresses {
        match TcpStream::connect_timeout(&address, Duration::from_secs(5)) {
            Ok(stream) => {
                stream.set_nodelay(true).map_err(|e| Fault::because("control connection", e, "run again"))?;
                let control = Connection::new(stream, format!("peer at {named}"), LONGEST_REMOTE_LINE)?;
                return Ok((control, address.ip()));
            }
            Err(e) => last = Fault::because(format!("host {named}"), e, next),
        }
    }
    Err(last)
}
