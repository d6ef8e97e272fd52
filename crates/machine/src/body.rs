//! Bodies: the forms of an offcode's code.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The form of a body's code, in the order in which bodies are chosen.
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

impl BodyKind {
    /// Each of them.
    pub const ALL: [BodyKind; 3] = [BodyKind::Native, BodyKind::Wasm, BodyKind::Bpf];
}

impl fmt::Display for BodyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            BodyKind::Native => "native",
            BodyKind::Wasm => "wasm",
            BodyKind::Bpf => "bpf",
        })
    }
}
