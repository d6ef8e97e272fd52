//! Delays injected into a program (`plimsoll profile --perturb`), as its ranks counted them.

use std::collections::BTreeSet;

use machine::{count, figure};
use record::layout::{Injected, injected, perturbed};

use crate::profile::Profile;

/// The delays injected into one rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InjectedDelays {
    pub rank: u32,
    /// Number and seconds of the delays, by what was delayed ([`injected`]).
    pub delays: [(u64, f64); 3],
}

impl InjectedDelays {
    /// Seconds of delays of all kinds.
    pub fn seconds(&self) -> f64 {
        self.delays.iter().map(|(_, seconds)| seconds).sum()
    }
}

/// The delays injected into all ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct Injection {
    /// The requested delays; empty where unknown.
    pub asked: String,
    pub ranks: Vec<InjectedDelays>,
    /// The bits of [`perturbed`] that are set for any rank.
    pub marks: u32,
}

impl Injection {
    /// The injected delays; `None` if the program ran without.
    pub fn of(profile: &Profile) -> Option<Injection> {
        let marks = profile.ranks.iter().fold(0, |marks, rank| marks | rank.header.perturbed);
        let asked = profile.job.perturbation.clone();
        if marks == 0 && asked.is_none() {
            return None;
        }
        let given = |rank: &crate::tables::Tables| {
            let sum = |kind: usize| {
                let of = rank.threads.iter().map(|(_, thread)| thread.injected[kind]);
                let all = of.fold(Injected::default(), |sum, one| Injected {
                    count: sum.count.saturating_add(one.count),
                    ticks: sum.ticks.saturating_add(one.ticks),
                });
                (all.count, rank.seconds(all.ticks))
            };
            InjectedDelays { rank: rank.header.rank, delays: std::array::from_fn(sum) }
        };
        let ranks = profile.ranks.iter().map(given).collect();
        Some(Injection { asked: asked.unwrap_or_default(), ranks, marks })
    }

    /// Number and seconds of the delays of all ranks.
    pub fn total(&self, kind: usize) -> (u64, f64) {
        let of = self.ranks.iter().map(|given| given.delays[kind]);
        of.fold((0, 0.0), |sum, one| (u64::saturating_add(sum.0, one.0), sum.1 + one.1))
    }

    /// The number of delays by kind, and their time for a rank on average and at most.
    pub fn words(&self) -> String {
        let kinds = [(injected::SEND, "sends"), (injected::RECEIVE, "receives"), (injected::COMPUTE, "computing")];
        let of = |(kind, name)| {
            let (delays, _) = self.total(kind);
            (delays > 0).then(|| format!("{} at {name}", count::of(delays, "delay")))
        };
        let kinds: Vec<String> = kinds.into_iter().filter_map(of).collect();
        let most = self.ranks.iter().max_by(|one, other| one.seconds().total_cmp(&other.seconds()));
        let Some(most) = most.filter(|_| !kinds.is_empty()) else { return "nothing was delayed".to_owned() };
        let mean = self.ranks.iter().map(InjectedDelays::seconds).sum::<f64>() / self.ranks.len() as f64;
        format!(
            "{}; {} a rank on average, {} at most (rank {})",
            kinds.join(", "),
            figure::nanoseconds(1e9 * mean),
            figure::nanoseconds(1e9 * most.seconds()),
            most.rank
        )
    }

    /// Reasons why delays fell short of the requested ones, as sentences.
    pub fn shortfalls(&self) -> Vec<String> {
        let reasons = [
            (
                perturbed::STOPPED,
                "delays reached a tenth of a thread's time, and stopped there. Next: ask for shorter ones",
            ),
            (
                perturbed::CUT,
                "more delays came together in one call than 100 us, and the rest was left out. Next: ask for shorter ones",
            ),
            (
                perturbed::FULL,
                "there were more blocks than are noted, and the rest is not known. Next: ask for longer blocks",
            ),
            (
                perturbed::UNREAD,
                "the library could not read what is asked for, and delayed nothing. Next: use a plimsoll and a \
                 libplimsoll_profile.so of one build",
            ),
            (
                perturbed::MISPLACED,
                "ranks are on other hosts than in the profile of --hosts-of, and nothing was delayed there. Next: profile \
                 the program once more without --perturb",
            ),
        ];
        let said: BTreeSet<&str> =
            reasons.into_iter().filter(|(mark, _)| self.marks & mark != 0).map(|(_, words)| words).collect();
        said.into_iter().map(str::to_owned).collect()
    }

    /// The warning at the top of every page.
    pub fn warning(&self) -> String {
        let asked = if self.asked.is_empty() { String::new() } else { format!(" ({})", self.asked) };
        format!(
            "This program was delayed on purpose{asked}: {}. Its figures are not those of the program.",
            self.words()
        )
    }
}

#[cfg(test)]
mod tests {
    use record::image::Image;
    use record::layout::{Moment, Thread, kind};
    use record::rank::Rank;

    use super::*;
    use crate::job::Job;
    use crate::tables::Tables;

    fn rank(number: u32, count: u64, marks: u32) -> Tables {
        let mut image = Image::default();
        (image.header.rank, image.header.size, image.header.placed) = (number, 2, 1);
        (image.header.clock, image.header.perturbed) = (record::layout::clock::MONOTONIC, marks);
        image.header.latest = Moment { ticks: 9_000_000, monotonic: 9_000_000, realtime: 9_000_000 };
        let mut thread = Thread { tid: 1, ..Thread::default() };
        thread.injected[injected::SEND] = Injected { count, ticks: count * 1000 };
        image.region(kind::THREAD, 0, (0, 0), &[thread.sealed()]);
        Tables::of(Rank::read(&image.bytes()).unwrap(), number.to_string()).unwrap()
    }

    #[test]
    fn what_ranks_were_given_is_summed_and_a_shortfall_named() {
        let plain = Profile::of(Job::default(), vec![rank(0, 0, 0)]);
        assert!(plain.notes.iter().any(|note| note.contains("1 rank were taken by CLOCK_MONOTONIC")));
        assert_eq!(Injection::of(&plain), None);
        let job = Job { perturbation: Some("send=1us".into()), ..Job::default() };
        let marks = perturbed::ASKED | perturbed::STOPPED;
        let profile = Profile::of(job, vec![rank(0, 1000, marks), rank(1, 3000, perturbed::ASKED)]);
        let injection = Injection::of(&profile).unwrap();
        assert_eq!(injection.total(injected::SEND).0, 4000);
        assert_eq!(injection.words(), "4,000 delays at sends; 2 ms a rank on average, 3 ms at most (rank 1)");
        assert_eq!(injection.shortfalls().len(), 1);
        assert!(injection.warning().contains("on purpose (send=1us)"), "{}", injection.warning());
    }

    #[test]
    fn nothing_is_said_to_be_nothing() {
        let profile = Profile::of(Job::default(), vec![rank(0, 0, perturbed::ASKED | perturbed::UNREAD)]);
        let injection = Injection::of(&profile).unwrap();
        assert_eq!(injection.words(), "nothing was delayed");
        assert!(injection.shortfalls()[0].contains("could not read"));
    }
}
