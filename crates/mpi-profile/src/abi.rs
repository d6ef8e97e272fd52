//! The meaning of words in each MPI. Values are those of the `mpi.h` of Open MPI 4 and 5, of MPICH 3 to 5 and all with its
//! binary interface, and of the interface that chapter 20 of MPI 5.0 standardises (`mpi_abi.h`).

use record::layout::family;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abi {
    /// [`record::layout::family`].
    pub family: u32,
    pub handle_bytes: usize,
    pub comm_world: usize,
    pub comm_self: usize,
    pub comm_null: usize,
    pub request_null: usize,
    pub proc_null: i32,
    pub any_source: i32,
    pub any_tag: i32,
    pub root: i32,
    pub undefined: i32,
    pub in_place: usize,
    /// MPI_STATUS_IGNORE and MPI_STATUSES_IGNORE.
    pub status_ignore: usize,
    pub status_bytes: usize,
    /// Offset of MPI_SOURCE in a status; MPI_TAG and MPI_ERROR follow.
    pub status_source: usize,
    pub topology_cart: i32,
    pub topology_graph: i32,
    pub topology_dist_graph: i32,
    pub thread_multiple: i32,
    /// The error code of a call to a function that the MPI lacks.
    pub unsupported: i32,
}

impl Abi {
    /// Handles of Open MPI are addresses of variables, which its library exports.
    pub fn open_mpi(comm_world: usize, comm_self: usize, comm_null: usize, request_null: usize) -> Abi {
        Abi {
            family: family::OPEN_MPI,
            handle_bytes: 8,
            comm_world,
            comm_self,
            comm_null,
            request_null,
            proc_null: -2,
            any_source: -1,
            any_tag: -1,
            root: -4,
            undefined: -32766,
            in_place: 1,
            status_ignore: 0,
            status_bytes: 24,
            status_source: 0,
            topology_cart: 1,
            topology_graph: 2,
            topology_dist_graph: 3,
            thread_multiple: 3,
            unsupported: 52,
        }
    }

    pub fn mpich() -> Abi {
        Abi {
            family: family::MPICH,
            handle_bytes: 4,
            comm_world: 0x4400_0000,
            comm_self: 0x4400_0001,
            comm_null: 0x0400_0000,
            request_null: 0x2c00_0000,
            proc_null: -1,
            any_source: -2,
            any_tag: -1,
            root: -3,
            undefined: -32766,
            in_place: usize::MAX,
            status_ignore: 1,
            status_bytes: 20,
            status_source: 8,
            topology_cart: 2,
            topology_graph: 1,
            topology_dist_graph: 3,
            thread_multiple: 3,
            unsupported: 44,
        }
    }

    pub fn standard() -> Abi {
        Abi {
            family: family::STANDARD,
            handle_bytes: 8,
            comm_world: 0x101,
            comm_self: 0x102,
            comm_null: 0x100,
            request_null: 0x180,
            proc_null: -3,
            any_source: -1,
            any_tag: -2,
            root: -4,
            undefined: -32766,
            in_place: 1,
            status_ignore: 0,
            status_bytes: 32,
            status_source: 0,
            topology_cart: 211,
            topology_graph: 212,
            topology_dist_graph: 213,
            thread_multiple: 4096,
            unsupported: 55,
        }
    }

    /// The bits of a word that are the handle.
    #[inline]
    pub fn handle(&self, word: usize) -> usize {
        if self.handle_bytes == 4 { word as u32 as usize } else { word }
    }

    /// The thread level as in the rank's file, from 0 (single) to 3 (multiple).
    pub fn thread_level(&self, provided: i32) -> u32 {
        match self.family {
            family::STANDARD => [1024, 2048, 4096].iter().filter(|level| **level <= provided).count() as u32,
            _ => provided.clamp(0, 3) as u32,
        }
    }
}
