//! The folder of a new profile.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use machine::{Fault, Result};
use profile::job::Job;
use record::folder;

/// A new folder with subfolders for the files of ranks and hosts; removed again unless it is kept.
#[derive(Debug)]
pub struct NewFolder {
    /// Absolute.
    path: PathBuf,
    /// As the user wrote it.
    named: PathBuf,
    made: bool,
    kept: bool,
}

impl NewFolder {
    /// Makes the folder at `wanted`, which may exist if it is empty or holds a profile without ranks. Where it holds another
    /// profile, a number is added to the name. `None`: the first free `plimsoll-profile-N`.
    pub fn make(wanted: Option<&Path>) -> Result<NewFolder> {
        let (named, made) = match wanted {
            Some(path) => match wanted_folder(path)? {
                Some(made) => (path.to_owned(), made),
                None => (numbered_folder(2, path)?, true),
            },
            None => (numbered_folder(1, Path::new("plimsoll-profile"))?, true),
        };
        let path = named.canonicalize().map_err(|e| not_writable(&named, e))?;
        let new = NewFolder { path, named, made, kept: false };
        for part in [folder::RANKS, folder::HOSTS] {
            fs::create_dir(new.path.join(part)).map_err(|e| not_writable(&new.path, e))?;
        }
        Ok(new)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder's path as the user wrote it.
    pub fn named(&self) -> &Path {
        &self.named
    }

    /// Keeps the folder: the command has started.
    pub fn keep(&mut self) {
        self.kept = true;
    }
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        clear(&self.path);
        if self.made {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

fn clear(profile: &Path) {
    let _ = fs::remove_file(profile.join(folder::JOB));
    for part in [folder::RANKS, folder::HOSTS] {
        let _ = fs::remove_dir_all(profile.join(part));
    }
}

/// Whether the command of this profile has ended without a recorded rank: a new profile may replace it.
fn is_void(profile: &Path) -> bool {
    fs::read_dir(profile.join(folder::RANKS)).is_ok_and(|mut ranks| ranks.next().is_none())
        && Job::read(profile).is_ok_and(|job| job.ended.is_some())
}

/// Whether the folder was made here; `None` where it holds a profile.
fn wanted_folder(path: &Path) -> Result<Option<bool>> {
    let subject = || format!("folder {}", path.display());
    match fs::create_dir(path) {
        Ok(()) => Ok(Some(true)),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            if is_void(path) {
                clear(path);
            }
            let mut inside = fs::read_dir(path).map_err(|e| not_writable(path, e))?;
            match inside.next() {
                None => Ok(Some(false)),
                Some(_) if path.file_name().is_some() && path.join(folder::JOB).exists() => Ok(None),
                Some(_) => Err(Fault::new(subject(), "it is not empty", "choose a new folder with -o")),
            }
        }
        Err(e) => Err(not_writable(path, e)),
    }
}

/// Makes the first folder `NAME-N` that is free.
fn numbered_folder(first: u32, name: &Path) -> Result<PathBuf> {
    for number in first..u32::MAX {
        let mut numbered = name.file_name().unwrap_or_default().to_owned();
        numbered.push(format!("-{number}"));
        let path = name.with_file_name(numbered);
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(not_writable(&path, e)),
        }
    }
    Err(Fault::new(format!("folder {}-N", name.display()), "every number is taken", "choose another name with -o"))
}

fn not_writable(path: &Path, error: io::Error) -> Fault {
    Fault::unwritable(format!("folder {}", path.display()), error, "choose a folder that you may write to with -o")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_never_written_over() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("p");
        let mut new = NewFolder::make(Some(&path)).unwrap();
        new.keep();
        drop(new);
        assert!(NewFolder::make(Some(&path)).unwrap_err().cause().contains("not empty"));
        fs::write(path.join(folder::JOB), "{}").unwrap();
        for beside in ["p-2", "p-3"] {
            let mut new = NewFolder::make(Some(&path)).unwrap();
            assert_eq!(new.named(), above.path().join(beside));
            new.keep();
        }
        let fault = NewFolder::make(Some(&above.path().join("a/b"))).unwrap_err();
        assert!(fault.next().contains("-o"), "{fault}");
    }

    #[test]
    fn a_profile_without_ranks_gives_way_to_the_next_try() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("p");
        let made = |ended| {
            let mut new = NewFolder::make(Some(&path)).unwrap();
            Job { ended, ..Job::default() }.write(new.path()).unwrap();
            new.keep();
            new.named() == path
        };
        assert!(made(Some(1)));
        fs::write(path.join(folder::HOSTS).join("samples"), "").unwrap();
        assert!(made(Some(1)));
        fs::write(path.join(folder::RANKS).join("0"), "").unwrap();
        assert!(!made(None), "a rank recorded something");
        fs::remove_file(path.join(folder::RANKS).join("0")).unwrap();
        assert!(made(None));
        assert!(!made(None), "it may still run");
    }

    #[test]
    fn what_was_not_kept_is_gone_and_an_empty_folder_of_the_user_stays() {
        let above = tempfile::tempdir().unwrap();
        let (fresh, old) = (above.path().join("new"), above.path().join("old"));
        fs::create_dir(&old).unwrap();
        drop((NewFolder::make(Some(&fresh)).unwrap(), NewFolder::make(Some(&old)).unwrap()));
        assert!(!fresh.exists() && old.exists());
        assert_eq!(fs::read_dir(&old).unwrap().count(), 0);
    }
}
