//! The engine's process: takes ranks, turns their engines on one core, ends with the last of them.

use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use linux::identity::Identity;
use linux::rendezvous::Meeting;
use linux::{affinity, contention, shortage};
use machine::bounds::NODE_RANKS;
use machine::topology::Topology;
use machine::{CoreId, Dilation, Fault, Result, Site};
use ports::shm::{Memory, Role};

use super::greeting::{self, Answer, VERSION, Wishes};
use super::round::{Round, occupy};
use super::seat::Seat;
use super::{meeting_name, rings};
use crate::driver::Driver;
use crate::join::BY_NAME;
use crate::paths::Paths;
use crate::settings::Settings;
use crate::settle::Placed;

/// How long the process waits for a first rank, and for another after the last has gone.
const LINGER: Duration = Duration::from_secs(3);
/// Idle turns between two looks for ranks.
const TURNS_PER_LOOK: u64 = 1024;

/// Serves ranks of this user on `core` until the last has gone. Prints nothing; what ranks should know they are told.
///
/// # Errors
/// The core does not exist or may not be used, or another engine of this user serves it already.
pub fn serve(core: CoreId) -> Result<()> {
    // Whoever started this process may be a rank that is bound elsewhere.
    affinity::unbind()?;
    affinity::check(core)?;
    // It serves many ranks, and nothing in it calls `select`.
    shortage::raise_descriptor_limit();
    let meeting = Meeting::open(&meeting_name(core))?;
    let (seats, arrivals) = channel();
    let joining = Arc::new(AtomicUsize::new(0));
    let doorman = Doorman { meeting, core, ranks: Arc::default(), seats, joining: joining.clone() };
    let doorman = thread::Builder::new().name("doorman".into()).spawn(move || doorman.run());
    // Not joined: it waits for callers, and ends with the process.
    drop(doorman.map_err(|e| Fault::because("thread", e, "raise the limit on processes (ulimit -u)"))?);
    let _pinned = occupy(core)?;
    turn(&arrivals, &joining);
    Ok(())
}

struct Arrival {
    seat: Seat<Paths>,
    yields: bool,
    ranks: Arc<Mutex<Vec<Rank>>>,
}

/// A rank that is in, and the cores that it may run on.
struct Rank {
    process: u32,
    cores: Vec<u32>,
}

