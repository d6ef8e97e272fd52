//! Two nodes of a batch system's job, for ranks on both.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use launch::allocation::{self, Allocation};
use linux::addresses;
use linux::warden::Warden;
use machine::accounting::CoreCost;
use machine::costs::store;
use machine::lock::Lock;
use machine::{CoreId, Fault, Reading, Result};
use tempfile::TempDir;

use super::contender::WantedHosts;
use crate::control::host_of;
use crate::remote_meter::RemoteMeter;
use crate::second_host::SecondHost;

/// The nodes, and the interface between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// This node and the next.
    pub names: [String; 2],
    /// `Slurm job 17`.
    pub job: String,
    /// Interface through which this node reaches the next.
    pub interface: String,
    /// Cores of the next node for parties that poll, near ones first; none if it is this machine, in a namespace or container.
    pub cores: Vec<CoreId>,
}

/// The nodes, held for one bench: a server on the next node, and a folder that both see.
#[derive(Debug)]
pub struct Nodes {
    pub pair: Pair,
    allocation: Allocation,
    /// Meter of the next node's cores, or why there is none.
    meter: Result<RemoteMeter, String>,
    second: SecondHost,
    // Removes the folder if this process is killed; dropped before it.
    _warden: Warden,
    _held: File,
    folder: TempDir,
}

/// File that a bench locks in its folder as long as it lives, on whatever node.
const HELD: &str = "held";
/// Time for removing the folders of killed benches.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A folder of this bench's own below `state`, and its lock. Folders of killed benches are removed: a batch system kills their
/// wardens too.
fn folder(state: &Path) -> Result<(TempDir, File)> {
    const PREFIX: &str = "bench-";
    let subject = state.display().to_string();
    let failed = |e: io::Error| {
        let next = "set XDG_STATE_HOME to a folder that all nodes have and that can be written";
        Fault::unwritable(subject.as_str(), e, next)
    };
    fs::create_dir_all(state).map_err(failed)?;
    let _turn = Lock::take(&state.join("benches.lock"), &subject, TIMEOUT, "wait until that has its own folder")?;
    for other in fs::read_dir(state).map_err(failed)?.flatten() {
        let held = || File::options().write(true).open(other.path().join(HELD));
        let is_left = other.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes())
            && held().is_ok_and(|held| held.try_lock().is_ok());
        if is_left {
            let _ = fs::remove_dir_all(other.path());
        }
    }
    let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(state).map_err(failed)?;
    let held = File::create(folder.path().join(HELD)).map_err(failed)?;
    // Nobody else may enter the folder.
    held.lock().map_err(failed)?;
    Ok((folder, held))
}

impl Nodes {
    /// The nodes that `hosts` asks for: none if it asks for other hosts or, asking for any two, there is no job of two nodes.
    /// `program` is this program.
    ///
    /// # Errors
    /// There is no such job, no server on the next node, or no place for a folder.
    pub fn asked(hosts: WantedHosts, program: &Path) -> Result<Option<Nodes>> {
        let asked = match hosts {
            WantedHosts::One | WantedHosts::Lab => return Ok(None),
            WantedHosts::Both => false,
            WantedHosts::Nodes => true,
        };
        match allocation::around() {
            Some(allocation) if asked || allocation.hosts().len() > 1 => Nodes::of(allocation, program).map(Some),
            None if asked => {
                let next = "ask for two nodes (`salloc --nodes=2`, `qsub -I -l select=2`), or choose --hosts lab";
                Err(Fault::new("hosts nodes", "this process is in no job of Slurm or PBS", next))
            }
            _ => Ok(None),
        }
    }

    fn of(allocation: Allocation, program: &Path) -> Result<Nodes> {
        let (here, next) = allocation.pair()?;
        let second = SecondHost::start(&allocation, &next, program).map_err(|fault| {
            let next = "start plimsoll from a folder that all nodes have and see that the batch system starts programs there \
                        and no firewall is between, or choose --hosts lab or one";
            Fault::new(fault.subject(), fault.cause(), next)
        })?;
        let (mut control, address) = second.reach()?;
        let cores = host_of(&mut control)?.cores;
        let interface = addresses::interface_of(addresses::towards(address)?)?;
        let state = store::folder()?;
        let (folder, _held) = folder(&state)?;
        let _warden = Warden::over_folder(folder.path())?;
        let pair = Pair { names: [here, next], job: allocation.name.clone(), interface, cores };
        let meter = Err("it was not begun".to_owned());
        Ok(Nodes { pair, allocation, meter, second, _warden, _held, folder })
    }

    /// The folder of the ranks' programs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Checks that the next node sees `program`, which lies in the folder.
    ///
    /// # Errors
    /// The next node does not see it.
    pub fn check(&self, program: &Path) -> Result<()> {
        let next = &self.pair.names[1];
        let mut test = self.allocation.on(next, Path::new("test"), &["-x".into(), program.into()])?;
        let status = test.stdout(Stdio::null()).stderr(Stdio::null()).status();
        let status = status.map_err(|e| Fault::because(test.get_program().display().to_string(), e, "see PATH"))?;
        if status.success() {
            return Ok(());
        }
        let folder = self.folder().parent().unwrap_or(Path::new("/"));
        let to_set = "set XDG_STATE_HOME to a folder that all nodes have";
        Err(Fault::new(format!("folder {}", folder.display()), format!("it is not seen on {next}"), to_set))
    }

    /// Begins to count what the next node's cores do, if it is another machine.
    pub fn begin(&mut self) {
        let counting = self.meter.as_mut().is_ok_and(|meter| meter.begin().is_ok());
        if !counting && !self.pair.cores.is_empty() {
            let opened = self.second.reach().and_then(|(control, _)| RemoteMeter::open(control));
            self.meter = opened.map_err(|fault| fault.to_string());
        }
    }

    /// Counts of the next node since [`Nodes::begin`]; `None` if it is this machine, whose own meter has them.
    pub fn end(&mut self) -> Option<Reading<Vec<CoreCost>>> {
        let counted = match &mut self.meter {
            Ok(meter) => meter.end().unwrap_or_else(|fault| Reading::absent(fault.to_string())),
            Err(why) => Reading::absent(why.as_str()),
        };
        (!self.pair.cores.is_empty()).then_some(counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_bench_left_goes_and_what_another_holds_stays() {
        let state = tempfile::tempdir().unwrap();
        fs::write(state.path().join("bench-notes"), "a file of the user").unwrap();
        let (one, _held) = folder(state.path()).unwrap();
        let (killed, its) = folder(state.path()).unwrap();
        let left = killed.keep();
        drop(its);
        let (other, _other) = folder(state.path()).unwrap();
        assert!(one.path().join(HELD).exists() && other.path().exists() && !left.exists());
        assert!(state.path().join("bench-notes").exists());
    }
}
