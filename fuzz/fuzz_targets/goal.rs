//! Arbitrary bytes as a GOAL schedule: refused with line and column, or simulated to its end or to the reason why it has none.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whatif::goal::read;
use simulate::loggops::Parameters;
use simulate::run;

fuzz_target!(|input: &[u8]| {
    match read(input) {
        Ok(schedule) => match run(&schedule, &Parameters::default()) {
            Ok(finished) => {
                assert_eq!(finished.messages, schedule.messages());
                assert_eq!(finished.sent, finished.received);
                assert_eq!(finished.ranks.len(), schedule.ranks() as usize);
            }
            Err(fault) => assert!(!fault.subject().starts_with("the schedule, line ")),
        },
        Err(fault) => assert!(fault.subject().starts_with("the schedule, line ")),
    }
});
