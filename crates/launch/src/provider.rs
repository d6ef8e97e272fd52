//! The libfabric provider's library beside the `plimsoll` command.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use machine::{Fault, Result};

use crate::companion::Companion;

/// A folder for `FI_PROVIDER_PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    pub folder: PathBuf,
    pub library: PathBuf,
}

/// Finds the provider's library beside `program`. A library under cargo's name gets the name that libfabric expects, by a
/// link in `scratch`.
pub fn find(program: &Path, scratch: &Path) -> Result<Provider> {
    let library = Companion::Provider.find(program)?;
    if library.file_name().is_some_and(|name| name == Companion::Provider.file()) {
        let folder = library.parent().unwrap_or(Path::new("/")).to_path_buf();
        return Ok(Provider { folder, library });
    }
    let folder = scratch.join("provider");
    let made = fs::create_dir_all(&folder).and_then(|()| symlink(&library, folder.join(Companion::Provider.file())));
    made.map_err(|e| Fault::because(format!("link to {}", library.display()), e, "free space in TMPDIR"))?;
    Ok(Provider { folder, library })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libfabric_finds_it_under_either_name() {
        let (place, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let program = place.path().join("plimsoll");
        let (installed, built) = (Companion::Provider.file(), Companion::Provider.built());
        fs::write(place.path().join(built), "built").unwrap();
        let found = find(&program, scratch.path()).unwrap();
        assert_eq!(found.folder, scratch.path().join("provider"));
        assert_eq!(fs::read_to_string(found.folder.join(installed)).unwrap(), "built");
        fs::write(place.path().join(installed), "installed").unwrap();
        assert_eq!(find(&program, scratch.path()).unwrap().library, place.path().join(installed));
    }
}
