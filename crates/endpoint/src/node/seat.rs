//! One rank at its engine's core: its engine, its paths to peers, and its rings.

use std::collections::VecDeque;
use std::sync::Arc;

use engine::{Direction, Envelope, Label, Request, Status};
use linux::identity::Identity;
use machine::bounds::{NODE_PEERS, NODE_PENDING, NODE_REQUESTS, NODE_UNTOLD};
use machine::{Fault, Notice, PeerIndex, Port, Result, Sent};
use ports::shm::ShmPort;
use rustix::process::Pid;

use super::memory::{Rank, RankMemory};
use super::protocol::{Command, Event, OTHER, Place, Record, fault_parts};
use crate::dilated::DilatedPort;
use crate::driver::{Driver, TURNS_PER_NOTICE};
use crate::name::Name;
use crate::report::Report;
use crate::settle::Placed;

/// Most commands taken before the engine is polled.
const COMMANDS: usize = 32;
/// Most sends that have not left while the rank has its buffer back; beyond it the rank waits.
const MOST_PENDING: usize = NODE_PENDING.each.count();
/// Most sends and receives in progress; beyond it the rank is given up.
const MOST_REQUESTS: usize = NODE_REQUESTS.each.count();
/// Most bytes of events that the rank has not taken; beyond it its peers wait.
const MOST_UNTOLD: usize = NODE_UNTOLD.each.bytes().0 as usize;
const MOST_PEERS: usize = NODE_PEERS.each.count();

/// Context of sends whose completion nobody waits for.
const UNTOLD: u64 = u64::MAX;

/// Calls of a port that finds its rank's peers by name.
pub(crate) struct ByName<P> {
    pub insert: fn(&mut P, &Name) -> PeerIndex,
    pub next_lost: fn(&mut P) -> Option<(PeerIndex, Fault)>,
    pub describe: fn(&P, &mut Report),
}

pub(super) struct Seat<P> {
    /// Declared before the rings, so dropped first: the rings' end tells the rank that its memory is touched no more.
    driver: Driver<DilatedPort<P>, RankMemory>,
    by_name: Option<ByName<P>>,
    rings: ShmPort,
    rank: Arc<Rank>,
    placed: Placed,
    /// The engine's request by slot of the ticket, for cancelling.
    requests: Vec<Option<Request>>,
    untold: PendingEvents,
    pending: usize,
    in_progress: usize,
    turns: u32,
}

/// Events that found the ring full, and their size.
#[derive(Default)]
struct PendingEvents {
    events: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl PendingEvents {
    fn size(event: &[u8]) -> usize {
        event.len() + size_of::<Vec<u8>>()
    }

    fn push(&mut self, event: &Event) {
        let mut bytes = vec![0; event.length()];
        event.write(&mut bytes);
        self.bytes += PendingEvents::size(&bytes);
        self.events.push_back(bytes);
    }

    /// Removes the first event.
    fn pop(&mut self) {
        self.bytes -= self.events.pop_front().map_or(0, |event| PendingEvents::size(&event));
    }
}

/// The reason to give a seat up.
pub(super) enum End {
    RankGone,
    Failed(Fault),
}

impl From<Fault> for End {
    fn from(fault: Fault) -> Self {
        End::Failed(fault)
    }
}

impl<P: Port> Seat<P> {
    pub fn new(
        driver: Driver<DilatedPort<P>, RankMemory>,
        rings: ShmPort,
        rank: Arc<Identity>,
        placed: Placed,
        by_name: Option<ByName<P>>,
    ) -> Self {
        let (requests, untold, rank) = (Vec::new(), PendingEvents::default(), Rank::new(rank));
        Seat { driver, by_name, rings, rank, placed, requests, untold, pending: 0, in_progress: 0, turns: 0 }
    }

    pub fn process(&self) -> Pid {
        self.rank.number()
    }

    /// Does what can be done now; whether there was anything. `turns` is the loop's count, for reports. Work at the rank's
    /// rings is protocol work like the rest.
    #[inline]
    pub fn turn(&mut self, turns: u64) -> Result<bool, End> {
        let entered = self.driver.port_mut().enter();
        let busy = self.turn_now(turns);
        self.driver.port_mut().leave(entered, matches!(busy, Ok(true)));
        busy
    }

