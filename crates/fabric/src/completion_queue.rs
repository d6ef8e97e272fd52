//! Completion queues. A read lets the endpoints progress and writes completions straight into the caller's memory; only events
//! of other queues, and of sends that ended in their call, wait to be read.

use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use machine::bounds::WRITTEN_UNREAD;

use crate::abi::completion::{CONTEXT_ENTRY, DATA_ENTRY, Entry, ErrorEntry, MSG_ENTRY, TAGGED_ENTRY};
use crate::abi::constants::*;
use crate::abi::fid::{Fid, Ops};
use crate::abi::info::CompletionQueueAttr;
use crate::abi::object::{CompletionQueueOps, FidCompletionQueue, FidDomain};
use crate::abi::{Address, Signed};
use crate::arguments::tell;
use crate::domain::Domain;
use crate::endpoint::Endpoint;
use crate::object::{self, Guarded, Object, Used};
use crate::refuse::{self, signed};
use crate::wait_object::WaitObject;
use crate::waiting::Wait;

#[repr(C)]
pub struct CompletionQueue {
    fid: FidCompletionQueue,
    users: AtomicUsize,
    domain: Used<Domain>,
    /// Bytes of an entry in this queue's format.
    entry: usize,
    pub waits: WaitObject,
    signalled: AtomicBool,
    state: Guarded<State>,
}

#[derive(Default)]
struct State {
    waiting: Waiting,
    errors: VecDeque<ErrorEntry>,
    /// Bound endpoints; each leaves before it is freed.
    endpoints: Vec<NonNull<Endpoint>>,
}

/// Entries that wait to be read, in order.
#[derive(Default)]
struct Waiting {
    entries: Vec<(Entry, Address)>,
    /// Number of `entries` that were read.
    read: usize,
}

impl Waiting {
    #[inline]
    fn len(&self) -> usize {
        self.entries.len() - self.read
    }

    /// Moves entries into the reader's array as far as it has room.
    #[inline(never)]
    fn read_into(&mut self, reader: &mut Reader) {
        let count = self.len().min(reader.left);
        let upto = self.read + count;
        self.entries[self.read..upto].iter().for_each(|(entry, source)| reader.put(entry, || *source));
        self.read = upto;
        if self.read > self.entries.len() / 2 {
            self.entries.drain(..self.read);
            self.read = 0;
        }
    }
}

/// The caller's array of entries, while it is filled.
pub struct Reader {
    queue: *const CompletionQueue,
    at: *mut u8,
    sources: *mut Address,
    entry: usize,
    /// Entries that it has room for still.
    left: usize,
    /// Whether an endpoint's engine has failed.
    pub failed: bool,
}

// SAFETY: it begins with a `Fid`.
unsafe impl Object for CompletionQueue {
    const CLASS: usize = FI_CLASS_CQ;

    fn users(&self) -> &AtomicUsize {
        &self.users
    }
}

static BASE: Ops = Ops {
    size: size_of::<Ops>(),
    close: object::close::<CompletionQueue>,
    bind: refuse::bind,
    control,
    ops_open: refuse::ops_open,
    tostr: refuse::tostr,
    ops_set: refuse::ops_set,
};

/// # Safety
/// libfabric's contract.
unsafe extern "C" fn control(fid: *mut Fid, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { object::of::<CompletionQueue>(fid).map_or(-FI_EINVAL, |object| object.waits.control(command, argument)) }
}

static OPS: CompletionQueueOps = CompletionQueueOps {
    size: size_of::<CompletionQueueOps>(),
    read,
    readfrom,
    readerr,
    sread,
    sreadfrom,
    signal,
    strerror,
};

pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut CompletionQueueAttr,
    into: *mut *mut FidCompletionQueue,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's contract: the domain is open, the rest NULL or good.
    let (domain, format, waits) = unsafe {
        let Some(domain) = object::of::<Domain>(domain.cast()) else { return -FI_EINVAL };
        let attr = attr.as_mut();
        if let Some(attr) = attr {
            if attr.format == FI_CQ_FORMAT_UNSPEC {
                attr.format = FI_CQ_FORMAT_TAGGED;
            }
            (Used::new(domain), attr.format, attr.wait_obj)
        } else {
            (Used::new(domain), FI_CQ_FORMAT_TAGGED, FI_WAIT_UNSPEC)
        }
    };
    let entry = match format {
        FI_CQ_FORMAT_CONTEXT => CONTEXT_ENTRY,
        FI_CQ_FORMAT_MSG => MSG_ENTRY,
        FI_CQ_FORMAT_DATA => DATA_ENTRY,
        FI_CQ_FORMAT_TAGGED => TAGGED_ENTRY,
        _ => return -FI_ENOSYS,
    };
    let waits = match WaitObject::open(waits) {
        Ok(waits) => waits,
        Err(error) => return error,
    };
    let queue = CompletionQueue {
        fid: FidCompletionQueue { fid: Fid { class: FI_CLASS_CQ, context, ops: &BASE }, ops: &OPS },
        users: AtomicUsize::new(0),
        domain,
        entry,
        waits,
        signalled: AtomicBool::new(false),
        state: Guarded::new(State::default()),
    };
    // SAFETY: as above.
    unsafe { object::open(queue, into) }
}

impl Reader {
    /// Whether this is the array of a read of `queue`.
    #[inline]
    pub fn is_of(&self, queue: *const CompletionQueue) -> bool {
        std::ptr::eq(self.queue, queue)
    }

    #[inline]
    pub fn is_full(&self) -> bool {
        self.left == 0
    }

    /// Writes an entry; there must be room. `source` is asked where the caller wants sources.
    #[inline(always)]
    pub fn put(&mut self, entry: &Entry, source: impl FnOnce() -> Address) {
        debug_assert!(self.left > 0);
        // SAFETY: there is room for `left` entries of `entry` bytes at `at`, and for a source each; all formats are beginnings
        // of `Entry`.
        unsafe {
            if self.entry == TAGGED_ENTRY {
                self.at.cast::<Entry>().write_unaligned(*entry);
            } else {
                self.put_beginning(Entry { ..*entry });
            }
            self.at = self.at.add(self.entry);
            if !self.sources.is_null() {
                *self.sources = source();
                self.sources = self.sources.add(1);
            }
        }
        self.left -= 1;
    }

    /// Writes as much of an entry as the format has.
    // Out of line, with a copy: the entry of the usual format need not lie in memory.
    #[cold]
    #[inline(never)]
    fn put_beginning(&mut self, entry: Entry) {
        // SAFETY: as in `put`, which has checked that the format is shorter than the entry.
        unsafe { self.at.copy_from_nonoverlapping((&raw const entry).cast(), self.entry) };
    }
}

const _: () = assert!(size_of::<Entry>() == TAGGED_ENTRY);

impl CompletionQueue {
    /// # Safety
    /// The domain is entered, the endpoint stays until [`CompletionQueue::leave`].
    pub unsafe fn join(&self, endpoint: NonNull<Endpoint>) {
        // SAFETY: the caller's promise.
        let endpoints = unsafe { &mut self.state.get().endpoints };
        if !endpoints.contains(&endpoint) {
            endpoints.push(endpoint);
        }
    }

    /// # Safety
    /// The domain is entered.
    pub unsafe fn leave(&self, endpoint: NonNull<Endpoint>) {
        // SAFETY: the caller's promise.
        unsafe { self.state.get() }.endpoints.retain(|&other| other != endpoint);
    }

    /// # Safety
    /// The domain is entered.
    #[inline(always)]
    pub unsafe fn push(&self, entry: Entry, source: Address) {
        // SAFETY: the caller's promise; no reference into the state outlives a function of this file.
        unsafe { self.state.get() }.waiting.entries.push((entry, source));
    }

    /// Whether there is room for entries made by peers.
    ///
    /// # Safety
    /// The domain is entered.
    pub unsafe fn has_room(&self) -> bool {
        // SAFETY: as in `push`.
        unsafe { self.state.get() }.waiting.len() < WRITTEN_UNREAD.total.count()
    }

    /// # Safety
    /// The domain is entered.
    #[cold]
    pub unsafe fn push_error(&self, error: ErrorEntry) {
        // SAFETY: as in `push`.
        unsafe { self.state.get() }.errors.push_back(error);
    }

    pub fn domain(&self) -> &Used<Domain> {
        &self.domain
    }

