//! `#[offcode]`.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Attribute, Error, Expr, Item, Lit, LitStr, Meta, Path, Result, Token, parenthesized};

use crate::environment::Asked;
use crate::guid::Guid;
use crate::peers::Peer;
use crate::targets::{Body, Target, bodies};

pub fn expand(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let item = match syn::parse2::<Item>(item) {
        Ok(item) => item,
        Err(error) => return error.to_compile_error(),
    };
    let expansion = described(&item)
        .and_then(|(name, documentation)| Ok((name, syn::parse2::<Written>(arguments)?.complete(documentation)?)))
        .map(|(name, written)| expansion(name, &written))
        .unwrap_or_else(Error::into_compile_error);
    quote!(#item #expansion)
}

/// The type's name and its documentation.
fn described(item: &Item) -> Result<(&Ident, String)> {
    let (name, generics, attributes) = match item {
        Item::Struct(item) => (&item.ident, &item.generics, &item.attrs),
        Item::Enum(item) => (&item.ident, &item.generics, &item.attrs),
        other => return Err(Error::new(other.span(), "#[offcode] goes on a struct or an enum")),
    };
    if !generics.params.is_empty() {
        return Err(Error::new(generics.params.span(), "an offcode cannot be generic: one GUID names one type"));
    }
    Ok((name, documentation(attributes)))
}

fn documentation(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter(|attribute| attribute.path().is_ident("doc")).filter_map(|attribute| {
        let Meta::NameValue(pair) = &attribute.meta else { return None };
        let Expr::Lit(syn::ExprLit { lit: Lit::Str(text), .. }) = &pair.value else { return None };
        Some(text.value().trim().to_owned())
    });
    lines.collect::<Vec<_>>().join(" ").trim().to_owned()
}

/// The arguments as written.
#[derive(Default)]
struct Written {
    body_of: Option<Path>,
    guid: Option<Guid>,
    name: Option<LitStr>,
    version: Option<LitStr>,
    description: Option<LitStr>,
    implements: Vec<Path>,
    requires: Vec<Peer>,
    environment: Vec<Asked>,
    sites: Vec<Target>,
    bodies: Option<Vec<Body>>,
    attributes: Vec<(Ident, String)>,
    state: State,
    /// The position of each argument.
    places: Vec<Ident>,
}

impl Parse for Written {
    fn parse(input: ParseStream) -> Result<Self> {
        let mut written = Written::default();
        while !input.is_empty() {
            let argument: Ident = input.parse()?;
            if written.places.contains(&argument) {
                return Err(Error::new(argument.span(), format!("`{argument}` is given twice")));
            }
            written.read(&argument, input)?;
            written.places.push(argument);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(written)
    }
}

fn value<T: Parse>(input: ParseStream) -> Result<T> {
    input.parse::<Token![=]>()?;
    input.parse()
}

fn list<T: Parse>(input: ParseStream) -> Result<Vec<T>> {
    let inside;
    parenthesized!(inside in input);
    Ok(Punctuated::<T, Token![,]>::parse_terminated(&inside)?.into_iter().collect())
}

impl Written {
    fn read(&mut self, argument: &Ident, input: ParseStream) -> Result<()> {
        match argument.to_string().as_str() {
            "body_of" => self.body_of = Some(value(input)?),
            "guid" => self.guid = Some(Guid::parse(&value(input)?)?),
            "name" => self.name = Some(name(value(input)?)?),
            "version" => self.version = Some(version(value(input)?)?),
            "description" => self.description = Some(value(input)?),
            "implements" => self.implements = list(input)?,
            "requires" => self.requires = list(input)?,
            "environment" => self.environment = list(input)?,
            "sites" => self.sites = list(input)?,
            "bodies" => self.bodies = Some(list(input)?),
            "state" => self.state = value(input)?,
            "attributes" => {
                self.attributes =
                    list::<Attributed>(input)?.into_iter().map(|Attributed(name, value)| (name, value)).collect();
            }
            _ => {
                let why = "an offcode takes guid, name, version, description, implements, requires, environment, sites, bodies, \
                           state and attributes; a further body of it takes body_of and implements";
                return Err(Error::new(argument.span(), why));
            }
        }
        Ok(())
    }

    /// Checks the arguments against each other.
    fn complete(mut self, documentation: String) -> Result<Complete> {
        if self.implements.is_empty() {
            return Err(Error::new(Span::call_site(), "say which interfaces it serves: implements(Filter)"));
        }
        let spelled = |path: &Path| path.to_token_stream().to_string();
        for (place, path) in self.implements.iter().enumerate().skip(1) {
            if self.implements[..place].iter().any(|earlier| spelled(earlier) == spelled(path)) {
                return Err(Error::new(path.span(), "this interface was named before"));
            }
        }
        if let Some(of) = self.body_of {
            if let Some(extra) = self.places.iter().find(|place| *place != "body_of" && *place != "implements") {
                return Err(Error::new(
                    extra.span(),
                    "a further body has the manifest of the type that it is a body of",
                ));
            }
            return Ok(Complete { implements: self.implements, manifest: Source::Of(of) });
        }
        let Some(name) = self.name else {
            return Err(Error::new(Span::call_site(), "a name is missing: write name = \"example.filter\""));
        };
        let Some(guid) = self.guid else { return Err(Guid::missing(Span::call_site(), &name.value())) };
        let Some(version) = self.version else {
            return Err(Error::new(Span::call_site(), "a version is missing: write version = \"1.0.0\""));
        };
        for (place, peer) in self.requires.iter().enumerate() {
            if self.requires[..place].iter().any(|earlier| earlier.name == peer.name) {
                return Err(Error::new(peer.name.span(), format!("another peer is called `{}` already", peer.name)));
            }
        }
        if self.sites.is_empty() {
            return Err(Error::new(Span::call_site(), "say which kinds of site will do: sites(app, core)"));
        }
        let bodies = bodies(&self.sites, self.bodies.take())?;
        let description = self.description.map_or(documentation, |text| text.value());
        Ok(Complete {
            implements: self.implements,
            manifest: Source::Own(Box::new(Own {
                guid,
                name: name.value(),
                version: version.value(),
                description,
                requires: self.requires,
                environment: self.environment,
                sites: self.sites,
                bodies,
                attributes: self.attributes,
                state: self.state,
            })),
        })
    }
}

fn name(text: LitStr) -> Result<LitStr> {
    let part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_lowercase())
            && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_')
    };
    match text.value().split('.').all(part) {
        true => Ok(text),
        false => {
            Err(Error::new(text.span(), "a name is lower-case words with dots between them, as \"example.filter\""))
        }
    }
}

