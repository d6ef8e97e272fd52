//! One method of an interface: what is allowed in it, and what it becomes in the proxy and in the dispatch.

use crate::errors::Errors;
use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, Error, FnArg, GenericArgument, Pat, PathArguments, ReturnType, TraitItemFn, Type};

/// The encoding of an interface's values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Postcard,
    Fixed,
}

impl Encoding {
    fn module(self) -> TokenStream {
        match self {
            Encoding::Postcard => quote!(::offcode::encoding::postcard),
            Encoding::Fixed => quote!(::offcode::encoding::fixed),
        }
    }
}

pub struct Method {
    pub name: Ident,
    documentation: Vec<Attribute>,
    takes_context: bool,
    arguments: Vec<Argument>,
    result: Output,
}

struct Argument {
    name: Ident,
    written: Type,
    form: Form,
}

/// How an argument is decoded into what the method takes.
enum Form {
    /// Decoded as it is written: owned values, `&str`, `Option<&str>`.
    Plain,
    Octets,
    /// `&[T]`: decoded as a vector.
    Slice(Type),
    /// `&T`: decoded as a value.
    Borrowed(Type),
}

enum Output {
    OneWay,
    Value(Type),
    /// `Result<T, Refusal>`.
    OrRefusal(Type),
}

impl Method {
    /// Reads one method of the trait, and removes the attributes that are ours; `errors` gets what is wrong with it.
    pub fn read(function: &mut TraitItemFn, encoding: Encoding, errors: &mut Errors) -> Method {
        let mut acknowledged = None;
        function.attrs.retain(|attribute| {
            let ours = attribute.path().is_ident("acknowledged");
            if ours {
                acknowledged = Some(attribute.span());
            }
            !ours
        });
        let signature = &function.sig;
        for attribute in &function.attrs {
            if attribute.path().is_ident("cfg") || attribute.path().is_ident("cfg_attr") {
                errors.refuse(
                    attribute.span(),
                    "a method that is only sometimes there would change the numbers of those after it",
                );
            }
        }
        if let Some(word) = &signature.constness {
            errors.refuse(word.span, "a method of an interface is called at run time: remove `const`");
        }
        if let Some(word) = &signature.asyncness {
            errors.refuse(
                word.span,
                "a method of an interface cannot be async: it returns when the work is done, or leaves it to `turn`",
            );
        }
        if let Some(word) = &signature.unsafety {
            errors.refuse(word.span, "a method of an interface cannot be unsafe: it is called with bytes from outside");
        }
        if let Some(abi) = &signature.abi {
            errors.refuse(abi.span(), "a method of an interface has no ABI of its own");
        }
        if !signature.generics.params.is_empty() {
            errors.refuse(
                signature.generics.params.span(),
                "a method of an interface cannot be generic: its arguments travel as bytes",
            );
        }
        if let Some(clause) = &signature.generics.where_clause {
            errors.refuse(clause.span(), "a method of an interface cannot have a where clause");
        }
        if let Some(variadic) = &signature.variadic {
            errors.refuse(variadic.span(), "a method of an interface has a fixed number of arguments");
        }
        match signature.receiver() {
            Some(receiver) if receiver.reference.is_some() && receiver.colon_token.is_none() => {}
            Some(receiver) => {
                errors.refuse(receiver.span(), "the offcode stays where it is: take `&self` or `&mut self`")
            }
            None => errors.refuse(signature.ident.span(), "a method of an interface takes `&self` or `&mut self`"),
        }

        let mut takes_context = false;
        let mut arguments: Vec<Argument> = Vec::new();
        let typed: Vec<_> = signature
            .inputs
            .iter()
            .filter_map(|input| match input {
                FnArg::Typed(typed) => Some(typed),
                FnArg::Receiver(_) => None,
            })
            .collect();
        for (place, input) in typed.iter().enumerate() {
            if is_context(&input.ty) {
                match place {
                    0 => takes_context = true,
                    _ => errors.refuse(input.span(), "the context comes first, directly after self"),
                }
                continue;
            }
            let name = match &*input.pat {
                Pat::Ident(pattern) if pattern.subpat.is_none() => match pattern.ident.to_string().strip_prefix('_') {
                    Some(rest) if !rest.is_empty() => format_ident!("{rest}", span = pattern.ident.span()),
                    _ => pattern.ident.clone(),
                },
                pattern => {
                    errors.refuse(pattern.span(), "an argument has a plain name");
                    format_ident!("argument_{place}")
                }
            };
            match form(&input.ty, encoding, place + 1 == typed.len()) {
                Ok(form) => arguments.push(Argument { name, written: (*input.ty).clone(), form }),
                Err(error) => errors.add(error),
            }
        }

        let result = match &signature.output {
            ReturnType::Default => match acknowledged {
                None => Output::OneWay,
                Some(_) => Output::Value(syn::parse_quote!(())),
            },
            ReturnType::Type(_, written) => {
                if let Some(span) = acknowledged {
                    errors.refuse(span, "a method with a result is answered anyway: remove #[acknowledged]");
                }
                if let Err(error) = check(written, Place::Result) {
                    errors.add(error);
                }
                match value_or_refusal(written) {
                    Some(value) => Output::OrRefusal(value.clone()),
                    None => Output::Value((**written).clone()),
                }
            }
        };
        let documentation = function.attrs.iter().filter(|a| a.path().is_ident("doc")).cloned().collect();
        Method { name: signature.ident.clone(), documentation, takes_context, arguments, result }
    }

