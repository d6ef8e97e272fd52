//! Names in the documents exist: commands and options in the definitions that the programs parse by, paths of code in the
//! sources. Nothing is run.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Arg, Command};

/// Lines that begin like a command but are output.
const PRINTED: [&str; 2] = ["plimsoll carried it", "plimsoll did NOT carry it"];

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every document, by its name from the root.
pub(crate) fn documents() -> Vec<(String, String)> {
    let mut names: Vec<String> = ["README.md", "ARCHITECTURE.md", "HACKING.md"].map(String::from).into();
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".md") {
            names.push(format!("docs/{name}"));
        }
    }
    names.sort();
    names.into_iter().map(|name| (name.clone(), fs::read_to_string(root().join(&name)).unwrap())).collect()
}

/// Both programs' commands, built so that `--help` is among their options.
pub(crate) fn commands() -> Vec<Command> {
    let built = |mut command: Command| {
        command.build();
        command
    };
    vec![built(plimsoll::command()), built(plimsoll_offcode::command())]
}

/// The code spans of a line, without their backquotes.
fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// The command in a code span or line: from `plimsoll` on, without a shell's prompt, comments, or prose in a second column.
pub(crate) fn as_command(code: &str) -> Option<&str> {
    let code = code.trim().trim_start_matches("$ ").trim_start_matches("sudo ");
    // A drawing of dependencies is no command.
    let is_it = code == "plimsoll" || (code.starts_with("plimsoll ") && !code.starts_with("plimsoll -> "));
    if !is_it || PRINTED.iter().any(|printed| code.starts_with(printed)) {
        return None;
    }
    let ends = [" #", "   ", " | ", " && ", " > ", ";"].iter().filter_map(|end| code.find(end)).min();
    Some(code[..ends.unwrap_or(code.len())].trim())
}

fn by_long<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|argument| {
        argument.get_long() == Some(name) || argument.get_all_aliases().is_some_and(|all| all.contains(&name))
    })
}

fn by_short(command: &Command, name: char) -> Option<&Arg> {
    command.get_arguments().find(|argument| argument.get_short() == Some(name))
}

/// Whether the option's value is a word of its own.
fn takes_next(option: &Arg) -> bool {
    option.get_action().takes_values() && !option.is_require_equals_set()
}

/// The program that defines the arguments of the command of this name.
pub(crate) fn program<'a>(commands: &'a [Command], name: &str) -> Option<&'a Command> {
    commands.iter().find(|program| {
        // A command that one program only passes on has no arguments there.
        program.find_subcommand(name).is_some_and(|one| one.get_arguments().all(|argument| argument.get_id() != "rest"))
    })
}

/// The command that `code` names, or the word that is unknown.
fn resolve<'a>(commands: &'a [Command], code: &str) -> Result<&'a Command, String> {
    let typed = code.split_whitespace().map(|word| OsString::from(word.trim_matches(['[', ']', ',', '.'])));
    let whole = plimsoll::whole(typed.collect());
    let whole: Vec<_> = whole.iter().map(|word| word.to_string_lossy()).collect();
    let mut words = whole.iter().map(|word| &**word).skip(1).peekable();
    let name = words.peek().copied().filter(|word| !word.starts_with('-'));
    let mut command = match name {
        None => &commands[0],
        Some(name) => program(commands, name).ok_or(format!("no command {name}"))?,
    };
    let mut behind_positional = false;
    while let Some(word) = words.next() {
        let option = if word == "--" || word.is_empty() {
            break;
        } else if let Some(long) = word.strip_prefix("--") {
            let (long, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            let option = by_long(command, long).ok_or(format!("{} has no --{long}", command.get_name()))?;
            (value.is_none() && takes_next(option)).then_some(option)
        } else if let Some(short) = word.strip_prefix('-').and_then(|short| short.chars().next()) {
            let option = by_short(command, short).ok_or(format!("{} has no -{short}", command.get_name()))?;
            (word.len() == 2 && takes_next(option)).then_some(option)
        } else if let Some(below) = command.find_subcommand(word).filter(|_| !behind_positional) {
            command = below;
            None
        } else {
            let positional: Vec<&Arg> = command.get_positionals().collect();
            if positional.is_empty() {
                return Err(format!("{} has no command {word}", command.get_name()));
            }
            // Further words belong to the program that the command starts.
            if positional.iter().any(|argument| argument.is_trailing_var_arg_set()) {
                break;
            }
            behind_positional = true;
            None
        };
        // A document may name the option alone, without a value.
        if option.is_some() && words.peek().is_some_and(|value| !value.starts_with('-')) {
            words.next();
        }
    }
    Ok(command)
}

/// The unknown commands and options in a document's lines and code blocks.
pub(crate) fn unknown(commands: &[Command], text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_block = false;
    for (number, line) in text.lines().enumerate() {
        let mut said = |what: String| found.push(format!("line {}: {what}", number + 1));
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if in_block || line.starts_with("    ") {
            if let Some(Err(what)) = as_command(line).map(|code| resolve(commands, code)) {
                said(what);
            }
        } else {
            let mut last: Option<&Command> = None;
            for span in spans(line) {
                match as_command(span).map(|code| resolve(commands, code)) {
                    Some(Ok(command)) => last = Some(command),
                    Some(Err(what)) => said(what),
                    // An option by itself belongs to the command that was named before it.
                    None => {
                        let long = span.strip_prefix("--").map(|rest| rest.split([' ', '=']).next().unwrap_or(rest));
                        if let (Some(command), Some(long)) = (last, long.filter(|long| !long.is_empty()))
                            && by_long(command, long).is_none()
                        {
                            said(format!("{} has no --{long}", command.get_name()));
                        }
                    }
                }
            }
        }
    }
    found
}

