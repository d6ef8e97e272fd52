//! The fields of a status in each MPI.

use record::layout::family;
use record::trace::{Matched, peer};

use crate::abi::Abi;
use crate::call::language;
use crate::real;

#[derive(Debug, Clone, Copy)]
pub struct Got {
    source: i32,
    tag: i32,
    bytes: u64,
}

impl Got {
    /// `world` translates a rank of the communicator to one of MPI_COMM_WORLD.
    pub fn matched(self, place: u32, abi: &Abi, world: impl FnOnce(i32) -> i32) -> Matched {
        let source = if self.source == abi.proc_null { peer::NULL } else { world(self.source) };
        Matched { place, source, tag: self.tag, bytes: self.bytes }
    }
}

/// Whether a program passed MPI_STATUS_IGNORE or MPI_STATUSES_IGNORE.
pub fn is_ignored(word: usize, of: u32, abi: &Abi) -> bool {
    if of < language::FORTRAN {
        return word == abi.status_ignore;
    }
    // In Fortran both are variables, whose addresses the MPI keeps.
    let names =
        [c"MPI_F_STATUS_IGNORE", c"MPI_F_STATUSES_IGNORE", c"MPI_F08_STATUS_IGNORE", c"MPI_F08_STATUSES_IGNORE"];
    names.into_iter().enumerate().any(|(place, name)| {
        let address = real::variable(place, name);
        // SAFETY: the variable is a pointer of the MPI's, which stays loaded; F08's is the ignored status itself.
        address != 0 && (word == address || word == unsafe { *(address as *const usize) })
    })
}

/// Source, tag and bytes of a status; `None` where the receive was cancelled.
///
/// # Safety
/// The MPI wrote a status of its own at `status`.
pub unsafe fn read(status: usize, abi: &Abi) -> Option<Got> {
    // SAFETY: by this function's contract; the offsets are those of the MPI's structure.
    let word = |offset: usize| unsafe { ((status + offset) as *const i32).read_unaligned() };
    let counted = |offset: usize| {
        // Low 32 bits of the bytes, then the bit for cancelled and the high 31 bits.
        let (low, high) = (word(offset) as u32, word(offset + 4) as u32);
        (high & 1 == 0).then_some(u64::from(low) | u64::from(high >> 1) << 32)
    };
    let bytes = match abi.family {
        // MPI_SOURCE, MPI_TAG, MPI_ERROR, cancelled, bytes.
        family::OPEN_MPI => {
            let bytes = u64::from(word(16) as u32) | u64::from(word(20) as u32) << 32;
            (word(12) == 0).then_some(bytes)
        }
        family::STANDARD => counted(abi.status_source + 12),
        _ => counted(0),
    }?;
    Some(Got { source: word(abi.status_source), tag: word(abi.status_source + 4), bytes })
}
