//! The little of an ELF object that the loader must know before the parser sees it: that it is one for BPF, where its
//! variables are, and which sections hold `syscall` programs, a kind that the parser does not know.

use std::collections::BTreeMap;

/// A variable of `.rodata`, `.data` or `.bss`, which each become a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Variable {
    pub map: String,
    pub offset: usize,
    pub size: usize,
}

pub(super) struct Elf {
    bytes: Vec<u8>,
    sections: Vec<Section>,
    names: usize,
}

#[derive(Debug, Clone)]
struct Section {
    name: String,
    kind: u32,
    has_code: bool,
    link: usize,
    offset: usize,
    size: usize,
}

const HEADER: usize = 64;
const SECTION: usize = 64;
const SYMBOL: usize = 24;
const MACHINE_BPF: u64 = 247;
const SYMBOL_TABLE: u32 = 2;
const NO_BITS: u32 = 8;
const LARGEST_VARIABLES: usize = 64 << 20;
const SYSCALL: &str = "syscall";
/// A kind that the parser knows and this loader has no other use for; not longer than `syscall`.
const STAND_IN: &str = "fentry";

impl Elf {
    /// An error is a sentence: why this is no object for BPF.
    pub fn read(bytes: &[u8]) -> Result<Elf, String> {
        if bytes.get(..6) != Some(b"\x7fELF\x02\x01") {
            return Err("it is not a 64-bit little-endian ELF object".into());
        }
        let mut elf = Elf { bytes: bytes.to_vec(), sections: Vec::new(), names: 0 };
        if elf.number(18, 2)? != MACHINE_BPF {
            return Err("it was not compiled for BPF".into());
        }
        let (table, count) = (elf.number(40, 8)? as usize, elf.number(60, 2)? as usize);
        elf.names = elf.number(62, 2)? as usize;
        for index in 0..count {
            let at = table.checked_add(index * SECTION).ok_or("its section table is out of bounds")?;
            elf.sections.push(Section {
                name: String::new(),
                kind: elf.number(at + 4, 4)? as u32,
                // SHF_EXECINSTR
                has_code: elf.number(at + 8, 8)? & 4 != 0,
                link: elf.number(at + 40, 4)? as usize,
                offset: elf.number(at + 24, 8)? as usize,
                size: elf.number(at + 32, 8)? as usize,
            });
        }
        for index in 0..count {
            let name = elf.number(table + index * SECTION, 4)? as usize;
            elf.sections[index].name = elf.text(elf.names, name)?;
            // The parser makes room for what a section says it has.
            match elf.sections[index].kind {
                NO_BITS if elf.sections[index].size > LARGEST_VARIABLES => {
                    return Err("its variables are too large".into());
                }
                NO_BITS => {}
                _ => elf.content(index).map(drop)?,
            }
        }
        Ok(elf)
    }

