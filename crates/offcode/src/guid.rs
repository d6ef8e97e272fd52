//! GUIDs: identifiers of interfaces and offcodes, unique everywhere (HYDRA section 1.2).

use std::fmt;
use std::str::FromStr;

use machine::Fault;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A globally unique identifier, written as a UUID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Guid(Uuid);

impl Guid {
    /// The identifier that these bytes are, in the order in which a UUID is written.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Guid(Uuid::from_bytes(bytes))
    }

    /// The identifier that belongs to a name, the same on every machine (UUID version 5 under the URL name space).
    pub fn named(name: &str) -> Self {
        Guid(Uuid::new_v5(&Uuid::NAMESPACE_URL, name.as_bytes()))
    }

    /// The 16 bytes, in the order in which a UUID is written.
    pub const fn bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// The two halves, each read big endian, combined by exclusive or: what a [`crate::call::Header`] carries. Both
    /// halves count, so that GUIDs that were made by counting differ. A depot refuses two that share it.
    pub const fn short(&self) -> u64 {
        let both = u128::from_be_bytes(*self.0.as_bytes());
        (both >> 64) as u64 ^ both as u64
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0.hyphenated().encode_lower(&mut Uuid::encode_buffer()))
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Guid {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        // One spelling: what compares equal also looks equal in a manifest.
        match Uuid::try_parse(text) {
            Ok(uuid) if text.len() == 36 => Ok(Guid(uuid)),
            _ => Err(Fault::new(
                format!("GUID '{text}'"),
                "it is not of the form 8-4-4-4-12 hexadecimal digits",
                "write one such as `uuidgen` prints",
            )),
        }
    }
}

impl TryFrom<String> for Guid {
    type Error = Fault;
    fn try_from(text: String) -> Result<Self, Fault> {
        text.parse()
    }
}

impl From<Guid> for String {
    fn from(guid: Guid) -> String {
        guid.to_string()
    }
}
