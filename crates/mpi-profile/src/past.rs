//! MPI calls past this library: by functions that a program takes from the MPI's library itself, and by objects that are
//! bound to the MPI directly. These cannot be recorded; a mark in the folder reports them ([`record::folder::past_file`]).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;
use std::ops::Range;
use std::path::{Path, PathBuf};

use record::folder::{self, past, variable};
use record::functions::functions;

use crate::contained::contained;
use crate::real;
use crate::sites;

/// `PT_DYNAMIC` of a program header.
const DYNAMIC: u32 = 2;

/// Tags of a dynamic section.
mod tag {
    pub const END: usize = 0;
    pub const JUMPS_BYTES: usize = 2;
    pub const STRINGS: usize = 5;
    pub const SYMBOLS: usize = 6;
    pub const RELOCATIONS: usize = 7;
    pub const RELOCATIONS_BYTES: usize = 8;
    pub const JUMPS: usize = 23;
    pub const COUNT: usize = 24;
}

/// Types of relocations for the address of a function: in the table of jumps, and in other tables.
#[cfg(target_arch = "x86_64")]
const ADDRESSES: [u32; 2] = [7, 6];
#[cfg(target_arch = "aarch64")]
const ADDRESSES: [u32; 2] = [1026, 1025];

const SYMBOL_BYTES: usize = 24;

/// At the end of a process without a recorded call: writes the mark where its MPI was initialized nevertheless.
pub fn note_silent(host: &str) {
    let Some(folder) = std::env::var_os(variable::FOLDER).filter(|folder| !folder.is_empty()) else { return };
    let Some(found) = real::find(c"PMPI_Initialized") else { return };
    // SAFETY: the MPI's function of this name has this type.
    let initialized = unsafe { transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int) -> c_int>(found) };
    let mut flag = 0;
    // SAFETY: MPI_Initialized may be called at any time, also after MPI_Finalize.
    let asked = unsafe { initialized(&mut flag) };
    if asked == 0 && flag != 0 {
        let file = PathBuf::from(folder);
        note(&file, host, &format!("{} {}\n", past::ALL, real::file_of(found as usize)));
    }
}

/// Before a rank ends MPI: writes the mark where loaded objects call the MPI past this library.
pub fn note_bound(folder: &Path, host: &str) {
    let mpi = real::find(c"PMPI_Init").and_then(|init| sites::span(init as usize));
    let Some(mpi) = mpi else { return };
    let mut search = Search { mpi, found: String::new() };
    // SAFETY: the callback's record, `search`, outlives the walk.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    if !search.found.is_empty() {
        note(folder, host, &search.found);
    }
}

/// Writes the mark. A failure is not reported: the recorded data are the same without the mark.
fn note(folder: &Path, host: &str, lines: &str) {
    let _ = std::fs::write(folder::past_file(folder, host, std::process::id()), lines);
}

struct Search {
    /// The address range of the MPI's library.
    mpi: Range<usize>,
    found: String,
}

unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader gives a valid record with `dlpi_phnum` headers; `search` is the record of `note_bound`.
    let (info, search, headers) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        (info, &mut *search.cast::<Search>(), headers)
    };
    contained(1, || {
        let base = info.dlpi_addr as usize;
        let address = |header: &libc::Elf64_Phdr| base.wrapping_add(header.p_vaddr as usize);
        let is_mpi = headers.iter().any(|h| h.p_type == libc::PT_LOAD && search.mpi.contains(&address(h)));
        let dynamic = headers.iter().find(|header| header.p_type == DYNAMIC).filter(|_| !is_mpi);
        let Some(dynamic) = dynamic else { return 0 };
        let entries = dynamic.p_memsz as usize / size_of::<[usize; 2]>();
        // SAFETY: during the callback the loader keeps the object in memory, with all that its dynamic section refers to.
        if unsafe { is_bound(base, address(dynamic), entries, &search.mpi) } {
            let name = match info.dlpi_name.is_null() {
                true => c"",
                // SAFETY: the loader's names are C strings.
                false => unsafe { CStr::from_ptr(info.dlpi_name) },
            };
            let name = if name.is_empty() { "the program".into() } else { name.to_string_lossy() };
            search.found += &format!("{} {}\n", past::SOME, name.replace('\n', " "));
        }
        0
    })
}

/// Whether a relocation of an object binds a recorded function straight to the MPI. Functions not yet bound do not count.
///
/// # Safety
/// The object at `base` is loaded, and its dynamic section, of `entries` entries, is at `dynamic`.
unsafe fn is_bound(base: usize, dynamic: usize, entries: usize, mpi: &Range<usize>) -> bool {
    let mut values = [0usize; tag::COUNT];
    for place in 0..entries {
        // SAFETY: by this function's contract.
        let [tag, value] = unsafe { (dynamic as *const [usize; 2]).add(place).read() };
        if tag == tag::END {
            break;
        }
        if let Some(known) = values.get_mut(tag) {
            *known = value;
        }
    }
    if values[tag::STRINGS] == 0 || values[tag::SYMBOLS] == 0 {
        return false;
    }
    // glibc relocates these values when it loads an object; other C libraries leave the file's values.
    let address = |value: usize| if value < base { base.wrapping_add(value) } else { value };
    let (strings, symbols) = (address(values[tag::STRINGS]), address(values[tag::SYMBOLS]));
    let tables = [(tag::JUMPS, tag::JUMPS_BYTES), (tag::RELOCATIONS, tag::RELOCATIONS_BYTES)];
    let tables = tables.map(|(table, bytes)| (values[table], values[bytes])).into_iter().filter(|(at, _)| *at != 0);
    for (table, bytes) in tables {
        let relocations = address(table) as *const [u64; 3];
        for place in 0..bytes / size_of::<[u64; 3]>() {
            // SAFETY: by this function's contract; the table has `bytes` bytes.
            let [offset, kind, _] = unsafe { relocations.add(place).read() };
            let symbol = (kind >> 32) as usize;
            if symbol == 0 || !ADDRESSES.contains(&(kind as u32)) {
                continue;
            }
            // SAFETY: as above; a symbol begins with the offset of its name, which is a C string.
            let name = unsafe {
                let name = ((symbols + symbol * SYMBOL_BYTES) as *const u32).read();
                CStr::from_ptr((strings + name as usize) as *const c_char)
            };
            // SAFETY: as above; the loader has written a word there.
            let leads_to = || unsafe { (base.wrapping_add(offset as usize) as *const usize).read() };
            if is_recorded(name.to_bytes()) && mpi.contains(&leads_to()) {
                return true;
            }
        }
    }
    false
}

fn is_recorded(name: &[u8]) -> bool {
    let Some(name) = name.strip_prefix(b"MPI_") else { return false };
    let name = name.strip_suffix(b"_c").unwrap_or(name);
    functions().iter().any(|function| function.name.as_bytes() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_functions_that_are_recorded_count() {
        assert!(is_recorded(b"MPI_Send") && is_recorded(b"MPI_Send_c") && is_recorded(b"MPI_Init"));
        assert!(!is_recorded(b"MPI_Comm_rank") && !is_recorded(b"PMPI_Send") && !is_recorded(b"send"));
    }

    #[test]
    fn what_an_object_is_bound_to_is_seen_in_its_tables() {
        // This program is bound to the C library, and to no function of MPI there.
        let library = sites::span(libc::getpid as *const () as usize).unwrap();
        let mut search = Search { mpi: library, found: String::new() };
        // SAFETY: the callback's record, `search`, outlives the walk.
        unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
        assert_eq!(search.found, "");
    }
}
