//! Timelines from anywhere: read or refused, and calls never go back in time.
#![no_main]

use libfuzzer_sys::fuzz_target;
use record::trace::{Decoder, Header, VERSION, block};
use zerocopy::FromBytes;

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    // Once more with what chance does not find: a header of ours, of either version, and calls in a block that is sealed.
    if let Ok((Header { version, shift, started, .. }, calls)) = Header::read_from_prefix(bytes) {
        let (version, shift) = (VERSION - version % 2, shift % 17);
        let header = Header { version, shift, started, ..Header::new(0, 0, 1, 0) }.sealed();
        read(&block::file(&header, calls));
    }
});

fn read(file: &[u8]) {
    let Ok(mut decoder) = Decoder::new(file) else { return };
    let mut left = 0;
    while let Ok(Some(event)) = decoder.next_event() {
        assert!(event.call.entered >= left && event.call.left >= event.call.entered);
        left = event.call.left;
    }
    assert!(decoder.position() <= file.len());
}
