//! The engine's process: takes ranks, runs their engines on one core, ends with the last of them.

use std::collections::{BTreeSet, VecDeque};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use linux::identity::Identity;
use linux::rendezvous::Meeting;
use linux::{affinity, contention, shortage};
use machine::bounds::{NODE_CALLERS, NODE_RANKS};
use machine::topology::Topology;
use machine::{CoreId, Dilation, Fault, Result, Site};
use ports::shm::{Memory, ShmPort};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;

use super::greeting::{self, Answer, JoinRequest, Line, VERSION};
use super::round::{Round, occupy};
use super::seat::Seat;
use super::{meeting_name, rings};
use crate::dilated;
use crate::join::BY_NAME;
use crate::paths::Paths;
use crate::settings::Settings;
use crate::settle::Placed;

/// Time to wait for a first rank, and for another after the last has gone.
const LINGER: Duration = Duration::from_secs(3);
/// Idle polls between two looks for ranks.
const TURNS_PER_LOOK: u64 = 1024;
/// Time from a caller's connection to its seat, however often it says something.
const GREETED_WITHIN: Duration = Duration::from_secs(5);
/// Most callers without a seat.
const MOST_CALLERS: usize = NODE_CALLERS.total.count();
/// Most callers taken in one look, so that a look ends however many call.
const MOST_ADMITTED: usize = 64;
/// Interval of looks for the answers of welcomed ranks.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);
/// Pause after the kernel has refused to accept a caller.
const PAUSE: Duration = Duration::from_millis(5);

