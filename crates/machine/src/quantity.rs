//! Quantities as types, so that a unit is never only in prose.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::figure;

macro_rules! sums_and_differences {
    ($name:ident) => {
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
    };
}

macro_rules! integer_quantity {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        sums_and_differences!($name);

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

/// A transfer rate in bits a second, the unit of links.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BitsPerSecond(pub f64);

macro_rules! real_quantity {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub f64);

        sums_and_differences!($name);
    };
}

real_quantity!(
    /// An energy.
    Joules
);
real_quantity!(
    /// A power.
    Watts
);

impl Joules {
    /// The mean power that uses this energy up in `time`; `None` where no time passed.
    pub fn over(self, time: Nanoseconds) -> Option<Watts> {
        (time.0 > 0).then(|| Watts(self.0 * 1e9 / time.0 as f64))
    }
}

impl Watts {
    /// The energy of this power over `time`.
    pub fn during(self, time: Nanoseconds) -> Joules {
        Joules(self.0 * time.0 as f64 / 1e9)
    }
}

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

/// `1.9GHz`, `1900MHz`, `1900000kHz`: a clock, in whole kHz as the kernel has them.
impl FromStr for Hertz {
    type Err = Fault;

    fn from_str(text: &str) -> std::result::Result<Hertz, Fault> {
        let refused = || Fault::new(format!("clock '{text}'"), "it is no frequency", "write it like 1.9GHz or 1900MHz");
        let lower = text.to_ascii_lowercase();
        let units = [("ghz", 1e9), ("mhz", 1e6), ("khz", 1e3)];
        let split = units.iter().find_map(|(unit, scale)| Some((lower.strip_suffix(unit)?, scale)));
        let (number, unit) = split.ok_or_else(refused)?;
        let number: f64 = number.trim().parse().map_err(|_| refused())?;
        let hertz = (number * unit).round();
        if (1e6..1e11).contains(&hertz) { Ok(Hertz((hertz / 1e3).round() as u64 * 1000)) } else { Err(refused()) }
    }
}

impl Nanoseconds {
    /// A number of whole seconds.
    pub const fn of_seconds(seconds: u64) -> Nanoseconds {
        Nanoseconds(seconds * 1_000_000_000)
    }

    /// The time in seconds.
    pub fn in_seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The time as the standard library's type.
    pub const fn duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// A time as users type it: `34us`, `1.5ms`, `90s`, `10m` or `10min`, `2h`, `1d`; a bare number is seconds.
    ///
    /// # Errors
    /// The text is no time, or the time is not within the bounds.
    pub fn within(text: &str, least: Nanoseconds, most: Nanoseconds) -> Result<Nanoseconds, Fault> {
        const UNITS: [(&str, f64); 8] = [
            ("ns", 1.0),
            ("us", 1e3),
            ("ms", 1e6),
            ("min", 60e9),
            ("s", 1e9),
            ("m", 60e9),
            ("h", 3600e9),
            ("d", 86_400e9),
        ];
        let text = text.trim();
        let known = UNITS.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)));
        let (number, unit) = known.unwrap_or((text, &1e9));
        let number = number.trim().parse::<f64>().ok().filter(|number| number.is_finite());
        let refused =
            |cause: String| Fault::new(format!("time '{text}'"), cause, "write it like 34us, 1.5ms, 90s or 10m");
        let nanoseconds = number.ok_or_else(|| refused("it is no time".into()))? * unit;
        match (least.0 as f64..=most.0 as f64).contains(&nanoseconds.round()) {
            true => Ok(Nanoseconds(nanoseconds.round() as u64)),
            false => Err(refused(format!("it is not from {} to {}", least.typed(), most.typed()))),
        }
    }

    /// The time as users type it, in the largest unit that keeps it to four digits.
    fn typed(self) -> String {
        match self.0 {
            n if n < 1_000 => format!("{n}ns"),
            n if n < 1_000_000 => format!("{}us", n / 1_000),
            n if n < 1_000_000_000 => format!("{}ms", n / 1_000_000),
            n if n < 120_000_000_000 => format!("{}s", n / 1_000_000_000),
            n if n < 7_200_000_000_000 => format!("{}m", n / 60_000_000_000),
            n if n < 172_800_000_000_000 => format!("{}h", n / 3_600_000_000_000),
            n => format!("{}d", n / 86_400_000_000_000),
        }
    }
}

/// A time above 0; `Nanoseconds::within` has the grammar.
impl FromStr for Nanoseconds {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        Nanoseconds::within(text, Nanoseconds(1), Nanoseconds(1_000_000_000_000_000_000))
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

/// A number of 0 or more with a decimal multiple: `30`, `1.5k`, `2M`, `10G`.
pub fn multiple(text: &str) -> Option<f64> {
    let text = text.trim();
    let units = [("k", 1e3), ("m", 1e6), ("g", 1e9)];
    let lower = text.to_ascii_lowercase();
    let known = units.iter().find_map(|(unit, scale)| Some((lower.strip_suffix(unit)?, scale)));
    let (number, scale) = known.unwrap_or((&lower, &1.0));
    let plain = number.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'_' | b' '));
    number.trim().replace('_', "").parse::<f64>().ok().filter(|_| plain).map(|number| number * scale)
}

