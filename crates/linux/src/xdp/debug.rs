//! Merges debug information (BTF) of several objects: type numbers and name offsets move, nothing else changes.

use std::collections::BTreeMap;

/// Merged types and names.
#[derive(Debug)]
pub(super) struct Debug {
    types: Vec<u8>,
    names: Vec<u8>,
    count: u32,
}

const MAGIC: u32 = 0xeb9f;
/// `struct btf_header`, `struct btf_type`.
const HEADER: usize = 24;
const TYPE: usize = 12;
const FUNCTION: u32 = 12;

const CUT_OFF: &str = "its debug information is cut off";

impl Debug {
    pub fn new() -> Debug {
        Debug { types: Vec::new(), names: Vec::new(), count: 0 }
    }

    /// Adds one object's debug information; its type `n` becomes type `n` + the result.
    pub fn add(&mut self, debug: &[u8]) -> Result<u32, String> {
        let parts = Parts::of(debug)?;
        let (before, names) = (self.count, self.names.len() as u32);
        let mut types = parts.types.to_vec();
        for record in parts.records()? {
            // 0 is void, and the empty name.
            let mut grow = |at: usize, by: u32| {
                let number = word(&types, at)?;
                if number != 0 {
                    let number = number.checked_add(by).ok_or(CUT_OFF)?;
                    types[at..at + 4].copy_from_slice(&number.to_ne_bytes());
                }
                Ok::<(), String>(())
            };
            grow(record.at, names)?;
            record.names().try_for_each(|at| grow(at, names))?;
            record.types().try_for_each(|at| grow(at, before))?;
            self.count += 1;
        }
        self.types.extend(types);
        self.names.extend(parts.names);
        Ok(before)
    }

    pub fn bytes(&self) -> Vec<u8> {
        let (types, names) = (self.types.len() as u32, self.names.len() as u32);
        let version = MAGIC | 1 << 16;
        let header = [version, HEADER as u32, 0, types, types, names];
        let header = header.iter().flat_map(|word| word.to_ne_bytes());
        header.chain(self.types.iter().copied()).chain(self.names.iter().copied()).collect()
    }
}

/// The names of functions, by their type's number.
pub(super) fn functions(debug: &[u8]) -> Result<BTreeMap<u32, String>, String> {
    let parts = Parts::of(debug)?;
    let mut found = BTreeMap::new();
    for (n, record) in parts.records()?.iter().enumerate().filter(|(_, record)| record.kind == FUNCTION) {
        let name = parts.names.get(word(parts.types, record.at)? as usize..).ok_or(CUT_OFF)?;
        let end = name.iter().position(|&byte| byte == 0).ok_or(CUT_OFF)?;
        found.insert(n as u32 + 1, String::from_utf8_lossy(&name[..end]).into_owned());
    }
    Ok(found)
}

pub(super) struct Parts<'a> {
    pub types: &'a [u8],
    pub names: &'a [u8],
}

/// A type record: kind, number of members, and offset.
pub(super) struct Record {
    pub kind: u32,
    pub members: usize,
    pub at: usize,
}

pub(super) fn word(bytes: &[u8], at: usize) -> Result<u32, String> {
    let word = bytes.get(at..at + 4).ok_or(CUT_OFF)?;
    Ok(u32::from_ne_bytes(word.try_into().expect("four bytes")))
}

