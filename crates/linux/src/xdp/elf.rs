//! The parts of an ELF object that the loader checks before the parser sees it: that it is for BPF, where its variables
//! are, and which sections hold `syscall` programs, a kind that the parser does not know.

use std::collections::BTreeMap;

use super::debug::Parts;

/// A variable of `.rodata`, `.data` or `.bss`; each of these sections becomes a map.
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
    info: usize,
    offset: usize,
    size: usize,
}

const HEADER: usize = 64;
const SECTION: usize = 64;
const SYMBOL: usize = 24;
const MACHINE_BPF: u64 = 247;
const SYMBOL_TABLE: u32 = 2;
const STRINGS: u32 = 3;
const NO_BITS: u32 = 8;
/// SHT_REL, and the kinds that no compiler makes for BPF: SHT_RELA, SHT_CREL.
const RELOCATIONS: [u32; 3] = [9, 4, 0x4000_0014];
const RELOCATION: usize = 16;
/// Instructions that a relocation of code may change: one that takes an address, and a call of a function of the object.
const TAKES_ADDRESS: u8 = 0x18;
const CALLS: [u8; 4] = [0x85, 0x10, 0, 0];
const LARGEST_VARIABLES: usize = 64 << 20;
/// Longest name: the parser copies each, though names may share their ends.
const LONGEST_NAME: usize = 1024;
/// Longest source line in debug information.
const LONGEST_LINE: usize = 4096;
/// Most sections and functions, the kernel's own limit for one program: the parser searches all for each, and follows
/// calls recursively.
const MOST: usize = 256;
const SYSCALL: &str = "syscall";
/// A program kind that the parser knows and this loader does not otherwise use; not longer than `syscall`.
const STAND_IN: &str = "fentry";

impl Elf {
    /// Reads an object. An error is a sentence that says why it is no object for BPF.
    pub fn read(bytes: &[u8]) -> Result<Elf, String> {
        if bytes.get(..6) != Some(b"\x7fELF\x02\x01") {
            return Err("it is not a 64-bit little-endian ELF object".into());
        }
        let mut elf = Elf { bytes: bytes.to_vec(), sections: Vec::new(), names: 0 };
        if elf.number(18, 2)? != MACHINE_BPF {
            return Err("it was not compiled for BPF".into());
        }
        let (table, count) = (elf.number(40, 8)? as usize, elf.number(60, 2)? as usize);
        // Without a number the parser looks for it elsewhere.
        if !(1..=MOST).contains(&count) {
            return Err(format!("it states {count} sections, not 1 to {MOST}"));
        }
        elf.names = elf.number(62, 2)? as usize;
        for index in 0..count {
            let at = table.checked_add(index * SECTION);
            let at = at.filter(|&at| bytes.get(at..).is_some_and(|rest| rest.len() >= SECTION));
            let at = at.ok_or("its section table is out of bounds")?;
            elf.sections.push(Section {
                name: String::new(),
                kind: elf.number(at + 4, 4)? as u32,
                // SHF_EXECINSTR
                has_code: elf.number(at + 8, 8)? & 4 != 0,
                link: elf.number(at + 40, 4)? as usize,
                info: elf.number(at + 44, 4)? as usize,
                offset: elf.number(at + 24, 8)? as usize,
                size: elf.number(at + 32, 8)? as usize,
            });
        }
        for index in 0..count {
            let name = elf.number(table + index * SECTION, 4)? as usize;
            elf.sections[index].name = elf.text(elf.names, name)?;
        }
        elf.check_sizes()?;
        elf.check_names()?;
        elf.check_functions()?;
        elf.check_relocations()?;
        Ok(elf)
    }

    /// Checks sizes, since the parser allocates what each section states.
    fn check_sizes(&self) -> Result<(), String> {
        let (mut stored, mut zeros) = (0usize, 0usize);
        for (index, section) in self.sections.iter().enumerate() {
            if section.kind == NO_BITS {
                zeros = zeros.saturating_add(section.size);
            } else {
                stored = stored.saturating_add(self.content(index)?.len());
            }
        }
        match (stored > self.bytes.len(), zeros > LARGEST_VARIABLES) {
            (true, _) => Err("its sections overlap".into()),
            (_, true) => Err("its variables are too large".into()),
            _ => Ok(()),
        }
    }

