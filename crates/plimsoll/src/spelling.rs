//! The words of a command line: what short forms stand for, and what is meant where a word is unknown.

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};
use machine::spelling::nearest;

/// A command, and the one of its subcommands that is left out before a folder or an option.
const USUAL: (&str, &str) = ("whatif", "replay");

/// A command, a word behind it that it does not know, and the command that is meant. A word that is the name of a subcommand,
/// such as `bench --mpi`, needs no line here.
const MEANT: [(&str, &str, &str); 8] = [
    ("bench", "--sweep-cores", "bench cores"),
    ("whatif", "--goal", "whatif schedule"),
    ("whatif", "--measure", "whatif delay"),
    ("study", "plan", "campaign plan"),
    ("study", "run", "campaign run"),
    ("study", "show", "campaign show"),
    ("study", "merge", "campaign merge"),
    ("study", "submit", "campaign submit"),
];

/// `words` in full, the program's name first: `help X` is `X --help`, and `whatif DIR` is `whatif replay DIR`.
pub fn whole(program: &Command, mut words: Vec<OsString>) -> Vec<OsString> {
    if words.get(1).is_some_and(|word| word == "help") {
        words.remove(1);
        words.push("--help".into());
    }
    let (of, usual) = USUAL;
    let command = program.find_subcommand(of).filter(|_| words.get(1).is_some_and(|word| word == of));
    let is_left_out = |word: &OsString, command: &Command| {
        let known: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        let text = word.to_string_lossy();
        if text.starts_with('-') {
            return text != "--help" && text != "-h";
        }
        let is_folder = Path::new(word).exists() || Path::new(word).components().count() > 1;
        command.find_subcommand(word).is_none() && (is_folder || nearest(&text, &known).is_none())
    };
    if command.zip(words.get(2)).is_some_and(|(command, word)| is_left_out(word, command)) {
        words.insert(2, usual.into());
    }
    words
}

/// `error`, with the command that is meant where an unknown word is one, or is an option of one.
pub fn meant(program: &Command, words: &[OsString], error: Error) -> Error {
    let unknown = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(unknown)) if error.kind() == ErrorKind::UnknownArgument => unknown.clone(),
        _ => return error,
    };
    let name = words.get(1).map(|word| word.to_string_lossy()).unwrap_or_default();
    let Some(meant) = instead(program, &name, &unknown) else { return error };
    let words = format!("unexpected argument '{unknown}' found\n\n  tip: did you mean `plimsoll {meant}`?\n");
    Error::raw(ErrorKind::UnknownArgument, words)
}

fn instead(program: &Command, name: &str, unknown: &str) -> Option<String> {
    if let Some((.., meant)) = MEANT.iter().find(|(of, word, _)| *of == name && *word == unknown) {
        return Some((*meant).to_owned());
    }
    let command = program.find_subcommand(name)?;
    let option = unknown.strip_prefix("--")?;
    if command.find_subcommand(option).is_some() {
        return Some(format!("{name} {option}"));
    }
    let has_it = |of: &&Command| of.get_arguments().any(|argument| argument.get_long() == Some(option));
    command.get_subcommands().find(has_it).map(|of| format!("{name} {} {unknown}", of.get_name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn short_forms_stand_for_whole_ones() {
        let program = crate::program();
        for (short, long) in [
            ("plimsoll help", "plimsoll --help"),
            ("plimsoll help bench mpi", "plimsoll bench mpi --help"),
            ("plimsoll help offcode plan", "plimsoll offcode plan --help"),
            ("plimsoll help whatif", "plimsoll whatif --help"),
            ("plimsoll whatif", "plimsoll whatif"),
            ("plimsoll whatif run --clock 0.8", "plimsoll whatif replay run --clock 0.8"),
            ("plimsoll whatif --clock 0.8 run", "plimsoll whatif replay --clock 0.8 run"),
            ("plimsoll whatif ./delay", "plimsoll whatif replay ./delay"),
            ("plimsoll whatif delay send -- ./a", "plimsoll whatif delay send -- ./a"),
            ("plimsoll whatif shedule a.goal", "plimsoll whatif shedule a.goal"),
            ("plimsoll map run", "plimsoll map run"),
        ] {
            assert_eq!(whole(&program, words(short)), words(long), "{short}");
        }
    }

    /// What clap itself says of the line, and what is said instead.
    fn said(line: &str) -> String {
        let mut program = crate::program();
        let words = whole(&program, words(line));
        let error = program.try_get_matches_from_mut(&words).expect_err(line);
        meant(&program, &words, error).to_string()
    }

    #[test]
    fn an_option_that_is_a_command_is_told_to_be_one() {
        for (line, command) in [
            ("plimsoll bench --mpi --hosts one", "bench mpi"),
            ("plimsoll bench --semantics matched", "bench semantics"),
            ("plimsoll bench --dilate=1,2", "bench dilate"),
            ("plimsoll bench --sweep-cores", "bench cores"),
            ("plimsoll bench --stack engine-shm", "bench sweep --stack"),
            ("plimsoll whatif --goal a.goal", "whatif schedule"),
            ("plimsoll whatif --measure send -- ./a", "whatif delay"),
            ("plimsoll whatif one --against two", "whatif against"),
            ("plimsoll whatif --simulate a.toml", "whatif simulate"),
            ("plimsoll machine --capability", "machine capability"),
            ("plimsoll machine --here", "machine capability --here"),
        ] {
            let said = said(line);
            assert!(said.contains(&format!("did you mean `plimsoll {command}`?")), "{line}: {said}");
        }
        assert!(said("plimsoll whatif shedule a.goal").contains("'schedule'"));
        assert!(said("plimsoll bench sweep --stak tcp").contains("'--stack'"));
        assert!(!said("plimsoll bench --carrier-pigeon").contains("did you mean"));
    }

    #[test]
    fn what_is_meant_is_there() {
        let program = crate::program();
        for (.., meant) in MEANT {
            let (of, below) = meant.split_once(' ').unwrap();
            assert!(program.find_subcommand(of).and_then(|of| of.find_subcommand(below)).is_some(), "{meant}");
        }
        assert!(program.find_subcommand(USUAL.0).is_some_and(|of| of.find_subcommand(USUAL.1).is_some()));
    }
}
