//! Points of a study file that are simulated: `plimsoll whatif simulate` with keys of its file replaced.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use experiment::campaign::definition::{Campaign, Reading, Work};
use experiment::campaign::simulated::Simulator;
use experiment::cause::{Cause, Failure};
use launch::campaign::word;
use machine::{Fault, Result};
use simulate::cluster::power::Joules;
use simulate::file::Simulation;
use simulate::file::replaced::Original;

use crate::commands::simulate::testbed;

/// A cache of files, each read once.
pub struct Testbeds {
    /// Folder of the study file.
    folder: PathBuf,
    read: Mutex<HashMap<String, Arc<Original>>>,
}

impl Testbeds {
    pub fn new(folder: &Path) -> Testbeds {
        Testbeds { folder: folder.to_owned(), read: Mutex::default() }
    }

    fn original(&self, name: &str) -> Result<Arc<Original>> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(original) = read.get(name) {
            return Ok(original.clone());
        }
        let beside = self.folder.join(name);
        let path = if beside.is_file() { beside } else { testbed(Path::new(name))? };
        let original = Arc::new(Original::read(&path)?);
        read.insert(name.to_owned(), original.clone());
        Ok(original)
    }

    fn simulation(&self, campaign: &Campaign, point: usize) -> Result<Simulation> {
        let Work::Simulate { file, replace } = &campaign.program(point).work else {
            return Err(Fault::new("the point", "it is no simulation", "report this as a defect"));
        };
        let folder = self.folder.display().to_string();
        let original = self.original(&word(campaign, point, file, &folder)?)?;
        let mut keys = Vec::new();
        for (key, value) in replace {
            keys.push((key.clone(), word(campaign, point, value, &folder)?));
        }
        let axes = campaign.points[point].axes.iter();
        keys.extend(
            axes.filter(|(name, _)| name.contains('.')).map(|(name, value)| (name.to_owned(), value.to_string())),
        );
        original.with(&keys)
    }

    /// The reason why a point cannot be simulated.
    pub fn cannot(&self, campaign: &Campaign, point: usize) -> Option<String> {
        let Work::Simulate { .. } = &campaign.program(point).work else { return None };
        let fault = self.simulation(campaign, point).err()?;
        Some(format!("{}: {}", fault.subject(), fault.cause()))
    }
}

impl Simulator for Testbeds {
    fn simulate(&self, campaign: &Campaign, point: usize) -> Result<Vec<Option<f64>>, Failure> {
        let failed =
            |fault: Fault| Failure::new(Cause::ProgramFailed, format!("{}: {}", fault.subject(), fault.cause()));
        let (_, outcome) = self.simulation(campaign, point).and_then(Simulation::run).map_err(failed)?;
        let seconds = outcome.finished.total() as f64 * 1e-12;
        let joules = outcome.joules.map(|joules| joules.iter().map(Joules::total).sum::<f64>());
        let mut values = vec![None; campaign.identity.figures.len()];
        for (figure, reading) in &campaign.program(point).figures {
            values[*figure] = match reading {
                Reading::Merit(_) => Some(seconds),
                Reading::Watts => joules.map(|joules| joules / seconds),
                Reading::Joules => joules,
                Reading::Messages => Some(outcome.finished.messages as f64 / seconds),
                Reading::Bytes => Some(outcome.finished.sent as f64 / seconds),
            };
        }
        Ok(values)
    }
}
