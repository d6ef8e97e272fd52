//! Functions with arrays of large counts, for an MPI that lacks them: programs find this library's, and a call whose
//! counts fit into ints goes to the MPI's function without large counts.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::{Mutex, OnceLock, PoisonError};

use record::functions::{Argument, Function, functions};

use crate::abi::Abi;
use crate::contained::contained;
use crate::real::Mpi;

/// MPI_ERR_COUNT of every MPI.
const TOO_LARGE: usize = 2;
/// MPI_ERR_OTHER of Open MPI; the other MPIs have functions for large counts.
const OTHER: usize = 16;

/// Nonblocking calls whose arrays are kept, which is more than are ever under way at a time.
const KEPT: usize = 65_536;

type Arrays = Vec<Box<[c_int]>>;

/// Replaces a call's arrays of counts and displacements by arrays of ints. Returns 0, or the class of an error.
///
/// # Safety
/// `arguments` are those of a C call of the function `id` with large counts; `kept` is writable, for `plimsoll_narrowed`.
#[unsafe(no_mangle)]
unsafe extern "C" fn plimsoll_narrow(id: u32, arguments: *mut usize, kept: *mut *mut Arrays) -> usize {
    // SAFETY: by this function's contract.
    contained(OTHER, || unsafe { narrow(id, arguments, kept) })
}

/// # Safety
/// The contract of [`plimsoll_narrow`].
unsafe fn narrow(id: u32, arguments: *mut usize, kept: *mut *mut Arrays) -> usize {
    let Some((mpi, abi)) = mpi() else { return OTHER };
    let function = &functions()[id as usize];
    let comm = function.argument("comm").expect("whoever has such arrays has a communicator");
    // SAFETY: by this function's contract there is a word for each argument.
    let words = unsafe { std::slice::from_raw_parts_mut(arguments, function.arguments.len()) };
    let Some(lengths) = lengths(function, words, abi.handle(words[comm]), mpi, abi) else { return OTHER };
    let mut arrays = Arrays::new();
    for (place, argument) in function.arguments.iter().enumerate() {
        if argument.name.ends_with("count") && i32::try_from(words[place] as i64).is_err() {
            return TOO_LARGE;
        }
        if !is_of_counts(function, argument) || words[place] == 0 {
            continue;
        }
        let length = if is_received(function, argument) { lengths.received } else { lengths.sent };
        // SAFETY: the call's arrays have a count or displacement for each partner.
        let wide = unsafe { std::slice::from_raw_parts(words[place] as *const i64, length) };
        let narrow: Option<Box<[c_int]>> = wide.iter().map(|value| c_int::try_from(*value).ok()).collect();
        let Some(narrow) = narrow else { return TOO_LARGE };
        words[place] = narrow.as_ptr() as usize;
        arrays.push(narrow);
    }
    // SAFETY: by this function's contract.
    unsafe { *kept = Box::into_raw(Box::new(arrays)) };
    0
}

/// Runs after the call: frees its arrays, or keeps those of an operation that goes on.
///
/// # Safety
/// `kept` is the pointer that `plimsoll_narrow` wrote, and is passed once.
#[unsafe(no_mangle)]
unsafe extern "C" fn plimsoll_narrowed(id: u32, kept: *mut Arrays) {
    // SAFETY: by this function's contract.
    let arrays = unsafe { Box::from_raw(kept) };
    contained((), || keep_under_way(id, arrays));
}

fn keep_under_way(id: u32, arrays: Box<Arrays>) {
    let function = &functions()[id as usize];
    if function.name.ends_with("_init") {
        // A persistent request may be started again until the process ends.
        std::mem::forget(arrays);
    } else if function.argument("request").is_some() {
        static UNDER_WAY: Mutex<VecDeque<Arrays>> = Mutex::new(VecDeque::new());
        let mut under_way = UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner);
        if under_way.len() == KEPT {
            under_way.pop_front();
        }
        under_way.push_back(*arrays);
    }
}

/// Whether an argument is an array of `MPI_Count` or `MPI_Aint` that has ints in the function without large counts.
pub fn is_of_counts(function: &Function, argument: &Argument) -> bool {
    // Displacements of this function are addresses in both variants.
    let addresses = function.name.to_lowercase().contains("neighbor_alltoallw");
    argument.array && (argument.name.ends_with("counts") || argument.name.ends_with("displs") && !addresses)
}

