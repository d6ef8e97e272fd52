//! Values of maps as text, by their types in debug information (BTF).

use super::debug::{Parts, Record, word};

/// Most elements shown of an array; trailing zeros are left out anyway.
const ELEMENTS: usize = 32;
/// Most types that lead to one another: names, constants, structures within structures.
const DEEPEST: usize = 16;

/// Debug information with an index of types.
pub(super) struct Types<'a> {
    parts: Parts<'a>,
    records: Vec<Record>,
}

impl<'a> Types<'a> {
    pub fn of(debug: &'a [u8]) -> Option<Types<'a>> {
        let parts = Parts::of(debug).ok()?;
        let records = parts.records().ok()?;
        Some(Types { parts, records })
    }

    /// A value of this type as text; hexadecimal bytes where the type is not known.
    pub fn shown(&self, number: u32, value: &[u8]) -> String {
        self.text(number, value, 0).unwrap_or_else(|| hexadecimal(value))
    }

    pub fn of_variable(&self, name: &str) -> Option<u32> {
        let is = |record: &&Record| record.kind == 14 && self.name(record.at).as_deref() == Some(name);
        self.field(self.records.iter().find(is)?.at, 8)
    }

    fn field(&self, at: usize, offset: usize) -> Option<u32> {
        word(self.parts.types, at + offset).ok()
    }

    /// The name at the offset in the word at this place.
    fn name(&self, at: usize) -> Option<String> {
        let rest = self.parts.names.get(self.field(at, 0)? as usize..)?;
        let end = rest.iter().position(|&byte| byte == 0)?;
        Some(String::from_utf8_lossy(&rest[..end]).into_owned())
    }

    fn record(&self, number: u32) -> Option<&Record> {
        self.records.get((number as usize).checked_sub(1)?)
    }

    fn size(&self, number: u32, depth: usize) -> Option<usize> {
        let record = self.record(number).filter(|_| depth < DEEPEST)?;
        Some(match record.kind {
            1 | 4 | 5 | 6 | 19 => self.field(record.at, 8)? as usize,
            2 => 8,
            3 => {
                let each = self.size(self.field(record.at, 12)?, depth + 1)?;
                each.checked_mul(self.field(record.at, 20)? as usize)?
            }
            8..=11 | 18 => self.size(self.field(record.at, 8)?, depth + 1)?,
            _ => return None,
        })
    }

    fn text(&self, number: u32, value: &[u8], depth: usize) -> Option<String> {
        let record = self.record(number).filter(|_| depth < DEEPEST)?;
        let own = |size: usize| value.get(..size);
        Some(match record.kind {
            1 => {
                let signed = self.field(record.at, 12)? >> 24 & 1 != 0;
                integer(own(self.size(number, depth)?)?, signed)?
            }
            2 | 6 | 19 => integer(own(self.size(number, depth)?)?, false)?,
            8..=11 | 18 => self.text(self.field(record.at, 8)?, value, depth + 1)?,
            3 => {
                let element = self.field(record.at, 12)?;
                let (size, count) = (self.size(element, depth + 1)?, self.field(record.at, 20)? as usize);
                let all = value.get(..size.checked_mul(count)?)?;
                let used = all.iter().rposition(|&byte| byte != 0).map_or(0, |last| last / size.max(1) + 1);
                let elements = all.chunks(size.max(1)).take(used.min(ELEMENTS));
                let mut texts = elements.map(|one| self.text(element, one, depth + 1)).collect::<Option<Vec<_>>>()?;
                if used > ELEMENTS {
                    texts.push("..".into());
                }
                format!("[{}]", texts.join(" "))
            }
            4 | 5 => {
                let members = (0..record.members).map(|n| {
                    let member = record.at + 12 + 12 * n;
                    // Bit fields have their size in the upper byte of the offset, in structures that have any.
                    let bits = self.field(member, 8)?;
                    if self.field(record.at, 4)? >> 31 != 0 || bits % 8 != 0 {
                        return None;
                    }
                    let text = self.text(self.field(member, 4)?, value.get(bits as usize / 8..)?, depth + 1)?;
                    Some(format!("{} {text}", self.name(member)?))
                });
                format!("{{{}}}", members.collect::<Option<Vec<_>>>()?.join(", "))
            }
            _ => return None,
        })
    }
}

fn integer(bytes: &[u8], signed: bool) -> Option<String> {
    let mut wide = [0; 8];
    wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let number = u64::from_le_bytes(wide);
    let unused = 64 - 8 * bytes.len().clamp(1, 8);
    Some(if signed { ((number << unused) as i64 >> unused).to_string() } else { number.to_string() })
}

pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let shown: String = bytes[..used.min(64)].iter().map(|byte| format!("{byte:02x}")).collect();
    if used > 64 { shown + ".." } else { format!("0x{shown}") }
}
