//! Interfaces: traits with a GUID (HYDRA section 1.2). `#[interface]` writes all of this.

use crate::call::{Incoming, Refusal};
use crate::context::Context;
use crate::guid::Guid;
use crate::manifest;

/// The signature of no interface at all.
pub(crate) const UNSIGNED: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a over what was signed so far and `bytes`.
pub(crate) const fn sign(so_far: u64, bytes: &[u8]) -> u64 {
    let (mut signature, mut at) = (so_far, 0);
    while at < bytes.len() {
        signature = (signature ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    signature
}

/// A name ends where no name has a byte.
pub(crate) const fn sign_method(so_far: u64, name: &str) -> u64 {
    sign(sign(so_far, name.as_bytes()), &[0])
}

/// A number that stands for interfaces with their methods, in order. Two builds of different sources have different ones.
pub const fn signature(interfaces: &[(Guid, &[&str])]) -> u64 {
    let (mut signature, mut at) = (UNSIGNED, 0);
    while at < interfaces.len() {
        let (guid, methods) = interfaces[at];
        signature = sign(signature, guid.bytes());
        let mut method = 0;
        while method < methods.len() {
            signature = sign_method(signature, methods[method]);
            method += 1;
        }
        at += 1;
    }
    signature
}

/// What `#[interface]` makes of a trait. Implemented by the trait's object type: `<dyn Filter as Interface>::GUID`.
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
