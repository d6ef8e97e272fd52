//! Sources of a machine's description: this host, an archive, or a plain copy of `/sys` and `/proc`.
//!
//! Every read goes through [`Source`], which keeps the answers: [`Source::captured`] is an archive of exactly the
//! files, links and directory listings that a description was made of.

use std::cell::RefCell;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::archive::{Archive, Content, FILE_NAME};
use crate::cpuset::CpuSet;
use crate::fault::{Fault, Result};
use crate::refusal::Refusal;

/// A bound on what a hostile tree can cost; no file read here comes near it on a real machine.
const FILE_LIMIT: u64 = 16 << 20;

enum Root {
    Live,
    Archive(Archive),
    Tree(PathBuf),
}

/// A machine's files by absolute path. See the module.
pub struct Source {
    root: Root,
    seen: RefCell<Archive>,
}

impl Source {
    fn new(root: Root) -> Source {
        Source { root, seen: RefCell::default() }
    }

    /// Reads this host.
    pub fn live() -> Source {
        Source::new(Root::Live)
    }

    /// The machine that an archive holds.
    pub fn from_archive(archive: Archive) -> Source {
        Source::new(Root::Archive(archive))
    }

    /// The archive in `directory`, or the tree under it if that has a `sys` or `proc`.
    ///
    /// # Errors
    /// `directory` cannot be read or is neither; the archive has a line that is not understood.
    pub fn open(directory: &Path) -> Result<Source> {
        let subject = format!("machine archive {}", directory.display());
        let next = "name a directory that `plimsoll machine --capture DIR` wrote, or a copy of /sys and /proc";
        let file = directory.join(FILE_NAME);
        match fs::read_to_string(&file) {
            Ok(text) => {
                let archive = Archive::from_text(&text).map_err(|fault| fault.within(file.display()))?;
                Ok(Source::from_archive(archive))
            }
            Err(error) if file.exists() => Err(Fault::because(file.display().to_string(), error, next)),
            Err(_) if ["sys", "proc"].iter().any(|name| directory.join(name).is_dir()) => {
                Ok(Source::new(Root::Tree(directory.into())))
            }
            Err(_) if directory.is_dir() => {
                Err(Fault::new(subject, format!("it holds neither {FILE_NAME} nor sys or proc"), next))
            }
            Err(_) if directory.exists() => Err(Fault::new(subject, "it is not a directory", next)),
            Err(_) => Err(Fault::new(subject, "there is no such directory", next)),
        }
    }

    /// Whether it is this host, not an archive or a copy.
    pub fn is_live(&self) -> bool {
        matches!(self.root, Root::Live)
    }

    /// The whole text of a file; invalid UTF-8 is replaced.
    pub fn text(&self, path: &str) -> Result<String, Refusal> {
        match self.answer(path, |host| read_bounded(host).map(Content::File))? {
            Content::File(text) => Ok(text),
            _ => Err(Refusal::from_errno(21)),
        }
    }

    /// The text of a file without blanks and NULs around it; `None` where it cannot be read.
    pub fn word(&self, path: &str) -> Option<String> {
        let text = self.text(path).ok()?;
        Some(text.trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned()).filter(|text| !text.is_empty())
    }

    /// A table of the calling thread's network namespace, such as `route`.
    pub fn network_table(&self, name: &str) -> Result<String, Refusal> {
        // The second path is that of the process's main thread; older kernels and archives have it alone.
        match self.text(&format!("/proc/thread-self/net/{name}")) {
            Err(refusal) if refusal.missing() => self.text(&format!("/proc/self/net/{name}")),
            answer => answer,
        }
    }

    /// A number; `None` where it cannot be read.
    pub fn number<T: FromStr>(&self, path: &str) -> Option<T> {
        self.word(path)?.parse().ok()
    }

    /// A CPU list such as `0-3,8`.
    pub fn cpu_list(&self, path: &str) -> Option<CpuSet> {
        CpuSet::from_list(&self.text(path).ok()?)
    }

