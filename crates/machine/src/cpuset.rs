//! Sets of logical CPUs and the kernel's two formats for them: lists (`0-3,8`) and masks (`ff,00000000`).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::quantity::Bytes;
use crate::site::CoreId;

/// One past the largest CPU number that is accepted; Linux stops at 8192 (`CONFIG_NR_CPUS`).
const CPU_NUMBER_LIMIT: u32 = 1 << 16;

/// Logical CPUs in ascending order. Displayed and serialized as the kernel's list format, `0-3,8`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuSet(Vec<u32>);

impl CpuSet {
    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = CoreId> + '_ {
        self.0.iter().map(|&n| CoreId(n))
    }

    /// Number of CPUs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set has no CPU.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The CPU with the lowest number.
    pub fn first(&self) -> Option<CoreId> {
        self.0.first().map(|&n| CoreId(n))
    }

    /// Whether this CPU is in the set.
    pub fn contains(&self, core: CoreId) -> bool {
        self.0.binary_search(&core.0).is_ok()
    }

    /// The CPUs that are in both sets.
    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        self.iter().filter(|&core| other.contains(core)).collect()
    }

    /// The CPUs of this set that are not in the other.
    pub fn difference(&self, other: &CpuSet) -> CpuSet {
        self.iter().filter(|&core| !other.contains(core)).collect()
    }

    /// Reads the kernel's list format: `0-3,8,10-11`, with `0-15:2/4` for groups; empty text is the empty set.
    ///
    /// `None` for anything else.
    pub fn from_list(text: &str) -> Option<CpuSet> {
        let mut cpus = Vec::new();
        for part in bare(text).split(',').filter(|part| !part.is_empty()) {
            let (range, group) = match part.split_once(':') {
                Some((range, group)) => (range, Some(group.split_once('/')?)),
                None => (part, None),
            };
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u32, u32) = (cpu_number(first)?, cpu_number(last)?);
            if first > last {
                return None;
            }
            let (used, size) = match group {
                Some((used, size)) => (cpu_number(used)?, cpu_number(size)?),
                None => (1, 1),
            };
            if used == 0 || used > size {
                return None;
            }
            cpus.extend((first..=last).filter(|n| (n - first) % size < used));
        }
        Some(cpus.into_iter().map(CoreId).collect())
    }

    /// Reads the kernel's mask format: hexadecimal words of 32 bits, most significant first, `ff,00000000`.
    ///
    /// `None` for anything else, the empty text included.
    pub fn from_mask(text: &str) -> Option<CpuSet> {
        let text = bare(text);
        if text.is_empty() {
            return None;
        }
        let mut cpus = Vec::new();
        for (word, digits) in text.rsplit(',').enumerate() {
            if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                return None;
            }
            let bits = u32::from_str_radix(digits, 16).ok()?;
            let base = u32::try_from(word).ok()?.checked_mul(32)?;
            for bit in (0..32).filter(|bit| bits & (1 << bit) != 0) {
                cpus.push(base.checked_add(bit).filter(|&n| n < CPU_NUMBER_LIMIT)?);
            }
        }
        Some(cpus.into_iter().map(CoreId).collect())
    }

    /// The set in the kernel's mask format, as it takes it.
    pub fn to_mask(&self) -> String {
        let words = self.0.last().map_or(1, |last| *last as usize / 32 + 1);
        let mut mask = vec![0u32; words];
        self.0.iter().for_each(|n| mask[*n as usize / 32] |= 1 << (n % 32));
        let mut words = mask.iter().rev();
        let first = format!("{:x}", words.next().expect("there is one word at least"));
        words.fold(first, |text, word| format!("{text},{word:08x}"))
    }
}

/// Some kernels end the files of masks and lists with a NUL (Linux 5.15 and later, as distributed for some Arm servers).
fn bare(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || c == '\0')
}

fn cpu_number(text: &str) -> Option<u32> {
    let digits_only = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|&n| digits_only && n < CPU_NUMBER_LIMIT)
}

