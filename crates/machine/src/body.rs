//! Bodies: the forms of an offcode's code.

use serde::{Deserialize, Serialize};

crate::named! {
    /// The form of a body's code, in the order in which bodies are chosen.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum BodyKind {
        /// A type linked into the program.
        Native = "native",
        /// A sandboxed module without imports.
        Wasm = "wasm",
        /// An object that the kernel verifies.
        Bpf = "bpf",
    }
}
