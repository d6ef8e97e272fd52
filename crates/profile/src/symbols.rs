//! Function, file and line of an address in a file of code.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use addr2line::{Loader, demangle_auto};
use object::Object;
use timeline::places::Module;

use crate::summary::Frame;

/// A file of code, opened for its names.
pub struct Symbols {
    /// Names, and lines where the file has them.
    file: Option<Loader>,
    /// Lines, where they are in a separate file (`/usr/lib/debug`).
    debug: Option<Loader>,
    /// The reason why names or lines are missing.
    note: Option<String>,
}

/// The frames of one address, innermost first: several where functions are inlined.
pub struct ResolvedAddress {
    pub frames: Vec<Frame>,
    pub note: Option<String>,
}

impl Symbols {
    /// `started`: the job's start since 1970; a file without a build ID must be older.
    pub fn of(module: &Module, started: Duration) -> Symbols {
        let nothing = |note: String| Symbols { file: None, debug: None, note: Some(note) };
        if !module.path.starts_with('/') {
            return nothing("this is no file".into());
        }
        let path = Path::new(&module.path);
        if let Err(why) = check_same_file(path, module, started) {
            return nothing(why);
        }
        let file = match Loader::new(path) {
            Ok(file) => file,
            Err(error) => return nothing(format!("{} cannot be read: {error}", module.path)),
        };
        let debug = separate_debug_file(&module.build_id).and_then(|path| Loader::new(path).ok());
        Symbols { file: Some(file), debug, note: None }
    }

    /// `after`: the return address of a call, relative to the file.
    pub fn at(&self, after: u64) -> ResolvedAddress {
        // The call precedes its return address, which may belong to another line or even to another function.
        let address = after.wrapping_sub(1);
        let Some(file) = &self.file else { return ResolvedAddress { frames: Vec::new(), note: self.note.clone() } };
        for loader in self.debug.iter().chain([file]) {
            let frames = frames(loader, address);
            if frames.iter().any(|frame| frame.line.is_some()) {
                return ResolvedAddress { frames, note: None };
            }
        }
        let symbol = self.debug.iter().chain([file]).find_map(|loader| loader.find_symbol_info(address));
        match symbol {
            Some(symbol) => {
                let name = demangle_auto(symbol.name().into(), None);
                let name = format!("{name}+{:#x}", after - symbol.address().min(after));
                ResolvedAddress {
                    frames: vec![Frame { name: Some(name), ..Frame::default() }],
                    note: Some("no line: the file has no debug information; compile with -g".into()),
                }
            }
            None => ResolvedAddress {
                frames: Vec::new(),
                note: Some("the file has neither symbols nor debug information".into()),
            },
        }
    }
}

fn frames(loader: &Loader, address: u64) -> Vec<Frame> {
    let mut found = Vec::new();
    let Ok(mut frames) = loader.find_frames(address) else { return found };
    while let Ok(Some(frame)) = frames.next() {
        let name = frame.function.as_ref().and_then(|function| Some(function.demangle().ok()?.into_owned()));
        let (file, line) = frame.location.map_or((None, None), |at| (at.file.map(str::to_owned), at.line));
        found.push(Frame { name, file, line });
    }
    // Code without a function's name in its debug information has the name of its symbol.
    if let Some(last) = found.last_mut()
        && last.name.is_none()
    {
        last.name = loader.find_symbol(address).map(|name| demangle_auto(name.into(), None).into_owned());
    }
    found
}

/// Fails unless the file is the one that the process loaded.
fn check_same_file(path: &Path, module: &Module, started: Duration) -> Result<(), String> {
    let unreadable = |error: std::io::Error| format!("{} cannot be read here: {error}", module.path);
    let metadata = fs::metadata(path).map_err(unreadable)?;
    // A profile may name any path, also a device or a pipe, which could block the reader.
    if !metadata.is_file() {
        return Err(format!("{} is no file here", module.path));
    }
    if module.build_id.is_empty() {
        let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        return match modified {
            Some(modified) if !started.is_zero() && modified > started => {
                Err(format!("{} was changed after the run began; profile it again", module.path))
            }
            _ => Ok(()),
        };
    }
    let bytes = fs::File::open(path).map_err(unreadable)?;
    let cache = object::ReadCache::new(bytes);
    let file = object::File::parse(&cache).map_err(|error| format!("{} cannot be read: {error}", module.path))?;
    match file.build_id() {
        Ok(Some(id)) if id == module.build_id => Ok(()),
        _ => Err(format!(
            "{} is another build now than the one that ran ({}); profile it again, or bring that one back",
            module.path,
            hexadecimal(&module.build_id)
        )),
    }
}

/// The path at which distributions store the debug information of stripped files.
fn separate_debug_file(build_id: &[u8]) -> Option<PathBuf> {
    let name = hexadecimal(build_id);
    let path = PathBuf::from(format!("/usr/lib/debug/.build-id/{}/{}.debug", name.get(..2)?, name.get(2..)?));
    path.exists().then_some(path)
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_module_that_is_no_file_is_not_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("fifo");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let module = Module { path: path.to_str().unwrap().into(), build_id: vec![1] };
        let found = Symbols::of(&module, Duration::ZERO).at(1);
        assert!(found.note.unwrap().contains("is no file here") && found.frames.is_empty());
    }
}
