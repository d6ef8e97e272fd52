//! Quantities as types, so that a unit is never only in prose.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::fault::Fault;

macro_rules! integer_quantity {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl std::ops::Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                $name(self.0 + other.0)
            }
        }

        impl std::ops::Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                $name(self.0 - other.0)
            }
        }

        impl std::iter::Sum for $name {
            fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
                $name(items.map(|q| q.0).sum())
            }
        }
    };
}

integer_quantity!(
    /// A number of bytes. Displayed in binary multiples (`64 KiB`) where exact.
    Bytes
);
integer_quantity!(
    /// A duration, or an instant on some clock whose origin the context names.
    Nanoseconds
);
integer_quantity!(
    /// A clock frequency.
    Hertz
);

/// A transfer rate in bytes (not bits) a second.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BytesPerSecond(pub f64);

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            b if b >= GIB && b.is_multiple_of(GIB) => format!("{} GiB", b / GIB),
            b if b >= MIB && b.is_multiple_of(MIB) => format!("{} MiB", b / MIB),
            b if b >= KIB && b.is_multiple_of(KIB) => format!("{} KiB", b / KIB),
            b => format!("{b} B"),
        };
        f.pad(&text)
    }
}

impl FromStr for Bytes {
    type Err = Fault;

    /// Accepts `512`, `512B`, `64KiB`, `64k`, `1 MiB`, `2GiB`; multiples are binary.
    fn from_str(text: &str) -> Result<Self, Fault> {
        let bad = || Fault::new(format!("size '{text}'"), "not a number of bytes", "write it like 8, 64KiB or 1MiB");
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
        let number: u64 = trimmed[..digits].parse().map_err(|_| bad())?;
        let multiple = match trimmed[digits..].trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" | "kib" => KIB,
            "m" | "mb" | "mib" => MIB,
            "g" | "gb" | "gib" => GIB,
            _ => return Err(bad()),
        };
        number.checked_mul(multiple).map(Bytes).ok_or_else(bad)
    }
}

impl fmt::Display for Nanoseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            n if n < 10_000 => format!("{n} ns"),
            n if n < 10_000_000 => format!("{:.1} us", n as f64 / 1e3),
            n if n < 10_000_000_000 => format!("{:.1} ms", n as f64 / 1e6),
            n => format!("{:.1} s", n as f64 / 1e9),
        };
        f.pad(&text)
    }
}

impl fmt::Display for Hertz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            h if h >= 1_000_000_000 => format!("{:.2} GHz", h as f64 / 1e9),
            h if h >= 1_000_000 => format!("{:.0} MHz", h as f64 / 1e6),
            h => format!("{h} Hz"),
        };
        f.pad(&text)
    }
}

impl fmt::Display for BytesPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            r if r >= 1e9 => format!("{:.2} GB/s", r / 1e9),
            r if r >= 1e6 => format!("{:.1} MB/s", r / 1e6),
            r => format!("{:.1} kB/s", r / 1e3),
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_back_what_they_print() {
        for n in [0, 1, 1023, 1024, 1536, 64 << 10, 1 << 20, 3 << 30] {
            assert_eq!(Bytes(n).to_string().parse::<Bytes>().unwrap(), Bytes(n));
        }
    }

    #[test]
    fn bytes_refuse_nonsense() {
        for text in ["", "k", "-1", "1.5k", "1 QiB", "99999999999999999999", "18446744073709551615k"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }
}
