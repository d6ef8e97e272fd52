//! The one compiler and code memory of the process, as all modules share it.

use std::sync::OnceLock;

use machine::{Fault, Result};
use wasmtime::{Config, Engine, OptLevel};

pub const STACK: usize = 256 << 10;

pub fn engine() -> Result<&'static Engine> {
    static ENGINE: OnceLock<Result<Engine, String>> = OnceLock::new();
    ENGINE.get_or_init(|| build().map_err(|error| format!("{error:#}"))).as_ref().map_err(|cause| {
        Fault::new("wasm", format!("the compiler does not start: {cause}"), "use the offcode's native body here")
    })
}

fn build() -> wasmtime::Result<Engine> {
    let mut config = Config::new();
    config
        // Memory is reserved whole, with guard pages behind it, so that the code needs no bounds check.
        .memory_reservation(4 << 30)
        .memory_guard_size(32 << 20)
        .memory_may_move(false)
        // Epochs compare a counter at each loop and function; fuel would add an addition to every block.
        .epoch_interruption(true)
        .max_wasm_stack(STACK)
        // Tests compile more than they run.
        .cranelift_opt_level(if cfg!(debug_assertions) { OptLevel::None } else { OptLevel::Speed })
        // Features that offcodes have no use for are off, as they could be attacked.
        .wasm_memory64(false)
        .wasm_multi_memory(false)
        .wasm_relaxed_simd(false);
    Engine::new(&config)
}