/// Reads a cache size as sysfs writes it: `32K`, `1024K`, `32M`. `None` for anything else.
pub fn cache_size(text: &str) -> Option<Bytes> {
    text.trim().ends_with(['K', 'M', 'G']).then(|| text.parse().ok()).flatten()
}

impl FromIterator<CoreId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = CoreId>>(cores: I) -> Self {
        let mut numbers: Vec<u32> = cores.into_iter().map(|core| core.0).collect();
        numbers.sort_unstable();
        numbers.dedup();
        CpuSet(numbers)
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for range in self.0.chunk_by(|a, b| a + 1 == *b) {
            let separator = if text.is_empty() { "" } else { "," };
            let (first, last) = (range[0], range[range.len() - 1]);
            text += &match last - first {
                0 => format!("{separator}{first}"),
                _ => format!("{separator}{first}-{last}"),
            };
        }
        f.pad(&text)
    }
}

impl FromStr for CpuSet {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        CpuSet::from_list(text)
            .ok_or_else(|| Fault::new(format!("cores '{text}'"), "not a list of cores", "write it like 0-3,8"))
    }
}

impl TryFrom<String> for CpuSet {
    type Error = Fault;
    fn try_from(text: String) -> Result<Self, Fault> {
        text.parse()
    }
}

impl From<CpuSet> for String {
    fn from(set: CpuSet) -> String {
        set.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_the_kernel_writes() {
        let list = |text: &str| CpuSet::from_list(text).unwrap().to_string();
        assert_eq!(list("0-3,8,10-11\n"), "0-3,8,10-11");
        assert_eq!(list("\n"), "");
        assert_eq!(list("0-9:2/5"), "0-1,5-6");
        let mask = |text: &str| CpuSet::from_mask(text).unwrap().to_string();
        assert_eq!(mask("ff,00000000\n"), "32-39");
        assert_eq!(mask("3"), "0-1");
        assert_eq!(mask("00000001,80000001"), "0,31-32");
        assert_eq!(mask("00000000"), "");
        let written = |text: &str| CpuSet::from_list(text).unwrap().to_mask();
        assert_eq!([written("0,33"), written(""), written("31")], ["2,00000001", "0", "80000000"]);
        assert_eq!(cache_size("1024K\n"), Some(Bytes(1 << 20)));
        assert_eq!(cache_size("32M"), Some(Bytes(32 << 20)));
    }

    #[test]
    fn refuses_nonsense() {
        for text in ["3-1", "a", "-", "1-", "0-3:1", "0-3:0/4", "0-3:5/4", "0-3:1/0", "0-4294967295", "+1", "1 2"] {
            assert_eq!(CpuSet::from_list(text), None, "{text}");
        }
        for text in ["", ",", "g", "1ffffffff", "+1", "1,,1"] {
            assert_eq!(CpuSet::from_mask(text), None, "{text}");
        }
        for text in ["", "K", "32", "32 kB", "-1K"] {
            assert_eq!(cache_size(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn list_and_mask_agree(numbers in prop::collection::vec(0u32..256, 0..64)) {
            let set: CpuSet = numbers.iter().map(|&n| CoreId(n)).collect();
            prop_assert_eq!(CpuSet::from_list(&set.to_string()), Some(set.clone()));
            prop_assert_eq!(CpuSet::from_mask(&set.to_mask()), Some(set));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let text = String::from_utf8_lossy(&bytes);
            let _ = (CpuSet::from_list(&text), CpuSet::from_mask(&text), cache_size(&text));
        }

        #[test]
        fn nearly_valid_text_never_panics(text in "[0-9a-fKMG,:/ -]{0,40}") {
            if let Some(set) = CpuSet::from_list(&text) {
                prop_assert!(set.iter().all(|core| core.0 < CPU_NUMBER_LIMIT));
            }
            let _ = (CpuSet::from_mask(&text), cache_size(&text));
        }
    }
}