fn version(text: LitStr) -> Result<LitStr> {
    let parts: Vec<_> = text.value().split('.').map(|part| part.parse::<u32>().is_ok()).collect();
    match parts.as_slice() {
        [true, true, true] => Ok(text),
        _ => Err(Error::new(text.span(), "a version is three numbers, as \"1.0.0\"")),
    }
}

/// An attribute: `OFFLOAD_PRIORITY = 200`
struct Attributed(Ident, String);

impl Parse for Attributed {
    fn parse(input: ParseStream) -> Result<Self> {
        let name: Ident = input.parse()?;
        input.parse::<Token![=]>()?;
        let value: Lit = input.parse()?;
        let text = match &value {
            Lit::Str(text) => text.value(),
            Lit::Int(number) => number.base10_digits().to_owned(),
            Lit::Bool(truth) => truth.value.to_string(),
            other => return Err(Error::new(other.span(), "an attribute is a text, a whole number or a bool")),
        };
        let most = match name.to_string().as_str() {
            "OFFLOAD_PRIORITY" => Some((0, 1000)),
            "OBSOLETE_TIME" => Some((1, u64::from(u32::MAX))),
            _ => None,
        };
        match most {
            Some((least, most)) if !text.parse().is_ok_and(|number: u64| (least..=most).contains(&number)) => {
                Err(Error::new(value.span(), format!("{name} is a number from {least} to {most}")))
            }
            _ => Ok(Attributed(name, text)),
        }
    }
}

struct Complete {
    implements: Vec<Path>,
    manifest: Source,
}

enum Source {
    Own(Box<Own>),
    Of(Path),
}

struct Own {
    guid: Guid,
    name: String,
    version: String,
    description: String,
    requires: Vec<Peer>,
    environment: Vec<Asked>,
    sites: Vec<Target>,
    bodies: Vec<Body>,
    attributes: Vec<(Ident, String)>,
    state: State,
}

/// A kind of state: `state = saved`, by the name of the manifest's variant.
struct State(Ident);

impl Default for State {
    fn default() -> Self {
        State(Ident::new("FixedPlace", Span::call_site()))
    }
}

impl Parse for State {
    fn parse(input: ParseStream) -> Result<Self> {
        let word: Ident = input.parse()?;
        let variant = match word.to_string().as_str() {
            "none" => "None",
            "saved" => "Saved",
            "fixed_place" => "FixedPlace",
            _ => return Err(Error::new(word.span(), "a state is none, saved or fixed_place")),
        };
        Ok(State(Ident::new(variant, word.span())))
    }
}