    /// Lets the endpoints progress unless entries wait; returns whether some wait then.
    ///
    /// # Safety
    /// The domain is entered, and no reference to the state of an endpoint of it is in use.
    pub unsafe fn fill(&self) -> bool {
        // SAFETY: the caller's promise; no reference into the state is kept while endpoints progress, which push to it.
        unsafe {
            let waits = || self.state.get().waiting.len() > 0 || !self.state.get().errors.is_empty();
            let mut failed = false;
            let mut at = 0;
            while !waits()
                && let Some(&endpoint) = self.state.get().endpoints.get(at)
            {
                endpoint.as_ref().progress(None);
                failed |= endpoint.as_ref().state().failed;
                at += 1;
            }
            failed || waits()
        }
    }

    /// # Safety
    /// `into` holds `count` entries, `sources` is NULL or holds as many addresses.
    #[inline]
    unsafe fn take(&self, into: *mut c_void, count: usize, sources: *mut Address) -> Signed {
        let entered = self.domain.enter();
        let mut reader =
            Reader { queue: self, at: into.cast(), sources, entry: self.entry, left: count, failed: false };
        // SAFETY: the domain is entered; no reference into the state is kept while endpoints progress, which push to it.
        unsafe {
            if self.state.get().waiting.len() > 0 {
                self.state.get().waiting.read_into(&mut reader);
            }
            if reader.is_full() && count > 0 {
                // No progress is made, but a caller that next waits elsewhere must not leave its sends unsent.
                let mut at = 0;
                while let Some(&endpoint) = self.state.get().endpoints.get(at) {
                    endpoint.as_ref().hand_over();
                    at += 1;
                }
                return count as Signed;
            }
            if self.state.get().errors.is_empty() {
                let mut at = 0;
                while let Some(&endpoint) = self.state.get().endpoints.get(at) {
                    endpoint.as_ref().progress(Some(&mut reader));
                    at += 1;
                }
            }
            match count - reader.left {
                0 if !self.state.get().errors.is_empty() => signed(FI_EAVAIL),
                0 if reader.failed => signed(FI_EIO),
                0 => {
                    entered.was_in_vain();
                    signed(FI_EAGAIN)
                }
                taken => {
                    self.waits.found();
                    taken as Signed
                }
            }
        }
    }

    /// # Safety
    /// As for `take`.
    unsafe fn wait(&self, into: *mut c_void, count: usize, sources: *mut Address, timeout: c_int) -> Signed {
        if self.waits.is_none() {
            return signed(FI_ENOSYS);
        }
        let mut wait = Wait::new(timeout);
        loop {
            // SAFETY: the caller's promise.
            let taken = unsafe { self.take(into, count, sources) };
            if taken != signed(FI_EAGAIN) || self.signalled.swap(false, Ordering::AcqRel) || !wait.goes_on() {
                return taken;
            }
        }
    }
}

unsafe extern "C" fn read(queue: *mut FidCompletionQueue, into: *mut c_void, count: usize) -> Signed {
    // SAFETY: libfabric's contract: the queue is open, the array holds `count` entries.
    unsafe { (*queue.cast::<CompletionQueue>()).take(into, count, std::ptr::null_mut()) }
}

unsafe extern "C" fn readfrom(
    queue: *mut FidCompletionQueue,
    into: *mut c_void,
    count: usize,
    sources: *mut Address,
) -> Signed {
    // SAFETY: as above.
    unsafe { (*queue.cast::<CompletionQueue>()).take(into, count, sources) }
}

unsafe extern "C" fn readerr(queue: *mut FidCompletionQueue, into: *mut ErrorEntry, _flags: u64) -> Signed {
    // SAFETY: libfabric's contract: `into` is NULL or an entry of the version that the application was built for, which
    // has all fields of ours.
    unsafe {
        let Some(queue) = object::of::<CompletionQueue>(queue.cast()) else { return signed(FI_EINVAL) };
        let Some(into) = into.as_mut() else { return signed(FI_EINVAL) };
        let _entered = queue.domain.enter();
        let Some(error) = queue.state.get().errors.pop_front() else { return signed(FI_EAGAIN) };
        // An application's own buffer for details is left alone; there are none.
        let details = if into.error_data_size > 0 { into.error_data } else { std::ptr::null_mut() };
        *into = ErrorEntry { error_data: details, error_data_size: 0, ..error };
        1
    }
}

