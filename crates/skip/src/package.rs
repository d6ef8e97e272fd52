//! Debian packages, and the commands and files that they provide: `scripts/packages`.

use std::env;
use std::path::{Path, PathBuf};

const LIST: &str = include_str!("../../../scripts/packages");

/// One line of the list.
#[derive(Debug, Clone, Copy)]
pub struct Package {
    pub name: &'static str,
    /// Commands and absolute paths that the package provides, each with its alternatives.
    pub provides: &'static str,
    /// `required`, `study` or `test`.
    pub need: &'static str,
    /// What plimsoll loses without the package.
    pub loss: &'static str,
}

impl Package {
    /// The commands and files that the package is wanted for, each as a list of alternatives.
    pub fn wanted(&self) -> impl Iterator<Item = Vec<&'static str>> {
        self.provides.split(' ').map(|word| word.split('|').collect())
    }
}

/// All lines of the list.
pub fn all() -> impl Iterator<Item = Package> {
    LIST.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let columns: Vec<&str> = line.split('\t').collect();
        let [name, provides, need, loss] = columns[..] else { panic!("scripts/packages: not four columns: {line}") };
        Package { name, provides, need, loss }
    })
}

/// The package that provides `what`, a command or an absolute path, with all alternatives to it.
pub fn providing(what: &str) -> Option<(Package, Vec<&'static str>)> {
    all().find_map(|package| Some((package, package.wanted().find(|names| names.contains(&what))?)))
}

/// The path of a command, in a folder of PATH or one for administrators.
///
/// # Errors
/// A sentence with the package to install.
pub fn command(name: &str) -> Result<PathBuf, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).collect();
    found(name, |name| folders.iter().map(|folder| folder.join(name)).find(|file| file.is_file()))
}

/// The path of a file, such as a header, that must exist.
///
/// # Errors
/// A sentence with the package to install.
pub fn file(path: &str) -> Result<PathBuf, String> {
    found(path, |path| Some(PathBuf::from(path)).filter(|path| path.exists()))
}

fn found(what: &str, look: impl Fn(&Path) -> Option<PathBuf>) -> Result<PathBuf, String> {
    let (package, names) = providing(what).unwrap_or_else(|| panic!("scripts/packages does not know {what}: add it"));
    names.iter().find_map(|name| look(Path::new(name))).ok_or_else(|| format!("no {what} (install {})", package.name))
}
