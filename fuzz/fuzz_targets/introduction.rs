//! Introductions from anywhere: only one that holds the receiver's secret is read, and its name reads back as it was.
#![no_main]

use endpoint::Name;
use endpoint::introduction::Introduction;
use libfuzzer_sys::fuzz_target;

fn me() -> Name {
    let mut bytes = [7; Name::LENGTH];
    bytes[..4].copy_from_slice(b"plm2");
    Name::from_bytes(&bytes).expect("a name of sevens")
}

fuzz_target!(|bytes: &[u8]| {
    let me = me();
    let written = Introduction::write(&me, &me);
    assert_eq!(Introduction::read(&written, &me).expect("its own").name, me);
    // The frame of an introduction is given to some inputs, and the secret to some of them.
    let mut packet = bytes.to_vec();
    if let Some((&how, rest)) = bytes.split_first().filter(|(how, _)| **how < 200) {
        packet = written.to_vec();
        let places = if how < 100 { 8..8 + Name::LENGTH } else { 0..written.len() };
        packet[places].iter_mut().zip(rest).for_each(|(byte, new)| *byte = *new);
    }
    if let Some(read) = Introduction::read(&packet, &me) {
        assert_eq!(packet[packet.len() - 8..], written[written.len() - 8..], "the secret");
        assert_eq!(read.name.as_bytes()[..], packet[8..8 + Name::LENGTH]);
    }
});
