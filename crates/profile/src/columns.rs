//! The timeline reduced to columns for drawing.

use std::collections::BTreeMap;

use record::functions::FunctionId;
use timeline::{Rank, Timeline};

use crate::sites::name;
use crate::summary;

/// The timeline in `columns` columns of equal length. `started`: the origin of the columns' times, ns since 1970.
/// `place_of`: a rank's place in [`crate::summary::Summary::ranks`].
pub fn columns(
    timeline: &Timeline,
    columns: usize,
    started: u64,
    place_of: impl Fn(&Rank) -> Option<usize>,
) -> summary::Timeline {
    let ends = timeline.ranks.iter().flat_map(|rank| rank.lanes.iter().map(|lane| rank.clock.at(lane.end)));
    let starts = (0..timeline.ranks.len()).filter_map(|place| timeline.walk(place).step().map(|step| step.entered));
    let (from, to) = (starts.min().unwrap_or(0), ends.max().unwrap_or(0));
    let columns = columns.max(1);
    let step = ((to - from) as f64 / columns as f64).max(1.0);
    let mut names: BTreeMap<FunctionId, u16> = BTreeMap::new();
    let mut lanes = Vec::new();
    for (place, rank) in timeline.ranks.iter().enumerate() {
        let Some(shown) = place_of(rank) else { continue };
        // Nanoseconds of each function, by thread and column.
        let mut times: BTreeMap<u16, Vec<BTreeMap<FunctionId, f64>>> = BTreeMap::new();
        let mut walk = timeline.walk(place);
        while let Some(call) = walk.step() {
            let cells = times.entry(call.thread).or_insert_with(|| vec![BTreeMap::new(); columns]);
            let (entered, left) = ((call.entered - from) as f64, (call.left - from) as f64);
            let first = ((entered / step) as usize).min(columns - 1);
            let last = ((left / step) as usize).min(columns - 1);
            for (column, cell) in cells.iter_mut().enumerate().take(last + 1).skip(first) {
                let begin = entered.max(column as f64 * step);
                let end = left.min((column + 1) as f64 * step);
                *cell.entry(call.event.call.function).or_default() += (end - begin).max(0.0);
            }
        }
        for (thread, cells) in times {
            let mut lane = summary::Lane { rank: shown, thread, ..summary::Lane::default() };
            for cell in cells {
                let inside: f64 = cell.values().sum();
                let most = cell.iter().max_by(|one, other| one.1.total_cmp(other.1));
                lane.mpi.push((inside / step).min(1.0) as f32);
                lane.most.push(most.filter(|_| 2.0 * inside >= step).map(|(id, _)| {
                    let next = names.len() as u16;
                    *names.entry(*id).or_insert(next)
                }));
            }
            lanes.push(lane);
        }
    }
    let mut ordered: Vec<_> = names.into_iter().collect();
    ordered.sort_by_key(|(_, place)| *place);
    summary::Timeline {
        from: (timeline.origin as i64 - started as i64 + from) as f64 / 1e9,
        step: step / 1e9,
        columns,
        names: ordered.into_iter().map(|(id, _)| name(id)).collect(),
        lanes,
    }
}

#[cfg(test)]
mod tests {
    use record::trace::peer;
    use timeline::testing::{Lines, profile};

    use super::*;

    #[test]
    fn columns_hold_the_time_in_calls() {
        let (mut a, mut b) = (Lines::default(), Lines::default());
        a.call("Send", (0, 1000), (1, 7, 64));
        b.call("Recv", (0, 5000), (0, 7, 64));
        a.collective("Barrier", (9000, 10_000), peer::NONE, 0);
        let timeline = Timeline::open(profile(vec![a, b]).path()).unwrap().unwrap();
        let drawn = columns(&timeline, 10, 7_000_000_000 - 500, |rank| Some(rank.rank as usize));
        assert!((drawn.from - 5e-7).abs() < 1e-12 && (drawn.step - 1e-6).abs() < 1e-12);
        assert_eq!(drawn.names, ["MPI_Send", "MPI_Barrier", "MPI_Recv"]);
        assert_eq!(drawn.lanes[0].most.iter().flatten().count(), 2);
        assert_eq!(drawn.lanes[1].mpi[..6], [1.0, 1.0, 1.0, 1.0, 1.0, 0.0]);
    }
}
