//! `sites(...)` and `bodies(...)`: the targets that will do, and the forms of the code.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, LitInt, LitStr, Result, Token, parenthesized};

/// Memory of an offcode at a site unless it states another.
const MEMORY: u64 = 64 * 1024;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SiteKind {
    App,
    Core,
    Xdp,
    Tc,
    Agent,
}

impl SiteKind {
    fn read(word: &Ident) -> Result<SiteKind> {
        match word.to_string().as_str() {
            "app" => Ok(SiteKind::App),
            "core" => Ok(SiteKind::Core),
            "xdp" => Ok(SiteKind::Xdp),
            "tc" => Ok(SiteKind::Tc),
            "agent" => Ok(SiteKind::Agent),
            _ => Err(Error::new(word.span(), "a kind of site is app, core, xdp, tc or agent")),
        }
    }

    fn word(self) -> &'static str {
        match self {
            SiteKind::App => "app",
            SiteKind::Core => "core",
            SiteKind::Xdp => "xdp",
            SiteKind::Tc => "tc",
            SiteKind::Agent => "agent",
        }
    }

    fn tokens(self) -> TokenStream {
        match self {
            SiteKind::App => quote!(::offcode::expansion::SiteKind::App),
            SiteKind::Core => quote!(::offcode::expansion::SiteKind::Core),
            SiteKind::Xdp => quote!(::offcode::expansion::SiteKind::Xdp),
            SiteKind::Tc => quote!(::offcode::expansion::SiteKind::Tc),
            SiteKind::Agent => quote!(::offcode::expansion::SiteKind::Agent),
        }
    }
}

/// A target: `core(memory = 4096, work = 120)`
pub struct Target {
    pub kind: SiteKind,
    pub span: Span,
    memory: u64,
    work: Option<u64>,
    modes: Vec<&'static str>,
}

impl Parse for Target {
    fn parse(input: ParseStream) -> Result<Self> {
        let word: Ident = input.parse()?;
        let mut target =
            Target { kind: SiteKind::read(&word)?, span: word.span(), memory: MEMORY, work: None, modes: Vec::new() };
        if !input.peek(syn::token::Paren) {
            return Ok(target);
        }
        let inside;
        parenthesized!(inside in input);
        while !inside.is_empty() {
            let option: Ident = inside.parse()?;
            match option.to_string().as_str() {
                "memory" => {
                    inside.parse::<Token![=]>()?;
                    target.memory = inside.parse::<LitInt>()?.base10_parse()?;
                }
                "work" => {
                    inside.parse::<Token![=]>()?;
                    target.work = Some(inside.parse::<LitInt>()?.base10_parse()?);
                }
                "modes" if target.kind == SiteKind::Xdp => {
                    let modes;
                    parenthesized!(modes in inside);
                    for mode in Punctuated::<Ident, Token![,]>::parse_terminated(&modes)? {
                        target.modes.push(match mode.to_string().as_str() {
                            "native" => "Native",
                            "generic" => "Generic",
                            "hardware" => "Hardware",
                            _ => return Err(Error::new(mode.span(), "a mode of xdp is native, generic or hardware")),
                        });
                    }
                }
                "modes" => return Err(Error::new(option.span(), "only xdp has modes")),
                _ => {
                    return Err(Error::new(
                        option.span(),
                        "a site takes memory = BYTES and work = NANOSECONDS, xdp also modes(...)",
                    ));
                }
            }
            if !inside.is_empty() {
                inside.parse::<Token![,]>()?;
            }
        }
        Ok(target)
    }
}

