//! The state that an offcode takes along when it moves to another site, or when another version of it takes its place:
//! a version and records.
//!
//! Every kind of body can write it. Little endian, without padding:
//!
//! ```text
//!  version u32 | records u32 | of each: name's length u16 | key's length u32 | value's length u32 | name | key | value
//! ```
//!
//! A record is an entry of a table of this name: what a BPF map of this name has under this key.

use machine::bounds::OFFCODE_STATE;
use machine::{Fault, Result};

use crate::encoding::fixed::{self, Fixed};

const HEAD: usize = 8;
const RECORD: usize = 10;
/// Most bytes of one offcode's state, encoded.
const MOST: usize = OFFCODE_STATE.each.bytes().0 as usize;

/// The state of one offcode.
///
/// ```
/// use offcode::State;
///
/// let mut saved = State::new(1);
/// saved.keep("packets", &17u64);
/// saved.put("flows", b"10.0.0.1", &[1, 2]);
/// let came = State::decode(&saved.encode()?)?;
/// assert_eq!(came.version(), 1);
/// assert_eq!(came.kept::<u64>("packets")?, 17);
/// assert_eq!(came.table("flows").next(), Some((&b"10.0.0.1"[..], &[1u8, 2][..])));
/// # Ok::<(), machine::Fault>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    version: u32,
    records: Vec<Record>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Record {
    name: String,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl State {
    /// A state without records. `version` says what they mean; who restores them looks at it first.
    pub fn new(version: u32) -> State {
        State { version, records: Vec::new() }
    }

    /// The author's version of the records' meaning.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Sets the version. [`crate::Lifecycle::save`] gets a state of version 0.
    pub fn set_version(&mut self, version: u32) {
        self.version = version;
    }

    /// Adds an entry to a table.
    pub fn put(&mut self, name: &str, key: &[u8], value: &[u8]) {
        self.records.push(Record { name: name.into(), key: key.into(), value: value.into() });
    }

    /// Adds one value, in the encoding that bodies in C and BPF read.
    pub fn keep<T: Fixed>(&mut self, name: &str, value: &T) {
        let mut bytes = Vec::new();
        value.put(&mut bytes);
        self.records.push(Record { name: name.into(), key: Vec::new(), value: bytes });
    }

    /// The value that was kept under this name.
    ///
    /// # Errors
    /// There is none, or it is of another type.
    pub fn kept<T: Fixed>(&self, name: &str) -> Result<T> {
        let Some((_, value)) = self.table(name).next() else {
            return Err(self.unfit(format!("it has no record '{name}'")));
        };
        fixed::whole(value).map_err(|why| self.unfit(format!("its record '{name}' does not decode: {why}")))
    }

    /// Keys and values of a table, in the order in which they were put.
    pub fn table<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let of = move |record: &&Record| record.name == name;
        self.records.iter().filter(of).map(|record| (&*record.key, &*record.value))
    }

    /// Removes a table and returns it: the site keeps such tables beside those that the author's code has saved.
    pub fn take(&mut self, name: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
        let of = |record: &mut Record| record.name == name;
        self.records.extract_if(.., of).map(|record| (record.key, record.value)).collect()
    }

    /// Name, key and value of each record.
    pub fn records(&self) -> impl Iterator<Item = (&str, &[u8], &[u8])> {
        self.records.iter().map(|record| (&*record.name, &*record.key, &*record.value))
    }

    /// The fault of a body that cannot restore the state.
    pub fn unfit(&self, cause: impl Into<String>) -> Fault {
        let subject = format!("saved state of version {}", self.version);
        Fault::new(subject, cause.into(), "take a version of the offcode that restores it")
    }

    /// The encoded state.
    ///
    /// # Errors
    /// There are more than an offcode may take along.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(HEAD);
        bytes.extend(self.version.to_le_bytes());
        bytes.extend((self.records.len() as u32).to_le_bytes());
        for Record { name, key, value } in &self.records {
            let Ok(length) = u16::try_from(name.len()) else {
                return Err(self.unfit(format!("the name of a record has {} bytes", name.len())));
            };
            if key.len().saturating_add(value.len()) > MOST || bytes.len() > MOST {
                break;
            }
            bytes.extend(length.to_le_bytes());
            bytes.extend((key.len() as u32).to_le_bytes());
            bytes.extend((value.len() as u32).to_le_bytes());
            bytes.extend([name.as_bytes(), &key[..], &value[..]].concat());
        }
        let taken: usize = self.records.iter().map(|r| RECORD + r.name.len() + r.key.len() + r.value.len()).sum();
        if HEAD + taken > MOST {
            return Err(too_long(HEAD + taken));
        }
        Ok(bytes)
    }

    /// Reads what [`State::encode`], or a body in another language, has written.
    ///
    /// # Errors
    /// The bytes are no state, or more than an offcode may take along.
    pub fn decode(bytes: &[u8]) -> Result<State> {
        if bytes.len() > MOST {
            return Err(too_long(bytes.len()));
        }
        let mut rest = bytes;
        let mut take = |length: usize| {
            let (taken, left) = rest.split_at_checked(length)?;
            rest = left;
            Some(taken)
        };
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | usize::from(byte));
        let mut read = || {
            let mut state = State::new(number(take(4)?) as u32);
            for _ in 0..number(take(4)?) {
                let (name, key, value) = (number(take(2)?), number(take(4)?), number(take(4)?));
                let name = String::from_utf8(take(name)?.to_vec()).ok()?;
                state.records.push(Record { name, key: take(key)?.to_vec(), value: take(value)?.to_vec() });
            }
            Some(state)
        };
        let broken = |cause: String| Fault::new("saved state", cause, "mend the offcode that saved it");
        let state = read().ok_or_else(|| broken("its bytes end within a record, or a name is no UTF-8".into()))?;
        match rest.len() {
            0 => Ok(state),
            more => Err(broken(format!("{more} bytes follow its last record"))),
        }
    }
}

fn too_long(length: usize) -> Fault {
    let cause = format!("it takes {length} bytes, and an offcode takes {MOST} along at most");
    Fault::new("saved state", cause, "keep less, or leave what can be computed again")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_put_comes(version: u32, records in prop::collection::vec(
            ("[a-z]{0,9}", prop::collection::vec(any::<u8>(), 0..9), prop::collection::vec(any::<u8>(), 0..40)), 0..9)
        ) {
            let mut state = State::new(version);
            records.iter().for_each(|(name, key, value)| state.put(name, key, value));
            let bytes = state.encode().unwrap();
            prop_assert_eq!(&State::decode(&bytes).unwrap(), &state);
            for end in 0..bytes.len() {
                prop_assert!(State::decode(&bytes[..end]).is_err());
            }
        }

        #[test]
        fn bytes_of_others_are_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(state) = State::decode(&bytes) {
                prop_assert_eq!(state.encode().unwrap(), bytes);
            }
        }
    }

    #[test]
    fn what_is_too_long_is_refused_on_both_ways() {
        let mut state = State::new(1);
        state.put("all", &[], &vec![0; MOST]);
        assert!(state.encode().unwrap_err().to_string().contains("at most"));
        assert!(State::decode(&vec![0; MOST + 1]).is_err());
        let fault = State::new(3).kept::<u64>("packets").unwrap_err().to_string();
        assert!(fault.contains("version 3") && fault.contains("packets"), "{fault}");
    }
}
