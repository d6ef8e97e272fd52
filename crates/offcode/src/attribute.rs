//! Attributes: named values of an offcode that the application gets and sets (HYDRA section 1.2.1).

use std::collections::BTreeMap;

use machine::bounds::OFFCODE_ATTRIBUTES;
use machine::{Fault, Result};

/// An integer, 0 to 1000; larger means more urgent, 100 unless set. Weighs the offcode's cost when places are chosen, and
/// within one creation the larger is deployed first. Inherited by what the offcode requires, up to a Link.
pub const OFFLOAD_PRIORITY: &str = "OFFLOAD_PRIORITY";

/// Milliseconds after which an offcode that nobody has called, written to or created again counts as obsolete: the
/// runtime stops and removes it when it next looks. Absent means never.
pub const OBSOLETE_TIME: &str = "OBSOLETE_TIME";

/// Whether the runtime defines an attribute of this name. A starting offcode is not told of these.
pub fn is_predefined(name: &str) -> bool {
    matches!(name, OFFLOAD_PRIORITY | OBSOLETE_TIME)
}

/// The attributes of one offcode.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes(BTreeMap<String, String>);

impl Attributes {
    /// The value of an attribute, where it is set.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// A predefined attribute would get a value that it cannot have, the name is empty, or all names and values
    /// together would be too long.
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
        let others = self.0.iter().filter(|(other, _)| *other != name);
        let length = others.map(|(name, value)| name.len() + value.len()).sum::<usize>() + name.len() + value.len();
        let most = OFFCODE_ATTRIBUTES.each.bytes();
        if length as u64 > most.0 {
            return Err(Fault::new(
                format!("attribute of {} bytes", name.len() + value.len()),
                format!("with the offcode's others it would take {length} bytes, of which it has {most}"),
                "pass long values by a call or a channel",
            ));
        }
        self.0.insert(name.into(), value.into());
        Ok(())
    }

    /// Restores an attribute to what [`Attributes::get`] returned before it was set.
    pub fn put_back(&mut self, name: &str, before: Option<String>) {
        match before {
            Some(value) => self.0.insert(name.to_owned(), value),
            None => self.0.remove(name),
        };
    }

    /// Every attribute's name and value, in the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_bounded_together_and_may_be_set_again() {
        let mut attributes = Attributes::default();
        let long = "x".repeat(1000);
        let set = (0..).take_while(|n| attributes.set(&format!("a{n}"), &long).is_ok()).count();
        assert_eq!(set, OFFCODE_ATTRIBUTES.each.bytes().0 as usize / 1003);
        attributes.set("a0", &"y".repeat(1000)).unwrap();
        let fault = attributes.set("late", &long).unwrap_err().to_string();
        assert!(fault.contains("pass long values by a call"), "{fault}");
        assert_eq!(attributes.iter().count(), set);
        attributes.set("a0", "").unwrap();
        attributes.set("late", &long).unwrap();
    }
}
