//! Arbitrary bytes as a native body: no panic, and nothing of it runs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offcode::odf;

const ODF: &[u8] = include_bytes!("../../crates/offcode/tests/odf/example.xml");

fuzz_target!(|input: &[u8]| {
    let manifest = odf::read(ODF).unwrap_or_else(|problems| panic!("{problems}"));
    let _ = native::inspect(input, "x86_64-unknown-linux-gnu", &manifest);
});
