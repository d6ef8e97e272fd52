//! Offcodes whose body is a wasm module: a sandbox without ambient rights, bounded in memory and time.
//!
//! A module imports nothing. The host writes events into its memory, calls one export, and carries out the actions that
//! it finds in the output area once it has checked all of them; `docs/wasm-abi.md` has the particulars. What a guest can
//! do to its host is therefore what a [`offcode::Context`] offers, within [`Limits`]; what it does wrong ends the
//! instance, which says so ever after, and nothing else.
//!
//! [`Module::compile`] checks and compiles, [`Sandboxed::new`] makes an instance, which is an [`offcode::Offcode`] like any
//! other.
#![forbid(unsafe_code)]

mod engine;
mod inspection;
mod instance;
mod limits;
mod module;
mod outbox;
pub mod output;
mod sandboxed;
mod services;
mod ticker;

pub use inspection::inspect;
pub use limits::Limits;
pub use module::Module;
pub use sandboxed::{BATCH, Counted, Sandboxed};
