//! What processes may leave behind: files in shared memory, named sockets, network namespaces.

use std::collections::BTreeSet;
use std::fs;

/// What there was at one moment.
pub struct Remains(BTreeSet<String>);

fn named() -> BTreeSet<String> {
    let mut things = BTreeSet::new();
    for folder in ["/dev/shm", "/run/netns"] {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.contains("plimsoll") {
                things.insert(format!("{folder}/{name}"));
            }
        }
    }
    things
}

impl Remains {
    pub fn before() -> Remains {
        Remains(named())
    }

    /// Fails where there is something new by now.
    pub fn none_since(&self) {
        let left: Vec<_> = named().difference(&self.0).cloned().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
