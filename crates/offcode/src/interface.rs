//! Interfaces: traits with a GUID (HYDRA section 1.2). `#[interface]` writes what is here.

use crate::call::{Incoming, Refusal};
use crate::context::Context;
use crate::guid::Guid;
use crate::manifest;

/// The trait that `#[interface]` implements for the trait's object type: `<dyn Filter as Interface>::GUID`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no interface",
    label = "not marked as an interface",
    note = "put #[interface(guid = \"...\")] on the trait"
)]
pub trait Interface {
    /// The interface's identifier.
    const GUID: Guid;
    /// The trait's name.
    const NAME: &'static str;
    /// Names of the methods; a method's number is its place here.
    const METHODS: &'static [&'static str];

    /// The type with the trait's methods, each returning a [`crate::Call`].
    type Proxy: Copy + Default;

    /// Decodes the arguments, calls the method, appends the encoded result to `reply`.
    ///
    /// # Errors
    /// A method that the interface does not have; arguments that do not decode; the method's own refusal.
    fn dispatch(
        target: &mut Self,
        call: Incoming<'_>,
        reply: &mut Vec<u8>,
        context: &mut dyn Context,
    ) -> Result<(), Refusal>;

    /// The interface's entry in a manifest.
    fn entry() -> manifest::Interface {
        manifest::Interface {
            guid: Self::GUID,
            name: Self::NAME.into(),
            methods: Self::METHODS.iter().map(|&method| method.into()).collect(),
        }
    }
}
