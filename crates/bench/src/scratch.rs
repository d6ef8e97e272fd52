//! Temporary folders that are removed with their owner, however it ends.

use std::path::Path;

use linux::warden::Warden;
use machine::{Fault, Result};
use tempfile::TempDir;

/// A folder that is removed with this value, or if this process is killed.
#[derive(Debug)]
pub(crate) struct Scratch {
    // Dropped before the folder.
    _warden: Warden,
    folder: TempDir,
}

impl Scratch {
    /// Makes a folder below `within`, for `what`.
    pub(crate) fn new(prefix: &str, within: &Path, what: &str) -> Result<Scratch> {
        let folder = tempfile::Builder::new()
            .prefix(prefix)
            .tempdir_in(within)
            .map_err(|e| Fault::because(format!("folder for {what}"), e, "free space in TMPDIR"))?;
        Ok(Scratch { _warden: Warden::over_folder(folder.path())?, folder })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As after a second Ctrl-C: nothing of this process is dropped, and its pipe to the warden is closed.
    #[test]
    fn a_folder_goes_where_its_owner_is_killed() {
        let above = tempfile::tempdir().unwrap();
        let Scratch { _warden: warden, folder } = Scratch::new("plimsoll-test-", above.path(), "a test").unwrap();
        let left = folder.keep();
        std::fs::write(left.join("program"), "code").unwrap();
        drop(warden);
        assert!(!left.exists());
    }
}
