//! `Samples::read`: whatever it takes, sums over windows are finite and no series runs backwards.
#![no_main]

use libfuzzer_sys::fuzz_target;
use record::samples::{MAGIC, Samples, VERSION};
use record::seal;

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    // Once more with what chance does not find: the start of a file, and frames that are sealed. Each is as long as the byte
    // before it says.
    let mut file = MAGIC.to_vec();
    file.extend(VERSION.to_le_bytes());
    let mut rest = bytes;
    while let Some((length, frames)) = rest.split_first().filter(|(_, frames)| !frames.is_empty()) {
        let (frame, others) = frames.split_at(frames.len().min(1 + usize::from(*length) % 127));
        file.push(frame.len() as u8);
        file.extend(frame);
        file.extend(seal::short(seal::of(frame)).to_le_bytes());
        rest = others;
    }
    read(&file);
});

fn read(file: &[u8]) {
    let Ok(samples) = Samples::read(file) else { return };
    for core in samples.cores.values() {
        let points = core.work.points();
        assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0));
        if let Some(sum) = core.work.between(0, u64::MAX, |work| work.interrupts) {
            assert!(sum.is_finite());
        }
    }
}
