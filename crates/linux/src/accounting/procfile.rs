//! A file of `/proc` that is read repeatedly.

use std::fs::File;
use std::os::unix::fs::FileExt;

use machine::{Fault, Result};

/// A file of `/proc`, opened once and read whole each time into the same memory.
pub(super) struct ProcFile {
    path: &'static str,
    file: File,
    text: String,
}

impl ProcFile {
    pub fn open(path: &'static str) -> Result<Self> {
        let file = File::open(path).map_err(|e| Fault::because(path, e, "mount /proc"))?;
        Ok(ProcFile { path, file, text: String::new() })
    }

    pub fn read(&mut self) -> Result<&str> {
        let mut bytes = std::mem::take(&mut self.text).into_bytes();
        bytes.resize(bytes.capacity().max(16 << 10), 0);
        let mut length = 0;
        loop {
            let got = self
                .file
                .read_at(&mut bytes[length..], length as u64)
                .map_err(|e| Fault::because(self.path, e, "check that /proc is mounted whole"))?;
            length += got;
            if got == 0 {
                break;
            }
            if length == bytes.len() {
                bytes.resize(2 * length, 0);
            }
        }
        bytes.truncate(length);
        self.text = String::from_utf8(bytes).map_err(|_| self.misread())?;
        Ok(&self.text)
    }

    pub fn misread(&self) -> Fault {
        Fault::new(self.path, "its format is not the one known here", "report this with the file")
    }
}
