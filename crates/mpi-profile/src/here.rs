//! The state of a recording thread: its tables and caches.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use record::functions;
use record::layout::{Cell, Peer, ROW_CELLS, Region, SITES_AT_ONCE, Site, Thread, kind};
use record::trace::site;

use crate::abi::Abi;
use crate::call::Handle;
use crate::clock;
use crate::communicators::{Communicator, Kind, NO_RANK};
use crate::datatypes::Datatypes;
use crate::delays::Delays;
use crate::hashed::Hashed;
use crate::rank::Rank;
use crate::real::Mpi;
use crate::rules::Rule;
use crate::state;
use crate::tables::Room;
use crate::timeline::Tracing;

/// Values of [`Here::depth`].
pub mod depth {
    pub const OUTSIDE: u32 = 0;
    pub const INSIDE: u32 = 1;
    /// Nothing is recorded.
    pub const PASSING: u32 = 2;
    /// Calls are only counted: there are too many threads.
    pub const COUNTING: u32 = 3;
}

/// Bits of [`Here::extra`]: further work at a call.
pub mod extra {
    pub const TRACE: u64 = 1;
    pub const DELAY: u64 = 2;
    pub const COMPUTE: u64 = 4;
}

const COMMUNICATORS: usize = 16;

/// The first five fields are those of `src/shim.h`.
#[derive(Debug)]
#[repr(C)]
pub struct Here {
    pub depth: u32,
    pub clock: u32,
    pub thread: *mut Thread,
    pub frame: *const c_void,
    /// Bits of [`extra`].
    pub extra: u64,
    /// [`state::generation`] of the caches.
    pub generation: u64,
    /// Ticks of a long call, after which the header's moment is refreshed.
    pub long: u64,
    pub rules: *const Rule,
    /// By function: the cells of calls without a group.
    pub rows: Box<[*mut Cell]>,
    pub sites: Hashed,
    pub peers: *mut Peer,
    pub peers_known: u32,
    /// The thread's number in the tables.
    pub index: u16,
    pub datatypes: Datatypes,
    communicators: [(u64, Option<Arc<Communicator>>); COMMUNICATORS],
    windows: [(u64, Option<Arc<Communicator>>); COMMUNICATORS],
    /// Cells by function and size of the group.
    groups: Hashed,
    sites_room: Option<Room>,
    /// Sites in the present region, and in all.
    sites_used: u32,
    sites_known: u32,
    /// Handles of the present call's requests, as before the call.
    pub handles: Vec<Handle>,
    pub rank: &'static Rank,
    pub tracing: Option<Box<Tracing>>,
    pub delays: Option<Box<Delays>>,
}

/// Mark of a free place: no handle.
const FREE: u64 = u64::MAX;

impl Here {
    pub fn new(rank: &'static Rank, index: u16, thread: *mut Thread) -> Here {
        Here {
            depth: depth::OUTSIDE,
            clock: rank.clock,
            thread,
            frame: ptr::null(),
            extra: 0,
            generation: state::generation(),
            long: clock::long(rank.clock),
            rules: rank.rules.as_ptr(),
            rows: vec![ptr::null_mut(); functions::functions().len()].into(),
            sites: Hashed::new(8),
            peers: ptr::null_mut(),
            peers_known: 0,
            index,
            datatypes: Datatypes::new(),
            communicators: [const { (FREE, None) }; COMMUNICATORS],
            windows: [const { (FREE, None) }; COMMUNICATORS],
            groups: Hashed::new(6),
            sites_room: None,
            sites_used: 0,
            sites_known: 0,
            handles: Vec::new(),
            rank,
            tracing: None,
            delays: None,
        }
    }

    /// Begins the thread's timeline and its delays, where they are requested.
    pub fn begin(&mut self) {
        let timeline = self.rank.timeline.as_ref();
        let tracing = timeline.and_then(|of| Tracing::new(of, self.clock, self.index, self.thread));
        self.tracing = tracing.map(Box::new);
        self.delays = self.rank.delays.as_ref().map(|asked| Box::new(Delays::new(asked, self.thread, self.index)));
        let of = |there: bool, bit: u64| if there { bit } else { 0 };
        let computes = self.delays.as_ref().is_some_and(|delays| delays.asked.computes);
        self.extra = of(self.tracing.is_some(), extra::TRACE)
            | of(self.delays.is_some(), extra::DELAY)
            | of(computes, extra::COMPUTE);
    }

