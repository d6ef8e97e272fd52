//! What an offcode may do while it is called. It has no other way to act.

use machine::Nanoseconds;
use serde::{Deserialize, Serialize};

use crate::channel::Written;

/// A channel as one offcode numbers its own, in the order in which they were attached. 0 is the out-of-band channel,
/// which every offcode has from the start (HYDRA section 1.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChannelId(pub u32);

impl ChannelId {
    /// The out-of-band channel.
    pub const OUT_OF_BAND: ChannelId = ChannelId(0);

    /// The number that stands for the peer at `place` of the manifest's list, from 0: calls to it go over the
    /// out-of-band channel.
    pub const fn peer(place: u8) -> ChannelId {
        ChannelId(1 << 31 | place as u32)
    }

    /// The peer's place in the manifest's list, where this number stands for a peer.
    pub const fn as_peer(self) -> Option<u8> {
        if self.0 >> 31 == 1 { Some(self.0 as u8) } else { None }
    }
}

/// The site's side of a call into an offcode.
pub trait Context {
    /// Time since the runtime started, from a clock that does not go back.
    fn now(&self) -> Nanoseconds;

    /// The channel to a peer that the manifest requires, by the name given there; or one that was attached under that
    /// name. `None` while there is none, as in `initialize`.
    fn channel(&self, name: &str) -> Option<ChannelId>;

    /// Sends one message. Never blocks: a reliable channel without room says [`Written::Full`], and the offcode tries
    /// again in a later turn; an unreliable one drops and counts.
    fn write(&mut self, channel: ChannelId, message: &[u8]) -> Written;

    /// An attribute of this offcode, as set by the application or the manifest.
    fn attribute(&self, name: &str) -> Option<&str>;

    /// A line for the runtime's log, with this offcode's name put before it.
    fn log(&mut self, line: &str);
}
