//! Triggered operations and deferred work, fi_trigger(3): operations posted once a counter has reached a threshold.
//!
//! They wait in the domain, by counter. Every call that enters a domain with waiting operations drives, before it returns, the
//! endpoints whose operations the counters count, and posts what is due; counters change in calls only, also at `core:N`.
//! Without waiting operations a call pays for the check of one flag.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use endpoint::Completion;

use crate::abi::completion::ErrorEntry;
use crate::abi::constants::*;
use crate::abi::object::{FidCounter, FidEndpoint};
use crate::abi::trigger::{DeferredWork, TriggeredContext};
use crate::abi::{Address, Signed};
use crate::arguments::given;
use crate::counter::Counter;
use crate::domain::Domain;
use crate::endpoint::{Endpoint, Sources, State};
use crate::memory::{Memory, wish};
use crate::object::{self, Context, Guarded, Used};
use crate::refuse::signed;

/// Waiting operations of a domain.
#[derive(Default)]
pub struct Triggers {
    any: AtomicBool,
    /// Queues; none is empty between calls.
    queues: Guarded<Vec<Queue>>,
}

/// Operations that wait for one counter.
struct Queue {
    counter: Used<Counter>,
    /// Whether errors count too: they do for deferred work, not for a triggered operation.
    errors_too: bool,
    /// Operations by threshold, those with the same one in order of arrival.
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    threshold: u64,
    /// Address of deferred work, by which the application names it; else NULL.
    name: *const DeferredWork,
    then: DueOperation,
}

/// The operation that is due.
enum DueOperation {
    Transfer(Transfer),
    Add(Used<Counter>, u64),
    Set(Used<Counter>, u64),
}

struct Transfer {
    /// The endpoint, which removes the operation here before it is freed.
    endpoint: NonNull<Endpoint>,
    context: Context,
    /// The flags of its completion.
    kind: u64,
    /// Posts the operation as its call would have.
    post: Box<dyn FnMut(&mut State) -> Signed>,
    /// The counter of deferred work's end.
    counted: Option<Counted>,
}

/// The one counter, if any, of deferred work's end.
type Counted = Option<Used<Counter>>;

/// Deferred work that an endpoint has begun, by tickets, which travel with its memory.
#[derive(Default)]
pub struct Deferred {
    /// Ticket of the work that is being posted; else 0.
    pub posted: u32,
    last: u32,
    begun: HashMap<u32, Counted>,
}

/// An operation to be triggered.
pub struct Asked<'a> {
    pub to: Address,
    pub context: Context,
    pub flags: u64,
    /// The flags of its completion.
    pub kind: u64,
    /// Deferred work; for other operations the context names the counter and threshold.
    pub work: Option<&'a DeferredWork>,
}

const DIRECTIONS: u64 = FI_SEND | FI_RECV | FI_READ | FI_WRITE;

impl Queue {
    fn has_come_to(&self, threshold: u64) -> bool {
        has_come(&self.counter, self.errors_too, threshold)
    }

    fn take_due(&mut self) -> Option<Waiting> {
        let due = self.waiting.front().is_some_and(|waiting| self.has_come_to(waiting.threshold));
        if due { self.waiting.pop_front() } else { None }
    }
}

fn has_come(counter: &Counter, errors_too: bool, threshold: u64) -> bool {
    let (successes, errors) = counter.standing();
    successes.saturating_add(if errors_too { errors } else { 0 }) >= threshold
}

impl Waiting {
    /// # Safety
    /// The domain is entered, and no reference to the state of an endpoint of it is in use.
    unsafe fn begin(&mut self) -> Signed {
        match &mut self.then {
            DueOperation::Add(counter, value) => counter.add(*value),
            DueOperation::Set(counter, value) => counter.set(*value),
            // SAFETY: the caller's promise; the endpoint is open.
            DueOperation::Transfer(transfer) => return unsafe { transfer.begin() },
        }
        0
    }

    fn transfer(&self) -> Option<&Transfer> {
        if let DueOperation::Transfer(transfer) = &self.then { Some(transfer) } else { None }
    }
}

impl Transfer {
    /// # Safety
    /// As for [`Waiting::begin`].
    unsafe fn begin(&mut self) -> Signed {
        // SAFETY: the caller's promise.
        let state = unsafe { self.endpoint.as_ref().state() };
        match &self.counted {
            None => (self.post)(state),
            Some(counted) => state.post_deferred(counted, &mut self.post),
        }
    }

