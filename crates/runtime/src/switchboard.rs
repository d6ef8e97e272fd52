//! The out-of-band channels: every application and offcode has one endpoint, and this carries calls between them
//! (HYDRA section 1.3). For control and for what is not performance critical; a thread looks after it, so that offcodes
//! reach each other while the application is busy.

mod relay;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use attach::watched::Outcome;
use linux::doorbell::{Doorbell, Sleep};
use machine::bounds::{CALLS_OPEN, CALLS_WAITING};
use machine::channel::{Bell, Loss};
use machine::{Fault, Result};
use offcode::call::{Header, Kind};
use offcode::{Channel, Specification, Written};

use crate::site::end::{End, ROOM_POLL_INTERVAL};
use crate::site::residents::Log;
use crate::trace::{Begun, Trace};
use relay::Relay;
pub(crate) use relay::{BridgeId, Passed};

/// Calls that may wait for one offcode that does not read.
const WAITING: usize = CALLS_WAITING.each.count();
/// Calls of one offcode that have no answer yet.
const OPEN: usize = CALLS_OPEN.each.count();
/// Rests of the thread while nothing moves, from the shortest to the longest; nobody who writes rings for it meanwhile.
/// After these it sleeps until somebody does.
const REST: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));
/// An offcode as the switchboard numbers it; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PartyId(usize);

#[derive(Clone, Copy)]
enum Caller {
    /// The application, whose answers are kept under the number of the call.
    Application,
    Party {
        party: PartyId,
        id: u32,
        route: u8,
    },
}

struct Party {
    name: String,
    end: Box<dyn Channel>,
    peers: HashMap<u8, PartyId>,
    waiting: VecDeque<Vec<u8>>,
    /// Trace of its calls, while they are watched.
    trace: Option<Trace>,
}

/// An answer to the application: its kind, and the bytes after the header.
type Answer = (Kind, Vec<u8>);

#[derive(Default)]
struct Board {
    parties: Vec<Option<Party>>,
    /// Calls that were passed on, by the number given to them: callee and caller.
    open: HashMap<u32, (PartyId, Caller)>,
    answers: HashMap<u32, Answer>,
    /// Open calls that are watched.
    begun: HashMap<u32, Begun>,
    relays: Vec<Relay>,
    bridges: u64,
    next: u32,
    log: Option<Log>,
    /// The bell of the thread, while it sleeps.
    asleep: Option<Arc<Doorbell>>,
}

/// Carries calls between the out-of-band channels of one runtime.
pub struct Switchboard {
    board: Arc<Mutex<Board>>,
    stop: Arc<AtomicBool>,
    bell: Arc<Doorbell>,
    thread: Option<JoinHandle<()>>,
}

impl Switchboard {
    pub fn start(log: Log) -> Result<Switchboard> {
        let board = Arc::new(Mutex::new(Board { log: Some(log), ..Board::default() }));
        let stop = Arc::new(AtomicBool::new(false));
        let bell = Doorbell::new()?;
        let (theirs, ended, rung) = (board.clone(), stop.clone(), bell.clone());
        let thread = std::thread::Builder::new()
            .name("out-of-band".into())
            .spawn(move || {
                let mut rest = REST.0;
                while !ended.load(Ordering::Relaxed) {
                    let mut board = locked(&theirs);
                    rest = if board.turn() { REST.0 } else { (rest * 2).min(2 * REST.1) };
                    match (rest > REST.1).then(|| board.fall_asleep(&rung)).flatten() {
                        Some(sleep) => {
                            drop(board);
                            sleep.begin();
                            locked(&theirs).asleep = None;
                        }
                        None => {
                            drop(board);
                            std::thread::sleep(rest.min(REST.1));
                        }
                    }
                }
            })
            .map_err(|e| Fault::because("out-of-band thread", e, "raise the limit on processes (ulimit -u)"))?;
        Ok(Switchboard { board, stop, bell, thread: Some(thread) })
    }

    /// Wakes the thread: something came for an end of another process, or an end was abandoned.
    pub(crate) fn ring(&self) {
        self.bell.ring();
    }

