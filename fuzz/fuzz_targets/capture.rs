//! Captures from anywhere: read or refused, and what is read becomes a schedule or is refused.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use traffic::capture::Capture;
use traffic::frame::{Flow, MacAddress};
use traffic::profile::{Profile, Sizes, Timing};
use traffic::schedule::Schedule;

fuzz_target!(|bytes: &[u8]| {
    let Ok(capture) = Capture::read(bytes) else { return };
    assert!(capture.packets.windows(2).all(|pair| pair[0].at <= pair[1].at));
    let packets = capture.packets.len();
    let flow = Flow {
        source_mac: MacAddress([2; 6]),
        destination_mac: MacAddress([4; 6]),
        source: [198, 18, 0, 1].into(),
        destination: [198, 18, 0, 2].into(),
        source_port: 1,
        destination_port: 2,
    };
    let profile = Profile::new(flow, Timing::Capture, Sizes::Capture(Arc::new(capture)));
    if let Ok(schedule) = Schedule::of(&profile) {
        // Longer ones than a frame are cut.
        assert!(schedule.entries.len() >= packets);
    }
});
