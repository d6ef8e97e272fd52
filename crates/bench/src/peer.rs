//! The responder: the end of a session in another process, a child or a `plimsoll serve`.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use linux::accounting::HostMeter;
use linux::affinity;
use machine::budget::{Exhausted, Share};
use machine::{Budget, Bytes, Fault, Reading, Result, Site};
use rounds::point::Stack as StackName;

use crate::admission::Admission;
use crate::control::{Connection, Finished, Grant, MAX_JOBS, Reply, Request, Serving, VERSION};
use crate::meters::Meters;
use exchange::endpoint::{Job, Outcome, Role};
use exchange::path::{Path, Prepare, Waiting};
use exchange::pattern::Pools;

/// Limits of what a responder grants.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Most time from one request to the next while the session is being set up.
    pub handshake: Duration,
    /// Most time from one block to the next; the initiator may be measuring something else.
    pub between_blocks: Duration,
    /// Most time for one `Run`.
    pub run: Duration,
    pub size: Bytes,
    pub messages: u64,
    /// Number of sessions; this one counts once the version is agreed on.
    pub sessions: Arc<Budget>,
    /// Memory for the session's message buffers, possibly a part of all sessions' memory.
    pub buffers: Arc<Budget>,
    /// Whether the peer is on this host: only then can it share memory with the responder.
    pub same_host: bool,
    /// Address at which the responder listens for the message path, if not the one in the request.
    pub address: Option<IpAddr>,
    /// Host of the initiator, the only one to which packets may be sent.
    pub initiator: Option<IpAddr>,
    pub admission: Arc<Admission>,
    /// Grants beside patterns over sockets.
    pub allows: Vec<Grant>,
}

impl Limits {
    /// The limits for a peer that this very program started.
    pub fn trusted() -> Limits {
        Limits {
            handshake: Duration::from_secs(10),
            between_blocks: Duration::from_secs(24 * 3600),
            run: Duration::from_secs(60),
            size: Bytes(1 << 30),
            messages: u64::MAX,
            sessions: Budget::new(1),
            buffers: Budget::new(8 << 30),
            same_host: true,
            address: None,
            initiator: None,
            admission: Arc::new(Admission::Anybody),
            allows: Grant::ALL.to_vec(),
        }
    }
}

/// Answers one initiator until it says `Bye`, leaves, or breaks a limit.
pub fn respond(mut connection: Connection, limits: &Limits) -> Result<()> {
    let outcome = converse(&mut connection, limits);
    if let Err(fault) = &outcome {
        // The initiator itself may have failed, so that no more can be done.
        connection.part(&Reply::failed(fault), Duration::from_millis(200));
    }
    outcome
}