fn turn(arrivals: &Receiver<Arrival>, joining: &AtomicUsize) {
    let mut round = Round::new(Vec::new(), false);
    let mut empty_since = Some(Instant::now());
    let mut everybody: Option<Arc<Mutex<Vec<Rank>>>> = None;
    loop {
        let busy = round.turn(|rank| {
            let process = rank.as_raw_nonzero().get() as u32;
            if let Some(ranks) = &everybody
                && let Ok(mut ranks) = ranks.lock()
                && let Some(place) = ranks.iter().position(|rank| rank.process == process)
            {
                ranks.swap_remove(place);
            }
        });
        let empty = round.seats.is_empty();
        if round.turns.is_multiple_of(TURNS_PER_LOOK) || empty || !busy && joining.load(Ordering::Relaxed) > 0 {
            while let Ok(arrival) = arrivals.try_recv() {
                round.yields |= arrival.yields;
                everybody = Some(arrival.ranks);
                round.seats.push(arrival.seat);
            }
        }
        if round.seats.is_empty() {
            round.yields = false;
            let since = *empty_since.get_or_insert_with(Instant::now);
            if since.elapsed() > LINGER && joining.load(Ordering::Relaxed) == 0 {
                return;
            }
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        empty_since = None;
        round.give_way();
    }
}

/// Meets ranks, on a thread of its own: what blocks or takes long must not hold up those who are in.
struct Doorman {
    meeting: Meeting,
    core: CoreId,
    ranks: Arc<Mutex<Vec<Rank>>>,
    seats: Sender<Arrival>,
    joining: Arc<AtomicUsize>,
}

impl Doorman {
    fn run(self) {
        loop {
            let stream = self.meeting.accept();
            self.joining.fetch_add(1, Ordering::Relaxed);
            if let Err(fault) = self.meet(&stream) {
                let fault = match shortage::may_pass(&fault) {
                    true => Fault::new(
                        format!("node's engine on {}", self.core),
                        format!("{}: {}", fault.subject(), fault.cause()),
                        "raise its limits (ulimit -n, memory), or start fewer ranks",
                    ),
                    false => fault,
                };
                let refusal = Answer::Refused {
                    subject: fault.subject().to_string(),
                    cause: fault.cause().to_string(),
                    next: fault.next().to_string(),
                };
                let _ = greeting::say(&stream, &refusal);
            }
            self.joining.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn meet(&self, stream: &UnixStream) -> Result<()> {
        let wishes: Wishes = greeting::hear(stream)?;
        if wishes.version != VERSION {
            return Err(Fault::new(
                "node's engine",
                format!("the rank speaks version {}, the engine {VERSION}", wishes.version),
                "end the old engine, or wait 3 s after the last job",
            ));
        }
        let caller = Identity::of_peer(stream)
            .map_err(|e| Fault::because("rank", e, "permit pidfd_open; raise the limit on open files"))?
            .ok_or_else(|| {
                Fault::new(
                    "placement core:N",
                    "this rank is in a PID namespace that the engine's process does not see (another container), so that \
                     its memory cannot be read",
                    "start engine and ranks in one PID namespace, or run at app",
                )
            })?;
        let mut word = [0; 8];
        let read = caller.living().and_then(|rank| linux::remote::read(rank, wishes.word_at, &mut word));
        if read.is_err() || u64::from_ne_bytes(word) != wishes.word {
            return Err(Fault::new(
                "placement core:N",
                "the engine's process may not read this rank's memory (process_vm_readv)",
                "permit it (seccomp filter, container option CAP_SYS_PTRACE), or run at app",
            ));
        }
        let rank = caller.number().as_raw_nonzero().get() as u32;
        let settings = Settings::read(|key| match key {
            "NETWORK" => Some(wishes.network.clone()),
            "ADDRESS" => wishes.address.clone(),
            "SHM" => Some(if wishes.shm { "yes" } else { "no" }.into()),
            "WIRE" => wishes.wire.clone(),
            _ => None,
        })?;
        let memory = Memory { pid: rank, address: wishes.word_at, word: wishes.word };
        let paths = Paths::on_behalf(&settings, memory)?;
        let placed = self.settle(rank, &wishes.cores)?;
        let seated = self.seat(stream, caller, (paths, wishes.dilation), placed);
        if seated.is_err()
            && let Ok(mut ranks) = self.ranks.lock()
            && let Some(place) = ranks.iter().position(|known| known.process == rank)
        {
            ranks.swap_remove(place);
        }
        seated
    }

    /// Welcomes a rank and hands it to the loop.
    fn seat(
        &self,
        stream: &UnixStream,
        rank: Arc<Identity>,
        (paths, dilation): (Paths, Dilation),
        placed: Placed,
    ) -> Result<()> {
        let mut rings = rings();
        // What fails after the welcome cannot be told.
        rings.prepare()?;
        let answer = Answer::Welcome {
            name: paths.name().as_bytes().to_vec(),
            process: std::process::id(),
            yields: placed.yields,
            notes: placed.notes.clone(),
        };
        greeting::say(stream, &answer)?;
        rings.connect(stream, Role::Create)?;
        let yields = placed.yields;
        let mut driver = Driver::admitting(paths, Paths::admit);
        driver.dilate(dilation);
        let seat = Seat::new(driver, rings, rank, placed, Some(BY_NAME));
        let gone = |_| Fault::new("node's engine", "it is ending", "start the job again");
        self.seats.send(Arrival { seat, yields, ranks: self.ranks.clone() }).map_err(gone)
    }

    /// Who else needs the engine's core: ranks that outnumber the other cores, or who are pinned to it.
    fn settle(&self, rank: u32, cores: &[u32]) -> Result<Placed> {
        let site = Site::Core(self.core);
        let mut placed = Placed { asked: site.clone(), ran: site, yields: false, notes: Vec::new() };
        let pinned = contention::pinned_to(self.core)?;
        let threads = Topology::live()?.cpu(self.core).map(|cpu| cpu.threads.clone()).unwrap_or_default();
        let mut ranks = self.ranks.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if ranks.len() >= NODE_RANKS.total.count() {
            return Err(Fault::new(
                format!("node's engine on {}", self.core),
                format!("it serves {} ranks already", ranks.len()),
                "start fewer ranks, or spread them over engines on several cores",
            ));
        }
        ranks.push(Rank { process: rank, cores: cores.to_vec() });
        let mut why = Vec::new();
        if cores == [self.core.0] {
            why.push("this rank may run nowhere else".to_string());
        }
        let others: BTreeSet<u32> =
            ranks.iter().flat_map(|rank| &rank.cores).copied().filter(|&core| core != self.core.0).collect();
        if ranks.len() > others.len() {
            why.push(format!("{} ranks have {} other cores", ranks.len(), others.len()));
        }
        for occupant in pinned {
            if !ranks.iter().any(|rank| rank.process == occupant.process) {
                why.push(format!("a thread of {} is pinned to it", occupant.name));
            }
        }
        if cores != [self.core.0] && cores.iter().all(|core| threads.contains(CoreId(*core))) {
            placed.notes.push(format!(
                "this rank has the other thread of {}: it and the engine slow each other; leave the engine both threads",
                self.core
            ));
        }
        if !why.is_empty() {
            placed.yields = true;
            placed.notes.push(format!(
                "the engine shares {} ({}): it yields and sleeps when idle, which costs latency; leave it a core of its own or \
                 run at app",
                self.core,
                why.join("; ")
            ));
        }
        Ok(placed)
    }
}
