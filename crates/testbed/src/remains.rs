//! What processes may leave behind: files in shared memory, named sockets, network namespaces.

use std::collections::BTreeSet;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The files, sockets and namespaces that existed at one moment.
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

    /// Panics where something new stays; waits for what other jobs on this machine have.
    pub fn none_since(&self) {
        let deadline = Instant::now() + skip::LIMIT;
        let mut left: BTreeSet<String> = named().difference(&self.0).cloned().collect();
        while !left.is_empty() {
            assert!(Instant::now() < deadline, "{left:?}");
            sleep(Duration::from_millis(50));
            let there = named();
            left.retain(|name| there.contains(name));
        }
    }
}
