//! Members of communicators and windows, as ranks of MPI_COMM_WORLD. Each is queried once, by local calls of the MPI.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::abi::Abi;
use crate::call::Handle;
use crate::models::{Model, Models};
use crate::real::Mpi;

/// World rank of a process outside this MPI_COMM_WORLD, or of no process.
pub const NO_RANK: u32 = u32::MAX;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Communicator {
    /// Number in the order of first uses, from 2; MPI_COMM_WORLD is always 0, MPI_COMM_SELF 1.
    pub number: u32,
    /// Ranks of the local group, as MPI_Comm_size returns them.
    pub size: u32,
    pub rank: i32,
    pub inter: bool,
    /// Ranks that calls can address: those of the remote group, in an intercommunicator.
    pub fan: u32,
    /// Neighbours that a neighbourhood collective sends to; 0 without a topology.
    pub out_degree: u32,
    /// World ranks by rank of the addressed group; `None`: both ranks are equal.
    pub members: Option<Box<[u32]>>,
    /// World ranks of the own group of an intercommunicator.
    pub own: Option<Box<[u32]>>,
}

impl Communicator {
    /// The world rank of a peer; `None` where the peer is no rank, or its world rank is not known.
    #[inline]
    pub fn world_rank(&self, peer: i32) -> Option<u32> {
        let peer = u32::try_from(peer).ok().filter(|peer| *peer < self.fan)?;
        match &self.members {
            None => Some(peer),
            Some(members) => members.get(peer as usize).copied().filter(|rank| *rank != NO_RANK),
        }
    }
}

/// Communicators and windows in use, by kind and C handle: handles of different kinds may have the same value.
#[derive(Debug, Default)]
pub struct Communicators {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    by_handle: HashMap<(usize, Kind), Arc<Communicator>>,
    /// Communicators and windows met, besides MPI_COMM_WORLD and MPI_COMM_SELF.
    met: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Communicator,
    Window,
}

