//! What a message is addressed by: source, space and tag.

use machine::PeerIndex;

/// 64 bits that the application gives a message.
pub type Tag = u64;

/// Messages of one space never match receives of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Space {
    /// Messages that are told apart by tag.
    #[default]
    Tagged = 0,
    /// Messages without tags (libfabric's FI_MSG).
    Message = 1,
    /// Requests for remote memory and atomic operations.
    Remote = 2,
    /// The bytes that such requests move.
    RemoteData = 3,
}

impl Space {
    /// As it travels.
    #[inline]
    pub(crate) fn from_wire(byte: u8) -> Option<Space> {
        [Space::Tagged, Space::Message, Space::Remote, Space::RemoteData].get(usize::from(byte)).copied()
    }
}

/// What the sender writes on a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Label {
    pub space: Space,
    pub tag: Tag,
    /// 64 bits that are handed to the receiver beside the message and match nothing.
    pub data: Option<u64>,
}

impl Label {
    #[inline]
    pub fn new(space: Space, tag: Tag, data: Option<u64>) -> Self {
        Label { space, tag, data }
    }
}

impl From<Tag> for Label {
    fn from(tag: Tag) -> Self {
        Label { space: Space::Tagged, tag, data: None }
    }
}

/// Which messages of a space a receive takes: those equal to `tag` in every bit set in `mask`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TagSelector {
    pub(crate) tag: Tag,
    pub(crate) mask: u64,
    pub(crate) space: Space,
}

impl TagSelector {
    /// Exactly this tag.
    #[inline]
    pub fn exactly(tag: Tag) -> Self {
        TagSelector::masked(tag, u64::MAX)
    }

    /// Any tag.
    #[inline]
    pub fn any() -> Self {
        TagSelector::masked(0, 0)
    }

    /// Tags that agree with `tag` where `mask` has a 1.
    #[inline]
    pub fn masked(tag: Tag, mask: u64) -> Self {
        TagSelector { tag: tag & mask, mask, space: Space::Tagged }
    }

    /// The same in another space.
    #[inline]
    pub fn within(self, space: Space) -> Self {
        TagSelector { space, ..self }
    }

    #[inline]
    pub fn space(&self) -> Space {
        self.space
    }

    #[inline]
    pub fn tag(&self) -> Tag {
        self.tag
    }

    #[inline]
    pub fn mask(&self) -> u64 {
        self.mask
    }

    #[inline]
    pub fn takes(&self, space: Space, tag: Tag) -> bool {
        space == self.space && tag & self.mask == self.tag
    }
}

/// Whose messages a receive takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    Peer(PeerIndex),
    Any,
}

impl Source {
    #[inline]
    pub fn takes(&self, peer: PeerIndex) -> bool {
        match self {
            Source::Peer(wanted) => *wanted == peer,
            Source::Any => true,
        }
    }
}

/// A message seen from outside: who sent it (or, for a send, to whom), its label, its length as sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    pub peer: PeerIndex,
    pub space: Space,
    pub tag: Tag,
    pub data: Option<u64>,
    pub length: u64,
}

impl Envelope {
    #[inline]
    pub fn new(peer: PeerIndex, label: Label, length: u64) -> Self {
        Envelope { peer, space: label.space, tag: label.tag, data: label.data, length }
    }
}