impl<'a> Parts<'a> {
    pub fn of(debug: &'a [u8]) -> Result<Parts<'a>, String> {
        if word(debug, 0)? & 0xffff != MAGIC {
            return Err("it has no debug information".into());
        }
        let begin = word(debug, 4)? as usize;
        let part = |at: usize| {
            let (offset, length) = (word(debug, at)? as usize, word(debug, at + 4)? as usize);
            debug.get(begin..).and_then(|rest| rest.get(offset..)?.get(..length)).ok_or(CUT_OFF.to_owned())
        };
        Ok(Parts { types: part(8)?, names: part(16)? })
    }

    pub fn records(&self) -> Result<Vec<Record>, String> {
        let (mut records, mut at) = (Vec::new(), 0);
        while at < self.types.len() {
            let information = word(self.types, at + 4)?;
            let record = Record { kind: information >> 24 & 0x1f, members: (information & 0xffff) as usize, at };
            at += TYPE + record.rest()?;
            records.push(record);
        }
        if at != self.types.len() {
            return Err(CUT_OFF.into());
        }
        Ok(records)
    }
}

/// Kinds are numbered as in `linux/btf.h`.
impl Record {
    /// Number of bytes behind `struct btf_type`.
    fn rest(&self) -> Result<usize, String> {
        Ok(match self.kind {
            // Integers, variables, tags of declarations.
            1 | 14 | 17 => 4,
            3 => 12,
            // Structures, unions, sections, enumerations of 64 bits.
            4 | 5 | 15 | 19 => 12 * self.members,
            // Enumerations, prototypes.
            6 | 13 => 8 * self.members,
            2 | 7..=12 | 16 | 18 => 0,
            kind => return Err(format!("its debug information has kind {kind}, which is not known here")),
        })
    }

    fn each(&self, size: usize, offset: usize) -> impl Iterator<Item = usize> + use<> {
        let begin = self.at + TYPE + offset;
        (0..self.members).map(move |n| begin + n * size)
    }

    /// Offsets of member names.
    fn names(&self) -> Box<dyn Iterator<Item = usize>> {
        match self.kind {
            4 | 5 | 19 => Box::new(self.each(12, 0)),
            6 | 13 => Box::new(self.each(8, 0)),
            _ => Box::new(std::iter::empty()),
        }
    }

    /// Offsets of type numbers.
    fn types(&self) -> Box<dyn Iterator<Item = usize>> {
        let own = self.at + 8;
        match self.kind {
            2 | 8..=12 | 14 | 17 | 18 => Box::new(std::iter::once(own)),
            3 => Box::new([self.at + TYPE, self.at + TYPE + 4].into_iter()),
            4 | 5 => Box::new(self.each(12, 4)),
            13 => Box::new(std::iter::once(own).chain(self.each(8, 4))),
            15 => Box::new(self.each(12, 0)),
            _ => Box::new(std::iter::empty()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::xdp::object;

    fn debug(code: &[u8]) -> Vec<u8> {
        let (_, mut object) = object::read("test", code, false).unwrap();
        object.fixup_and_sanitize_btf(&object::debug_features()).unwrap().unwrap().to_bytes()
    }

    #[test]
    fn functions_keep_their_names_beside_those_of_another_object() {
        let (Some(echo), Some(idle)) = (bpf::ECHO, bpf::IDLE) else {
            return skip::test(bpf::MISSING.unwrap_or_default());
        };
        let (echo, idle) = (debug(echo), debug(idle));
        let mut both = Debug::new();
        assert_eq!(both.add(&echo).unwrap(), 0);
        let base = both.add(&idle).unwrap();
        let found = functions(&both.bytes()).unwrap();
        let (first, second) = (functions(&echo).unwrap(), functions(&idle).unwrap());
        assert!(first.values().any(|name| name == "count_frames") && second.values().any(|name| name == "idle"));
        let expected = first.into_iter().chain(second.into_iter().map(|(id, name)| (id + base, name)));
        assert_eq!(found, expected.collect());
    }

    proptest! {
        #[test]
        fn damaged_debug_information_is_an_error_and_no_panic(at: usize, byte: u8, cut: usize) {
            let Some(code) = bpf::ECHO else { return Ok(()) };
            let mut bytes = debug(code);
            let length = bytes.len();
            bytes[at % length] = byte;
            bytes.truncate(length - cut % length);
            let _ = Debug::new().add(&bytes);
            let _ = functions(&bytes);
        }
    }
}
