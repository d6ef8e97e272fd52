//! A chart with all that stands around it.

use std::collections::{BTreeMap, BTreeSet};

use askama::Template;

use crate::svg::{Look, swatch};

/// A chart with all that stands around it; displayed as HTML.
#[derive(Default, Template)]
#[template(path = "figure.html")]
pub struct Figure {
    pub title: String,
    pub caption: String,
    pub legend: Vec<Entry>,
    /// HTML, escaped.
    pub drawing: String,
    /// What could not be drawn, and why.
    pub missing: Vec<String>,
    /// Takes the width of the page.
    pub wide: bool,
    /// As high as two beside it.
    pub tall: bool,
}

/// Figures under a heading; displayed as HTML.
#[derive(Template)]
#[template(path = "section.html")]
pub struct Section {
    pub id: String,
    pub title: String,
    pub lead: String,
    pub figures: Vec<Figure>,
}

/// Reasons for what is missing, each once with all that it concerns.
#[derive(Default)]
pub struct Absences(BTreeMap<String, BTreeSet<String>>);

impl Absences {
    pub fn add(&mut self, of: &str, why: String) {
        self.0.entry(why).or_default().insert(of.to_string());
    }

    pub fn lines(self) -> Vec<String> {
        let line = |(why, of): (String, BTreeSet<String>)| format!("{}: {why}", Vec::from_iter(of).join("; "));
        self.0.into_iter().map(line).collect()
    }
}

/// One line of a legend.
pub struct Entry {
    /// HTML.
    pub swatch: String,
    pub name: String,
}

pub fn entry(look: Look, name: &str) -> Entry {
    Entry { swatch: swatch(look), name: name.to_string() }
}
