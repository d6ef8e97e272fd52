//! The calling end of a channel: numbers calls, finds their answers, waits for them.

use std::time::{Duration, Instant};

use machine::{Fault, Nanoseconds, Result};

use crate::call::{Call, Header, Kind, Refusal, ResultOf};
use crate::channel::{Channel, Synchronization, Written};

/// Polls before the clock is looked at for the first time: an answer from a near core is there by then.
const BEFORE_CLOCK: u32 = 256;
/// Polls between later looks at the clock.
const BETWEEN_LOOKS: u32 = 16;
/// Most unanswered calls of one channel.
const MOST_PENDING: usize = 65_536;

/// Sends calls over one channel and receives their results, in whichever order they come. Nothing is allocated, locked
/// or timed where the answer is the next message and comes soon.
///
/// ```no_run
/// # use offcode::{Caller, Channel, interface};
/// # use machine::Nanoseconds;
/// #[interface(guid = "0a3c2f6e-93b7-4b0e-8f3b-5a0b1c2d3e4f")]
/// trait Filter {
///     fn limit(&mut self, bytes: u32) -> bool;
/// }
///
/// # fn example(channel: Box<dyn Channel>) -> machine::Result<()> {
/// let mut caller = Caller::new(channel);
/// let pending = FilterProxy.limit(900).over(&mut caller)?;
/// let kept = caller.wait(pending, Nanoseconds(1_000_000), || { /* the application's own site gets time here */ })?;
/// # Ok(()) }
/// ```
pub struct Caller<C: Channel = Box<dyn Channel>> {
    channel: C,
    last: u32,
    /// Calls whose result nobody has taken yet.
    unanswered: Vec<Unanswered>,
    strays: u64,
    handler: Option<Handler>,
}

type Handler = Box<dyn FnMut(&[u8]) + Send>;

struct Unanswered {
    id: u32,
    /// An answer that came while another was waited for.
    parked: Option<Result<Vec<u8>, Refusal>>,
}

/// A call that was sent and whose result is to be fetched by [`Caller::try_take`] or [`Caller::wait`], or given up with
/// [`Caller::forget`].
#[must_use = "the result waits until it is taken or forgotten"]
#[derive(Debug)]
pub struct Pending<R> {
    id: u32,
    one_way: bool,
    result: ResultOf<R>,
}

/// The meaning of the message just read for the call that is waited for.
enum Found<R> {
    Nothing,
    Another,
    It(Result<R>),
}

impl<C: Channel> Caller<C> {
    /// The caller's side of calls over `channel`.
    pub fn new(channel: C) -> Self {
        Caller { channel, last: 0, unanswered: Vec::with_capacity(16), strays: 0, handler: None }
    }

    /// Sets the dispatch handler, which gets every message that is no answer (HYDRA section 1.3.1). Without one, calls
    /// from the other end are refused, and whatever else comes counts as stray.
    pub fn on_message(&mut self, handler: impl FnMut(&[u8]) + Send + 'static) {
        self.handler = Some(Box::new(handler));
    }

    /// The channel that the calls travel over.
    pub fn channel(&self) -> &C {
        &self.channel
    }

    /// Number of messages that nobody here waited for: late or duplicated answers, and messages that had no handler.
    pub fn strays(&self) -> u64 {
        self.strays
    }

    /// Number of calls whose result nobody has taken yet.
    pub fn unanswered(&self) -> usize {
        self.unanswered.len()
    }

