//! Dilation: protocol work that is made to take a stated number of times as long.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::fault::{Fault, Result};

/// The factor by which protocol work is stretched, in thousandths: 1500 is 1.5. Unlike a slower clock it leaves the
/// program's computation, the caches and the wire unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Dilation(u32);

impl Dilation {
    /// Dilation by 1.
    pub const NONE: Dilation = Dilation(1_000);
    const MOST: Dilation = Dilation(100_000);

    /// The factor, 1 to 100.
    pub fn factor(self) -> f64 {
        f64::from(self.0) / 1e3
    }

    /// Whether nothing is stretched.
    pub fn is_none(self) -> bool {
        self == Dilation::NONE
    }
}

impl TryFrom<u32> for Dilation {
    type Error = Fault;

    fn try_from(thousandths: u32) -> Result<Dilation> {
        match (Dilation::NONE.0..=Dilation::MOST.0).contains(&thousandths) {
            true => Ok(Dilation(thousandths)),
            false => Err(refused(&f64::from(thousandths).to_string(), "in thousandths, it is not of 1000 to 100000")),
        }
    }
}

impl From<Dilation> for u32 {
    fn from(dilation: Dilation) -> u32 {
        dilation.0
    }
}

fn refused(text: &str, cause: &str) -> Fault {
    let next =
        "write how many times as long protocol work shall take, 1 to 100, like 2 or 1.5; nothing can be made faster";
    Fault::new(format!("dilation '{text}'"), cause, next)
}

impl FromStr for Dilation {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Dilation> {
        let factor: f64 = text.trim().parse().map_err(|_| refused(text, "it is no number"))?;
        match (1.0..=100.0).contains(&factor) {
            true => Ok(Dilation((factor * 1e3).round() as u32)),
            false => Err(refused(text, "it is not of 1 to 100")),
        }
    }
}

/// The number alone: `2`, `1.5`.
impl fmt::Display for Dilation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.factor().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_read_written_and_kept_within_bounds() {
        for (text, factor) in [("1", 1.0), ("1.5", 1.5), ("2", 2.0), ("100", 100.0), ("1.2504", 1.25)] {
            let dilation: Dilation = text.parse().unwrap();
            assert_eq!(dilation.factor(), factor);
            assert_eq!(dilation.to_string().parse::<Dilation>().unwrap(), dilation);
            let stored = serde_json::to_string(&dilation).unwrap();
            assert_eq!(serde_json::from_str::<Dilation>(&stored).unwrap(), dilation);
        }
        for text in ["0.5", "0", "-2", "100.5", "inf", "NaN", "two", "", "1.9GHz"] {
            let fault = text.parse::<Dilation>().unwrap_err().to_string();
            assert!(fault.starts_with(&format!("dilation '{text}'")) && fault.contains("1 to 100"), "{fault}");
        }
        for stored in ["999", "100001", "0"] {
            assert!(serde_json::from_str::<Dilation>(stored).is_err(), "{stored}");
        }
    }
}
