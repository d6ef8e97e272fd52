//! What is kept of one job. Arguments and environment are not: they may hold secrets.
//!
//! A file of the spool holds one summary as JSON. Its words come from users, so that their lengths and characters are checked
//! before anything else sees them.

use machine::named;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Raised when a field changes its meaning or goes away; new fields do not raise it.
pub const VERSION: u32 = 1;
/// Bytes of a file of the spool.
pub const FILE_MOST: u64 = 64 << 10;
/// Bytes of a word: a name of a program, partition, group, cluster or library.
const WORD_MOST: usize = 96;
const SIZES_MOST: usize = 64;
const HINDRANCES_MOST: usize = 32;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub version: u32,
    pub job: Job,
    pub owner: Owner,
    pub partition: String,
    pub program: Program,
    /// Of the job's first host by its clock, in seconds since 1970.
    pub started: u64,
    /// Seconds of the longest rank, by a clock that nobody sets.
    pub seconds: f64,
    pub nodes: u32,
    /// Cores that the job held.
    pub cores: u32,
    /// Ranks with tables, and ranks of its worlds.
    pub ranks: u32,
    pub expected: u32,
    pub end: End,
    /// The MPI library's own name.
    pub library: Option<String>,
    /// Shares of the ranks' time: in MPI; of it, waiting.
    pub mpi: Option<f64>,
    pub wait: Option<f64>,
    pub sizes: Vec<Size>,
    pub hindrances: Vec<Hindrance>,
    pub levers: Vec<Gain>,
    /// Why no lever could be judged.
    pub unjudged: Option<Unjudged>,
    /// Version of the rules behind the levers.
    pub model: String,
    /// Seconds by which the clocks of its hosts differ, where that is more than a minute.
    #[serde(default)]
    pub clocks_apart: Option<u64>,
    /// Ranks that may run on several cores, the first of them another's of its host too; `None`: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unbound: Option<u32>,
}

/// A job's step among all steps of all clusters. Jobs of an array, restarts and clusters of a federation may have one number; their
/// beginnings differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub cluster: String,
    pub id: u64,
    pub array: Option<u32>,
    pub step: u32,
    pub restart: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub user: u32,
    /// The name of the user's group.
    pub group: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Of the file's content, in 32 hexadecimal digits; none where the file could not be read.
    pub hash: Option<String>,
    /// File name.
    pub name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Size {
    /// Smallest message of the class, in bytes; the next class begins at twice that.
    pub floor: u64,
    pub messages: u64,
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hindrance {
    pub cause: String,
    /// Of the run.
    pub share: f64,
}

/// What a lever would save, as shares of the run's time; least and most. Negative where it costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    pub lever: Lever,
    pub share: (f64, f64),
}

named! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Lever {
        Offload = "offload",
        DedicatedCore = "dedicated core",
        Mapping = "mapping",
        Clock = "clock +10 %",
    }
}

named! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum End {
        Finished = "finished",
        Failed = "failed",
        Killed = "killed",
    }
}

named! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Unjudged {
        NoTables = "no rank left tables",
        LostRanks = "ranks without tables",
        TooShort = "too short to tell",
        CannotTell = "nothing bounds a gain",
    }
}

impl Summary {
    /// Reads a file of the spool.
    ///
    /// # Errors
    /// The reason why it is no summary of a job, without its words.
    pub fn parse(bytes: &[u8]) -> Result<Summary, String> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let damaged = |e: serde_json::Error| format!("it is damaged at byte {}", e.column());
        let Version { version } = serde_json::from_slice(bytes).map_err(damaged)?;
        if version > VERSION {
            return Err(format!("a newer plimsoll wrote it: version {version}, and this one knows {VERSION}"));
        }
        let summary: Summary = serde_json::from_slice(bytes).map_err(damaged)?;
        summary.check().map_err(|what| format!("its {what} cannot be"))?;
        Ok(summary)
    }

    fn check(&self) -> Result<(), &'static str> {
        let Summary { job, owner, partition, program, library, model, .. } = self;
        let causes = self.hindrances.iter().map(|hindrance| &hindrance.cause);
        let words = [&job.cluster, &owner.group, partition, &program.name, model];
        if !words
            .into_iter()
            .chain(library)
            .chain(causes)
            .all(|word| word.len() <= WORD_MOST && !word.contains(char::is_control))
        {
            return Err("word");
        }
        if !program.hash.as_ref().is_none_or(|hash| hash.len() == 32 && hash.bytes().all(|c| c.is_ascii_hexdigit())) {
            return Err("program");
        }
        let within = |value: f64, least: f64, most: f64| (least..=most).contains(&value);
        // Until the year 2200, and a job of a year on ten million cores.
        if self.started > 7_258_118_400 || !within(self.seconds, 0.0, 4e7) || self.cores > 10_000_000 {
            return Err("time or size");
        }
        if self.sizes.len() > SIZES_MOST
            || self.hindrances.len() > HINDRANCES_MOST
            || self.ranks > self.expected
            || self.unbound.is_some_and(|unbound| unbound > self.ranks)
        {
            return Err("number of parts");
        }
        let shares = [self.mpi, self.wait].into_iter().flatten();
        if !shares.chain(self.hindrances.iter().map(|hindrance| hindrance.share)).all(|share| within(share, 0.0, 1.0)) {
            return Err("share");
        }
        let gain = |gain: &Gain| within(gain.share.0, -1.0, gain.share.1) && gain.share.1 <= 1.0;
        let once = |gain: &Gain| self.levers.iter().filter(|other| other.lever == gain.lever).count() == 1;
        if !self.levers.iter().all(|each| gain(each) && once(each)) {
            return Err("gain");
        }
        Ok(())
    }

    /// Seconds of all cores that the job held.
    pub fn core_seconds(&self) -> f64 {
        self.seconds * f64::from(self.cores)
    }

    pub fn gain(&self, of: Lever) -> Option<(f64, f64)> {
        self.levers.iter().find(|gain| gain.lever == of).map(|gain| gain.share)
    }

    /// Tells this step from all others: the time of its start in five bytes, and a digest.
    pub fn key(&self) -> [u8; 16] {
        let Job { cluster, id, array, step, restart } = &self.job;
        let digest = short(format!("{cluster}\n{id} {array:?} {step} {restart} {}", self.started).as_bytes());
        let mut key = [0; 16];
        key[..5].copy_from_slice(&self.started.to_be_bytes()[3..]);
        key[5..].copy_from_slice(&digest[..11]);
        key
    }
}

/// The word of a lever or a reason in files, columns and labels.
pub(crate) fn word(of: impl Serialize) -> String {
    let word = serde_json::to_value(of).expect("it serializes");
    word.as_str().unwrap_or_default().to_owned()
}

/// The first half of a SHA-256.
pub fn short(bytes: &[u8]) -> [u8; 16] {
    Sha256::digest(bytes)[..16].try_into().expect("16 of 32 bytes")
}
