//! Short account of a profiled command at its end.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use machine::{count, shell};
use profile::injection::Injection;
use profile::lost;
use profile::profile::Profile;
use profile::summary::Totals;
use profile::words::percent;
use record::folder;
use record::live::{Glance, Live};
use record::worlds;

use super::sampler::Account;

/// Next step where the file system is full.
pub const FREE: &str = "free space on the file system of the profile, which is full, or name another folder with -o";
const SHARED: &str = "name a folder with -o that all hosts share, and put `plimsoll profile --` directly before the launcher, so \
                      that ranks of other hosts are told";

const ONE_BUILD: &str = "use a plimsoll and a libplimsoll_profile.so of one build";

/// Whether the file system has less space than a rank's tables take at first.
fn is_full(folder: &Path) -> bool {
    const LEAST: u64 = 1 << 20;
    rustix::fs::statvfs(folder).is_ok_and(|of| of.f_bavail.saturating_mul(of.f_frsize) < LEAST)
}

/// Sums over the ranks' records.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// Ranks that left tables.
    pub ranks: usize,
    /// Ranks of all worlds.
    pub expected: usize,
    /// Ranks that left tables, but neither called MPI_Finalize nor ended normally.
    pub cut_short: usize,
    /// Calls, and the share of the ranks' time inside them, as in `plimsoll report`; `None` where no table can be read.
    pub calls: Option<(u64, f64)>,
    /// Losses of the records, a sentence each.
    pub lost: Vec<String>,
    /// Files without tables of this version.
    pub unreadable: usize,
    /// Whether the file system has no room for the tables of another rank.
    pub full: bool,
    /// Injected delays; `None`: none were requested.
    pub injection: Option<Injection>,
    /// Cost of sampling the cores of this host; `None` where sampling was left out or failed.
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
        let unreadable = files.len() - glances.len();
        Outcome { calls, injection, unreadable, full: is_full(path), ..Outcome::of(&glances) }
    }

    fn of(glances: &[Glance]) -> Outcome {
        let placed = glances.iter().map(|glance| &glance.header).filter(|header| header.placed != 0);
        let (worlds, places) = worlds::of(placed);
        Outcome {
            ranks: places.len(),
            expected: worlds.iter().map(|world| world.size as usize).sum(),
            cut_short: glances.iter().filter(|g| g.header.finalized == 0 && g.header.ended == 0).count(),
            calls: None,
            lost: lost::notes(glances.iter().map(|glance| &glance.header)),
            unreadable: 0,
            full: false,
            injection: None,
            sampling: None,
        }
    }

    /// Gaps of the profile, a sentence each. A reader finds them anew, with files that came from other hosts later.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.ranks < self.expected {
            notes.push(format!(
                "{} of {} left no tables. Next: {}",
                self.expected - self.ranks,
                count::of(self.expected as u64, "rank"),
                if self.full { FREE } else { SHARED }
            ));
        }
        if self.unreadable > 0 {
            notes.push(format!(
                "{} of ranks cannot be read. Next: {}",
                count::of(self.unreadable as u64, "file"),
                if self.full { FREE } else { ONE_BUILD }
            ));
        }
        notes.extend(self.lost.iter().cloned());
        notes
    }

    /// The page at the end of a run; `profile` is the folder as the user wrote it.
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
        let _ = writeln!(page, "plimsoll: now: plimsoll report {}", shell::path(profile));
        page
    }
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
            lost: vec!["7 calls found no place".to_owned()],
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

    /// On a full disk, neither another build nor another place of the command helps.
    #[test]
    fn on_a_full_disk_every_remedy_is_space() {
        let Some(disk) = skip::disk::Disk::small() else { return };
        assert!(Outcome::read(disk.path()).full);
        let outcome = Outcome { ranks: 1, expected: 2, unreadable: 1, full: true, ..Outcome::default() };
        let notes = outcome.notes();
        assert!(notes.len() == 2 && notes.iter().all(|note| note.ends_with(FREE)), "{notes:?}");
        let elsewhere = Outcome { full: false, ..outcome }.notes();
        assert!(elsewhere[0].contains("all hosts share") && elsewhere[1].contains("one build"), "{elsewhere:?}");
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
