//! Instants and durations as text.

use machine::Nanoseconds;

/// `2026-11-21 02:14 UTC`, from nanoseconds since the Unix epoch.
pub fn date(since_epoch: Nanoseconds) -> String {
    let minutes = since_epoch.0 / 60_000_000_000;
    let (mut year, mut day) = (1970, minutes / 1440);
    let leap = |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let mut month = 1;
    for length in [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02} {:02}:{:02} UTC", day + 1, minutes / 60 % 24, minutes % 60)
}

/// `3 min 12 s`, `48 s`, `0.4 s`.
pub fn duration(took: Nanoseconds) -> String {
    let seconds = took.0 as f64 / 1e9;
    match seconds {
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 59.5 => format!("{s:.0} s"),
        s if s < 5970.0 => format!("{} min {} s", s.round() as u64 / 60, s.round() as u64 % 60),
        s => format!("{} h {} min", (s / 60.0).round() as u64 / 60, (s / 60.0).round() as u64 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_hold_at_the_edges_of_years_and_leap_days() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59 UTC"),
            (1_798_761_599, "2026-12-31 23:59 UTC"),
            (1_798_761_600, "2027-01-01 00:00 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(date(Nanoseconds(seconds * 1_000_000_000)), text);
        }
    }

    #[test]
    fn durations_carry_their_units() {
        for (ms, text) in [(400, "0.4 s"), (48_000, "48 s"), (59_700, "1 min 0 s"), (192_000, "3 min 12 s")] {
            assert_eq!(duration(Nanoseconds(ms * 1_000_000)), text);
        }
    }
}
