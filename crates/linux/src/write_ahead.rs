//! A write-ahead log: a line is in the file before its action. A process that is killed, or finds the disk full, leaves
//! whole lines and at most one partial line, whose action has not begun.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use machine::count;

pub struct Log {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    /// Length of the whole lines, in bytes.
    length: u64,
}

impl Log {
    /// Opens the log in `file`, which is at `path` and open for reading and appending. Returns its parsed lines, and a
    /// note on damaged ones. Writes nothing.
    pub fn open<T>(
        path: &Path,
        file: File,
        parse: impl Fn(&str) -> Option<T>,
    ) -> io::Result<(Log, Vec<T>, Option<String>)> {
        let mut bytes = vec![0; file.metadata()?.len() as usize];
        file.read_exact_at(&mut bytes, 0)?;
        bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
        let lines = bytes.split_inclusive(|byte| *byte == b'\n').map(|line| str::from_utf8(&line[..line.len() - 1]));
        let lines: Vec<Option<T>> = lines.map(|line| line.ok().and_then(&parse)).collect();
        let damaged = lines.iter().filter(|line| line.is_none()).count() as u64;
        let damage = format!("{} is damaged: {} left out", path.display(), count::of(damaged, "line"));
        let log = Log { path: path.to_owned(), file, length: bytes.len() as u64 };
        Ok((log, lines.into_iter().flatten().collect(), (damaged > 0).then_some(damage)))
    }

    /// Length of its lines, in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Adds a line completely or not at all.
    pub fn add(&mut self, line: &str) -> io::Result<()> {
        // A partial line that was left is removed first.
        let added = self.cut().and_then(|()| (&self.file).write_all(line.as_bytes()));
        match &added {
            Ok(()) => self.length += line.len() as u64,
            Err(_) => drop(self.cut()),
        }
        added
    }

    /// Waits until its lines are on disk; some file systems report a full disk only then.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Removes all lines, which works on a full disk.
    pub fn clear(&mut self) -> io::Result<()> {
        self.length = 0;
        self.cut()
    }

    /// Replaces all lines atomically, or changes nothing.
    pub fn replace(&mut self, lines: &str) -> io::Result<()> {
        let beside = self.path.with_extension("new");
        let file = File::options().append(true).create(true).open(&beside)?;
        let mut log = Log { path: self.path.clone(), file, length: 0 };
        let replaced = log.add(lines).and_then(|()| fs::rename(&beside, &self.path));
        match &replaced {
            Ok(()) => *self = log,
            Err(_) => drop(fs::remove_file(&beside)),
        }
        replaced
    }

    fn cut(&self) -> io::Result<()> {
        self.file.set_len(self.length)
    }
}

#[cfg(test)]
mod tests {
    use skip::disk::Disk;

    use super::*;

    fn open(path: &Path) -> (Log, Vec<String>, Option<String>) {
        let file = File::options().read(true).append(true).create(true).open(path).unwrap();
        Log::open(path, file, |line| (!line.contains('\0')).then(|| line.to_owned())).unwrap()
    }

    #[test]
    fn cut_at_any_byte_it_says_its_whole_lines_and_takes_more() {
        let folder = tempfile::tempdir().unwrap();
        let (path, whole) = (folder.path().join("log"), "one\ntwo\n\nthree\n");
        for cut in 0..=whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let (mut log, mut said, damage) = open(&path);
            let lines = whole[..cut].matches('\n').count();
            assert_eq!(said, whole.lines().take(lines).collect::<Vec<_>>(), "cut at {cut}");
            assert_eq!((fs::read(&path).unwrap(), damage), (whole.as_bytes()[..cut].to_vec(), None));
            log.add("more\n").unwrap();
            said.push("more".into());
            assert_eq!(open(&path).1, said, "cut at {cut}");
        }
    }

    #[test]
    fn a_damaged_line_is_told_and_the_others_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs::write(&path, b"one\n\0\0\0\n\xff\nfour\n").unwrap();
        let (_, said, damage) = open(&path);
        assert_eq!(said, ["one", "four"]);
        assert_eq!(damage.unwrap(), format!("{} is damaged: 2 lines left out", path.display()));
    }

    #[test]
    fn on_a_full_disk_a_line_is_added_whole_or_not_at_all() {
        let Some(disk) = Disk::small() else { return };
        disk.fill(4096);
        let path = disk.path().join("log");
        let (mut log, ..) = open(&path);
        let line = "x".repeat(99) + "\n";
        let added = std::iter::repeat_with(|| log.add(&line)).take_while(Result::is_ok).count();
        assert_eq!((added, fs::metadata(&path).unwrap().len()), (40, 4000));
        log.add("it fits\n").unwrap();
        let full = log.replace(&line).unwrap_err();
        assert_eq!((full.kind(), path.with_extension("new").exists()), (io::ErrorKind::StorageFull, false));
        assert_eq!(open(&path).1.len(), 41);
        log.clear().unwrap();
        log.replace("anew\n").unwrap();
        log.add("more\n").unwrap();
        assert_eq!(open(&path).1, ["anew", "more"]);
    }
}