    /// Adds an offcode by the near end of its out-of-band channel.
    pub fn add(&self, name: &str, end: Box<dyn Channel>) -> PartyId {
        let mut board = locked(&self.board);
        board.stir();
        let (name, peers, waiting) = (name.into(), HashMap::new(), VecDeque::new());
        board.parties.push(Some(Party { name, end, peers, waiting, trace: None }));
        PartyId(board.parties.len() - 1)
    }

    /// Makes `to` the peer number `place` of `from`.
    pub fn link(&self, from: PartyId, place: u8, to: PartyId) {
        if let Some(party) = locked(&self.board).parties[from.0].as_mut() {
            party.peers.insert(place, to);
        }
    }

    /// Hands on what comes from either of two ends that no site of this process can hold, until one is abandoned. `of`: an
    /// offcode whose channel that is, and its name for it.
    pub fn relay(&self, one: Box<dyn Channel>, other: Box<dyn Channel>, of: Option<(PartyId, String)>) {
        let relay = Relay { ends: [one, other], held: Default::default(), fenced: [false; 2], bridge: None, of };
        let mut board = locked(&self.board);
        board.stir();
        board.relays.push(relay);
    }

    /// Stands for an offcode's end of a channel while it is at a site that shares no memory and has the end behind
    /// `site`. Both ways are fenced at first.
    pub(crate) fn bridge(&self, mut end: End, site: Box<dyn Channel>) -> Option<BridgeId> {
        let channel = end.channel.take()?;
        let mut board = locked(&self.board);
        board.stir();
        board.bridges += 1;
        let id = BridgeId(board.bridges);
        let held = [VecDeque::new(), std::mem::take(&mut end.unsent)];
        board.relays.push(Relay { ends: [channel, site], held, fenced: [true; 2], bridge: Some((id, end)), of: None });
        Some(id)
    }

    /// A bridge from new memory to `site`, under way at once; and the end for whoever is to reach the offcode.
    pub(crate) fn bridge_anew(&self, name: &str, site: Box<dyn Channel>) -> Result<(Box<dyn Channel>, BridgeId)> {
        let (near, far) = ports::channel::unicast(site.specification())?;
        let id = self.bridge(End::new(name, Box::new(far)), site);
        let id = id.ok_or_else(|| Fault::new(format!("channel '{name}'"), "it has no end", "report this"))?;
        self.fence(id, [false; 2]);
        Ok((Box::new(near), id))
    }

    fn at_bridge<R>(&self, id: BridgeId, work: impl FnOnce(&mut Relay) -> R) -> Option<R> {
        let mut board = locked(&self.board);
        board.stir();
        board.relays.iter_mut().find(|relay| relay.bridge.as_ref().is_some_and(|(own, _)| *own == id)).map(work)
    }

    /// Name and specification of the channel that a bridge is part of.
    pub(crate) fn stands_for(&self, id: BridgeId) -> Option<(String, Specification)> {
        self.at_bridge(id, |relay| {
            let name = relay.bridge.as_ref().map(|(_, end)| end.name.clone());
            (name.unwrap_or_default(), *relay.ends[0].specification())
        })
    }

    /// Stops or resumes reading from the peer, and from the site. `None`: there is no such bridge.
    pub(crate) fn fence(&self, id: BridgeId, fenced: [bool; 2]) -> Option<Passed> {
        self.at_bridge(id, |relay| {
            relay.fenced = fenced;
            if fenced[0] {
                relay.drain();
            }
            relay.turn();
            let counted = relay.ends[1].counted();
            let more = matches!(relay.ends[1].poll(), Ok(true));
            Passed { written: counted.written, read: counted.read, held: relay.held[0].len(), more }
        })
    }

    /// Ends a bridge. Returns the end that it stood for, with what has yet to go out on it, and the site's.
    pub(crate) fn take_back(&self, id: BridgeId) -> Option<(End, Box<dyn Channel>)> {
        let mut board = locked(&self.board);
        let at = board.relays.iter().position(|relay| relay.bridge.as_ref().is_some_and(|(own, _)| *own == id))?;
        let Relay { ends: [channel, site], held: [_, unsent], bridge, .. } = board.relays.swap_remove(at);
        let (_, mut end) = bridge?;
        (end.channel, end.unsent) = (Some(channel), unsent);
        Some((end, site))
    }

