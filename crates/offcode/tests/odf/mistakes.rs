//! Each mistake, what is said about it, and whether the schema sees it too.

use offcode::odf;

use super::EXAMPLE;
use super::schema::Schema;

struct Mistake {
    what: &'static str,
    text: String,
    /// Whether XML Schema 1.0 cannot say it: `docs/applications.md` lists these.
    beyond_the_schema: bool,
}

fn mistakes() -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    let mut add = |beyond_the_schema: bool, what: &'static str, changes: &[(&str, &str)]| {
        let mut text = EXAMPLE.to_owned();
        for (from, to) in changes {
            assert!(text.contains(from), "{what}: the example has no {from}");
            text = text.replacen(from, to, 1);
        }
        mistakes.push(Mistake { what, text, beyond_the_schema });
    };
    add(false, "an element that is not known", &[("<app memory", "<gpu memory")]);
    add(false, "a slip in an element's name", &[("<hardware>", "<hardwear>"), ("</hardware>", "</hardwear>")]);
    add(false, "an attribute that is not known", &[("constraint=\"pull\"", "constraint=\"pull\" weight=\"3\"")]);
    add(false, "a slip in an attribute's name", &[("constraint=\"pull\"", "constraints=\"pull\"")]);
    add(false, "no name", &[(" name=\"example.filter\"", "")]);
    add(false, "a bad GUID", &[("4f6f3a7a-52cf", "4f6f3a7a52cf")]);
    add(
        false,
        "an interface twice",
        &[("9a1c6a3e-70cb-4c26-8a0f-6f6e5a3d9b02", "4f6f3a7a-52cf-4a08-9c5d-1f0d5b1c7a01")],
    );
    add(false, "a method twice", &[("\"admitted\"", "\"admit\"")]);
    add(false, "a peer's name twice", &[("name=\"report\"", "name=\"counter\"")]);
    add(false, "an attribute's name twice", &[("name=\"rule\"", "name=\"OFFLOAD_PRIORITY\"")]);
    add(false, "a native body with a file", &[("<native sites", "<native file=\"x.so\" sites")]);
    add(false, "a native body at the driver hook", &[("<native sites=\"app core\"", "<native sites=\"app xdp\"")]);
    add(false, "a library for no kind of machine", &[("target=\"x86_64-unknown-linux-gnu\"", "target=\"x86_64\"")]);
    add(false, "a library above the package", &[("libfilter.so", "../libfilter.so")]);
    add(
        false,
        "a library without its hash",
        &[(" sha256=\"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"", "")],
    );
    add(false, "a hash that is cut", &[("0f00a08", "0f00a")]);
    add(
        false,
        "two libraries for one kind of machine",
        &[(
            "    </native>",
            "      <file target=\"x86_64-unknown-linux-gnu\" name=\"other.so\" sha256=\"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"/>\n    </native>",
        )],
    );
    add(false, "a wasm body without a file", &[(" file=\"filter.wasm\"", "")]);
    add(true, "a bpf body without a program", &[(" program=\"filter\"", "")]);
    add(false, "a role that is not known", &[("role=\"hook\"", "role=\"tail\"")]);
    add(false, "a file above the package", &[("filter.wasm", "../filter.wasm")]);
    add(false, "a file by its absolute path", &[("filter.o", "/lib/filter.o")]);
    add(true, "the ODF as its own body", &[("filter.o", "odf.xml")]);
    add(
        false,
        "no hardware",
        &[(
            "    <app memory=\"64 KiB\"/>\n    <core memory=\"64 KiB\" work-ns=\"40\"/>\n    \
             <xdp modes=\"native generic\" memory=\"1 MiB\" work-ns=\"25\"/>\n    <agent memory=\"64 KiB\"/>\n",
            "",
        )],
    );
    add(false, "modes away from the driver hook", &[("<core memory", "<core modes=\"native\" memory")]);
    add(true, "a mode twice", &[("native generic", "native native")]);
    add(false, "a size that is none", &[("64 KiB", "64 kilobytes")]);
    add(false, "a number that is none", &[("work-ns=\"40\"", "work-ns=\"-40\"")]);
    add(false, "a number of buffers that is no power of two", &[("buffers=\"64\"", "buffers=\"65\"")]);
    add(false, "buffers without room", &[("buffer-size=\"256 B\"", "buffer-size=\"0\"")]);
    add(
        false,
        "parts out of order",
        &[
            ("<description>Keeps &amp; counts what a rule admits.</description>\n", ""),
            ("    <native", "    <description/>\n    <native"),
        ],
    );
    add(
        false,
        "a body of a kind twice",
        &[("<native sites=\"app core\">", "<native sites=\"app\"/><native sites=\"core\">")],
    );
    add(true, "a target that no body is for", &[("sites=\"app core agent\"", "sites=\"app core\"")]);
    add(false, "a version of a service that is none", &[("fed5\"/>", "fed5\" version=\"0\"/>")]);
    add(true, "a priority beyond its range", &[("value=\"300\"", "value=\"3000\"")]);
    add(true, "itself as a peer", &[("e8d7c6b5-a493-4281-b0cf-1e2d3c4b5a06", "0b9d6c4e-3f52-4bb1-8a53-7d9c1e0f2a11")]);
    add(false, "a requirement that is no versions", &[("version=\"&gt;=1.2, &lt;2\"", "version=\"1.2 or newer\"")]);
    add(true, "a version with a number that is none", &[("version=\"&gt;=1.2, &lt;2\"", "version=\"&gt;=01.2\"")]);
    add(false, "text where none may be", &[("<hardware>", "<hardware>any")]);
    add(false, "white space by its number behind the root", &[("</odf>", "</odf>&#10;")]);
    add(false, "no root of this name", &[("<odf version", "<offcode version"), ("</odf>", "</offcode>")]);
    add(false, "another version", &[("<odf version=\"1\"", "<odf version=\"2\"")]);
    add(false, "an element without its end", &[("</software>", "")]);
    add(false, "ends that do not match", &[("</software>", "</sofware>")]);
    add(false, "an attribute twice", &[("version=\"1.2.0\"", "version=\"1.2.0\" version=\"1.2.1\"")]);
    add(false, "a value without quotes", &[("role=\"hook\"", "role=hook")]);
    add(false, "an entity", &[("port &lt; 1024", "port &less; 1024")]);
    add(false, "a character that XML cannot hold", &[("what a rule", "what\u{1}a rule")]);
    add(
        true,
        "a document type with entities",
        &[("<odf version", "<!DOCTYPE odf [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;\">]>\n<odf version")],
    );
    add(
        false,
        "many mistakes at once",
        &[
            ("<app memory=\"64 KiB\"/>", "<app/>"),
            ("1.2.0", "one"),
            ("role=\"hook\"", "role=\"\""),
            ("rate=\"50000\"", "rate=\"often\""),
        ],
    );
    let deep = format!("{}{}", "<method>".repeat(5_000), "</method>".repeat(5_000));
    add(false, "deep nesting", &[("<method name=\"admit\"/>", &deep)]);
    mistakes.push(Mistake { what: "nothing at all", text: String::new(), beyond_the_schema: false });
    mistakes
}

#[test]
fn each_mistake_is_explained_with_its_place() {
    let mut page = String::new();
    for Mistake { what, text, .. } in mistakes() {
        let problems = odf::read(text.as_bytes()).expect_err(what);
        page += &format!("-- {what}\n{}", problems.render("odf.xml", false));
    }
    insta::assert_snapshot!(page);
}

#[test]
fn the_schema_refuses_the_same_mistakes() {
    let Some(schema) = Schema::here() else { return };
    let mistakes = mistakes();
    let verdicts = schema.check(mistakes.iter().map(|mistake| mistake.text.as_bytes()));
    for (mistake, valid) in mistakes.iter().zip(verdicts) {
        assert_eq!(valid, mistake.beyond_the_schema, "{}", mistake.what);
    }
}

#[test]
fn a_file_that_is_too_long_or_no_text_is_refused() {
    let long = format!("{EXAMPLE}{}", " ".repeat(odf::LARGEST.0 as usize));
    assert!(odf::read(long.as_bytes()).unwrap_err().to_string().contains("at most 256 KiB"));
    let problems = odf::read(b"<odf version=\"1\">\n  \xff</odf>").unwrap_err();
    assert_eq!((problems.list()[0].line, problems.list()[0].column), (2, 3), "{problems}");
}

#[test]
fn no_reference_goes_on_behind_another() {
    let text = EXAMPLE.replacen("port &lt; 1024", "port & pier &lt; 1024", 1);
    let problems = odf::read(text.as_bytes()).unwrap_err();
    assert!(problems.count() == 1 && problems.to_string().contains("'&' begins no reference"), "{problems}");
}

#[test]
fn columns_count_characters() {
    let text = EXAMPLE.replace("Keeps &amp; counts", "Zählt ✓ &unknown;");
    let problems = odf::read(text.as_bytes()).unwrap_err();
    assert_eq!((problems.list()[0].line, problems.list()[0].column), (5, 26), "{problems}");
}

#[test]
fn mistakes_at_the_ends_of_lines_are_shown() {
    for text in
        ["<odf version=\"1\"\n  b/>", "<odf version=\"1\"\r\n  b/>", "\u{feff}\u{feff}<ln]]K\r\n  K;Kfc=\"x\"/>"]
    {
        let problems = odf::read(text.as_bytes()).unwrap_err();
        assert!(problems.render("odf.xml", false).contains("odf.xml:"), "{text}");
    }
}
