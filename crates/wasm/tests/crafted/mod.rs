//! Guests in the text format, byte for byte what a test needs.
#![allow(dead_code, reason = "each test uses its part")]

use offcode::{Attributes, Guid};
use wasm::{Limits, Module, Sandboxed};

use crate::recorder::manifest;

pub const INPUT: u32 = 1024;
pub const OUTPUT: u32 = 131072;
/// Where the first event is.
pub const EVENT: u32 = INPUT + offcode::abi::HEAD as u32;

pub fn guid() -> Guid {
    Guid::from_bytes(*b"crafted by hand!")
}

/// A well-formed descriptor.
pub fn descriptor() -> [u32; 9] {
    [1, INPUT, 65536, OUTPUT, 65536, 512, 256, 64, 1]
}

/// Answers every call with an empty reply and all else with nothing.
pub const POLITE: &str = "
    (if (i32.eq (global.get $kind) (i32.const 3)) (then
      (i64.store (i32.const 131072) (i64.const 3))
      (i64.store offset=8 (i32.const 131072) (i64.const 0))
      (return (i32.const 16))))
    (i32.const 0)";

/// A module whose handler runs `body`, in which `$kind` is the kind of the first event and `$length` the parameter;
/// `fields` are more parts of the module.
pub fn text(descriptor: &[u32; 9], fields: &str, body: &str) -> String {
    let bytes: String = descriptor.iter().flat_map(|word| word.to_le_bytes()).map(|b| format!("\\{b:02x}")).collect();
    format!(
        "(module
           (memory (export \"memory\") 4)
           (global $kind (mut i32) (i32.const 0))
           (data (i32.const 16) \"{bytes}\")
           (data (i32.const 64) \"crafted by hand!\")
           {fields}
           (func $describe (export \"offcode_describe\") (result i32) i32.const 16)
           (func $handle (export \"offcode_handle\") (param $length i32) (result i32)
             (global.set $kind (i32.load16_u (i32.const {EVENT})))
             {body}))"
    )
}

pub fn binary(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

pub fn instantiate(text: &str, limits: &Limits) -> Result<Sandboxed, machine::Fault> {
    Sandboxed::new(
        &Module::compile(&binary(text), limits)?,
        &manifest("test.crafted", &[guid()]),
        &Attributes::default(),
    )
}

/// Little-endian words of one or more records, stored one after the other at the output area.
pub fn store(words: &[u32]) -> String {
    words
        .iter()
        .enumerate()
        .map(|(i, word)| format!("(i32.store (i32.const {}) (i32.const {}))", OUTPUT + 4 * i as u32, *word as i32))
        .collect()
}