/// Serves ranks of this user on `core` until the last has gone. Prints nothing; ranks are told what they should know.
///
/// # Errors
/// The core does not exist or may not be used, or another engine of this user serves it already.
pub fn serve(core: CoreId) -> Result<()> {
    // The starter of this process may be a rank that is bound elsewhere.
    affinity::unbind()?;
    affinity::check(core)?;
    // The process serves many ranks, and nothing in it calls `select`.
    shortage::raise_descriptor_limit();
    let meeting = Meeting::open(&meeting_name(core))?;
    let (seats, arrivals) = channel();
    let doorman = Acceptor::new(meeting, core, seats);
    let joining = doorman.joining.clone();
    let doorman = thread::Builder::new().name("doorman".into()).spawn(move || doorman.run());
    // The thread is not joined: it waits for callers, and ends with the process.
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

/// A seated rank, and the cores that it may run on.
struct Rank {
    process: u32,
    cores: Vec<u32>,
}

fn forget(ranks: &Mutex<Vec<Rank>>, rank: Pid) {
    let process = rank.as_raw_nonzero().get() as u32;
    if let Ok(mut ranks) = ranks.lock()
        && let Some(place) = ranks.iter().position(|rank| rank.process == process)
    {
        ranks.swap_remove(place);
    }
}

fn turn(arrivals: &Receiver<Arrival>, joining: &AtomicUsize) {
    let mut round = Round::new(Vec::new(), false);
    let mut empty_since = Some(Instant::now());
    let mut everybody: Option<Arc<Mutex<Vec<Rank>>>> = None;
    loop {
        let busy = round.turn(|rank| {
            if let Some(ranks) = &everybody {
                forget(ranks, rank);
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

/// Takes new ranks on a thread of its own: slow steps must not delay seated ranks. It polls all callers at once, so that a
/// slow one does not delay the others.
struct Acceptor {
    meeting: Meeting,
    core: CoreId,
    ranks: Arc<Mutex<Vec<Rank>>>,
    seats: Sender<Arrival>,
    /// Number of callers, for the loop.
    joining: Arc<AtomicUsize>,
    /// Callers, the oldest first.
    callers: VecDeque<Caller>,
}

/// A caller without a seat.
struct Caller {
    stream: UnixStream,
    /// End of the time that it has for all that it says together.
    until: Instant,
    stage: Stage,
}

enum Stage {
    /// It is sending its wishes.
    Speaks(Line),
    /// It has sent its wishes, and has waited for the engine since then.
    Waits(Box<JoinRequest>, Instant),
    /// It was welcomed, and has to take its end of the rings.
    Welcomed(Box<Guest>),
}

/// A rank before it is seated.
struct Guest {
    rings: ShmPort,
    paths: Paths,
    dilation: Dilation,
    rank: Arc<Identity>,
    placed: Placed,
}

impl Acceptor {
    fn new(meeting: Meeting, core: CoreId, seats: Sender<Arrival>) -> Acceptor {
        Acceptor { meeting, core, ranks: Arc::default(), seats, joining: Arc::default(), callers: VecDeque::new() }
    }

    fn run(mut self) {
        loop {
            self.wait();
            self.look();
        }
    }

    /// Waits until there may be something to do.
    fn wait(&self) {
        let now = Instant::now();
        let rest = |caller: &Caller| match caller.stage {
            Stage::Speaks(_) => caller.until.saturating_duration_since(now),
            Stage::Waits(..) => Duration::ZERO,
            // A partial answer would end every poll at once.
            Stage::Welcomed(_) => BETWEEN_LOOKS,
        };
        let rest = self.callers.iter().map(rest).min().and_then(|rest| Timespec::try_from(rest).ok());
        let speak = self.callers.iter().filter(|caller| matches!(caller.stage, Stage::Speaks(_)));
        let mut polled = vec![PollFd::new(&self.meeting, PollFlags::IN)];
        polled.extend(speak.map(|caller| PollFd::new(&caller.stream, PollFlags::IN)));
        let _ = poll(&mut polled, rest.as_ref());
    }

    /// Does what can be done now, without waiting.
    fn look(&mut self) {
        self.admit();
        self.hear_all();
        self.welcome_next();
        self.joining.store(self.callers.len(), Ordering::Relaxed);
    }

    /// Accepts callers.
    fn admit(&mut self) {
        for _ in 0..MOST_ADMITTED {
            let _ = shortage::keep_reserve();
            match self.meeting.try_accept() {
                Ok(Some(stream)) => {
                    if stream.set_nonblocking(true).is_err() {
                        continue;
                    }
                    let (until, stage) = (Instant::now() + GREETED_WITHIN, Stage::Speaks(Line::default()));
                    self.callers.push_back(Caller { stream, until, stage });
                    if self.callers.len() > MOST_CALLERS {
                        self.make_room();
                    }
                }
                Ok(None) => break,
                // No descriptor is left. The caller stays, and the next wait ends at once.
                Err(_) => {
                    if !self.make_room() {
                        thread::sleep(PAUSE);
                    }
                    break;
                }
            }
        }
        self.joining.store(self.callers.len(), Ordering::Relaxed);
    }

    /// Turns away the oldest caller without complete wishes; false where there is none.
    fn make_room(&mut self) -> bool {
        let silent = self.callers.iter().position(|caller| matches!(caller.stage, Stage::Speaks(_)));
        let Some(caller) = silent.and_then(|at| self.callers.remove(at)) else { return false };
        let cause = "it has too many callers that have not said what they want";
        let next = "start fewer processes at once, or raise its limits (ulimit -n)";
        self.refuse(&caller.stream, &Fault::new(self.subject(), cause, next));
        true
    }

    /// Reads what callers have sent, and turns away those whose time is over.
    fn hear_all(&mut self) {
        let now = Instant::now();
        for _ in 0..self.callers.len() {
            let Some(Caller { stream, until, stage }) = self.callers.pop_front() else { return };
            match self.hear(&stream, stage) {
                Ok(Some(stage)) if now < until || matches!(stage, Stage::Waits(..)) => {
                    self.callers.push_back(Caller { stream, until, stage });
                }
                Ok(Some(stage)) => {
                    if let Stage::Welcomed(guest) = stage {
                        forget(&self.ranks, guest.rank.number());
                    }
                    let cause = format!("the rank has not greeted it within {} s", GREETED_WITHIN.as_secs());
                    self.refuse(&stream, &Fault::new(self.subject(), cause, "see that it runs and is not stopped"));
                }
                Ok(None) => {}
                Err(fault) => self.refuse(&stream, &fault),
            }
        }
    }

    /// Reads what a caller has sent; `None` once it has a seat.
    fn hear(&self, stream: &UnixStream, stage: Stage) -> Result<Option<Stage>> {
        Ok(match stage {
            Stage::Speaks(mut line) => Some(match line.hear(stream)? {
                Some(wishes) => Stage::Waits(Box::new(wishes), Instant::now()),
                None => Stage::Speaks(line),
            }),
            Stage::Waits(..) => Some(stage),
            Stage::Welcomed(mut guest) => match guest.rings.conclude(stream) {
                Ok(None) => Some(Stage::Welcomed(guest)),
                Ok(Some(_)) => {
                    self.seat(*guest)?;
                    None
                }
                Err(fault) => {
                    forget(&self.ranks, guest.rank.number());
                    return Err(fault);
                }
            },
        })
    }

    /// Welcomes one caller with complete wishes, which takes long: before the next, all others are read again.
    fn welcome_next(&mut self) {
        let waits = self.callers.iter().position(|caller| matches!(caller.stage, Stage::Waits(..)));
        let Some(at) = waits else { return };
        let Some(Caller { stream, until, stage: Stage::Waits(wishes, since) }) = self.callers.remove(at) else {
            return;
        };
        match self.meet(&stream, &wishes) {
            Ok(guest) => {
                // Waiting for others does not count against its own time.
                let until = until + since.elapsed();
                self.callers.insert(at, Caller { stream, until, stage: Stage::Welcomed(Box::new(guest)) });
            }
            Err(fault) => self.refuse(&stream, &fault),
        }
    }

    fn subject(&self) -> String {
        format!("node's engine on {}", self.core)
    }

    fn refuse(&self, stream: &UnixStream, fault: &Fault) {
        let (mut subject, mut cause, mut next) =
            (fault.subject().to_string(), fault.cause().to_string(), fault.next().to_string());
        if shortage::may_pass(fault) {
            cause = format!("{subject}: {cause}");
            subject = self.subject();
            next = "raise its limits (ulimit -n, memory), or start fewer ranks".into();
        }
        let _ = greeting::say(stream, &Answer::Refused { subject, cause, next });
    }

    fn meet(&self, stream: &UnixStream, wishes: &JoinRequest) -> Result<Guest> {
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
        match self.welcome(stream, &paths, &placed) {
            Ok(rings) => Ok(Guest { rings, paths, dilation: wishes.dilation, rank: caller, placed }),
            Err(fault) => {
                forget(&self.ranks, caller.number());
                Err(fault)
            }
        }
    }

    /// Tells a rank that it is taken, and passes its end of the rings.
    fn welcome(&self, stream: &UnixStream, paths: &Paths, placed: &Placed) -> Result<ShmPort> {
        let mut rings = rings();
        // A failure after the welcome could not be told.
        rings.prepare()?;
        let answer = Answer::Welcome {
            name: paths.name().as_bytes().to_vec(),
            process: std::process::id(),
            yields: placed.yields,
            notes: placed.notes.clone(),
        };
        greeting::say(stream, &answer)?;
        rings.offer(stream)?;
        Ok(rings)
    }

    /// Hands a rank to the loop.
    fn seat(&self, Guest { rings, paths, dilation, rank, placed }: Guest) -> Result<()> {
        let yields = placed.yields;
        let driver = dilated::driver(paths, dilation);
        let seat = Seat::new(driver, rings, rank, placed, Some(BY_NAME));
        let gone = |_| Fault::new("node's engine", "it is ending", "start the job again");
        self.seats.send(Arrival { seat, yields, ranks: self.ranks.clone() }).map_err(gone)
    }

    /// Settles who else needs the engine's core: ranks that outnumber the other cores, or that are pinned to it.
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

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};

    use linux::rendezvous;
    use ports::shm::Role;
    use rustix::process::{Resource, getrlimit};

    use super::*;

    /// A doorman with a name of its own, and the channel of the ranks that it has taken.
    fn doorman(of: &str) -> (Acceptor, Receiver<Arrival>, String) {
        let name = format!("plimsoll-test/{of}/{}", std::process::id());
        let (seats, arrivals) = channel();
        (Acceptor::new(Meeting::open(&name).unwrap(), CoreId(0), seats), arrivals, name)
    }

    /// Greets as a rank does.
    fn join(name: &str) {
        let stream = rendezvous::call(name).unwrap();
        let (settings, word) = (Settings::default(), 77);
        let wishes = JoinRequest {
            version: VERSION,
            network: settings.network.to_string(),
            address: Some("127.0.0.1".into()),
            shm: true,
            wire: None,
            dilation: Dilation::NONE,
            word_at: &raw const word as u64,
            word,
            cores: vec![0],
        };
        greeting::say(&stream, &wishes).unwrap();
        let answer = greeting::hear(&stream).unwrap();
        assert!(matches!(answer, Answer::Welcome { .. }), "{answer:?}");
        rings().connect(&stream, Role::Join).unwrap();
    }

    #[test]
    fn a_caller_gets_one_deadline_for_all_its_bytes_and_holds_up_nobody() {
        let (mut doorman, arrivals, name) = doorman("slow");
        let mut slow = rendezvous::call(&name).unwrap();
        doorman.look();
        let until = Instant::now() + Duration::from_secs(600);
        doorman.callers[0].until = until;
        thread::scope(|scope| {
            let rank = scope.spawn(|| join(&name));
            let mut said = 0;
            loop {
                if said < 1000 {
                    slow.write_all(b" ").unwrap();
                    said += 1;
                }
                doorman.wait();
                doorman.look();
                if arrivals.try_recv().is_ok() {
                    break;
                }
                assert!(!rank.is_finished(), "it has no seat");
            }
        });
        assert_eq!((doorman.callers.len(), doorman.callers[0].until), (1, until), "a byte wins it no time");
        doorman.callers[0].until = Instant::now();
        slow.write_all(b" ").unwrap();
        doorman.look();
        assert!(doorman.callers.is_empty());
        let mut told = String::new();
        slow.read_to_string(&mut told).unwrap();
        assert!(told.contains("within 5 s"), "{told}");
    }

    #[test]
    fn of_callers_that_say_nothing_the_oldest_makes_room() {
        shortage::raise_descriptor_limit();
        if getrlimit(Resource::Nofile).current.is_some_and(|most| most < 3 * MOST_CALLERS as u64) {
            return skip::test("a process may not have the descriptors of so many callers");
        }
        let (mut doorman, _arrivals, name) = doorman("silent");
        let mut silent = Vec::new();
        for _ in 0..=MOST_CALLERS {
            silent.push(rendezvous::call(&name).unwrap());
            doorman.admit();
        }
        assert_eq!(doorman.callers.len(), MOST_CALLERS);
        let mut told = String::new();
        silent[0].read_to_string(&mut told).unwrap();
        assert!(told.contains("too many callers"), "{told}");
        silent[1].set_nonblocking(true).unwrap();
        assert_eq!(silent[1].read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}
