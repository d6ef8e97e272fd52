//! A compiled module, from which any number of instances are made.

use machine::{Bytes, Fault, Result};

use crate::engine::engine;
use crate::inspection::inspect;
use crate::instance::printable;
use crate::limits::Limits;

#[derive(Clone)]
pub struct Module {
    pub(crate) compiled: wasmtime::Module,
    pub(crate) limits: Limits,
    initial: Bytes,
}

impl Module {
    /// Checks and compiles a binary module. Nothing of it runs. Takes milliseconds; [`Limits::module`] and
    /// [`Limits::function`] bound them.
    pub fn compile(bytes: &[u8], limits: &Limits) -> Result<Module> {
        let initial = inspect(bytes, limits)?;
        let compiled = wasmtime::Module::from_binary(engine()?, bytes).map_err(|error| {
            // Names in the message are the author's.
            let said: String = printable(format!("{error:#}").as_bytes()).chars().take(400).collect();
            Fault::new(
                "wasm module",
                format!("it does not compile: {said}"),
                "build it for wasm32 with the features of WebAssembly 2.0 and no more",
            )
        })?;
        Ok(Module { compiled, limits: *limits, initial })
    }

    /// Most memory of the machine code and one instance.
    pub fn memory(&self) -> Bytes {
        let code = self.compiled.image_range();
        let tables = self.limits.table_elements * size_of::<usize>();
        let code = code.end as usize - code.start as usize;
        Bytes((code + tables) as u64) + self.limits.memory + self.limits.output
    }

    /// The memory that an instance begins with.
    pub fn initial(&self) -> Bytes {
        self.initial
    }

    /// The same module, whose instances have `memory` at most, where that is less.
    pub fn within(mut self, memory: Bytes) -> Module {
        self.limits.memory = Bytes(self.limits.memory.0.min(memory.0));
        self
    }
}
