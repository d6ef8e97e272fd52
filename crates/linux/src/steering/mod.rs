//! Steering: the receive work of an interface goes to the cores asked for, while a value lives.
//!
//! Everything is restored when the value is dropped, and by a keeper process when the owner is killed. If that is
//! killed too, the next start restores by the journal ([`restore_remains`]).

mod kernel_setting;
mod plan;
#[cfg(test)]
mod tests;

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use machine::steering::{self, Undoing};
use machine::{CoreId, CpuSet, Fault, Result, Source};

use crate::interface_usage::check_shown;
use crate::journal::{self, Journal, JournaledSetting as _};
use crate::warden::Warden;
pub use kernel_setting::{KernelSetting, Value};

machine::named! {
    /// The means that moves receive work to a core.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Means ("means") {
        /// The affinity of the interface's interrupt lines.
        Irq = "irq",
        /// The kernel hands packets on to other cores (RPS).
        Rps = "rps",
        /// The device spreads flows over those receive queues whose lines go to the cores (RSS).
        Rss = "rss",
    }
}

/// The steering asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    pub interface: String,
    /// Cores for its receive work.
    pub receive: Option<CpuSet>,
    /// The means; `None`: by interrupts where they can be set, else by RPS.
    pub by: Option<Means>,
    /// Cores for its transmit queues.
    pub xps: Option<CpuSet>,
    /// Whether packets follow the thread that reads them (RFS).
    pub flows: Option<bool>,
}

/// One setting before and after, read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingChange {
    pub setting: KernelSetting,
    pub before: Value,
    pub now: Value,
}

impl fmt::Display for SettingChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, was {}", self.setting, self.setting.shown(&self.now), self.setting.shown(&self.before))
    }
}

/// A steered interface, for as long as this lives.
pub struct Steered {
    means: Option<Means>,
    settings: Vec<SettingChange>,
    notes: Vec<String>,
    // Dropped before the journal is removed.
    _keeper: Option<Warden>,
    journal: Journal<KernelSetting>,
}

impl Steered {
    /// Begins to steer. `keeper` is a command that calls [`keep`] with its last argument: this program.
    ///
    /// # Errors
    /// There is no such interface or core, another run steers it, or the kernel refuses; nothing stays changed then.
    pub fn begin(request: &Request, keeper: Command) -> Result<Steered> {
        Steered::begin_below(Path::new("/"), &Source::live(), request, Some(keeper))
    }

    /// As `begin`, for files below `root`; without a keeper where no command is given.
    fn begin_below(root: &Path, source: &Source, request: &Request, keeper: Option<Command>) -> Result<Steered> {
        check_shown(source)?;
        let host = steering::Steering::read(source);
        let Some(found) = host.of(&request.interface) else {
            let names: Vec<&str> = host.interfaces.iter().map(|of| of.interface.as_str()).collect();
            let cause = format!("this network namespace has {}", names.join(", "));
            return Err(Fault::new(format!("interface {}", request.interface), cause, "name one of these"));
        };
        for cores in request.receive.iter().chain(&request.xps) {
            check_on_line(source, cores, "choose among these")?;
        }
        let mut journal = open(root, &request.interface)?;
        // What a killed run left is put back first.
        let notes = journal.restore();
        let keeper = keeper.map(|command| journal.start_keeper(command)).transpose()?;
        let mut steered = Steered { means: None, settings: Vec::new(), notes, _keeper: keeper, journal };
        steered.receive(found, request)?;
        if let Some(cores) = &request.xps {
            steered.apply(plan::xps(found, cores)?)?;
        }
        if let Some(on) = request.flows {
            steered.apply(plan::flows(found, on, &host.flow_entries)?)?;
        }
        let concerns_this_run = |undoing: &&Undoing| match undoing {
            Undoing::Irqbalance { .. } => matches!(steered.means, Some(Means::Irq | Means::Rss)),
            Undoing::Flows { .. } => request.flows.is_none() && steered.means.is_some(),
            Undoing::Managed { .. } => false,
        };
        let undoing = found.undone_by.iter().filter(concerns_this_run);
        let mut warnings: Vec<String> = undoing.map(|undoing| format!("{undoing}. Next: {}", undoing.next())).collect();
        if found.default_route.value() == Some(&true) {
            warnings.push(format!("{} has the default route: all that comes over it is steered", found.interface));
        }
        steered.notes.extend(warnings);
        Ok(steered)
    }

