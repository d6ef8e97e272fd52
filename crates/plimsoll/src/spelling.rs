//! The words of a command line: short forms in full, and suggestions for unknown words.

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, Command, Error};
use machine::spelling::nearest;

/// A command, and the subcommand that may be omitted before a folder or an option.
const USUAL: (&str, &str) = ("whatif", "replay");

/// A command, an unknown word behind it, and the command to suggest. Subcommands' names, as in `bench --mpi`, need no line here.
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

/// Names of arguments that are a program and its words.
const PROGRAMS: [&str; 2] = ["COMMAND", "PROGRAM"];

/// `words` in their full form, the program's name first: `help X` is `X --help`, `whatif DIR` is `whatif replay DIR`, and `-np 4`
/// is `-n 4`.
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
    with_ranks(program, &mut words);
    words
}

/// Replaces `-np`, the spelling of launchers, by `-n` among a command's own options.
fn with_ranks(program: &Command, words: &mut [OsString]) {
    let (mut command, mut at) = (program, 1);
    while let Some(below) = words.get(at).and_then(|word| command.find_subcommand(word)) {
        (command, at) = (below, at + 1);
    }
    if !command.get_opts().any(|option| option.get_short() == Some('n')) {
        return;
    }
    while let Some(word) = words.get_mut(at) {
        let text = word.to_string_lossy().into_owned();
        if !text.starts_with('-') || text == "--" {
            return;
        }
        if let Some(count) = text.strip_prefix("-np").filter(|rest| !rest.starts_with(char::is_alphabetic)) {
            *word = format!("-n{count}").into();
        }
        at += 1 + values_behind(command, &word.to_string_lossy());
    }
}

/// The number of words behind this option that are its values.
fn values_behind(command: &Command, option: &str) -> usize {
    let is_it = |of: &&Arg| match option.strip_prefix("--") {
        Some(long) => of.get_long_and_visible_aliases().is_some_and(|longs| longs.contains(&long)),
        None => of.get_short().is_some_and(|short| option == format!("-{short}")),
    };
    let of = command.get_opts().find(is_it).filter(|of| of.get_action().takes_values() && !of.is_require_equals_set());
    of.map_or(0, |of| of.get_num_args().map_or(1, |count| count.min_values()))
}

/// The error for a misspelt option in the place of a program's name.
pub fn misplaced(program: &Command, matches: &ArgMatches) -> Option<Error> {
    let (mut command, mut matches) = (program, matches);
    while let Some((name, below)) = matches.subcommand() {
        (command, matches) = (command.find_subcommand(name)?, below);
    }
    let is_program =
        |of: &&Arg| of.get_value_names().is_some_and(|names| names.iter().any(|name| PROGRAMS.contains(&&**name)));
    let words = matches.get_raw(command.get_positionals().find(is_program)?.get_id().as_str())?;
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let separator = matches.try_get_one::<String>("sep").ok().flatten();
    let programs = words.split(|word| Some(word) == separator).filter_map(|program| program.first());
    let unknown = programs.into_iter().find(|word| word.len() > 1 && word.starts_with('-'))?;
    let option = unknown.split('=').next().unwrap_or(unknown);
    let longs = command.get_arguments().filter_map(Arg::get_long_and_visible_aliases).flatten();
    let longs: Vec<String> = longs.map(|long| format!("--{long}")).collect();
    let tip = match nearest(option, &longs.iter().map(String::as_str).collect::<Vec<_>>()) {
        Some(near) if near == option => format!("write '{near}' before the command and its '--'"),
        Some(near) => format!("did you mean '{near}'?"),
        None if command.get_name() == "mpirun" => "options of the MPI's own launcher go into --mpirun-args".to_owned(),
        None => "a command is expected here; a file whose name begins with '-' is ./-NAME".to_owned(),
    };
    let words = format!("unexpected argument '{unknown}' found\n\n  tip: {tip}\n");
    Some(Error::raw(ErrorKind::UnknownArgument, words))
}

