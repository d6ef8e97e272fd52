//! The initiator: one session with one peer over one stack, idle between blocks.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use linux::clock::ticks;
use machine::accounting::ThreadCost;
use machine::{Fault, Nanoseconds, Result};
use serde::Serialize;

use crate::control::{ANSWER, Connection, Finished, Reply, Request, answer, ask, greet, unexpected};
use crate::meters::Meters;
use crate::peer::{out_of_time, plausible};
use exchange::endpoint::{Job, Outcome, Role};
use exchange::path::{Calling, Path, Prepare};
use exchange::pattern::Pools;
use exchange::stack::Dilated;

/// Time for a peer to end that was told to; a slower one still holds what the next session needs.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// Most time for one block; calibrated ones take tens of milliseconds.
const BLOCK: Duration = Duration::from_secs(30);

/// The initiator's end of an open session. Use it from the thread whose core it measures.
pub struct Session {
    control: Connection,
    path: Path,
    pools: Pools,
    meters: Meters,
    polite: bool,
    /// Number of jobs begun, the same on both ends.
    number: u64,
}

/// Results of one block at both ends.
#[derive(Debug)]
pub struct Block {
    /// Outcomes, one for each job.
    pub local: Vec<Outcome>,
    pub remote: Finished,
    /// Costs of this end's threads.
    pub threads: Vec<ThreadCost>,
    pub notes: Vec<String>,
    /// Counts of this end's dilated engine work, if it is dilated.
    pub stretched: Option<Stretched>,
}

/// The engine's dilated work at one end in a block.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Stretched {
    /// Time of work, without spinning, empty polls included.
    pub worked: Nanoseconds,
    /// The part of it that moved messages.
    pub busy: Nanoseconds,
    pub spun: Nanoseconds,
}

impl Stretched {
    /// Converts counts in ticks, of which `ticks` lasted `elapsed`.
    fn of(counted: Dilated, ticks: u64, elapsed: Duration) -> Stretched {
        let tick = elapsed.as_nanos() as f64 / (ticks as f64).max(1.0);
        let time = |ticks: u64| Nanoseconds((ticks as f64 * tick).round() as u64);
        Stretched { worked: time(counted.worked), busy: time(counted.busy), spun: time(counted.spun) }
    }
}

impl Session {
    /// Greets the peer at the other end of `control` and meets it over the message path. `peer_address` is the peer's as this
    /// end reaches it.
    pub fn open(
        mut control: Connection,
        local: &Prepare,
        remote: &Prepare,
        peer_address: Option<IpAddr>,
    ) -> Result<Session> {
        greet(&mut control)?;
        let offer = match ask(&mut control, &Request::Prepare(remote.clone()))? {
            Reply::Ready(offer) => offer,
            reply => return Err(unexpected(&control, &reply)),
        };
        let address = peer_address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let calling = Calling::new(local, address)?;
        control.send(&Request::Meet { from: calling.from() }, ANSWER)?;
        let mut path = calling.connect(local, address, &offer)?;
        match answer(&mut control)? {
            Reply::Met => {}
            reply => return Err(unexpected(&control, &reply)),
        }
        path.idle()?;
        let meters = Meters::open("local", &path)?;
        Ok(Session { control, path, meters, pools: Pools::default(), polite: local.polite, number: 0 })
    }

    /// Runs `jobs` one after the other at both ends.
    pub fn run(&mut self, jobs: &[Job]) -> Result<Block> {
        let outcome = self.attempt(jobs);
        match outcome {
            // The peer's own fault says more than its absence.
            Err(fault) => Err(self.last_words().unwrap_or(fault)),
            block => block,
        }
    }

    fn attempt(&mut self, jobs: &[Job]) -> Result<Block> {
        let Session { control, path, pools, meters, polite, number } = self;
        let largest = jobs.iter().map(|job| job.size).max().unwrap_or(0);
        pools.provide(jobs[0].pattern, largest, Role::Initiator);
        control.send(&Request::Run { jobs: jobs.to_vec() }, ANSWER)?;
        path.resume()?;
        match answer(control)? {
            Reply::Started => {}
            reply => return Err(unexpected(control, &reply)),
        }
        let until = Instant::now() + BLOCK;
        let (counted, ticks, begun) = (path.dilated()?, ticks(), Instant::now());
        meters.begin()?;
        let mut local = Vec::with_capacity(jobs.len());
        for (index, job) in jobs.iter().enumerate() {
            *number += 1;
            let last = index + 1 == jobs.len();
            let mut watch = || {
                control.check()?;
                // A line before the last job has ended can only be a failure.
                if control.has_line() && !last {
                    let reply = answer(control)?;
                    return Err(unexpected(control, &reply));
                }
                if Instant::now() > until { Err(out_of_time(job, BLOCK)) } else { Ok(()) }
            };
            local.push(path.perform(job, Role::Initiator, *number, pools, *polite, &mut watch, &mut || Ok(()))?);
        }
        let threads = meters.end()?;
        let (elapsed, ticks) = (begun.elapsed(), linux::clock::ticks() - ticks);
        let counted = counted.zip(path.dilated()?).map(|(from, to)| to.since(&from));
        let stretched = counted.map(|counted| Stretched::of(counted, ticks, elapsed));
        path.idle()?;
        let remote = match answer(control)? {
            Reply::Finished(finished) => *finished,
            reply => return Err(unexpected(control, &reply)),
        };
        if remote.outcomes.len() != jobs.len() || !remote.outcomes.iter().zip(jobs).all(|(o, job)| plausible(o, job)) {
            return Err(Fault::new(
                control.peer(),
                "its account of the block does not fit what was asked",
                "use the same version of plimsoll on both ends",
            ));
        }
        let mut notes = path.notes();
        notes.extend(remote.notes.iter().map(|note| format!("peer: {note}")));
        if stretched.is_some() && !linux::clock::is_counted() {
            notes.push(linux::clock::NOT_COUNTED.into());
        }
        Ok(Block { local, remote, threads, notes, stretched })
    }

    /// The failure that the peer reported before it left, if it did.
    fn last_words(&mut self) -> Option<Fault> {
        let until = Instant::now() + Duration::from_millis(300);
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            match self.control.receive::<Reply>(left) {
                Ok(reply @ Reply::Failed { .. }) => return Some(unexpected(&self.control, &reply)),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
        None
    }

    /// Ends the session in good order, and waits until the peer has closed its end: another session may need the same
    /// interface.
    pub fn close(mut self) -> Result<()> {
        self.control.send(&Request::Bye, ANSWER)?;
        let _ = self.control.receive::<Reply>(CLOSE_WITHIN);
        Ok(())
    }

    pub fn peer(&self) -> &str {
        self.control.peer()
    }
}
