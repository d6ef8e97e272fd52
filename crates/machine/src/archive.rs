//! Archived machines: what a reader saw of `/sys` and `/proc`, in one text file.
//!
//! A machine of 128 CPUs answers with some four thousand files of a few bytes each. As a directory tree that costs
//! megabytes of disk blocks, drowns a diff and cannot hold what matters most here: that a file refused to be read,
//! and whether it may be written. So an archive is one file, [`FILE_NAME`], one entry a line, sorted by path, in which
//! a change of one setting is a diff of one line:
//!
//! ```text
//! # plimsoll machine archive 1
//! /sys/devices/system/cpu/online = 0-1           a file that holds one line
//! /proc/softirqs <<                              a file of several lines, each marked with |
//! |                    CPU0       CPU1
//! /proc/version == "no newline at the end"       anything else, as a JSON string
//! /sys/class/net/eth0/device/driver -> ../../../../bus/virtio/drivers/virtio_net
//! /sys/class/net [] eth0/lo                      the names that were taken from a directory
//! /sys/class/net/eth0/speed ! EINVAL             reading it failed
//! /proc/irq/9/smp_affinity_list +w               it may be written by the reader; -w EACCES: it may not
//! ```
//!
//! A path that is not listed did not exist.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::fault::{Fault, Result};
use crate::refusal::Refusal;

/// The file of an archive directory.
pub const FILE_NAME: &str = "machine.txt";

const HEADER: &str = "# plimsoll machine archive 1";

/// The answer to reading a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// The text of a file.
    File(String),
    /// The target of a symbolic link.
    Link(String),
    /// Names, sorted; only those that the reader kept.
    Names(Vec<String>),
}

/// Answers of a file system by absolute path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Archive {
    pub(crate) contents: BTreeMap<String, Result<Content, Refusal>>,
    pub(crate) writable: BTreeMap<String, Result<(), Refusal>>,
}

impl Archive {
    /// Number of paths that were read, listed or refused.
    pub fn len(&self) -> usize {
        self.contents.len()
    }

    /// Whether nothing was read.
    pub fn is_empty(&self) -> bool {
        self.contents.is_empty()
    }

    /// Files with their text, for a caller that writes the archive out as a tree.
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.contents.iter().filter_map(|(path, content)| match content {
            Ok(Content::File(text)) => Some((path.as_str(), text.as_str())),
            _ => None,
        })
    }

    /// The archive as the text of its file, which [`Archive::from_text`] reads.
    pub fn to_text(&self) -> String {
        let mut text = format!("{HEADER}\n");
        for (path, content) in &self.contents {
            write_content(&mut text, path, content);
            if let Some(answer) = self.writable.get(path) {
                write_permission(&mut text, path, *answer);
            }
        }
        for (path, answer) in &self.writable {
            if !self.contents.contains_key(path) {
                write_permission(&mut text, path, *answer);
            }
        }
        text
    }

    /// # Errors
    /// Names the line that is not understood.
    pub fn from_text(text: &str) -> Result<Archive> {
        let bad = |line: usize, cause: &str| {
            Fault::new(format!("line {}", line + 1), cause, "see the format in the documentation of machine::archive")
        };
        let mut archive = Archive::default();
        let mut lines = text.split_terminator('\n').enumerate().peekable();
        match lines.next() {
            Some((_, HEADER)) => {}
            _ => return Err(bad(0, &format!("does not read '{HEADER}'"))),
        }
        while let Some((number, line)) = lines.next() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (path, rest) = line.split_once(' ').ok_or_else(|| bad(number, "a path without an entry"))?;
            if !path.starts_with('/') {
                return Err(bad(number, "the path does not begin with /"));
            }
            let (kind, value) = rest.split_once(' ').unwrap_or((rest, ""));
            let content = match kind {
                "=" => Ok(Content::File(format!("{value}\n"))),
                "==" => {
                    let text = serde_json::from_str(value).map_err(|e| bad(number, &format!("no JSON string: {e}")))?;
                    Ok(Content::File(text))
                }
                "<<" => {
                    let mut text = String::new();
                    while let Some((_, line)) = lines.next_if(|(_, line)| line.starts_with('|')) {
                        text += &line[1..];
                        text.push('\n');
                    }
                    Ok(Content::File(text))
                }
                "->" => Ok(Content::Link(value.into())),
                "[]" => Ok(Content::Names(value.split('/').filter(|n| !n.is_empty()).map(String::from).collect())),
                "!" => Err(Refusal::from_name(value).ok_or_else(|| bad(number, "no such error name"))?),
                "+w" => {
                    archive.writable.insert(path.into(), Ok(()));
                    continue;
                }
                "-w" => {
                    let refusal = Refusal::from_name(value).ok_or_else(|| bad(number, "no such error name"))?;
                    archive.writable.insert(path.into(), Err(refusal));
                    continue;
                }
                _ => return Err(bad(number, &format!("'{kind}' is no kind of entry"))),
            };
            archive.contents.insert(path.into(), content);
        }
        Ok(archive)
    }
}

