//! A chart with title, caption and legend.

use std::collections::{BTreeMap, BTreeSet};

use askama::Template;

use crate::svg::{Look, swatch};

/// A chart with title, caption and legend; displayed as HTML.
#[derive(Default, Template)]
#[template(path = "figure.html")]
pub struct Figure {
    pub title: String,
    pub caption: String,
    pub legend: Vec<Entry>,
    /// The chart, as escaped HTML.
    pub drawing: String,
    /// Values that could not be drawn, and why.
    pub missing: Vec<String>,
    /// Whether it takes the width of the page.
    pub wide: bool,
    /// Whether it is as high as two figures beside it.
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

/// Reasons of missing values, each once with all that it applies to.
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
    /// Its sample, as HTML.
    pub swatch: String,
    pub name: String,
}

pub fn entry(look: Look, name: &str) -> Entry {
    Entry { swatch: swatch(look), name: name.to_string() }
}
