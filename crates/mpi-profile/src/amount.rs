//! The bytes of a call, by the rule of its function.

use crate::call::Call;
use crate::communicators::Communicator;
use crate::here::Here;
use crate::rules::{Amount, NONE, Rule, Times};

/// Bytes that this rank sends, posts or contributes.
///
/// # Safety
/// The call succeeded.
pub unsafe fn of(here: &mut Here, call: &Call, rule: &Rule, comm: Option<&Communicator>) -> u64 {
    let abi = here.abi();
    if comm.is_some_and(|comm| comm.inter) && rule.root != NONE {
        // SAFETY: by this function's contract.
        let root = unsafe { call.integer(rule.root) };
        if root == abi.proc_null || root == abi.root && !rule.root_gives {
            return 0;
        }
    }
    let in_place = rule.send_buffer != NONE
        && here.rank.is_in_place(call.arguments[usize::from(rule.send_buffer) & 15], call.language);
    // SAFETY: by this function's contract.
    unsafe { evaluate(here, call, rule, comm, if in_place { &rule.in_place } else { &rule.amount }) }
}

/// Bytes of `count` elements.
///
/// # Safety
/// The call succeeded, and its function reads these arguments.
#[inline]
pub unsafe fn elements(here: &mut Here, call: &Call, rule: &Rule, count: u8, datatype: u8) -> u64 {
    // SAFETY: by this function's contract.
    unsafe {
        let count = call.count(count, rule.wide);
        times_size(here, call, count, datatype)
    }
}

/// Bytes of `count` elements. Without elements the datatype may be invalid, and is not read.
///
/// # Safety
/// The contract of [`elements`].
#[inline]
unsafe fn times_size(here: &mut Here, call: &Call, count: i64, datatype: u8) -> u64 {
    if count <= 0 {
        return 0;
    }
    // SAFETY: by this function's contract.
    unsafe {
        let datatype = call.handle(datatype, here.abi());
        (count as u64).wrapping_mul(here.datatypes.size(datatype, &here.rank.mpi, &here.rank.abi))
    }
}

/// # Safety
/// The call succeeded.
unsafe fn evaluate(here: &mut Here, call: &Call, rule: &Rule, comm: Option<&Communicator>, amount: &Amount) -> u64 {
    let (own, addressed, rank) = comm.map_or((0, 0, 0), |comm| {
        let addressed = if rule.neighbour { comm.out_degree } else { comm.fan };
        (comm.size, addressed, comm.rank.max(0) as usize)
    });
    // SAFETY: by this function's contract; arrays of counts have an element for each rank whose count is read.
    unsafe {
        match amount {
            Amount::Nothing | Amount::Started | Amount::Completed => 0,
            Amount::Elements { count, datatype, times } => {
                let times = match times {
                    Times::Once => 1,
                    Times::Addressed => u64::from(addressed),
                    Times::Own => u64::from(own),
                    Times::Argument(times) => call.integer(*times).max(0) as u64,
                };
                elements(here, call, rule, *count, *datatype).wrapping_mul(times)
            }
            Amount::Element { datatype } => times_size(here, call, 1, *datatype),
            Amount::Own { counts, datatype } => {
                let count = call.count_at(*counts, rank);
                times_size(here, call, count, *datatype)
            }
            Amount::Sum { counts, datatype, own: of_own } => {
                let parts = if *of_own { own } else { addressed };
                let sum = (0..parts as usize).map(|at| call.count_at(*counts, at).max(0)).sum();
                times_size(here, call, sum, *datatype)
            }
            Amount::SumEach { counts, datatypes } => {
                let mut sum = 0u64;
                for at in 0..addressed as usize {
                    let count = call.count_at(*counts, at);
                    if count > 0 {
                        let datatype = call.handle_at(*datatypes, at, here.abi());
                        let size = here.datatypes.size(datatype, &here.rank.mpi, &here.rank.abi);
                        sum = sum.wrapping_add((count as u64).wrapping_mul(size));
                    }
                }
                sum
            }
            Amount::Rooted { root, at_root, elsewhere } => {
                let root = call.integer(*root);
                let is_root = if comm.is_some_and(|comm| comm.inter) {
                    root == here.abi().root
                } else {
                    comm.is_some_and(|comm| comm.rank == root)
                };
                evaluate(here, call, rule, comm, if is_root { at_root } else { elsewhere })
            }
        }
    }
}
