//! The keyed maps of one offcode, as its site and people see them.

use linux::xdp::Dump;
use machine::{Fault, Result};
use offcode::map::{Entries, Maps};
use offcode::{MapId, Shape};

use super::super::{Memory, SHOWN_BYTES, SHOWN_ENTRIES};

/// Opens a map ([`offcode::Context::open_map`]) within the target's memory.
pub(super) fn open(maps: &mut Maps, memory: &mut Memory, name: &str, shape: Shape) -> Result<MapId> {
    if let Some(there) = maps.opened(name, shape)? {
        return Ok(there);
    }
    shape.check(name)?;
    let taken = memory.reserve(&format!("map {name}"), shape.memory())?;
    let map = maps.open(name, shape)?;
    memory.take(taken);
    Ok(map)
}

/// The map of this name, at the offcode's site or in its sandbox.
pub(super) fn named(offcode: &str, name: &str, all: Vec<(&str, Entries<'_>)>) -> Result<Dump> {
    if let Some((_, entries)) = all.iter().find(|(known, _)| *known == name) {
        return Ok(shown(entries.clone()));
    }
    let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    let has = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let cause = format!("it has no map of this name; it has {has}");
    Err(Fault::new(format!("map {name} of offcode {offcode}"), cause, "name a map of the offcode"))
}

fn shown(entries: Entries<'_>) -> Dump {
    let (mut dump, mut room) = (Dump::default(), SHOWN_BYTES);
    for (key, value) in entries {
        let (key, value) = (text(key), text(value));
        if dump.entries.len() == SHOWN_ENTRIES || room < key.len() + value.len() {
            dump.more = true;
            break;
        }
        room -= key.len() + value.len();
        dump.entries.push((key, value));
    }
    dump
}

/// Bytes as text: as a number where they are as long as one.
fn text(bytes: &[u8]) -> String {
    match bytes.len() {
        1 | 2 | 4 | 8 => bytes.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte)).to_string(),
        _ => {
            let shown: String = bytes.iter().take(64).map(|byte| format!("{byte:02x}")).collect();
            format!("0x{shown}{}", if bytes.len() > 64 { ".." } else { "" })
        }
    }
}

#[cfg(test)]
mod tests {
    use offcode::Put;
    use offcode::map::Table;

    use super::*;

    #[test]
    fn people_see_numbers_and_bytes_and_no_more_than_fits() {
        let mut table = Table::new("flows", Shape { entries: 600, key: 4, value: 6 }).unwrap();
        (0..600u32).for_each(|n| assert_eq!(table.put(&n.to_le_bytes(), &[0, 17, 2, 3, 0, 255]).unwrap(), Put::New));
        let dump = named("one", "flows", vec![("flows", table.entries())]).unwrap();
        assert_eq!((dump.entries.len(), dump.more), (512, true));
        assert_eq!(dump.entries[511], ("511".to_owned(), "0x0011020300ff".to_owned()));
        assert_eq!(text(&[7; 65]).len(), 2 + 128 + 2);
        let said = named("one", "others", vec![("flows", table.entries())]).unwrap_err().to_string();
        assert!(said.contains("it has flows"), "{said}");
    }
}
