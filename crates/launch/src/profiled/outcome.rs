//! What a profiled command left: the short account at its end.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use machine::count;
use profile::injection::Injection;
use profile::profile::Profile;
use profile::summary::Totals;
use profile::terminal::percent;
use record::folder;
use record::layout::Dropped;
use record::live::{Glance, Live};
use record::worlds;

use super::sampler::Account;

/// What the ranks recorded, in sums.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// Ranks that left tables.
    pub ranks: usize,
    /// Ranks that their worlds have.
    pub expected: usize,
    /// Ranks that left tables, but neither called MPI_Finalize nor ended in order.
    pub cut_short: usize,
    /// Calls, and the share of the ranks' time inside them, as `plimsoll report` has them; `None` where no table can be read.
    pub calls: Option<(u64, f64)>,
    /// What could not be recorded, by what it is.
    pub dropped: Vec<(&'static str, u64)>,
    /// Files that are no tables of this version.
    pub unreadable: usize,
    /// The delays that the ranks were given on purpose; `None`: none were asked for.
    pub injection: Option<Injection>,
    /// What sampling the cores of this host took; `None` where it was left out or failed.
    pub sampling: Option<Account>,
}

impl Outcome {
    /// Reads the outcome of the profile in `path`.
    pub fn read(path: &Path) -> Outcome {
        let entries = fs::read_dir(path.join(folder::RANKS)).into_iter().flatten().flatten();
        let files: Vec<_> = entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|e| e == folder::RANK_SUFFIX))
            .collect();
        let glances: Vec<Glance> = files.iter().filter_map(|path| Live::open(path).ok()??.glance().ok()).collect();
        let profile = Profile::without_timeline(path).ok().filter(|profile| !profile.ranks.is_empty());
        let calls = profile.as_ref().map(Totals::of).map(|totals| (totals.calls, totals.mpi_share));
        let injection = profile.as_ref().and_then(Injection::of);
        Outcome { calls, injection, unreadable: files.len() - glances.len(), ..Outcome::of(&glances) }
    }

    fn of(glances: &[Glance]) -> Outcome {
        let placed = glances.iter().map(|glance| &glance.header).filter(|header| header.placed != 0);
        let (worlds, places) = worlds::of(placed);
        Outcome {
            ranks: places.len(),
            expected: worlds.iter().map(|world| world.size as usize).sum(),
            cut_short: glances.iter().filter(|g| g.header.finalized == 0 && g.header.ended == 0).count(),
            calls: None,
            dropped: dropped(glances.iter().map(|glance| &glance.header.dropped)),
            unreadable: 0,
            injection: None,
            sampling: None,
        }
    }

    /// What is missing, as sentences.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.ranks < self.expected {
            notes.push(format!(
                "{} of {} left no tables. Next: name a folder with -o that all hosts share, and put `plimsoll \
                 profile --` directly before the launcher, so that ranks of other hosts are told",
                self.expected - self.ranks,
                count::of(self.expected as u64, "rank")
            ));
        }
        if self.unreadable > 0 {
            notes.push(format!(
                "{} of ranks cannot be read. Next: use a plimsoll and a libplimsoll_profile.so of one build",
                count::of(self.unreadable as u64, "file")
            ));
        }
        notes.extend(self.dropped.iter().map(|(what, n)| {
            format!("{} {what}. Next: allow more with --memory, or less to record", count::grouped(*n))
        }));
        notes.extend(self.injection.iter().flat_map(Injection::shortfalls));
        notes
    }

    /// The page that ends a run; `profile` is the folder as the user names it.
    pub fn page(&self, profile: &Path, notes: &[String]) -> String {
        if self.ranks == 0 {
            let mut page = String::from("plimsoll: no rank recorded anything\n");
            notes.iter().for_each(|note| page.push_str(&format!("plimsoll: {note}\n")));
            return page;
        }
        let mut page = format!("plimsoll: {}", count::of(self.ranks as u64, "rank"));
        if let Some((calls, share)) = self.calls {
            let _ = write!(page, ", {}, {} of their time in MPI", count::of(calls, "MPI call"), percent(share));
        }
        if self.cut_short > 0 {
            let _ = write!(page, "; {} did not finalize", count::of(self.cut_short as u64, "rank"));
        }
        page.push('\n');
        if let Some(injection) = &self.injection {
            let _ = writeln!(page, "plimsoll: delayed on purpose: {}", injection.words());
        }
        if let Some(account) = &self.sampling {
            let _ = writeln!(
                page,
                "plimsoll: cores sampled {}, which took {:.2} % of one core",
                count::of(account.looks, "time"),
                100.0 * account.share()
            );
        }
        for note in notes {
            let _ = writeln!(page, "plimsoll: {note}");
        }
        let _ = writeln!(page, "plimsoll: now: plimsoll report {}", quoted(profile));
        page
    }
}

fn dropped<'a>(all: impl Iterator<Item = &'a Dropped>) -> Vec<(&'static str, u64)> {
    let mut sums = [0u64; 9];
    for d in all {
        let fields = [d.calls, d.rows, d.sites, d.peers, d.requests, d.events, d.communicators, d.modules, d.phases];
        sums.iter_mut().zip(fields).for_each(|(sum, field)| *sum = sum.saturating_add(field));
    }
    let what = [
        "calls of threads beyond the number that gets tables were only counted",
        "calls found no row",
        "calls found no place for their site",
        "messages are not in the matrix",
        "operations were not followed to their completion",
        "calls are not in the timeline",
        "communicators have members that are not known",
        "modules found no place",
        "phases found no place",
    ];
    what.into_iter().zip(sums).filter(|(_, sum)| *sum > 0).collect()
}

/// A path as a shell takes it for one word.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%,=:".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_says_what_there_is_and_what_is_not() {
        let outcome = Outcome {
            ranks: 3,
            expected: 4,
            cut_short: 1,
            calls: Some((1_234_567, 0.25)),
            dropped: vec![("calls found no place for their site", 7)],
            ..Outcome::default()
        };
        let page = outcome.page(Path::new("a b"), &outcome.notes());
        for wanted in [
            "3 ranks, 1,234,567 MPI calls, 25.0 % of their time in MPI; 1 rank did not finalize",
            "1 of 4 ranks left no tables",
            "7 calls found no place",
            "now: plimsoll report 'a b'",
        ] {
            assert!(page.contains(wanted), "{page}");
        }
        assert!(Outcome { ranks: 4, expected: 4, ..Outcome::default() }.notes().is_empty());
    }

    #[test]
    fn where_no_rank_was_seen_the_cause_stands_in_the_place_of_the_report() {
        let page = Outcome::default().page(Path::new("p"), &["it is static. Next: link it".to_owned()]);
        assert_eq!(page, "plimsoll: no rank recorded anything\nplimsoll: it is static. Next: link it\n");
    }

    #[test]
    fn a_folder_without_ranks_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Outcome::read(folder.path()), Outcome::default());
    }
}
