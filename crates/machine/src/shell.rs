//! Quoting of words that are printed to be pasted into a shell.

use std::path::Path;

/// `text` quoted as one word of a shell.
pub fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%,=:".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// A command line of these words.
pub fn words<'a>(all: impl IntoIterator<Item = &'a String>) -> String {
    all.into_iter().map(|text| word(text)).collect::<Vec<_>>().join(" ")
}

/// A path that no command takes for an option.
pub fn path(path: &Path) -> String {
    let text = path.display().to_string();
    word(&if text.starts_with('-') { format!("./{text}") } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pasted_is_the_word_that_it_was() {
        assert_eq!(path(Path::new("a/b-1.html")), "a/b-1.html");
        assert_eq!(path(Path::new("my runs/it's (1)")), r"'my runs/it'\''s (1)'");
        assert_eq!(path(Path::new("-o")), "./-o");
        assert_eq!((word(""), word("~x"), word("a;b")), ("''".to_owned(), "'~x'".to_owned(), "'a;b'".to_owned()));
        let command = ["mpirun", "-n", "2", "./my program", "--x=1"].map(str::to_owned);
        assert_eq!(words(&command), "mpirun -n 2 './my program' --x=1");
    }
}
