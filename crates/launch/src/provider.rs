//! The libfabric provider's library, as it lies beside the command.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use machine::{Fault, Result};

/// The name by which libfabric takes a file for a provider: whatever ends in `-fi.so`.
const INSTALLED: &str = "libplimsoll-fi.so";

/// The name that cargo gives the same library.
const BUILT: &str = "libplimsoll_fi.so";

/// A folder for `FI_PROVIDER_PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    pub folder: PathBuf,
    pub library: PathBuf,
}

/// Finds the provider beside `program` or where a package would put it. A library that only cargo has named is given
/// the name that libfabric wants, as a link in `scratch`.
pub fn find(program: &Path, scratch: &Path) -> Result<Provider> {
    let beside = program.parent().unwrap_or(Path::new("."));
    // Cargo puts the library of a package that was built for another one's tests into `deps`.
    for folder in ["", "../lib/plimsoll", "../lib", "deps"].map(|folder| beside.join(folder)) {
        let library = folder.join(INSTALLED);
        if library.is_file() {
            return Ok(Provider { folder, library });
        }
        let library = folder.join(BUILT);
        if library.is_file() {
            let folder = scratch.join("provider");
            let made = fs::create_dir_all(&folder).and_then(|()| symlink(&library, folder.join(INSTALLED)));
            made.map_err(|e| Fault::because(format!("link to {}", library.display()), e, "free space in TMPDIR"))?;
            return Ok(Provider { folder, library });
        }
    }
    Err(Fault::new(
        "the libfabric provider",
        format!("{INSTALLED} is not in {}", beside.display()),
        "build it: `make fabric`, or `cargo build --release -p fabric`",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lies_beside_the_command_under_either_name() {
        let (place, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let program = place.path().join("plimsoll");
        let fault = find(&program, scratch.path()).unwrap_err();
        assert!(fault.to_string().contains("make fabric"), "{fault}");
        fs::write(place.path().join(BUILT), "built").unwrap();
        let found = find(&program, scratch.path()).unwrap();
        assert_eq!(found.folder, scratch.path().join("provider"));
        assert_eq!(fs::read_to_string(found.folder.join(INSTALLED)).unwrap(), "built");
        fs::write(place.path().join(INSTALLED), "installed").unwrap();
        assert_eq!(find(&program, scratch.path()).unwrap().library, place.path().join(INSTALLED));
    }
}
