//! A call as its wrapper passes it on, and the meaning of its words.

use crate::abi::Abi;

/// The calling convention of the arguments.
pub mod language {
    pub const C: u32 = 0;
    /// Counts have type MPI_Count.
    pub const LARGE_C: u32 = 1;
    /// All arguments are addresses, handles are integers.
    pub const FORTRAN: u32 = 2;
    /// As in `FORTRAN`, but counts have kind MPI_COUNT_KIND.
    pub const LARGE_FORTRAN: u32 = 3;
}

/// The layout is that of `src/shim.h`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Call {
    /// [`record::functions::FunctionId`].
    pub function: u32,
    pub language: u32,
    /// The return address of the call.
    pub site: usize,
    /// Ticks at the entry of the call, and at its return.
    pub entered: u64,
    pub left: u64,
    pub result: usize,
    /// The handle of the request that the call may overwrite.
    pub kept: u64,
    pub reserved: u64,
    pub arguments: [usize; 16],
}

/// The sizes of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Facts {
    pub bytes: u64,
    /// Ranks of the communicator of a collective call.
    pub group: u32,
    /// Messages that the call began, and their bytes.
    pub messages: u64,
    pub message_bytes: u64,
}

/// A handle of the MPI with its language: the key of caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

/// A bit that no C handle has: C handles are addresses or have 32 bits.
const OF_FORTRAN: u64 = 1 << 63;

impl Handle {
    pub fn c(word: usize) -> Handle {
        Handle(word as u64)
    }

    pub fn fortran(integer: i32) -> Handle {
        Handle(u64::from(integer as u32) | OF_FORTRAN)
    }

    pub fn is_fortran(self) -> bool {
        self.0 & OF_FORTRAN != 0
    }

    pub fn integer(self) -> i32 {
        self.0 as u32 as i32
    }
}

impl Call {
    /// A call in C without arguments that took no time.
    pub fn of(function: u32, site: usize) -> Call {
        let (entered, left, result, kept, reserved) = (0, 0, 0, 0, 0);
        Call { function, language: language::C, site, entered, left, result, kept, reserved, arguments: [0; 16] }
    }

    pub fn succeeded(&self) -> bool {
        self.result as i32 == 0
    }

    pub fn is_fortran(&self) -> bool {
        self.language >= language::FORTRAN
    }

    /// An argument of type int.
    ///
    /// # Safety
    /// In Fortran the argument must be the address of one.
    #[inline]
    pub unsafe fn integer(&self, argument: u8) -> i32 {
        let word = self.arguments[usize::from(argument) & 15];
        if self.is_fortran() {
            // SAFETY: by this function's contract.
            return unsafe { *(word as *const i32) };
        }
        word as i32
    }

    /// A count: MPI_Count where the language is a large one or `wide` is set, else int.
    ///
    /// # Safety
    /// In Fortran the argument must be the address of one.
    #[inline]
    pub unsafe fn count(&self, argument: u8, wide: bool) -> i64 {
        let word = self.arguments[usize::from(argument) & 15];
        match self.language {
            // SAFETY: by this function's contract.
            language::LARGE_FORTRAN => unsafe { *(word as *const i64) },
            // SAFETY: by this function's contract.
            language::FORTRAN if wide => unsafe { *(word as *const i64) },
            // SAFETY: by this function's contract.
            language::FORTRAN => i64::from(unsafe { *(word as *const i32) }),
            language::LARGE_C => word as i64,
            _ if wide => word as i64,
            _ => i64::from(word as i32),
        }
    }

    /// An element of an array of counts.
    ///
    /// # Safety
    /// The argument must be the address of an array with that many elements and one more.
    #[inline]
    pub unsafe fn count_at(&self, argument: u8, index: usize) -> i64 {
        let word = self.arguments[usize::from(argument) & 15];
        if matches!(self.language, language::LARGE_C | language::LARGE_FORTRAN) {
            // SAFETY: by this function's contract.
            return unsafe { *(word as *const i64).add(index) };
        }
        // SAFETY: by this function's contract.
        i64::from(unsafe { *(word as *const i32).add(index) })
    }

    /// A handle that is passed by value in C.
    ///
    /// # Safety
    /// In Fortran the argument must be the address of one.
    #[inline]
    pub unsafe fn handle(&self, argument: u8, abi: &Abi) -> Handle {
        let word = self.arguments[usize::from(argument) & 15];
        if self.is_fortran() {
            // SAFETY: by this function's contract.
            return Handle::fortran(unsafe { *(word as *const i32) });
        }
        Handle::c(abi.handle(word))
    }

    /// The bytes of a handle in an array.
    pub fn handle_bytes(&self, abi: &Abi) -> usize {
        if self.is_fortran() { 4 } else { abi.handle_bytes }
    }

    /// An element of an array of handles, or a handle that is passed by its address in C.
    ///
    /// # Safety
    /// The argument must be the address of an array with that many elements and one more.
    #[inline]
    pub unsafe fn handle_at(&self, argument: u8, index: usize, abi: &Abi) -> Handle {
        let word = self.arguments[usize::from(argument) & 15];
        // SAFETY: by this function's contract.
        unsafe { self.handle_in(word, index, abi) }
    }

    /// An element of an array of handles at any address.
    ///
    /// # Safety
    /// The contract of [`Call::handle_at`].
    #[inline]
    pub unsafe fn handle_in(&self, array: usize, index: usize, abi: &Abi) -> Handle {
        match self.handle_bytes(abi) {
            4 => {
                // SAFETY: by this function's contract.
                let value = unsafe { *(array as *const u32).add(index) };
                if self.is_fortran() { Handle::fortran(value as i32) } else { Handle::c(value as usize) }
            }
            // SAFETY: by this function's contract.
            _ => Handle::c(unsafe { *(array as *const usize).add(index) }),
        }
    }
}
