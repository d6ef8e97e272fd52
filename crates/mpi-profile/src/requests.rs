//! Operations that were begun and are not complete, by the handles of their requests.

use std::cell::UnsafeCell;
use std::hint;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};

use record::trace::Reference;

use crate::call::Handle;

/// Operations that are tracked at a time. Further ones are counted as dropped.
pub const MOST: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// [`record::functions::FunctionId`].
    pub function: u16,
    pub persistent: bool,
    /// Begun, and not seen complete; always true where `persistent` is false.
    pub active: bool,
    pub partitions: u32,
    pub bytes: u64,
    /// World rank of the receiver of its message; [`crate::communicators::NO_RANK`]: none.
    pub dest: u32,
    /// The operation sends a message, and not to MPI_PROC_NULL.
    pub sends: bool,
    /// Peer, as a rank of the call's communicator; 0 where the call has none.
    pub peer: i32,
    /// World rank of the peer, where delays are requested; [`crate::communicators::NO_RANK`]: not known.
    pub peer_in_world: u32,
    pub tag: i32,
    /// [`crate::communicators::Communicator::number`].
    pub communicator: u32,
    /// Number in the order of beginnings, from 1.
    pub serial: u64,
    /// The operation in the timeline: its beginning or preparation, and the last start of a persistent one.
    pub traced: Begun,
    pub started: Begun,
}

/// An operation in the timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun {
    pub ordinal: u64,
    pub thread: u16,
    /// A receive from MPI_ANY_SOURCE or with MPI_ANY_TAG.
    pub any: bool,
}

impl Begun {
    /// An operation that is not in a timeline.
    pub const NOT: Begun = Begun { ordinal: u64::MAX, thread: 0, any: false };

    pub fn reference(self) -> Option<Reference> {
        (self.ordinal != u64::MAX).then_some(Reference { thread: self.thread, ordinal: self.ordinal })
    }
}

const NO: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Entry {
    operation: Operation,
    /// The next entry of the same handle; after the last the first.
    next: u32,
}

/// A queue of operations for each handle: MPIs give one handle to many operations that complete immediately.
#[derive(Debug)]
pub struct Requests {
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// Key and last entry of its queue. Open addressing, linear probing, no tombstones.
    slots: Box<[(u64, u32)]>,
    used: usize,
    serial: u64,
}

const FREE: u64 = u64::MAX;

impl Requests {
    pub fn new() -> Requests {
        Requests { entries: Vec::new(), free: Vec::new(), slots: vec![(FREE, NO); 64].into(), used: 0, serial: 0 }
    }

