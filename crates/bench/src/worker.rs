//! The local application thread of one session: pinned to its core, idle between blocks.

use std::net::IpAddr;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use linux::affinity;
use machine::{CoreId, Fault, FaultKind, Result};

use crate::control::Connection;
use crate::peer_process::PeerProcess;
use crate::session::{Block, Session};
use exchange::endpoint::Job;
use exchange::path::Prepare;

/// The peer of a session.
pub enum Peer {
    /// A child process, started from this command.
    Child(Box<Command>),
    /// A `plimsoll serve`, already connected.
    Served(Connection),
}

/// Everything that a session's thread needs to open it.
pub struct Plan {
    pub core: CoreId,
    pub peer: Peer,
    pub local: Prepare,
    pub remote: Prepare,
    /// Address of the peer's message path as this end reaches it.
    pub peer_address: Option<IpAddr>,
}

/// The reason why a session could not be opened: at this end alone, or between the ends.
enum Opening {
    Here(Fault),
    Together(Fault),
}

/// A session and the thread that drives it.
pub struct Worker {
    ask: Option<Sender<Vec<Job>>>,
    answer: Receiver<Result<Block>>,
    thread: Option<JoinHandle<()>>,
    peer: Option<PeerProcess>,
    peer_name: String,
}

impl Worker {
    pub fn start(plan: Plan) -> Result<Worker> {
        let Plan { core, peer, local, remote, peer_address } = plan;
        let (process, control) = match peer {
            Peer::Child(command) => PeerProcess::start(*command).map(|(process, control)| (Some(process), control))?,
            Peer::Served(control) => (None, control),
        };
        let peer_name = control.peer().to_owned();
        let (ask, asked) = channel::<Vec<Job>>();
        let (tell, answer) = channel::<Result<Block>>();
        let (opened, open) = channel::<Result<(), Opening>>();
        let thread = Builder::new()
            .name("app".to_owned())
            .spawn(move || {
                let opening = affinity::pin(core).map_err(Opening::Here).and_then(|pinned| {
                    let session = Session::open(control, &local, &remote, peer_address);
                    session.map(|session| (pinned, session)).map_err(Opening::Together)
                });
                let (_pinned, mut session) = match opening {
                    Ok(both) => both,
                    Err(why) => {
                        let _ = opened.send(Err(why));
                        return;
                    }
                };
                let _ = opened.send(Ok(()));
                while let Ok(jobs) = asked.recv() {
                    let block = session.run(&jobs);
                    let failed = block.is_err();
                    if tell.send(block).is_err() || failed {
                        return;
                    }
                }
                // Ends the session in good order; a peer that has gone needs no notice.
                let _ = session.close();
            })
            .map_err(|e| Fault::because("application thread", e, "raise the limit on threads (ulimit -u)"))?;
        let mut worker = Worker { ask: Some(ask), answer, thread: Some(thread), peer: process, peer_name };
        match open.recv() {
            Ok(Ok(())) => Ok(worker),
            Ok(Err(Opening::Here(fault))) => Err(fault),
            Ok(Err(Opening::Together(fault))) => Err(worker.explain(fault)),
            Err(_) => Err(worker.explain(broken())),
        }
    }

    pub fn run(&mut self, jobs: &[Job]) -> Result<Block> {
        let asked = self.ask.as_ref().map(|ask| ask.send(jobs.to_vec()));
        let block = match asked {
            Some(Ok(())) => self.answer.recv().unwrap_or_else(|_| Err(broken())),
            _ => Err(broken()),
        };
        block.map_err(|fault| self.explain(fault))
    }

    /// Adds how the peer's process ended, if it did.
    fn explain(&mut self, fault: Fault) -> Fault {
        let Some(ended) = self.peer.as_mut().and_then(|peer| peer.ended(Duration::from_millis(100))) else {
            return fault;
        };
        if fault.subject().starts_with(&self.peer_name) && fault.kind() != FaultKind::Closed {
            return fault; // its own last words
        }
        Fault::new(
            self.peer_name.clone(),
            format!("{ended} while the session was open ({}: {})", fault.subject(), fault.cause()),
            "see what ended it (a signal, the memory limit), then run again: finished blocks are not affected",
        )
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.ask = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn broken() -> Fault {
    Fault::new("application thread", "it ended before its block did", "report it with the command line that showed it")
}
