//! Delays that are switched on and off in blocks within a run, alike in all ranks without communication.
//!
//! A block is a number of passes of the progress point, a call that every rank makes equally often. Blocks come in rounds of
//! 2^k: those of a round have the rows of Sylvester's Hadamard matrix, in an order that the seed gives, and each column of
//! delays follows a column of it. So each column is on in half of the blocks of a round, and in half of those in which any
//! other is on (Hedayat and Wallis, Annals of Statistics 6:6, 1978). Only columns with an odd number of bits are used: what two
//! together do beyond their sum is then seen in no third one (resolution IV; Box and Hunter, Technometrics 3:3, 1961).
//! The text form is
//! `progress=collectives,every=40,guard=4,seed=7/send=0ns/send=1us/byte=0.1ns,rank=3`.

use std::fmt;
use std::str::FromStr;

use machine::{Fault, Result};
use zerocopy::{FromBytes, IntoBytes};

use crate::functions::{self, FunctionId};
use crate::perturbation::{Peers, Perturbation};
use crate::seal;

/// Most columns of a schedule.
pub const COLUMNS: usize = 63;

/// Most blocks in a round.
const MOST_BLOCKS: usize = round(COLUMNS) as usize;

/// The call whose passes are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// All collective calls of the main thread over as many ranks as MPI_COMM_WORLD has, as one series.
    Collectives,
    /// Calls of the main thread from one place of the program.
    Site {
        function: FunctionId,
        /// The return address in the module's file.
        offset: u64,
        /// [`crate::layout::Module::identity`].
        module: u64,
    },
}

/// How a run is cut into blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    pub progress: Progress,
    /// Passes of the progress point in a block.
    pub every: u32,
    /// Passes after each switch that are not measured; fewer than `every`.
    pub guard: u32,
    /// 0: all columns are on in every block.
    pub seed: u64,
}

/// Columns of delays, and when each is on.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// `None`: all columns are on for the whole run.
    pub blocks: Option<Blocks>,
    /// From 1 to [`COLUMNS`] columns.
    pub columns: Vec<Perturbation>,
}

impl Schedule {
    /// Number of blocks in a round.
    pub fn round(&self) -> u64 {
        round(self.columns.len())
    }

    /// The columns that are on in a block, a bit each. Block 0 comes before the first round, and with a seed has none.
    pub fn on(&self, block: u64) -> u64 {
        let Some(blocks) = &self.blocks else { return !0 };
        if blocks.seed == 0 {
            return !0 >> (64 - self.columns.len());
        }
        let Some(past) = block.checked_sub(1) else { return 0 };
        let (round, place) = (past / self.round(), (past % self.round()) as usize);
        let mut rows = [(0, 0); MOST_BLOCKS];
        let rows = &mut rows[..self.round() as usize];
        for (row, key) in rows.iter_mut().enumerate() {
            *key = (seal::of_words(24, |word| [blocks.seed, round, row as u64, 0][word]), row as u64);
        }
        rows.sort_unstable();
        let row = rows[place].1;
        (0..self.columns.len() as u64).fold(0, |on, column| on | is_odd(row & nth_odd(column)) << column)
    }

    /// Whether any column asks for the hosts of ranks.
    pub fn by_host(&self) -> bool {
        self.columns.iter().any(|column| column.peers != Peers::All)
    }
}

/// Number of blocks in a round of so many columns: the least power of two that is twice as many.
pub const fn round(columns: usize) -> u64 {
    (2 * columns as u64).next_power_of_two()
}

/// The `nth` of the numbers with an odd number of bits.
fn nth_odd(nth: u64) -> u64 {
    2 * nth + 1 - is_odd(nth)
}

/// 1 where the number of bits is odd, else 0.
fn is_odd(bits: u64) -> u64 {
    (bits.count_ones() % 2).into()
}

const NEXT: &str = "write it like progress=collectives,every=40,guard=4,seed=7/send=0ns/send=1us";

