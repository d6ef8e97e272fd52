//! The settings of steering.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use machine::{CoreId, CpuSet};

use crate::{ethtool, journal};

/// One setting. Written and read back as `irq 38`, `rps eth0 0`, `rss eth0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelSetting {
    /// The cores of an interrupt line.
    Irq(u32),
    /// The cores that packets of an interface's receive queue are handed to.
    Rps(String, u32),
    /// Number of flows of a receive queue that RFS remembers.
    Flows(String, u32),
    /// The cores that choose a transmit queue.
    Xps(String, u32),
    /// The device's table of receive queues by hash.
    Rss(String),
}

pub use crate::journal::Value;

pub(super) fn cores_of(value: &[u32]) -> CpuSet {
    value.iter().copied().map(CoreId).collect()
}

pub(super) fn value_of(cores: &CpuSet) -> Value {
    cores.iter().map(|core| core.0).collect()
}

impl KernelSetting {
    /// The setting's file below `root`; RSS has none.
    fn file(&self, root: &Path) -> Option<PathBuf> {
        let queue = |interface: &str, queue: &str, number: u32, file: &str| {
            root.join(format!("sys/class/net/{interface}/queues/{queue}-{number}/{file}"))
        };
        Some(match self {
            KernelSetting::Irq(number) => root.join(format!("proc/irq/{number}/smp_affinity_list")),
            KernelSetting::Rps(interface, number) => queue(interface, "rx", *number, "rps_cpus"),
            KernelSetting::Flows(interface, number) => queue(interface, "rx", *number, "rps_flow_cnt"),
            KernelSetting::Xps(interface, number) => queue(interface, "tx", *number, "xps_cpus"),
            KernelSetting::Rss(_) => return None,
        })
    }

    fn interface(&self) -> &str {
        match self {
            KernelSetting::Irq(_) => "",
            KernelSetting::Rps(interface, _)
            | KernelSetting::Flows(interface, _)
            | KernelSetting::Xps(interface, _)
            | KernelSetting::Rss(interface) => interface,
        }
    }
}

impl journal::JournaledSetting for KernelSetting {
    const FOLDER: &str = "run/plimsoll-steering";
    const WHAT: &str = "steering";

    fn read(&self, root: &Path) -> io::Result<Value> {
        let Some(file) = self.file(root) else { return ethtool::indirection(self.interface()) };
        let text = fs::read_to_string(file)?;
        let value = match self {
            KernelSetting::Irq(_) => CpuSet::from_list(&text).as_ref().map(value_of),
            KernelSetting::Flows(..) => text.trim().parse().ok().map(|flows| vec![flows]),
            _ => CpuSet::from_mask(&text).as_ref().map(value_of),
        };
        let odd = || io::Error::new(io::ErrorKind::InvalidData, format!("'{}' is not what kernels write", text.trim()));
        value.ok_or_else(odd)
    }

    fn write(&self, root: &Path, value: &[u32]) -> io::Result<()> {
        let Some(file) = self.file(root) else { return ethtool::set_indirection(self.interface(), value) };
        fs::write(
            file,
            match self {
                KernelSetting::Irq(_) => cores_of(value).to_string(),
                KernelSetting::Flows(..) => value.iter().map(u32::to_string).collect(),
                _ => cores_of(value).to_mask(),
            },
        )
    }

    /// The writes that restore `value`, in order. A line stays on its core while that is among those allowed, so it is
    /// first sent back to its earlier core.
    fn restoring_writes(&self, root: &Path, value: Value) -> Vec<Value> {
        let effective = || {
            let KernelSetting::Irq(number) = self else { return None };
            let text = fs::read_to_string(root.join(format!("proc/irq/{number}/effective_affinity_list"))).ok()?;
            CpuSet::from_list(&text).filter(|cores| !cores.is_empty()).as_ref().map(value_of)
        };
        effective().filter(|cores| *cores != value).into_iter().chain([value.clone()]).collect()
    }

    /// A value for display.
    fn shown(&self, value: &[u32]) -> String {
        match self {
            KernelSetting::Flows(..) => format!("{} flows", value.iter().map(u32::to_string).collect::<String>()),
            KernelSetting::Rss(_) => format!("queues {}", cores_of(value)),
            _ if value.is_empty() => "no cores".into(),
            _ => format!("cores {}", cores_of(value)),
        }
    }

    fn refused(error: &io::Error) -> &'static str {
        match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "run as root, with /sys and /proc writable"
            }
            io::ErrorKind::NotFound => "steer by another means: --by rps, irq or rss",
            _ => "steer by another means (--by rps), or to other cores",
        }
    }

    fn ignored() -> &'static str {
        "ask for cores that the kernel leaves to it (isolcpus, nohz_full)"
    }
}

impl fmt::Display for KernelSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelSetting::Irq(number) => write!(f, "irq {number}"),
            KernelSetting::Rps(interface, queue) => write!(f, "rps {interface} {queue}"),
            KernelSetting::Flows(interface, queue) => write!(f, "flows {interface} {queue}"),
            KernelSetting::Xps(interface, queue) => write!(f, "xps {interface} {queue}"),
            KernelSetting::Rss(interface) => write!(f, "rss {interface}"),
        }
    }
}

impl FromStr for KernelSetting {
    type Err = ();

    fn from_str(text: &str) -> Result<KernelSetting, ()> {
        let words: Vec<&str> = text.split(' ').collect();
        let number = |word: &str| word.parse().map_err(drop);
        // A name that could leave the folder of interfaces is refused.
        let name = |word: &str| match word.is_empty() || word.contains('/') || word.starts_with('.') {
            true => Err(()),
            false => Ok(word.to_owned()),
        };
        match words[..] {
            ["irq", line] => Ok(KernelSetting::Irq(number(line)?)),
            ["rps", interface, queue] => Ok(KernelSetting::Rps(name(interface)?, number(queue)?)),
            ["flows", interface, queue] => Ok(KernelSetting::Flows(name(interface)?, number(queue)?)),
            ["xps", interface, queue] => Ok(KernelSetting::Xps(name(interface)?, number(queue)?)),
            ["rss", interface] => Ok(KernelSetting::Rss(name(interface)?)),
            _ => Err(()),
        }
    }
}
