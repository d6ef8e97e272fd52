//! Tests of `runtime` through its interface, a module for each subject.
#![forbid(unsafe_code)]

mod agent;
mod app_file;
mod attributes;
#[path = "../../wasm/tests/built/mod.rs"]
mod built;
mod channels;
mod closure;
mod failing;
mod first_offcode;
mod gang;
mod hook;
mod hook_migration;
mod losses;
mod migration;
mod places;
mod sites;
