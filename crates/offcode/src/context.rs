//! The functions that an offcode may call while it is called. It has no other way to act.

use machine::{Nanoseconds, Result};
use serde::{Deserialize, Serialize};

use crate::channel::Written;
use crate::map::{MapId, Maps, Put, Shape};
use crate::service::{MAPS, MEMORY, TIMERS, Wake};

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

    /// Sets one of the offcode's timers anew ([`TIMERS`]): [`crate::Lifecycle::timer`] is called with its number when it is
    /// due. It ends with the offcode, and goes along where a state does.
    ///
    /// # Errors
    /// The manifest does not ask for timers, or none has this number.
    fn set_timer(&mut self, timer: u8, wake: Wake) -> Result<()> {
        let _ = (timer, wake);
        Err(TIMERS.not_asked())
    }

    /// Has `count` words under a name ([`MEMORY`]), 0 at first, which this offcode stores and the application and its other
    /// offcodes at this place read. So many that are there under the name already, as where a body of this offcode was
    /// before, stay as they are.
    ///
    /// # Errors
    /// The manifest does not ask for memory, or it would be more than the target's `memory` or the bound.
    fn share(&mut self, words: &str, count: u32) -> Result<()> {
        let _ = (words, count);
        Err(MEMORY.not_asked())
    }

    /// Stores into own words, from number `at` on. Each is read whole; several may be read while they are stored.
    ///
    /// # Errors
    /// They are not all within what was shared under this name.
    fn store(&mut self, words: &str, at: u32, values: &[u64]) -> Result<()> {
        let _ = (words, at, values);
        Err(MEMORY.not_asked())
    }

    /// Loads words, from number `at` on: own ones, or those that another offcode of the application shares at this place,
    /// as `OFFCODE/WORDS`. False while there are none; of a sandboxed body, which has a copy as of the entry into it, also in
    /// the entry that asks first.
    ///
    /// # Errors
    /// The manifest does not ask for memory, or there are fewer words under this name.
    fn load(&mut self, words: &str, at: u32, values: &mut [u64]) -> Result<bool> {
        let _ = (words, at, values);
        Err(MEMORY.not_asked())
    }

    /// Opens a map of this offcode ([`MAPS`]), which takes its memory at once; [`crate::Map`] has it with types. The same name
    /// and shape again is the same map. `plimsoll ps --entries OFFCODE/NAME` shows what is in it, and where a state goes along
    /// its entries do: it is opened in `initialize`, and has them before `restore`.
    ///
    /// # Errors
    /// The manifest does not ask for maps, or it would be more than the target's `memory` or the bound.
    fn open_map(&mut self, name: &str, shape: Shape) -> Result<MapId> {
        self.maps().ok_or_else(|| MAPS.not_asked())?.open(name, shape)
    }

    /// Copies the value under a key out of a map. False: there is none.
    ///
    /// # Errors
    /// It is not open, or key or value have another size.
    fn map_get(&mut self, map: MapId, key: &[u8], value: &mut [u8]) -> Result<bool> {
        self.maps().ok_or_else(|| MAPS.not_asked())?.get(map, key, value)
    }

    /// Puts an entry into a map, or another value under its key.
    ///
    /// # Errors
    /// The errors of [`Context::map_get`]. A map without room is none: [`Put::Full`].
    fn map_put(&mut self, map: MapId, key: &[u8], value: &[u8]) -> Result<Put> {
        self.maps().ok_or_else(|| MAPS.not_asked())?.table(map)?.put(key, value)
    }

    /// Takes an entry out of a map. False: there is none.
    ///
    /// # Errors
    /// The errors of [`Context::map_get`].
    fn map_remove(&mut self, map: MapId, key: &[u8]) -> Result<bool> {
        self.maps().ok_or_else(|| MAPS.not_asked())?.table(map)?.remove(key)
    }

    /// Shows each entry of a map, in no order, as long as `each` says true.
    ///
    /// # Errors
    /// It is not open.
    fn map_visit(&mut self, map: MapId, each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.maps().ok_or_else(|| MAPS.not_asked())?.visit(map, each)
    }

    /// The maps that the functions above work on, where the site has them itself. Not for the author.
    #[doc(hidden)]
    fn maps(&mut self) -> Option<&mut Maps> {
        None
    }
}
