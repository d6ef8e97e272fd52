//! The split measured from a timeline, which replaces the modelled one.

use std::collections::{BTreeMap, HashMap};

use machine::Reading;
use record::functions::{FunctionId, counted, function};

use crate::columns::columns;
use crate::sites::name;
use crate::summary::{Split, Summary, WaitsFor};
use timeline::{FunctionWaits, RankWaits, Timeline};

/// Columns of the timeline that pages draw.
const COLUMNS: usize = 800;
/// Greatest number of ranks listed that a rank waited for.
const FOR_WHOM: usize = 5;
/// A timeline with this share of a rank's time in MPI is complete: timeline and tables read the clock separately.
const NEARLY_ALL: f64 = 0.95;

/// Puts the timeline, and the waits measured from it, into the summary.
pub fn put(timeline: &Timeline, summary: &mut Summary) {
    let known: HashMap<(String, u32), usize> =
        summary.ranks.iter().enumerate().map(|(place, rank)| ((rank.host.clone(), rank.pid), place)).collect();
    let place_of = |rank: &timeline::Rank| known.get(&(rank.host.clone(), rank.pid)).copied();
    let places: Vec<Option<usize>> = timeline.ranks.iter().map(place_of).collect();
    summary.timeline = Some(columns(timeline, COLUMNS, summary.job.started, place_of));
    summary.job.notes.extend(timeline.notes.iter().cloned());

    let waits = timeline.waits();
    let caused = waits.caused();
    let (mut measured, mut all_sampled) = (0, true);
    let mut sums: BTreeMap<(String, u32), FunctionWaits> = BTreeMap::new();
    for (from, place) in places.iter().enumerate() {
        let Some(rank) = place.and_then(|place| summary.ranks.get_mut(place)) else { continue };
        let seen = &waits.ranks[from];
        let total = seen.total();
        let known = &timeline.ranks[from];
        let is_whole = known.lost == 0 && known.lanes.iter().all(|lane| lane.damage.is_none());
        if !is_whole || total.seconds < NEARLY_ALL * rank.mpi {
            continue;
        }
        measured += 1;
        let sampled = timeline.ranks[from].off_core.is_some();
        all_sampled &= sampled;
        rank.split = split(&total, rank.mpi, sampled);
        for (class, of_class) in by_class(seen) {
            if let Some(known) = rank.classes.get_mut(class) {
                known.split = split(&of_class, known.seconds, sampled);
            }
        }
        rank.caused = Reading::Measured(caused[from]);
        rank.away = Reading::Measured(total.away);
        let mut whom: Vec<WaitsFor> = seen
            .for_whom
            .iter()
            .filter_map(|(other, seconds)| Some(WaitsFor { rank: places[*other]?, seconds: *seconds }))
            .collect();
        whom.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        whom.truncate(FOR_WHOM);
        rank.waits_for = whom;
        for ((id, group), waits) in &seen.functions {
            sums.entry((name(*id), *group)).or_default().add(waits);
        }
    }
    if measured < summary.ranks.len() {
        summary.job.notes.push(format!(
            "the timeline has all calls of {measured} of {} ranks: transfer and wait of the others, and of functions, are modelled",
            summary.ranks.len()
        ));
        return;
    }
    for function in summary.functions.iter_mut().filter(|function| function.counted) {
        if let Some(waits) = sums.get(&(function.name.clone(), function.group)) {
            function.split = split(waits, function.seconds, all_sampled);
        }
    }
}

/// Parts that add up to `whole`, the time in the tables: the timeline's calls may be some ticks shorter.
fn split(waits: &FunctionWaits, whole: f64, sampled: bool) -> Split {
    let wait = waits.wait().min(whole);
    let off_core = waits.off_core.min(whole - wait);
    let undivided = waits.undivided.min(whole - wait - off_core);
    Split {
        transfer: Reading::Measured(whole - wait - off_core - undivided),
        wait: Reading::Measured(wait),
        off_core: match sampled {
            true => Reading::Modelled(off_core),
            false => Reading::absent("a timeline does not tell it, and nothing was sampled that does"),
        },
        undivided,
    }
}

fn by_class(seen: &RankWaits) -> BTreeMap<&'static str, FunctionWaits> {
    let mut classes: BTreeMap<&'static str, FunctionWaits> = BTreeMap::new();
    let of = |id: &FunctionId| function(*id).map(|function| function.class.name());
    for ((id, _), waits) in seen.functions.iter().filter(|((id, _), _)| counted(*id)) {
        if let Some(class) = of(id) {
            classes.entry(class).or_default().add(waits);
        }
    }
    classes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;
    use timeline::testing::{Lines, profile};

    fn measured(reading: &Reading<f64>) -> i64 {
        match reading {
            Reading::Measured(seconds) => (seconds * 1e9).round() as i64,
            other => panic!("{other:?}"),
        }
    }

    /// Ranks 0 and 1 enter at 1000 and 3000, rank 2 at 9000; all leave at 9500. Then rank 1 sends late to rank 0.
    #[test]
    fn waits_are_those_of_the_timeline_to_the_nanosecond_and_say_for_whom() {
        let mut ranks = [Lines::default(), Lines::default(), Lines::default()];
        for (lines, entered) in ranks.iter_mut().zip([1_000, 3_000, 9_000]) {
            lines.collective("Allreduce", (entered, 9_500), -1, 8);
        }
        ranks[1].call("Send", (14_000, 14_200), (0, 7, 64));
        ranks[0].call("Recv", (10_000, 14_300), (1, 7, 64));
        let folder = profile(ranks.into());
        let summary = Summary::of(&Profile::open(folder.path()).unwrap());
        let waits: Vec<i64> = summary.ranks.iter().map(|rank| measured(&rank.split.wait)).collect();
        assert_eq!(waits, [8_000 + 4_000, 6_000, 0]);
        for rank in &summary.ranks {
            let parts = measured(&rank.split.wait) + measured(&rank.split.transfer);
            assert_eq!(parts, ((rank.mpi - rank.split.undivided) * 1e9).round() as i64);
        }
        assert_eq!(summary.ranks.iter().map(|rank| measured(&rank.caused)).collect::<Vec<_>>(), [0, 4_000, 14_000]);
        let whom = |rank: usize| summary.ranks[rank].waits_for.iter().map(|to| to.rank).collect::<Vec<_>>();
        assert_eq!((whom(0), whom(1), whom(2)), (vec![2, 1], vec![2], vec![]));
        assert_eq!(measured(&summary.totals.split.wait), 18_000);
        let reduce = summary.functions.iter().find(|function| function.name == "MPI_Allreduce").unwrap();
        assert_eq!(measured(&reduce.split.wait), 14_000);
        assert!(summary.timeline.as_ref().unwrap().lanes.len() == 3);
    }
}