    #[inline]
    fn turn_now(&mut self, turns: u64) -> Result<bool, End> {
        let mut busy = false;
        self.rank.turn();
        if !self.untold.events.is_empty() {
            self.tell_untold()?;
        }
        if self.pending < MOST_PENDING && self.untold.events.is_empty() {
            busy |= self.obey_all(turns)?;
        }
        if self.untold.bytes < MOST_UNTOLD {
            busy |= self.driver.turn()?;
        }
        while self.untold.bytes < MOST_UNTOLD
            && let Some(done) = self.driver.next_completion()
        {
            busy = true;
            self.completed(done)?;
        }
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(TURNS_PER_NOTICE) {
            let mut gone = false;
            self.rings.notices(|notice| gone |= matches!(notice, Notice::Dead(_) | Notice::Closed(_)))?;
            if gone {
                return Err(End::RankGone);
            }
        }
        Ok(busy)
    }

    fn obey_all(&mut self, turns: u64) -> Result<bool, End> {
        let mut outcome = Ok(());
        // The rings are borrowed while they deliver; the rest of the seat is not.
        let Seat { driver, by_name, rings, rank, placed, requests, untold: answers, pending, in_progress, .. } = self;
        let by_name = by_name.as_ref();
        let mut work = Work { driver, by_name, rank, placed, requests, answers, pending, in_progress, turns };
        let taken = rings.receive(COMMANDS, |_, bytes| {
            if outcome.is_ok() {
                outcome = work.obey(bytes);
            }
        })?;
        outcome?;
        if !self.untold.events.is_empty() {
            self.tell_untold()?;
        }
        Ok(taken > 0)
    }

    #[inline]
    fn completed(&mut self, done: engine::Completion<RankMemory>) -> Result<(), End> {
        let engine::Completion { context, direction, envelope, mut status, buffer, .. } = done;
        self.in_progress -= 1;
        if direction == Direction::Send && matches!(buffer, RankMemory::Here(_)) {
            self.pending -= 1;
        }
        if status == Status::PeerDead {
            self.tell_lost()?;
        }
        if context == UNTOLD {
            return Ok(());
        }
        if buffer.has_failed() && status == Status::Done {
            // The rank gave an address that does not hold the message; the nearest status is 'truncated'.
            status = Status::Truncated;
        }
        let event = Event::Completed { ticket: context, direction, envelope, status, payload: buffer.payload() };
        self.tell(&event)
    }

    #[inline]
    fn tell(&mut self, event: &Event) -> Result<(), End> {
        if self.untold.events.is_empty() {
            let Seat { rings, driver, .. } = self;
            let write = |into: &mut [u8]| {
                event.write(into);
                driver.port_mut().pay();
            };
            if rings.send(OTHER, event.length(), write)? == Sent::Taken {
                return Ok(());
            }
        }
        self.untold.push(event);
        Ok(())
    }

    fn tell_untold(&mut self) -> Result<(), End> {
        while let Some(bytes) = self.untold.events.front() {
            match self.rings.send(OTHER, bytes.len(), |into| into.copy_from_slice(bytes))? {
                Sent::Taken => self.untold.pop(),
                Sent::Full => break,
                Sent::Gone => return Err(End::RankGone),
            }
        }
        Ok(())
    }

    /// Tells the rank which peers could not be reached, and why.
    #[cold]
    fn tell_lost(&mut self) -> Result<(), End> {
        let Some(ByName { next_lost, .. }) = self.by_name else { return Ok(()) };
        while let Some((peer, fault)) = next_lost(self.driver.port_mut().inner_mut()) {
            self.tell(&Event::Lost { peer, fault: &fault_parts(&fault) })?;
        }
        Ok(())
    }

    /// Tells the rank why its seat is given up.
    pub fn fail(&mut self, fault: &Fault) {
        let _ = self.tell(&Event::Failed(&fault_parts(fault)));
    }
}

/// The part of a seat that commands work on.
struct Work<'a, P> {
    driver: &'a mut Driver<DilatedPort<P>, RankMemory>,
    by_name: Option<&'a ByName<P>>,
    rank: &'a Arc<Rank>,
    placed: &'a Placed,
    requests: &'a mut Vec<Option<Request>>,
    answers: &'a mut PendingEvents,
    pending: &'a mut usize,
    in_progress: &'a mut usize,
    turns: u64,
}