    fn check_names(&self) -> Result<(), String> {
        for (index, section) in self.sections.iter().enumerate().filter(|(_, section)| section.kind != NO_BITS) {
            let content = self.content(index)?;
            let (names, most) = match section.name.as_str() {
                ".BTF" => (Parts::of(content)?.names, LONGEST_LINE),
                _ if section.kind == STRINGS || index == self.names => (content, LONGEST_NAME),
                _ => continue,
            };
            // Source lines have tabs.
            let plain = |name: &[u8]| most == LONGEST_LINE || !String::from_utf8_lossy(name).contains(char::is_control);
            if !names.split(|&byte| byte == 0).all(|name| name.len() <= most && plain(name)) {
                return Err(format!("a name in its {} is longer than {most} bytes, or no text", section.name));
            }
        }
        Ok(())
    }

    /// Checks functions, since the parser copies the code of each.
    fn check_functions(&self) -> Result<(), String> {
        let mut functions = Vec::new();
        for (at, _) in self.symbols() {
            // STT_FUNC, STT_GNU_IFUNC
            if matches!(self.number(at + 4, 1)? & 0xf, 2 | 10) {
                functions.push([self.number(at + 6, 2)?, self.number(at + 8, 8)?, self.number(at + 16, 8)?]);
            }
        }
        functions.sort_unstable();
        let overlap = |pair: &[[u64; 3]]| {
            let [[section, begin, size], [of, next, _]] = [pair[0], pair[1]];
            section == of && begin.saturating_add(size) > next
        };
        match functions.len() {
            count if count > MOST => Err(format!("it has {count} functions, and {MOST} are the most")),
            _ if functions.windows(2).any(overlap) => Err("its functions overlap".into()),
            _ => Ok(()),
        }
    }

    /// Checks relocations: the parser writes into whatever instruction one names, and into the next, so that others
    /// than these would change after they were checked.
    fn check_relocations(&self) -> Result<(), String> {
        for (index, section) in self.sections.iter().enumerate() {
            let Some(target) = self.sections.get(section.info).filter(|_| RELOCATIONS.contains(&section.kind)) else {
                continue;
            };
            if !target.has_code && !target.name.starts_with(".text") {
                continue;
            }
            let code = self.content(section.info)?;
            let is_meant = |relocation: &[u8]| {
                let at = relocation.first_chunk().map_or(usize::MAX, |at| u64::from_le_bytes(*at) as usize);
                let rest = code.get(at..).unwrap_or_default();
                rest.first() == Some(&TAKES_ADDRESS) || rest.starts_with(&CALLS)
            };
            if section.kind != RELOCATIONS[0] || !self.content(index)?.chunks(RELOCATION).all(is_meant) {
                return Err("a relocation of its code is of no address and no call".into());
            }
        }
        Ok(())
    }

    /// Offset of each symbol, and the section of its name.
    fn symbols(&self) -> impl Iterator<Item = (usize, usize)> {
        let tables = self.sections.iter().filter(|section| section.kind == SYMBOL_TABLE);
        tables.flat_map(|table| (0..table.size / SYMBOL).map(move |n| (table.offset + n * SYMBOL, table.link)))
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
        let end = rest.iter().take(LONGEST_NAME + 1).position(|&byte| byte == 0).ok_or("a name does not end")?;
        Ok(String::from_utf8_lossy(&rest[..end]).into_owned())
    }

