//! Timelines from anywhere: read or refused, and calls never go back in time.
#![no_main]

use libfuzzer_sys::fuzz_target;
use record::functions;
use record::trace::{Decoder, Header};
use zerocopy::FromBytes;

fuzz_target!(|bytes: &[u8]| {
    let mut file = bytes.to_vec();
    // What any other header brings is a refusal.
    if let Ok((header, _)) = Header::mut_from_prefix(&mut file) {
        *header = Header { shift: header.shift % 17, started: header.started, ..Header::new(0, 0, 1, 0) };
        header.functions = functions::digest();
    }
    let Ok(mut decoder) = Decoder::new(&file) else { return };
    let mut left = 0;
    while let Ok(Some(event)) = decoder.next_event() {
        assert!(event.call.entered >= left && event.call.left >= event.call.entered);
        left = event.call.left;
    }
    assert!(decoder.position() <= file.len());
});
