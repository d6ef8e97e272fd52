//! Files that are installed with this program and found by name: testbeds, ready studies.

use std::path::{Path, PathBuf};

use machine::{Fault, Result};

/// The source folder, for a build whose target folder is not in it.
const SOURCE: &str = env!("PLIMSOLL_SOURCE");

/// Files of one kind.
pub struct Shipped {
    /// Folders of the files, installed and in the source.
    pub folders: [&'static str; 2],
    /// The noun for such a file, like `testbed`.
    pub noun: &'static str,
    /// The page that describes such files.
    pub page: &'static str,
}

impl Shipped {
    /// The file for a name, in the installed folder or in the source of a build.
    ///
    /// # Errors
    /// There is none.
    pub fn file(&self, word: &Path) -> Result<PathBuf> {
        if word.components().count() != 1 || word.exists() {
            return Ok(word.to_owned());
        }
        let mut known = self.all()?;
        if let Some(at) = known.iter().position(|path| path.file_stem() == Some(word.as_os_str())) {
            return Ok(known.swap_remove(at));
        }
        let names: Vec<_> = known.iter().filter_map(|path| path.file_stem()?.to_str()).collect();
        let noun = self.noun;
        let next = format!("name a file like those of {}", machine::page(self.page));
        let (cause, next) = match names.is_empty() {
            true => (format!("there is no such file, and no {noun} is installed beside this program"), next),
            false => (
                format!("there is no such file, and no {noun} has this name"),
                format!("{next}, or one of {}", names.join(", ")),
            ),
        };
        Err(Fault::new(word.display().to_string(), cause, next))
    }

    /// All files, by name.
    pub fn all(&self) -> Result<Vec<PathBuf>> {
        let own = machine::here::program()?;
        // PREFIX/bin/plimsoll, or target/release/plimsoll, or a test's target/debug/deps/plimsoll.
        let above = own.ancestors().skip(1).take(4);
        let above = above.chain([Path::new(SOURCE)]);
        let folder = above.flat_map(|above| self.folders.map(|of| above.join(of))).find(|folder| folder.is_dir());
        let found = folder.iter().flat_map(std::fs::read_dir).flatten().flatten().map(|entry| entry.path());
        let mut known: Vec<PathBuf> = found.filter(|path| path.extension().is_some_and(|of| of == "toml")).collect();
        known.sort();
        Ok(known)
    }
}
