//! Reading files that others may write. A file is opened by its name in a folder that is held open, without following
//! links and without waiting for a writer; it must be a regular file, of the expected user, and within a length. Errors
//! do not quote its content.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Dir, Mode, OFlags, openat};
use rustix::io::Errno;

/// Opens without waiting for a FIFO's writer, and without making a terminal the controlling one.
const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// A folder that others may write, held open, so that it stays the same if its path changes.
#[derive(Debug)]
pub struct Folder {
    descriptor: OwnedFd,
    path: PathBuf,
    user: Option<u32>,
}

impl Folder {
    /// Opens a folder. Files in it must belong to `user`; with `None` to anybody: the caller named the folder, and
    /// answers for it.
    pub fn open(path: &Path, user: Option<u32>) -> io::Result<Folder> {
        let descriptor = openat(CWD, path, FLAGS | OFlags::DIRECTORY, Mode::empty())?;
        Ok(Folder { descriptor, path: path.into(), user })
    }

    pub fn below(&self, name: &str) -> io::Result<Folder> {
        let descriptor = openat(&self.descriptor, name, FLAGS | OFlags::DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        Ok(Folder { descriptor, path: self.path.join(name), user: self.user })
    }

    /// The path by which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names in the folder with this suffix, in no order.
    pub fn names(&self, suffix: &'static str) -> io::Result<impl Iterator<Item = OsString> + use<>> {
        let entries = Dir::read_from(&self.descriptor)?;
        Ok(entries.filter_map(move |entry| {
            let entry = entry.ok()?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            (Path::new(name).extension()? == suffix).then(|| name.to_owned())
        }))
    }

    /// Opens a file in the folder that is not longer than `most` bytes.
    pub fn file(&self, name: impl AsRef<Path>, most: u64) -> io::Result<File> {
        let refused = |cause| io::Error::new(ErrorKind::PermissionDenied, cause);
        let file = match openat(&self.descriptor, name.as_ref(), FLAGS | OFlags::NOFOLLOW, Mode::empty()) {
            Err(Errno::LOOP) => return Err(refused("it is a link")),
            opened => File::from(opened?),
        };
        let found = file.metadata()?;
        match () {
            () if !found.is_file() => Err(refused("it is no regular file")),
            () if self.user.is_some_and(|user| user != found.uid()) => Err(refused("it is another user's")),
            () if found.len() > most => Err(refused("it is longer than it may be")),
            () => Ok(file),
        }
    }

    /// Reads a file in the folder: at most `most` bytes, however it grows meanwhile.
    pub fn read(&self, name: impl AsRef<Path>, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file(name, most)?.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// Opens the file at a path that the caller has named, of whatever owner.
pub fn open(path: &Path) -> io::Result<File> {
    let name = path.file_name().ok_or(ErrorKind::IsADirectory)?;
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Folder::open(above, None)?.file(name, u64::MAX)
}

/// Reads the file at a path that the caller has named, up to its present length.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let (length, mut bytes) = (file.metadata()?.len(), Vec::new());
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{FileType, mknodat};

    use super::*;

    #[test]
    fn what_is_no_short_file_of_the_user_is_refused_and_not_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path();
        fs::write(path.join("own"), "words").unwrap();
        fs::create_dir(path.join("folder")).unwrap();
        mknodat(CWD, path.join("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for (target, name) in [("/dev/zero", "endless"), ("own", "link"), ("folder", "aside")] {
            symlink(target, path.join(name)).unwrap();
        }
        let user = fs::metadata(path.join("own")).unwrap().uid();
        let folder = Folder::open(path, Some(user)).unwrap();
        assert_eq!(folder.read("own", 5).unwrap(), b"words");
        for (name, most, cause) in [
            ("own", 4, "it is longer than it may be"),
            ("endless", 5, "it is a link"),
            ("link", 5, "it is a link"),
            ("fifo", 5, "it is no regular file"),
            ("folder", u64::MAX, "it is no regular file"),
        ] {
            assert_eq!(folder.read(name, most).unwrap_err().to_string(), cause, "{name}");
            assert_eq!(open(&path.join(name)).is_ok(), name == "own", "{name}");
        }
        assert!(folder.below("folder").is_ok() && folder.below("aside").is_err());
        let of_another = Folder::open(path, Some(user + 1)).unwrap();
        assert_eq!(of_another.read("own", 5).unwrap_err().to_string(), "it is another user's");
        assert_eq!(read(&path.join("own")).unwrap(), b"words");
    }

    #[test]
    fn names_are_those_of_one_suffix() {
        let home = tempfile::tempdir().unwrap();
        for name in ["a.rank", "b.rank", "c.trace", "rank"] {
            fs::write(home.path().join(name), "").unwrap();
        }
        let mut names: Vec<_> = Folder::open(home.path(), None).unwrap().names("rank").unwrap().collect();
        names.sort();
        assert_eq!(names, ["a.rank", "b.rank"]);
    }
}