impl Target {
    /// The tokens of a `manifest::Target`.
    pub fn tokens(&self) -> TokenStream {
        let (site, memory) = (self.kind.tokens(), self.memory);
        let work = match self.work {
            Some(work) => quote!(::core::option::Option::Some(::offcode::expansion::Nanoseconds(#work))),
            None => quote!(::core::option::Option::None),
        };
        let modes = self.modes.iter().map(|mode| Ident::new(mode, Span::call_site()));
        quote! {
            ::offcode::manifest::Target {
                site: #site,
                modes: ::std::vec![#(::offcode::expansion::XdpMode::#modes),*],
                memory: ::offcode::expansion::Bytes(#memory),
                work: #work,
            }
        }
    }
}

/// A body: `wasm("filter.wasm", app, core)`, `bpf("filter.o", hook = "filter", tc = "filter_packet", xdp, tc)`
pub struct Body {
    form: Form,
    span: Span,
    file: Option<LitStr>,
    program: Option<(&'static str, LitStr)>,
    tc: Option<LitStr>,
    sites: Vec<(SiteKind, Span)>,
}

/// Forms of bodies, in the order in which a manifest lists them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    Native,
    Wasm,
    Bpf,
}

impl Parse for Body {
    fn parse(input: ParseStream) -> Result<Self> {
        let word: Ident = input.parse()?;
        let form = match word.to_string().as_str() {
            "native" => Form::Native,
            "wasm" => Form::Wasm,
            "bpf" => Form::Bpf,
            _ => {
                return Err(Error::new(
                    word.span(),
                    "a body is native(SITES), wasm(\"file\", SITES) or bpf(\"file\", hook = \"NAME\", xdp)",
                ));
            }
        };
        let inside;
        parenthesized!(inside in input);
        let mut file: Option<LitStr> = None;
        if inside.peek(LitStr) {
            file = Some(inside.parse()?);
            if !inside.is_empty() {
                inside.parse::<Token![,]>()?;
            }
        }
        match (&file, form) {
            (Some(file), Form::Native) => {
                return Err(Error::new(file.span(), "a native body is linked in: it has no file"));
            }
            (None, Form::Wasm | Form::Bpf) => {
                return Err(Error::new(word.span(), "say in which file it is, as wasm(\"filter.wasm\", app)"));
            }
            _ => {}
        }
        let (mut sites, mut program, mut tc) = (Vec::new(), None, None);
        while !inside.is_empty() {
            let word: Ident = inside.parse()?;
            if inside.peek(Token![=]) {
                if form == Form::Bpf && word == "tc" && tc.is_none() {
                    inside.parse::<Token![=]>()?;
                    tc = Some(inside.parse()?);
                    if !inside.is_empty() {
                        inside.parse::<Token![,]>()?;
                    }
                    continue;
                }
                let role = match (word.to_string().as_str(), form) {
                    ("hook", Form::Bpf) => "Hook",
                    ("producer", Form::Bpf) => "Producer",
                    _ => {
                        return Err(Error::new(
                            word.span(),
                            "a bpf body names its program by hook = \"NAME\" or producer = \"NAME\", and by tc = \"NAME\" for tc hooks",
                        ));
                    }
                };
                if program.is_some() {
                    return Err(Error::new(word.span(), "a body has one program"));
                }
                inside.parse::<Token![=]>()?;
                program = Some((role, inside.parse()?));
            } else {
                let kind = SiteKind::read(&word)?;
                match (form, kind) {
                    (Form::Native | Form::Wasm, SiteKind::Xdp | SiteKind::Tc) => {
                        return Err(Error::new(word.span(), "hooks of the kernel run bpf bodies only"));
                    }
                    (Form::Bpf, SiteKind::App | SiteKind::Core | SiteKind::Agent) => {
                        return Err(Error::new(word.span(), "bpf bodies run at xdp and tc only"));
                    }
                    _ => sites.push((kind, word.span())),
                }
            }
            if !inside.is_empty() {
                inside.parse::<Token![,]>()?;
            }
        }
        let at = |kind| sites.iter().any(|(at, _)| *at == kind);
        if form == Form::Bpf && program.is_none() && (at(SiteKind::Xdp) || tc.is_none()) {
            return Err(Error::new(
                word.span(),
                "name the function that the kernel runs: hook = \"NAME\" for arriving frames, producer = \"NAME\" for frames that it makes",
            ));
        }
        if at(SiteKind::Tc) && tc.is_none() {
            return Err(Error::new(word.span(), "name the function that the kernel runs at tc hooks: tc = \"NAME\""));
        }
        if sites.is_empty() {
            return Err(Error::new(word.span(), "say for which kinds of site it is, as native(app, core)"));
        }
        Ok(Body { form, span: word.span(), file, program, tc, sites })
    }
}

impl Body {
    /// The native body for all of these sites.
    pub fn native(sites: Vec<(SiteKind, Span)>) -> Body {
        Body { form: Form::Native, span: Span::call_site(), file: None, program: None, tc: None, sites }
    }

    /// The tokens of a `manifest::Body`.
    pub fn tokens(&self) -> TokenStream {
        let form = match self.form {
            Form::Native => quote!(::offcode::manifest::BodyKind::Native),
            Form::Wasm => quote!(::offcode::manifest::BodyKind::Wasm),
            Form::Bpf => quote!(::offcode::manifest::BodyKind::Bpf),
        };
        let program = match &self.program {
            Some((role, name)) => {
                let role = Ident::new(role, Span::call_site());
                quote! {
                    ::core::option::Option::Some(::offcode::manifest::Program {
                        name: #name.into(),
                        role: ::offcode::manifest::ProgramRole::#role,
                    })
                }
            }
            None => quote!(::core::option::Option::None),
        };
        let tc = match &self.tc {
            Some(name) => quote!(::core::option::Option::Some(#name.into())),
            None => quote!(::core::option::Option::None),
        };
        let file = match &self.file {
            Some(file) => quote!(::core::option::Option::Some(#file.into())),
            None => quote!(::core::option::Option::None),
        };
        let sites = self.sites.iter().map(|(kind, _)| kind.tokens());
        quote! {
            ::offcode::manifest::Body {
                kind: #form,
                file: #file,
                libraries: ::std::vec![],
                sites: ::std::vec![#(#sites),*],
                program: #program,
                tc: #tc,
            }
        }
    }
}

/// The bodies as written, or one native body for all sites; each site needs a body, and each body's sites are named.
pub fn bodies(targets: &[Target], written: Option<Vec<Body>>) -> Result<Vec<Body>> {
    for (place, target) in targets.iter().enumerate() {
        if targets[..place].iter().any(|earlier| earlier.kind == target.kind && target.kind != SiteKind::Xdp) {
            return Err(Error::new(target.span, format!("`{}` was named before", target.kind.word())));
        }
    }
    let bodies = match written {
        Some(mut bodies) => {
            bodies.sort_by_key(|body| body.form);
            if let Some(pair) = bodies.windows(2).find(|pair| pair[0].form == pair[1].form) {
                return Err(Error::new(pair[1].span, "there is at most one body of each kind"));
            }
            bodies
        }
        None => match targets.iter().find(|target| matches!(target.kind, SiteKind::Xdp | SiteKind::Tc)) {
            Some(target) => {
                let (kind, name) = (target.kind.word(), if target.kind == SiteKind::Tc { "tc" } else { "hook" });
                let message = format!(
                    "{kind} needs a bpf body: add bodies(native(app), bpf(\"file.o\", {name} = \"NAME\", {kind}))"
                );
                return Err(Error::new(target.span, message));
            }
            None => vec![Body::native(targets.iter().map(|target| (target.kind, target.span)).collect())],
        },
    };
    for target in targets {
        if !bodies.iter().any(|body| body.sites.iter().any(|(kind, _)| *kind == target.kind)) {
            return Err(Error::new(target.span, format!("no body is for `{}`", target.kind.word())));
        }
    }
    for (kind, span) in bodies.iter().flat_map(|body| &body.sites) {
        if !targets.iter().any(|target| target.kind == *kind) {
            return Err(Error::new(*span, format!("`{}` is not among the sites(...) that will do", kind.word())));
        }
    }
    Ok(bodies)
}
