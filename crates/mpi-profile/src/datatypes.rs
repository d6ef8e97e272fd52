//! A thread's cache of the sizes of datatypes.

use crate::abi::Abi;
use crate::call::Handle;
use crate::real::Mpi;

const PLACES: usize = 64;

/// Handle and bytes at each place. Of two handles with the same place, the later one has it.
#[derive(Debug)]
pub struct Datatypes {
    places: [(u64, u64); PLACES],
}

/// Mark of a free place. Handles are addresses or 32-bit integers, and never have this value.
const FREE: u64 = u64::MAX;

impl Datatypes {
    pub const fn new() -> Datatypes {
        Datatypes { places: [(FREE, 0); PLACES] }
    }

    pub fn clear(&mut self) {
        *self = Datatypes::new();
    }

    /// The cached size of a datatype.
    pub fn known(&self, handle: Handle) -> Option<u64> {
        let (of, bytes) = self.places[place(handle)];
        (of == handle.0).then_some(bytes)
    }

    /// Bytes of the data of one element; 0 where the query of the MPI fails.
    ///
    /// # Safety
    /// A call that needs the datatype succeeded with this handle.
    #[inline]
    pub unsafe fn size(&mut self, handle: Handle, mpi: &Mpi, abi: &Abi) -> u64 {
        let place = &mut self.places[place(handle)];
        if place.0 == handle.0 {
            return place.1;
        }
        // SAFETY: by this function's contract.
        *place = (handle.0, unsafe { ask(handle, mpi, abi) });
        place.1
    }
}

#[inline]
fn place(handle: Handle) -> usize {
    (handle.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize & (PLACES - 1)
}

impl Default for Datatypes {
    fn default() -> Datatypes {
        Datatypes::new()
    }
}

/// # Safety
/// The contract of [`Datatypes::size`].
#[cold]
unsafe fn ask(handle: Handle, mpi: &Mpi, abi: &Abi) -> u64 {
    // SAFETY: by this function's contract the MPI knows the datatype.
    unsafe {
        let datatype = match mpi.type_of {
            Some(of) if handle.is_fortran() && abi.handle_bytes == 8 => of(handle.integer()),
            _ if handle.is_fortran() => handle.integer() as u32 as usize,
            _ => handle.0 as usize,
        };
        let mut size = 0i64;
        if let Some(large) = mpi.type_size_x {
            return if large(datatype, &mut size) == 0 { size.max(0) as u64 } else { 0 };
        }
        let mut size = 0;
        if (mpi.type_size)(datatype, &mut size) == 0 { size.max(0) as u64 } else { 0 }
    }
}
