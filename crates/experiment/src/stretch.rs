//! Adjacent sizes that share an answer: joined as long as one place suffices at all of them.

use std::collections::BTreeSet;

use machine::{Bytes, CoreId, Site};

use rounds::point::{Contender, Stack};

/// Adjacent sizes for which one answer suffices.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stretch {
    pub from: Bytes,
    pub to: Bytes,
    /// Places not shown to be worse than the best at any of the sizes.
    pub allowed: BTreeSet<Place>,
    /// The best place and its gain, for each row of the stretch.
    pub rows: Vec<(Answer, Option<Gain>)>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    At(Place),
    Either(BTreeSet<Place>),
    CannotTell(BTreeSet<Place>),
}

impl Stretch {
    /// Both stretches as one, where a place suffices in both; two places where neither stretch has a decided one.
    pub fn with(&self, next: &Stretch) -> Option<Stretch> {
        let allowed: BTreeSet<Place> = self.allowed.intersection(&next.allowed).copied().collect();
        let rows = [&self.rows[..], &next.rows[..]].concat();
        let told = rows.iter().any(|(answer, _)| !matches!(answer, Answer::CannotTell(_)));
        let (from, to) = (self.from.min(next.from), self.to.max(next.to));
        (allowed.len() > usize::from(!told)).then_some(Stretch { from, to, allowed, rows })
    }

    /// Whether the stretch allows the answer of `other`.
    pub fn agrees(&self, other: &Stretch) -> bool {
        match other.answer() {
            Answer::At(place) => self.allowed.contains(&place),
            answer => self.answer() == answer,
        }
    }

    /// The most chosen place of those that suffice everywhere.
    pub fn answer(&self) -> Answer {
        let chosen = |place: &Place| self.rows.iter().filter(|(answer, _)| *answer == Answer::At(*place)).count();
        let most = self.allowed.iter().copied().rev().max_by_key(chosen);
        let told = self.rows.iter().all(|(answer, _)| !matches!(answer, Answer::CannotTell(_)));
        match most {
            Some(place) if chosen(&place) > 0 || self.allowed.len() == 1 => Answer::At(place),
            _ if told => Answer::Either(self.allowed.clone()),
            _ => Answer::CannotTell(self.allowed.clone()),
        }
    }

    /// The gains at `place`.
    pub fn gains(&self, place: Place) -> Vec<Gain> {
        let gain = |(answer, gain): &(Answer, Option<Gain>)| match answer {
            Answer::At(best) if *best == place => *gain,
            Answer::At(_) | Answer::CannotTell(_) => Some(Gain::NoSlower),
            Answer::Either(_) => None,
        };
        self.rows.iter().filter_map(gain).collect()
    }
}

/// What moves the messages, and the core that it has for itself; for the receiver, whether it has the protocol's core or
/// another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Stack(Stack, Option<CoreId>),
    Together,
    Apart,
}

impl Place {
    pub fn of(contender: &Contender) -> Place {
        let core = if let Site::Core(core) = contender.placement { Some(core) } else { None };
        Place::Stack(contender.stack, core)
    }

    pub fn name(self) -> String {
        let (stack, core) = match self {
            Place::Together => return "together".into(),
            Place::Apart => return "apart".into(),
            Place::Stack(stack, core) => (stack, core),
        };
        let name = match stack {
            Stack::EngineShm => "shm",
            Stack::EngineUdp => "UDP",
            Stack::EngineAfxdp => "AF_XDP",
            Stack::EngineXdp => "XDP",
            Stack::Tcp => "TCP",
            Stack::Udp => "kernel UDP",
            Stack::OpenMpi => "Open MPI",
        };
        core.map_or(name.to_owned(), |core| format!("{name} (core:{})", core.0))
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Gain {
    Faster(f64),
    Cheaper(f64),
    /// As fast or faster.
    NoSlower,
}

/// Neighbours as one, as long as one place suffices at all of their sizes.
pub(crate) fn joined(stretches: impl IntoIterator<Item = Stretch>) -> Vec<Stretch> {
    let mut joined: Vec<Stretch> = Vec::new();
    for next in stretches {
        match joined.last().and_then(|last| last.with(&next)) {
            Some(both) => {
                joined.pop();
                joined.push(both);
            }
            None => joined.push(next),
        }
    }
    joined
}