    /// Reports a failure after the operation's call had returned.
    ///
    /// # Safety
    /// As for [`Waiting::begin`].
    unsafe fn fail(&self, error: c_int) {
        // SAFETY: the caller's promise.
        let state = unsafe { self.endpoint.as_ref().state() };
        let tell = |state: &mut State| {
            let queue = if self.kind & FI_RECV != 0 { &state.receives } else { &state.sends };
            if let Some(queue) = queue {
                // SAFETY: the domain is entered.
                unsafe { queue.push_error(ErrorEntry::new(self.context, self.kind, error)) };
            }
            state.count(self.kind & DIRECTIONS, true);
        };
        match &self.counted {
            None => tell(state),
            Some(counted) => state.counting(counted.clone(), tell),
        }
    }
}

impl Triggers {
    /// Whether any operation waits.
    #[inline]
    pub fn any(&self) -> bool {
        // In order with queueing: either this sees an operation, or its queueing sees the application's change.
        self.any.load(Ordering::SeqCst)
    }

    /// Begins an operation at once if it is due and no other waits for its counter.
    ///
    /// # Safety
    /// As for [`Waiting::begin`].
    unsafe fn submit(&self, counter: Used<Counter>, errors_too: bool, mut waiting: Waiting) -> Signed {
        // SAFETY: the caller's promise; beginning touches no queue.
        unsafe {
            let queues = self.queues.get();
            let mut same =
                queues.iter_mut().filter(|queue| queue.counter.is(&counter) && queue.errors_too == errors_too);
            if let Some(queue) = same.next() {
                let at = queue.waiting.partition_point(|other| other.threshold <= waiting.threshold);
                queue.waiting.insert(at, waiting);
                return 0;
            }
            if has_come(&counter, errors_too, waiting.threshold) {
                return waiting.begin();
            }
            queues.push(Queue { counter, errors_too, waiting: VecDeque::from([waiting]) });
            self.any.store(true, Ordering::SeqCst);
        }
        0
    }

    /// Drops `unwanted` operations; returns how many.
    ///
    /// # Safety
    /// The domain is entered.
    unsafe fn drop_all(&self, mut unwanted: impl FnMut(&Counter, &Waiting) -> bool) -> usize {
        // SAFETY: the caller's promise.
        let queues = unsafe { self.queues.get() };
        let mut dropped = 0;
        for Queue { counter, waiting, .. } in queues.iter_mut() {
            let before = waiting.len();
            waiting.retain(|waiting| !unwanted(counter, waiting));
            dropped += before - waiting.len();
        }
        self.settle(queues);
        dropped
    }

    fn settle(&self, queues: &mut Vec<Queue>) {
        queues.retain(|queue| !queue.waiting.is_empty());
        self.any.store(!queues.is_empty(), Ordering::SeqCst);
    }

    /// Drops the operations of an endpoint that is about to be closed, as in fi_endpoint(3).
    ///
    /// # Safety
    /// The domain is entered.
    pub unsafe fn forget(&self, endpoint: NonNull<Endpoint>) {
        if self.any() {
            // SAFETY: the caller's promise.
            unsafe { self.drop_all(|_, waiting| waiting.transfer().is_some_and(|at| at.endpoint == endpoint)) };
        }
    }

    /// Cancels a triggered operation; false if none with that context waits. Deferred work is cancelled by name.
    ///
    /// # Safety
    /// As for [`Waiting::begin`].
    pub unsafe fn cancel(&self, endpoint: NonNull<Endpoint>, context: Context) -> bool {
        let mut found = false;
        // SAFETY: the caller's promise; a failure touches no queue.
        let cancel = |_: &Counter, waiting: &Waiting| unsafe {
            let transfer = waiting.transfer().filter(|transfer| {
                !found && waiting.name.is_null() && transfer.endpoint == endpoint && transfer.context == context
            });
            found |= transfer.is_some();
            transfer.inspect(|transfer| transfer.fail(FI_ECANCELED)).is_some()
        };
        // SAFETY: the caller's promise.
        self.any() && unsafe { self.drop_all(cancel) } > 0
    }

