//! Offcodes whose body is a wasm module: no imports, a limit of memory, a limit of time.
#![forbid(unsafe_code)]
