//! `afxdp::read_datagram` on whatever a wire may bring. The first byte chooses what it looks like at first.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut frame = bytes.to_vec();
    let start: &[u8] = match frame.first() {
        Some(0..100) => &[0x08, 0x00, 0x45],
        Some(100..200) => &[0x86, 0xdd, 0x60],
        _ => &[],
    };
    if let Some(place) = frame.get_mut(12..12 + start.len()) {
        place.copy_from_slice(start);
    }
    if let Ok(datagram) = ports::afxdp::read_datagram(&frame) {
        assert!(frame.get(datagram.at..datagram.at + datagram.length).is_some());
        assert_eq!(datagram.from.is_ipv4(), datagram.to.is_ipv4());
    }
});
