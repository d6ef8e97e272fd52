//! Receive packet steering (RPS): which core does the protocol work of an interface's received packets.
//!
//! `rps_cpus` holds the mask of the cores that may do it (Linux Documentation/networking/scaling.rst, 'RPS').

use std::fs;
use std::path::{Path, PathBuf};

use machine::{CoreId, Fault, Result};

use super::Host;

/// What was asked of both hosts, and what the kernel says is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steering {
    /// Of each host. `None`: no steering, the work is done where the sender runs.
    pub asked: [Option<CoreId>; 2],
    /// The cores of host a's mask, then of host b's; empty without steering.
    pub in_force: [Vec<CoreId>; 2],
}

impl Steering {
    pub fn in_force(&self, host: Host) -> &[CoreId] {
        &self.in_force[host as usize]
    }

    /// Whether both hosts do as asked.
    pub fn holds(&self) -> bool {
        self.asked.iter().zip(&self.in_force).all(|(asked, cores)| cores.as_slice() == asked.as_slice())
    }
}

/// Refuses a core that this machine does not have, or has off line.
pub(super) fn check(core: Option<CoreId>) -> Result<()> {
    let Some(core) = core else { return Ok(()) };
    let path = "/sys/devices/system/cpu/online";
    let online = fs::read_to_string(path).map_err(|error| unreachable_file(Path::new(path), error))?;
    if parse_list(online.trim()).is_some_and(|ranges| ranges.iter().any(|range| range.contains(&core.0))) {
        return Ok(());
    }
    let cause = format!("the cores of this machine that are on line are {}", online.trim());
    Err(Fault::new(core.to_string(), cause, "choose one of these as --protocol-core"))
}

/// Steers every receive queue of `interface`, which must be one of the calling thread's namespace.
pub(super) fn write(interface: &str, core: Option<CoreId>) -> Result<()> {
    for path in masks(interface)? {
        fs::write(&path, mask(core)).map_err(|error| unreachable_file(&path, error))?;
    }
    Ok(())
}

/// The cores in force for any receive queue of `interface`.
pub(super) fn read(interface: &str) -> Result<Vec<CoreId>> {
    let mut cores = Vec::new();
    for path in masks(interface)? {
        let text = fs::read_to_string(&path).map_err(|error| unreachable_file(&path, error))?;
        let bad = || Fault::new(path.display().to_string(), format!("'{}' is no mask", text.trim()), "report it");
        cores.extend(parse_mask(text.trim()).ok_or_else(bad)?);
    }
    cores.sort_unstable();
    cores.dedup();
    Ok(cores)
}

fn masks(interface: &str) -> Result<Vec<PathBuf>> {
    let folder = PathBuf::from(format!("/sys/class/net/{interface}/queues"));
    let entries = fs::read_dir(&folder).map_err(|error| unreachable_file(&folder, error))?;
    let queues = entries.filter_map(|entry| entry.ok()).map(|entry| entry.path());
    let masks: Vec<_> = queues.map(|queue| queue.join("rps_cpus")).filter(|mask| mask.exists()).collect();
    if masks.is_empty() {
        let cause = "no receive queue has rps_cpus";
        return Err(Fault::new(folder.display().to_string(), cause, "use a kernel with CONFIG_RPS, or do not steer"));
    }
    Ok(masks)
}

fn unreachable_file(path: &Path, error: std::io::Error) -> Fault {
    let next = "mount /sys for reading and writing, and run as root";
    Fault::because(path.display().to_string(), error, next)
}

/// The mask as the kernel takes it: hexadecimal words of 32 cores, highest first, parted by commas.
fn mask(core: Option<CoreId>) -> String {
    let Some(CoreId(core)) = core else { return "0".into() };
    let zeros = ",00000000".repeat((core / 32) as usize);
    format!("{:x}{zeros}", 1u32 << (core % 32))
}

fn parse_mask(text: &str) -> Option<Vec<CoreId>> {
    let mut cores = Vec::new();
    for (index, word) in text.rsplit(',').enumerate() {
        let word = u32::from_str_radix(word, 16).ok()?;
        cores.extend((0..32).filter(|bit| word >> bit & 1 == 1).map(|bit| CoreId(index as u32 * 32 + bit)));
    }
    Some(cores)
}

/// A list as the kernel writes it: `0-3,8`.
fn parse_list(text: &str) -> Option<Vec<std::ops::RangeInclusive<u32>>> {
    text.split(',')
        .map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse().ok()?..=last.parse().ok()?)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_read_back_as_the_core_they_were_made_for() {
        for core in [0, 1, 31, 32, 63, 64, 511] {
            assert_eq!(parse_mask(&mask(Some(CoreId(core)))), Some(vec![CoreId(core)]));
        }
        assert_eq!(parse_mask(&mask(None)), Some(vec![]));
        assert_eq!(mask(Some(CoreId(33))), "2,00000000");
        assert_eq!(parse_mask("00000001,80000001"), Some(vec![CoreId(0), CoreId(31), CoreId(32)]));
        assert_eq!(parse_mask("1,x"), None);
    }

    #[test]
    fn steering_holds_only_if_both_hosts_do_as_asked() {
        let (one, both) = (vec![CoreId(1)], [Some(CoreId(1)); 2]);
        assert!(Steering { asked: both, in_force: [one.clone(), one.clone()] }.holds());
        assert!(!Steering { asked: both, in_force: [one.clone(), vec![]] }.holds());
        assert!(!Steering { asked: [None; 2], in_force: [one.clone(), one.clone()] }.holds());
        let apart = [Some(CoreId(1)), Some(CoreId(0))];
        assert!(Steering { asked: apart, in_force: [one.clone(), vec![CoreId(0)]] }.holds());
        assert!(!Steering { asked: apart, in_force: [vec![CoreId(0)], one] }.holds());
    }

    #[test]
    fn a_core_off_line_or_missing_is_refused() {
        assert_eq!(parse_list("0-3,8"), Some(vec![0..=3, 8..=8]));
        let fault = check(Some(CoreId(100_000))).unwrap_err();
        assert!(fault.cause().contains("on line are 0"), "{fault}");
    }
}
