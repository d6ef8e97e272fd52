//! Cores in the order in which a user names them.

use std::fmt;
use std::str::FromStr;

use crate::cpuset::CpuSet;
use crate::fault::Fault;
use crate::site::CoreId;

/// A list of cores: `3`, `1,0`, `0,2-3`. The order counts, and a core may stand in it twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cores(pub Vec<CoreId>);

impl Cores {
    /// The cores as a set.
    pub fn set(&self) -> CpuSet {
        self.0.iter().copied().collect()
    }
}

impl FromStr for Cores {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let bad = || Fault::new(format!("cores '{text}'"), "it is no list of cores", "write it like 3, 1,0 or 0,2-3");
        let mut cores = Vec::new();
        for part in text.split(',') {
            let part = part.trim();
            // The kernel's group syntax (`:`) and the empty list are not accepted.
            let range = CpuSet::from_list(part).filter(|range| range.first().is_some() && !part.contains(':'));
            cores.extend(range.ok_or_else(bad)?.iter());
        }
        Ok(Cores(cores))
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(|core| core.0.to_string()).collect();
        f.pad(&numbers.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_keep_their_order() {
        let list = |text: &str| text.parse::<Cores>().map(|cores| cores.to_string()).ok();
        for (text, is) in [("3", "3"), ("1,0", "1,0"), ("0,0", "0,0"), ("4, 0-2", "4,0,1,2"), ("7-8,2", "7,8,2")] {
            assert_eq!(list(text).as_deref(), Some(is), "{text}");
        }
        assert_eq!("4,0-2".parse::<Cores>().unwrap().set().to_string(), "0-2,4");
        for text in ["", ",", "1,", "x", "-1", "2-1", "0-9:2/5", "1-", "99999999"] {
            assert_eq!(list(text), None, "{text}");
        }
    }
}