    fn receive(&mut self, of: &steering::InterfaceSteering, request: &Request) -> Result<()> {
        let Some(cores) = &request.receive else { return Ok(()) };
        let means: &[Means] = match request.by {
            Some(Means::Irq) => &[Means::Irq],
            Some(Means::Rps) => &[Means::Rps],
            Some(Means::Rss) => &[Means::Rss],
            None if of.receive_lines().is_empty() => &[Means::Rps],
            None => &[Means::Irq, Means::Rps],
        };
        let (last, first) = means.split_last().expect("there is one at least");
        for means in first {
            match plan::receive(of, cores, *means).and_then(|plan| self.apply(plan)) {
                Ok(()) => {
                    self.means = Some(*means);
                    return Ok(());
                }
                Err(fault) => {
                    self.notes.push(format!(
                        "by {last}, since {means} is refused: {}: {}",
                        fault.subject(),
                        fault.cause()
                    ));
                    self.notes.extend(self.journal.restore());
                    self.settings.clear();
                }
            }
        }
        self.means = Some(*last);
        self.apply(plan::receive(of, cores, *last)?)
    }

    fn apply(&mut self, plan: Vec<(KernelSetting, Value)>) -> Result<()> {
        for (setting, now) in plan {
            let before = self.journal.change(setting.clone(), now.clone())?;
            self.settings.push(SettingChange { setting, before, now });
        }
        Ok(())
    }

    /// The means that moves its receive work; `None` where that was not asked for.
    pub fn means(&self) -> Option<Means> {
        self.means
    }

    /// The settings, as read back.
    pub fn settings(&self) -> &[SettingChange] {
        &self.settings
    }

    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Restores the steering; returns notes on settings that did not hold or could not be restored.
    pub fn end(mut self) -> Vec<String> {
        self.journal.restore()
    }
}

impl Drop for Steered {
    fn drop(&mut self) {
        self.journal.restore();
    }
}

/// The journal of `interface` in the calling thread's network namespace.
fn open(root: &Path, interface: &str) -> Result<Journal<KernelSetting>> {
    Journal::open(root, &format!("{}{interface}", namespace()?), &format!("steering {interface}"))
}

/// Prefix of journal names in the calling thread's network namespace: others may have interfaces of the same names.
fn namespace() -> Result<String> {
    let inode = std::fs::metadata("/proc/thread-self/ns/net").map(|file| file.ino());
    Ok(format!("{}-", inode.map_err(|error| Fault::because("network namespace", error, "mount /proc"))?))
}

fn restore_remains_below(root: &Path) -> Result<Vec<String>> {
    let prefix = namespace()?;
    journal::restore_remains::<KernelSetting>(root, |name| name.strip_prefix(&prefix).map(str::to_owned))
}

/// Restores interfaces of this network namespace that killed runs left steered; returns notes.
///
/// # Errors
/// `/sys` shows another network namespace, or the journals cannot be read.
pub fn restore_remains() -> Result<Vec<String>> {
    check_shown(&Source::live())?;
    restore_remains_below(Path::new("/"))
}

/// The keeper: waits for its owner's end and restores what that left set. Standard input and output are the owner's.
pub fn keep(path: &Path) -> Result<()> {
    journal::keep::<KernelSetting>(path)
        .map_err(|error| Fault::because("keeper of steering", error, "leave it to `plimsoll steer`"))
}

/// Refuses cores that this machine does not have, or that are offline.
pub(crate) fn check_on_line(source: &Source, cores: &CpuSet, next: &str) -> Result<()> {
    let path = "/sys/devices/system/cpu/online";
    let online = source
        .cpu_list(path)
        .ok_or_else(|| Fault::new(path, "it cannot be read", "mount sysfs: `mount -t sysfs sysfs /sys`"))?;
    match cores.difference(&online).first() {
        _ if cores.is_empty() => Err(Fault::new("cores", "none are named", format!("name some of {online}"))),
        None => Ok(()),
        Some(CoreId(core)) => Err(Fault::new(
            format!("core {core}"),
            format!("the cores of this machine that are on line are {online}"),
            next,
        )),
    }
}
