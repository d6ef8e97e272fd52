//! Arbitrary bytes as the state of an offcode that moves: no panic, and what is read is written as it came.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offcode::State;

fuzz_target!(|input: &[u8]| {
    if let Ok(state) = State::decode(input) {
        assert_eq!(state.encode().expect("what was read can be written"), input);
    }
});