impl Own {
    fn manifest(&self, implements: &[Path]) -> TokenStream {
        let Own { name, version, description, state: State(state), .. } = self;
        let environment = self.environment.iter().map(Asked::tokens);
        let bodies = self.bodies.iter().map(Body::tokens);
        let targets = self.sites.iter().map(Target::tokens);
        let peers = self.requires.iter().map(Peer::tokens);
        let attributes = self.attributes.iter().map(|(name, value)| {
            let name = name.to_string();
            quote!((#name.into(), #value.into()))
        });
        quote! {
            ::offcode::Manifest {
                package: ::offcode::manifest::Package {
                    guid: <Self as ::offcode::Described>::GUID,
                    name: #name.into(),
                    version: #version.into(),
                    description: #description.into(),
                    interfaces: ::std::vec![#(<dyn #implements as ::offcode::Interface>::entry()),*],
                    bodies: ::std::vec![#(#bodies),*],
                    attributes: ::std::vec![#(#attributes),*],
                    state: ::offcode::manifest::StateKind::#state,
                },
                hardware: ::std::vec![#(#targets),*],
                software: ::offcode::manifest::Software {
                    environment: ::std::vec![#(#environment),*],
                    peers: ::std::vec![#(#peers),*],
                },
            }
        }
    }
}

fn expansion(name: &Ident, written: &Complete) -> TokenStream {
    let implements = &written.implements;
    let (guid, manifest) = match &written.manifest {
        Source::Own(own) => (own.guid.tokens(), own.manifest(implements)),
        Source::Of(of) => {
            (quote!(<#of as ::offcode::Described>::GUID), quote!(<#of as ::offcode::Described>::manifest()))
        }
    };
    let arms = implements.iter().map(|interface| {
        // The missing implementation is reported where the interface is named.
        let target = quote_spanned!(interface.span()=> let target: &mut dyn #interface = self;);
        quote! {
            if call.interface == const { <dyn #interface as ::offcode::Interface>::GUID.short() } {
                #target
                return <dyn #interface as ::offcode::Interface>::dispatch(target, call, reply, context);
            }
        }
    });
    let twins = implements.iter().enumerate().flat_map(|(place, one)| {
        implements[place + 1..].iter().map(move |other| {
            quote_spanned! {other.span()=>
                const _: () = assert!(
                    <dyn #one as ::offcode::Interface>::GUID.short() != <dyn #other as ::offcode::Interface>::GUID.short(),
                    "two interfaces of one offcode have the same GUID, or GUIDs whose halves combine to the same: give one of them another"
                );
            }
        })
    });
    quote! {
        #(#twins)*

        impl ::offcode::Described for #name {
            const GUID: ::offcode::Guid = #guid;
            const INTERFACES: &'static [::offcode::Guid] = &[#(<dyn #implements as ::offcode::Interface>::GUID),*];
            const SIGNATURE: u64 = ::offcode::signature(&[#(
                (<dyn #implements as ::offcode::Interface>::GUID, <dyn #implements as ::offcode::Interface>::METHODS)
            ),*]);

            fn manifest() -> ::offcode::Manifest {
                #manifest
            }

            fn place() -> ::core::option::Option<&'static str> {
                ::core::option::Option::Some(::core::concat!(::core::file!(), ":", ::core::line!()))
            }
        }

        impl ::offcode::Offcode for #name {
            fn interfaces(&self) -> &[::offcode::Guid] {
                <Self as ::offcode::Described>::INTERFACES
            }

            fn initialize(&mut self, context: &mut dyn ::offcode::Context) -> ::offcode::expansion::Result<()> {
                ::offcode::Lifecycle::initialize(self, context)
            }

            fn start(&mut self, context: &mut dyn ::offcode::Context) -> ::offcode::expansion::Result<()> {
                ::offcode::Lifecycle::start(self, context)
            }

            #[inline]
            fn call(
                &mut self,
                call: ::offcode::Incoming<'_>,
                reply: &mut ::std::vec::Vec<u8>,
                context: &mut dyn ::offcode::Context,
            ) -> ::core::result::Result<(), ::offcode::Refusal> {
                #(#arms)*
                ::core::result::Result::Err(::offcode::Refusal::no_such_interface(call.interface))
            }

            fn answered(
                &mut self,
                channel: ::offcode::ChannelId,
                id: u32,
                result: ::core::result::Result<&[u8], &::offcode::Refusal>,
                context: &mut dyn ::offcode::Context,
            ) {
                ::offcode::Lifecycle::answered(self, channel, id, result, context)
            }

            fn attached(&mut self, channel: ::offcode::ChannelId, name: &str, context: &mut dyn ::offcode::Context) {
                ::offcode::Lifecycle::attached(self, channel, name, context)
            }

            fn message(&mut self, channel: ::offcode::ChannelId, message: &[u8], context: &mut dyn ::offcode::Context) {
                ::offcode::Lifecycle::message(self, channel, message, context)
            }

            fn timer(&mut self, timer: u8, context: &mut dyn ::offcode::Context) {
                ::offcode::Lifecycle::timer(self, timer, context)
            }

            #[inline]
            fn turn(&mut self, context: &mut dyn ::offcode::Context) -> ::offcode::Activity {
                ::offcode::Lifecycle::turn(self, context)
            }

            fn attribute_set(
                &mut self,
                name: &str,
                value: &str,
                context: &mut dyn ::offcode::Context,
            ) -> ::offcode::expansion::Result<()> {
                ::offcode::Lifecycle::attribute_set(self, name, value, context)
            }

            fn save(
                &mut self,
                state: &mut ::offcode::State,
                context: &mut dyn ::offcode::Context,
            ) -> ::offcode::expansion::Result<()> {
                ::offcode::Lifecycle::save(self, state, context)
            }

            fn restore(
                &mut self,
                state: &::offcode::State,
                context: &mut dyn ::offcode::Context,
            ) -> ::offcode::expansion::Result<()> {
                ::offcode::Lifecycle::restore(self, state, context)
            }

            fn stop(&mut self, context: &mut dyn ::offcode::Context) {
                ::offcode::Lifecycle::stop(self, context)
            }
        }
    }
}