/// `error` with a suggestion, where an unknown word is a command or an option of one.
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
            ("plimsoll mpirun -np 4 ./a -np 2", "plimsoll mpirun -n 4 ./a -np 2"),
            ("plimsoll mpirun --mpirun-args -x -q -np=4 ./a", "plimsoll mpirun --mpirun-args -x -q -n=4 ./a"),
            ("plimsoll try -L a 1,2 -np4 -- mpirun -np 2 ./a", "plimsoll try -L a 1,2 -n4 -- mpirun -np 2 ./a"),
            ("plimsoll profile mpirun -np 4 ./a", "plimsoll profile mpirun -np 4 ./a"),
            ("plimsoll mpirun -npx", "plimsoll mpirun -npx"),
        ] {
            assert_eq!(whole(&program, words(short)), words(long), "{short}");
        }
    }

    /// The replacement of a line of clap's message.
    fn said(line: &str) -> String {
        let mut program = crate::program();
        let words = whole(&program, words(line));
        let error = match program.try_get_matches_from_mut(&words) {
            Ok(matches) => return misplaced(&program, &matches).expect(line).to_string(),
            Err(error) => error,
        };
        meant(&program, &words, error).to_string()
    }

    #[test]
    fn an_option_where_a_program_belongs_is_refused() {
        for (line, tip) in [
            ("plimsoll try --budgt 3m -- ./a -- ./b", "did you mean '--budget'?"),
            ("plimsoll try --budgt=3m -- ./a -- ./b", "did you mean '--budget'?"),
            ("plimsoll try -- ./a -- --budget 3m ./b", "write '--budget' before the command"),
            ("plimsoll try --sep ! -- ./a ! --cheque stdout", "did you mean '--check'?"),
            ("plimsoll mpirun --laab -n 2 ./a", "did you mean '--lab'?"),
            ("plimsoll mpirun --rank 2 ./a", "did you mean '--ranks'?"),
            ("plimsoll profile --tarce -- ./a", "did you mean '--trace'?"),
            ("plimsoll profile -k ./a", "a command is expected here"),
            ("plimsoll power -- --from rapl ./a", "write '--from' before the command"),
            ("plimsoll clock -- --hold ./a", "did you mean '--held'?"),
            ("plimsoll steer -- --recieve 0 ./a", "did you mean '--receive'?"),
            ("plimsoll lab exec a --nam x ls", "did you mean '--name'?"),
            ("plimsoll whatif delay send -- --round 3", "did you mean '--rounds'?"),
        ] {
            let said = said(line);
            assert!(said.contains(tip) && said.starts_with("error: unexpected argument '-"), "{line}: {said}");
        }
        let program = crate::program();
        for line in [
            "plimsoll try -- ./a --budgt 3 -- ./b -k",
            "plimsoll mpirun -n 2 ./a --laab",
            "plimsoll mpirun ./a -- --laab",
            "plimsoll power",
            "plimsoll run --anything",
        ] {
            let matches = program.clone().try_get_matches_from(words(line)).expect(line);
            assert!(misplaced(&program, &matches).is_none(), "{line}");
        }
    }

    #[test]
    fn every_program_behind_options_is_known_as_one() {
        fn unknown(command: &Command, path: &str, found: &mut Vec<String>) {
            let takes_programs = |of: &&Arg| (of.is_trailing_var_arg_set() || of.is_last_set()) && !of.is_hide_set();
            for of in command.get_positionals().filter(takes_programs) {
                let names = of.get_value_names().unwrap_or_default();
                if !names.iter().any(|name| PROGRAMS.contains(&&**name)) {
                    found.push(format!("{path}: {names:?}"));
                }
            }
            for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
                unknown(below, &format!("{path} {}", below.get_name()), found);
            }
        }
        let mut found = Vec::new();
        unknown(&crate::program(), "plimsoll", &mut found);
        assert_eq!(found, ["plimsoll campaign submit: [\"SBATCH OPTION\"]"]);
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
