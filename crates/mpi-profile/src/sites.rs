//! Call sites: places in the program that call MPI, and the modules (loaded object files) that contain them.

use std::ffi::{CStr, c_int, c_void};

use record::layout::{self, Module, Region, kind};

use crate::contained::contained;
use crate::tables::Tables;

/// Modules in one region.
const AT_ONCE: u32 = 128;

/// Loaded objects that have call sites.
#[derive(Debug, Default)]
pub struct Modules {
    known: Vec<Known>,
    room: Option<crate::tables::Room>,
    left: u32,
}

// SAFETY: the addresses belong to a mapping of the whole process.
unsafe impl Send for Modules {}

#[derive(Debug, Clone)]
struct Known {
    from: usize,
    to: usize,
    base: u64,
    /// Index of the module in the rank's file, plus 1; 0: no room for it.
    number: u32,
    identity: u64,
}

/// A return address as module and offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Where {
    pub module: u32,
    pub offset: u64,
    /// The module has no room in the rank's file.
    pub dropped: bool,
}

impl Modules {
    /// Module and offset of the address; `None` where the module was not met before.
    pub fn known(&self, address: usize) -> Option<Where> {
        let known = self.known.iter().find(|known| (known.from..known.to).contains(&address))?;
        Some(known.locate(address))
    }

    /// Module and offset of the address, in a module that [`find`] found.
    pub fn meet(&mut self, address: usize, found: Found, tables: &mut Tables) -> Where {
        if let Some(known) = self.known(address) {
            return known;
        }
        let number = self.write(&found.module, tables);
        let (base, identity) = (found.module.base, found.module.identity());
        let known = Known { from: found.from, to: found.to, base, number, identity };
        self.known.push(known.clone());
        known.locate(address)
    }

    /// [`Module::identity`] of the module with this number.
    pub fn identity(&self, number: u32) -> Option<u64> {
        self.known.iter().find(|known| known.number == number && number != 0).map(|known| known.identity)
    }

    fn write(&mut self, module: &Module, tables: &mut Tables) -> u32 {
        if self.left == 0 {
            let region =
                Region { kind: kind::MODULES, thread: layout::WHOLE_RANK, capacity: AT_ONCE, ..Region::default() };
            let record_bytes = size_of::<Module>() as u16;
            let Some(room) = tables.region(Region { record_bytes, ..region }) else { return 0 };
            self.room = Some(room);
            self.left = AT_ONCE;
        }
        let Some(room) = self.room else { return 0 };
        let place = AT_ONCE - self.left;
        // SAFETY: the region has room for AT_ONCE records; the entry is this region's.
        unsafe {
            room.start.cast::<Module>().add(place as usize).write(module.sealed());
            (&raw mut (*room.entry.as_ptr()).used).write_volatile(place + 1);
        }
        self.left -= 1;
        self.known.iter().map(|known| known.number).max().unwrap_or(0) + 1
    }
}

/// An address outside of all modules, such as that of code generated at run time.
pub fn nowhere(address: usize) -> Where {
    Where { module: 0, offset: address as u64, dropped: false }
}

/// The loaded object that has the address. The caller holds no lock of this library: the loader runs code of other
/// libraries under a lock of its own.
pub fn find(address: usize) -> Option<Found> {
    let mut search = Search { address, found: None };
    // SAFETY: the callback's record, `search`, outlives the walk.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}

/// The address range of the loaded object that has the address.
pub fn span(address: usize) -> Option<std::ops::Range<usize>> {
    find(address).map(|found| found.from..found.to)
}

/// A loaded object and its address range.
#[derive(Debug)]
pub struct Found {
    module: Module,
    from: usize,
    to: usize,
}

impl Known {
    fn locate(&self, address: usize) -> Where {
        Where { module: self.number, offset: address as u64 - self.base, dropped: self.number == 0 }
    }
}

struct Search {
    address: usize,
    found: Option<Found>,
}

unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader gives a valid record with `dlpi_phnum` headers; `search` is the record of `find`.
    let (info, search, headers) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        (info, &mut *search.cast::<Search>(), headers)
    };
    contained(1, || look_in(info, headers, search))
}