    /// Cancels deferred work; false if none of that name waits.
    ///
    /// # Safety
    /// The domain is entered.
    pub unsafe fn cancel_work(&self, name: *const DeferredWork) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.drop_all(|_, waiting| waiting.name == name) > 0 }
    }

    /// Drops all deferred work, or that which waits for `counter`.
    ///
    /// # Safety
    /// The domain is entered.
    pub unsafe fn flush_work(&self, counter: Option<&Counter>) {
        // SAFETY: the caller's promise.
        unsafe {
            self.drop_all(|of, waiting| {
                !waiting.name.is_null() && counter.is_none_or(|counter| std::ptr::eq(counter, of))
            })
        };
    }
}

impl Domain {
    /// Drives endpoints that advance counters with waiting operations, and begins operations that are due. An operation that
    /// cannot begin now stays, with those behind it in its queue.
    ///
    /// # Safety
    /// As for [`Domain::progress`].
    #[cold]
    #[inline(never)]
    pub unsafe fn trigger(&self) {
        // SAFETY: the caller's promise; neither progress nor a beginning touches the queues.
        unsafe {
            let queues = self.triggers.queues.get();
            if queues.iter().any(|queue| queue.counter.counts_everywhere()) {
                self.progress();
            }
            for queue in queues.iter().filter(|queue| !queue.counter.counts_everywhere()) {
                queue.counter.turn();
            }
            let mut begun = true;
            while std::mem::take(&mut begun) {
                for queue in queues.iter_mut() {
                    while let Some(mut waiting) = queue.take_due() {
                        match waiting.begin() {
                            0 => {}
                            busy if busy == signed(FI_EAGAIN) => {
                                queue.waiting.push_front(waiting);
                                break;
                            }
                            error => {
                                if let Some(transfer) = waiting.transfer() {
                                    transfer.fail(-error as c_int);
                                }
                            }
                        }
                        begun = true;
                    }
                }
            }
            self.triggers.settle(queues);
            // The caller may not come back soon.
            self.hand_over();
        }
    }

    /// Queues an operation on a counter.
    ///
    /// # Safety
    /// libfabric's contract: the work is such an operation, its counters NULL or open objects.
    pub unsafe fn queue_count(&self, work: &DeferredWork) -> Signed {
        // SAFETY: the caller's promise.
        unsafe {
            let _entered = self.enter();
            let (Some((triggering, None)), Some(counted)) =
                (counters(work, self), counter((*work.op.counter).counter, self))
            else {
                return signed(FI_EINVAL);
            };
            counted.count_everywhere();
            let value = (*work.op.counter).value;
            let then = if work.op_type == FI_OP_CNTR_SET {
                DueOperation::Set(counted, value)
            } else {
                DueOperation::Add(counted, value)
            };
            self.triggers.submit(triggering, true, Waiting { threshold: work.threshold, name: work, then })
        }
    }
}

impl State {
    /// Has `act` count in that counter only.
    fn counting<T>(&mut self, counted: Counted, act: impl FnOnce(&mut State) -> T) -> T {
        let counters = counted.map(|counter| (counter, u64::MAX)).into_iter().collect();
        let usual = std::mem::replace(&mut self.counters, counters);
        let done = act(self);
        self.counters = usual;
        done
    }

    /// Posts deferred work, whose end is counted by the work's counter instead of the endpoint's.
    fn post_deferred(&mut self, counted: &Counted, post: &mut dyn FnMut(&mut State) -> Signed) -> Signed {
        let ticket = self.deferred.ticket();
        self.deferred.begun.insert(ticket, counted.clone());
        self.deferred.posted = ticket;
        let always = (std::mem::take(&mut self.always_sent), std::mem::take(&mut self.always_received));
        let posted = self.counting(counted.clone(), post);
        (self.always_sent, self.always_received) = always;
        // The ticket was not taken: the work has ended, or was not posted.
        if std::mem::take(&mut self.deferred.posted) != 0 {
            self.deferred.begun.remove(&ticket);
        }
        posted
    }

    /// Counts and reports the end of an operation: of deferred work or, with ticket 0, of another.
    pub fn end(&mut self, ticket: u32, act: impl FnOnce(&mut State)) {
        match self.deferred.begun.remove(&ticket) {
            Some(counted) => self.counting(counted, act),
            None => act(self),
        }
    }

    /// Handles the end of a send or receive of deferred work.
    #[cold]
    #[inline(never)]
    pub fn finish_deferred(&mut self, mut done: Completion<Memory>) {
        let ticket = done.buffer.ticket();
        done.buffer.wishes &= !wish::DEFERRED;
        self.end(ticket, |state| state.finish(done, None));
    }
}

