//! What an offcode is, what hardware it needs and what software, as its ODF says (HYDRA section 1.5).

use std::fmt;
use std::str::FromStr;

pub use machine::BodyKind;
use machine::{Bytes, Fault, Nanoseconds, SiteKind, XdpMode};
use semver::Version;
pub use semver::VersionReq;
use serde::{Deserialize, Serialize};

use crate::channel::Specification;
use crate::guid::Guid;
use crate::service::{MAPS, MEMORY, Service};
use crate::signature;

/// An offcode manifest. Its XML form is the ODF.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The package: names, interfaces and bodies.
    pub package: Package,
    /// The kinds of target that are acceptable; one of them must be there.
    pub hardware: Vec<Target>,
    /// The requirements of the offcode on its surroundings.
    pub software: Software,
}

impl Manifest {
    /// The same offcode as its source says it, without the libraries that a package adds.
    pub fn unpackaged(&self) -> Manifest {
        let mut manifest = self.clone();
        manifest.package.bodies.iter_mut().for_each(|body| body.libraries.clear());
        manifest
    }

    /// The [`crate::Described::SIGNATURE`] of a type that implements the same interfaces.
    pub fn signature(&self) -> u64 {
        let interfaces = self.package.interfaces.iter();
        interfaces.fold(signature::UNSIGNED, |so_far, interface| {
            let so_far = signature::sign(so_far, interface.guid.bytes());
            interface.methods.iter().fold(so_far, |so_far, method| signature::sign_method(so_far, method))
        })
    }
}

impl Software {
    /// Whether the site's runtime must offer this service.
    pub fn asks(&self, service: &Service) -> bool {
        self.environment.iter().any(|asked| asked.is(service))
    }

    /// Whether a target's `memory` is a limit that its site enforces.
    pub fn is_limited(&self) -> bool {
        self.asks(&MEMORY) || self.asks(&MAPS)
    }
}

/// Part one: the package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    /// The offcode's identifier.
    pub guid: Guid,
    /// Dotted, as `example.filter`.
    pub name: String,
    /// The package's version. Requirements can be made of a semantic one: three numbers, as 1.4.0.
    pub version: String,
    /// What the offcode is for, for the user.
    pub description: String,
    /// The interfaces that the offcode implements.
    pub interfaces: Vec<Interface>,
    /// The forms of its code, in the order of [`BodyKind`].
    pub bodies: Vec<Body>,
    /// Names and values of the attributes that are set before `initialize`.
    pub attributes: Vec<(String, String)>,
    /// The state that a move has to take along.
    pub state: StateKind,
}

impl Package {
    /// The version, if it is a semantic one.
    pub fn semantic(&self) -> Option<Version> {
        Version::parse(&self.version).ok()
    }

    /// Whether the package's version is in the range asked for.
    pub fn satisfies(&self, asked: Option<&VersionReq>) -> bool {
        asked.is_none_or(|asked| self.semantic().is_some_and(|version| asked.matches(&version)))
    }

    /// Order of preference among versions of an offcode, the larger first: releases before pre-releases, then the
    /// newer.
    pub fn preference(&self) -> Option<(bool, Version)> {
        self.semantic().map(|version| (version.pre.is_empty(), version))
    }

    /// Whether both are versions of one offcode, and it is known which is newer.
    pub fn is_another_version_of(&self, other: &Package) -> bool {
        let both = self.semantic().zip(other.semantic());
        self.guid == other.guid && self.name == other.name && both.is_some_and(|(one, other)| one != other)
    }
}

/// The kind of an offcode's state, and so how it can be moved while it runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateKind {
    /// State that cannot be taken along: the offcode stays where it was started.
    #[default]
    FixedPlace,
    /// No state: a new instance, started elsewhere, takes its place.
    None,
    /// State that its `save` writes and its `restore` understands.
    Saved,
}

/// An interface that the offcode implements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// The interface's identifier.
    pub guid: Guid,
    /// The trait's name.
    pub name: String,
    /// Names of the methods; a method's number is its place here.
    pub methods: Vec<String>,
}

/// One form of the code; at most one of each kind. Where several are for a kind of site, the first in the order
/// of [`BodyKind`] is taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Body {
    /// The form of the code.
    pub kind: BodyKind,
    /// Name of the code's file, which lies beside the ODF; none for `native`.
    pub file: Option<String>,
    /// Shared libraries of a `native` body, one for each kind of machine. Without one it is linked into the program
    /// that hosts it.
    pub libraries: Vec<Library>,
    /// The kinds of site that this body is for.
    pub sites: Vec<SiteKind>,
    /// The program of a `bpf` body at a driver hook; none for the others.
    pub program: Option<Program>,
    /// The function of a `bpf` body at a tc hook; none for the others.
    pub tc: Option<String>,
}

