//! The code of an offcode in the form that a site gets, and packaged native bodies: bytes with their hash, until they are
//! loaded.

use std::sync::Arc;

use machine::{BodyKind, Fault, Result, SiteKind};
use native::TARGET;
use offcode::Manifest;
use offcode::depot::Stored;
use offcode::manifest::{Digest, Library};
use offcode::registry::Constructor;
use ring::digest::SHA256;

/// The form of the code that a site gets.
#[derive(Clone)]
pub enum Code {
    Native(Constructor),
    /// A packaged native body, not loaded yet.
    Library(Libraries),
    /// The module's bytes.
    Wasm(Arc<[u8]>),
    /// The same module, compiled: see [`crate::site::SiteDriver::preparation`].
    Compiled(wasm::Module),
    /// The ELF object's bytes.
    Bpf(Arc<[u8]>),
}

impl Code {
    pub fn kind(&self) -> BodyKind {
        match self {
            Code::Native(_) | Code::Library(_) => BodyKind::Native,
            Code::Wasm(_) | Code::Compiled(_) => BodyKind::Wasm,
            Code::Bpf(_) => BodyKind::Bpf,
        }
    }
}

/// The libraries of one offcode: the one for this machine, or all for an agent, whose machine may be of another kind.
#[derive(Clone)]
pub struct Libraries {
    manifest: Arc<Manifest>,
    files: Arc<[(Library, Arc<[u8]>)]>,
}

/// The libraries of a manifest's native body.
pub fn libraries_of(manifest: &Manifest) -> &[Library] {
    let native = manifest.package.bodies.iter().find(|body| body.kind == BodyKind::Native);
    native.map_or(&[], |native| &native.libraries)
}

/// The library that this machine can load.
///
/// # Errors
/// No library is for this machine.
pub fn library_for_this_machine(manifest: &Manifest) -> Result<&Library> {
    let libraries = libraries_of(manifest);
    libraries.iter().find(|library| library.target == TARGET).ok_or_else(|| {
        let targets: Vec<&str> = libraries.iter().map(|library| library.target.as_str()).collect();
        let cause = format!("this machine is {TARGET}, and its libraries are for {}", targets.join(", "));
        Fault::new(
            format!("native body of {}", manifest.package.name),
            cause,
            "build and package it on such a machine too",
        )
    })
}

impl Libraries {
    /// The libraries of a package; `None` where it has none.
    ///
    /// # Errors
    /// None is for this machine, where one is needed; a file that is not what the ODF says.
    pub fn of(stored: &Stored, site: SiteKind) -> Result<Option<Libraries>> {
        let manifest = &stored.manifest;
        let wanted = match (libraries_of(manifest), site) {
            ([], _) => return Ok(None),
            (all, SiteKind::Agent) => all,
            _ => std::slice::from_ref(library_for_this_machine(manifest)?),
        };
        let files = wanted.iter().map(|library| Ok((library.clone(), checked(library, stored.load(&library.file)?)?)));
        Ok(Some(Libraries { manifest: manifest.clone(), files: files.collect::<Result<_>>()? }))
    }

    /// A library whose bytes came another way; the caller has compared them with its hash.
    pub fn one(manifest: Arc<Manifest>, library: Library, bytes: Arc<[u8]>) -> Libraries {
        Libraries { manifest, files: [(library, bytes)].into() }
    }

    /// Looks at the files without loading any.
    ///
    /// # Errors
    /// The first that is no library of this offcode.
    pub fn inspect(&self) -> Result<()> {
        self.files.iter().try_for_each(|(library, bytes)| native::inspect(bytes, &library.target, &self.manifest))
    }

    /// The bytes of a library, by hash.
    pub fn bytes(&self, digest: &Digest) -> Option<&Arc<[u8]>> {
        self.files.iter().find(|(library, _)| library.digest == *digest).map(|(_, bytes)| bytes)
    }

    /// Loads the library for this machine. It runs with all rights of this process, and stays until the process ends.
    ///
    /// # Errors
    /// None is for this machine; what the loader refuses.
    pub fn load(&self) -> Result<Constructor> {
        let wanted = library_for_this_machine(&self.manifest)?;
        let Some(bytes) = self.bytes(&wanted.digest) else {
            return Err(Fault::new("native body", "its library is not here", "report this"));
        };
        Ok(native::Library::load(bytes, wanted.digest, &self.manifest)?.constructor(&self.manifest))
    }
}

/// The hash of a body's bytes.
pub fn digest(bytes: &[u8]) -> Digest {
    let mut digest = Digest([0; 32]);
    digest.0.copy_from_slice(ring::digest::digest(&SHA256, bytes).as_ref());
    digest
}

fn checked(library: &Library, bytes: Arc<[u8]>) -> Result<Arc<[u8]>> {
    let found = digest(&bytes);
    if found == library.digest {
        return Ok(bytes);
    }
    let cause = format!("its hash is {found}, and its manifest says {}", library.digest);
    Err(Fault::new(
        format!("library {}", library.file),
        cause,
        "take the package from where it was made: native code is not run otherwise",
    ))
}