unsafe extern "C" fn sread(
    queue: *mut FidCompletionQueue,
    into: *mut c_void,
    count: usize,
    _condition: *const c_void,
    timeout: c_int,
) -> Signed {
    // SAFETY: as in `read`.
    unsafe { (*queue.cast::<CompletionQueue>()).wait(into, count, std::ptr::null_mut(), timeout) }
}

unsafe extern "C" fn sreadfrom(
    queue: *mut FidCompletionQueue,
    into: *mut c_void,
    count: usize,
    sources: *mut Address,
    _condition: *const c_void,
    timeout: c_int,
) -> Signed {
    // SAFETY: as in `read`.
    unsafe { (*queue.cast::<CompletionQueue>()).wait(into, count, sources, timeout) }
}

unsafe extern "C" fn signal(queue: *mut FidCompletionQueue) -> c_int {
    // SAFETY: libfabric's contract.
    let Some(queue) = (unsafe { object::of::<CompletionQueue>(queue.cast()) }) else { return -FI_EINVAL };
    if queue.waits.is_none() {
        return -FI_ENOSYS;
    }
    queue.signalled.store(true, Ordering::Release);
    queue.waits.wake();
    0
}

unsafe extern "C" fn strerror(
    _: *mut FidCompletionQueue,
    error: c_int,
    _: *const c_void,
    into: *mut c_char,
    length: usize,
) -> *const c_char {
    let text: &CStr = match error {
        FI_ETRUNC => c"the message was longer than the receive's buffer",
        FI_ECANCELED => c"the operation was cancelled",
        FI_ECONNRESET => c"the peer's process has ended, has been silent for too long, or could not be reached; why is on stderr then",
        FI_ENOMSG => c"no such message has arrived",
        FI_EIO => c"the message engine has failed; it said why on stderr",
        FI_EOVERRUN => c"the peer's application does not read its completion queue",
        FI_ENOKEY => c"the peer has no such memory region, or does not permit this access",
        _ => c"no error of the provider's own",
    };
    // SAFETY: libfabric's contract: `into` is NULL or holds `length` bytes.
    unsafe { tell(text, into, length) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever comes and is read at a time, in every format: each entry comes once and in order, with its source, and nothing is
    /// written behind the last.
    #[test]
    fn entries_are_read_once_and_in_order() {
        for format in [CONTEXT_ENTRY, MSG_ENTRY, DATA_ENTRY, TAGGED_ENTRY] {
            let (mut waiting, mut pushed, mut read) = (Waiting::default(), 0, 0);
            let words = format / 8;
            for step in 0..4000 {
                for _ in 0..step * step % 7 {
                    let [flags, data, tag] = [1, 4, 5].map(|word| pushed + word);
                    let (op_context, buffer) = (pushed as *mut c_void, (pushed + 3) as *mut c_void);
                    let entry = Entry { op_context, flags, length: pushed as usize + 2, buffer, data, tag };
                    waiting.entries.push((entry, pushed));
                    pushed += 1;
                }
                // Reads fall behind for a while, then catch up.
                let left = if step / 200 % 2 == 0 { step % 3 } else { step % 11 } as usize;
                let (mut array, mut senders) = (vec![u64::MAX; left * words + 1], vec![u64::MAX; left + 1]);
                let (at, sources) = (array.as_mut_ptr().cast(), senders.as_mut_ptr());
                let mut reader = Reader { queue: std::ptr::null(), at, sources, entry: format, left, failed: false };
                waiting.read_into(&mut reader);
                let taken = left - reader.left;
                assert_eq!(taken, left.min((pushed - read) as usize));
                for (entry, source) in array.chunks(words).zip(&senders).take(taken) {
                    assert_eq!((entry, *source), (&[0, 1, 2, 3, 4, 5].map(|word| read + word)[..words], read));
                    read += 1;
                }
                assert_eq!((array[taken * words], senders[taken]), (u64::MAX, u64::MAX));
                assert_eq!(waiting.len() as u64, pushed - read);
                assert!(waiting.read <= waiting.entries.len() / 2, "what was read is given up");
            }
            assert!(pushed > 5_000 && read > 5_000);
        }
    }
}
