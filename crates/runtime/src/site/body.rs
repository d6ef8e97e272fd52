//! Turning code into a running offcode, on sites that run native and wasm bodies.

use machine::{Fault, Result};
use offcode::Offcode;

use super::{Code, Deployment};

/// Makes the offcode of a deployment. Nothing of the author's code runs but its constructor.
pub(super) fn embody(deployment: &Deployment) -> Result<Box<dyn Offcode>> {
    match &deployment.code {
        Code::Native(construct) => Ok(construct()),
        Code::Wasm(_) | Code::Bpf(_) => Err(Fault::new(
            format!("offcode {}", deployment.name),
            "its bpf body runs in a driver hook only",
            "let it be placed at xdp:IFACE, or give it a native or wasm body",
        )),
    }
}
