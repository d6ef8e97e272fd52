//! `Name::from_bytes` on whatever an application passes around: what it takes reads back as it was.
#![no_main]

use endpoint::Name;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // Most bytes fail at the length or the magic; let some of them pass both.
    let mut name = bytes.to_vec();
    if bytes.first().is_some_and(|byte| byte % 2 == 0) {
        name.resize(Name::LENGTH, 0);
        name[..4].copy_from_slice(b"plm2");
    }
    if let Ok(read) = Name::from_bytes(&name) {
        assert_eq!(read.as_bytes()[..], name[..]);
        assert_ne!(read.address().port(), 0);
        let _ = format!("{read:?}");
    }
});
