//! `requires(...)`: the peers of an offcode, their constraints and their channels.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, LitInt, LitStr, Path, Result, Token, parenthesized};

use crate::guid::Guid;

/// A peer: `pull(reporter: Report, rate = 1000, offcode = "...", version = ">=1.2, <2", channel(...))`
pub struct Peer {
    constraint: &'static str,
    pub name: Ident,
    interface: Path,
    offcode: Option<Guid>,
    version: Option<String>,
    rate: u64,
    channel: Option<Channel>,
}

struct Channel {
    cast: &'static str,
    delivery: &'static str,
    synchronization: &'static str,
    content: &'static str,
    policy: &'static str,
    count: u32,
    size: u64,
}

impl Parse for Peer {
    fn parse(input: ParseStream) -> Result<Self> {
        let word: Ident = input.parse()?;
        let constraint = match word.to_string().as_str() {
            "link" => "Link",
            "pull" => "Pull",
            "gang" => "Gang",
            _ => {
                return Err(Error::new(
                    word.span(),
                    "a constraint is link, pull or gang, as in pull(reporter: Report)",
                ));
            }
        };
        let inside;
        parenthesized!(inside in input);
        let name: Ident = inside.parse()?;
        inside.parse::<Token![:]>()?;
        let interface: Path = inside.parse()?;
        let mut peer = Peer { constraint, name, interface, offcode: None, version: None, rate: 0, channel: None };
        while !inside.is_empty() {
            inside.parse::<Token![,]>()?;
            if inside.is_empty() {
                break;
            }
            let option: Ident = inside.parse()?;
            match option.to_string().as_str() {
                "rate" => {
                    inside.parse::<Token![=]>()?;
                    peer.rate = inside.parse::<LitInt>()?.base10_parse()?;
                }
                "offcode" => {
                    inside.parse::<Token![=]>()?;
                    peer.offcode = Some(Guid::parse(&inside.parse::<LitStr>()?)?);
                }
                "version" => {
                    inside.parse::<Token![=]>()?;
                    let versions: LitStr = inside.parse()?;
                    if let Err(error) = versions.value().parse::<semver::VersionReq>() {
                        let why = format!("{error}; versions are written like \">=1.2, <2\"");
                        return Err(Error::new(versions.span(), why));
                    }
                    peer.version = Some(versions.value());
                }
                "channel" => peer.channel = Some(inside.parse()?),
                _ => {
                    let why = "a peer takes rate = MESSAGES_A_SECOND, offcode = \"GUID\", version = \"VERSIONS\" and channel(...); \
                               each peer has a constraint of its own";
                    return Err(Error::new(option.span(), why));
                }
            }
        }
        Ok(peer)
    }
}

const POLICIES: &[&str] = &["any", "zero_copy", "copy"];

