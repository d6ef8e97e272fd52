//! docs/profile-json.md lists the fields of the JSON as the types have them. `make bless` writes the list anew.

use std::fs;
use std::path::Path;

const TYPES: [&str; 7] = [
    include_str!("../src/summary.rs"),
    include_str!("../src/summary/columns.rs"),
    include_str!("../src/summary/outside.rs"),
    include_str!("../src/summary/power.rs"),
    include_str!("../../machine/src/capability.rs"),
    include_str!("../src/verdict/mod.rs"),
    include_str!("../src/verdict/hindrance.rs"),
];
const FROM: &str = "## Fields\n";
const TO: &str = "## Words\n";

/// `### Type`, what it is, and a list of its fields.
fn fields() -> String {
    let mut page = String::new();
    let mut remark: Vec<&str> = Vec::new();
    let mut inside = false;
    for line in TYPES.iter().flat_map(|text| text.lines()) {
        if let Some(words) = line.trim().strip_prefix("///") {
            remark.push(words.trim());
        } else if let Some(name) = line.strip_prefix("pub struct ").and_then(|rest| rest.strip_suffix(" {")) {
            let remark = words(&std::mem::take(&mut remark).join(" "));
            page += &format!("\n### {name}\n{remark}\n\n").replace("\n\n\n", "\n\n");
            inside = true;
        } else if let Some((name, of)) = line.strip_prefix("    pub ").and_then(|field| field.split_once(": ")) {
            let remark = words(&std::mem::take(&mut remark).join(" "));
            if inside {
                page += &format!("- `{name}: {}`: {remark}\n", kind(of.trim_end_matches(',')));
            }
        } else if line == "}" {
            inside = false;
            remark.clear();
        } else if !line.trim().starts_with("#[") {
            remark.clear();
        }
    }
    page + "\n"
}

/// A type as JSON has it.
fn kind(of: &str) -> String {
    let within = |name: &str| of.strip_prefix(name).and_then(|rest| rest.strip_suffix('>'));
    if let Some(of) = within("Vec<") {
        return format!("{}[]", kind(of));
    }
    if let Some(of) = within("Option<") {
        return format!("{}?", kind(of));
    }
    if let Some(of) = within("Reading<") {
        return format!("reading<{}>", kind(of));
    }
    if let Some(of) = within("BTreeMap<String, ") {
        return format!("object<{}>", kind(of));
    }
    match of {
        "String" => "text".into(),
        "u64" | "u32" | "u16" | "usize" | "i32" | "CoreId" => "integer".into(),
        "f64" | "f32" => "number".into(),
        "(f64, f64)" => "number[2]".into(),
        "[u64; 6]" => "integer[6]".into(),
        other => other.into(),
    }
}

fn words(remark: &str) -> String {
    let plain = remark.replace("[`", "`").replace("`]", "`").replace("`None`", "null");
    plain.replace("FunctionSummary::", "functions[].").replace("JobSummary::", "job.").replace("Summary::", "")
}

#[test]
fn the_page_has_every_field_with_its_type_and_meaning() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/profile-json.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(FROM).expect("a part with the fields");
    let (listed, after) = rest.split_once(TO).expect("a part after them");
    let fields = fields();
    for known in ["### Summary", "- `schema: integer`: ", "### Judgement", "- `cells: integer[6][]`: "] {
        assert!(fields.contains(known), "{known}");
    }
    if std::env::var_os("BLESS").is_some_and(|bless| bless == "1") {
        fs::write(&path, format!("{before}{FROM}{fields}{TO}{after}")).unwrap();
        return;
    }
    let differing = listed.lines().zip(fields.lines()).find(|(listed, field)| listed != field);
    assert!(listed == fields, "{differing:?}: run `BLESS=1 cargo test -p profile documented`, read the diff");
}

#[test]
fn every_field_has_a_meaning() {
    let fields = fields();
    let without: Vec<&str> = fields.lines().filter(|line| line.ends_with("`: ")).collect();
    assert!(without.is_empty(), "write in the types what they are: {without:#?}");
}