    pub fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn home(&self, key: u64) -> usize {
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - self.slots.len().ilog2())) as usize
    }

    /// The slot that has the key, or the free slot where the key belongs.
    #[inline]
    fn slot(&self, key: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = self.home(key);
        while self.slots[at].0 != key && self.slots[at].0 != FREE {
            at = (at + 1) & mask;
        }
        at
    }

    /// `false` where [`MOST`] operations are tracked already.
    #[inline]
    pub fn insert(&mut self, handle: Handle, mut operation: Operation) -> bool {
        if self.len() >= MOST {
            return false;
        }
        if operation.active {
            operation.serial = self.next_serial();
        }
        let entry = Entry { operation, next: NO };
        let place = match self.free.pop() {
            Some(place) => {
                self.entries[place as usize] = entry;
                place
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        if (self.used + 1) * 2 > self.slots.len() {
            self.enlarge();
        }
        let at = self.slot(handle.0);
        let last = self.slots[at].1;
        if self.slots[at].0 == FREE {
            self.used += 1;
            self.entries[place as usize].next = place;
        } else {
            self.entries[place as usize].next = self.entries[last as usize].next;
            self.entries[last as usize].next = place;
        }
        self.slots[at] = (handle.0, place);
        true
    }

    /// The handle's operation that was begun first.
    pub fn get(&mut self, handle: Handle) -> Option<&mut Operation> {
        let (key, last) = self.slots[self.slot(handle.0)];
        if key == FREE {
            return None;
        }
        let first = self.entries[last as usize].next;
        Some(&mut self.entries[first as usize].operation)
    }

    /// Completes the handle's first operation: removes it, or makes it inactive where it is persistent.
    pub fn complete(&mut self, handle: Handle) -> Option<Operation> {
        let at = self.slot(handle.0);
        let (key, last) = self.slots[at];
        if key == FREE {
            return None;
        }
        let first = self.entries[last as usize].next;
        let operation = &mut self.entries[first as usize].operation;
        if operation.persistent {
            let found = operation.active.then_some(*operation);
            operation.active = false;
            return found;
        }
        self.remove_at(at)
    }

    /// Removes the handle's first operation, persistent or not.
    pub fn remove(&mut self, handle: Handle) -> Option<Operation> {
        let at = self.slot(handle.0);
        if self.slots[at].0 == FREE { None } else { self.remove_at(at) }
    }

    fn remove_at(&mut self, at: usize) -> Option<Operation> {
        let last = self.slots[at].1;
        let first = self.entries[last as usize].next;
        if first == last {
            self.vacate(at);
        } else {
            self.entries[last as usize].next = self.entries[first as usize].next;
        }
        self.free.push(first);
        Some(self.entries[first as usize].operation)
    }

    /// Frees a slot and moves later slots of the same probe sequence into the hole.
    fn vacate(&mut self, mut hole: usize) {
        let mask = self.slots.len() - 1;
        let mut at = hole;
        self.used -= 1;
        loop {
            at = (at + 1) & mask;
            let (key, _) = self.slots[at];
            if key == FREE {
                break;
            }
            let from_home = at.wrapping_sub(self.home(key)) & mask;
            if from_home >= (at.wrapping_sub(hole) & mask) {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
        }
        self.slots[hole] = (FREE, NO);
    }

    fn enlarge(&mut self) {
        let larger = vec![(FREE, NO); self.slots.len() * 2].into();
        for slot in std::mem::replace(&mut self.slots, larger) {
            if slot.0 != FREE {
                let at = self.slot(slot.0);
                self.slots[at] = slot;
            }
        }
    }
}

impl Default for Requests {
    fn default() -> Requests {
        Requests::new()
    }
}

/// The rank's requests: any thread may complete an operation that another began.
///
/// As long as one thread alone calls MPI, it takes no lock: a plain store marks it as inside. A second thread may come at
/// any moment, at every thread level of the MPI; it then waits until the first thread, which does not see it coming, is
/// outside.
#[derive(Debug)]
pub struct Shared {
    /// More than one thread calls MPI, or may.
    locking: AtomicBool,
    /// The only thread is inside.
    inside: AtomicBool,
    taken: AtomicBool,
    requests: UnsafeCell<Requests>,
}

// SAFETY: `with` lets one thread in at a time.
unsafe impl Sync for Shared {}

/// The turn of the thread inside; its drop ends it, in a panic too.
struct Turn<'a>(&'a AtomicBool);

impl Drop for Turn<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Shared {
    pub fn new() -> Shared {
        Shared {
            // Without the kernel's barrier every turn takes the lock.
            locking: AtomicBool::new(!barrier(REGISTER)),
            inside: AtomicBool::new(false),
            taken: AtomicBool::new(false),
            requests: UnsafeCell::new(Requests::new()),
        }
    }

    /// Makes threads take turns. Every thread but the first calls it before its first turn; no thread calls it inside.
    pub fn set_locking(&self) {
        self.locking.store(true, Ordering::SeqCst);
        // Either the first thread reads `locking` as true, or its earlier store to `inside` is visible here.
        barrier(EXPEDITED);
        while self.inside.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    #[inline]
    fn turn(&self) -> Turn<'_> {
        if !self.locking.load(Ordering::Relaxed) {
            self.inside.store(true, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            if !self.locking.load(Ordering::Relaxed) {
                return Turn(&self.inside);
            }
            self.inside.store(false, Ordering::Release);
        }
        while self.taken.swap(true, Ordering::Acquire) {
            hint::spin_loop();
        }
        Turn(&self.taken)
    }

    #[inline]
    pub fn with<T>(&self, f: impl FnOnce(&mut Requests) -> T) -> T {
        let _turn = self.turn();
        // SAFETY: no other thread is inside: by the lock, or since all others wait in `set_locking`. `f` does not call back.
        f(unsafe { &mut *self.requests.get() })
    }
}

/// Commands of membarrier(2).
const EXPEDITED: libc::c_int = 1 << 3;
const REGISTER: libc::c_int = 1 << 4;

/// A full barrier in every thread of the process; `false` where the kernel has none.
fn barrier(command: libc::c_int) -> bool {
    // SAFETY: the call has no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

impl Default for Shared {
    fn default() -> Shared {
        Shared::new()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, VecDeque};

    use proptest::prelude::*;

    use super::*;

    const OPERATION: Operation = Operation {
        function: 1,
        persistent: false,
        active: true,
        partitions: 1,
        bytes: 8,
        dest: 0,
        sends: true,
        peer: 0,
        peer_in_world: 0,
        tag: 0,
        communicator: 0,
        serial: 0,
        traced: Begun::NOT,
        started: Begun::NOT,
    };

    proptest! {
        #[test]
        fn each_handle_has_a_queue(steps in proptest::collection::vec((any::<bool>(), 0u64..200), 0..2000)) {
            let mut model: HashMap<u64, VecDeque<u64>> = HashMap::new();
            let mut requests = Requests::new();
            let mut serial = 0;
            for (begin, which) in steps {
                let handle = Handle(0x2c00_0000 + which * 8);
                if begin {
                    serial += 1;
                    prop_assert!(requests.insert(handle, OPERATION));
                    model.entry(which).or_default().push_back(serial);
                } else {
                    let expected = model.get_mut(&which).and_then(VecDeque::pop_front);
                    prop_assert_eq!(requests.get(handle).map(|o| o.serial), expected);
                    let removed = if which % 2 == 0 { requests.remove(handle) } else { requests.complete(handle) };
                    prop_assert_eq!(removed.map(|o| o.serial), expected);
                }
                prop_assert_eq!(requests.len(), model.values().map(VecDeque::len).sum::<usize>());
            }
        }
    }

    #[test]
    fn threads_take_turns() {
        let shared = Shared::new();
        shared.set_locking();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let shared = &shared;
                scope.spawn(move || {
                    for tag in 0..1000 {
                        let handle = Handle(thread * 8 + 8);
                        assert!(shared.with(|requests| requests.insert(handle, Operation { tag, ..OPERATION })));
                        assert_eq!(shared.with(|requests| requests.remove(handle)).unwrap().tag, tag);
                    }
                });
            }
        });
        assert!(shared.with(|requests| requests.is_empty()));
    }

    /// The first thread is at work without a lock when the second one comes.
    #[test]
    fn a_second_thread_may_come_at_any_moment() {
        for round in 0..300u32 {
            let (shared, busy, over) = (Shared::new(), AtomicBool::new(false), AtomicBool::new(false));
            let met = AtomicBool::new(false);
            let alone = || {
                shared.with(|requests| {
                    if busy.swap(true, Ordering::SeqCst) {
                        met.store(true, Ordering::SeqCst);
                    }
                    for _ in 0..50 {
                        hint::spin_loop();
                    }
                    requests.next_serial();
                    busy.store(false, Ordering::SeqCst);
                });
            };
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        alone();
                    }
                });
                for _ in 0..round % 64 {
                    hint::spin_loop();
                }
                shared.set_locking();
                (0..20).for_each(|_| alone());
                over.store(true, Ordering::Relaxed);
            });
            assert!(!met.into_inner(), "two at once in round {round}");
        }
    }

    #[test]
    fn a_panic_inside_leaves_it_to_others() {
        let shared = Shared::new();
        for locking in [false, true] {
            if locking {
                shared.set_locking();
            }
            let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| shared.with(|_| panic!("inside"))));
            assert!(panic.is_err());
            shared.set_locking();
            assert!(shared.with(|requests| requests.is_empty()));
        }
    }
}
