//! The limits of a cpufreq policy, which the kernel lets be set: the lowest and the highest clock.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use machine::Hertz;

use crate::journal::{JournaledSetting, Value};

/// One limit of the policy with this number. Written and read back as `lowest policy0`, `highest policy0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    Lowest(u32),
    Highest(u32),
}

impl Limit {
    fn file(self, root: &Path) -> PathBuf {
        let (policy, file) = match self {
            Limit::Lowest(policy) => (policy, "scaling_min_freq"),
            Limit::Highest(policy) => (policy, "scaling_max_freq"),
        };
        root.join(format!("sys/devices/system/cpu/cpufreq/policy{policy}/{file}"))
    }
}

impl JournaledSetting for Limit {
    const FOLDER: &str = "run/plimsoll-clock";
    const WHAT: &str = "clocks";

    /// The limit in kHz, as the kernel writes it.
    fn read(&self, root: &Path) -> io::Result<Value> {
        let text = fs::read_to_string(self.file(root))?;
        let odd = || io::Error::new(io::ErrorKind::InvalidData, format!("'{}' is not what kernels write", text.trim()));
        Ok(vec![text.trim().parse().map_err(|_| odd())?])
    }

    fn write(&self, root: &Path, value: &[u32]) -> io::Result<()> {
        fs::write(self.file(root), value.iter().map(u32::to_string).collect::<String>())
    }

    fn restoring_writes(&self, _: &Path, value: Value) -> Vec<Value> {
        vec![value]
    }

    fn shown(&self, value: &[u32]) -> String {
        value.first().map_or("none".into(), |kilohertz| Hertz(u64::from(*kilohertz) * 1000).to_string())
    }

    fn refused(error: &io::Error) -> &'static str {
        match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "run as root with /sys writable, or inside a Slurm job; else stretch protocol work: --dilate K"
            }
            _ => "ask for a clock that the policy has: `plimsoll clock` shows them",
        }
    }

    fn ignored() -> &'static str {
        "ask for a clock that the processor has, below its boost: `plimsoll clock` shows them"
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Lowest(policy) => write!(f, "lowest policy{policy}"),
            Limit::Highest(policy) => write!(f, "highest policy{policy}"),
        }
    }
}

impl FromStr for Limit {
    type Err = ();

    fn from_str(text: &str) -> Result<Limit, ()> {
        let (end, policy) = text.split_once(" policy").ok_or(())?;
        let policy = policy.parse().map_err(drop)?;
        match end {
            "lowest" => Ok(Limit::Lowest(policy)),
            "highest" => Ok(Limit::Highest(policy)),
            _ => Err(()),
        }
    }
}
