//! Every link of a document leads somewhere, the book has every page, and sources name pages that there are.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::documents::{documents, root};

/// Characters of a page's name.
fn of_a_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.".contains(c)
}

/// Lines outside blocks of code, each with its number.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut in_block = false;
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            found.push((number + 1, line));
        }
    }
    found
}

/// Targets of links and images outside code, each with the number of its line.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let plain: String = line.split('`').step_by(2).collect();
        for rest in plain.split("](").skip(1) {
            let target = rest.split([')', ' ']).next().unwrap_or_default();
            found.push((number, target.to_owned()));
        }
    }
    found
}

/// The anchors of a page's headings, as GitHub and mdbook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).into_iter().filter(|(_, line)| line.starts_with('#'));
    let anchor = |line: &str| -> String {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || c.is_whitespace() || "-_".contains(*c));
        kept.map(|c| if c.is_whitespace() { '-' } else { c }).collect()
    };
    headings.map(|(_, line)| anchor(line)).collect()
}

/// The path that `path`, in the file `from`, leads to, from the root.
fn joined(from: &str, path: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// The reason why a link of the document `from` is broken.
fn dead(documents: &[(String, String)], from: &str, target: &str) -> Option<String> {
    if target.contains("://") {
        return None;
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let to = if path.is_empty() { from.to_owned() } else { joined(from, path) };
    if from.starts_with("docs/") && !to.starts_with("docs/") {
        return Some("it leads out of docs/, and the book and an installation have no more".to_owned());
    }
    let page = documents.iter().find(|(name, _)| *name == to).map(|(_, text)| text);
    if page.is_none() && !root().join(&to).exists() {
        return Some(format!("there is no {to}"));
    }
    let missing = anchor.filter(|anchor| page.is_none_or(|text| !anchors(text).contains(*anchor)));
    missing.map(|anchor| format!("{to} has no heading #{anchor}"))
}

#[test]
fn every_link_leads_somewhere() {
    let documents = documents();
    let mut wrong = Vec::new();
    let mut links = 0;
    for (name, text) in &documents {
        for (line, target) in targets(text) {
            links += 1;
            wrong.extend(dead(&documents, name, &target).map(|why| format!("{name}, line {line}: ({target}): {why}")));
        }
    }
    assert!(links > 20, "{links} links");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_alert_names_its_runbook() {
    let documents = documents();
    let alerts = fs::read_to_string(root().join("packaging/prometheus/plimsoll.rules.yml")).unwrap();
    let values = |key: &str| -> Vec<String> {
        let lines = alerts.lines().filter_map(|line| line.trim_start().trim_start_matches("- ").strip_prefix(key));
        lines.map(|value| value.trim().to_owned()).collect()
    };
    let runbooks = values("runbook:");
    assert!(runbooks.len() >= 5);
    for key in ["alert:", "summary:", "description:"] {
        assert_eq!(values(key).len(), runbooks.len(), "{key}");
    }
    let dead = runbooks.iter().filter_map(|target| dead(&documents, "README.md", target)).collect::<Vec<_>>();
    assert!(dead.is_empty() && runbooks.iter().all(|target| target.contains('#')), "{dead:?}");
    // A runbook that no alert names is for nothing.
    let (_, page) = documents.iter().find(|(name, _)| name == "docs/centre.md").unwrap();
    let (_, runbook) = page.split_once("\n## When an alert comes\n").unwrap();
    let headings: BTreeSet<String> = anchors(runbook.split("\n## ").next().unwrap());
    let named: BTreeSet<String> = runbooks.iter().map(|target| target.rsplit('#').next().unwrap().to_owned()).collect();
    assert_eq!(headings, named);
}

#[test]
fn a_dead_link_is_found() {
    let page = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let documents =
        [page("docs/a.md", "# A: `one` thing, and\n```\n# no heading\n```\n"), page("README.md", "# Read this\n")];
    for (from, target) in [
        ("docs/a.md", "nowhere.md"),
        ("docs/a.md", "#no-heading"),
        ("docs/a.md", "../README.md"),
        ("README.md", "a.md"),
        ("README.md", "docs/a.md#a"),
    ] {
        assert!(dead(&documents, from, target).is_some(), "{from}: {target}");
    }
    for (from, target) in [
        ("docs/a.md", "#a-one-thing-and"),
        ("README.md", "docs/a.md#a-one-thing-and"),
        ("README.md", "docs/../README.md#read-this"),
        ("README.md", "Makefile"),
        ("docs/a.md", "https://example.org/#x"),
    ] {
        assert_eq!(dead(&documents, from, target), None, "{from}: {target}");
    }
    let text = "see [`x`](a.md#b) and `[no](link)`, ![picture](p.png \"title\")\n```\n[no](link)\n```\n";
    assert_eq!(targets(text), [(1, "a.md#b".to_owned()), (1, "p.png".to_owned())]);
}

#[test]
fn the_book_has_every_page_once() {
    let documents = documents();
    let (_, summary) = documents.iter().find(|(name, _)| name == "docs/SUMMARY.md").expect("docs/SUMMARY.md");
    let mut listed: Vec<String> = targets(summary).into_iter().map(|(_, target)| target).collect();
    listed.sort();
    let pages = documents.iter().filter_map(|(name, _)| name.strip_prefix("docs/"));
    let pages: Vec<&str> = pages.filter(|name| *name != "SUMMARY.md").collect();
    assert_eq!(listed, pages);
}

/// Each `docs/NAME.md` in the files below a folder, with the file.
fn named(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            named(&path, found);
        } else if let Ok(text) = fs::read_to_string(&path) {
            for rest in text.split("docs/").skip(1) {
                let name: String = rest.chars().take_while(|c| of_a_name(*c)).collect();
                // A name may end a sentence.
                let name = name.trim_end_matches('.');
                if name.ends_with(".md") {
                    found.push((path.display().to_string(), format!("docs/{name}")));
                }
            }
        }
    }
}

/// Lines of a source that tell users the source's name for a page. Helps may: a manual page replaces those.
fn told(source: &str) -> Vec<&str> {
    let lines = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let pages = lines.filter(|line| line.split("docs/").skip(1).any(|rest| rest.contains(".md")));
    pages.filter(|line| !["page(\"docs/", "page: \"docs/", "include_str!"].iter().any(|of| line.contains(of))).collect()
}

#[test]
fn messages_name_pages_as_an_installation_has_them() {
    let mut wrong = Vec::new();
    for entry in fs::read_dir(root().join("crates")).unwrap().flatten() {
        // Crates for tests are never installed, and `manual` has the names itself.
        if ["testbed", "manual", "skip"].iter().any(|name| entry.path().ends_with(name)) {
            continue;
        }
        let mut sources = Vec::new();
        named(&entry.path().join("src"), &mut sources);
        sources.retain(|(file, _)| file.ends_with(".rs") && !file.ends_with("machine/src/page.rs"));
        sources.dedup_by(|a, b| a.0 == b.0);
        for (file, _) in sources {
            let text = fs::read_to_string(&file).unwrap();
            wrong.extend(told(&text).into_iter().map(|line| format!("{file}: {line}")));
        }
    }
    assert!(wrong.is_empty(), "machine::page finds a page: {}", wrong.join("\n"));
    let bad = "// docs/a.md\nlet next = \"see docs/a.md\";\nlet next = machine::page(\"docs/a.md\");\n";
    assert_eq!(told(bad), ["let next = \"see docs/a.md\";"]);
}

#[test]
fn pages_that_sources_name_are_there() {
    let mut found = Vec::new();
    for folder in ["crates", "scripts", "machines", "applications"] {
        named(&root().join(folder), &mut found);
    }
    assert!(found.len() > 20, "{} pages are named", found.len());
    // This file has examples of its own.
    let others = found.iter().filter(|(file, _)| !file.ends_with("manual/tests/links.rs"));
    let wrong: Vec<String> =
        others.filter(|(_, page)| !root().join(page).exists()).map(|(file, page)| format!("{file}: {page}")).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
