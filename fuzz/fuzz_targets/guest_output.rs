//! What a sandboxed guest put out, before anything of it is carried out.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offcode::abi::{GONE, Records};
use wasm::output::{Allowed, check};

fuzz_target!(|input: &[u8]| {
    let Some((&[flags, channels], output)) = input.split_first_chunk() else { return };
    let is = |flag| flags & flag != 0;
    let allowed = Allowed { answer: is(1), refusal: is(2), worked: is(4), state: is(8), timers: is(16), memory: is(32), maps: is(64) };
    let mut room: Vec<u32> = (0..u32::from(channels % 65)).map(|i| if i % 5 == 4 { GONE } else { i % 5 }).collect();
    let passed = check(output, allowed, &mut room, u32::from(flags >> 4)).is_ok();
    let decoded = Records::of(output).all(|record| record.is_ok());
    assert!(!passed || decoded);
});