/// `200Mbit`, `2.5Gbit/s`, `10G`: decimal multiples of bits a second.
impl FromStr for BitsPerSecond {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let lower = text.trim().to_ascii_lowercase();
        let number = ["bit/s", "bps", "bit"].iter().find_map(|unit| lower.strip_suffix(unit)).unwrap_or(&lower);
        let refused = || Fault::new(format!("rate '{text}'"), "it is no rate in bits", "write it like 200Mbit or 10G");
        multiple(number).map(BitsPerSecond).ok_or_else(refused)
    }
}

impl BitsPerSecond {
    /// The rate in bytes.
    pub fn bytes(self) -> BytesPerSecond {
        BytesPerSecond(self.0 / 8.0)
    }
}

impl fmt::Display for BitsPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            b if b >= 1e9 => format!("{:.2} Gbit/s", b / 1e9),
            b if b >= 1e6 => format!("{:.1} Mbit/s", b / 1e6),
            b if b >= 1e3 => format!("{:.1} kbit/s", b / 1e3),
            b => format!("{b:.1} bit/s"),
        };
        f.pad(&text)
    }
}

/// Displays a quantity in the unit that fits, padded as asked.
macro_rules! displayed {
    ($name:ident, $steps:expr) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&figure::scaled(self.0, &$steps))
            }
        }
    };
}

displayed!(BytesPerSecond, [(1.0, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s")]);
displayed!(Joules, [(1e-3, "mJ"), (1.0, "J"), (1e3, "kJ"), (1e6, "MJ")]);
displayed!(Watts, [(1e-3, "mW"), (1.0, "W"), (1e3, "kW"), (1e6, "MW")]);

impl fmt::Display for Nanoseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&figure::nanoseconds(self.0 as f64))
    }
}

impl fmt::Display for Hertz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&figure::scaled(self.0 as f64, &[(1.0, "Hz"), (1e3, "kHz"), (1e6, "MHz"), (1e9, "GHz")]))
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

    #[test]
    fn times_are_read_as_they_are_written() {
        let time = |text: &str| text.parse::<Nanoseconds>().map(|time| time.0).ok();
        assert_eq!(
            [time("34us"), time("1.5 ms"), time("2s"), time("900ns")].map(Option::unwrap),
            [34_000, 1_500_000, 2_000_000_000, 900]
        );
        let long = ["3", "90s", "10m", "10min", "2h", "1d"].map(|text| time(text).unwrap() / 1_000_000_000);
        assert_eq!(long, [3, 90, 600, 600, 7200, 86_400]);
        let bounded = |text: &str| Nanoseconds::within(text, Nanoseconds(50_000_000), Nanoseconds::of_seconds(3600));
        assert_eq!(bounded("0.05").unwrap(), Nanoseconds(50_000_000));
        let refused = bounded("1us").unwrap_err().to_string();
        assert!(refused.contains("it is not from 50ms to 60m"), "{refused}");
        for text in ["", "us", "0s", "-1us", "nan s", "1e30s", "1 hour", "1.2.3s"] {
            assert_eq!(time(text), None, "{text}");
        }
    }

    #[test]
    fn rates_are_read_as_they_are_written() {
        let rate = |text: &str| text.parse::<BitsPerSecond>().map(|rate| rate.0).ok();
        for (text, is) in [("200Mbit", 2e8), ("2.5 Gbit/s", 2.5e9), ("10G", 1e10), ("64kbps", 64e3), ("1_000", 1e3)] {
            assert_eq!(rate(text), Some(is), "{text}");
        }
        for text in ["", "bit", "-1Mbit", "NaNbit", "1e9", "1Tbit", "30kpps", "10 bits"] {
            assert_eq!(rate(text), None, "{text}");
        }
        assert_eq!(BitsPerSecond(8e6).bytes(), BytesPerSecond(1e6));
    }

    #[test]
    fn a_small_rate_is_no_zero() {
        let rates = [2.5e9, 12_300.0, 12.0].map(|rate| BytesPerSecond(rate).to_string());
        assert_eq!(rates, ["2.5 GB/s", "12.3 kB/s", "12 B/s"]);
    }

    #[test]
    fn energies_and_powers_belong_together() {
        let second = Nanoseconds(1_000_000_000);
        assert_eq!(Joules(3.0).over(second), Some(Watts(3.0)));
        assert_eq!(Joules(3.0).over(Nanoseconds(0)), None);
        assert_eq!(Watts(250.0).during(Nanoseconds(2_000_000_000)), Joules(500.0));
        let printed = [0.0, 0.0042, 1.5, 42.25, 418.0, 12_345.0, 7.2e7].map(|j| Joules(j).to_string());
        assert_eq!(printed, ["0 J", "4.2 mJ", "1.5 J", "42.25 J", "418 J", "12.35 kJ", "72 MJ"]);
    }

    #[test]
    fn clocks_are_read_as_they_are_written() {
        for (text, is) in [("1.9GHz", 1_900_000_000), ("1900mhz", 1_900_000_000), ("1900000kHz", 1_900_000_000)] {
            assert_eq!(text.parse::<Hertz>().unwrap(), Hertz(is));
        }
        for text in ["", "1.9", "GHz", "1.9 THz", "-1GHz", "0MHz", "1e99GHz", "NaNGHz"] {
            assert!(text.parse::<Hertz>().unwrap_err().to_string().contains("write it like 1.9GHz"), "{text}");
        }
    }
}
