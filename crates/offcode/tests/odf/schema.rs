//! The published schema, applied by xmllint.

use std::path::{Path, PathBuf};
use std::process::Command;

use offcode::odf;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use super::{EXAMPLE, arbitrary};

pub struct Schema {
    folder: tempfile::TempDir,
    xmllint: PathBuf,
}

impl Schema {
    /// `None`, said so, where there is no xmllint.
    pub fn here() -> Option<Schema> {
        let xmllint = skip::tool("xmllint")?;
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("odf.xsd"), odf::XSD).unwrap();
        Some(Schema { folder, xmllint })
    }

    /// Whether each text is valid.
    pub fn check<'a>(&self, texts: impl IntoIterator<Item = &'a [u8]>) -> Vec<bool> {
        let mut valid = Vec::new();
        let folder = self.folder.path();
        for (i, text) in texts.into_iter().enumerate() {
            std::fs::write(folder.join(format!("{i}.xml")), text).unwrap();
            valid.push(false);
        }
        // Many a call: starting the program takes longer than reading a file.
        for chunk in (0..valid.len()).collect::<Vec<_>>().chunks(500) {
            let mut command = Command::new(&self.xmllint);
            command.current_dir(folder).args(["--nonet", "--noout", "--schema", "odf.xsd"]);
            let output = command.args(chunk.iter().map(|i| format!("{i}.xml"))).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!said.contains("odf.xsd failed to compile"), "{said}");
            for line in said.lines() {
                if let Some(file) = line.strip_suffix(".xml validates") {
                    valid[file.parse::<usize>().unwrap()] = true;
                }
            }
        }
        valid
    }
}

#[test]
fn what_is_written_is_valid() {
    let Some(schema) = Schema::here() else { return };
    let mut runner = TestRunner::deterministic();
    let strategy = arbitrary::manifest();
    let mut texts = vec![EXAMPLE.to_owned()];
    texts.extend((0..300).map(|_| odf::write(&strategy.new_tree(&mut runner).unwrap().current()).unwrap()));
    for (text, valid) in texts.iter().zip(schema.check(texts.iter().map(String::as_bytes))) {
        assert!(valid, "the schema refuses what was written:\n{text}");
    }
}

#[test]
fn the_schema_is_where_it_is_published() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("odf.xsd");
    assert_eq!(std::fs::read_to_string(file).unwrap(), odf::XSD);
}
