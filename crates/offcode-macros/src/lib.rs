//! The attributes `#[interface]` and `#[offcode]`; crate `offcode` re-exports them.
#![forbid(unsafe_code)]

mod environment;
mod errors;
mod guid;
mod interface;
mod method;
mod offcode;
mod peers;
mod targets;

#[cfg(test)]
mod messages;

use proc_macro::TokenStream;

/// Makes a trait an interface of offcodes (HYDRA section 1.2).
///
/// ```
/// use offcode::{Context, Refusal, interface};
///
/// #[interface(guid = "7b0dfc4e-2e0b-4a8f-9d0e-0a8c6e1f2a10")]
/// pub trait Filter {
///     /// No result: a one-way call, to which no answer comes.
///     fn packet(&mut self, bytes: &[u8]);
///     /// No result, but the caller waits until it is done.
///     #[acknowledged]
///     fn reset(&mut self);
///     /// The site's context may come first; callers do not pass it.
///     fn passed(&self, context: &mut dyn Context, port: u16) -> u64;
///     /// `Err` reaches the caller as a refusal; the proxy's method returns `Call<u32>`.
///     fn limit(&mut self, bytes: u32) -> Result<u32, Refusal>;
/// }
///
/// let call = FilterProxy.packet(&[1, 2, 3]);
/// assert!(call.is_one_way());
/// ```
///
/// It keeps the trait and adds:
/// - `FilterProxy`, which has the same methods; each returns a `Call` of the result's type;
/// - `Interface` for `dyn Filter`: GUID, names, the manifest's entry, and the dispatch from a call's bytes to the method.
///
/// Methods are numbered in their order, so add new ones at the end; where the meaning of an old one changes, the
/// interface needs a new GUID.
///
/// Arguments are values that serde reads and writes, `&str`, `&[u8]`, `&[T]` or `&T`; results are owned values.
/// With `#[interface(guid = "...", encoding = "fixed")]` they are integers, floats, bools, arrays of those, and
/// one `&[u8]` as the last, at fixed offsets (`offcode::encoding::fixed`), for bodies in C and BPF.
#[proc_macro_attribute]
pub fn interface(arguments: TokenStream, item: TokenStream) -> TokenStream {
    interface::expand(arguments.into(), item.into()).into()
}

/// Makes a type an offcode: writes `Offcode` for it, from its interfaces and its `Lifecycle`, and its manifest.
///
/// ```
/// # use offcode::{interface, Context, Described, Lifecycle};
/// # #[interface(guid = "7b0dfc4e-2e0b-4a8f-9d0e-0a8c6e1f2a10")]
/// # pub trait Filter { fn packet(&mut self, bytes: &[u8]); }
/// # #[interface(guid = "7b0dfc4e-2e0b-4a8f-9d0e-0a8c6e1f2a11")]
/// # pub trait Report { fn count(&mut self, packets: u64); }
/// /// Drops what is too long.
/// #[offcode::offcode(
///     guid = "7b0dfc4e-2e0b-4a8f-9d0e-0a8c6e1f2a13",
///     name = "example.filter",
///     version = "1.0.0",
///     implements(Filter),
///     requires(
///         pull(reporter: Report, rate = 5_000, version = ">=1.2, <2"),
///         gang(upstream: Filter, offcode = "7b0dfc4e-2e0b-4a8f-9d0e-0a8c6e1f2a14",
///              channel(unreliable, messages, count = 256, size = 2048)),
///     ),
///     environment(timers, memory = 1),
///     sites(app, core(work = 120), agent(memory = 1_048_576)),
///     bodies(native(app, core), wasm("filter.wasm", app, agent)),
///     attributes(OFFLOAD_PRIORITY = 200),
/// )]
/// #[derive(Default)]
/// struct LengthFilter { packets: u64 }
///
/// impl Filter for LengthFilter {
///     fn packet(&mut self, bytes: &[u8]) { self.packets += u64::from(bytes.len() < 900); }
/// }
/// impl Lifecycle for LengthFilter {}
///
/// let manifest = LengthFilter::manifest();
/// assert_eq!(manifest.package.description, "Drops what is too long.");
/// assert_eq!(manifest.software.peers[0].version, ">=1.2, <2".parse().ok());
/// assert_eq!(manifest.software.peers[1].version, None);
/// ```
///
/// | argument | meaning |
/// |---|---|
/// | `guid`, `name`, `version` | the package; name dotted, version as `1.0.0` |
/// | `description` | else the type's documentation |
/// | `implements(A, B)` | interfaces whose calls it serves |
/// | `requires(CONSTRAINT(name: Interface, ...))` | peers: `link`, `pull` or `gang`; then `rate = MESSAGES_A_SECOND`, `offcode = "GUID"`, `version = ">=1.2, <2"`, `channel(...)` of `unicast multicast`, `reliable unreliable`, `poll blocking`, `calls messages`, `any zero_copy copy`, `count = BUFFERS`, `size = BYTES` |
/// | `environment(SERVICE, ...)` | services that the site's runtime must offer: `timers`, `memory`, `maps`, an interface or its `"GUID"`, each with `= LEAST_VERSION` where 1 does not do |
/// | `sites(KIND, ...)` | kinds of target that will do: `app`, `core`, `xdp`, `agent`, each with `(memory = BYTES, work = NANOSECONDS)`, 64 KiB unless said; at `xdp` also `modes(native, generic, hardware)` |
/// | `bodies(FORM(...))` | `native(KINDS)`, `wasm("file", KINDS)`, `bpf("file", hook = "FUNCTION", xdp)` (or `producer`), one of each at most; without it one native body for all sites |
/// | `attributes(NAME = value)` | set before `initialize` |
///
/// Another type can be a further native body of the same offcode, registered with `Registry::with_at`:
/// `#[offcode(body_of = LengthFilter, implements(Filter))]`.
#[proc_macro_attribute]
pub fn offcode(arguments: TokenStream, item: TokenStream) -> TokenStream {
    offcode::expand(arguments.into(), item.into()).into()
}