impl Parse for Channel {
    fn parse(input: ParseStream) -> Result<Self> {
        let inside;
        parenthesized!(inside in input);
        let mut channel = Channel {
            cast: "Unicast",
            delivery: "Reliable",
            synchronization: "Poll",
            content: "Calls",
            policy: "Any",
            count: 64,
            size: 4096,
        };
        let mut seen: Vec<String> = Vec::new();
        let options = Punctuated::<ChannelOption, Token![,]>::parse_terminated(&inside)?;
        for ChannelOption { word, value } in options {
            let (slot, to, alternatives): (&mut &'static str, _, &[&str]) = match word.to_string().as_str() {
                "unicast" => (&mut channel.cast, "Unicast", &["unicast", "multicast"]),
                "multicast" => (&mut channel.cast, "Multicast", &["unicast", "multicast"]),
                "reliable" => (&mut channel.delivery, "Reliable", &["reliable", "unreliable"]),
                "unreliable" => (&mut channel.delivery, "Unreliable", &["reliable", "unreliable"]),
                "poll" => (&mut channel.synchronization, "Poll", &["poll", "blocking"]),
                "blocking" => (&mut channel.synchronization, "Blocking", &["poll", "blocking"]),
                "calls" => (&mut channel.content, "Calls", &["calls", "messages"]),
                "messages" => (&mut channel.content, "Messages", &["calls", "messages"]),
                "any" => (&mut channel.policy, "Any", POLICIES),
                "zero_copy" => (&mut channel.policy, "ZeroCopy", POLICIES),
                "copy" => (&mut channel.policy, "Copy", POLICIES),
                name @ ("count" | "size") => {
                    let Some(value) = value else {
                        return Err(Error::new(word.span(), format!("write {name} = a number")));
                    };
                    if seen.iter().any(|earlier| earlier == name) {
                        return Err(Error::new(word.span(), "given twice"));
                    }
                    seen.push(name.into());
                    let number: u64 = value.base10_parse()?;
                    if name == "size" {
                        if number == 0 {
                            return Err(Error::new(value.span(), "a buffer holds at least one byte"));
                        }
                        channel.size = number;
                    } else if number.is_power_of_two() && (4..=65_536).contains(&number) {
                        channel.count = number as u32;
                    } else {
                        return Err(Error::new(
                            value.span(),
                            "the number of buffers is a power of two from 4 to 65536",
                        ));
                    }
                    continue;
                }
                _ => {
                    let why = "a channel takes unicast or multicast, reliable or unreliable, poll or blocking, calls or messages, \
                               any, zero_copy or copy, count = BUFFERS and size = BYTES";
                    return Err(Error::new(word.span(), why));
                }
            };
            if let Some(value) = value {
                return Err(Error::new(value.span(), format!("`{word}` takes no value")));
            }
            if let Some(earlier) = seen.iter().find(|earlier| alternatives.contains(&earlier.as_str())) {
                return Err(Error::new(word.span(), format!("`{earlier}` was said before")));
            }
            seen.push(word.to_string());
            *slot = to;
        }
        Ok(channel)
    }
}

struct ChannelOption {
    word: Ident,
    value: Option<LitInt>,
}

impl Parse for ChannelOption {
    fn parse(input: ParseStream) -> Result<Self> {
        let word = input.parse()?;
        let value = match input.parse::<Option<Token![=]>>()? {
            Some(_) => Some(input.parse()?),
            None => None,
        };
        Ok(ChannelOption { word, value })
    }
}

impl Peer {
    /// The tokens of a `manifest::Requirement`.
    pub fn tokens(&self) -> TokenStream {
        let Peer { interface, rate, .. } = self;
        let name = self.name.to_string();
        let constraint = Ident::new(self.constraint, self.name.span());
        let offcode = match self.offcode.as_ref().map(Guid::tokens) {
            Some(guid) => quote!(::core::option::Option::Some(#guid)),
            None => quote!(::core::option::Option::None),
        };
        let version = match &self.version {
            Some(version) => quote!(::core::option::Option::Some(::offcode::expansion::versions(#version))),
            None => quote!(::core::option::Option::None),
        };
        let channel = match &self.channel {
            Some(channel) => {
                let channel = channel.tokens();
                quote!(::core::option::Option::Some(#channel))
            }
            None => quote!(::core::option::Option::None),
        };
        quote! {
            ::offcode::manifest::Requirement {
                name: #name.into(),
                interface: <dyn #interface as ::offcode::Interface>::GUID,
                offcode: #offcode,
                version: #version,
                constraint: ::offcode::manifest::Constraint::#constraint,
                channel: #channel,
                rate: #rate,
            }
        }
    }
}

impl Channel {
    fn tokens(&self) -> TokenStream {
        let word = |word: &str| Ident::new(word, proc_macro2::Span::call_site());
        let (cast, delivery, content) = (word(self.cast), word(self.delivery), word(self.content));
        let (synchronization, policy) = (word(self.synchronization), word(self.policy));
        let (count, size) = (self.count, self.size);
        quote! {
            ::offcode::channel::Specification {
                cast: ::offcode::channel::Cast::#cast,
                delivery: ::offcode::channel::Delivery::#delivery,
                synchronization: ::offcode::channel::Synchronization::#synchronization,
                content: ::offcode::channel::Content::#content,
                buffers: ::offcode::channel::Buffers {
                    count: #count,
                    size: ::offcode::expansion::Bytes(#size),
                    policy: ::offcode::channel::Policy::#policy,
                },
            }
        }
    }
}
