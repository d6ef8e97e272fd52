//! GUIDs in attributes.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{Error, LitStr, Result};
use uuid::Uuid;

/// A GUID as the author wrote it.
pub struct Guid(Uuid);

impl Guid {
    pub fn parse(text: &LitStr) -> Result<Guid> {
        match Uuid::try_parse(&text.value()) {
            Ok(uuid) if text.value().len() == 36 => Ok(Guid(uuid)),
            _ => Err(Error::new(
                text.span(),
                "a GUID has the form 8-4-4-4-12 hexadecimal digits, as `uuidgen` prints it",
            )),
        }
    }

    /// The error for a missing GUID, which proposes one.
    pub fn missing(span: Span, name: &str) -> Error {
        let one = Uuid::new_v5(&Uuid::NAMESPACE_URL, name.as_bytes());
        Error::new(
            span,
            format!(
                "a GUID is missing: write guid = \"...\" with one that `uuidgen` prints, or {one}, made of the name"
            ),
        )
    }

    pub fn tokens(&self) -> TokenStream {
        let bytes = self.0.as_bytes();
        quote!(::offcode::Guid::from_bytes([#(#bytes),*]))
    }
}
