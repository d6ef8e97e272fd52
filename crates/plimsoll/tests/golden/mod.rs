//! Golden outputs: files with the approved output of commands.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Compares `actual` with the file `golden`; with `BLESS=1` in the environment, writes the file instead.
pub fn check(golden: &Path, actual: &str) {
    if std::env::var_os("BLESS").is_some_and(|bless| bless == "1") {
        fs::write(golden, actual).unwrap_or_else(|error| panic!("{}: {error}", golden.display()));
        return;
    }
    let how = "if the change is meant, run `make bless` and read the diff";
    let expected = fs::read_to_string(golden).unwrap_or_else(|error| panic!("{}: {error}; {how}", golden.display()));
    if expected != actual {
        let differing = |(_, (e, a)): &(usize, (&str, &str))| e != a;
        let lines = expected.split('\n').chain(std::iter::repeat("<end>"));
        let first = lines.zip(actual.split('\n').chain(["<end>"])).enumerate().find(differing);
        let (number, (expected, actual)) = first.unwrap_or((0, ("", "")));
        panic!("{}, line {}:\n  was {expected}\n  now {actual}\n{how}", golden.display(), number + 1);
    }
}

/// Compares the page of each command with its file in `folder`, which has no others. A command is the words behind the program's
/// name; none of them is the program itself.
pub fn pages(folder: &Path, commands: &[String], page: impl Fn(&str) -> String) {
    let name = |words: &String| match words.is_empty() {
        true => "plimsoll.txt".to_owned(),
        false => format!("{}.txt", words.replace(' ', "-")),
    };
    for words in commands {
        check(&folder.join(name(words)), &page(words));
    }
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let names: BTreeSet<String> = commands.iter().map(name).collect();
    assert_eq!(files.collect::<BTreeSet<String>>(), names, "{}", folder.display());
}
