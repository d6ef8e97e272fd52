//! Manual pages: clap_mangen's rendering of a command's definition, and further sections.

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::sections::{self, Entry};

/// Writes the page of a built command, and those of its subcommands.
pub fn write(command: &Command, folder: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help") {
        write(below, folder)?;
    }
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    if command.get_subcommands().any(|below| !below.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    // Helps name pages by their paths in the source.
    let mut page = String::from_utf8_lossy(&page).replace("docs/", "share/doc/plimsoll/docs/").into_bytes();
    further(command).to_writer(&mut page)?;
    fs::write(folder.join(man.get_filename()), page)
}

/// The sections that a command's definition does not have.
fn further(command: &Command) -> Roff {
    let mut roff = Roff::new();
    // The tables name the top-level command of a subcommand.
    let whole = command.get_bin_name().unwrap_or_default();
    let mut words = whole.split(' ').skip(1);
    let name = words.next().unwrap_or_default();
    let is_below = words.next().is_some();
    let after = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string).unwrap_or_default();
    let (mut examples, others) = sections::parted(&after);
    if examples.is_empty() && !is_below {
        let table = sections::EXAMPLES.iter().find(|(of, _)| *of == name);
        examples = table.map(|(_, lines)| lines.to_vec()).unwrap_or_default();
    }
    if !others.is_empty() {
        roff.control("SH", ["NOTES"]);
        lines(&mut roff, &others);
    }
    if !examples.is_empty() {
        roff.control("SH", ["EXAMPLES"]);
        lines(&mut roff, &examples);
    }
    entries(&mut roff, "FILES", &sections::of(sections::FILES, name));
    entries(&mut roff, "ENVIRONMENT", &sections::of(sections::ENVIRONMENT, name));
    roff.control("SH", ["SEE ALSO"]);
    if !name.is_empty() {
        let above = is_below.then_some(name);
        let others = above.into_iter().chain(plimsoll::related(name)).map(|one| format!(", plimsoll-{one}(1)"));
        roff.text([roman(format!("plimsoll(1){}", others.collect::<String>()))]);
        roff.control("PP", []);
    }
    let document = sections::DOCUMENTS.iter().find(|(_, commands)| commands.contains(&name));
    let document = document.map_or("recipes.md", |(document, _)| *document);
    roff.text([roman(format!("share/doc/plimsoll/docs/{document}, below the prefix of the installation"))]);
    roff
}

/// Lines without filling.
fn lines(roff: &mut Roff, lines: &[&str]) {
    roff.control("nf", []);
    for line in lines {
        roff.text([roman(*line)]);
    }
    roff.control("fi", []);
}

fn entries(roff: &mut Roff, heading: &str, entries: &[&Entry]) {
    if entries.is_empty() {
        return;
    }
    roff.control("SH", [heading]);
    for entry in entries {
        roff.control("TP", []);
        roff.text([bold(entry.name)]);
        roff.text([roman(entry.what)]);
    }
}
