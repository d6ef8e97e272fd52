//! What an offcode is, what hardware it needs and what software, as its ODF says (HYDRA section 1.5).

use machine::{Bytes, Nanoseconds, SiteKind};
use serde::{Deserialize, Serialize};

use crate::channel::Specification;
use crate::guid::Guid;

/// An offcode manifest. Its XML form is the ODF.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub package: Package,
    /// Each entry is one kind of target that will do; one of them must be met.
    pub hardware: Vec<Target>,
    pub software: Software,
}

/// Part one: the package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    pub guid: Guid,
    /// Dotted, as `example.filter`.
    pub name: String,
    pub version: String,
    pub description: String,
    pub interfaces: Vec<Interface>,
    /// In the order of [`BodyKind`].
    pub bodies: Vec<Body>,
    /// Set before `initialize`.
    pub attributes: Vec<(String, String)>,
}

/// An interface that the offcode implements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    pub guid: Guid,
    pub name: String,
    /// In the order of their numbers.
    pub methods: Vec<String>,
}

/// One form of the code; at most one of each kind. Where several are for a kind of site, the first in the order
/// of [`BodyKind`] is taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Body {
    pub kind: BodyKind,
    /// Beside the ODF; none for `native`, which is linked into the program that hosts it.
    pub file: Option<String>,
    /// The kinds of site that this body is for.
    pub sites: Vec<SiteKind>,
    /// What the kernel runs of a `bpf` body; none for the others.
    pub program: Option<Program>,
}

/// The entry of a `bpf` body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The function's name in the object, as the author's C has it.
    pub name: String,
    pub role: ProgramRole,
}

/// Who runs a program, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProgramRole {
    /// Attached at the driver hook: the kernel runs it for each frame that arrives.
    Hook,
    /// Not attached: the site runs it again and again by BPF_PROG_RUN in live-frames mode, and what it passes on leaves
    /// through the interface.
    Producer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BodyKind {
    /// A type linked into the program.
    Native,
    /// A sandboxed module without imports.
    Wasm,
    /// An object that the kernel verifies.
    Bpf,
}

/// Part two: a target that will do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    pub site: SiteKind,
    /// Only at `xdp`: the modes that will do. Empty means `native`.
    pub modes: Vec<XdpMode>,
    /// What it takes there.
    pub memory: Bytes,
    /// Work for one message there, as the author measured it; the runtime replaces it by what it measures itself.
    pub work: Option<Nanoseconds>,
}

/// How a driver hook runs a program. Always asked for explicitly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum XdpMode {
    /// In the driver, before the kernel's own buffers exist.
    Native,
    /// In the kernel's receive path, after them.
    Generic,
    /// On the NIC.
    Hardware,
}

/// Part three: what must be there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Software {
    /// Interfaces that the target's runtime must offer, beyond the basic ones.
    pub environment: Vec<Guid>,
    pub peers: Vec<Requirement>,
}

/// A peer: another offcode, found by an interface that it implements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirement {
    /// What this offcode calls the peer.
    pub name: String,
    pub interface: Guid,
    /// Only this one, where several implement the interface.
    pub offcode: Option<Guid>,
    pub constraint: Constraint,
    /// A channel of their own. Without one they talk out of band.
    pub channel: Option<Specification>,
    /// Messages a second that are expected on it: what a crossing is weighed by. 0: unknown, taken as 1,000.
    pub rate: u64,
}

/// HYDRA section 1.4. `Pull` and `Gang` are symmetric and transitive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Constraint {
    /// None: anywhere, together or apart. Priority is not inherited across it.
    Link,
    /// The same site.
    Pull,
    /// Both away from the application's thread, each at a target of its own choice.
    Gang,
}
