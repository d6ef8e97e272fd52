//! Calls of ranks past the recorder, by the marks that the ranks left.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use record::folder::{HOSTS, PAST_SUFFIX, past};
use record::untrusted;

/// Objects that are named, at most.
const MOST: usize = 16;

/// A sentence for each object, whichever processes had it.
pub fn notes(profile: &Path) -> Vec<String> {
    let entries = fs::read_dir(profile.join(HOSTS)).into_iter().flatten().flatten().map(|entry| entry.path());
    let marks = entries.filter(|path| path.extension().is_some_and(|suffix| suffix == PAST_SUFFIX));
    let texts = marks.filter_map(|path| untrusted::read(&path).ok());
    let lines: BTreeSet<String> =
        texts.flat_map(|text| String::from_utf8_lossy(&text).lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    lines.iter().filter_map(|line| line.split_once(' ')).filter_map(said).take(MOST).collect()
}

fn said((what, file): (&str, &str)) -> Option<String> {
    match what {
        past::ALL => Some(format!(
            "{file} is loaded, and its functions are taken from it directly (dlsym, as ctypes and MPI.jl do it) or by another \
             tool before the recorder: no call is seen. Next: open it with RTLD_GLOBAL and take them from the program itself \
             (in Python ctypes.CDLL(None)), use mpi4py, or leave the other tool out"
        )),
        past::SOME => Some(format!(
            "{file} calls MPI past the recorder, as what is loaded with RTLD_DEEPBIND does: these calls are in no figure. \
             Next: load it without RTLD_DEEPBIND, and profile again"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_once_whichever_processes_had_it() {
        let profile = tempfile::tempdir().unwrap();
        assert!(notes(profile.path()).is_empty());
        fs::create_dir(profile.path().join(HOSTS)).unwrap();
        for pid in [1, 2] {
            let mark = record::folder::past_file(profile.path(), "h", pid);
            fs::write(mark, "some /x/p.so\nall /y/libmpi.so\nrubbish\n").unwrap();
        }
        let notes = notes(profile.path());
        let [all, some] = &notes[..] else { panic!("{notes:?}") };
        assert!(all.starts_with("/y/libmpi.so is loaded") && some.starts_with("/x/p.so calls MPI past"), "{notes:?}");
    }
}
