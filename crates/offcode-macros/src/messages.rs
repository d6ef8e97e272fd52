//! Tests of the messages that authors are given.

use proc_macro2::{TokenStream, TokenTree};

/// The messages of an expansion.
fn messages(tokens: TokenStream) -> Vec<String> {
    let mut found = Vec::new();
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (place, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Ident(word) if word == "compile_error" => {
                let TokenTree::Group(group) = &tokens[place + 2] else { panic!("compile_error! {{ .. }}") };
                let text: syn::LitStr = syn::parse2(group.stream()).unwrap();
                found.push(text.value());
            }
            TokenTree::Group(group) => found.extend(messages(group.stream())),
            _ => {}
        }
    }
    found
}

/// Checks that one message is given, and that it contains `message`.
#[track_caller]
fn refuses(expanded: TokenStream, message: &str) {
    let found = messages(expanded);
    let [text] = found.as_slice() else { panic!("one message wanted, not {found:?}") };
    assert!(text.contains(message), "{text:?}");
}

#[track_caller]
fn interface(arguments: &str, item: &str) -> TokenStream {
    crate::interface::expand(arguments.parse().unwrap(), item.parse().unwrap())
}

#[track_caller]
fn method(method: &str, message: &str) {
    refuses(interface(GUID, &format!("trait Filter {{ fn first(&self); {method} }}")), message);
}

#[track_caller]
fn fixed(method: &str, message: &str) {
    let arguments = format!("{GUID}, encoding = \"fixed\"");
    refuses(interface(&arguments, &format!("trait Filter {{ {method} }}")), message);
}

#[track_caller]
fn offcode(arguments: &str, message: &str) {
    refuses(crate::offcode::expand(arguments.parse().unwrap(), "struct It;".parse().unwrap()), message);
}

/// With what every offcode needs before it.
#[track_caller]
fn more(arguments: &str, message: &str) {
    offcode(&format!("{GUID}, name = \"a.b\", version = \"1.0.0\", implements(Filter), {arguments}"), message);
}

const GUID: &str = "guid = \"0b5a6f8e-1111-4c39-8d3e-0c1a2b3c4d01\"";

#[test]
fn interfaces() {
    assert!(messages(interface(GUID, "pub trait Filter { fn packet(&mut self, bytes: &[u8]) -> bool; }")).is_empty());
    let good = "trait Filter { fn first(&self); }";
    refuses(interface("", good), "a GUID is missing: write guid = \"...\"");
    // The GUID that it proposes will do.
    let proposal = messages(interface("", good)).remove(0);
    let proposed =
        proposal.split(", ").find_map(|part| part.strip_prefix("or ")).or(proposal.split("or ").last()).unwrap();
    let proposed = proposed.split(',').next().unwrap();
    assert!(messages(interface(&format!("guid = \"{proposed}\""), good)).is_empty());
    refuses(interface("guid = \"1234\"", good), "8-4-4-4-12");
    refuses(interface(&format!("{GUID}, {GUID}"), good), "given twice");
    refuses(interface(&format!("{GUID}, name = \"x\""), good), "an interface takes guid");
    refuses(interface(&format!("{GUID}, encoding = \"xml\""), good), "\"postcard\" or \"fixed\"");
    refuses(interface(GUID, "struct Filter;"), "goes on a trait");
    refuses(interface(GUID, "trait Filter {}"), "without methods");
    refuses(interface(GUID, "trait Filter<T> { fn first(&self); }"), "cannot be generic");
    refuses(interface(GUID, "trait Filter where u8: Copy { fn first(&self); }"), "where clause");
    refuses(interface(GUID, "unsafe trait Filter { fn first(&self); }"), "cannot be unsafe");
    method("const LIMIT: u32;", "methods only");
    method("type Item;", "methods only");
}

#[test]
fn methods() {
    method("async fn f(&self);", "cannot be async");
    method("unsafe fn f(&self);", "cannot be unsafe");
    method("extern \"C\" fn f(&self);", "no ABI");
    method("fn f<T>(&self, x: T);", "cannot be generic");
    method("fn f(&self) where u8: Copy;", "where clause");
    method("fn f();", "takes `&self` or `&mut self`");
    method("fn f(self);", "stays where it is");
    method("fn f(self: Box<Self>);", "stays where it is");
    method("fn first(&mut self);", "`first` is there twice");
    method("#[cfg(unix)] fn f(&self);", "change the numbers");
    method("#[acknowledged] fn f(&self) -> u8;", "answered anyway");
}

