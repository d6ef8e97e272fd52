//! The address of a message: source, space and tag.

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
    /// The space whose number is `byte`.
    #[inline]
    pub fn from_wire(byte: u8) -> Option<Space> {
        match byte {
            0 => Some(Space::Tagged),
            1 => Some(Space::Message),
            2 => Some(Space::Remote),
            3 => Some(Space::RemoteData),
            _ => None,
        }
    }
}

/// The sender's marks on a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Label {
    /// The space in which the message is matched.
    pub space: Space,
    /// The tag that a receive's selector is compared with.
    pub tag: Tag,
    /// 64 bits that are handed to the receiver beside the message and match nothing.
    pub data: Option<u64>,
}

impl Label {
    /// A label of these three parts.
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

/// The messages of a space that a receive takes: those equal to `tag` in every bit set in `mask`.
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

    /// The same tags in another space.
    #[inline]
    pub fn within(self, space: Space) -> Self {
        TagSelector { space, ..self }
    }

    /// The space whose messages are selected.
    #[inline]
    pub fn space(&self) -> Space {
        self.space
    }

    /// The tag, with 0 in every bit that is not compared.
    #[inline]
    pub fn tag(&self) -> Tag {
        self.tag
    }

    /// The bits of the tag that are compared.
    #[inline]
    pub fn mask(&self) -> u64 {
        self.mask
    }

    /// Whether a message of this space and tag is selected.
    #[inline]
    pub fn takes(&self, space: Space, tag: Tag) -> bool {
        space == self.space && tag & self.mask == self.tag
    }
}

/// The senders from which a receive takes messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// The messages of one peer.
    Peer(PeerIndex),
    /// The messages of every peer.
    Any,
}

impl Source {
    /// Whether the source includes this peer.
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
    /// The sender; for a send, the receiver.
    pub peer: PeerIndex,
    /// The space in which the message was matched.
    pub space: Space,
    /// The tag that the sender wrote on it.
    pub tag: Tag,
    /// The data that the sender attached.
    pub data: Option<u64>,
    /// Bytes that were sent, even where the receiver's buffer was shorter.
    pub length: u64,
}

impl Envelope {
    /// The envelope of a message with this label.
    #[inline]
    pub fn new(peer: PeerIndex, label: Label, length: u64) -> Self {
        Envelope { peer, space: label.space, tag: label.tag, data: label.data, length }
    }

    /// The envelope of a receive that no message came for.
    pub fn nothing(source: Source, space: Space) -> Self {
        let peer = match source {
            Source::Peer(peer) => peer,
            Source::Any => PeerIndex(0),
        };
        Envelope { peer, space, tag: 0, data: None, length: 0 }
    }
}
