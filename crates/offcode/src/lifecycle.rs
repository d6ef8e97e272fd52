//! What an author writes beside the interfaces: the steps of an offcode's life, each of which may be left out.

use machine::{Fault, Result};

use crate::call::Refusal;
use crate::common_interface::Activity;
use crate::context::{ChannelId, Context};
use crate::state::State;

/// The steps of [`crate::Offcode`] that are the author's. An offcode that needs none writes `impl Lifecycle for It {}`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no lifecycle",
    note = "write `impl Lifecycle for {Self} {{}}`, with the steps that it needs inside"
)]
pub trait Lifecycle {
    /// First phase: acquires local resources. Peers may not exist yet, so no channel works.
    ///
    /// # Errors
    /// A fault rolls the whole gang back.
    fn initialize(&mut self, context: &mut dyn Context) -> Result<()> {
        let _ = context;
        Ok(())
    }

    /// Second phase: every peer has initialized and can be reached.
    ///
    /// # Errors
    /// A fault rolls the whole gang back.
    fn start(&mut self, context: &mut dyn Context) -> Result<()> {
        let _ = context;
        Ok(())
    }

    /// A specialized channel is now available under this name.
    fn attached(&mut self, channel: ChannelId, name: &str, context: &mut dyn Context) {
        let _ = (channel, name, context);
    }

    /// A message that is no call arrived on a specialized channel.
    fn message(&mut self, channel: ChannelId, message: &[u8], context: &mut dyn Context) {
        let _ = (channel, message, context);
    }

    /// The result of a call that was sent with [`crate::Call::through`]; [`crate::call::ResultOf::read`] reads it.
    fn answered(&mut self, channel: ChannelId, id: u32, result: Result<&[u8], &Refusal>, context: &mut dyn Context) {
        let _ = (channel, id, result, context);
    }

    /// Polled by the site's loop again and again: does work that no call or message brings.
    fn turn(&mut self, context: &mut dyn Context) -> Activity {
        let _ = context;
        Activity::Idle
    }

    /// A timer that [`Context::set_timer`] set is due.
    fn timer(&mut self, timer: u8, context: &mut dyn Context) {
        let _ = (timer, context);
    }

    /// An attribute is set: after `initialize` each one that the manifest or the application gives it, but those that the runtime
    /// defines; then whenever the application sets one. [`Context::attribute`] has the new value already.
    ///
    /// # Errors
    /// The value will not do: the attribute keeps the one it had, and the application is told. A start fails, and says where
    /// the value is written.
    fn attribute_set(&mut self, name: &str, value: &str, context: &mut dyn Context) -> Result<()> {
        let _ = (name, value, context);
        Ok(())
    }

    /// Puts what a body of this offcode elsewhere, or of another version, needs to go on from here into `state`, and sets
    /// its version. Called where the manifest says `state = saved`; nothing else is called until the move is over, and
    /// then either `stop` or, where the move was taken back, anything.
    ///
    /// # Errors
    /// The offcode stays where it is.
    fn save(&mut self, state: &mut State, context: &mut dyn Context) -> Result<()> {
        let _ = (state, context);
        Err(unwritten("save"))
    }

    /// Goes on from what another body of this offcode saved: follows `initialize` in place of `start`. Channels have the
    /// numbers that they had there; nothing can be written before it has returned.
    ///
    /// # Errors
    /// The state is of a version that this body does not know, or makes no sense. The offcode stays where it was.
    fn restore(&mut self, state: &State, context: &mut dyn Context) -> Result<()> {
        let _ = (state, context);
        Err(unwritten("restore"))
    }

    /// Releases what was acquired. Nothing is called after it.
    fn stop(&mut self, context: &mut dyn Context) {
        let _ = context;
    }
}

fn unwritten(step: &str) -> Fault {
    let next = "write both `save` and `restore`, or leave `state = saved` out of the manifest";
    Fault::new("its state", format!("its body has no `{step}`"), next)
}