    fn number(&self, at: usize, bytes: usize) -> Result<u64, String> {
        let end = at.checked_add(bytes).ok_or("it is cut off")?;
        let field = self.bytes.get(at..end).ok_or("it is cut off")?;
        Ok(field.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn content(&self, index: usize) -> Result<&[u8], String> {
        let section = self.sections.get(index).ok_or("it names a section that it does not have")?;
        let end = section.offset.checked_add(section.size).ok_or("a section is out of bounds")?;
        Ok(self.bytes.get(section.offset..end).ok_or("a section is out of bounds")?)
    }

    fn text(&self, table: usize, at: usize) -> Result<String, String> {
        let rest = self.content(table)?.get(at..).ok_or("a name is out of bounds")?;
        let end = rest.iter().position(|&byte| byte == 0).ok_or("a name does not end")?;
        Ok(String::from_utf8_lossy(&rest[..end]).into_owned())
    }

    pub fn variables(&self) -> Result<BTreeMap<String, Variable>, String> {
        let mut found = BTreeMap::new();
        for index in (0..self.sections.len()).filter(|&index| self.sections[index].kind == SYMBOL_TABLE) {
            let symbols = &self.sections[index];
            for at in (0..symbols.size / SYMBOL).map(|n| symbols.offset + n * SYMBOL) {
                // STT_OBJECT
                if self.number(at + 4, 1)? & 0xf != 1 {
                    continue;
                }
                let Some(section) = self.sections.get(self.number(at + 6, 2)? as usize) else { continue };
                if [".rodata", ".data", ".bss"].iter().any(|kind| section.name.starts_with(kind)) {
                    let (offset, size) = (self.number(at + 8, 8)? as usize, self.number(at + 16, 8)? as usize);
                    if offset.checked_add(size).is_none_or(|end| end > section.size) {
                        return Err("a variable is out of bounds".into());
                    }
                    let name = self.text(symbols.link, self.number(at, 4)? as usize)?;
                    found.insert(name, Variable { map: section.name.clone(), offset, size });
                }
            }
        }
        Ok(found)
    }

    /// Sections of programs that are not for this loader; the parser would take what it knows.
    pub fn program_sections(&self) -> impl Iterator<Item = &str> {
        // `.text` holds what programs call.
        let programs = self.sections.iter().filter(|section| section.has_code && section.size > 0);
        programs.map(|section| section.name.as_str()).filter(|name| *name != ".text")
    }

    /// The object with each `syscall` section renamed to [`STAND_IN`].
    pub fn for_the_parser(mut self) -> Result<Vec<u8>, String> {
        let table = self.number(40, 8)? as usize;
        let is_syscall = |name: &str| name == SYSCALL || name.starts_with("syscall/");
        let renamed: Vec<usize> =
            (0..self.sections.len()).filter(|&index| is_syscall(&self.sections[index].name)).collect();
        if renamed.is_empty() {
            return Ok(self.bytes);
        }
        // Names share their ends, so the new one goes into a copy of the table of names behind everything else.
        let mut names = self.content(self.names)?.to_vec();
        let stand_in = names.len() as u32;
        names.extend_from_slice(STAND_IN.as_bytes());
        names.push(0);
        for index in renamed {
            self.bytes[table + index * SECTION..][..4].copy_from_slice(&stand_in.to_le_bytes());
        }
        let header = table + self.names * SECTION;
        let end = self.bytes.len() as u64;
        self.bytes[header + 24..][..8].copy_from_slice(&end.to_le_bytes());
        self.bytes[header + 32..][..8].copy_from_slice(&(names.len() as u64).to_le_bytes());
        self.bytes.extend_from_slice(&names);
        // Debug information finds a section's functions by its name. No string of this table is the end of another.
        if let Some(section) = self.sections.iter().find(|section| section.name == ".BTF" && section.kind != NO_BITS) {
            let end = section.offset.checked_add(section.size).filter(|&end| end <= self.bytes.len());
            let debug = &mut self.bytes[section.offset..end.ok_or("a section is out of bounds")?];
            let (from, mut to) = (format!("\0{SYSCALL}\0"), format!("\0{STAND_IN}\0").into_bytes());
            to.resize(from.len(), 0);
            let found: Vec<usize> = debug
                .windows(from.len())
                .enumerate()
                .filter(|(_, text)| *text == from.as_bytes())
                .map(|(at, _)| at)
                .collect();
            for at in found {
                debug[at..at + to.len()].copy_from_slice(&to);
            }
        }
        Ok(self.bytes)
    }
}

const _: () = assert!(STAND_IN.len() <= SYSCALL.len() && HEADER == SECTION);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_object_for_bpf_is_refused() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert_eq!(Elf::read(&own).err().as_deref(), Some("it was not compiled for BPF"));
        assert!(Elf::read(b"").is_err());
    }

    proptest! {
        #[test]
        fn a_damaged_object_is_an_error_and_no_panic(at in 0usize..6000, byte: u8, cut in 0usize..6000) {
            let Some(object) = bpf::SOFTIRQ else { return Ok(()) };
            let mut bytes = object.to_vec();
            let length = bytes.len();
            bytes[at % length] = byte;
            bytes.truncate(length - cut % length);
            if let Ok(elf) = Elf::read(&bytes) {
                let _ = elf.variables();
                let _ = elf.for_the_parser();
            }
        }
    }
}