#[test]
fn arguments_and_results() {
    method("fn f(&self, x: &mut u8);", "return it instead");
    method("fn f(&self, x: impl Copy);", "impl Trait");
    method("fn f(&self, x: Option<Box<dyn Fn()>>);", "trait object");
    method("fn f(&self, x: fn() -> u8);", "a function cannot travel");
    method("fn f(&self, x: *const u8);", "a pointer");
    method("fn f(&self, x: &'static str);", "leave the lifetime out");
    method("fn f(&self, x: Self);", "`Self` cannot travel");
    method("fn f(&self, x: _);", "name the type");
    method("fn f(&self, x: u8, context: &mut dyn Context);", "the context comes first");
    method("fn f(&self, (a, b): (u8, u8)) {}", "a plain name");
    method("fn f(&self) -> &str;", "owned value");
    method("fn f(&self) -> Option<Cow<'a, str>>;", "owned value");
    method("fn f(&self) -> !;", "returns");
    method("fn f(&self) -> Box<dyn Copy>;", "trait object");
    fixed("fn f(&self, a: &[u8], b: u8);", "only the last argument");
    fixed("fn f(&self, a: &str);", "the fixed encoding takes");
    fixed("fn f(&self, a: &u64);", "the fixed encoding takes");
    // All that is wrong is said at once.
    let several = messages(interface(GUID, "trait Filter { async fn f(); fn g(&self, x: *const u8); }"));
    assert_eq!(several.len(), 3);
}

#[test]
fn offcodes() {
    offcode("", "which interfaces it serves");
    offcode("implements(Filter)", "a name is missing");
    offcode("name = \"a.b\", implements(Filter)", "a GUID is missing");
    offcode(&format!("{GUID}, name = \"a.b\", implements(Filter)"), "a version is missing");
    offcode("name = \"Filter\"", "lower-case words");
    offcode("name = \"a..b\"", "lower-case words");
    offcode("version = \"1.0\"", "three numbers");
    offcode("implements(A, b::B, A)", "named before");
    offcode("colour = 3", "an offcode takes guid");
    offcode("sites(app), sites(core)", "`sites` is given twice");
    offcode("body_of = Other, implements(A), sites(app)", "has the manifest of the type");
    more("", "which kinds of site");
    more("sites(app), environment(clocks)", "timers, memory or maps");
    more("sites(app), environment(timers = 0)", "from 1 to 9999");
    more("sites(app), environment(\"x\")", "8-4-4-4-12");
    more("sites(gpu)", "app, core, xdp, tc or agent");
    more("sites(app, core, app)", "`app` was named before");
    more("sites(app(speed = 3))", "memory = BYTES");
    more("sites(core(modes(native)))", "only xdp has modes");
    more("sites(xdp(modes(fast)))", "native, generic or hardware");
    more("sites(app, xdp)", "xdp needs a bpf body");
    more("sites(app, core), bodies(native(app))", "no body is for `core`");
    more("sites(app), bodies(native(app, agent))", "`agent` is not among");
    more("sites(app), bodies(native(xdp))", "bpf bodies only");
    more("sites(app), bodies(bpf(\"x.o\", app))", "at xdp and tc only");
    more("sites(app), bodies(wasm(app))", "in which file");
    more("sites(xdp), bodies(bpf(\"x.o\", xdp))", "the function that the kernel runs");
    more("sites(xdp), bodies(bpf(\"x.o\", hook = \"f\", producer = \"g\", xdp))", "one program");
    more("sites(app), bodies(wasm(\"x.wasm\", hook = \"f\", app))", "a bpf body names its program");
    more("sites(app, core), bodies(native(app), native(core))", "at most one body of each kind");
    more("sites(app), bodies(native(\"x.so\", app))", "has no file");
    more("sites(app), bodies(native())", "for which kinds of site");
    more("sites(app), attributes(OFFLOAD_PRIORITY = 1001)", "from 0 to 1000");
    more("sites(app), attributes(OBSOLETE_TIME = 0)", "from 1 to");
    more("sites(app), attributes(share = 0.5)", "a text, a whole number or a bool");
    refuses(crate::offcode::expand(TokenStream::new(), "fn f() {}".parse().unwrap()), "a struct or an enum");
    refuses(crate::offcode::expand(TokenStream::new(), "struct It<T>(T);".parse().unwrap()), "cannot be generic");
}

#[test]
fn peers() {
    more("sites(app), requires(push(a: A))", "link, pull or gang");
    more("sites(app), requires(pull(a: A), gang(a: B))", "another peer is called `a`");
    more("sites(app), requires(pull(a: A, speed = 3))", "a peer takes rate");
    more("sites(app), requires(pull(a: A, b: B))", "a constraint of its own");
    more("sites(app), requires(pull(a: A, offcode = \"x\"))", "8-4-4-4-12");
    more("sites(app), requires(pull(a: A, version = \"new\"))", "versions are written like");
    more("sites(app), requires(pull(a: A, channel(fast)))", "a channel takes");
    more("sites(app), requires(pull(a: A, channel(reliable, unreliable)))", "`reliable` was said before");
    more("sites(app), requires(pull(a: A, channel(count = 3)))", "power of two from 4");
    more("sites(app), requires(pull(a: A, channel(size = 0)))", "at least one byte");
    more("sites(app), requires(pull(a: A, channel(count)))", "write count = a number");
    more("sites(app), requires(pull(a: A, channel(poll = 3)))", "takes no value");
}
