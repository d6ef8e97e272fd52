//! The folder that a profile is made in.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use machine::{Fault, Result};
use profile::job::Job;
use record::folder;

/// A new folder with the places for what ranks and hosts leave; removed again unless it is kept.
#[derive(Debug)]
pub struct Place {
    /// Absolute.
    path: PathBuf,
    made: bool,
    kept: bool,
}

impl Place {
    /// Makes the folder at `wanted`, which may be there if it is empty or holds a profile without ranks, or as the
    /// first `plimsoll-profile-N` that is free.
    pub fn make(wanted: Option<&Path>) -> Result<Place> {
        let (path, made) = match wanted {
            Some(path) => (path.to_owned(), wanted_folder(path)?),
            None => (numbered_folder()?, true),
        };
        let refused = |e: io::Error| not_writable(&path, e);
        let path = path.canonicalize().map_err(refused)?;
        let place = Place { path, made, kept: false };
        for part in [folder::RANKS, folder::HOSTS] {
            fs::create_dir(place.path.join(part)).map_err(|e| not_writable(&place.path, e))?;
        }
        Ok(place)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The command has been started: what is here stays.
    pub fn keep(&mut self) {
        self.kept = true;
    }
}

impl Drop for Place {
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

/// Whether a command ended without a rank that recorded anything: nothing is lost where it is tried again.
fn is_void(profile: &Path) -> bool {
    fs::read_dir(profile.join(folder::RANKS)).is_ok_and(|mut ranks| ranks.next().is_none())
        && Job::read(profile).is_ok_and(|job| job.ended.is_some())
}

/// Whether it was made here.
fn wanted_folder(path: &Path) -> Result<bool> {
    let subject = || format!("folder {}", path.display());
    match fs::create_dir(path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            if is_void(path) {
                clear(path);
            }
            let mut inside = fs::read_dir(path).map_err(|e| not_writable(path, e))?;
            match inside.next() {
                None => Ok(false),
                Some(_) if path.join(folder::JOB).exists() => {
                    let next = "choose another folder with -o, or remove this one";
                    Err(Fault::new(subject(), "there is a profile in it already", next))
                }
                Some(_) => Err(Fault::new(subject(), "it is not empty", "choose a new folder with -o")),
            }
        }
        Err(e) => Err(not_writable(path, e)),
    }
}

fn numbered_folder() -> Result<PathBuf> {
    for number in 1..u32::MAX {
        let path = PathBuf::from(format!("plimsoll-profile-{number}"));
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(not_writable(&path, e)),
        }
    }
    Err(Fault::new("folder plimsoll-profile-N", "every number is taken", "choose another name with -o"))
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
        let mut place = Place::make(Some(&path)).unwrap();
        place.keep();
        drop(place);
        assert!(Place::make(Some(&path)).unwrap_err().cause().contains("not empty"));
        fs::write(path.join(folder::JOB), "{}").unwrap();
        assert!(Place::make(Some(&path)).unwrap_err().cause().contains("a profile"));
        let fault = Place::make(Some(&above.path().join("a/b"))).unwrap_err();
        assert!(fault.next().contains("-o"), "{fault}");
    }

    #[test]
    fn a_profile_without_ranks_gives_way_to_the_next_try() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("p");
        let made = |ended| {
            let mut place = Place::make(Some(&path))?;
            Job { ended, ..Job::default() }.write(place.path())?;
            place.keep();
            Ok::<_, Fault>(())
        };
        made(Some(1)).unwrap();
        fs::write(path.join(folder::HOSTS).join("samples"), "").unwrap();
        made(Some(1)).unwrap();
        fs::write(path.join(folder::RANKS).join("0"), "").unwrap();
        assert!(made(None).unwrap_err().cause().contains("a profile"), "a rank recorded something");
        fs::remove_file(path.join(folder::RANKS).join("0")).unwrap();
        made(None).unwrap();
        assert!(made(None).unwrap_err().cause().contains("a profile"), "it may still run");
    }

    #[test]
    fn what_was_not_kept_is_gone_and_an_empty_folder_of_the_user_stays() {
        let above = tempfile::tempdir().unwrap();
        let (new, old) = (above.path().join("new"), above.path().join("old"));
        fs::create_dir(&old).unwrap();
        drop((Place::make(Some(&new)).unwrap(), Place::make(Some(&old)).unwrap()));
        assert!(!new.exists() && old.exists());
        assert_eq!(fs::read_dir(&old).unwrap().count(), 0);
    }
}
