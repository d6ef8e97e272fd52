//! What a message is addressed by: source and tag.

use machine::PeerIndex;

/// 64 bits that the application gives a message.
pub type Tag = u64;

/// Which tags a receive takes: those equal to `tag` in every bit set in `mask`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TagSelector {
    pub(crate) tag: Tag,
    pub(crate) mask: u64,
}

impl TagSelector {
    /// Exactly this tag.
    pub fn exactly(tag: Tag) -> Self {
        TagSelector { tag, mask: u64::MAX }
    }

    /// Any tag.
    pub fn any() -> Self {
        TagSelector { tag: 0, mask: 0 }
    }

    /// Tags that agree with `tag` where `mask` has a 1.
    pub fn masked(tag: Tag, mask: u64) -> Self {
        TagSelector { tag: tag & mask, mask }
    }

    pub fn takes(&self, tag: Tag) -> bool {
        tag & self.mask == self.tag
    }
}

/// Whose messages a receive takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    Peer(PeerIndex),
    Any,
}

impl Source {
    pub fn takes(&self, peer: PeerIndex) -> bool {
        match self {
            Source::Peer(wanted) => *wanted == peer,
            Source::Any => true,
        }
    }
}

/// A message seen from outside: who sent it (or, for a send, to whom), its tag, its length as sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    pub peer: PeerIndex,
    pub tag: Tag,
    pub length: u64,
}