fn is_received(function: &Function, argument: &Argument) -> bool {
    match argument.name {
        "recvcounts" | "rdispls" => true,
        "displs" => function.argument("recvcounts").is_some(),
        _ => false,
    }
}

/// Entries of the arrays that the MPI reads; 0 where the arrays are not significant.
struct Lengths {
    sent: usize,
    received: usize,
}

fn lengths(function: &Function, words: &[usize], comm: usize, mpi: &Mpi, abi: &Abi) -> Option<Lengths> {
    let ask = |question: unsafe extern "C" fn(usize, *mut c_int) -> c_int, of: usize| {
        let mut value = 0;
        // SAFETY: the program calls MPI with this communicator, or the group is the communicator's; the query is local and
        // writes a number.
        (unsafe { question(of, &mut value) } == 0).then_some(value)
    };
    let (size, rank) = (ask(mpi.comm_size, comm)?, ask(mpi.comm_rank, comm)?);
    let inter = ask(mpi.comm_test_inter, comm)? != 0;
    let name = function.name.to_lowercase();
    let (mut sent, mut received) = if name.contains("neighbor") {
        let (mut into, mut out, mut weighted) = (0, 0, 0);
        // SAFETY: as above; each query is of a communicator with its topology, and has a place for each number.
        let asked = unsafe {
            match ask(mpi.topo_test, comm)? {
                topology if topology == abi.topology_cart => (mpi.cartdim_get)(comm, &mut out),
                topology if topology == abi.topology_graph => (mpi.graph_neighbors_count)(comm, rank, &mut out),
                _ => (mpi.dist_graph_neighbors_count)(comm, &mut into, &mut out, &mut weighted),
            }
        };
        (asked == 0).then_some(())?;
        match ask(mpi.topo_test, comm)? {
            topology if topology == abi.topology_cart => (2 * out, 2 * out),
            topology if topology == abi.topology_graph => (out, out),
            _ => (out, into),
        }
    } else if inter && !name.contains("reduce_scatter") {
        let mut group = 0;
        // SAFETY: as above; the group is freed once, after its last use.
        let remote = unsafe {
            ((mpi.comm_remote_group)(comm, &mut group) == 0).then_some(())?;
            let remote = ask(mpi.group_size, group);
            (mpi.group_free)(&mut group);
            remote?
        };
        (remote, remote)
    } else {
        (size, size)
    };
    if let Some(root) = function.argument("root") {
        let root = words[root] as i32;
        if !(if inter { root == abi.root } else { root == rank }) {
            (sent, received) = (0, 0);
        }
    }
    if function.argument("sendbuf").is_some_and(|buffer| words[buffer] == abi.in_place) {
        sent = 0;
    }
    Some(Lengths { sent: sent.max(0) as usize, received: received.max(0) as usize })
}

fn mpi() -> Option<&'static (Mpi, Abi)> {
    static FOUND: OnceLock<Option<(Mpi, Abi)>> = OnceLock::new();
    FOUND.get_or_init(|| Mpi::find().ok()).as_ref()
}

#[cfg(test)]
mod tests {
    use record::functions::named;

    use super::*;

    #[test]
    fn arrays_of_counts_are_told_from_others() {
        let narrowed = |name: &str| -> Vec<&str> {
            let function = named(name).unwrap();
            function.arguments.iter().filter(|a| is_of_counts(function, a)).map(|a| a.name).collect()
        };
        assert_eq!(narrowed("Alltoallv"), ["sendcounts", "sdispls", "recvcounts", "rdispls"]);
        assert_eq!(narrowed("Gatherv"), ["recvcounts", "displs"]);
        assert_eq!(narrowed("Ineighbor_alltoallw"), ["sendcounts", "recvcounts"]);
        assert!(narrowed("Alltoall").is_empty() && narrowed("Waitall").is_empty());
        let received = |name: &str| -> Vec<bool> {
            let function = named(name).unwrap();
            function.arguments.iter().filter(|a| is_of_counts(function, a)).map(|a| is_received(function, a)).collect()
        };
        assert_eq!(received("Scatterv"), [false, false]);
        assert_eq!(received("Gatherv"), [true, true]);
        assert_eq!(received("Alltoallv"), [false, false, true, true]);
    }
}
