//! Shared contexts. One for receives is an endpoint without an engine: a receive posted there waits until a message for it has
//! come to one of the endpoints that use the context, and goes to that one's engine then. Other endpoints pay nothing for it:
//! queues and counters drive it as they drive endpoints. One for sends is a name only, since each endpoint has its own engine.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::AtomicUsize;

use endpoint::{Source, TagSelector};

use crate::abi::Signed;
use crate::abi::completion::ErrorEntry;
use crate::abi::constants::*;
use crate::abi::object::FidTransmitContext;
use crate::domain::Domain;
use crate::endpoint::{Endpoint, Sources, State};
use crate::memory::{Memory, wish};
use crate::object::{Context, Object, Used};
use crate::refuse::signed;

/// A shared receive context.
#[repr(transparent)]
pub struct SharedReceives(pub Endpoint);

// SAFETY: an endpoint begins with a `Fid`.
unsafe impl Object for SharedReceives {
    const CLASS: usize = FI_CLASS_SRX_CTX;

    fn users(&self) -> &AtomicUsize {
        self.0.users()
    }
}

/// State of such a context.
#[derive(Default)]
pub struct Shared {
    posted: VecDeque<Posted>,
    /// Endpoints that use it; each leaves before it is freed.
    members: Vec<NonNull<Endpoint>>,
}

pub struct Posted {
    pub selector: TagSelector,
    pub memory: Memory,
    pub context: Context,
}

impl SharedReceives {
    /// # Safety
    /// The domain is entered, no reference to the context's state is in use, and the endpoint stays until
    /// [`SharedReceives::leave`].
    pub unsafe fn join(&self, member: NonNull<Endpoint>) {
        // SAFETY: the caller's promise.
        if let Some(shared) = unsafe { &mut self.0.state().shared } {
            shared.members.push(member);
        }
    }

    /// Notes that an endpoint is enabled: its receives' queue and counters drive the context too.
    ///
    /// # Safety
    /// The domain is entered, and the context stays until the last of its members has left.
    pub unsafe fn enable(&self, member: &State) {
        let me = NonNull::from(&self.0);
        // SAFETY: the caller's promise.
        unsafe {
            member.receives.iter().for_each(|queue| queue.join(me));
            member.counters.iter().for_each(|(counter, _)| counter.join(me));
        }
    }

    /// # Safety
    /// The domain is entered, and no reference to the state of the context or another member is in use.
    pub unsafe fn leave(&self, member: NonNull<Endpoint>, state: &State) {
        let me = NonNull::from(&self.0);
        // SAFETY: the caller's promise.
        unsafe {
            state.receives.iter().for_each(|queue| queue.leave(me));
            state.counters.iter().for_each(|(counter, _)| counter.leave(me));
            let Some(shared) = &mut self.0.state().shared else { return };
            shared.members.retain(|&other| other != member);
            // Remaining members may use the same queue.
            for other in &shared.members {
                self.enable(other.as_ref().state());
            }
        }
    }
}

impl State {
    /// Posts a receive of an endpoint without an engine.
    #[cold]
    #[inline(never)]
    pub fn post_shared(&mut self, receive: Posted) -> Signed {
        let Some(shared) = &mut self.shared else { return signed(FI_EOPBADSTATE) };
        if receive.memory.wishes & wish::MULTIPLE != 0 {
            return signed(FI_EOPNOTSUPP);
        }
        shared.posted.push_back(receive);
        self.share_out();
        0
    }

    /// Gives receives to the members that have messages for them.
    #[cold]
    #[inline(never)]
    pub fn share_out(&mut self) {
        let Some(shared) = &mut self.shared else { return };
        for member in &shared.members {
            // SAFETY: members are open, are other objects than this one, and the domain is entered.
            unsafe { member.as_ref().state() }.take_from(&mut shared.posted);
        }
    }

    /// Cancels a receive of a shared context, also one that a member has taken.
    ///
    /// # Safety
    /// The domain is entered, and no reference to the state of a member is in use.
    pub unsafe fn cancel_shared(&mut self, context: Context) -> Signed {
        let Some(shared) = &mut self.shared else { return signed(FI_EINVAL) };
        // SAFETY: the caller's promise; members are open, are other objects than this one.
        unsafe {
            if let Some(at) = shared.posted.iter().position(|receive| receive.context == context) {
                let receive = shared.posted.remove(at);
                // Any of the queues may report it.
                let queue = shared.members.iter().find_map(|member| member.as_ref().state().receives.as_ref());
                if let (Some(receive), Some(queue)) = (receive, queue) {
                    let kind = if receive.memory.wishes & wish::TAGGED != 0 { FI_TAGGED } else { FI_MSG };
                    queue.push_error(ErrorEntry::new(context, FI_RECV | kind, FI_ECANCELED));
                }
                return 0;
            }
            for member in &shared.members {
                let state = member.as_ref().state();
                let Some(engine) = &mut state.engine else { continue };
                match engine.cancel_context(context as u64) {
                    Ok(true) => return 0,
                    Ok(false) => {}
                    Err(fault) => return state.fail_for_now(&fault),
                }
            }
        }
        signed(FI_ENOENT)
    }

    fn take_from(&mut self, posted: &mut VecDeque<Posted>) {
        if self.failed || !self.is_enabled() {
            return;
        }
        let source = if self.sources == Sources::Connected { self.connected_source() } else { Some(Source::Any) };
        let Some(source) = source else { return };
        let always = if self.always_received != 0 { wish::COMPLETION } else { 0 };
        let Some(engine) = &mut self.engine else { return };
        let mut take = || {
            // A message may come meanwhile: the search ends when the first receive is found again.
            let mut first = None;
            loop {
                let mut missed = None;
                let mut found = None;
                for (at, receive) in posted.iter().enumerate().take(first.map_or(usize::MAX, |first: usize| first + 1))
                {
                    if missed == Some(receive.selector) {
                        continue;
                    }
                    if engine.probe(source, receive.selector)?.is_some() {
                        found = Some(at);
                        break;
                    }
                    missed = Some(receive.selector);
                }
                let Some(at) = found else { return Ok(()) };
                if at > 0 && first != Some(at) {
                    first = Some(at);
                    continue;
                }
                first = None;
                let Some(Posted { selector, mut memory, context }) = posted.remove(at) else { return Ok(()) };
                memory.wishes |= always;
                engine.receive(source, selector, memory, context as u64)?;
            }
        };
        let taken: machine::Result<()> = take();
        if let Err(fault) = taken {
            self.fail(&fault);
        }
    }
}

/// A shared transmit context.
#[repr(C)]
pub struct SharedSends {
    fid: FidTransmitContext,
    users: AtomicUsize,
    _domain: Used<Domain>,
}

impl SharedSends {
    pub fn new(fid: FidTransmitContext, domain: Used<Domain>) -> SharedSends {
        SharedSends { fid, users: AtomicUsize::new(0), _domain: domain }
    }
}

// SAFETY: it begins with a `Fid`.
unsafe impl Object for SharedSends {
    const CLASS: usize = FI_CLASS_STX_CTX;

    fn users(&self) -> &AtomicUsize {
        &self.users
    }
}
