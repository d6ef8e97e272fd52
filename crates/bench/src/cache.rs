//! The size of the last-level cache, which buffers without cache effects must exceed.

use std::fs;
use std::path::Path;

use machine::{Bytes, Reading};

/// Largest cache that the first core reaches, from `/sys/devices/system/cpu/cpu0/cache`.
pub fn last_level() -> Reading<Bytes> {
    largest_under(Path::new("/sys/devices/system/cpu/cpu0/cache"))
}

/// Bytes over which buffers rotate where the size is not known: more than most caches have.
pub const WHERE_UNKNOWN: Bytes = Bytes(64 << 20);

/// The size that buffers without cache effects must exceed, in bytes.
pub fn to_exceed() -> usize {
    last_level().value().unwrap_or(&WHERE_UNKNOWN).0 as usize
}

fn largest_under(folder: &Path) -> Reading<Bytes> {
    let sizes = fs::read_dir(folder).into_iter().flatten().flatten().filter_map(|entry| {
        let text = fs::read_to_string(entry.path().join("size")).ok()?;
        text.trim().parse::<Bytes>().ok()
    });
    match sizes.max() {
        Some(size) => Reading::Measured(size),
        None => Reading::absent(format!("{} names no cache size", folder.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_largest_and_says_when_there_is_none() {
        let root = tempfile::tempdir().unwrap();
        assert!(largest_under(root.path()).value().is_none());
        for (index, size) in ["32K", "1024K", "32768K"].iter().enumerate() {
            let folder = root.path().join(format!("index{index}"));
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("size"), format!("{size}\n")).unwrap();
        }
        assert_eq!(largest_under(root.path()), Reading::Measured(Bytes(32 << 20)));
    }
}