impl<P: Port> Work<'_, P> {
    #[inline]
    fn obey(&mut self, bytes: &[u8]) -> Result<(), End> {
        let Some(command) = Command::parse(bytes) else {
            let cause = "it sent what is no command";
            return Err(Fault::new("rank", cause, "start ranks and engine from the same build").into());
        };
        match command {
            Command::Send { peer, label, confirmed, ticket, place } => {
                self.begin()?;
                let (buffer, ticket) = match place {
                    Place::Here(bytes) => {
                        *self.pending += 1;
                        (RankMemory::Here(bytes.to_vec()), if confirmed { ticket } else { UNTOLD })
                    }
                    Place::There { address, length } => (RankMemory::there(self.rank, address, length), ticket),
                };
                let request = match confirmed {
                    false => self.driver.send(peer, label, buffer, ticket)?,
                    true => self.driver.send_confirmed(peer, label, buffer, ticket)?,
                };
                if ticket != UNTOLD {
                    self.remember(ticket, request);
                }
            }
            Command::Receive { source, selector, ticket, address, length } => {
                self.begin()?;
                let buffer = RankMemory::receiving(self.rank, address, length);
                let request = self.driver.receive(source, selector.into(), buffer, ticket)?;
                self.remember(ticket, request);
            }
            Command::ReceiveClaimed { claim, ticket, address, length } => {
                let buffer = RankMemory::receiving(self.rank, address, length);
                match self.driver.engine.receive_claimed(claim, buffer, ticket) {
                    Ok(request) => {
                        self.begin()?;
                        self.remember(ticket, request);
                    }
                    Err(_) => {
                        let envelope = Envelope::new(PeerIndex(0), Label::from(0), 0);
                        let (direction, status) = (Direction::Receive, Status::Cancelled);
                        self.answer(&Event::Completed { ticket, direction, envelope, status, payload: None });
                    }
                }
            }
            Command::Cancel { ticket } => {
                let request = self.requests.get(slot(ticket)).copied().flatten();
                let done = request.is_some_and(|request| self.driver.engine.cancel(request));
                self.answer(&Event::Cancelled(done));
            }
            Command::TakeBack { ticket } => {
                let request = self.requests.get(slot(ticket)).copied().flatten();
                let done = request.is_some_and(|request| self.driver.engine.take_back(request, RankMemory::stand_in));
                self.answer(&Event::Cancelled(done));
            }
            Command::Leave => {
                // The last sends may be batched still.
                self.driver.flush()?;
                return Err(End::RankGone);
            }
            Command::Probe { source, selector } => {
                let found = self.driver.engine.probe(source, selector.into());
                self.answer(&Event::Found(found.map(|envelope| (envelope, None))));
            }
            Command::Claim { source, selector } => {
                let found = self.driver.engine.claim(source, selector.into());
                self.answer(&Event::Found(found.map(|(envelope, claim)| (envelope, Some(claim)))));
            }
            Command::Discard { claim } => {
                self.driver.engine.discard(claim);
            }
            Command::Insert { name } => {
                let Some(by_name) = self.by_name else { return Err(not_by_name().into()) };
                let peer = (by_name.insert)(self.driver.port_mut().inner_mut(), &name);
                if peer.0 as usize >= MOST_PEERS {
                    return Err(too_many("peers", MOST_PEERS).into());
                }
                self.driver.admit();
                self.answer(&Event::Inserted(peer));
            }
            Command::Report => {
                let mut report = Report::of(self.driver, self.placed);
                report.dilated = self.driver.port().counts();
                if let Some(by_name) = self.by_name {
                    (by_name.describe)(self.driver.port().inner(), &mut report);
                }
                report.process = self.rank.number().as_raw_nonzero().get() as u32;
                report.engine_turns = Some(self.turns);
                let json = serde_json::to_vec(&report)
                    .map_err(|e| Fault::because("report", e, "report this as a bug of plimsoll"))?;
                self.answer(&Event::Report(&json));
            }
            Command::IsFlushed => {
                let flushed = self.driver.engine.is_flushed();
                self.answer(&Event::IsQuiet(flushed));
            }
            Command::IsQuiet => {
                let quiet = self.driver.engine.is_quiet();
                self.answer(&Event::IsQuiet(quiet));
            }
        }
        Ok(())
    }

    /// Counts a request of the rank, in progress until it completes.
    #[inline]
    fn begin(&mut self) -> Result<()> {
        if *self.in_progress >= MOST_REQUESTS {
            return Err(too_many("sends and receives in progress", MOST_REQUESTS));
        }
        *self.in_progress += 1;
        Ok(())
    }

    #[inline]
    fn remember(&mut self, ticket: u64, request: Request) {
        let slot = slot(ticket);
        if slot >= self.requests.len() {
            self.requests.resize((slot + 1).min(MOST_TICKETS), None);
        }
        if let Some(place) = self.requests.get_mut(slot) {
            *place = Some(request);
        }
    }

    /// Answers after earlier events, and after this batch of commands.
    fn answer(&mut self, event: &Event) {
        self.answers.push(event);
    }
}

#[cold]
fn not_by_name() -> Fault {
    Fault::new("rank", "it named a peer, where the port came with its peers", "report this as a bug of plimsoll")
}

