//! The sources that an author's offcode is built with. They come with this program: the border between it and native bodies
//! is theirs too.

use std::path::{Path, PathBuf};

use machine::{Fault, Result};

/// The folder of the crates, seen from a folder above this program: as they are installed, and in the source of a build.
const FOLDERS: [&str; 2] = ["share/plimsoll/sdk/crates", "crates"];
/// The source when this program was built, whatever folder cargo built it in.
const SOURCE: &str = env!("PLIMSOLL_SOURCE");
/// The file that tells the right folder from others.
const MARK: &str = "native/Cargo.toml";

/// The folder that has the crates `offcode` and `native`.
///
/// # Errors
/// None is there.
pub fn find(given: Option<&Path>) -> Result<PathBuf> {
    let next =
        "name one with --sdk: the folder crates of plimsoll's source, or share/plimsoll/sdk/crates of an installation";
    if let Some(given) = given {
        return match given.join(MARK).is_file() {
            true => absolute(given),
            false => Err(Fault::new(given.display().to_string(), format!("it has no {MARK}"), next)),
        };
    }
    let own = machine::here::program()?;
    // PREFIX/lib/plimsoll/plimsoll-offcode, or target/release/plimsoll-offcode.
    let beside = own.ancestors().skip(1).take(4).flat_map(|above| FOLDERS.map(|folder| above.join(folder)));
    let found = beside.chain([Path::new(SOURCE).join("crates")]).find(|folder| folder.join(MARK).is_file());
    found.ok_or_else(|| {
        Fault::new("sources of crate offcode", "they are not beside this program, nor where it was built", next)
    })
}

fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize().map_err(|e| Fault::because(path.display().to_string(), e, "name a folder that can be read"))
}
