//! The attributes `#[interface]` and `#[offcode]`; crate `offcode` documents and re-exports them.
#![forbid(unsafe_code)]
