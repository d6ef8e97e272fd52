//! Settings that are varied, with the place of their values: options of `plimsoll mpirun`, variables, words of commands.

use launch::carriers;
use launch::engine::{Network, Semantics, placement};
use machine::{Dilation, Fault, Result};

/// A setting and the values that it is tried with.
pub struct Varied {
    pub axis: Axis,
    pub name: String,
    pub values: Vec<String>,
}

/// The place of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    Placement,
    Network,
    Carrier,
    Semantics,
    Dilation,
    /// A variable of the environment.
    Variable,
    /// `{NAME}` in the words of commands.
    Word,
}

/// Texts in which `{NAME}` may stand.
pub struct Texts<'a> {
    /// Words of the commands, and options of `plimsoll mpirun`.
    pub commands: Vec<&'a str>,
    /// Commands beside the runs, such as `--setup`.
    pub aside: Vec<&'a str>,
}

impl Varied {
    /// `NAME=A,B,..`, with | between values that hold commas.
    ///
    /// # Errors
    /// There is no such setting, it has no such value, or plimsoll does not start the ranks.
    pub fn read(text: &str, has_ranks: bool, texts: &Texts) -> Result<Varied> {
        let refused = |cause: &str, next: &str| Fault::new(format!("--vary {text}"), cause, next);
        let Some((name, values)) = text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(refused("it names no values", "write it like --vary threads=1,2,4 -- ./a -t {threads}"));
        };
        let between = if values.contains('|') { '|' } else { ',' };
        let values: Vec<String> = values.split(between).map(str::to_owned).collect();
        let axis = match name {
            name if stands_in(name, &texts.commands) => Axis::Word,
            "placement" => Axis::Placement,
            "network" => Axis::Network,
            "carrier" => Axis::Carrier,
            "semantics" => Axis::Semantics,
            "dilate" => Axis::Dilation,
            name if name.starts_with("env.") || !name.starts_with(char::is_lowercase) => Axis::Variable,
            name if stands_in(name, &texts.aside) => Axis::Word,
            name => {
                let next = format!(
                    "choose placement, network, carrier, semantics or dilate, or put {{{name}}} into the command; a variable \
                     of the environment that begins with a small letter is env.{name}"
                );
                return Err(refused("there is no such setting", &next));
            }
        };
        for value in &values {
            match axis {
                Axis::Placement if value != "auto" => _ = placement(value)?,
                Axis::Network => _ = value.parse::<Network>()?,
                Axis::Carrier if value != "plimsoll" => _ = carriers::named(value)?,
                Axis::Semantics => _ = value.parse::<Semantics>()?,
                Axis::Dilation => _ = value.parse::<Dilation>()?,
                _ => {}
            }
        }
        if !matches!(axis, Axis::Variable | Axis::Word) && !has_ranks {
            let next = "name the ranks with -n and leave mpirun out of the command: plimsoll starts it";
            return Err(refused("plimsoll does not start the ranks", next));
        }
        let name = if axis == Axis::Variable { name.trim_start_matches("env.") } else { name };
        Ok(Varied { axis, name: name.to_owned(), values })
    }

    /// Whether the values change a run with these texts.
    pub fn changes(&self, texts: &[&str]) -> bool {
        self.axis != Axis::Word || stands_in(&self.name, texts)
    }
}

fn stands_in(name: &str, texts: &[&str]) -> bool {
    let asked = format!("{{{name}}}");
    texts.iter().any(|text| text.contains(&asked))
}

/// `text` with values in place of each known `{NAME}`; other braces stay.
pub fn filled(text: &str, values: &[(&str, &str)]) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        filled.push_str(&rest[..at]);
        let inside = &rest[at + 1..];
        let named = |(name, value): &(&str, &str)| {
            let after = inside.strip_prefix(*name)?.strip_prefix('}')?;
            Some((value.to_string(), after))
        };
        match values.iter().find_map(named) {
            Some((value, after)) => {
                filled.push_str(&value);
                rest = after;
            }
            None => {
                filled.push('{');
                rest = inside;
            }
        }
    }
    filled + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, has_ranks: bool, commands: &[&str], aside: &[&str]) -> Result<(Axis, String)> {
        let texts = Texts { commands: commands.to_vec(), aside: aside.to_vec() };
        Varied::read(text, has_ranks, &texts).map(|varied| (varied.axis, varied.name))
    }

    #[test]
    fn a_name_in_braces_is_a_word_and_any_other_what_it_was() {
        let axis = |text, commands: &[&str], aside: &[&str]| {
            let (axis, name) = read(text, true, commands, aside).unwrap();
            let kind = match axis {
                Axis::Word => "word",
                Axis::Variable => "variable",
                _ => "setting",
            };
            format!("{kind} {name}")
        };
        assert_eq!(axis("threads=1,2", &["-t{threads}"], &[]), "word threads");
        assert_eq!(axis("CC=gcc,clang", &["a"], &["make {CC}"]), "variable CC");
        assert_eq!(axis("cc=gcc,clang", &["a"], &["make {cc}"]), "word cc");
        assert_eq!(axis("CC=gcc,clang", &["{CC}"], &[]), "word CC");
        assert_eq!(axis("env.cc=gcc,clang", &["{cc}"], &[]), "variable cc");
        assert_eq!(axis("placement=app,auto", &["a"], &[]), "setting placement");
        assert_eq!(axis("placement=x,y", &["{placement}"], &[]), "word placement");
        let fault = read("colour=1,2", true, &["{color}"], &[]).err().unwrap();
        assert!(fault.next().contains("put {colour} into the command"), "{fault}");
        assert!(read("placement=app,auto", false, &["a"], &[]).is_err());
    }

    #[test]
    fn values_stand_where_their_names_stood_and_other_braces_stay() {
        let values = [("n", "4"), ("name", "{n}")];
        for (text, is) in [
            ("-t{n}", "-t4"),
            ("{n}{n}", "44"),
            ("{name}", "{n}"),
            ("{ n}", "{ n}"),
            ("awk '{print}'", "awk '{print}'"),
            ("{{n}", "{4"),
            ("{n", "{n"),
            ("{nn}", "{nn}"),
            ("", ""),
        ] {
            assert_eq!(filled(text, &values), is, "{text}");
        }
    }
}