fn look_in(info: &libc::dl_phdr_info, headers: &[libc::Elf64_Phdr], search: &mut Search) -> c_int {
    let base = info.dlpi_addr as usize;
    let loads = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let spans = loads.map(|header| {
        let from = base.wrapping_add(header.p_vaddr as usize);
        (from, from.wrapping_add(header.p_memsz as usize))
    });
    let holds = spans.clone().any(|(from, to)| (from..to).contains(&search.address));
    if !holds {
        return 0;
    }
    let from = spans.clone().map(|(from, _)| from).min().unwrap_or(0);
    let to = spans.map(|(_, to)| to).max().unwrap_or(0);
    let name = match info.dlpi_name.is_null() {
        true => String::new(),
        // SAFETY: the loader's names are C strings.
        false => unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned(),
    };
    // The loader has no name for the program itself.
    let path = match name.is_empty() {
        true => {
            std::fs::read_link("/proc/self/exe").map(|path| path.to_string_lossy().into_owned()).unwrap_or_default()
        }
        false => std::fs::canonicalize(&name).map(|path| path.to_string_lossy().into_owned()).unwrap_or(name),
    };
    let mut module =
        Module { base: base as u64, build_id_bytes: 0, seal: 0, build_id: [0; 32], path: layout::text(&path) };
    for header in headers.iter().filter(|header| header.p_type == libc::PT_NOTE) {
        let start = base.wrapping_add(header.p_vaddr as usize) as *const u8;
        // SAFETY: a note segment of a loaded object lies in its memory.
        let notes = unsafe { std::slice::from_raw_parts(start, header.p_memsz as usize) };
        if let Some(id) = build_id(notes) {
            let bytes = id.len().min(32);
            module.build_id[..bytes].copy_from_slice(&id[..bytes]);
            module.build_id_bytes = bytes as u32;
            break;
        }
    }
    search.found = Some(Found { module, from, to });
    1
}

/// The description of the note of type NT_GNU_BUILD_ID.
fn build_id(mut notes: &[u8]) -> Option<&[u8]> {
    while notes.len() >= 12 {
        let word = |at: usize| u32::from_le_bytes(notes[at..at + 4].try_into().expect("4 bytes")) as usize;
        let (name, description, of) = (word(0), word(4), word(8));
        let start = 12usize.checked_add(name.checked_next_multiple_of(4)?)?;
        let end = start.checked_add(description)?;
        if of == 3 && notes.get(12..16) == Some(b"GNU\0") {
            return notes.get(start..end);
        }
        notes = notes.get(end.checked_next_multiple_of(4)?..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_id_is_found_among_other_notes() {
        let mut notes = Vec::new();
        for (kind, description) in [(1u32, vec![1u8; 5]), (3, vec![7u8; 20])] {
            notes.extend(4u32.to_le_bytes());
            notes.extend((description.len() as u32).to_le_bytes());
            notes.extend(kind.to_le_bytes());
            notes.extend(b"GNU\0");
            notes.extend(&description);
            notes.resize(notes.len().next_multiple_of(4), 0);
        }
        assert_eq!(build_id(&notes), Some(&[7u8; 20][..]));
        assert_eq!(build_id(&notes[..30]), None);
        assert_eq!(build_id(&[0xff; 40]), None);
    }

    #[test]
    fn an_address_of_this_test_is_in_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let (mut tables, _) = Tables::create(&folder.path().join("a.1.rank"), 1 << 20).unwrap();
        let mut modules = Modules::default();
        let mut locate = |address: usize| match modules.known(address) {
            Some(known) => known,
            None => find(address).map_or(nowhere(address), |found| modules.meet(address, found, &mut tables)),
        };
        let here = build_id as *const () as usize;
        let found = locate(here);
        assert_eq!((found.module, found.dropped), (1, false));
        assert_eq!(locate(here + 1).offset, found.offset + 1);
        let elsewhere = locate(libc::getpid as *const () as usize);
        assert_eq!(elsewhere.module, 2);
        assert_eq!(locate(8).module, 0);
        let rank = record::rank::Rank::open(&folder.path().join("a.1.rank")).unwrap();
        let own = std::env::current_exe().unwrap().canonicalize().unwrap();
        assert_eq!(layout::words(&rank.modules[0].path), own.to_string_lossy());
        assert_eq!(rank.modules.len(), 2);
    }
}
