//! The recording library beside the `plimsoll` command, and the variables by which ranks load it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use machine::{Fault, Result};
use record::folder::variable;

use crate::Variables;
use crate::companion::Companion;

/// Variable with the libraries that a loader preloads.
pub const PRELOAD: &str = "LD_PRELOAD";

/// All variables by which a rank is recorded.
pub const NAMES: [&str; 6] =
    [PRELOAD, variable::FOLDER, variable::TRACE, variable::MEMORY, variable::SAMPLER, variable::PERTURB];

/// Finds the library beside `program`.
pub fn library(program: &Path) -> Result<PathBuf> {
    let found = Companion::Profiler.find(program)?;
    let library = found.canonicalize().unwrap_or(found);
    if library.as_os_str().as_bytes().iter().any(|byte| byte.is_ascii_whitespace() || *byte == b':') {
        let cause = "loaders take blanks and colons in LD_PRELOAD for the end of a name";
        return Err(Fault::new(library.display().to_string(), cause, "install plimsoll in a folder without them"));
    }
    Ok(library)
}

/// `LD_PRELOAD` with the library after the user's own: some libraries must be first.
fn preloaded(theirs: Option<&OsStr>, library: &Path) -> OsString {
    let ours = library.as_os_str();
    let is_separator = |byte: &u8| byte.is_ascii_whitespace() || *byte == b':';
    match theirs {
        Some(theirs) if theirs.as_bytes().split(is_separator).any(|word| word == ours.as_bytes()) => theirs.to_owned(),
        Some(theirs) if !theirs.is_empty() => [theirs, OsStr::new(":"), ours].into_iter().collect(),
        _ => ours.to_owned(),
    }
}

/// Variables by which a program records itself in `folder`, an absolute path: `trace` bytes of timeline for each thread (0:
/// none), `memory` bytes of tables for each rank (`None`: the library's default).
pub fn variables(library: &Path, folder: &Path, trace: u64, memory: Option<u64>) -> Variables {
    let theirs = std::env::var_os(PRELOAD);
    let mut all: Variables = vec![
        (PRELOAD.to_owned(), preloaded(theirs.as_deref(), library)),
        (variable::FOLDER.to_owned(), folder.into()),
        // Set in any case, against the values of a profile around this one.
        (variable::TRACE.to_owned(), trace.to_string().into()),
        (variable::PERTURB.to_owned(), OsString::new()),
    ];
    all.extend(memory.map(|bytes| (variable::MEMORY.to_owned(), bytes.to_string().into())));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_lies_beside_the_command() {
        let place = tempfile::tempdir().unwrap();
        let program = place.path().join("plimsoll");
        assert!(library(&program).unwrap_err().to_string().contains("make profile"));
        std::fs::write(place.path().join(Companion::Profiler.file()), "built").unwrap();
        assert_eq!(library(&program).unwrap(), place.path().canonicalize().unwrap().join(Companion::Profiler.file()));
        let odd = place.path().join("a b");
        std::fs::create_dir(&odd).unwrap();
        std::fs::write(odd.join(Companion::Profiler.file()), "built").unwrap();
        assert!(library(&odd.join("plimsoll")).unwrap_err().cause().contains("blanks"));
    }

    #[test]
    fn what_the_user_preloads_stays_and_nothing_is_loaded_twice() {
        let library = Path::new("/x/libplimsoll_profile.so");
        let value = |theirs: Option<&str>| preloaded(theirs.map(OsStr::new), library).into_string().unwrap();
        assert_eq!(value(None), "/x/libplimsoll_profile.so");
        assert_eq!(value(Some("")), "/x/libplimsoll_profile.so");
        assert_eq!(value(Some("libasan.so.8")), "libasan.so.8:/x/libplimsoll_profile.so");
        assert_eq!(value(Some("a:/x/libplimsoll_profile.so b")), "a:/x/libplimsoll_profile.so b");
    }
}
