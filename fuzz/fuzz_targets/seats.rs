//! Files of seats: read or refused, and what is read is written and reads back equal.
#![no_main]

use libfuzzer_sys::fuzz_target;
use machine::seat::Seats;

fuzz_target!(|text: &str| {
    let _ = text.lines().map(Seats::line_of).count();
    if let Ok(seats) = text.parse::<Seats>() {
        assert!(seats.0.iter().all(|seat| !seat.cores.is_empty()));
        assert_eq!(seats.to_string().parse::<Seats>().ok(), Some(seats));
    }
});