    /// Sends `call` if the channel has room; `None` says that it has none now.
    ///
    /// # Errors
    /// An argument that could not be encoded or does not fit a buffer; an unreliable channel that dropped the call;
    /// an offcode that has gone; 65,536 calls without an answer.
    #[inline]
    pub fn try_send<R>(&mut self, call: &Call<R>) -> Result<Option<Pending<R>>> {
        let one_way = call.is_one_way();
        if self.unanswered.len() == MOST_PENDING {
            return Err(trouble(
                call.name(),
                "65,536 calls of this channel wait for their results",
                "take or forget some",
            ));
        }
        let id = self.last.wrapping_add(1).max(1);
        match call.write_to(&mut self.channel, id)? {
            Written::Taken => {
                self.last = id;
                if !one_way {
                    self.unanswered.push(Unanswered { id, parked: None });
                }
                Ok(Some(Pending { id, one_way, result: call.result() }))
            }
            Written::Full => Ok(None),
            Written::Dropped => Err(trouble(
                call.name(),
                "the unreliable channel had no buffer for it and dropped it",
                "call again, or create the channel as reliable",
            )),
            Written::Gone => Err(gone(call.name())),
            Written::Refused => Err(trouble(
                call.name(),
                "the channel takes no such message",
                "shorten its arguments, or create the channel with larger buffers",
            )),
        }
    }

    /// Sends `call`, trying for up to `limit` while the channel has no room, with `between` run between the attempts.
    ///
    /// # Errors
    /// The errors of [`Caller::try_send`]; no room within the limit.
    #[inline]
    pub fn send<R>(&mut self, call: &Call<R>, limit: Nanoseconds, mut between: impl FnMut()) -> Result<Pending<R>> {
        let mut patience = Patience::new(limit);
        loop {
            if let Some(pending) = self.try_send(call)? {
                return Ok(pending);
            }
            between();
            if patience.is_over() {
                let cause = format!("the channel had no room for {limit}");
                return Err(trouble(call.name(), &cause, "see with `plimsoll ps` whether the offcode still works"));
            }
            // The other end may be full of answers for this one.
            self.sort()?;
        }
    }

    /// The result of `pending`, if it has come. Give it up with [`Caller::forget`], or ask again.
    ///
    /// # Errors
    /// The offcode's refusal; a result that does not decode; an offcode that has gone. No result of `pending` comes
    /// after it.
    #[inline]
    pub fn try_take<R>(&mut self, pending: &Pending<R>) -> Result<Option<R>> {
        match self.look(pending) {
            Ok(Found::It(result)) => result.map(Some),
            Ok(_) if self.channel.is_abandoned() => self.last_look(pending).map(Some),
            Ok(_) => Ok(None),
            Err(fault) => {
                self.discard(pending.id);
                Err(fault)
            }
        }
    }

    /// Polls until the result of `pending` is there, at most for `limit`. `between` runs between polls: an application
    /// that has offcodes at its own site gives it time there. The clock is looked at every 16 polls, so a slow
    /// `between` makes the limit that much coarser.
    ///
    /// # Errors
    /// The offcode's refusal; a result that does not decode; an offcode that has gone; no result within the limit: if it
    /// comes later it counts as stray.
    #[inline]
    pub fn wait<R>(&mut self, pending: Pending<R>, limit: Nanoseconds, mut between: impl FnMut()) -> Result<R> {
        let mut patience = Patience::new(limit);
        loop {
            match self.look(&pending) {
                Ok(Found::It(result)) => return result,
                Ok(Found::Another) => continue,
                Ok(Found::Nothing) => {}
                Err(fault) => {
                    self.discard(pending.id);
                    return Err(fault);
                }
            }
            between();
            if patience.looks() {
                if self.channel.is_abandoned() {
                    return self.last_look(&pending);
                }
                if patience.is_over() {
                    return Err(self.late(&pending, limit));
                }
            }
        }
    }

    /// Sleeps until the result of `pending` is there, at most for `limit`. For channels that are
    /// [`Synchronization::Blocking`]; others are polled.
    ///
    /// # Errors
    /// As [`Caller::wait`].
    pub fn sleep<R>(&mut self, pending: Pending<R>, limit: Nanoseconds) -> Result<R> {
        if self.channel.specification().synchronization != Synchronization::Blocking {
            return self.wait(pending, limit, || {});
        }
        let deadline = Instant::now() + Duration::from_nanos(limit.0);
        loop {
            match self.look(&pending) {
                Ok(Found::It(result)) => return result,
                Ok(Found::Another) => continue,
                Ok(Found::Nothing) if self.channel.is_abandoned() => return self.last_look(&pending),
                Ok(Found::Nothing) => {}
                Err(fault) => {
                    self.discard(pending.id);
                    return Err(fault);
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.late(&pending, limit));
            }
            self.channel.wait(Nanoseconds(left.as_nanos() as u64))?;
        }
    }

