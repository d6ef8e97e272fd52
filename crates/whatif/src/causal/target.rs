//! What is delayed, and where: `send`, `compute@rank:3`, `receive@other-host`.

use std::fmt;
use std::str::FromStr;

use machine::{Fault, Result};
use record::layout::injected;
use record::perturbation::{Peers, Perturbation};
use serde::{Serialize, Serializer};

machine::named! {
    /// The kind of work that is delayed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Factor ("factor") {
        /// The sender's work for a message.
        Send = "send",
        /// The receiver's work for a message.
        Receive = "receive",
        /// The sender's work for a byte.
        Byte = "byte",
        /// Computing between the program's calls.
        Compute = "compute",
    }
}

impl Factor {
    /// The index of its delays in a thread's record.
    pub(super) fn kind(self) -> usize {
        match self {
            Factor::Send | Factor::Byte => injected::SEND,
            Factor::Receive => injected::RECEIVE,
            Factor::Compute => injected::COMPUTE,
        }
    }
}

/// Where a factor is delayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Everywhere,
    /// Messages with ranks of the same host, or of others.
    Peers(Peers),
    Rank(u32),
    /// Each rank on its own.
    Ranks,
}

/// A factor at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Target {
    pub factor: Factor,
    pub place: Place,
}

impl Target {
    /// These delays at the target's place alone.
    pub fn at_place(self, what: Perturbation) -> Perturbation {
        match self.place {
            Place::Everywhere | Place::Ranks => what,
            Place::Peers(peers) => Perturbation { peers, ..what },
            Place::Rank(rank) => Perturbation { rank: Some(rank), ..what },
        }
    }

    /// Whether it is delayed in this rank.
    pub fn is_in(self, rank: usize) -> bool {
        !matches!(self.place, Place::Rank(only) if only as usize != rank)
    }

    /// The target, or one for each rank.
    pub fn each(self, ranks: usize) -> Vec<Target> {
        match self.place {
            Place::Ranks => (0..ranks as u32).map(|rank| Target { place: Place::Rank(rank), ..self }).collect(),
            _ => vec![self],
        }
    }
}

impl FromStr for Target {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Target> {
        let (factor, place) = text.split_once('@').map_or((text, None), |(factor, place)| (factor, Some(place)));
        let factor: Factor = factor.parse()?;
        let refused = |cause: &str, next: &str| Fault::new(format!("factor '{}'", text.escape_debug()), cause, next);
        let place = match place {
            None => Place::Everywhere,
            Some("same-host") => Place::Peers(Peers::SameHost),
            Some("other-host") => Place::Peers(Peers::OtherHost),
            Some("ranks") => Place::Ranks,
            Some(one) => match one.strip_prefix("rank:").map(str::parse) {
                Some(Ok(rank)) => Place::Rank(rank),
                _ => {
                    return Err(refused(
                        "that is no place",
                        "choose rank:N, ranks, same-host or other-host after the @",
                    ));
                }
            },
        };
        if factor == Factor::Compute && matches!(place, Place::Peers(_)) {
            return Err(refused("computing has no peers", "choose compute@rank:N or compute@ranks"));
        }
        Ok(Target { factor, place })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::Everywhere => write!(f, "{}", self.factor),
            place => write!(f, "{}@{place}", self.factor),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Everywhere | Place::Peers(Peers::All) => f.write_str("all"),
            Place::Peers(Peers::SameHost) => f.write_str("same-host"),
            Place::Peers(Peers::OtherHost) => f.write_str("other-host"),
            Place::Rank(rank) => write!(f, "rank:{rank}"),
            Place::Ranks => f.write_str("ranks"),
        }
    }
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_read_back_and_what_is_none_is_refused() {
        for text in ["send", "byte@other-host", "receive@same-host", "compute@rank:3", "send@ranks"] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        for (text, why) in [
            ("latency", "choose send"),
            ("send@near", "choose rank:N"),
            ("send@rank:x", "choose rank:N"),
            ("compute@other-host", "no peers"),
        ] {
            let fault = text.parse::<Target>().unwrap_err().to_string();
            assert!(fault.contains(why), "{fault}");
        }
    }

    #[test]
    fn all_ranks_are_one_target_each() {
        let all = "compute@ranks".parse::<Target>().unwrap().each(3);
        assert_eq!(
            all.iter().map(Target::to_string).collect::<Vec<_>>(),
            ["compute@rank:0", "compute@rank:1", "compute@rank:2"]
        );
        assert_eq!([0, 1].map(|rank| all[1].is_in(rank)), [false, true]);
        assert_eq!(all[2].at_place(Perturbation::default()).rank, Some(2));
    }
}
