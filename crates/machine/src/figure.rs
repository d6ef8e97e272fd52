//! Figures for readers: four significant digits, in the unit that fits.

/// Units of time, in nanoseconds.
const TIMES: [(f64, &str); 4] = [(1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s")];

/// `value` with so many significant digits, and an exponent where many zeros would stand before or after them.
pub fn significant(value: f64, digits: usize) -> String {
    let after = digits.saturating_sub(1);
    let written = format!("{value:.after$e}");
    let exponent: i32 = written.rsplit_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    match exponent {
        _ if value == 0.0 => "0".into(),
        ..=-5 | 16.. => written,
        _ => {
            let after = (after as i32 - exponent).max(0) as usize;
            format!("{value:.after$}")
        }
    }
}

/// Four significant digits, without trailing zeros: `1.434`, `64`, `0.5`.
pub fn digits(value: f64) -> String {
    let four = significant(value, 4);
    let says_all = four.parse::<f64>().is_ok_and(|read| (read - value).abs() <= 1e-9 * value.abs());
    match says_all && four.contains('.') && !four.contains('e') {
        true => four.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => four,
    }
}

/// A number with its unit's prefix: `142 ns`, `1.434 us`, `12.1 GB/s`. `steps`: the value of each unit, ascending.
pub fn scaled(value: f64, steps: &[(f64, &str)]) -> String {
    if !value.is_finite() {
        return "no value".into();
    }
    let size = if value == 0.0 { 1.0 } else { value.abs() };
    let fits = |(divisor, _): &&(f64, &str)| size >= *divisor * 0.99995;
    let Some((divisor, unit)) = steps.iter().rev().find(fits).or(steps.first()) else { return digits(value) };
    format!("{} {unit}", digits(value / divisor))
}

/// A time: `142 ns`, `1.434 us`, `51.2 ms`, `83.04 s`.
pub fn nanoseconds(value: f64) -> String {
    scaled(value, &TIMES)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_figure_has_four_digits_and_the_unit_that_fits() {
        for (ns, text) in [
            (0.0, "0 ns"),
            (0.25, "0.25 ns"),
            (142.4, "142.4 ns"),
            (999.99, "1.000 us"),
            (1_434.0, "1.434 us"),
            (12_100_000.0, "12.1 ms"),
            (83_040_000_000.0, "83.04 s"),
            (12_345_600_000_000.0, "12346 s"),
        ] {
            assert_eq!(nanoseconds(ns), text);
        }
        assert_eq!(nanoseconds(f64::NAN), "no value");
    }

    #[test]
    fn digits_count_however_small_or_large_the_number_is() {
        for (value, text) in [
            (0.0, "0"),
            (3.2e-7, "3.200e-7"),
            (-0.000_123_44, "-0.0001234"),
            (0.2631, "0.2631"),
            (0.999_99, "1.000"),
            (12.345, "12.35"),
            (123_456.0, "123456"),
            (2e20, "2.000e20"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(significant(value, 4), text);
        }
        assert_eq!([64.0, 0.5, 2.0 / 3.0, 12_345.0].map(digits), ["64", "0.5", "0.6667", "12345"]);
    }

    proptest! {
        /// A printed figure is the measured one, within half a unit of the fourth digit.
        #[test]
        fn a_figure_reads_back_within_a_twentieth_of_a_percent(
            mantissa in 1.0f64..10.0, exponent in -3i32..15, is_negative in any::<bool>()
        ) {
            let value = mantissa * 10f64.powi(exponent) * if is_negative { -1.0 } else { 1.0 };
            let text = nanoseconds(value);
            let (number, unit) = text.split_once(' ').unwrap();
            let worth = TIMES.iter().find(|(_, name)| *name == unit).unwrap().0;
            let read = number.parse::<f64>().unwrap() * worth;
            prop_assert!((read / value - 1.0).abs() <= 0.000_5, "{} is printed as {}", value, text);
            let figures = number.trim_start_matches(['-', '0', '.']).chars().filter(char::is_ascii_digit).count();
            prop_assert!(figures <= 4 || (unit == "s" && !number.contains('.')), "{}", text);
            prop_assert!(unit == "s" || number.parse::<f64>().unwrap().abs() < 1000.5, "{}", text);
        }
    }
}
