//! A flood of messages without posted receives.

use std::time::{Duration, Instant};

use machine::{Bytes, Reading, Result};
use serde::{Deserialize, Serialize};

use super::Semantics;
use super::footprint::Footprint;
use super::layer::Layer;
use super::wiring::World;
use super::work::{Buffers, stuck};

/// Number of one peer's messages, and their size.
pub const MESSAGES: u32 = 40_000;
pub const SIZE: usize = 1000;

/// Polls of both ends without a packet after which no more will come.
const STILL: u32 = 2000;

/// Results of a flood.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Flood {
    pub semantics: Semantics,
    /// Messages that the receiver holds, their payload, and the growth of its memory.
    pub held: u64,
    pub held_bytes: Bytes,
    pub grown: Reading<Bytes>,
    /// Time to take in one unwanted message, and to receive it later, nanoseconds.
    pub hold: f64,
    pub claim: f64,
}

impl<L: Layer> World<L> {
    /// Leaf 0 floods the hub.
    pub fn flood(&mut self, semantics: Semantics) -> Result<Flood> {
        let World { hub, leaves } = self;
        let leaf = &mut leaves[0];
        let mut at_leaf = Buffers::new(MESSAGES as usize, SIZE);
        let mut at_hub = Buffers::new(MESSAGES as usize, SIZE);
        while let Some(message) = at_leaf.take() {
            leaf.send(0, message)?;
            // Ended requests are of no more use.
            while leaf.ended()?.is_some() {}
        }
        let (mut spent, mut still, mut grown) = (Duration::ZERO, 0, 0u64);
        let mut unknown = None;
        while still < STILL {
            let before = Footprint::look();
            let began = Instant::now();
            let came = hub.turn()?;
            spent += if came { began.elapsed() } else { Duration::ZERO };
            match before.heap_growth(1) {
                Reading::Measured(more) => grown += more.0,
                other => unknown = Some(other),
            }
            let moved = leaf.turn()?;
            while leaf.ended()?.is_some() {}
            still = if came || moved { 0 } else { still + 1 };
        }
        let (held, held_bytes) = hub.unexpected();
        let hold = spent.as_nanos() as f64 / held.max(1) as f64;

        let began = Instant::now();
        let (mut posted, mut received, mut claiming) = (0u64, 0, Duration::ZERO);
        while received < MESSAGES {
            let turn = Instant::now();
            while let Some(message) = at_hub.take().filter(|_| posted < u64::from(MESSAGES)) {
                hub.receive(0, message)?;
                posted += 1;
                if posted == held {
                    claiming = turn.elapsed();
                }
            }
            hub.turn()?;
            while let Some(ended) = hub.ended()? {
                received += u32::from(ended.received);
            }
            leaf.turn()?;
            while leaf.ended()?.is_some() {}
            if began.elapsed() > Duration::from_secs(30) {
                return Err(stuck("the flood"));
            }
        }
        Ok(Flood {
            semantics,
            held,
            held_bytes: Bytes(held_bytes),
            grown: unknown.unwrap_or(Reading::Measured(Bytes(grown))),
            hold,
            claim: claiming.as_nanos() as f64 / held.max(1) as f64,
        })
    }
}
