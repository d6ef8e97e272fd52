//! Suggestions for misspelt words.

/// Longer words get no suggestion: an edit distance takes time and memory by both lengths, and a word may be as long as its file.
const LONGEST: usize = 64;

/// The known word most similar to this one, if any is similar enough.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    // A number is no misspelling of another.
    if word.parse::<f64>().is_ok() {
        return None;
    }
    let distance = |of: &&str| strsim::damerau_levenshtein(&of.to_lowercase(), &word.to_lowercase());
    let is_short = |of: &&str| of.len().max(word.len()) <= LONGEST;
    let nearest = known.iter().copied().filter(is_short).min_by_key(distance);
    nearest.filter(|of| distance(of) <= 1 + word.chars().count() / 4)
}

/// The next step of a fault about an unknown word.
pub fn choose<'a>(word: &str, known: impl IntoIterator<Item = &'a (impl AsRef<str> + 'a)>) -> String {
    let known: Vec<&str> = known.into_iter().map(AsRef::as_ref).collect();
    match nearest(word, &known) {
        Some(near) => format!("did you mean '{near}'?"),
        None if known.is_empty() => "leave it out".to_owned(),
        None => format!("choose one of {}", known.join(", ")),
    }
}

/// The next step for an error of serde: the expected name that an unknown one resembles, else `otherwise`.
pub fn meant(said: &str, otherwise: &str) -> String {
    let mut names = said.split('`').skip(1).step_by(2);
    let unknown = names.next().filter(|_| said.starts_with("unknown field") || said.starts_with("unknown variant"));
    let known: Vec<&str> = names.collect();
    match unknown.and_then(|word| nearest(word, &known)) {
        Some(near) => format!("did you mean '{near}'?"),
        None => otherwise.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_meant_that_is_like_it() {
        assert_eq!(choose("comand", ["name", "command"].iter()), "did you mean 'command'?");
        assert_eq!(choose("colour", ["name", "command"].iter()), "choose one of name, command");
        assert_eq!(choose("65", ["64", "128"].iter()), "choose one of 64, 128");
        assert_eq!(choose("x", [""; 0].iter()), "leave it out");
        assert_eq!(nearest(&"a".repeat(1 << 20), &["a"]), None);
    }

    #[test]
    fn what_serde_says_has_the_names() {
        let meant = |said| meant(said, "see the page");
        let unknown = "unknown field `depot`, expected one of `name`, `depots`, `sites`";
        assert_eq!(meant(unknown), "did you mean 'depots'?");
        assert_eq!(meant("unknown variant `uncast`, expected `unicast` or `multicast`"), "did you mean 'unicast'?");
        assert_eq!(meant("unknown field `speed`, expected `name`"), "see the page");
        assert_eq!(meant("missing field `name`"), "see the page");
    }
}