    pub fn variables(&self) -> Result<BTreeMap<String, Variable>, String> {
        let mut found = BTreeMap::new();
        for (at, names) in self.symbols() {
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
                let name = self.text(names, self.number(at, 4)? as usize)?;
                found.insert(name, Variable { map: section.name.clone(), offset, size });
            }
        }
        Ok(found)
    }

    /// Sections of programs, those not for this loader included; the parser would load any that it knows.
    pub fn program_sections(&self) -> impl Iterator<Item = &str> {
        // `.text` holds functions that programs call.
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
        // Names share their ends, so the new one goes into a copy of the name table at the end of the file.
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

    /// The object with another number in a field of a section header.
    fn changed(object: &[u8], section: usize, field: usize, number: usize) -> Vec<u8> {
        let mut bytes = object.to_vec();
        let table = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
        bytes[table + section * SECTION + field..][..8].copy_from_slice(&(number as u64).to_le_bytes());
        bytes
    }

    /// The object with another content of a section, added at the end.
    fn filled(object: &[u8], section: usize, content: &[u8]) -> Vec<u8> {
        let object = changed(&changed(object, section, 24, object.len()), section, 32, content.len());
        [&object[..], content].concat()
    }

    fn refused(read: Result<Elf, String>, why: &str) {
        let said = read.err().unwrap_or_else(|| panic!("it was read in spite of '{why}'"));
        assert!(said.contains(why), "'{said}' does not say '{why}'");
    }

    /// Other relocations would let the linker turn a harmless instruction behind the named one into a call of any helper.
    #[test]
    fn relocations_change_what_takes_an_address_and_calls_alone() {
        let Some(object) = bpf::ECHO else { return skip::test(bpf::MISSING.unwrap_or_default()) };
        let elf = Elf::read(object).unwrap();
        let is_one = |section: &&Section| section.kind == RELOCATIONS[0] && elf.sections[section.info].has_code;
        let (mut meant, mut other) = (0, 0);
        for relocations in elf.sections.iter().filter(is_one) {
            let code = elf.content(relocations.info).unwrap();
            for at in 0..code.len() + 8 {
                let mut bytes = object.to_vec();
                bytes[relocations.offset..][..8].copy_from_slice(&(at as u64).to_le_bytes());
                match code.get(at..).unwrap_or_default() {
                    [0x18, ..] | [0x85, 0x10, 0, 0, ..] => meant += usize::from(Elf::read(&bytes).is_ok()),
                    _ => {
                        other += 1;
                        refused(Elf::read(&bytes), "of no address and no call");
                    }
                }
            }
        }
        assert!(meant > 0 && other > 0, "{meant}, {other}");
    }

    #[test]
    fn what_the_parser_would_make_much_of_is_refused() {
        let Some(object) = bpf::ECHO else { return skip::test(bpf::MISSING.unwrap_or_default()) };
        let elf = Elf::read(object).unwrap();
        let find = |wanted: fn(&Section) -> bool| elf.sections.iter().position(wanted).unwrap();
        let (code, zeros) = (find(|section| section.has_code), find(|section| section.kind == NO_BITS));
        let (symbols, strings) = (find(|section| section.kind == SYMBOL_TABLE), elf.sections[elf.names].clone());
        let whole = changed(&changed(object, code, 24, 0), code, 32, object.len());
        refused(Elf::read(&whole), "its sections overlap");
        refused(Elf::read(&changed(object, code, 32, usize::MAX)), "a section is out of bounds");
        refused(Elf::read(&changed(object, zeros, 32, LARGEST_VARIABLES + 1)), "its variables are too large");

        // Without a number of sections, the first header has it.
        for (field, byte, why) in [
            (60..62, 0, "states 0 sections"),
            (60..62, 0xFF, "65535 sections"),
            (40..48, 0xFF, "table is out of bounds"),
        ] {
            let mut bytes = object.to_vec();
            bytes[field].fill(byte);
            refused(Elf::read(&bytes), why);
        }

        let names = elf.content(elf.names).unwrap();
        let long = |length: usize| [names, &vec![b'a'; length][..], &[0]].concat();
        Elf::read(&filled(object, elf.names, &long(LONGEST_NAME))).unwrap();
        refused(Elf::read(&filled(object, elf.names, &long(LONGEST_NAME + 1))), "longer than 1024 bytes");
        refused(Elf::read(&filled(object, elf.names, &vec![b'a'; strings.size])), "a name does not end");
        refused(Elf::read(&filled(object, elf.names, &[&[0, 0x1b][..], &names[2..]].concat())), "no text");

        let (function, _) = elf.symbols().find(|&(at, _)| object[at + 4] & 0xf == 2).unwrap();
        let one = &object[function..][..SYMBOL];
        let many = filled(object, symbols, &one.repeat(MOST + 1));
        refused(Elf::read(&many), "it has 257 functions, and 256 are the most");
        refused(Elf::read(&filled(object, symbols, &one.repeat(2))), "its functions overlap");
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
