//! The commands in the boxes of the README, the recipes and the tutorial parse as they stand, each option with its value.

use std::fs;

use clap::error::ErrorKind;

use crate::documents::{as_command, commands, program, root};

const PAGES: [&str; 3] = ["README.md", "docs/recipes.md", "docs/tutorial.md"];

fn page(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

/// The commands in the boxes of a text.
fn boxed(text: &str) -> Vec<&str> {
    text.split("```").skip(1).step_by(2).flat_map(str::lines).filter_map(as_command).collect()
}

/// Why a command does not parse.
fn refused(code: &str) -> Option<String> {
    if code.contains(['\'', '"', '\\']) {
        return Some("this test splits words at blanks alone: write the command without quotes".to_owned());
    }
    let words = plimsoll::whole(code.split_whitespace().map(Into::into).collect());
    let commands = commands();
    let Some(parser) = words.get(1).and_then(|name| program(&commands, name.to_str()?)) else {
        return Some("there is no such command".to_owned());
    };
    match parser.clone().try_get_matches_from(words) {
        Ok(_) => None,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => None,
        Err(error) => Some(error.to_string()),
    }
}

#[test]
fn every_command_in_a_box_parses() {
    let mut wrong = Vec::new();
    for name in PAGES {
        let text = page(name);
        let commands = boxed(&text);
        assert!(!commands.is_empty(), "{name} has no command in a box");
        wrong.extend(commands.iter().filter_map(|code| Some(format!("{name}: {code}: {}", refused(code)?))));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_command_that_does_not_parse_is_found() {
    for code in [
        "plimsoll sutdy",
        "plimsoll study --shwo",
        "plimsoll mpirun -n two -- ./prog",
        "plimsoll try --budget soon -- ./old -- ./new",
        "plimsoll plan",
        "plimsoll traffic --site nowhere",
    ] {
        assert!(refused(code).is_some(), "{code}");
    }
    for code in ["plimsoll mpirun -n 2 -- ./prog --no-option-of-ours", "plimsoll plan APP.toml --explain"] {
        assert_eq!(refused(code), None, "{code}");
    }
}

#[test]
fn every_need_has_two_commands_or_more() {
    let text = page("docs/recipes.md");
    let needs: Vec<&str> = text.split("\n## ").skip(1).collect();
    assert_eq!(needs.len(), 6);
    for need in needs {
        assert!(boxed(need).len() >= 2, "{}", need.lines().next().unwrap_or_default());
    }
}

#[test]
fn the_readme_has_ten_commands() {
    let text = page("README.md");
    let named: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let commands: Vec<&str> = named.iter().filter_map(|code| as_command(code)).collect();
    assert_eq!(commands.len(), 10, "{named:?}");
}
