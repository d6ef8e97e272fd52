//! The out-of-band channel to another host: it travels in the control connection, encrypted like all there.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use machine::{Bytes, Fault, Nanoseconds, Result};
use offcode::channel::{Bell, Counted, Loss, Policy, Sleeper, Synchronization};
use offcode::{Channel, Delivery, Specification, Written};

use super::flow::{Flow, ON_THE_WAY};
use super::limits::Shares;
use super::protocol::Frame;
use super::wire::Outbox;

/// State of one channel in this process.
struct Shared {
    number: u32,
    largest: u64,
    outbox: Arc<Outbox>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    inbox: VecDeque<Vec<u8>>,
    flow: Flow,
    counted: Counted,
    /// Whether the other end is gone, or the connection.
    gone: bool,
    /// Bell of the thread that sleeps until something happens here.
    bell: Option<Arc<dyn Bell>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the threads that wait for something to happen.
    fn wake(&self, mut state: MutexGuard<'_, State>) {
        let bell = state.bell.take();
        drop(state);
        self.changed.notify_all();
        bell.iter().for_each(|bell| bell.ring());
    }

    fn close(&self) {
        let mut state = self.lock();
        state.gone = true;
        self.wake(state);
    }
}

/// The out-of-band channels of one connection.
#[derive(Default)]
pub(crate) struct Channels {
    table: Mutex<HashMap<u32, Weak<Shared>>>,
}

impl Channels {
    fn find(&self, number: u32) -> Option<Arc<Shared>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).get(&number)?.upgrade()
    }

    /// Makes this process's end of channel `number`, which keeps `shares`; `None` if there is one.
    pub fn open(
        &self,
        number: u32,
        specification: Specification,
        outbox: Arc<Outbox>,
        shares: Shares,
    ) -> Option<OutOfBand> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.retain(|_, shared| shared.strong_count() > 0);
        if table.contains_key(&number) {
            return None;
        }
        let mut specification = specification;
        specification.buffers.policy = Policy::Copy;
        let state = State {
            inbox: VecDeque::new(),
            flow: Flow::new(specification.buffers.count),
            counted: Counted::default(),
            gone: false,
            bell: None,
        };
        let shared = Arc::new(Shared {
            number,
            largest: specification.buffers.size.0,
            outbox,
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        table.insert(number, Arc::downgrade(&shared));
        Some(OutOfBand { shared, specification, _shares: shares })
    }

    /// Takes a message. `Err`: the peer broke the rules. One for a channel that was just closed here is dropped.
    pub fn message(&self, number: u32, payload: &[u8]) -> Result<(), String> {
        let Some(shared) = self.find(number) else { return Ok(()) };
        if payload.len() as u64 > shared.largest {
            return Err(format!("channel {number} got a message of {} bytes, beyond its buffers", payload.len()));
        }
        let mut state = shared.lock();
        if !state.flow.received() {
            return Err(format!("channel {number} got more messages than it has buffers"));
        }
        state.inbox.push_back(payload.to_vec());
        shared.wake(state);
        Ok(())
    }

    pub fn credit(&self, number: u32, read: u64) -> Result<(), String> {
        let Some(shared) = self.find(number) else { return Ok(()) };
        let mut state = shared.lock();
        if !state.flow.credit(read) {
            return Err(format!("channel {number} got a false credit"));
        }
        // The owner may have room again for messages that it has yet to write.
        shared.wake(state);
        Ok(())
    }

    pub fn close(&self, number: u32) {
        if let Some(shared) = self.find(number) {
            shared.close();
        }
    }

    /// Closes all channels at the end of the connection.
    pub fn close_all(&self) {
        let all: Vec<_> = self.table.lock().unwrap_or_else(PoisonError::into_inner).drain().collect();
        for shared in all.iter().filter_map(|(_, shared)| shared.upgrade()) {
            shared.close();
        }
    }
}

/// One end of a channel.
pub(crate) struct OutOfBand {
    shared: Arc<Shared>,
    specification: Specification,
    _shares: Shares,
}

/// Memory of messages that may wait here to be read; those to be sent wait in the outbox.
pub(crate) fn memory(specification: &Specification) -> Bytes {
    let buffers = &specification.buffers;
    Bytes(buffers.size.0.saturating_mul(u64::from(buffers.count) * (1 + ON_THE_WAY)))
}

/// The fault of a message that no buffer holds.
pub(crate) fn too_long(length: usize, specification: &Specification) -> Fault {
    Fault::new(
        format!("message of {length} bytes"),
        format!("the channel's buffers hold {} bytes", specification.buffers.size.0),
        "make the channel with larger buffers",
    )
}

pub(crate) fn not_blocking() -> Fault {
    Fault::new("waiting on a channel", "it was made to be polled", "make it with synchronization 'blocking'")
}

impl Channel for OutOfBand {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn write_with(&mut self, length: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<Written> {
        if length as u64 > self.specification.buffers.size.0 {
            return Err(too_long(length, &self.specification));
        }
        let mut state = self.shared.lock();
        if state.gone {
            return Ok(Written::Gone);
        }
        if !state.flow.has_room() {
            return Ok(match self.specification.delivery {
                Delivery::Reliable => {
                    state.counted.full += 1;
                    Written::Full
                }
                Delivery::Unreliable => {
                    state.counted.dropped += 1;
                    Written::Dropped
                }
            });
        }
        let mut payload = vec![0; length];
        fill(&mut payload);
        // Pushed within the lock: messages of one channel keep their order.
        if !self.shared.outbox.push(&Frame::Message { channel: self.shared.number, payload: &payload }) {
            state.gone = true;
            return Ok(Written::Gone);
        }
        state.flow.sent();
        state.counted.written += 1;
        Ok(Written::Taken)
    }

    fn read_with(&mut self, deliver: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut state = self.shared.lock();
        let Some(message) = state.inbox.pop_front() else { return Ok(false) };
        state.counted.read += 1;
        if let Some(read) = state.flow.read() {
            self.shared.outbox.push(&Frame::Credit { channel: self.shared.number, read });
        }
        drop(state);
        deliver(&message);
        Ok(true)
    }

    fn poll(&mut self) -> Result<bool> {
        Ok(!self.shared.lock().inbox.is_empty())
    }

    fn wait(&mut self, limit: Nanoseconds) -> Result<bool> {
        if self.specification.synchronization != Synchronization::Blocking {
            return Err(not_blocking());
        }
        let deadline = Instant::now().checked_add(Duration::from_nanos(limit.0));
        let mut state = self.shared.lock();
        while state.inbox.is_empty() && !state.gone {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let left = left.unwrap_or(Duration::from_secs(3600));
            if left.is_zero() {
                break;
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(!state.inbox.is_empty())
    }

    fn arm(&mut self, sleeper: &mut dyn Sleeper) -> bool {
        let mut state = self.shared.lock();
        state.bell = Some(sleeper.bell());
        state.inbox.is_empty()
    }

    fn is_abandoned(&self) -> bool {
        self.shared.lock().gone
    }

    fn loses(&self) -> Loss {
        Loss::Agent
    }

    fn counted(&self) -> Counted {
        self.shared.lock().counted
    }
}

impl Drop for OutOfBand {
    fn drop(&mut self) {
        self.shared.outbox.push(&Frame::Close { channel: self.shared.number });
    }
}
