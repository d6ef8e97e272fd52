//! Files that may be absent.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

/// The content of a file; `None` where it is absent. A file that this user may not look for, as where `HOME` is another
/// user's, counts as absent, with a note in `unseen`.
///
/// # Errors
/// The file is there, and cannot be read.
pub fn read(path: &Path, unseen: &mut Vec<String>) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if is_out_of_sight(&error) && fs::symlink_metadata(path).is_err() => {
            unseen.push(format!("{} may not be looked for ({error}): taken for one that is not there", path.display()));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Whether a folder of the path is closed to this user, or is no folder (`HOME=/dev/null`).
fn is_out_of_sight(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_not_be_looked_for_is_as_what_is_not_there_and_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let mut unseen = Vec::new();
        assert_eq!(read(&file, &mut unseen).unwrap(), None);
        fs::write(&file, "x").unwrap();
        assert_eq!(read(&file, &mut unseen).unwrap(), Some(b"x".to_vec()));
        assert!(unseen.is_empty(), "{unseen:?}");
        assert_eq!(read(&file.join("below"), &mut unseen).unwrap(), None);
        assert!(unseen.len() == 1 && unseen[0].contains("file/below may not be looked for"), "{unseen:?}");
    }

    #[cfg(unix)]
    #[test]
    fn a_home_of_another_user_is_looked_past_and_an_unreadable_file_is_a_fault() {
        use std::os::unix::fs::PermissionsExt;
        let above = tempfile::tempdir().unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let home = above.path().join("home");
        fs::create_dir(&home).unwrap();
        let file = home.join("file");
        fs::write(&file, "x").unwrap();
        mode(&file, 0o600);
        mode(above.path(), 0o755);
        mode(&home, 0o700);
        let mut unseen = Vec::new();
        let Some(read_there) = skip::another_user(|| read(&file, &mut unseen)) else { return };
        assert_eq!(read_there.unwrap(), None);
        assert!(unseen.len() == 1 && unseen[0].contains("Permission denied"), "{unseen:?}");
        mode(&home, 0o755);
        let refused = skip::another_user(|| read(&file, &mut unseen)).unwrap();
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
}
