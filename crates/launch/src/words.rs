//! Words of a command line written as one string, as a shell splits them: blanks, quotes and backslashes, nothing else.

use machine::{Fault, Result};

/// `--mca pml 'a b'` is three words.
pub fn split(text: &str) -> Result<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some(open), c) if c == open => quote = None,
            (None | Some('"'), '\\') => match characters.next() {
                Some(escaped) => word.get_or_insert_default().push(escaped),
                None => return Err(unfinished(text, "it ends in a backslash")),
            },
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err(unfinished(text, "a quote is not closed"));
    }
    words.extend(word);
    Ok(words)
}

fn unfinished(text: &str, cause: &str) -> Fault {
    Fault::new(
        format!("options for mpirun: {text}"),
        cause,
        "write it as for a shell, like --mpirun-args '--map-by node'",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_as_a_shell_has_them() {
        for (text, words) in [
            ("", vec![]),
            ("  --map-by   node ", vec!["--map-by", "node"]),
            ("--mca a 'b c' \"d \\\" e\"", vec!["--mca", "a", "b c", "d \" e"]),
            ("a'b'c '' \\ x", vec!["abc", "", " x"]),
            ("'\\'", vec!["\\"]),
        ] {
            assert_eq!(split(text).unwrap(), words, "{text}");
        }
    }

    #[test]
    fn what_is_not_finished_is_refused() {
        for text in ["'a", "a \"b", "a\\"] {
            assert!(split(text).unwrap_err().to_string().contains(text), "{text}");
        }
    }
}
