//! Arbitrary bytes as an ODF: no panic, and what is read is written and reads back equal.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offcode::odf;

fuzz_target!(|input: &[u8]| {
    match odf::read(input) {
        Ok(manifest) => {
            let text = odf::write(&manifest).expect("what was read can be stated");
            assert_eq!(odf::read(text.as_bytes()).expect("what was written is read"), manifest);
        }
        Err(problems) => {
            assert!(problems.count() > 0);
            let _ = (problems.render("odf.xml", true), problems.to_string());
        }
    }
});
