//! One grammar: an option has one meaning and one parser in all commands of both programs.

use std::collections::BTreeMap;

use clap::{Arg, Command};

use crate::documents::commands;

/// Options whose values differ between commands all the same, with the reason.
const EXCEPTIONS: [(&str, &str); 7] = [
    ("csv", "`report` writes many tables, each to a file of a folder"),
    ("metrics", "the daemon replaces a file after each window, and has nothing to print"),
    ("network", "`mpirun` is told the interface, `study` finds one, and a schedule has none"),
    ("output", "what `profile` writes is a folder, what `report` exports is a file"),
    ("placement", "`mpirun` can choose one: auto"),
    ("progress", "`whatif delay` names a call of the program, replays a rule of the MPI"),
    ("set", "an application has several instances, whose names stand before an attribute's"),
];

/// Each meaning of an option or short letter, with the commands that give it.
type Meanings = BTreeMap<String, BTreeMap<String, Vec<String>>>;

/// The values of an option and their parser.
fn meaning(option: &Arg) -> String {
    if !option.get_action().takes_values() {
        return "a flag".to_owned();
    }
    let names = option.get_value_names().unwrap_or_default().iter().map(|name| name.trim_end_matches(",..").to_owned());
    let parsed = option.get_value_parser().type_id();
    let form = if option.is_require_equals_set() { " behind =" } else { "" };
    format!("{} read as {parsed:?}{form}", names.collect::<Vec<_>>().join(" "))
}

fn walk(command: &Command, path: &str, longs: &mut Meanings, shorts: &mut Meanings) {
    let path = format!("{path} {}", command.get_name());
    for option in command.get_arguments().filter(|option| !option.is_hide_set()) {
        let Some(long) = option.get_long() else {
            assert!(option.is_positional(), "{path}: -{:?} has no long name", option.get_short());
            continue;
        };
        let of_long = longs.entry(long.to_owned()).or_default();
        of_long.entry(meaning(option)).or_default().push(path.clone());
        if let Some(short) = option.get_short() {
            let of_short = shorts.entry(format!("-{short}")).or_default();
            of_short.entry(format!("--{long}")).or_default().push(path.clone());
        }
    }
    let shown = command.get_subcommands().filter(|below| !below.is_hide_set());
    shown.for_each(|below| walk(below, &path, longs, shorts));
}

/// The options with several meanings, as a page.
fn several(meanings: &Meanings) -> BTreeMap<&str, String> {
    let page = |of: &BTreeMap<String, Vec<String>>| {
        of.iter().map(|(meaning, paths)| format!("  {meaning}: {}\n", paths.join(", "))).collect::<String>()
    };
    meanings.iter().filter(|(_, of)| of.len() > 1).map(|(name, of)| (name.as_str(), page(of))).collect()
}

#[test]
fn an_option_has_one_meaning_in_all_commands() {
    let (mut longs, mut shorts) = (Meanings::new(), Meanings::new());
    for program in commands() {
        program.get_subcommands().filter(|of| !of.is_hide_set()).for_each(|of| walk(of, "", &mut longs, &mut shorts));
    }
    assert!(longs.len() > 150, "{} options were found", longs.len());
    let clashes = several(&longs);
    let is_allowed = |name: &str| EXCEPTIONS.iter().any(|(of, _)| *of == name);
    let new: Vec<String> =
        clashes.iter().filter(|(name, _)| !is_allowed(name)).map(|(name, page)| format!("--{name}\n{page}")).collect();
    assert!(new.is_empty(), "one name, several meanings:\n{}", new.concat());
    let over: Vec<&str> = EXCEPTIONS.iter().map(|(name, _)| *name).filter(|name| !clashes.contains_key(name)).collect();
    assert!(over.is_empty(), "exceptions that nothing needs: {over:?}");
    let letters: Vec<String> = several(&shorts).iter().map(|(name, page)| format!("{name}\n{page}")).collect();
    assert!(letters.is_empty(), "one letter, several options:\n{}", letters.concat());
}

#[test]
fn two_meanings_are_found() {
    let option = |name: &'static str| Arg::new(name).long(name);
    let named = |name: &'static str| Command::new(name);
    let program = named("a")
        .subcommand(named("b").arg(option("at").value_name("TIME")).arg(option("quick").short('q')))
        .subcommand(named("c").arg(option("at").value_name("SITE")).arg(option("quiet").short('q')));
    let (mut longs, mut shorts) = (Meanings::new(), Meanings::new());
    walk(&program, "", &mut longs, &mut shorts);
    assert_eq!(several(&longs).into_keys().collect::<Vec<_>>(), ["at"]);
    assert_eq!(several(&shorts).into_keys().collect::<Vec<_>>(), ["-q"]);
}