    /// A CPU mask such as `ff,00000000`.
    pub fn cpu_mask(&self, path: &str) -> Option<CpuSet> {
        CpuSet::from_mask(&self.text(path).ok()?)
    }

    /// Names in a directory for which `keep` holds, numbers in numeric order. Others are not archived.
    pub fn names(&self, path: &str, keep: impl Fn(&str) -> bool) -> Result<Vec<String>, Refusal> {
        let list = |host: &Path| {
            let entries = fs::read_dir(host)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            // An archive cannot hold such names, and the kernel gives none that matter here.
            let plain = |name: &String| !name.contains(|c: char| c.is_whitespace() || c.is_control());
            let mut names: Vec<String> = entries.filter(plain).filter(|name| keep(name)).collect();
            names.sort_by_cached_key(|name| natural_key(name));
            Ok(Content::Names(names))
        };
        let Content::Names(mut names) = self.answer(path, list)? else { return Err(Refusal::from_errno(20)) };
        names.retain(|name| keep(name));
        Ok(names)
    }

    /// The target of a symbolic link.
    pub fn link(&self, path: &str) -> Result<String, Refusal> {
        let read = |host: &Path| fs::read_link(host).map(|to| Content::Link(to.to_string_lossy().into_owned()));
        match self.answer(path, read)? {
            Content::Link(target) => Ok(target),
            _ => Err(Refusal::from_errno(22)),
        }
    }

    /// The last part of a symbolic link's target: a driver's or subsystem's name.
    pub fn link_name(&self, path: &str) -> Option<String> {
        self.link(path).ok()?.rsplit('/').next().filter(|name| !name.is_empty()).map(String::from)
    }

    /// Whether this user may write the file; nothing is written.
    ///
    /// A plain copy has lost the permissions: there root may write, others may not.
    pub fn writable(&self, path: &str) -> Result<(), Refusal> {
        let answer = match &self.root {
            Root::Live => fs::OpenOptions::new().write(true).open(path).map(|_| ()).map_err(|e| Refusal::from(&e)),
            Root::Archive(archive) => archive.writable.get(path).copied().unwrap_or(Err(Refusal::MISSING)),
            Root::Tree(_) => {
                let status = self.text("/proc/self/status").unwrap_or_default();
                let root = status.lines().any(|l| l.starts_with("Uid:") && l.split_whitespace().nth(2) == Some("0"));
                if root { Ok(()) } else { Err(Refusal::from_errno(13)) }
            }
        };
        if answer != Err(Refusal::MISSING) {
            self.seen.borrow_mut().writable.insert(path.into(), answer);
        }
        answer
    }

    /// All answers so far, as an archive.
    pub fn captured(&self) -> Archive {
        self.seen.borrow().clone()
    }

    fn answer(&self, path: &str, ask: impl FnOnce(&Path) -> std::io::Result<Content>) -> Result<Content, Refusal> {
        let answer = match &self.root {
            Root::Live => ask(Path::new(path)).map_err(|error| Refusal::from(&error)),
            Root::Tree(root) => ask(&root.join(path.trim_start_matches('/'))).map_err(|error| Refusal::from(&error)),
            Root::Archive(archive) => archive.contents.get(path).cloned().unwrap_or(Err(Refusal::MISSING)),
        };
        if !answer.as_ref().is_err_and(|refusal| refusal.missing()) {
            self.record(path, &answer);
        }
        answer
    }

    fn record(&self, path: &str, answer: &Result<Content, Refusal>) {
        let mut seen = self.seen.borrow_mut();
        match (seen.contents.get_mut(path), answer) {
            // Two listings of one directory may have kept different names.
            (Some(Ok(Content::Names(names))), Ok(Content::Names(more))) => {
                names.extend(more.iter().cloned());
                names.sort_by_cached_key(|name| natural_key(name));
                names.dedup();
            }
            // A file that was read as a link gives a refusal; its content is the better answer.
            (Some(Ok(_)), Err(_)) => {}
            _ => drop(seen.contents.insert(path.into(), answer.clone())),
        }
    }
}

