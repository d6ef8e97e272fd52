//! `environment(...)`: services that the site's runtime must offer.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{Error, LitInt, LitStr, Path, Result, Token};

use crate::guid::Guid;

/// A service asked for: `timers`, `memory = 1`, `maps`, `MyInterface`, `"GUID"`
pub struct Asked {
    interface: Interface,
    /// The least acceptable version.
    version: u32,
}

enum Interface {
    /// The name of a constant of `offcode::service`.
    Known(&'static str),
    Trait(Path),
    Raw(Guid),
}

impl Parse for Asked {
    fn parse(input: ParseStream) -> Result<Self> {
        let interface = if input.peek(LitStr) {
            Interface::Raw(Guid::parse(&input.parse()?)?)
        } else {
            let path: Path = input.parse()?;
            match path.get_ident().map(ToString::to_string).as_deref() {
                Some("timers") => Interface::Known("TIMERS"),
                Some("memory") => Interface::Known("MEMORY"),
                Some("maps") => Interface::Known("MAPS"),
                Some(word) if word.starts_with(|c: char| c.is_ascii_lowercase()) => {
                    let why = "a service is timers, memory or maps, an interface's trait, or a GUID in quotes";
                    return Err(Error::new_spanned(path, why));
                }
                _ => Interface::Trait(path),
            }
        };
        let mut version = 1;
        if input.parse::<Option<Token![=]>>()?.is_some() {
            let number: LitInt = input.parse()?;
            version = number.base10_parse()?;
            if !(1..=9999).contains(&version) {
                return Err(Error::new(number.span(), "a version of a service is a number from 1 to 9999"));
            }
        }
        Ok(Asked { interface, version })
    }
}

impl Asked {
    /// The tokens of an `offcode::Service`.
    pub fn tokens(&self) -> TokenStream {
        let guid = match &self.interface {
            Interface::Known(name) => {
                let name = proc_macro2::Ident::new(name, proc_macro2::Span::call_site());
                quote!(::offcode::service::#name.interface)
            }
            Interface::Trait(path) => quote!(<dyn #path as ::offcode::Interface>::GUID),
            Interface::Raw(guid) => guid.tokens(),
        };
        let version = self.version;
        quote!(::offcode::Service { interface: #guid, version: #version })
    }
}
