//! Attributes: named values of an offcode that the application gets and sets (HYDRA section 1.2.1).

use std::collections::BTreeMap;

use machine::{Fault, Result};

/// An integer, 0 to 1000; larger means more urgent, 100 unless set. Weighs the offcode's cost when places are chosen, and
/// within one creation the larger is deployed first. Inherited by what the offcode requires, up to a Link.
pub const OFFLOAD_PRIORITY: &str = "OFFLOAD_PRIORITY";

/// Milliseconds after which an offcode that nobody has called, written to or created again counts as obsolete: the runtime
/// stops and removes it at its next turn. Absent means never.
pub const OBSOLETE_TIME: &str = "OBSOLETE_TIME";

/// The attributes of one offcode.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes(BTreeMap<String, String>);

impl Attributes {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Sets one. A fault where a predefined attribute gets a value that it cannot have, or the name is empty.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let within = |allowed: std::ops::RangeInclusive<u64>| match value.parse::<u64>() {
            Ok(n) if allowed.contains(&n) => Ok(()),
            _ => Err(Fault::new(
                format!("attribute {name}"),
                format!("'{value}' is not a number from {} to {}", allowed.start(), allowed.end()),
                "set such a number",
            )),
        };
        match name {
            "" => return Err(Fault::new("attribute", "its name is empty", "name it")),
            OFFLOAD_PRIORITY => within(0..=1000)?,
            OBSOLETE_TIME => within(1..=u64::from(u32::MAX))?,
            _ => {}
        }
        self.0.insert(name.into(), value.into());
        Ok(())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}
