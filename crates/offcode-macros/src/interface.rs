//! `#[interface]`.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::spanned::Spanned;
use syn::{Error, Item, ItemTrait, LitStr, TraitItem};

use crate::errors::Errors;
use crate::guid::Guid;
use crate::method::{Encoding, Method};

pub fn expand(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let mut definition = match syn::parse2::<Item>(item) {
        Ok(Item::Trait(definition)) => definition,
        Ok(other) => {
            let error = Error::new(other.span(), "#[interface] goes on a trait").to_compile_error();
            return quote!(#error #other);
        }
        Err(error) => return error.to_compile_error(),
    };
    let mut errors = Errors::default();
    let written = written(arguments, &definition, &mut errors);
    let methods = methods(&mut definition, written.encoding, &mut errors);
    let rest = match errors.together() {
        Some(error) => error.to_compile_error(),
        None => expansion(&definition, &written, &methods),
    };
    let mut all = definition.into_token_stream();
    all.extend(rest);
    all
}

struct Written {
    guid: Option<Guid>,
    encoding: Encoding,
}

fn written(arguments: TokenStream, definition: &ItemTrait, errors: &mut Errors) -> Written {
    let mut written = Written { guid: None, encoding: Encoding::Postcard };
    let (mut saw_guid, mut saw_encoding) = (false, false);
    let parser = syn::meta::parser(|meta| {
        let once = |seen: &mut bool| match std::mem::replace(seen, true) {
            true => Err(meta.error("given twice")),
            false => Ok(()),
        };
        if meta.path.is_ident("guid") {
            once(&mut saw_guid)?;
            written.guid = Some(Guid::parse(&meta.value()?.parse()?)?);
        } else if meta.path.is_ident("encoding") {
            once(&mut saw_encoding)?;
            let name: LitStr = meta.value()?.parse()?;
            written.encoding = match name.value().as_str() {
                "postcard" => Encoding::Postcard,
                "fixed" => Encoding::Fixed,
                _ => return Err(Error::new(name.span(), "an encoding is \"postcard\" or \"fixed\"")),
            };
        } else {
            return Err(meta.error("an interface takes guid = \"...\" and encoding = \"fixed\""));
        }
        Ok(())
    });
    if let Err(error) = syn::parse::Parser::parse2(parser, arguments) {
        errors.add(error);
    }
    if !saw_guid && errors.is_empty() {
        errors.add(Guid::missing(Span::call_site(), &definition.ident.to_string()));
    }
    written
}

fn methods(definition: &mut ItemTrait, encoding: Encoding, errors: &mut Errors) -> Vec<Method> {
    if let Some(word) = &definition.unsafety {
        errors.refuse(word.span, "an interface cannot be unsafe: it is called with bytes from outside");
    }
    if !definition.generics.params.is_empty() {
        errors.refuse(
            definition.generics.params.span(),
            "an interface cannot be generic: one GUID names one set of methods",
        );
    }
    if let Some(clause) = &definition.generics.where_clause {
        errors.refuse(clause.span(), "an interface cannot have a where clause");
    }
    let mut methods: Vec<Method> = Vec::new();
    for item in &mut definition.items {
        match item {
            TraitItem::Fn(function) => {
                let method = Method::read(function, encoding, errors);
                if methods.iter().any(|earlier| earlier.name == method.name) {
                    errors.refuse(method.name.span(), format!("method `{}` is there twice", method.name));
                }
                methods.push(method);
            }
            other => errors.refuse(other.span(), "an interface has methods only: constants and types do not travel"),
        }
    }
    if methods.is_empty() {
        errors.refuse(definition.ident.span(), "an interface without methods does nothing");
    }
    if methods.len() > usize::from(u16::MAX) {
        errors.refuse(definition.ident.span(), "an interface has at most 65,535 methods");
    }
    methods
}

fn expansion(definition: &ItemTrait, written: &Written, methods: &[Method]) -> TokenStream {
    let (name, visibility) = (&definition.ident, &definition.vis);
    let proxy = format_ident!("{name}Proxy");
    let guid = written.guid.as_ref().map(Guid::tokens);
    let text = name.to_string();
    let numbered = || methods.iter().enumerate().map(|(number, method)| (number as u16, method));
    let names = methods.iter().map(|method| method.name.to_string().trim_start_matches("r#").to_owned());
    let proxies = numbered().map(|(number, method)| method.proxy(name, number, written.encoding));
    let arms = numbered().map(|(number, method)| method.arm(name, number, written.encoding));
    let documentation =
        format!("Builds the calls of [`{name}`]: the same methods, each returns a [`Call`](::offcode::Call).");
    quote! {
        #[doc = #documentation]
        #[derive(::core::clone::Clone, ::core::marker::Copy, ::core::fmt::Debug, ::core::default::Default)]
        #visibility struct #proxy;

        #[allow(dead_code, clippy::too_many_arguments)]
        impl #proxy {
            #(#proxies)*
        }

        impl ::offcode::Interface for dyn #name {
            const GUID: ::offcode::Guid = #guid;
            const NAME: &'static str = #text;
            const METHODS: &'static [&'static str] = &[#(#names),*];
            type Proxy = #proxy;

            #[allow(unused_variables, clippy::unit_arg)]
            fn dispatch(
                target: &mut Self,
                call: ::offcode::Incoming<'_>,
                reply: &mut ::std::vec::Vec<u8>,
                context: &mut dyn ::offcode::Context,
            ) -> ::core::result::Result<(), ::offcode::Refusal> {
                match call.method {
                    #(#arms)*
                    other => ::core::result::Result::Err(::offcode::Refusal::no_such_method(#text, other)),
                }
            }
        }
    }
}