impl Deferred {
    fn ticket(&mut self) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1);
            if self.last != 0 && !self.begun.contains_key(&self.last) {
                return self.last;
            }
        }
    }
}

impl Memory {
    /// Ticket of deferred work; else 0.
    pub fn ticket(&self) -> u32 {
        if self.wishes & wish::DEFERRED != 0 { self.source } else { 0 }
    }

    /// Takes the ticket of deferred work that is being posted.
    #[inline]
    pub fn defer(&mut self, posted: &mut u32) {
        if *posted != 0 {
            self.source = std::mem::take(posted);
            self.wishes |= wish::DEFERRED;
        }
    }
}

/// A counter of that domain.
///
/// # Safety
/// `fid` is NULL or an open object.
unsafe fn counter(fid: *const FidCounter, domain: &Domain) -> Option<Used<Counter>> {
    // SAFETY: the caller's promise.
    unsafe {
        let counter = object::of::<Counter>(fid.cast())?;
        std::ptr::eq(&**counter.domain(), domain).then(|| Used::new(counter))
    }
}

/// The counter that deferred work waits for, and that of its end. Waits for these counters drive all endpoints.
///
/// # Safety
/// The domain is entered; the counters are NULL or open objects.
unsafe fn counters(work: &DeferredWork, domain: &Domain) -> Option<(Used<Counter>, Counted)> {
    // SAFETY: the caller's promise.
    unsafe {
        let triggering = counter(work.triggering, domain)?;
        let completion = counter(work.completion, domain);
        if completion.is_none() && !work.completion.is_null() {
            return None;
        }
        completion.iter().for_each(|counter| counter.count_everywhere());
        Some((triggering, completion))
    }
}

/// Posts an operation once its counter has reached its threshold.
///
/// # Safety
/// libfabric's contract: an open endpoint, a context and work that are as fi_trigger(3) wants them. What `post` uses of the
/// application's memory stays until the operation ends or is cancelled, or the endpoint is closed.
pub unsafe fn wait(ep: *mut FidEndpoint, asked: &Asked, post: impl FnMut(&mut State) -> Signed + 'static) -> Signed {
    // SAFETY: the caller's promise; the domain is entered before the state is touched.
    unsafe {
        let endpoint = Endpoint::of(ep);
        let domain = &*endpoint.domain;
        let _entered = domain.enter();
        let state = endpoint.state();
        // The provider may not read an inject's buffer later.
        if state.caps & FI_TRIGGER == 0 || asked.flags & FI_INJECT != 0 {
            return signed(FI_EINVAL);
        }
        if !state.is_enabled() {
            return signed(FI_EOPBADSTATE);
        }
        let receives = asked.kind & FI_RECV != 0;
        let known = match receives {
            true => state.source(asked.to).is_some() || state.sources == Sources::Connected,
            false => state.peer(asked.to).is_some(),
        };
        if !known {
            return state.nobody();
        }
        let (counter, threshold, counted) = match asked.work {
            Some(work) => {
                // Which of its messages would be the end is undefined.
                if asked.flags & FI_MULTI_RECV != 0 && receives {
                    return signed(FI_ENOSYS);
                }
                let Some((triggering, completion)) = counters(work, domain) else { return signed(FI_EINVAL) };
                (triggering, work.threshold, Some(completion))
            }
            None => {
                let Some(context) = given(asked.context.cast::<TriggeredContext>()) else { return signed(FI_EINVAL) };
                match context.event_type {
                    FI_TRIGGER_THRESHOLD => {}
                    FI_TRIGGER_XPU => return signed(FI_ENOSYS),
                    _ => return signed(FI_EINVAL),
                }
                let Some(counter) = self::counter(context.counter, domain) else { return signed(FI_EINVAL) };
                (counter, context.threshold as u64, None)
            }
        };
        let errors_too = asked.work.is_some();
        let (context, kind) = (asked.context, asked.kind);
        let transfer = Transfer { endpoint: NonNull::from(endpoint), context, kind, post: Box::new(post), counted };
        let name = asked.work.map_or(std::ptr::null(), std::ptr::from_ref);
        domain.triggers.submit(counter, errors_too, Waiting { threshold, name, then: DueOperation::Transfer(transfer) })
    }
}