impl Body {
    /// The function that runs at hooks of this kind.
    pub fn entry(&self, hook: SiteKind) -> Option<(&str, ProgramRole)> {
        match hook {
            SiteKind::Xdp => self.program.as_ref().map(|program| (program.name.as_str(), program.role)),
            SiteKind::Tc => self.tc.as_deref().map(|name| (name, ProgramRole::Hook)),
            SiteKind::App | SiteKind::Core | SiteKind::Agent => None,
        }
    }

    /// Names of the body's files.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.file.as_deref().into_iter().chain(self.libraries.iter().map(|library| library.file.as_str()))
    }
}

/// A native body as a file for one kind of machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Library {
    /// The machine and its system, as the compiler names them: `x86_64-unknown-linux-gnu`.
    pub target: String,
    /// Name of the file, which lies beside the ODF.
    pub file: String,
    /// Hash that the file must have: native code is run only where it is what the author packaged.
    pub digest: Digest,
}

/// SHA-256 of a file, written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let refuse = || {
            let next = "write the one that `sha256sum FILE` prints";
            Fault::new(format!("SHA-256 '{text}'"), "it is not 64 hexadecimal digits in lower case", next)
        };
        let plain = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 64 || !text.bytes().all(plain) {
            return Err(refuse());
        }
        let mut digest = Digest([0; 32]);
        for (place, byte) in digest.0.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * place..2 * place + 2], 16).map_err(|_| refuse())?;
        }
        Ok(digest)
    }
}

/// The entry of a `bpf` body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The function's name in the object, as the author's C has it.
    pub name: String,
    /// Who runs the program, and when.
    pub role: ProgramRole,
}

/// Who runs a program, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProgramRole {
    /// Attached at the hook: the kernel runs it for each frame that arrives, or that leaves.
    Hook,
    /// Not attached: the site runs it again and again by BPF_PROG_RUN in live-frames mode, and what it passes on leaves
    /// through the interface.
    Producer,
}

/// Part two: an acceptable target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The kind of site.
    pub site: SiteKind,
    /// Acceptable modes at `xdp`; empty means `native`.
    pub modes: Vec<XdpMode>,
    /// Memory that the offcode takes there.
    pub memory: Bytes,
    /// Core time for one message there, as the author measured it, without what a call of the body and its channel take.
    pub work: Option<Nanoseconds>,
}

/// Part three: requirements on software.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Software {
    /// Services that the target's runtime must offer, beyond the basic ones, each in this version or a later one.
    pub environment: Vec<Service>,
    /// The other offcodes that this one needs.
    pub peers: Vec<Requirement>,
}

/// A peer: another offcode, found by an interface that it implements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirement {
    /// The offcode's name for the peer.
    pub name: String,
    /// The interface that the peer implements.
    pub interface: Guid,
    /// The only acceptable offcode; without it any that implements the interface.
    pub offcode: Option<Guid>,
    /// Acceptable versions of the peer; without it any.
    pub version: Option<VersionReq>,
    /// Where the peer has to be relative to this offcode.
    pub constraint: Constraint,
    /// The specialized channel between the two; without one they talk out of band.
    pub channel: Option<Specification>,
    /// Messages a second that are expected between the two, by which a crossing is weighed. 0 means unknown and is
    /// taken as 1,000.
    pub rate: u64,
}

impl Requirement {
    /// Whether a package meets the requirement.
    pub fn is_met_by(&self, package: &Package) -> bool {
        self.could_be(package) && package.satisfies(self.version.as_ref())
    }

    /// Whether a package meets the requirement but for its version.
    pub fn could_be(&self, package: &Package) -> bool {
        self.offcode.is_none_or(|guid| guid == package.guid)
            && package.interfaces.iter().any(|interface| interface.guid == self.interface)
    }
}

/// Where two offcodes have to be relative to each other (HYDRA section 1.4). `Pull` and `Gang` are symmetric and
/// transitive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Constraint {
    /// Anywhere, together or apart. Priority is not inherited across it.
    Link,
    /// At the same site.
    Pull,
    /// Both away from the application's thread, at the same site or at different ones.
    Gang,
}
