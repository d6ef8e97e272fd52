//! One offcode on a thread, with all that surrounds it.

use std::time::{Duration, Instant};

use attach::watched::Outcome;
use linux::xdp::{Dump, SharedWords};
use machine::{Fault, Result};
use offcode::call::{Header, Kind};
use offcode::channel::{Content, Sleeper};
use offcode::manifest::StateKind;
use offcode::service::TIMERS_EACH;
use offcode::{Activity, Channel, ChannelId, Context, Incoming, Offcode, Refusal, State, Wake, Written};

use super::super::Deployment;
use super::super::end::{End, EndAt, Ends};
use super::surroundings::Surroundings;
use super::timing::Timing;
use super::{Log, guarded, maps, timers};
use crate::trace::{Begun, Trace};

/// Messages taken from one channel before the next is served.
const BUDGET: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    Deployed,
    Initialized,
    Started,
    /// The offcode is about to move, or was restored and is to go on: nothing of it runs, and what waits goes out.
    Suspended,
    /// The offcode panicked, and is not called any more.
    Failed(String),
}

/// Events that an offcode waits for and no bell announces.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Untold {
    /// The offcode may have work of its own, which only polling it shows.
    pub turns: bool,
    /// A reader has to make room first.
    pub no_room: bool,
    /// Time until its next timer.
    pub due: Option<Duration>,
}

pub(super) struct Seat {
    offcode: Box<dyn Offcode>,
    around: Surroundings,
    reply: Vec<u8>,
    state: StateKind,
    pub phase: Phase,
    pub calls: u64,
    pub messages: u64,
    pub worked: u64,
    pub timing: Timing,
    /// The client that pays for it, if one does.
    pub client: Option<u64>,
    /// Turns withheld since its client had had its share.
    pub withheld: u64,
    /// Trace of its calls over channels, while they are watched; the switchboard notes those out of band.
    pub trace: Option<Trace>,
}

impl Seat {
    pub fn new(offcode: Box<dyn Offcode>, deployment: Deployment, origin: Instant, log: Log) -> Self {
        let state = deployment.manifest.package.state;
        let around = Surroundings::new(deployment, origin, log);
        let reply = Vec::with_capacity(256);
        let timing = Timing::new();
        Seat {
            offcode,
            around,
            reply,
            state,
            phase: Phase::Deployed,
            calls: 0,
            messages: 0,
            worked: 0,
            timing,
            client: None,
            withheld: 0,
            trace: None,
        }
    }

    fn in_phase(&self, wanted: Phase) -> Result<()> {
        if self.phase == wanted {
            return Ok(());
        }
        let is = format!("it is {:?} where {wanted:?} was expected", self.phase);
        Err(Fault::new(format!("offcode {}", self.around.name), is, "deploy, initialize and start it in this order"))
    }

    pub fn initialize(&mut self) -> Result<()> {
        self.in_phase(Phase::Deployed)?;
        let Seat { offcode, around, .. } = self;
        guarded(&around.name.clone(), || offcode.initialize(around))??;
        self.phase = Phase::Initialized;
        Ok(())
    }

    pub fn start(&mut self) -> Result<()> {
        self.in_phase(Phase::Initialized)?;
        let Seat { offcode, around, .. } = self;
        around.may_write = true;
        guarded(&around.name.clone(), || {
            offcode.start(around)?;
            // Channels that were made before the start are told now: only now can the offcode use them.
            for id in 1..around.ends.len() as u32 {
                let name = around.ends[id as usize].name.clone();
                offcode.attached(ChannelId(id), &name, around);
            }
            Ok::<(), Fault>(())
        })??;
        self.phase = Phase::Started;
        Ok(())
    }

    pub fn adopt(&mut self, name: &str, end: Box<dyn Channel>) -> Result<ChannelId> {
        let id = self.around.adopt(name, end)?;
        if self.phase == Phase::Started && id != ChannelId::OUT_OF_BAND {
            self.attempt(|offcode, around| offcode.attached(id, name, around));
        }
        Ok(id)
    }

    pub fn set_attribute(&mut self, name: &str, value: &str) -> Result<()> {
        let before = self.around.attributes.get(name).map(str::to_owned);
        self.around.attributes.set(name, value)?;
        if !matches!(self.phase, Phase::Initialized | Phase::Started) {
            return Ok(());
        }
        let set = self.attempt(|offcode, around| offcode.attribute_set(name, value, around));
        set.unwrap_or_else(|| Err(self.failed())).inspect_err(|_| self.around.attributes.put_back(name, before))
    }

