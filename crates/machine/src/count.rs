//! Counts in words.

/// The digits in groups of three: `1,234,567`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count with its noun: `1 round`, `12 rounds`, `1,000 processes`.
pub fn of(count: u64, noun: &str) -> String {
    let ending = either(count, "", if noun.ends_with('s') { "es" } else { "s" });
    format!("{} {noun}{ending}", grouped(count))
}

/// The form of a verb or pronoun that agrees with a count: `either(n, "was", "were")`.
pub fn either<'a>(count: u64, one: &'a str, more: &'a str) -> &'a str {
    if count == 1 { one } else { more }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_stand_in_threes_and_one_is_singular() {
        for (count, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (12_345_678, "12,345,678")] {
            assert_eq!(grouped(count), text);
        }
        assert_eq!(
            (of(0, "round"), of(1, "round"), of(2, "round")),
            ("0 rounds".into(), "1 round".into(), "2 rounds".into())
        );
        assert_eq!((of(1, "process"), of(1000, "process")), ("1 process".into(), "1,000 processes".into()));
        assert_eq!((either(1, "was", "were"), either(2, "was", "were")), ("was", "were"));
    }
}