fn read_bounded(path: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(FILE_LIMIT).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Orders `cpu2` before `cpu10`.
fn natural_key(name: &str) -> (String, u64, String) {
    let start = name.find(|c: char| c.is_ascii_digit()).unwrap_or(name.len());
    let digits = name[start..].find(|c: char| !c.is_ascii_digit()).map_or(name.len(), |end| start + end);
    (name[..start].into(), name[start..digits].parse().unwrap_or(0), name[digits..].into())
}

/// Follows a relative link lexically: `/sys/class/net` and `../../devices/x` give `/sys/devices/x`.
pub fn resolve(directory: &str, target: &str) -> String {
    let mut parts: Vec<&str> = match target.starts_with('/') {
        true => Vec::new(),
        false => directory.split('/').filter(|part| !part.is_empty()).collect(),
    };
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Writes `archive` as the only file of `directory`, which must be empty or absent; returns the file's path.
///
/// # Errors
/// The directory holds something, or cannot be written; nothing half-written is left.
pub fn write_archive(archive: &Archive, directory: &Path) -> Result<PathBuf> {
    let subject = || format!("capture to {}", directory.display());
    let next = "name a new or empty directory that you may write, on a disk with room";
    fs::create_dir_all(directory).map_err(|error| Fault::because(subject(), error, next))?;
    let mut entries = fs::read_dir(directory).map_err(|error| Fault::because(subject(), error, next))?;
    if entries.next().is_some() {
        return Err(Fault::new(subject(), "the directory is not empty", next));
    }
    let (file, partial) = (directory.join(FILE_NAME), directory.join(format!("{FILE_NAME}.partial")));
    let written = fs::write(&partial, archive.to_text()).and_then(|()| fs::rename(&partial, &file));
    written.map_err(|error| {
        let _ = fs::remove_file(&partial);
        Fault::because(subject(), error, next)
    })?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_replays_to_itself() {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir_all(tree.path().join("sys/a/cpu10")).unwrap();
        fs::create_dir_all(tree.path().join("sys/a/cpu9")).unwrap();
        fs::write(tree.path().join("sys/a/online"), "0-1\n").unwrap();
        fs::write(tree.path().join("sys/a/unread"), "x\n").unwrap();
        let ask = |source: &Source| {
            (
                source.cpu_list("/sys/a/online"),
                source.names("/sys/a", |name| name.starts_with("cpu")),
                source.text("/sys/missing"),
                source.link("/sys/a/online").is_ok(),
            )
        };
        let first = Source::open(tree.path()).unwrap();
        let seen = ask(&first);
        assert_eq!(seen.1.as_deref(), Ok(&["cpu9".to_string(), "cpu10".to_string()][..]));
        let archive = first.captured();
        assert!(!archive.to_text().contains("unread"));

        let out = tree.path().join("out");
        write_archive(&archive, &out).unwrap();
        let second = Source::open(&out).unwrap();
        assert_eq!(ask(&second), seen);
        assert_eq!(second.captured(), archive);
    }

    #[test]
    fn faults_name_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let none = dir.path().join("none");
        for (directory, cause) in [(dir.path(), "neither"), (&none, "no such directory")] {
            let fault = Source::open(directory).err().unwrap().to_string();
            assert!(fault.contains(cause) && fault.contains(&directory.display().to_string()), "{fault}");
        }
        fs::write(dir.path().join(FILE_NAME), "junk").unwrap();
        let fault = Source::open(dir.path()).err().unwrap().to_string();
        assert!(fault.contains("line 1"), "{fault}");

        let fault = write_archive(&Archive::default(), dir.path()).unwrap_err().to_string();
        assert!(fault.contains("not empty"), "{fault}");
        let under_a_file = dir.path().join(FILE_NAME).join("x");
        assert!(write_archive(&Archive::default(), &under_a_file).is_err());
    }

    #[test]
    fn links_resolve_lexically() {
        assert_eq!(resolve("/sys/class/net", "../../devices/pci0/net/eth0"), "/sys/devices/pci0/net/eth0");
        assert_eq!(resolve("/sys", "../../../x"), "/x");
        assert_eq!(resolve("/sys", "/proc/x"), "/proc/x");
    }
}
