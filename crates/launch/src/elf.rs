//! What an ELF file says about the libraries it needs (System V ABI, gabi chapters 4 and 5).

/// From the ELF header: `EI_CLASS`, `EI_DATA`, `p_type`, `d_tag`.
const CLASS_32: u8 = 1;
const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
/// More entries than any linker writes; bounds the work on a hostile file.
const MOST_ENTRIES: usize = 4096;

/// A program or library, as far as linking goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elf {
    /// The loader that the kernel starts first; `None` for libraries and for programs linked statically.
    pub interpreter: Option<String>,
    /// Names of libraries (`DT_NEEDED`) in the file's order.
    pub needed: Vec<String>,
    /// Whether there is a dynamic section at all.
    pub is_dynamic: bool,
}

/// Reads the headers of `file`; `None` if it is no little-endian 64-bit ELF file, or a broken one.
pub fn read(file: &[u8]) -> Option<Elf> {
    if !is_elf(file) || file.get(4) != Some(&CLASS_64) || file.get(5) != Some(&LITTLE_ENDIAN) {
        return None;
    }
    let table = word(file, 32, 8)? as usize;
    let entry = word(file, 54, 2)? as usize;
    let count = word(file, 56, 2)? as usize;
    let segments: Vec<Segment> = (0..count.min(MOST_ENTRIES))
        .map(|nth| Segment::read(file, table.checked_add(nth.checked_mul(entry)?)?))
        .collect::<Option<_>>()?;
    let bytes = |segment: &Segment| file.get(segment.offset..segment.offset.checked_add(segment.length)?);
    let interpreter = match segments.iter().find(|segment| segment.kind == PT_INTERP) {
        Some(segment) => Some(text(bytes(segment)?, 0)?),
        None => None,
    };
    let Some(dynamic) = segments.iter().find(|segment| segment.kind == PT_DYNAMIC) else {
        return Some(Elf { interpreter, needed: Vec::new(), is_dynamic: false });
    };
    let entries: Vec<(u64, u64)> = bytes(dynamic)?
        .chunks_exact(16)
        .map(|entry| (word(entry, 0, 8).unwrap_or(DT_NULL), word(entry, 8, 8).unwrap_or(0)))
        .take_while(|(tag, _)| *tag != DT_NULL)
        .take(MOST_ENTRIES)
        .collect();
    let names = entries.iter().find(|(tag, _)| *tag == DT_STRTAB).map(|(_, address)| *address);
    let offset = |address: u64| {
        let within =
            |s: &&Segment| s.kind == PT_LOAD && address.checked_sub(s.address).is_some_and(|at| at < s.length as u64);
        let segment = segments.iter().find(within)?;
        segment.offset.checked_add((address - segment.address) as usize)
    };
    let needed = entries
        .iter()
        .filter(|(tag, _)| *tag == DT_NEEDED)
        .map(|(_, at)| text(file, offset(names?)?.checked_add(usize::try_from(*at).ok()?)?))
        .collect::<Option<_>>()?;
    Some(Elf { interpreter, needed, is_dynamic: true })
}

/// Whether `file` starts as every ELF file does.
pub fn is_elf(file: &[u8]) -> bool {
    file.starts_with(b"\x7fELF")
}

/// Whether `file` is an ELF file of a 32-bit machine.
pub fn is_32_bit(file: &[u8]) -> bool {
    is_elf(file) && file.get(4) == Some(&CLASS_32)
}

struct Segment {
    kind: u32,
    offset: usize,
    address: u64,
    length: usize,
}

impl Segment {
    fn read(file: &[u8], at: usize) -> Option<Segment> {
        let field = |offset: usize, length| word(file, at.checked_add(offset)?, length);
        Some(Segment {
            kind: field(0, 4)? as u32,
            offset: field(8, 8)?.try_into().ok()?,
            address: field(16, 8)?,
            length: field(32, 8)?.try_into().ok()?,
        })
    }
}

/// A little-endian number of `length` (at most 8) bytes.
fn word(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

/// A string up to its terminating zero.
fn text(bytes: &[u8], at: usize) -> Option<String> {
    let bytes = bytes.get(at..)?;
    let end = bytes.iter().position(|byte| *byte == 0)?;
    String::from_utf8(bytes[..end].to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A program of one page with a loader and two libraries, made by hand.
    fn program() -> Vec<u8> {
        let mut file = vec![0; 0x400];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
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
            let _ = read(&file);
        }

        #[test]
        fn no_numbers_make_it_panic(at in 0usize..0x3f8, number: u64) {
            let mut file = program();
            file[at..at + 8].copy_from_slice(&number.to_le_bytes());
            let _ = read(&file);
        }
    }
}