    /// Calls and messages by channel, of those that had any.
    pub fn received(&self) -> Vec<(String, u64)> {
        let ends = self.around.ends.iter().filter(|end| end.received > 0);
        ends.map(|end| (end.name.clone(), end.received)).collect()
    }

    /// Stops all of the offcode until [`Seat::resume`] or its removal. Returns the state that it saves.
    pub fn suspend(&mut self) -> Result<State> {
        self.in_phase(Phase::Started)?;
        let mut state = State::default();
        if self.state == StateKind::Saved {
            let saved = self.attempt(|offcode, around| offcode.save(&mut state, around));
            saved.unwrap_or_else(|| Err(self.failed()))?;
            self.around.maps.as_ref().map_or(Ok(()), |maps| maps.save(&mut state))?;
        }
        let now = self.around.now();
        if let Some(timers) = self.around.timers.as_ref().filter(|_| self.state == StateKind::Saved) {
            timers.save(&mut state, now);
        }
        for (channel, message) in self.offcode.unsent() {
            self.around.defer(channel, &message);
        }
        self.phase = Phase::Suspended;
        Ok(state)
    }

    /// In place of [`Seat::start`], for one that goes on from a state; of one that takes none along, that start itself.
    /// Its turns begin with [`Seat::resume`].
    pub fn restore(&mut self, state: &State) -> Result<()> {
        if self.state == StateKind::Saved {
            self.in_phase(Phase::Initialized)?;
            for id in 1..self.around.ends.len() {
                let name = self.around.ends[id].name.clone();
                self.offcode.had(ChannelId(id as u32), &name, &mut self.around);
            }
            let (mut state, now) = (state.clone(), self.around.now());
            match &mut self.around.timers {
                Some(timers) => timers.restore(&mut state, now),
                None => drop(timers::taken_out(&mut state)),
            }
            self.around.maps.as_mut().map_or(Ok(()), |maps| maps.restore(&mut state))?;
            let restored = self.attempt(|offcode, around| offcode.restore(&state, around));
            restored.unwrap_or_else(|| Err(self.failed()))?;
            self.around.may_write = true;
        } else {
            self.start()?;
        }
        self.phase = Phase::Suspended;
        Ok(())
    }

    /// Wake-ups so far, of an offcode that asks for timers.
    pub fn woken(&self) -> Option<u64> {
        self.around.timers.as_ref().map(|timers| timers.woken)
    }

    pub fn shared(&self, words: &str) -> Result<SharedWords> {
        self.around.memory.shared(&self.around.name, words)
    }

    /// The entries of one of its maps.
    pub fn map(&self, name: &str) -> Result<Dump> {
        let of_site = self.around.maps.iter().flat_map(|maps| maps.tables());
        let mut all = self.offcode.own_maps();
        all.extend(of_site.map(|table| (table.name(), table.entries())));
        maps::named(&self.around.name, name, all)
    }

    pub fn resume(&mut self) -> Result<()> {
        self.in_phase(Phase::Suspended)?;
        self.phase = Phase::Started;
        Ok(())
    }

    pub fn ends(&self) -> Vec<EndAt> {
        self.around.ends().collect()
    }

    /// Gives up the ends of an offcode that does not run.
    pub fn surrender(&mut self) -> Result<Ends> {
        if self.phase == Phase::Started {
            self.in_phase(Phase::Suspended)?;
        }
        self.around.may_write = false;
        Ok(Ends(std::mem::take(&mut self.around.ends)))
    }

    /// Takes over the ends that another seat gave up.
    pub fn receive(&mut self, ends: Ends) {
        self.around.ends = ends.0;
        self.around.may_write = self.phase == Phase::Suspended;
    }

    fn failed(&self) -> Fault {
        let cause = match &self.phase {
            Phase::Failed(why) => why.clone(),
            other => format!("it is {other:?}"),
        };
        Fault::new(format!("offcode {}", self.around.name), cause, "mend the offcode")
    }

    pub fn stop(&mut self) {
        if matches!(self.phase, Phase::Initialized | Phase::Started | Phase::Suspended) {
            self.attempt(|offcode, around| offcode.stop(around));
            self.around.flush();
        }
        self.phase = Phase::Deployed;
    }