#[test]
fn commands_and_options_that_documents_name_are_there() {
    let commands = commands();
    let mut wrong = Vec::new();
    for (name, text) in documents() {
        wrong.extend(unknown(&commands, &text).into_iter().map(|what| format!("{name}, {what}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_command_that_is_not_there_is_found() {
    let commands = commands();
    for (text, expected) in [
        ("`plimsoll sutdy`", "no command sutdy"),
        ("`plimsoll study --shwo`", "study has no --shwo"),
        ("see `plimsoll study` and its `--shwo`", "study has no --shwo"),
        ("```\nsudo plimsoll mpirun -n 2 --labb -- ls --help\n```", "mpirun has no --labb"),
        ("    $ plimsoll odf chek odf.xml", "odf has no command chek"),
        ("`plimsoll traffic --sight app`", "traffic has no --sight"),
        ("`plimsoll profile -z`", "profile has no -z"),
        ("`plimsoll bench --mpi`", "bench has no --mpi"),
    ] {
        let found = unknown(&commands, text).join("\n");
        assert!(found.ends_with(expected), "{text}: {found}");
    }
    for text in [
        "`plimsoll mpirun -n 2 ./a --no-option-of-ours`",
        "`plimsoll profile --trace -- mpirun -n 4 ./a --quiet`",
        "`plimsoll bench sweep --sizes 8,64KiB --stack=tcp` and `--json`",
        "`plimsoll whatif DIR --clock 0.8`, which is `plimsoll whatif replay DIR`",
        "`plimsoll help bench mpi`",
        "`plimsoll offcode plan APP.toml --explain`",
        "```\nplimsoll plan APP.toml --explain      # why\nplimsoll carried it: 2 ranks\n```",
        "`plimsoll agent keys --host HOST`",
    ] {
        assert_eq!(unknown(&commands, text), Vec::<String>::new(), "{text}");
    }
}

/// Whether the sources of a file declare or pass on a name.
fn declares(source: &str, name: &str) -> bool {
    const KINDS: [&str; 9] = ["struct", "enum", "trait", "fn", "const", "static", "type", "mod", "macro_rules"];
    let words = |text: &str| -> Vec<String> {
        text.split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|word| !word.is_empty())
            .map(String::from)
            .collect()
    };
    let all = words(source);
    all.windows(2).any(|pair| KINDS.contains(&pair[0].as_str()) && pair[1] == name)
        || source.split("pub use ").skip(1).any(|rest| {
            let passed_on = rest.split(';').next().unwrap_or_default();
            words(passed_on).iter().any(|word| word == name)
        })
}

/// The part of a path like `crate::path::Item` that is not in the sources.
fn missing(path: &str) -> Option<String> {
    let mut segments = path.split("::");
    let name = segments.next().unwrap_or_default();
    let mut folder = root().join("crates").join(name.replace('_', "-")).join("src");
    let mut file = folder.join("lib.rs");
    if !file.exists() {
        return Some(format!("there is no crate {name}"));
    }
    for segment in segments {
        let below = folder.join(segment);
        match [below.with_extension("rs"), below.join("mod.rs")].into_iter().find(|file| file.exists()) {
            Some(module) => (folder, file) = (below, module),
            None if declares(&fs::read_to_string(&file).unwrap(), segment) => {}
            None => return Some(format!("{} has no {segment}", file.strip_prefix(root()).unwrap().display())),
        }
    }
    None
}

#[test]
fn code_that_documents_name_is_there() {
    let mut wrong = Vec::new();
    // A test of `machine` looks for the tests that the threat model names.
    for (name, text) in documents().into_iter().filter(|(name, _)| name != "docs/threat-model.md") {
        for (number, line) in text.lines().enumerate() {
            let is_path = |span: &&str| {
                span.contains("::")
                    && span.starts_with(|c: char| c.is_ascii_lowercase())
                    && span.chars().all(|c| c.is_ascii_alphanumeric() || "_-:".contains(c))
            };
            // Crates of other projects are left out.
            let ours = |span: &&str| {
                let first = span.split("::").next().unwrap_or_default();
                name == "ARCHITECTURE.md" || root().join("crates").join(first.replace('_', "-")).exists()
            };
            for path in spans(line).filter(is_path).filter(ours) {
                wrong.extend(missing(path).map(|what| format!("{name}, line {}: `{path}`: {what}", number + 1)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn code_that_is_not_there_is_found() {
    for path in ["nowhere::at_all", "runtime::Placed", "machine::port::Harbour", "linux::lab::Lab::owned_by_nobody"] {
        assert!(missing(path).is_some(), "{path}");
    }
    for path in ["machine::Port", "offcode::manifest::BodyKind", "linux::lab::Lab::owned", "plimsoll_offcode::commands"]
    {
        assert_eq!(missing(path), None, "{path}");
    }
}
