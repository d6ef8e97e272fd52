//! Offcode Description Files: manifests in XML, in the three parts of HYDRA section 1.5. [`XSD`] is the format.
//!
//! Reading is strict: what is unknown, missing, duplicated, out of order or out of bounds is refused, with its line and
//! column and with what to write instead, all mistakes of a file at once. The schema refuses the same but for what XML
//! Schema 1.0 cannot say, which `docs/applications.md` lists.

mod place;
mod problem;
mod read;
mod tree;
mod vocabulary;
mod write;

use machine::{Bytes, Fault, Result};

pub use place::{Part, place};
pub use problem::{Problem, Problems};

use crate::manifest::Manifest;
use problem::Mistake;

/// The schema of an ODF (XSD), as `plimsoll odf schema` prints it.
pub const XSD: &str = include_str!("../odf.xsd");

/// Larger files are refused unread.
pub const LARGEST: Bytes = Bytes(256 << 10);

/// Reads one ODF. Time and memory are bounded by its length, which is bounded by [`LARGEST`].
pub fn read(bytes: &[u8]) -> Result<Manifest, Problems> {
    let mut mistakes = Vec::new();
    let mut refuse = |at: usize, cause: String, next: &str| {
        mistakes.push(Mistake { at: at..at + 1, cause, next: next.to_owned() });
    };
    if bytes.len() as u64 > LARGEST.0 {
        refuse(0, format!("the file has {}, an ODF at most {LARGEST}", Bytes(bytes.len() as u64)), "split the offcode");
        return Err(Problems::of("", mistakes).expect("one was noted"));
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
        Err(error) => {
            let well = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
            refuse(well.len(), "the file is not UTF-8 from here on".into(), "save it as UTF-8");
            return Err(Problems::of(&well, mistakes).expect("one was noted"));
        }
    };
    if let Some((at, character)) = text.char_indices().find(|(_, character)| !tree::is_xml_character(*character)) {
        refuse(at, format!("the character U+{:04X} cannot be in XML", u32::from(character)), "take it out");
        return Err(Problems::of(text, mistakes).expect("one was noted"));
    }
    let root = tree::parse(text, &mut mistakes);
    let manifest = root.map(|root| read::manifest(&root, &mut mistakes));
    match (Problems::of(text, mistakes), manifest) {
        (None, Some(manifest)) => Ok(manifest),
        (Some(problems), _) => Err(problems),
        (None, None) => unreachable!("without a root there is a mistake"),
    }
}

/// The ODF of a manifest, indented: the same text for the same manifest, which [`read`] turns into an equal manifest.
///
/// # Errors
/// An ODF cannot state the manifest, for example one without a body.
pub fn write(manifest: &Manifest) -> Result<String> {
    let text = write::document(manifest);
    let subject = || format!("manifest of {}", manifest.package.name);
    match read(text.as_bytes()) {
        Ok(read) if read == *manifest => Ok(text),
        Ok(_) => Err(Fault::new(
            subject(),
            "an ODF cannot state it: its bodies or targets are not in the order app, core, xdp, agent or native, wasm, bpf, \
             or hold what their kind does not have",
            "put them in order, and give files, programs and modes only to the kinds that have them",
        )),
        Err(problems) => {
            let problem = &problems.list()[0];
            Err(Fault::new(subject(), problem.cause.clone(), problem.next.clone()))
        }
    }
}
