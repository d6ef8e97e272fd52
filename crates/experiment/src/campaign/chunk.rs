//! Chunks of a study, one for each job of a batch system. A chunk has whole blocks, all of the same needs.

use std::collections::BTreeMap;

use machine::{Hertz, Nanoseconds};

use rounds::random::Random;

/// Resources that a job must have for a point.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Needs {
    pub nodes: u32,
    /// Clock that the node's cores are set to.
    pub clock: Option<Hertz>,
}

/// The points of a block that have runs to come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    pub needs: Needs,
    /// Indices of the points in the file.
    pub points: Vec<usize>,
    /// Expected time of their runs.
    pub takes: Nanoseconds,
}

/// Points that one job runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    pub needs: Needs,
    pub points: Vec<usize>,
    pub takes: Nanoseconds,
}

/// Size of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Longest time of a chunk, unless a single block takes longer.
    Within(Nanoseconds),
    /// Approximate number of chunks in all, at least one for each kind of needs.
    About(u32),
}

/// Deals blocks in random order to chunks of about equal length, so that no chunk has all slow values of an axis.
pub fn chunks(blocks: &[Block], size: Size, seed: u64) -> Vec<Chunk> {
    let mut kinds: BTreeMap<Needs, Vec<&Block>> = BTreeMap::new();
    for block in blocks {
        kinds.entry(block.needs).or_default().push(block);
    }
    let total: f64 = blocks.iter().map(|block| block.takes.0 as f64).sum();
    let mut all = Vec::new();
    for (nth, (needs, mut of)) in kinds.into_iter().enumerate() {
        Random::stream(seed, nth as u64).shuffle(&mut of);
        let sum: f64 = of.iter().map(|block| block.takes.0 as f64).sum();
        let dealt = match size {
            Size::About(count) => {
                let share = if total > 0.0 { sum / total } else { of.len() as f64 / blocks.len() as f64 };
                deal(needs, &of, (share * f64::from(count)).round() as usize)
            }
            Size::Within(most) => within(needs, &of, most),
        };
        all.extend(dealt);
    }
    all
}

/// Few chunks, none longer than `most`; at most one for each block.
fn within(needs: Needs, blocks: &[&Block], most: Nanoseconds) -> Vec<Chunk> {
    let sum: u64 = blocks.iter().map(|block| block.takes.0).sum();
    let mut count = sum.div_ceil(most.0.max(1)).max(1) as usize;
    loop {
        let dealt = deal(needs, blocks, count);
        if count >= blocks.len() || dealt.iter().all(|chunk| chunk.takes <= most) {
            return dealt;
        }
        count += 1 + count / 16;
    }
}

/// Deals each block to the shortest chunk so far.
fn deal(needs: Needs, blocks: &[&Block], count: usize) -> Vec<Chunk> {
    let count = count.clamp(1, blocks.len().max(1));
    let mut chunks = vec![Chunk { needs, points: Vec::new(), takes: Nanoseconds(0) }; count];
    for block in blocks {
        // Blocks of unknown length have time 0: the number of points then decides.
        let least =
            chunks.iter_mut().min_by_key(|chunk| (chunk.takes, chunk.points.len())).expect("there is one at least");
        least.points.extend(&block.points);
        least.takes = least.takes + block.takes;
    }
    chunks.iter_mut().for_each(|chunk| chunk.points.sort_unstable());
    chunks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn blocks() -> impl Strategy<Value = Vec<Block>> {
        let block = (1u32..3, proptest::option::of(1u64..3), 1usize..4, 0u64..1000);
        proptest::collection::vec(block, 1..60).prop_map(|all| {
            let mut next = 0;
            let block = |(nodes, clock, points, takes): (u32, Option<u64>, usize, u64)| {
                next += points;
                let needs = Needs { nodes, clock: clock.map(Hertz) };
                Block { needs, points: (next - points..next).collect(), takes: Nanoseconds(takes) }
            };
            all.into_iter().map(block).collect()
        })
    }

    proptest! {
        #[test]
        fn each_block_is_whole_in_one_chunk_of_its_kind(blocks in blocks(), size in 1u32..40, by_time: bool, seed: u64) {
            let size = if by_time { Size::Within(Nanoseconds(u64::from(size) * 50)) } else { Size::About(size) };
            let chunks = chunks(&blocks, size, seed);
            let mut points: Vec<usize> = chunks.iter().flat_map(|chunk| chunk.points.clone()).collect();
            points.sort_unstable();
            let all: Vec<usize> = blocks.iter().flat_map(|block| block.points.clone()).collect();
            prop_assert_eq!(points, all);
            for block in &blocks {
                let of = chunks.iter().find(|chunk| chunk.points.contains(&block.points[0])).unwrap();
                prop_assert_eq!(of.needs, block.needs);
                prop_assert!(block.points.iter().all(|point| of.points.contains(point)));
            }
            prop_assert!(chunks.iter().all(|chunk| !chunk.points.is_empty()));
        }

        #[test]
        fn chunks_are_within_what_is_asked_or_a_block_is_not(blocks in blocks(), most in 1u64..3000, seed: u64) {
            let most = Nanoseconds(most);
            for chunk in chunks(&blocks, Size::Within(most), seed) {
                let of: Vec<&Block> = blocks.iter().filter(|block| chunk.points.contains(&block.points[0])).collect();
                prop_assert!(chunk.takes <= most || of.len() == 1, "{chunk:?}");
                prop_assert_eq!(chunk.takes.0, of.iter().map(|block| block.takes.0).sum::<u64>());
            }
        }

        #[test]
        fn equal_blocks_are_dealt_evenly(count in 1u32..20, blocks in 1usize..100, seed: u64) {
            let block = |nth| Block { needs: Needs::default(), points: vec![nth], takes: Nanoseconds(7) };
            let dealt = chunks(&(0..blocks).map(block).collect::<Vec<_>>(), Size::About(count), seed);
            let lengths: Vec<usize> = dealt.iter().map(|chunk| chunk.points.len()).collect();
            prop_assert_eq!(lengths.len(), blocks.min(count as usize));
            prop_assert!(lengths.iter().max().unwrap() - lengths.iter().min().unwrap() <= 1, "{lengths:?}");
        }
    }
}