    /// Runs the offcode's code; an offcode that panics is not called again, and the others go on.
    fn attempt<R>(&mut self, work: impl FnOnce(&mut dyn Offcode, &mut Surroundings) -> R) -> Option<R> {
        let Seat { offcode, around, .. } = self;
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(offcode.as_mut(), around)));
        match outcome {
            Ok(value) => Some(value),
            Err(panic) => {
                let Err(fault) = guarded::<()>(&self.around.name, || std::panic::resume_unwind(panic)) else {
                    return None;
                };
                (self.around.log)(&format!("{fault}"));
                self.phase = Phase::Failed(fault.cause().to_string());
                None
            }
        }
    }

    #[inline]
    pub fn turn(&mut self) -> Activity {
        match self.phase {
            Phase::Started => {}
            Phase::Failed(_) => return self.refuse(),
            Phase::Suspended => {
                self.around.flush();
                return Activity::Idle;
            }
            Phase::Deployed | Phase::Initialized => return Activity::Idle,
        }
        self.around.no_room = false;
        let begun = self.timing.turn();
        let activity = self.attempt(|offcode, around| (offcode.turn(around), ()));
        self.timing.done(begun, 0, false);
        let mut worked = matches!(activity, Some((Activity::Worked, ()))) | self.wake();
        for id in 0..self.around.ends.len() {
            worked |= self.serve(id);
        }
        if worked && let Some(fault) = self.offcode.failure() {
            // A sandboxed body that trapped stays dead; its neighbours go on.
            (self.around.log)(&format!("{}: {fault}", self.around.name));
            self.phase = Phase::Failed(fault.to_string());
        }
        self.worked += u64::from(worked);
        if worked { Activity::Worked } else { Activity::Idle }
    }

    /// Tells the offcode of each timer that is due.
    #[inline]
    fn wake(&mut self) -> bool {
        match &self.around.timers {
            Some(timers) if timers.next != Wake::NEVER.at => self.wake_due(),
            _ => false,
        }
    }

    fn wake_due(&mut self) -> bool {
        let now = self.around.now();
        let before = self.woken();
        for timer in 0..TIMERS_EACH as u8 {
            // The step for one may have set another.
            let due = self.around.timers.as_mut().is_some_and(|timers| timers.next <= now && timers.take(timer, now));
            if due && self.phase == Phase::Started {
                self.attempt(|offcode, around| offcode.timer(timer, around));
            }
        }
        self.woken() != before
    }

    /// Has what arrives for it end the sleep that the thread is about to begin. `None`: something is there already. Else
    /// what of it nobody tells of.
    pub fn arm(&mut self, sleeper: &mut dyn Sleeper) -> Option<Untold> {
        match self.phase {
            Phase::Started => {
                let due = self.around.due_within();
                let no_room = self.around.arm(sleeper).filter(|_| due != Some(Duration::ZERO))?;
                Some(Untold { turns: true, no_room, due })
            }
            Phase::Failed(_) => self.around.arm(sleeper).map(|no_room| Untold { no_room, ..Untold::default() }),
            Phase::Suspended => Some(Untold { no_room: self.around.ends.iter().any(End::waits), ..Untold::default() }),
            Phase::Deployed | Phase::Initialized => Some(Untold::default()),
        }
    }

    /// Refuses calls of a failed offcode; else their callers would wait.
    #[cold]
    fn refuse(&mut self) -> Activity {
        let mut worked = false;
        for id in 0..self.around.ends.len() {
            worked |= self.around.ends[id].content == Content::Calls && self.serve(id);
        }
        if worked { Activity::Worked } else { Activity::Idle }
    }

    /// Takes what has arrived on one channel. The endpoint is out of its place meanwhile, so that the offcode may write to it.
    #[inline]
    fn serve(&mut self, id: usize) -> bool {
        let end = &mut self.around.ends[id];
        let Some(channel) = end.channel.as_mut() else { return false };
        match channel.poll() {
            Ok(false) if end.unsent.is_empty() => return false,
            _ => {}
        }
        if !end.unsent.is_empty() && !end.flush() {
            return false;
        }
        let content = end.content;
        let Some(mut channel) = end.channel.take() else { return false };
        let begun = self.timing.batch();
        let mut taken = 0;
        while taken < BUDGET {
            let read = match content {
                Content::Calls => self.serve_call(ChannelId(id as u32), channel.as_mut()),
                Content::Messages => self.serve_message(ChannelId(id as u32), channel.as_mut()),
            };
            match read {
                Ok(true) => taken += 1,
                Ok(false) => break,
                Err(fault) => {
                    (self.around.log)(&format!("{}: {fault}", self.around.name));
                    break;
                }
            }
            if !self.around.ends[id].unsent.is_empty() || self.phase != Phase::Started {
                break;
            }
        }
        let end = &mut self.around.ends[id];
        end.channel = Some(channel);
        end.received += taken as u64;
        end.flush();
        self.timing.done(begun, taken, content == Content::Messages);
        taken > 0
    }

    #[inline]
    fn serve_message(&mut self, id: ChannelId, channel: &mut dyn Channel) -> Result<bool> {
        let read = channel.read_with(&mut |message| {
            self.attempt(|offcode, around| offcode.message(id, message, around));
        })?;
        self.messages += u64::from(read);
        Ok(read)
    }

    #[inline]
    fn serve_call(&mut self, id: ChannelId, channel: &mut dyn Channel) -> Result<bool> {
        let mut answer = None;
        let read = channel.read_with(&mut |message| {
            let Some((header, rest)) = Header::read(message) else {
                (self.around.log)(&format!("{}: what came on channel {} is no call", self.around.name, id.0));
                return;
            };
            match header.kind {
                Kind::Call | Kind::OneWay => {
                    let trace = self.trace.clone().filter(|_| id != ChannelId::OUT_OF_BAND);
                    let begun = trace.map(|trace| (trace, self.begun(id, &header, rest.len())));
                    let call = Incoming { interface: header.interface, method: header.method, arguments: rest };
                    let mut reply = std::mem::take(&mut self.reply);
                    reply.clear();
                    let done = match &self.phase {
                        Phase::Failed(why) => Err(Refusal(format!("the offcode has failed: {why}"))),
                        _ => {
                            let done = self.attempt(|offcode, around| offcode.call(call, &mut reply, around));
                            done.unwrap_or_else(|| Err(Refusal("the offcode failed in this call".into())))
                        }
                    };
                    let kind = match done {
                        Ok(()) => Kind::Reply,
                        Err(Refusal(why)) => {
                            reply.clear();
                            reply.extend_from_slice(why.as_bytes());
                            Kind::Refused
                        }
                    };
                    self.reply = reply;
                    if let Some((trace, begun)) = begun {
                        trace.note(begun, self.outcome(header.kind, kind));
                    }
                    if header.kind == Kind::Call {
                        answer = Some(Header { kind, ..header });
                    }
                }
                Kind::Reply => self.answered(id, &header, Ok(rest)),
                Kind::Refused => {
                    let why = Refusal(String::from_utf8_lossy(rest).into_owned());
                    self.answered(id, &header, Err(&why));
                }
            }
        })?;
        self.calls += u64::from(read);
        if let Some(header) = answer {
            self.send_answer(id, channel, header)?;
        }
        Ok(read)
    }

    #[cold]
    fn begun(&self, id: ChannelId, header: &Header, arguments: usize) -> Begun {
        Begun::now(format!("channel '{}'", self.around.ends[id.0 as usize].name), header, arguments)
    }

    /// The outcome of the call whose reply lies ready.
    #[cold]
    fn outcome(&self, asked: Kind, answer: Kind) -> Outcome {
        match (asked, answer) {
            (_, Kind::Refused) => Outcome::Refused(String::from_utf8_lossy(&self.reply).into_owned()),
            (Kind::OneWay, _) => Outcome::OneWay,
            _ => Outcome::Result(self.reply.len() as u64),
        }
    }

    fn answered(&mut self, id: ChannelId, header: &Header, result: Result<&[u8], &Refusal>) {
        if matches!(self.phase, Phase::Failed(_)) {
            return;
        }
        // Out of band the answer says which peer it is from, as the call said which peer it was for.
        let id = if id == ChannelId::OUT_OF_BAND && header.route > 0 { ChannelId::peer(header.route - 1) } else { id };
        self.attempt(|offcode, around| offcode.answered(id, header.id, result, around));
    }

    fn send_answer(&mut self, id: ChannelId, channel: &mut dyn Channel, mut header: Header) -> Result<()> {
        let room = channel.specification().buffers.size.0 as usize;
        if Header::LENGTH + self.reply.len() > room {
            header.kind = Kind::Refused;
            let why = format!("the result of {} bytes is longer than the channel's buffers", self.reply.len());
            self.reply.clear();
            self.reply.extend_from_slice(&why.as_bytes()[..why.len().min(room.saturating_sub(Header::LENGTH))]);
        }
        let reply = &self.reply;
        let mut fill = |buffer: &mut [u8]| {
            if let Some((head, rest)) = buffer.split_first_chunk_mut() {
                header.write(head);
                rest.copy_from_slice(reply);
            }
        };
        let length = Header::LENGTH + reply.len();
        if let Written::Full = channel.write_with(length, &mut fill)? {
            // Answers are never lost for want of room: nothing more is read from this caller until they are out.
            let mut message = vec![0; length];
            fill(&mut message);
            self.around.ends[id.0 as usize].unsent.push_back(message);
        }
        Ok(())
    }
}