impl FromStr for Schedule {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Schedule> {
        let refused = |cause: &str| Fault::new(format!("perturbation '{}'", text.escape_debug()), cause, NEXT);
        let mut parts = text.split('/').peekable();
        let blocks = match parts.next_if(|first| first.starts_with("progress=")) {
            Some(words) => Some(read(words).ok_or_else(|| {
                refused("its blocks have no progress, every, guard below every, and seed, in this order")
            })?),
            None => None,
        };
        let columns = parts.map(str::parse).collect::<Result<Vec<Perturbation>>>()?;
        if columns.is_empty() || columns.len() > if blocks.is_some() { COLUMNS } else { 1 } {
            return Err(refused("it has no column, or too many: 63 in blocks, else 1"));
        }
        Ok(Schedule { blocks, columns })
    }
}

fn read(words: &str) -> Option<Blocks> {
    let mut words = words.split(',');
    let mut value = |name: &str| words.next()?.strip_prefix(name)?.strip_prefix('=');
    let progress = value("progress")?.parse().ok()?;
    let (every, guard) = (value("every")?.parse().ok()?, value("guard")?.parse().ok()?);
    let seed = value("seed")?.parse().ok()?;
    (words.next().is_none() && guard < every).then_some(Blocks { progress, every, guard, seed })
}

impl FromStr for Progress {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Progress> {
        let site = || {
            let (name, place) = text.split_once('+')?;
            let (offset, module) = place.split_once('@')?;
            let hexadecimal = |word| u64::from_str_radix(word, 16).ok();
            let function = functions::named(name)?.id;
            Some(Progress::Site { function, offset: hexadecimal(offset)?, module: hexadecimal(module)? })
        };
        if text == "collectives" {
            return Ok(Progress::Collectives);
        }
        let subject = || format!("progress point '{}'", text.escape_debug());
        site().ok_or_else(|| Fault::new(subject(), "it is none", "write collectives, or FUNCTION+OFFSET@MODULE"))
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Progress::Collectives => f.write_str("collectives"),
            Progress::Site { function, offset, module } => {
                let name = functions::function(*function).map_or("", |function| function.name);
                write!(f, "{name}+{offset:x}@{module:x}")
            }
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(Blocks { progress, every, guard, seed }) = &self.blocks {
            parts.push(format!("progress={progress},every={every},guard={guard},seed={seed}"));
        }
        parts.extend(self.columns.iter().map(ToString::to_string));
        f.write_str(&parts.join("/"))
    }
}

/// What a rank noted at the end of a block, and when a block's guard was over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mark {
    pub ticks: u64,
    /// Passes of the progress point so far.
    pub count: u64,
    /// The columns that were on before it, a bit each.
    pub on: u64,
    /// Messages that the main thread has begun.
    pub messages: u64,
    /// Ticks injected so far, by column.
    pub doses: Vec<u64>,
}

impl Mark {
    /// Bytes of a mark in the tables.
    pub const fn bytes(columns: usize) -> usize {
        8 * (5 + columns)
    }

    /// Whether marks of so many bytes can be.
    pub fn is_length(bytes: usize) -> bool {
        bytes.is_multiple_of(8) && (Mark::bytes(1)..=Mark::bytes(COLUMNS)).contains(&bytes)
    }

    /// The mark in the tables: its words, and a seal of them.
    pub fn words(&self) -> Vec<u64> {
        let mut words = vec![self.ticks, self.count, self.on, self.messages];
        words.extend(&self.doses);
        words.push(seal::of(words.as_bytes()));
        words
    }

    /// The mark in these bytes; `None` where they are damaged.
    pub fn read(bytes: &[u8]) -> Option<Mark> {
        let words: Vec<u64> = bytes.chunks_exact(8).flat_map(u64::read_from_bytes).collect();
        let (seal, words) = words.split_last()?;
        let [ticks, count, on, messages, doses @ ..] = words else { return None };
        let mark = Mark { ticks: *ticks, count: *count, on: *on, messages: *messages, doses: doses.to_vec() };
        (*seal == seal::of(words.as_bytes())).then_some(mark)
    }
}

#[cfg(test)]
mod tests;
