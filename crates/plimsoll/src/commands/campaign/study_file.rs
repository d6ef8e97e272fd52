//! The study file that a command names, and where its runs are kept.

use std::path::{Path, PathBuf};

use experiment::campaign::definition::{Campaign, Shard};
use experiment::campaign::file;
use experiment::campaign::store::{PointRuns, Store};
use machine::{Fault, Result};

use crate::commands::shipped::Shipped;

/// A study file and where its runs are kept.
#[derive(clap::Args)]
pub struct StudyFile {
    /// Study file (docs/campaigns.md), or a ready study by its name
    #[arg(value_name = "FILE|NAME")]
    pub file: PathBuf,
    /// Give a name of the file's [set] this value
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub set: Vec<(String, String)>,
    /// Keep the runs in this file [default: .plimsoll/NAME.runs.sqlite, of a shard .plimsoll/NAME.I-of-N.runs.sqlite]
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
}

fn pair(text: &str) -> Result<(String, String)> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    pair.map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| Fault::new(format!("--set {text}"), "it gives no value", "write it like --set program=./a.out"))
}

/// The studies that come with this program.
pub const READY: Shipped = Shipped {
    folders: ["share/plimsoll/studies", "crates/experiment/studies"],
    noun: "ready study",
    page: "docs/campaigns.md",
};

/// A study file as it was read.
pub struct Study {
    pub campaign: Campaign,
    /// The study file.
    pub path: PathBuf,
    pub folder: PathBuf,
    pub store: PathBuf,
    /// Folder below which clocks are set.
    pub root: PathBuf,
}

impl StudyFile {
    pub fn open(&self, shard: Shard, root: Option<&Path>) -> Result<Study> {
        let path = READY.file(&self.file)?;
        let campaign = file::read(&path, &self.set)?;
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        let store = self.store.clone().unwrap_or_else(|| store_of(&path, shard));
        let (root, store) = match root {
            None => (PathBuf::from("/"), store),
            Some(root) => {
                let absolute = root.canonicalize().map_err(|error| {
                    Fault::because(format!("--root {}", root.display()), error, "name a folder with a copy of /sys")
                })?;
                (absolute, if self.store.is_some() { store } else { store.with_extension("rehearsal.sqlite") })
            }
        };
        Ok(Study { campaign, path, folder, store, root })
    }
}

impl Study {
    /// The state of each point in the study's own store.
    ///
    /// # Errors
    /// As for [`Study::known_of`].
    pub fn known(&self) -> Result<Vec<PointRuns>> {
        match self.store.exists() {
            true => self.known_of(&self.store),
            false => Ok(vec![PointRuns::default(); self.campaign.points.len()]),
        }
    }

    /// The state of each point in the store at `path`.
    ///
    /// # Errors
    /// It cannot be read, or is of another study.
    pub fn known_of(&self, path: &Path) -> Result<Vec<PointRuns>> {
        let store = Store::read(path)?;
        store.check_identity(&self.campaign.identity, "give another place with --store FILE")?;
        store.known(&self.campaign.points)
    }
}

/// The store of a file's runs, unless another is named.
pub fn store_of(file: &Path, shard: Shard) -> PathBuf {
    let stem = file.file_stem().map_or("study".into(), |stem| stem.to_string_lossy().into_owned());
    let name = match shard {
        Shard::WHOLE => format!("{stem}.runs.sqlite"),
        Shard { part, of } => format!("{stem}.{part}-of-{of}.runs.sqlite"),
    };
    Path::new(".plimsoll").join(name)
}