fn converse(connection: &mut Connection, limits: &Limits) -> Result<()> {
    let grace = limits.handshake;
    let Some(first) = limits.admission.admit(connection, grace)? else { return Ok(()) };
    match first {
        Request::Hello { plimsoll: VERSION } => {}
        Request::Hello { plimsoll } => {
            return Err(Fault::new(
                "plimsoll's versions",
                format!("the initiator speaks control protocol {plimsoll}, this end {VERSION}"),
                "use the same version of plimsoll on both ends",
            ));
        }
        _ => return Err(unexpected(connection, "a greeting")),
    }
    let _session = limits.sessions.draw(1).map_err(|_| {
        let cause = format!("{} sessions are open already", limits.sessions.total());
        Fault::new("plimsoll serve", cause, "wait until another bench has ended")
    })?;
    let host = if limits.same_host { None } else { Some(Serving::here(&limits.allows)?) };
    connection.send(&Reply::Welcome { plimsoll: VERSION, process: std::process::id(), host }, grace)?;

    let prepare = match connection.receive(grace)? {
        Request::Prepare(prepare) => prepare,
        Request::Count if limits.admission.is_closed() => return count(connection, limits),
        Request::Bye => return Ok(()),
        _ => return Err(unexpected(connection, "what to prepare")),
    };
    grant(&prepare, limits)?;
    let _pinned = prepare.core.map(affinity::pin).transpose()?;
    let address = limits.address.or(prepare.address).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let (waiting, offer) = Waiting::new(&prepare, address)?;
    connection.send(&Reply::Ready(offer), grace)?;
    let mut path = match connection.receive(grace)? {
        Request::Meet { from } => {
            if let (Some(from), Some(initiator)) = (from, limits.initiator)
                && from.ip() != initiator
            {
                return Err(Fault::new(
                    format!("address {from}"),
                    "it is not of the host that the control connection comes from",
                    "measure from one address of your host, without translation between the hosts",
                ));
            }
            waiting.accept(from)?
        }
        _ => return Err(unexpected(connection, "the meeting")),
    };
    // The first block may come late.
    path.idle()?;
    connection.send(&Reply::Met, grace)?;

    let mut responder = Responder {
        meters: Meters::open("remote", &path)?,
        host: if limits.same_host { None } else { Some(HostMeter::open()?) },
        path,
        pools: Pools::default(),
        buffers: limits.buffers.draw(0).map_err(|_| buffers_refused(Bytes(0), Exhausted::Whole, limits))?,
        polite: prepare.polite,
        number: 0,
    };
    loop {
        match connection.receive(limits.between_blocks)? {
            Request::Run { jobs } => {
                check(&jobs, limits)?;
                let finished = responder.block(&jobs, connection, limits)?;
                connection.send(&Reply::Finished(Box::new(finished)), grace)?;
            }
            Request::Bye => return Ok(()),
            _ => return Err(unexpected(connection, "a block or a goodbye")),
        }
    }
}

/// Counts what this host's cores do, from `Count` to `Tell`, until `Bye`.
fn count(connection: &mut Connection, limits: &Limits) -> Result<()> {
    let mut meter = HostMeter::open().map_err(|fault| fault.to_string());
    let mut asked = Request::Count;
    loop {
        let reply = match asked {
            Request::Count => {
                meter.as_mut().map_or(Ok(()), HostMeter::begin)?;
                Reply::Counting
            }
            Request::Tell => Reply::Counted(match &mut meter {
                Ok(meter) => Reading::Measured(meter.end()?),
                Err(why) => Reading::absent(why.as_str()),
            }),
            Request::Bye => return Ok(()),
            _ => return Err(unexpected(connection, "a count or a goodbye")),
        };
        connection.send(&reply, limits.handshake)?;
        asked = connection.receive(limits.between_blocks)?;
    }
}

/// The responder's end after the ends have met.
struct Responder {
    path: Path,
    pools: Pools,
    /// Memory of the pools.
    buffers: Share,
    meters: Meters,
    /// Meter of this host, if the initiator is on another.
    host: Option<HostMeter>,
    polite: bool,
    number: u64,
}

impl Responder {
    /// Runs the jobs of a `Run` at this end; cost is taken around the jobs alone.
    fn block(&mut self, jobs: &[Job], connection: &mut Connection, limits: &Limits) -> Result<Finished> {
        let Responder { path, pools, buffers, meters, host, polite, number } = self;
        let largest = jobs.iter().map(|job| job.size).max().unwrap_or(0);
        let need = pools.need(jobs[0].pattern, largest, Role::Responder);
        buffers.resize(need.0).map_err(|exhausted| buffers_refused(need, exhausted, limits))?;
        pools.provide(jobs[0].pattern, largest, Role::Responder);
        path.resume()?;
        host.as_mut().map(HostMeter::begin).transpose()?;
        meters.begin()?;
        let until = Instant::now() + limits.run;
        let mut outcomes = Vec::with_capacity(jobs.len());
        // Both closures use the connection, never at once.
        let connection = RefCell::new(connection);
        for (index, job) in jobs.iter().enumerate() {
            *number += 1;
            let mut ready = || match index {
                0 => connection.borrow_mut().send(&Reply::Started, limits.handshake),
                _ => Ok(()),
            };
            let mut watch = || {
                connection.borrow_mut().check()?;
                if Instant::now() > until { Err(out_of_time(job, limits.run)) } else { Ok(()) }
            };
            outcomes.push(path.perform(job, Role::Responder, *number, pools, *polite, &mut watch, &mut ready)?);
        }
        let threads = meters.end()?;
        let cores = match host {
            Some(host) => Reading::Measured(host.end()?),
            None => Reading::absent("the initiator counts the cores that it shares with the responder"),
        };
        path.idle()?;
        Ok(Finished { outcomes, threads, cores, notes: path.notes() })
    }
}