impl Communicators {
    /// `None` where the MPI is not open or a query fails.
    ///
    /// # Safety
    /// A call with this handle succeeded, and the handle has not been freed since.
    pub unsafe fn get(
        &self,
        handle: Handle,
        kind: Kind,
        models: &Models,
        mpi: &Mpi,
        abi: &Abi,
    ) -> Option<Arc<Communicator>> {
        // SAFETY: by this function's contract.
        let handle = unsafe { in_c(handle, kind, mpi, abi) };
        if let Some(found) = self.lock().by_handle.get(&(handle, kind)) {
            return Some(found.clone());
        }
        // The lock is not held: the MPI, under locks of its own, may call back functions that free communicators.
        // SAFETY: by this function's contract.
        let mut asked = unsafe {
            let asking = models.ask();
            let model = asking.model?;
            match kind {
                Kind::Communicator => communicator(handle, model, mpi, abi)?,
                Kind::Window => window(handle, model, mpi, abi)?,
            }
        };
        let mut known = self.lock();
        if let Some(found) = known.by_handle.get(&(handle, kind)) {
            return Some(found.clone());
        }
        asked.number = match kind {
            Kind::Communicator if handle == abi.comm_world => 0,
            Kind::Communicator if handle == abi.comm_self => 1,
            _ => {
                known.met += 1;
                known.met + 1
            }
        };
        let found = Arc::new(asked);
        known.by_handle.insert((handle, kind), found.clone());
        Some(found)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a window that was made over a communicator, whose ranks it has.
    ///
    /// # Safety
    /// The contract of [`Communicators::get`].
    pub unsafe fn note_window(&self, win: Handle, comm: Arc<Communicator>, mpi: &Mpi, abi: &Abi) {
        // SAFETY: by this function's contract.
        let win = unsafe { in_c(win, Kind::Window, mpi, abi) };
        self.lock().by_handle.insert((win, Kind::Window), comm);
    }

    /// Forgets a handle that may be reused.
    ///
    /// # Safety
    /// The contract of [`Communicators::get`].
    pub unsafe fn forget(&self, handle: Handle, kind: Kind, mpi: &Mpi, abi: &Abi) {
        // SAFETY: by this function's contract.
        let handle = unsafe { in_c(handle, kind, mpi, abi) };
        self.lock().by_handle.remove(&(handle, kind));
    }
}

/// The C handle.
///
/// # Safety
/// A Fortran integer is that of a valid handle of this kind.
unsafe fn in_c(handle: Handle, kind: Kind, mpi: &Mpi, abi: &Abi) -> usize {
    if !handle.is_fortran() {
        return handle.0 as usize;
    }
    let of = match kind {
        Kind::Communicator => mpi.comm_of,
        Kind::Window => mpi.win_of,
    };
    match of {
        // SAFETY: by this function's contract.
        Some(of) if abi.handle_bytes == 8 => unsafe { of(handle.integer()) },
        _ => handle.integer() as u32 as usize,
    }
}

/// A number that a function of the MPI writes to an address; `None` where the function fails.
fn number(ask: impl FnOnce(*mut c_int) -> c_int) -> Option<i32> {
    let mut value = 0;
    (ask(&mut value) == 0).then_some(value)
}

/// # Safety
/// The contract of [`Communicators::get`].
unsafe fn communicator(comm: usize, model: Model, mpi: &Mpi, abi: &Abi) -> Option<Communicator> {
    // SAFETY: a call with this communicator succeeded and it has not been freed since, so that the MPI knows it.
    unsafe {
        let size = number(|to| (mpi.comm_size)(comm, to))?;
        let rank = number(|to| (mpi.comm_rank)(comm, to))?;
        let inter = number(|to| (mpi.comm_test_inter)(comm, to))? != 0;
        let mut group = 0;
        let asked = if inter { (mpi.comm_remote_group)(comm, &mut group) } else { (mpi.comm_group)(comm, &mut group) };
        if asked != 0 {
            return None;
        }
        let members = members(group, comm == abi.comm_world, model, mpi, abi);
        (mpi.group_free)(&mut group);
        let (fan, members) = members?;
        let out_degree = if inter { 0 } else { out_degree(comm, rank, mpi, abi) };
        let mut local = 0;
        let own = (inter && (mpi.comm_group)(comm, &mut local) == 0).then(|| {
            let own = self::members(local, false, model, mpi, abi);
            (mpi.group_free)(&mut local);
            own?.1
        });
        let own = own.flatten();
        Some(Communicator { number: 0, size: size as u32, rank, inter, fan, out_degree, members, own })
    }
}

/// # Safety
/// The contract of [`Communicators::get`].
unsafe fn window(win: usize, model: Model, mpi: &Mpi, abi: &Abi) -> Option<Communicator> {
    let mut group = 0;
    // SAFETY: a call with this window succeeded, so that the MPI knows it; the group is freed once.
    let members = unsafe {
        if (mpi.win_get_group)(win, &mut group) != 0 {
            return None;
        }
        let members = members(group, false, model, mpi, abi);
        (mpi.group_free)(&mut group);
        members
    };
    let (fan, members) = members?;
    Some(Communicator { number: 0, size: fan, rank: 0, inter: false, fan, out_degree: 0, members, own: None })
}

/// The size of a group and the world ranks of its members.
///
/// # Safety
/// `group` is a group of the MPI, and `model` is open.
unsafe fn members(
    group: usize,
    is_world: bool,
    model: Model,
    mpi: &Mpi,
    abi: &Abi,
) -> Option<(u32, Option<Box<[u32]>>)> {
    // SAFETY: by this function's contract.
    unsafe {
        let size = number(|to| (mpi.group_size)(group, to))?;
        if is_world {
            return Some((size as u32, None));
        }
        let mut world = group_of(model, mpi, abi)?;
        let ranks: Vec<c_int> = (0..size).collect();
        let mut translated = vec![abi.undefined; ranks.len()];
        let asked = (mpi.group_translate)(group, size, ranks.as_ptr(), world, translated.as_mut_ptr());
        (mpi.group_free)(&mut world);
        if asked != 0 {
            return None;
        }
        let members = translated.into_iter().map(|rank| u32::try_from(rank).unwrap_or(NO_RANK)).collect();
        Some((size as u32, Some(members)))
    }
}

/// The group of all processes that were started together. The caller frees the group.
///
/// # Safety
/// `model` is open.
unsafe fn group_of(model: Model, mpi: &Mpi, abi: &Abi) -> Option<usize> {
    let mut world = 0;
    // SAFETY: MPI_COMM_WORLD is known from MPI_Init to MPI_Finalize, and a session until it is finalized.
    let asked = unsafe {
        match model {
            Model::World => (mpi.comm_group)(abi.comm_world, &mut world),
            Model::Session(session) => (mpi.group_of_session?)(session, c"mpi://WORLD".as_ptr(), &mut world),
        }
    };
    (asked == 0).then_some(world)
}

/// The rank of this process among all that were started together, and their number.
///
/// # Safety
/// `model` is open.
pub unsafe fn place(model: Model, mpi: &Mpi, abi: &Abi) -> Option<(u32, u32)> {
    // SAFETY: by this function's contract; the group is freed once.
    unsafe {
        let mut world = group_of(model, mpi, abi)?;
        let rank = number(|to| (mpi.group_rank)(world, to));
        let size = number(|to| (mpi.group_size)(world, to));
        (mpi.group_free)(&mut world);
        Some((u32::try_from(rank?).ok()?, u32::try_from(size?).ok()?))
    }
}

/// The number of neighbours that a rank sends to.
///
/// # Safety
/// `comm` is a communicator of the MPI's.
unsafe fn out_degree(comm: usize, rank: i32, mpi: &Mpi, abi: &Abi) -> u32 {
    // SAFETY: by this function's contract; each query is of a communicator with its topology.
    let degree = unsafe {
        match number(|to| (mpi.topo_test)(comm, to)) {
            Some(topology) if topology == abi.topology_cart => {
                number(|to| (mpi.cartdim_get)(comm, to)).map(|dimensions| 2 * dimensions)
            }
            Some(topology) if topology == abi.topology_graph => {
                number(|to| (mpi.graph_neighbors_count)(comm, rank, to))
            }
            Some(topology) if topology == abi.topology_dist_graph => {
                let (mut into, mut weighted) = (0, 0);
                number(|to| (mpi.dist_graph_neighbors_count)(comm, &mut into, to, &mut weighted))
            }
            _ => None,
        }
    };
    degree.map_or(0, |degree| degree.max(0) as u32)
}
