//! ODFs: what is written reads back, what is wrong is explained, and the schema agrees.

mod arbitrary;
mod mistakes;
mod mutation;
mod schema;

use offcode::odf;
use proptest::prelude::*;

/// A package that uses everything an ODF can say.
const EXAMPLE: &str = include_str!("example.xml");

#[test]
fn a_part_is_found_where_it_stands() {
    use machine::{BodyKind, SiteKind};
    use offcode::odf::{Part, place};
    let text = EXAMPLE.as_bytes();
    let environment = offcode::service::MEMORY.interface;
    for (part, line, column) in [
        (Part::Body(BodyKind::Wasm), 14, 6),
        (Part::Hardware, 20, 4),
        (Part::Target(SiteKind::Xdp), 23, 6),
        (Part::Environment(environment), 28, 6),
        (Part::Peer("report".into()), 32, 6),
    ] {
        assert_eq!(place(text, &part), Some((line, column)), "{part:?}");
    }
    assert_eq!(place(text, &Part::Peer("none".into())), None);
    assert_eq!(place(b"<odf", &Part::Hardware), None);
}

#[test]
fn the_example_is_written_as_it_stands() {
    let manifest = odf::read(EXAMPLE.as_bytes()).unwrap_or_else(|problems| panic!("{problems}"));
    let without_comments: String =
        EXAMPLE.lines().filter(|line| !line.trim_start().starts_with("<!--")).map(|line| format!("{line}\n")).collect();
    assert_eq!(odf::write(&manifest).unwrap(), without_comments);
}

#[test]
fn what_an_odf_cannot_state_is_not_written() {
    let mut manifest = odf::read(EXAMPLE.as_bytes()).unwrap();
    manifest.package.bodies.reverse();
    assert!(odf::write(&manifest).unwrap_err().to_string().contains("order"));
    manifest.package.bodies.clear();
    assert!(odf::write(&manifest).unwrap_err().to_string().contains("no body"));
}

#[test]
fn spellings_that_xml_allows_are_read_alike() {
    let manifest = odf::read(EXAMPLE.as_bytes()).unwrap();
    let alike = [
        EXAMPLE.replace('\n', "\r\n"),
        format!("\u{feff}{EXAMPLE}"),
        EXAMPLE.replace('"', "'").replace("'1.0'", "\"1.0\""),
        EXAMPLE.replace("app core\"", "app\n\tcore\""),
        EXAMPLE.replace("<software>", "<?editor state?><software >").replace("</software>", "</software\n>"),
        EXAMPLE.replace("0b9d6c4e-3f52-4bb1-8a53-7d9c1e0f2a11", "0B9D6C4E-3F52-4BB1-8A53-7D9C1E0F2A11"),
        EXAMPLE.replace("64 KiB", "65536"),
        EXAMPLE.replace("Keeps &amp; counts", "<![CDATA[Keeps & counts]]>"),
        EXAMPLE.replace("name=\"admit\"", "name=\"&#97;dm&#x69;t\""),
    ];
    for (i, text) in alike.iter().enumerate() {
        assert_ne!(text, EXAMPLE, "{i}");
        match odf::read(text.as_bytes()) {
            Ok(read) => assert_eq!(read, manifest, "{i}"),
            Err(problems) => panic!("{i}: {problems}"),
        }
    }
}

proptest! {
    #[test]
    fn what_is_written_reads_back_equal(manifest in arbitrary::manifest()) {
        let text = odf::write(&manifest).unwrap();
        let read = odf::read(text.as_bytes()).unwrap();
        prop_assert_eq!(&read, &manifest);
        prop_assert_eq!(odf::write(&read).unwrap(), text);
    }
}