fn grant(prepare: &Prepare, limits: &Limits) -> Result<()> {
    if prepare.stack == StackName::EngineShm && !limits.same_host {
        return Err(Fault::new(
            "stack engine-shm",
            "memory cannot be shared with a process on another host",
            "choose engine-udp or tcp for this path, or --path loopback for engine-shm",
        ));
    }
    let allowed = |asked: String, grant: Grant, instead: &str| {
        if limits.allows.contains(&grant) {
            return Ok(());
        }
        let next = format!("start the server with --key FILE --allow {grant}, or choose {instead}");
        Err(Fault::new(asked, format!("a server gives that where it is started with --allow {grant}"), next))
    };
    if prepare.placement != Site::App {
        allowed(format!("placement {}", prepare.placement), Grant::Cores, "placement app")?;
    }
    if prepare.stack.attaches() {
        allowed(format!("stack {}", prepare.stack), Grant::Hooks, "engine-udp")?;
    }
    Ok(())
}

fn check(jobs: &[Job], limits: &Limits) -> Result<()> {
    if jobs.is_empty() || jobs.len() > MAX_JOBS {
        return Err(Fault::new("a block", format!("it has {} jobs", jobs.len()), format!("ask for 1 to {MAX_JOBS}")));
    }
    // A block's buffers are those of its pattern.
    if jobs.iter().any(|job| job.pattern != jobs[0].pattern) {
        return Err(Fault::new("a block", "its jobs are of several patterns", "ask for a block of each"));
    }
    let refuse = |what: String, most: String| Err(Fault::new(what, "more than this end grants", most));
    for job in jobs {
        if job.size == 0 || job.size as u64 > limits.size.0 {
            return refuse(format!("message size {} B", job.size), format!("ask for 1 B to {}", limits.size));
        }
        if job.messages == 0 || job.messages > limits.messages {
            return refuse(format!("{} messages a job", job.messages), format!("ask for 1 to {}", limits.messages));
        }
    }
    Ok(())
}

fn buffers_refused(need: Bytes, exhausted: Exhausted, limits: &Limits) -> Fault {
    let subject = format!("buffers of {need}");
    match exhausted {
        Exhausted::Own => {
            let cause = format!("this end grants a session {}", Bytes(limits.buffers.total()));
            Fault::new(subject, cause, "choose a smaller size")
        }
        Exhausted::Whole => {
            let cause = "other sessions hold what this end grants to all of them together";
            Fault::new(subject, cause, "choose a smaller size, or wait until another bench has ended")
        }
    }
}

pub(crate) fn out_of_time(job: &Job, limit: Duration) -> Fault {
    Fault::new(
        format!("block of {} x {} B, {}", job.messages, job.size, job.pattern),
        format!("it did not end within {} s", limit.as_secs()),
        "see whether both cores are free and the path passes data, then run again",
    )
}

fn unexpected(connection: &Connection, awaited: &str) -> Fault {
    Fault::new(
        connection.peer(),
        format!("it said something else where {awaited} was due"),
        "use the same version of plimsoll on both ends",
    )
}

/// Whether an outcome can be a responder's result of `job`.
pub(crate) fn plausible(outcome: &Outcome, job: &Job) -> bool {
    outcome.received.saturating_add(outcome.lost) <= job.messages
}