#[cold]
fn too_many(what: &str, most: usize) -> Fault {
    Fault::new("rank", format!("it has {most} {what} at its engine already"), "let some end first, or run at app")
}

/// Bound of the tickets that a rank can use for cancelling, against hostile ranks. An honest rank has more tickets than
/// requests in progress: those of events on their way.
const MOST_TICKETS: usize = 2 * MOST_REQUESTS;

/// The slot part of a ticket, dense from 1 (the low half of the key).
fn slot(ticket: u64) -> usize {
    (ticket & u64::from(u32::MAX)) as usize
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use engine::{Source, TagSelector};
    use machine::{Dilation, Site};
    use ports::shm::Role;

    use super::super::protocol::LARGEST;
    use super::super::rings;
    use super::*;
    use crate::link::shm_links;

    fn introduce(mut one: ShmPort, mut other: ShmPort) -> [ShmPort; 2] {
        let (left, right) = UnixStream::pair().unwrap();
        let joins = std::thread::spawn(move || {
            other.connect(&right, Role::Join).unwrap();
            other
        });
        one.connect(&left, Role::Create).unwrap();
        [one, joins.join().unwrap()]
    }

    /// A seat, its rank's end of the rings, and an engine that writes to that rank.
    fn seat() -> (Seat<ShmPort>, ShmPort, Driver<ShmPort, Vec<u8>>) {
        let [engines, ranks] = introduce(rings(), rings());
        let [here, there] = introduce(ShmPort::default(), ShmPort::default());
        let links = [shm_links(&here, 1), shm_links(&there, 1)];
        let placed = Placed { asked: Site::App, ran: Site::App, yields: false, notes: Vec::new() };
        let driver = Driver::new(DilatedPort::new(here, Dilation::NONE), &links[0]);
        let seat = Seat::new(driver, engines, Identity::own(), placed, None);
        (seat, ranks, Driver::new(there, &links[1]))
    }

    /// Delivers the next message into `place`; false where the ring is full.
    fn receive(rank: &mut ShmPort, place: &mut [u8], ticket: u64) -> bool {
        let (address, length) = (place.as_mut_ptr() as u64, place.len() as u64);
        let selector = TagSelector::any().into();
        let command = Command::Receive { source: Source::Any, selector, ticket, address, length };
        rank.send(OTHER, command.length(), |into| command.write(into)).unwrap() == Sent::Taken
    }

    #[test]
    fn a_flood_of_receives_is_bounded() {
        let (mut seat, mut rank, _peer) = seat();
        seat.in_progress = MOST_REQUESTS - 2;
        let mut place = [0; 8];
        assert!((1..=2).all(|ticket| receive(&mut rank, &mut place, ticket)));
        assert!(seat.turn(0).is_ok());
        assert!(receive(&mut rank, &mut place, 3));
        let Err(End::Failed(fault)) = seat.turn(0) else { panic!("one receive more than there may be") };
        assert!(fault.cause().contains("1048576 sends and receives"), "{fault}");
    }

    #[test]
    fn what_a_rank_does_not_take_is_bounded_and_comes_once_it_does() {
        const MESSAGES: usize = 2_000;
        const LENGTH: usize = 8_000;
        let (mut seat, mut rank, mut peer) = seat();
        let mut place = vec![0; LENGTH];
        for ticket in 1..=MESSAGES as u64 {
            while !receive(&mut rank, &mut place, ticket) {
                assert!(seat.turn(0).is_ok());
            }
        }
        for tag in 0..MESSAGES as u64 {
            peer.send(OTHER, tag, vec![7; LENGTH], 0).unwrap();
        }
        let deadline = Instant::now() + Duration::from_secs(600);
        let mut turn = |seat: &mut Seat<ShmPort>| {
            assert!(Instant::now() < deadline);
            assert!(seat.turn(0).is_ok());
            peer.turn().unwrap();
            while peer.next_completion().is_some() {}
        };
        while seat.untold.bytes < MOST_UNTOLD {
            turn(&mut seat);
        }
        for _ in 0..1_000 {
            turn(&mut seat);
            assert!(seat.untold.bytes < MOST_UNTOLD + 2 * LARGEST);
        }
        let mut came = 0;
        while came < MESSAGES {
            came += rank
                .receive(64, |_, bytes| {
                    let Some(Event::Completed { status, payload, .. }) = Event::parse(bytes) else {
                        panic!("{bytes:?}");
                    };
                    assert_eq!((status, payload), (Status::Done, Some(&[7; LENGTH][..])));
                })
                .unwrap();
            turn(&mut seat);
        }
        assert_eq!((seat.in_progress, seat.untold.bytes), (0, 0));
    }
}