    /// Sends `call` and waits for its result, both within `limit` each.
    ///
    /// # Errors
    /// The errors of [`Caller::send`] and [`Caller::wait`].
    #[inline]
    pub fn call<R>(&mut self, call: &Call<R>, limit: Nanoseconds, mut between: impl FnMut()) -> Result<R> {
        let pending = self.send(call, limit, &mut between)?;
        self.wait(pending, limit, between)
    }

    /// Gives the result of `pending` up; if it comes it counts as stray.
    pub fn forget<R>(&mut self, pending: Pending<R>) {
        self.discard(pending.id);
    }

    /// Reads what has arrived without waiting for any of it: answers are parked, the rest goes to the handler.
    ///
    /// # Errors
    /// The errors of [`Channel::read_with`].
    pub fn sort(&mut self) -> Result<()> {
        while self.receive(0, |_| ())?.is_some() {}
        Ok(())
    }

    #[inline]
    fn look<R>(&mut self, pending: &Pending<R>) -> Result<Found<R>> {
        if pending.one_way {
            return Ok(Found::It(pending.result.read(Ok(&[]))));
        }
        // The newest are last, and mostly the newest is waited for.
        match self.unanswered.iter().rposition(|waiting| waiting.id == pending.id) {
            None => {
                let cause = "its result was taken already, or the call went over another channel";
                return Ok(Found::It(Err(trouble(
                    pending.result.name(),
                    cause,
                    "take each result once, where it was sent",
                ))));
            }
            Some(at) => {
                if let Some(parked) = self.unanswered[at].parked.take() {
                    self.unanswered.swap_remove(at);
                    return Ok(Found::It(pending.result.read(parked.as_deref())));
                }
            }
        }
        Ok(match self.receive(pending.id, |answer| pending.result.read(answer))? {
            None => Found::Nothing,
            Some(None) => Found::Another,
            Some(Some(result)) => Found::It(result),
        })
    }

    /// Reads one message, if there is one. The answer to `id` goes to `decode`, in place.
    #[inline]
    fn receive<T>(
        &mut self,
        id: u32,
        mut decode: impl FnMut(Result<&[u8], &Refusal>) -> T,
    ) -> Result<Option<Option<T>>> {
        let Caller { channel, unanswered, strays, handler, .. } = self;
        let (mut found, mut refuse) = (None, None);
        let any = channel.read_with(&mut |message| match Header::read(message) {
            Some((Header { kind: Kind::Reply, id: theirs, .. }, result)) if theirs == id && id != 0 => {
                found = Some(decode(Ok(result)));
            }
            Some((header, rest)) if matches!(header.kind, Kind::Reply | Kind::Refused) => {
                let refusal = Refusal(String::from_utf8_lossy(rest).into_owned());
                let answer = if header.kind == Kind::Reply { Ok(rest) } else { Err(&refusal) };
                if header.id == id && id != 0 {
                    found = Some(decode(answer));
                } else {
                    park(unanswered, strays, header.id, answer);
                }
            }
            Some((header, _)) if handler.is_none() && header.kind == Kind::Call => refuse = Some(header),
            _ => match handler {
                Some(handler) => handler(message),
                None => *strays += 1,
            },
        })?;
        if found.is_some()
            && let Some(at) = unanswered.iter().rposition(|waiting| waiting.id == id)
        {
            unanswered.swap_remove(at);
        }
        if let Some(header) = refuse {
            self.refuse(header)?;
        }
        Ok(any.then_some(found))
    }

