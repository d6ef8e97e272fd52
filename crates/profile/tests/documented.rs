//! docs/profile-json.md lists the fields of the JSON as the types have them.

const TYPES: [&str; 2] = [include_str!("../src/summary.rs"), include_str!("../src/verdict/mod.rs")];
const PAGE: &str = include_str!("../../../docs/profile-json.md");

/// `(type, fields)` of each struct.
fn types() -> Vec<(String, Vec<String>)> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    let mut inside = false;
    for line in TYPES.iter().flat_map(|text| text.lines()) {
        if let Some(name) = line.strip_prefix("pub struct ").and_then(|rest| rest.strip_suffix(" {")) {
            found.push((name.into(), Vec::new()));
            inside = true;
        } else if line == "}" {
            inside = false;
        } else if let Some(field) = line.strip_prefix("    pub ").filter(|_| inside) {
            let name = field.split(':').next().unwrap();
            found.last_mut().unwrap().1.push(name.trim_start_matches("r#").into());
        }
    }
    found
}

/// The same, as the page has it: `## Name` and a table of `` | `field` | ... | ``.
fn documented() -> Vec<(String, Vec<String>)> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for line in PAGE.lines() {
        if let Some(name) = line.strip_prefix("### ") {
            found.push((name.into(), Vec::new()));
        } else if let Some(rest) = line.strip_prefix("| `")
            && let Some((_, fields)) = found.last_mut()
        {
            fields.push(rest.split('`').next().unwrap().into());
        }
    }
    found
}

#[test]
fn the_page_has_every_field_and_no_other() {
    let types = types();
    assert!(types.iter().any(|(name, fields)| name == "Summary" && fields.contains(&"schema".to_owned())));
    assert_eq!(documented(), types);
}
