//! Libraries that an ELF file needs (System V ABI, gabi chapters 4 and 5).

use object::LittleEndian;
use object::elf::{DT_NEEDED, DT_STRTAB, ELFCLASS32, FileHeader64, PT_LOAD, SHT_DYNSYM};
use object::read::StringTable;
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Sym};

/// More libraries than any linker writes; bounds the work on a hostile file.
const MOST_LIBRARIES: usize = 4096;

/// Links of a program or library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elf {
    /// The loader that the kernel starts first; `None` for libraries and for programs linked statically.
    pub interpreter: Option<String>,
    /// Names of libraries (`DT_NEEDED`) in the file's order.
    pub needed: Vec<String>,
    /// Whether the file has a dynamic section.
    pub is_dynamic: bool,
}

/// Reads the headers of `file`; `None` if it is no little-endian 64-bit ELF file, or a broken one.
pub fn read(file: &[u8]) -> Option<Elf> {
    let header = FileHeader64::<LittleEndian>::parse(file).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, file).ok()?;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    let interpreter = segments.iter().find_map(|segment| segment.interpreter(endian, file).transpose());
    let interpreter = match interpreter.transpose().ok()? {
        Some(name) => Some(text(name)?),
        None => None,
    };
    let dynamic = segments.iter().find_map(|segment| segment.dynamic(endian, file).transpose()).transpose().ok()?;
    let Some(dynamic) = dynamic else {
        return Some(Elf { interpreter, needed: Vec::new(), is_dynamic: false });
    };
    let all = |tag: i64| {
        let entries = dynamic.iter().filter(move |entry| entry.tag(endian) == tag);
        entries.map(move |entry| entry.d_val(endian))
    };
    let names = all(DT_STRTAB).next().and_then(|address| {
        let loaded = segments.iter().filter(|segment| segment.p_type(endian) == PT_LOAD);
        let mut within = loaded.filter_map(|segment| {
            let at = address.checked_sub(segment.p_vaddr(endian)).filter(|at| *at < segment.p_filesz(endian))?;
            segment.p_offset(endian).checked_add(at)
        });
        within.next()
    });
    let names = names.map(|start| StringTable::new(file, start, file.len() as u64)).unwrap_or_default();
    let needed = all(DT_NEEDED)
        .take(MOST_LIBRARIES)
        .map(|at| text(names.get(at.try_into().ok()?).ok()?))
        .collect::<Option<_>>()?;
    Some(Elf { interpreter, needed, is_dynamic: true })
}

/// Names that `file` takes from its libraries, by its dynamic symbols; `None` where it is no such file, or a broken one.
pub fn called(file: &[u8]) -> Option<Vec<String>> {
    let header = FileHeader64::<LittleEndian>::parse(file).ok()?;
    let endian = header.endian().ok()?;
    let symbols = header.sections(endian, file).ok()?.symbols(endian, file, SHT_DYNSYM).ok()?;
    let undefined = symbols.iter().filter(|symbol| symbol.is_undefined(endian));
    let names = undefined.filter_map(|symbol| str::from_utf8(symbol.name(endian, symbols.strings()).ok()?).ok());
    Some(names.map(str::to_owned).collect())
}

/// Whether `file` starts with the magic number of ELF.
pub fn is_elf(file: &[u8]) -> bool {
    file.starts_with(b"\x7fELF")
}

/// Whether `file` is an ELF file of a 32-bit machine.
pub fn is_32_bit(file: &[u8]) -> bool {
    is_elf(file) && file.get(4) == Some(&ELFCLASS32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use object::elf::{DT_NULL, PT_DYNAMIC, PT_INTERP};

    use super::*;

    /// A handmade program of one page with a loader and two libraries.
    fn program() -> Vec<u8> {
        let mut file = vec![0; 0x400];
        file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
        put(32, &64u64.to_le_bytes());
        put(54, &56u16.to_le_bytes());
        put(56, &3u16.to_le_bytes());
        let mut segment = |nth: usize, kind: u32, offset: u64, address: u64, length: u64| {
            put(64 + 56 * nth, &kind.to_le_bytes());
            put(64 + 56 * nth + 8, &offset.to_le_bytes());
            put(64 + 56 * nth + 16, &address.to_le_bytes());
            put(64 + 56 * nth + 32, &length.to_le_bytes());
        };
        segment(0, PT_LOAD, 0, 0x40_0000, 0x400);
        segment(1, PT_INTERP, 0x200, 0x40_0200, 9);
        segment(2, PT_DYNAMIC, 0x300, 0x40_0300, 64);
        put(0x200, b"/lib/ld.1\0");
        put(0x220, b"\0libmpi.so.40\0libc.so.6\0");
        let entries = [(DT_NEEDED, 1), (DT_STRTAB, 0x40_0220), (DT_NEEDED, 14), (DT_NULL, 0)];
        for (nth, (tag, value)) in entries.into_iter().enumerate() {
            put(0x300 + 16 * nth, &tag.to_le_bytes());
            put(0x308 + 16 * nth, &u64::to_le_bytes(value));
        }
        put(64 + 56 + 32, &10u64.to_le_bytes());
        file
    }

    #[test]
    fn libraries_and_loader_of_a_program() {
        let elf = read(&program()).unwrap();
        assert_eq!(elf.needed, ["libmpi.so.40", "libc.so.6"]);
        assert_eq!(elf.interpreter.as_deref(), Some("/lib/ld.1"));
        assert!(elf.is_dynamic);
    }

    #[test]
    fn this_test_itself_needs_the_c_library() {
        let elf = read(&std::fs::read(std::env::current_exe().unwrap()).unwrap()).unwrap();
        assert!(elf.needed.iter().any(|name| name.starts_with("libc.")), "{elf:?}");
        let called = called(&std::fs::read(std::env::current_exe().unwrap()).unwrap()).unwrap();
        assert!(called.iter().any(|name| name == "malloc") && !called.iter().any(|name| name == "MPI_Init"));
    }

    #[test]
    fn what_is_no_program_is_refused() {
        assert_eq!(read(b"#!/bin/sh\n"), None);
        assert_eq!(read(b"\x7fELF\x01\x01"), None);
        assert!(is_32_bit(b"\x7fELF\x01\x01"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(at in 0usize..0x400, byte: u8, cut in 0usize..0x401) {
            let mut file = program();
            file[at] = byte;
            file.truncate(cut);
            let _ = (read(&file), called(&file));
        }

        #[test]
        fn no_numbers_make_it_panic(at in 0usize..0x3f8, number: u64) {
            let mut file = program();
            file[at..at + 8].copy_from_slice(&number.to_le_bytes());
            let _ = (read(&file), called(&file));
        }
    }
}