    /// Messages of an offcode's channels that were lost where the switchboard relays them, by channel and place.
    pub(crate) fn lost_for(&self, party: PartyId, bridges: &[BridgeId]) -> Vec<(String, Loss, u64)> {
        let board = locked(&self.board);
        let name = |relay: &Relay| match (&relay.bridge, &relay.of) {
            (Some((id, end)), _) => bridges.contains(id).then(|| end.name.clone()),
            (None, Some((of, name))) => (*of == party).then(|| name.clone()),
            (None, None) => None,
        };
        let lost = |relay: &Relay| {
            let name = name(relay)?;
            Some(relay.ends.iter().map(|end| (name.clone(), end.loses(), end.counted().dropped)).collect::<Vec<_>>())
        };
        board.relays.iter().filter_map(lost).flatten().collect()
    }

    /// Starts or ends noting the calls of an offcode.
    pub(crate) fn trace(&self, party: PartyId, trace: Option<Trace>) {
        let mut board = locked(&self.board);
        let Board { parties, open, begun, .. } = &mut *board;
        if trace.is_none() {
            begun.retain(|id, _| open.get(id).is_some_and(|(to, _)| *to != party));
        }
        if let Some(Some(party)) = parties.get_mut(party.0) {
            party.trace = trace;
        }
    }

    /// Moves all messages that can be moved.
    pub(crate) fn turn(&self) {
        locked(&self.board).turn();
    }

    /// Removes an offcode. Callers that wait for it get a refusal.
    pub fn remove(&self, party: PartyId) {
        locked(&self.board).remove(party);
    }

    /// Calls an offcode for the application and waits for the answer; `meanwhile` runs between looks, so that the
    /// application's own thread can serve what runs there.
    pub fn invoke(
        &self,
        party: PartyId,
        message: &[u8],
        limit: Duration,
        mut meanwhile: impl FnMut() -> Result<()>,
    ) -> Result<Vec<u8>> {
        let deadline = Instant::now() + limit;
        let (name, id) = locked(&self.board).call(party, message, Kind::Call)?;
        let mut looks = 0_u32;
        loop {
            meanwhile()?;
            let mut board = locked(&self.board);
            board.turn();
            if let Some((kind, rest)) = board.answers.remove(&id) {
                return match kind {
                    Kind::Reply => Ok(rest),
                    _ => Err(Fault::new(
                        format!("call of offcode {name}"),
                        String::from_utf8_lossy(&rest),
                        "look at the interface's methods and this offcode's log",
                    )),
                };
            }
            if Instant::now() > deadline {
                board.open.remove(&id);
                return Err(Fault::new(
                    format!("call of offcode {name}"),
                    format!("no answer within {} ms", limit.as_millis()),
                    "look whether the offcode's site has time for it (plimsoll ps)",
                ));
            }
            drop(board);
            looks += 1;
            if looks > 1000 {
                std::thread::sleep(REST.0);
            }
        }
    }

    /// Calls an offcode for the application and wants no answer.
    pub fn notify(&self, party: PartyId, message: &[u8]) -> Result<()> {
        locked(&self.board).call(party, message, Kind::OneWay).map(|_| ())
    }
}

