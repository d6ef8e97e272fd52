//! `Samples::read`: whatever it takes, sums over windows are finite and no series runs backwards.
#![no_main]

use libfuzzer_sys::fuzz_target;
use record::samples::Samples;

fuzz_target!(|bytes: &[u8]| {
    let mut file = b"PLIMSAMP\x01\0\0\0".to_vec();
    // Most inputs get past the start of the file.
    if bytes.first().is_some_and(|first| *first < 200) {
        file.extend_from_slice(&bytes[1..]);
    } else {
        file = bytes.to_vec();
    }
    let Ok(samples) = Samples::read(&file) else { return };
    for core in samples.cores.values() {
        let points = core.work.points();
        assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0));
        if let Some(sum) = core.work.between(0, u64::MAX, |work| work.interrupts) {
            assert!(sum.is_finite());
        }
    }
});