fn write_content(out: &mut String, path: &str, content: &Result<Content, Refusal>) {
    let one_line = |text: &str| text.ends_with('\n') && text.matches('\n').count() == 1;
    let _ = match content {
        Ok(Content::File(text)) if text.contains(|c: char| c.is_control() && c != '\n' && c != '\t') => {
            writeln!(out, "{path} == {}", serde_json::Value::from(text.as_str()))
        }
        Ok(Content::File(text)) if one_line(text) => write!(out, "{path} = {text}"),
        Ok(Content::File(text)) if text.ends_with('\n') => {
            let _ = writeln!(out, "{path} <<");
            text.lines().try_for_each(|line| writeln!(out, "|{line}"))
        }
        Ok(Content::File(text)) => writeln!(out, "{path} == {}", serde_json::Value::from(text.as_str())),
        Ok(Content::Link(target)) => writeln!(out, "{path} -> {target}"),
        Ok(Content::Names(names)) => writeln!(out, "{path} [] {}", names.join("/")),
        Err(refusal) => writeln!(out, "{path} ! {}", refusal.name()),
    };
}

fn write_permission(out: &mut String, path: &str, answer: Result<(), Refusal>) {
    let _ = match answer {
        Ok(()) => writeln!(out, "{path} +w"),
        Err(refusal) => writeln!(out, "{path} -w {}", refusal.name()),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn content() -> impl Strategy<Value = Result<Content, Refusal>> {
        prop_oneof![
            any::<String>().prop_map(|text| Ok(Content::File(text))),
            "([ -~]{0,20}\n){0,4}".prop_map(|text| Ok(Content::File(text))),
            "[!-~]{1,30}".prop_map(|target| Ok(Content::Link(target))),
            prop::collection::vec("[a-z0-9:._-]{1,8}", 0..5).prop_map(|names| Ok(Content::Names(names))),
            (1i32..140).prop_map(|errno| Err(Refusal::from_errno(errno))),
        ]
    }

    proptest! {
        #[test]
        fn reads_back_what_it_writes(
            contents in prop::collection::btree_map("/[a-z0-9:/]{1,20}", content(), 0..12),
            allowed in prop::collection::btree_map("/[a-z]{1,6}", prop_oneof![Just(Ok(())), Just(Err(Refusal::from_errno(13)))], 0..4),
        ) {
            let archive = Archive { contents, writable: allowed };
            prop_assert_eq!(Archive::from_text(&archive.to_text()).unwrap(), archive);
        }

        #[test]
        fn arbitrary_text_never_panics(text in any::<String>(), body in "(/[a-z]{1,3} (=|==|<<|->|!|\\+w|-w|\\[\\]|\\?) ?[ -~]{0,9}\n|\\|[ -~]{0,9}\n){0,8}") {
            let _ = Archive::from_text(&text);
            let _ = Archive::from_text(&format!("{HEADER}\n{body}"));
        }
    }
}