    /// Closes the timeline: the thread, or the process, seems to end.
    pub fn close(&mut self) {
        if let Some(tracing) = &mut self.tracing {
            tracing.close();
        }
        if let Some(delays) = &mut self.delays {
            delays.hand_on();
        }
    }

    pub fn mpi(&self) -> &'static Mpi {
        &self.rank.mpi
    }

    pub fn abi(&self) -> &'static Abi {
        &self.rank.abi
    }

    /// Clears the caches, whose handles may have been reused. `false`: recording has ended.
    #[cold]
    pub fn forget(&mut self, generation: u64) -> bool {
        if !self.rank.goes_on() {
            return false;
        }
        self.generation = generation;
        self.datatypes.clear();
        self.communicators = [const { (FREE, None) }; COMMUNICATORS];
        self.windows = [const { (FREE, None) }; COMMUNICATORS];
        true
    }

    /// # Safety
    /// A call with this communicator succeeded.
    #[inline]
    pub unsafe fn communicator(&mut self, handle: Handle) -> Option<&Arc<Communicator>> {
        let at = place(handle);
        if self.communicators[at].0 != handle.0 {
            // SAFETY: by this function's contract.
            let asked = unsafe { self.ask(handle, Kind::Communicator) };
            self.communicators[at] = (handle.0, asked);
        }
        self.communicators[at].1.as_ref()
    }

    /// The cached communicator; `None` where the handle is not cached or its query failed.
    pub fn known_communicator(&self, handle: Handle) -> Option<&Arc<Communicator>> {
        let (of, comm) = &self.communicators[place(handle)];
        comm.as_ref().filter(|_| *of == handle.0)
    }

    /// # Safety
    /// A call with this window succeeded.
    #[inline]
    pub unsafe fn window(&mut self, handle: Handle) -> Option<&Arc<Communicator>> {
        let at = place(handle);
        if self.windows[at].0 != handle.0 {
            // SAFETY: by this function's contract.
            let asked = unsafe { self.ask(handle, Kind::Window) };
            self.windows[at] = (handle.0, asked);
        }
        self.windows[at].1.as_ref()
    }

    /// # Safety
    /// The contract of [`Here::communicator`].
    #[cold]
    unsafe fn ask(&mut self, handle: Handle, kind: Kind) -> Option<Arc<Communicator>> {
        // SAFETY: by this function's contract.
        let found = unsafe { self.rank.communicators.get(handle, kind, &self.rank.models, self.mpi(), self.abi()) };
        match &found {
            Some(group) => self.rank.met(group),
            None => self.rank.dropped(|dropped| &raw mut dropped.communicators),
        }
        found
    }

    /// The cells of a function at groups of this size; null where there is no room.
    #[inline]
    pub fn row(&mut self, function: u32, group: u32) -> *mut Cell {
        if group == 0 {
            let row = self.rows[function as usize];
            return if row.is_null() { self.open_row(function, group) } else { row };
        }
        let key = u64::from(function + 1) << 32 | u64::from(group);
        match self.groups.get(key) {
            Some(row) => row as *mut Cell,
            None => self.open_row(function, group),
        }
    }

    #[cold]
    fn open_row(&mut self, function: u32, group: u32) -> *mut Cell {
        let entry = Region {
            kind: kind::ROW,
            thread: self.index,
            function: function as u16,
            group,
            record_bytes: size_of::<Cell>() as u16,
            capacity: ROW_CELLS as u32,
            used: ROW_CELLS as u32,
            ..Region::default()
        };
        let Some(room) = self.rank.region(entry) else {
            self.rank.dropped(|dropped| &raw mut dropped.rows);
            return ptr::null_mut();
        };
        let row = room.start.as_ptr().cast::<Cell>();
        if group == 0 {
            self.rows[function as usize] = row;
        } else {
            self.groups.insert(u64::from(function + 1) << 32 | u64::from(group), row as usize);
        }
        row
    }

    /// The counters of a call site; null where there is no room.
    #[inline]
    pub fn site(&mut self, address: usize, function: u32) -> *mut Site {
        let key = site_key(address, function);
        match self.sites.get(key) {
            Some(site) => site as *mut Site,
            None => self.open_site(key, address, function),
        }
    }

    /// Makes `site` the counters of the function's calls from this address.
    pub fn know_site(&mut self, address: usize, function: u32, site: *mut Site) {
        self.sites.insert(site_key(address, function), site as usize);
    }

    #[cold]
    fn open_site(&mut self, key: u64, address: usize, function: u32) -> *mut Site {
        if self.sites_room.is_none() || self.sites_used as usize == SITES_AT_ONCE {
            let entry = Region {
                kind: kind::SITES,
                thread: self.index,
                record_bytes: size_of::<Site>() as u16,
                capacity: SITES_AT_ONCE as u32,
                ..Region::default()
            };
            let Some(room) = self.rank.region(entry) else {
                self.rank.dropped(|dropped| &raw mut dropped.sites);
                return ptr::null_mut();
            };
            self.sites_room = Some(room);
            self.sites_used = 0;
        }
        let Some(room) = self.sites_room else { return ptr::null_mut() };
        let found = self.rank.locate(address);
        if found.dropped {
            self.rank.dropped(|dropped| &raw mut dropped.modules);
        }
        self.sites_known += 1;
        let site = Site {
            address: address as u64,
            offset: found.offset,
            module: found.module,
            function: function as u16,
            number: u16::try_from(self.sites_known).unwrap_or(site::ABSENT),
            ..Site::default()
        };
        // SAFETY: the region has room for SITES_AT_ONCE records, of which `sites_used` are taken; it is this thread's.
        let place = unsafe {
            let place = room.start.as_ptr().cast::<Site>().add(self.sites_used as usize);
            place.write(site.sealed());
            self.sites_used += 1;
            (&raw mut (*room.entry.as_ptr()).used).write_volatile(self.sites_used);
            place
        };
        self.sites.insert(key, place as usize);
        place
    }

    /// The counters of messages to a rank of MPI_COMM_WORLD; null where there is no room or no such rank.
    #[inline]
    pub fn peer(&mut self, rank: u32) -> *mut Peer {
        if rank < self.peers_known {
            // SAFETY: the region has `peers_known` records.
            return unsafe { self.peers.add(rank as usize) };
        }
        self.open_peers(rank)
    }

    #[cold]
    fn open_peers(&mut self, rank: u32) -> *mut Peer {
        let size = self.rank.world_size();
        let entry = Region {
            kind: kind::PEERS,
            thread: self.index,
            record_bytes: size_of::<Peer>() as u16,
            capacity: size,
            used: size,
            ..Region::default()
        };
        let wanted = rank < size && self.peers_known == 0;
        if let Some(room) = wanted.then(|| self.rank.region(entry)).flatten() {
            self.peers = room.start.as_ptr().cast();
            self.peers_known = size;
            // SAFETY: the region has `size` records.
            return unsafe { self.peers.add(rank as usize) };
        }
        self.rank.dropped(|dropped| &raw mut dropped.peers);
        if rank == NO_RANK {
            self.rank.dropped(|dropped| &raw mut dropped.outside);
        }
        ptr::null_mut()
    }

    /// Counts a message to a peer.
    #[inline]
    pub fn message(&mut self, to: Option<u32>, bytes: u64) {
        if state::paused(self.generation) {
            return;
        }
        let peer = self.peer(to.unwrap_or(NO_RANK));
        if !peer.is_null() {
            // SAFETY: the record is this thread's and mapped as long as the process runs.
            unsafe {
                add(&raw mut (*peer).messages, 1);
                add(&raw mut (*peer).bytes, bytes);
            }
        }
    }
}

/// Adds to a counter of this thread. Every access has one word: a load of two words after a store of one, or the other way
/// round, stalls.
///
/// # Safety
/// The counter is mapped, and only this thread writes to it.
#[inline]
pub unsafe fn add(counter: *mut u64, more: u64) {
    // SAFETY: by this function's contract.
    unsafe { counter.write_volatile(counter.read_volatile().wrapping_add(more)) };
}

#[inline]
fn place(handle: Handle) -> usize {
    (handle.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize & (COMMUNICATORS - 1)
}

#[inline]
fn site_key(address: usize, function: u32) -> u64 {
    // Addresses in programs have 47 bits.
    address as u64 ^ u64::from(function + 1) << 48
}