    /// The method of the proxy.
    pub fn proxy(&self, interface: &Ident, number: u16, encoding: Encoding) -> TokenStream {
        let Method { name, documentation, arguments, .. } = self;
        let module = encoding.module();
        let sink = Ident::new("sink", Span::mixed_site());
        let path = format!("{interface}.{}", unraw(name));
        let parameters = arguments.iter().map(|Argument { name, written, .. }| quote!(#name: #written));
        let puts = arguments.iter().map(|argument| {
            let Argument { name, written, .. } = argument;
            let put = match (&argument.form, encoding) {
                (Form::Octets, Encoding::Postcard) => quote!(#module::put(&#module::Octets(#name), #sink)),
                (Form::Octets, Encoding::Fixed) => {
                    quote!({ ::offcode::encoding::Sink::extend(#sink, #name); ::core::result::Result::Ok(()) })
                }
                (Form::Slice(_) | Form::Borrowed(_), _) => quote_spanned!(written.span()=> #module::put(#name, #sink)),
                (Form::Plain, _) => quote_spanned!(written.span()=> #module::put(&#name, #sink)),
            };
            quote!(.with(|#sink| #put))
        });
        let guid = quote!(&<dyn #interface as ::offcode::Interface>::GUID);
        let (result, start) = match &self.result {
            Output::OneWay => (quote!(()), quote!(::offcode::Call::one_way(#guid, #number, #path))),
            Output::Value(value) | Output::OrRefusal(value) => {
                let decode = quote_spanned!(value.span()=> #module::whole);
                (quote!(#value), quote!(::offcode::Call::manual(#guid, #number, #path, #decode)))
            }
        };
        quote! {
            #(#documentation)*
            #[inline]
            pub fn #name(&self, #(#parameters),*) -> ::offcode::Call<#result> {
                #start #(#puts)*
            }
        }
    }

    /// The arm of the dispatch. Around it are `target`, `call`, `reply` and `context`.
    pub fn arm(&self, interface: &Ident, number: u16, encoding: Encoding) -> TokenStream {
        let module = encoding.module();
        let (interface_name, method_name) = (interface.to_string(), unraw(&self.name));
        let bad = quote!(|why| ::offcode::Refusal::bad_arguments(#interface_name, #method_name, why));
        let local = |place: usize| Ident::new(&format!("argument_{place}"), Span::mixed_site());
        let takes = self.arguments.iter().enumerate().map(|(place, argument)| {
            let (local, written) = (local(place), &argument.written);
            match (&argument.form, encoding) {
                (Form::Octets, Encoding::Fixed) => quote!(let #local: &[u8] = ::core::mem::take(&mut rest);),
                (Form::Octets | Form::Plain, _) => {
                    quote! { let #local: #written = #module::take(&mut rest).map_err(#bad)?; }
                }
                (Form::Slice(element), _) => {
                    quote! { let #local: ::std::vec::Vec<#element> = #module::take(&mut rest).map_err(#bad)?; }
                }
                (Form::Borrowed(value), _) => quote! { let #local: #value = #module::take(&mut rest).map_err(#bad)?; },
            }
        });
        let context = self.takes_context.then(|| quote!(context,));
        let passes = self.arguments.iter().enumerate().map(|(place, argument)| {
            let local = local(place);
            match argument.form {
                Form::Slice(_) | Form::Borrowed(_) => quote!(&#local),
                Form::Octets | Form::Plain => quote!(#local),
            }
        });
        let name = &self.name;
        let invoke = quote!(<dyn #interface as #interface>::#name(target, #context #(#passes),*));
        let answer = |value: TokenStream| {
            quote! {
                #module::put(&#value, reply)
                    .map_err(|why| ::offcode::Refusal(::std::format!("the result of {}.{} cannot be encoded: {why}", #interface_name, #method_name)))
            }
        };
        let finish = match &self.result {
            Output::OneWay => quote!({ #invoke; ::core::result::Result::Ok(()) }),
            Output::Value(_) => answer(invoke),
            Output::OrRefusal(_) => answer(quote!(#invoke?)),
        };
        quote! {
            #number => {
                #[allow(unused_mut)]
                let mut rest: &[u8] = call.arguments;
                #(#takes)*
                ::offcode::encoding::end(rest).map_err(#bad)?;
                #finish
            }
        }
    }
}

fn unraw(name: &Ident) -> String {
    name.to_string().trim_start_matches("r#").into()
}

fn is_context(written: &Type) -> bool {
    let Type::Reference(reference) = written else { return false };
    let mut target = &*reference.elem;
    while let Type::Paren(inner) = target {
        target = &inner.elem;
    }
    let Type::TraitObject(object) = target else { return false };
    object.bounds.iter().any(|bound| match bound {
        syn::TypeParamBound::Trait(bound) => bound.path.segments.last().is_some_and(|last| last.ident == "Context"),
        _ => false,
    })
}

fn form(written: &Type, encoding: Encoding, last: bool) -> syn::Result<Form> {
    check(written, Place::Argument)?;
    let Type::Reference(reference) = written else { return Ok(Form::Plain) };
    match (&*reference.elem, encoding) {
        (Type::Slice(slice), _) if is_named(&slice.elem, "u8") => match (encoding, last) {
            (Encoding::Fixed, false) => Err(Error::new(
                written.span(),
                "with the fixed encoding only the last argument can be `&[u8]`: it takes what is left",
            )),
            _ => Ok(Form::Octets),
        },
        (_, Encoding::Fixed) => Err(Error::new(
            written.span(),
            "the fixed encoding takes integers, floats, bools and arrays of them by value, and one `&[u8]` as the last argument",
        )),
        (Type::Slice(slice), Encoding::Postcard) => Ok(Form::Slice((*slice.elem).clone())),
        (target, Encoding::Postcard) if is_named(target, "str") => Ok(Form::Plain),
        (target, Encoding::Postcard) => Ok(Form::Borrowed(target.clone())),
    }
}

fn is_named(written: &Type, name: &str) -> bool {
    matches!(written, Type::Path(path) if path.qself.is_none() && path.path.is_ident(name))
}

/// The `T` of `Result<T, Refusal>`.
fn value_or_refusal(written: &Type) -> Option<&Type> {
    let Type::Path(path) = written else { return None };
    let last = path.path.segments.last()?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    let mut types = arguments.args.iter().map(|argument| match argument {
        GenericArgument::Type(written) => Some(written),
        _ => None,
    });
    let (value, refusal) = (types.next()??, types.next()??);
    let Type::Path(refusal) = refusal else { return None };
    (last.ident == "Result" && refusal.path.segments.last()?.ident == "Refusal").then_some(value)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Argument,
    Result,
}

/// Refuses types that cannot travel, as far as their spelling tells.
fn check(written: &Type, place: Place) -> syn::Result<()> {
    let refuse = |why: &str| Err(Error::new(written.span(), why));
    match written {
        Type::Reference(reference) => {
            if let Some(word) = &reference.mutability {
                return Err(Error::new(
                    word.span,
                    "a value that travels cannot be changed in place: return it instead",
                ));
            }
            if place == Place::Result {
                return refuse("a result outlives the call: return an owned value");
            }
            if reference.lifetime.as_ref().is_some_and(|lifetime| lifetime.ident != "_") {
                return refuse("an argument lives as long as the call: leave the lifetime out");
            }
            check(&reference.elem, place)
        }
        Type::ImplTrait(_) => refuse("name the type: `impl Trait` does not say how many bytes it has"),
        Type::TraitObject(_) => {
            refuse("a trait object cannot travel (but `&mut dyn Context` may come directly after self)")
        }
        Type::BareFn(_) => refuse("a function cannot travel"),
        Type::Ptr(_) => refuse("a pointer means nothing at another site"),
        Type::Never(_) => refuse("a method of an interface returns"),
        Type::Infer(_) => refuse("name the type"),
        Type::Array(array) => check(&array.elem, place),
        Type::Slice(slice) => check(&slice.elem, place),
        Type::Paren(inner) => check(&inner.elem, place),
        Type::Group(inner) => check(&inner.elem, place),
        Type::Tuple(tuple) => tuple.elems.iter().try_for_each(|element| check(element, place)),
        Type::Path(path) => {
            if path.path.segments.first().is_some_and(|first| first.ident == "Self") {
                return refuse("the offcode stays where it is: `Self` cannot travel");
            }
            path.path.segments.iter().try_for_each(|segment| match &segment.arguments {
                PathArguments::AngleBracketed(arguments) => {
                    arguments.args.iter().try_for_each(|argument| match argument {
                        GenericArgument::Type(inner) => check(inner, place),
                        GenericArgument::Lifetime(lifetime) if place == Place::Result => {
                            Err(Error::new(lifetime.span(), "a result outlives the call: return an owned value"))
                        }
                        _ => Ok(()),
                    })
                }
                _ => Ok(()),
            })
        }
        _ => Ok(()),
    }
}