    #[cold]
    fn refuse(&mut self, call: Header) -> Result<()> {
        let Refusal(why) = Refusal::no_such_interface(call.interface);
        let mut message = [0; Header::LENGTH].to_vec();
        if let Some(head) = message.first_chunk_mut() {
            Header { kind: Kind::Refused, ..call }.write(head);
        }
        message.extend_from_slice(why.as_bytes());
        // Where there is no room the caller at the other end runs into its time limit.
        let _ = self.channel.write(&message)?;
        Ok(())
    }

    /// The other end has gone; what it wrote before may still hold the answer.
    #[cold]
    fn last_look<R>(&mut self, pending: &Pending<R>) -> Result<R> {
        loop {
            match self.look(pending) {
                Ok(Found::It(result)) => return result,
                Ok(Found::Another) => {}
                Ok(Found::Nothing) => {
                    self.discard(pending.id);
                    return Err(gone(pending.result.name()));
                }
                Err(fault) => {
                    self.discard(pending.id);
                    return Err(fault);
                }
            }
        }
    }

    #[cold]
    fn late<R>(&mut self, pending: &Pending<R>, limit: Nanoseconds) -> Fault {
        self.discard(pending.id);
        let cause = format!("no result came within {limit}");
        trouble(pending.result.name(), &cause, "see with `plimsoll ps` whether the offcode still works, or wait longer")
    }

    fn discard(&mut self, id: u32) {
        self.unanswered.retain(|waiting| waiting.id != id);
    }
}

#[cold]
fn park(unanswered: &mut [Unanswered], strays: &mut u64, id: u32, answer: Result<&[u8], &Refusal>) {
    match unanswered.iter_mut().find(|waiting| waiting.id == id && waiting.parked.is_none()) {
        Some(waiting) => waiting.parked = Some(answer.map(<[u8]>::to_vec).map_err(Refusal::clone)),
        None => *strays += 1,
    }
}

fn trouble(name: &str, cause: &str, next: &str) -> Fault {
    Fault::new(format!("call {name}"), cause, next)
}

#[cold]
fn gone(name: &str) -> Fault {
    trouble(
        name,
        "the offcode at the other end has gone",
        "see with `plimsoll ps` what became of it, and create it again",
    )
}

/// A time limit that reads no clock until many polls have failed.
struct Patience {
    limit: Duration,
    polls: u32,
    next: u32,
    since: Option<Instant>,
}

impl Patience {
    fn new(limit: Nanoseconds) -> Self {
        Patience { limit: Duration::from_nanos(limit.0), polls: 0, next: BEFORE_CLOCK, since: None }
    }

    /// Counts a poll; whether it is time to look at the clock.
    #[inline]
    fn looks(&mut self) -> bool {
        self.polls += 1;
        if self.polls < self.next {
            return false;
        }
        (self.polls, self.next) = (0, BETWEEN_LOOKS);
        true
    }

    fn is_over(&mut self) -> bool {
        self.since.get_or_insert_with(Instant::now).elapsed() >= self.limit
    }
}

impl<R> Call<R> {
    /// Sends the call over one channel.
    ///
    /// # Errors
    /// The errors of [`Caller::try_send`]; a channel without room: [`Caller::send`] waits for room.
    #[inline]
    pub fn over<C: Channel>(&self, caller: &mut Caller<C>) -> Result<Pending<R>> {
        match caller.try_send(self)? {
            Some(pending) => Ok(pending),
            None => Err(trouble(self.name(), "the channel has no room", "take results first, or use `Caller::send`")),
        }
    }

    /// Sends the call to several offcodes, each over its own channel. Returns one entry for each, in the order of
    /// `callers`.
    pub fn send_to<C: Channel>(&self, callers: &mut [&mut Caller<C>]) -> Vec<Result<Pending<R>>> {
        callers.iter_mut().map(|caller| self.over(caller)).collect()
    }
}
