//! Output of batch systems: times, and values with their keys.

use std::time::Duration;

/// Value of the first word `key=value` of a line.
pub(crate) fn field<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

/// `1-02:03:04`, `02:03:04`, `03:04` or `04`; `None` for anything else, such as `UNLIMITED`.
pub(crate) fn time(text: &str) -> Option<Duration> {
    let (days, rest) =
        text.split_once('-').map_or((0, text), |(days, rest)| (days.parse().ok().unwrap_or(u64::MAX), rest));
    let parts: Option<Vec<u64>> = rest.split(':').map(|part| part.parse().ok()).collect();
    let parts =
        parts.filter(|parts| parts.len() <= 3 && days < 100_000 && parts.iter().all(|part| *part < 1_000_000))?;
    let seconds = parts.iter().fold(0, |sum, part| sum * 60 + part);
    Some(Duration::from_secs(days * 86_400 + seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_batch_systems_write_them() {
        let seconds = |text| time(text).map(|time| time.as_secs());
        assert_eq!(seconds("1-02:03:04"), Some(93_784));
        assert_eq!(seconds("10:00"), Some(600));
        assert_eq!(seconds("59"), Some(59));
        for none in ["UNLIMITED", "INVALID", "", "1:2:3:4", "x-1", "99999999999999999999"] {
            assert_eq!(seconds(none), None, "{none}");
        }
    }

    #[test]
    fn a_value_is_found_by_its_key() {
        assert_eq!(field("NodeName=n2 NodeAddr=10.0.0.2 NodeHostName=n2", "NodeAddr"), Some("10.0.0.2"));
    }
}
