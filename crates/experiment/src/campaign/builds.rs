//! Comparison of the builds that the hosts of a store ran.

use std::collections::{BTreeMap, BTreeSet};

use machine::Result;

use super::store::Store;

impl Store {
    /// Programs with several builds or versions among the hosts: a sentence for each.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn differing_builds(&self) -> Result<Vec<String>> {
        let sessions: Vec<(String, String, String)> = self.database.try_to(|c| {
            let mut rows = c.prepare("SELECT host, version, programs FROM session")?;
            rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.collect()
        })?;
        let mut hosts: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
        for (host, version, programs) in sessions {
            let programs = self.database.parse::<BTreeMap<String, String>>(&programs)?;
            for of in programs.into_iter().chain([("plimsoll".to_owned(), version)]) {
                hosts.entry(of).or_default().insert(host.clone());
            }
        }
        let mut of_program: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for ((program, build), hosts) in &hosts {
            let hosts = hosts.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            let build = build.chars().take(SHOWN).collect::<String>();
            of_program.entry(program).or_default().push(format!("{build} on {hosts}"));
        }
        let several = of_program.into_iter().filter(|(_, builds)| builds.len() > 1);
        Ok(several
            .map(|(program, builds)| format!("{program} is not the same everywhere: {}", builds.join("; ")))
            .collect())
    }
}

/// Characters of a digest that are shown.
const SHOWN: usize = 12;

#[cfg(test)]
mod tests {
    use machine::Nanoseconds;

    use super::*;
    use crate::campaign::definition::Identity;
    use crate::campaign::store::Session;

    #[test]
    fn hosts_with_another_build_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let identity = Identity { name: "s".into(), set: BTreeMap::new(), programs: Vec::new(), figures: Vec::new() };
        let mut store = Store::open(&folder.path().join("s"), &identity).unwrap();
        let mut begin = |host: &str, digest: &str, version: &str| {
            let programs = [("/bin/a".to_owned(), digest.to_owned()), ("/bin/b".to_owned(), "same".to_owned())];
            let session = Session {
                host: host.into(),
                boot: String::new(),
                version: version.into(),
                shard: "1/1".into(),
                nodes: String::new(),
                programs: programs.into(),
                started: Nanoseconds(1),
                process: 1,
            };
            store.begin(&session).unwrap();
            store.differing_builds().unwrap()
        };
        assert_eq!(begin("one", "aa", "1"), [""; 0]);
        assert_eq!(begin("two", "aa", "1"), [""; 0]);
        assert_eq!(begin("three", "bb", "1"), ["/bin/a is not the same everywhere: aa on one, two; bb on three"]);
        let both = begin("four", "aa", "2");
        assert!(
            both.len() == 2 && both[1].contains("plimsoll is not the same everywhere: 1 on one, three, two; 2 on four")
        );
    }
}
