//! Grouping of ranks by MPI_COMM_WORLD.
//!
//! The launcher's name of a job distinguishes launches. A script for each rank may run several MPI programs one after the
//! other: then one name has each rank several times.

use std::collections::{BTreeMap, BTreeSet};

use machine::{Fault, Result, count};

use crate::layout::{Header, words};

/// One MPI_COMM_WORLD of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct World {
    /// The launcher's name of the world; programs after the first of a launch have their number added.
    pub name: String,
    /// Number of its ranks, some of which may have left no file.
    pub size: u32,
    /// The files of its programs, in the order of their first ranks.
    pub programs: Vec<String>,
}

impl World {
    pub fn program(&self) -> String {
        if self.programs.is_empty() { "a program not known".into() } else { self.programs.join(" and ") }
    }
}

/// A world in words: `world 0 of 2 (/home/me/a)`.
pub fn named(worlds: &[World], place: usize) -> String {
    let program = worlds.get(place).map_or_else(String::new, |world| format!(" ({})", world.program()));
    format!("world {place} of {}{program}", worlds.len())
}

/// # Errors
/// There is no world of this number.
pub fn check_world(worlds: &[World], place: usize) -> Result<()> {
    if place < worlds.len() {
        return Ok(());
    }
    let known: Vec<String> = worlds.iter().enumerate().map(|(at, of)| format!("{at} ({})", of.program())).collect();
    let cause = format!("the profile has {}: {}", count::of(worlds.len() as u64, "world"), known.join(", "));
    Err(Fault::new(format!("world {place}"), cause, "name one of these with --world, or leave it out for the first"))
}

/// The worlds of these ranks in the order in which they began, and the index of each rank's world.
pub fn of<'h>(headers: impl IntoIterator<Item = &'h Header>) -> (Vec<World>, Vec<usize>) {
    let headers: Vec<&Header> = headers.into_iter().collect();
    let mut launches: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, header) in headers.iter().enumerate() {
        launches.entry(words(&header.world)).or_default().push(at);
    }
    // Begin, world and ranks of each.
    let mut found: Vec<(u64, World, Vec<usize>)> = Vec::new();
    for (name, ranks) in launches {
        for (nth, mut ranks) in in_turn(&headers, ranks).into_iter().enumerate() {
            ranks.sort_by_key(|at| headers[*at].rank);
            let mut programs: Vec<String> = Vec::new();
            for program in ranks.iter().map(|at| words(&headers[*at].program)).filter(|program| !program.is_empty()) {
                if !programs.contains(&program) {
                    programs.push(program);
                }
            }
            let name = if nth == 0 { name.clone() } else { format!("{name}, program {}", nth + 1) };
            let size = ranks.iter().map(|at| headers[*at].size).max().unwrap_or(0);
            let began = ranks.iter().map(|at| headers[*at].started.realtime).min().unwrap_or(0);
            found.push((began, World { name, size, programs }, ranks));
        }
    }
    // The world that spawned others began first.
    found.sort_by(|one, other| (one.0, &one.1.name).cmp(&(other.0, &other.1.name)));
    let mut places = vec![0; headers.len()];
    for (place, (_, _, ranks)) in found.iter().enumerate() {
        ranks.iter().for_each(|at| places[*at] = place);
    }
    (found.into_iter().map(|(_, world, _)| world).collect(), places)
}

/// The ranks of one launch, divided into the programs that it ran one after the other: mostly one.
fn in_turn(headers: &[&Header], mut ranks: Vec<usize>) -> Vec<Vec<usize>> {
    ranks.sort_by_key(|at| headers[*at].started.realtime);
    let mut by_rank: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    ranks.iter().for_each(|at| by_rank.entry(headers[*at].rank).or_default().push(*at));
    let most = by_rank.values().map(Vec::len).max().unwrap_or(0);
    if most <= 1 {
        return vec![ranks];
    }
    // Every rank ran all programs, so that the nth runs belong together, and clocks of hosts need not agree.
    if by_rank.values().all(|of| of.len() == most) {
        return (0..most).map(|nth| by_rank.values().map(|of| of[nth]).collect()).collect();
    }
    // No rank begins after another of its world has ended, since MPI_Init waits for all.
    let (mut turns, mut seen, mut until): (Vec<Vec<usize>>, BTreeSet<u32>, u64) = (Vec::new(), BTreeSet::new(), 0);
    for at in ranks {
        let header = headers[at];
        let is_of_next = header.started.realtime > until || !seen.insert(header.rank);
        match turns.last_mut() {
            Some(turn) if !is_of_next => {
                turn.push(at);
                until = until.min(header.latest.realtime);
            }
            _ => {
                turns.push(vec![at]);
                seen = BTreeSet::from([header.rank]);
                until = header.latest.realtime;
            }
        }
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Image;
    use crate::layout::text;

    /// A rank that began and ended at these times.
    fn rank(world: &str, program: &str, rank: u32, (from, to): (u64, u64)) -> Header {
        let mut header = Image::default().header;
        (header.rank, header.size) = (rank, 2);
        (header.started.realtime, header.latest.realtime) = (from, to);
        (header.world, header.program) = (text(world), text(program));
        header
    }

    #[test]
    fn programs_that_one_launch_runs_in_turn_are_worlds_of_their_own() {
        let all = [
            rank("w", "b", 0, (51, 60)),
            rank("w", "a", 1, (11, 40)),
            rank("v", "c", 0, (5, 90)),
            rank("w", "b", 1, (50, 60)),
            rank("w", "a", 0, (10, 41)),
        ];
        let (worlds, places) = of(&all);
        let names: Vec<_> = worlds.iter().map(|world| (world.name.as_str(), world.program(), world.size)).collect();
        let program = str::to_owned;
        assert_eq!(names, [("v", program("c"), 2), ("w", program("a"), 2), ("w, program 2", program("b"), 2)]);
        assert_eq!(places, [2, 1, 0, 2, 1]);
        assert_eq!(named(&worlds, 1), "world 1 of 3 (a)");
        check_world(&worlds, 2).unwrap();
        assert_eq!(check_world(&worlds, 3).unwrap_err().cause(), "the profile has 3 worlds: 0 (c), 1 (a), 2 (b)");
    }

    #[test]
    fn a_rank_without_tables_does_not_mix_programs_up() {
        // Rank 0 of the first program left no file.
        let all = [rank("w", "a", 1, (11, 40)), rank("w", "b", 0, (51, 60)), rank("w", "b", 1, (50, 60))];
        assert_eq!(of(&all).1, [0, 1, 1]);
        // Rank 0 of the second program left no file.
        let all = [rank("w", "a", 0, (10, 40)), rank("w", "a", 1, (11, 40)), rank("w", "b", 1, (50, 60))];
        assert_eq!(of(&all).1, [0, 0, 1]);
    }

    #[test]
    fn ranks_that_are_there_once_are_one_world_whatever_their_clocks_say() {
        let all = [rank("w", "a", 0, (10, 40)), rank("w", "b", 1, (5000, 6000))];
        let (worlds, places) = of(&all);
        assert_eq!((places, worlds.len(), worlds[0].program()), (vec![0, 0], 1, "a and b".into()));
        assert!(of([]).0.is_empty());
    }
}
