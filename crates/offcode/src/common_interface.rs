//! The common interface: the functions of every offcode that the runtime calls (HYDRA sections 1.2 and 1.2.1).

use machine::{Fault, Result};

use crate::call::{Incoming, Refusal};
use crate::context::{ChannelId, Context};
use crate::guid::Guid;
use crate::map::Entries;
use crate::state::State;

/// Whether a turn found work. A site that shares its core rests when all its offcodes are idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// The turn did something.
    Worked,
    /// There was nothing to do.
    Idle,
}

/// A running offcode, whatever its body: a linked-in type, a wasm instance, a stand-in for one elsewhere.
///
/// Called by one site, never from two threads at once, in this order: `initialize`; once every offcode of the gang has
/// returned from it, `start`; then any of the others; `stop` last. `#[offcode]` writes this for a type, from its
/// interfaces and its `Lifecycle`.
pub trait Offcode: Send {
    /// The interfaces that [`Offcode::call`] serves.
    fn interfaces(&self) -> &[Guid];

    /// First phase: acquires local resources. Peers may not exist yet, so no channel works.
    fn initialize(&mut self, context: &mut dyn Context) -> Result<()> {
        let _ = context;
        Ok(())
    }

    /// Second phase: every peer has initialized and can be reached.
    fn start(&mut self, context: &mut dyn Context) -> Result<()> {
        let _ = context;
        Ok(())
    }

    /// Carries out one call and appends its result to `reply`.
    fn call(&mut self, call: Incoming<'_>, reply: &mut Vec<u8>, context: &mut dyn Context) -> Result<(), Refusal>;

    /// The result of a call that this offcode sent over `channel` with this `id`.
    fn answered(&mut self, channel: ChannelId, id: u32, result: Result<&[u8], &Refusal>, context: &mut dyn Context) {
        let _ = (channel, id, result, context);
    }

    /// A specialized channel is now available under this name.
    fn attached(&mut self, channel: ChannelId, name: &str, context: &mut dyn Context) {
        let _ = (channel, name, context);
    }

    /// Dispatch handler: a message that is no call arrived on a specialized channel.
    fn message(&mut self, channel: ChannelId, message: &[u8], context: &mut dyn Context) {
        let _ = (channel, message, context);
    }

    /// Polls the offcode for work that no call or message brings; the site's loop does so again and again.
    fn turn(&mut self, context: &mut dyn Context) -> Activity {
        let _ = context;
        Activity::Idle
    }

    /// A timer is due; see [`crate::Lifecycle::timer`].
    fn timer(&mut self, timer: u8, context: &mut dyn Context) {
        let _ = (timer, context);
    }

    /// An attribute is set; see [`crate::Lifecycle::attribute_set`].
    fn attribute_set(&mut self, name: &str, value: &str, context: &mut dyn Context) -> Result<()> {
        let _ = (name, value, context);
        Ok(())
    }

    /// Saves the state that goes along to another site; see [`crate::Lifecycle::save`].
    fn save(&mut self, state: &mut State, context: &mut dyn Context) -> Result<()> {
        let _ = (state, context);
        Err(Fault::new("its state", "its body does not save any", "leave it where it is"))
    }

    /// Called in place of `start` with the state that a body elsewhere has saved; see [`crate::Lifecycle::restore`].
    fn restore(&mut self, state: &State, context: &mut dyn Context) -> Result<()> {
        let _ = (state, context);
        Err(Fault::new("its state", "its body does not restore any", "leave it where it is"))
    }

    /// Takes note of a channel that the offcode had before it was restored here. Not for the author.
    fn had(&mut self, channel: ChannelId, name: &str, context: &mut dyn Context) {
        let _ = (channel, name, context);
    }

    /// Writes, in order, that were reported to the author's code as taken and found no room yet: the site sends them.
    fn unsent(&mut self) -> Vec<(ChannelId, Vec<u8>)> {
        Vec::new()
    }

    /// Maps in a sandboxed body's own memory, by name, as of the last entry into it. Not for the author.
    fn own_maps(&self) -> Vec<(&str, Entries<'_>)> {
        Vec::new()
    }

    /// Releases resources. Nothing is called after it.
    fn stop(&mut self, context: &mut dyn Context) {
        let _ = context;
    }

    /// Why the offcode can work no more, where that is so: a sandboxed body that trapped, or a stand-in whose other
    /// half is gone. Calls are refused from then on and all else does nothing.
    fn failure(&self) -> Option<&Fault> {
        None
    }
}
