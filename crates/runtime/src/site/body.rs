//! Turning code into a running offcode, on sites that run native and wasm bodies.

use machine::{Fault, Result};
use offcode::Offcode;
use wasm::{Limits, Module, Sandboxed};

use super::Deployment;
use crate::code::Code;

/// Compiles or loads code, where its form needs it.
pub(super) fn compiled(code: Code) -> Result<Code> {
    match code {
        Code::Library(libraries) => libraries.load().map(Code::Native),
        Code::Wasm(bytes) => Module::compile(&bytes, &Limits::default()).map(Code::Compiled),
        other => Ok(other),
    }
}

/// Makes the offcode of a deployment. Nothing of the author's code runs but its constructor; of a sandboxed body what
/// prepares it, within its limits.
pub(super) fn embody(deployment: &Deployment) -> Result<Box<dyn Offcode>> {
    let outer = |fault: Fault| fault.within(format!("offcode {}", deployment.name));
    match compiled(deployment.code.clone()).map_err(outer)? {
        Code::Native(construct) => Ok(construct()),
        Code::Compiled(module) => {
            let module = match deployment.memory.limit() {
                Some(memory) => module.within(memory),
                None => module,
            };
            let sandboxed = Sandboxed::new(&module, &deployment.manifest, &deployment.attributes).map_err(outer)?;
            Ok(Box::new(sandboxed))
        }
        Code::Wasm(_) | Code::Library(_) | Code::Bpf(_) => Err(outer(Fault::new(
            "bpf body",
            "the kernel runs it in a driver hook only",
            "let it be placed at xdp:IFACE or tc:IFACE, or give the offcode a native or wasm body",
        ))),
    }
}
