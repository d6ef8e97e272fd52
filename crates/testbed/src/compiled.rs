//! Programs that tests compile, kept beside the tests' own binaries under a hash of compiler, flags and sources.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The inputs of a compilation.
pub struct Unit<'a> {
    pub compiler: &'a Path,
    pub flags: &'a [&'a str],
    pub sources: &'a [PathBuf],
    pub into: &'a str,
    /// Flags that follow the sources.
    pub extra: &'a [&'a str],
    /// The compiler's working folder; `extra` may name files in it.
    pub folder: &'a Path,
}

impl Unit<'_> {
    /// Hash of the inputs. All files beside a source count, since it may include any.
    fn key(&self) -> u64 {
        let mut key = DefaultHasher::new();
        let compiler = self.compiler.canonicalize().unwrap_or_else(|_| self.compiler.to_owned());
        (self.compiler, &compiler, fs::metadata(&compiler).and_then(|file| file.modified()).ok()).hash(&mut key);
        (self.flags, self.sources, self.into, self.extra).hash(&mut key);
        let mut folders: Vec<&Path> = self.sources.iter().filter_map(|source| source.parent()).collect();
        folders.dedup();
        for folder in folders {
            let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
            let mut files: Vec<PathBuf> =
                entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect();
            files.sort();
            files.iter().for_each(|file| (file, fs::read(file).unwrap_or_default()).hash(&mut key));
        }
        key.finish()
    }
}

/// The path of the compiled program; panics with the compiler's messages.
pub fn kept(unit: &Unit) -> PathBuf {
    let folder = crate::command().with_file_name("programs").join(format!("{:016x}", unit.key()));
    let program = folder.join(unit.into);
    if !program.exists() {
        fs::create_dir_all(&folder).unwrap();
        // Renamed to its final name when it is complete.
        let partial = folder.join(format!("{}.{}", unit.into, std::process::id()));
        let mut command = Command::new(unit.compiler);
        command.current_dir(unit.folder).args(unit.flags).args(unit.sources).arg("-o").arg(&partial).args(unit.extra);
        let compiled = command.output().unwrap_or_else(|error| panic!("{}: {error}", unit.compiler.display()));
        assert!(compiled.status.success(), "{command:?}: {}", String::from_utf8_lossy(&compiled.stderr));
        fs::rename(&partial, &program).unwrap();
    }
    program
}
