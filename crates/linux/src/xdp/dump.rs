//! Contents of an object's maps and variables, as text.

use std::io;
use std::os::fd::AsFd;

use machine::{Fault, Result};
use serde::{Deserialize, Serialize};

use super::map::{Kind, Map};
use super::object::Object;
use super::syscall::{self, Command};
use super::typed::{Types, hexadecimal};

/// Entries by their keys; of arrays those that are not 0.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dump {
    pub entries: Vec<(String, String)>,
    /// Whether there are more entries, which were not read.
    pub more: bool,
}

impl Object {
    /// Reads a map, or a variable, while programs change it: at most so many entries, in so many bytes of text.
    pub fn dump(&self, name: &str, most: usize, bytes: usize) -> Result<Dump> {
        let fault = |cause: String| {
            Fault::new(format!("BPF object {}: {name}", self.name()), cause, "name a map or a variable")
        };
        let types = Types::of(self.debug());
        let shown = |number: u32, value: &[u8]| {
            types.as_ref().map_or_else(|| hexadecimal(value), |types| types.shown(number, value))
        };
        let failed = |error: io::Error| fault(format!("the kernel does not let it be read: {error}"));
        if let Some((map, offset, size)) = self.variable(name) {
            let all = self.map(map)?.look_up(&0u32.to_ne_bytes()).map_err(failed)?;
            let value = all.as_deref().and_then(|all| all.get(offset..offset + size)).unwrap_or_default();
            let number = types.as_ref().and_then(|types| types.of_variable(name)).unwrap_or(0);
            return Ok(Dump { entries: vec![(name.into(), shown(number, value))], more: false });
        }
        let map = self.map(name).map_err(|_| fault(format!("it has {}", self.readable().join(", "))))?;
        let mut dump = Dump::default();
        let mut room = bytes;
        let (of_keys, of_values) = map.types();
        let mut add = |key: String, value: String| {
            let fits = dump.entries.len() < most && room >= key.len() + value.len();
            if fits {
                room -= key.len() + value.len();
                dump.entries.push((key, value));
            } else {
                dump.more = true;
            }
            fits
        };
        match map.kind() {
            Kind::Array { .. } => {
                for entry in 0..map.entries() as u32 {
                    let value = map.look_up(&entry.to_ne_bytes()).map_err(failed)?.unwrap_or_default();
                    if value.iter().any(|&byte| byte != 0) && !add(entry.to_string(), shown(of_values, &value)) {
                        break;
                    }
                }
            }
            Kind::PerCoreArray => {
                for entry in 0..map.entries() as u32 {
                    for (core, words) in map.of_all_cores(entry).map_err(failed)? {
                        let value: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
                        if words.iter().any(|&word| word != 0)
                            && !add(format!("{entry} {core}"), shown(of_values, &value[..map.value_size()]))
                        {
                            return Ok(dump);
                        }
                    }
                }
            }
            Kind::Hash => {
                let mut key = None;
                // After a key that is removed meanwhile the kernel starts over, so the number of steps is limited.
                for _ in 0..map.entries() {
                    let Some(next) = map.key_after(key.as_deref()).map_err(failed)? else { break };
                    // The entry may have been removed since.
                    if let Some(value) = map.look_up(&next).map_err(failed)?
                        && !add(shown(of_keys, &next), shown(of_values, &value))
                    {
                        break;
                    }
                    key = Some(next);
                }
            }
            kind => return Err(fault(format!("a map of kind {kind:?} has no values to read"))),
        }
        Ok(dump)
    }
}

impl Map {
    /// The value at `key`; `None` without one.
    pub fn look_up(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        self.has_one_value()?;
        assert!(key.len() >= self.key_size(), "the kernel reads a whole key");
        let mut value = vec![0u8; self.value_size()];
        let (at, into) = (key.as_ptr() as u64, value.as_mut_ptr() as u64);
        let map = syscall::number(self.as_fd());
        let mut element = syscall::MapElement { map, key: at, value: into, ..Default::default() };
        match syscall::run(Command::MapLookup, &mut element) {
            Ok(()) => Ok(Some(value)),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The first key, or the key after `key`.
    pub fn key_after(&self, key: Option<&[u8]>) -> io::Result<Option<Vec<u8>>> {
        assert!(key.is_none_or(|key| key.len() >= self.key_size()), "the kernel reads a whole key");
        let mut next = vec![0u8; self.key_size()];
        let (at, into) = (key.map_or(0, |key| key.as_ptr() as u64), next.as_mut_ptr() as u64);
        let map = syscall::number(self.as_fd());
        let mut element = syscall::MapElement { map, key: at, value: into, ..Default::default() };
        match syscall::run(Command::MapNext, &mut element) {
            Ok(()) => Ok(Some(next)),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