impl Drop for Switchboard {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn outcome(kind: Kind, rest: &[u8]) -> Outcome {
    match kind {
        Kind::Refused => Outcome::Refused(String::from_utf8_lossy(rest).into_owned()),
        _ => Outcome::Result(rest.len() as u64),
    }
}

/// The board, also after a panic: it is consistent between any two of its statements.
fn locked(board: &Mutex<Board>) -> MutexGuard<'_, Board> {
    board.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Board {
    /// Prepares the sleep of the thread, which ends with the next message at any end, and looks again for room now and then
    /// where something waits for it. `None`: there is something already.
    fn fall_asleep(&mut self, bell: &Arc<Doorbell>) -> Option<Sleep> {
        let mut sleep = bell.sleep();
        for relay in &mut self.relays {
            for (end, from) in relay.ends.iter_mut().zip(0..) {
                // What is fenced stays there until whoever fenced it stirs the board.
                let open = !relay.fenced[from] && relay.held[from].is_empty();
                if open && !end.arm(&mut sleep) {
                    return None;
                }
                if !relay.held[from].is_empty() {
                    sleep.at_most(ROOM_POLL_INTERVAL);
                }
            }
        }
        for party in self.parties.iter_mut().flatten() {
            if !party.end.arm(&mut sleep) {
                return None;
            }
            if !party.waiting.is_empty() {
                sleep.at_most(ROOM_POLL_INTERVAL);
            }
        }
        self.asleep = Some(bell.clone());
        Some(sleep)
    }

    /// Wakes the thread for something that no end signals.
    fn stir(&mut self) {
        if let Some(bell) = self.asleep.take() {
            bell.ring();
        }
    }

    fn log(&self, line: &str) {
        if let Some(log) = &self.log {
            log(line);
        }
    }

    fn call(&mut self, to: PartyId, message: &[u8], kind: Kind) -> Result<(String, u32)> {
        let no_call = || Fault::new("call out of band", "it has no header", "make calls by a proxy");
        let (header, arguments) = Header::read(message).ok_or_else(no_call)?;
        let Some(Some(party)) = self.parties.get(to.0) else {
            return Err(Fault::new("call out of band", "the offcode was removed", "create it again"));
        };
        let name = party.name.clone();
        let room = party.end.specification().buffers.size.0 as usize - Header::LENGTH;
        if arguments.len() > room {
            return Err(Fault::new(
                format!("call of offcode {name}"),
                format!("its arguments take {} bytes; out of band there is room for {room}", arguments.len()),
                "make a channel with larger buffers",
            ));
        }
        let id = self.next_id();
        let header = Header { kind, route: 0, id, ..header };
        if kind == Kind::Call {
            self.open.insert(id, (to, Caller::Application));
        }
        let begun = self.begin(to, Caller::Application, &header, arguments.len());
        let sent = self.send(to, &header, arguments);
        self.begun(begun, kind, id, sent);
        if !sent {
            self.open.remove(&id);
            return Err(Fault::new(
                format!("call of offcode {name}"),
                format!("{WAITING} calls wait for it already"),
                "look whether its site has time for it (plimsoll ps)",
            ));
        }
        Ok((name, id))
    }

    fn next_id(&mut self) -> u32 {
        loop {
            self.next = self.next.wrapping_add(1);
            if !self.open.contains_key(&self.next) && !self.answers.contains_key(&self.next) {
                return self.next;
            }
        }
    }

    /// Sends a message or keeps it; `false` where too much waits already or the party is gone.
    fn send(&mut self, to: PartyId, header: &Header, rest: &[u8]) -> bool {
        let Some(Some(party)) = self.parties.get_mut(to.0) else { return false };
        let mut message = vec![0; Header::LENGTH + rest.len()];
        if let Some((head, body)) = message.split_first_chunk_mut() {
            header.write(head);
            body.copy_from_slice(rest);
        }
        if party.waiting.is_empty() {
            match party.end.write(&message) {
                Ok(Written::Taken) => return true,
                Ok(Written::Full) => {}
                Ok(_) | Err(_) => return false,
            }
        }
        if party.waiting.len() >= WAITING {
            return false;
        }
        party.waiting.push_back(message);
        self.stir();
        true
    }

    fn refuse(&mut self, caller: Caller, id: u32, why: &str) {
        self.answer(caller, id, Kind::Refused, 0, 0, why.as_bytes());
    }

    fn answer(&mut self, caller: Caller, number: u32, kind: Kind, interface: u64, method: u16, rest: &[u8]) {
        match caller {
            Caller::Application => drop(self.answers.insert(number, (kind, rest.to_vec()))),
            Caller::Party { party, id, route } => {
                let header = Header { interface, method, kind, route, id };
                self.send(party, &header, rest);
            }
        }
    }

    fn remove(&mut self, party: PartyId) {
        let Some(gone) = self.parties.get_mut(party.0).and_then(Option::take) else { return };
        let orphans: Vec<_> = self.open.iter().filter(|(_, (to, _))| *to == party).map(|(id, _)| *id).collect();
        for id in orphans {
            if let Some((_, caller)) = self.open.remove(&id) {
                self.refuse(caller, id, &format!("offcode {} was removed", gone.name));
            }
        }
        self.open.retain(|_, (_, caller)| !matches!(caller, Caller::Party { party: from, .. } if *from == party));
    }

    /// Begins the note of a call, where its offcode is watched.
    fn begin(&self, to: PartyId, from: Caller, header: &Header, arguments: usize) -> Option<(Trace, Begun)> {
        let trace = self.parties[to.0].as_ref()?.trace.clone()?;
        let from = match from {
            Caller::Application => "the application".into(),
            Caller::Party { party, .. } => {
                self.parties[party.0].as_ref().map_or("one that has gone".into(), |p| p.name.clone())
            }
        };
        Some((trace, Begun::now(from, header, arguments)))
    }

    fn begun(&mut self, begun: Option<(Trace, Begun)>, kind: Kind, id: u32, sent: bool) {
        match begun {
            Some((trace, begun)) if !sent => trace.note(begun, Outcome::Refused("it does not take calls now".into())),
            Some((trace, begun)) if kind == Kind::OneWay => trace.note(begun, Outcome::OneWay),
            Some((_, begun)) => drop(self.begun.insert(id, begun)),
            None => {}
        }
    }

    fn ended(&mut self, to: PartyId, header: &Header, rest: &[u8]) {
        let Some(begun) = self.begun.remove(&header.id) else { return };
        if let Some(trace) = self.parties[to.0].as_ref().and_then(|party| party.trace.as_ref()) {
            trace.note(begun, outcome(header.kind, rest));
        }
    }

    /// Moves all messages that can be moved; says whether there was one.
    fn turn(&mut self) -> bool {
        let mut moved = false;
        for relay in &mut self.relays {
            moved |= relay.turn();
        }
        self.relays.retain_mut(|relay| !relay.is_over());
        if self.relays.iter().any(Relay::holds) {
            // A caller that moves messages beside the thread does not come back for the rest.
            self.stir();
        }
        for index in 0..self.parties.len() {
            let Some(party) = self.parties[index].as_mut() else { continue };
            while let Some(message) = party.waiting.front() {
                match party.end.write(message) {
                    Ok(Written::Full) => break,
                    _ => drop(party.waiting.pop_front()),
                }
                moved = true;
            }
            let mut arrived: Option<(Header, Vec<u8>)> = None;
            while let Some(party) = self.parties[index].as_mut() {
                let read = party.end.read_with(&mut |message| {
                    arrived = Header::read(message).map(|(header, rest)| (header, rest.to_vec()));
                });
                match (read, arrived.take()) {
                    (Ok(true), Some((header, rest))) => self.pass(PartyId(index), &header, &rest),
                    (Ok(true), None) => self.log("out of band: a message that is no call was dropped"),
                    _ => break,
                }
                moved = true;
            }
        }
        moved
    }

    fn pass(&mut self, from: PartyId, header: &Header, rest: &[u8]) {
        match header.kind {
            Kind::Call | Kind::OneWay => {
                let caller = Caller::Party { party: from, id: header.id, route: header.route };
                let to =
                    self.parties[from.0].as_ref().and_then(|p| p.peers.get(&header.route.wrapping_sub(1))).copied();
                let Some(to) = to else {
                    if header.kind == Kind::Call {
                        self.refuse(caller, header.id, "there is no such peer out of band");
                    }
                    return;
                };
                if header.kind == Kind::Call && self.open.len() >= OPEN {
                    let is = |caller: &Caller| matches!(caller, Caller::Party { party, .. } if *party == from);
                    if self.open.values().filter(|(_, caller)| is(caller)).count() >= OPEN {
                        return self.refuse(caller, header.id, "too many calls wait for their answers");
                    }
                }
                let id = self.next_id();
                if header.kind == Kind::Call {
                    self.open.insert(id, (to, caller));
                }
                let begun = self.begin(to, caller, header, rest.len());
                let sent = self.send(to, &Header { route: 0, id, ..*header }, rest);
                self.begun(begun, header.kind, id, sent);
                if !sent {
                    self.open.remove(&id);
                    if header.kind == Kind::Call {
                        self.refuse(caller, header.id, "the peer does not take calls now");
                    }
                }
            }
            Kind::Reply | Kind::Refused => {
                // An answer that comes too late, or that nobody asked for, has nowhere to go.
                if let Some((to, caller)) = self.open.remove(&header.id) {
                    if to == from {
                        self.ended(to, header, rest);
                        self.answer(caller, header.id, header.kind, header.interface, header.method, rest);
                    } else {
                        self.open.insert(header.id, (to, caller));
                    }
                }
            }
        }
    }
}
