//! A chart with all that stands around it.

use std::collections::{BTreeMap, BTreeSet};

use crate::svg::{Look, swatch};

/// A chart with all that stands around it.
pub struct Figure {
    pub title: String,
    pub caption: String,
    pub legend: Vec<Entry>,
    /// The chart for a desk and for a phone; SVG.
    pub wide: String,
    pub narrow: String,
    /// What could not be drawn, and why.
    pub missing: Vec<String>,
}

impl Figure {
    /// Where nothing could be drawn: what is missing stands in its place.
    pub fn without_chart(title: &str, missing: Vec<String>) -> Self {
        let none = String::new;
        Figure { title: title.into(), caption: none(), legend: vec![], wide: none(), narrow: none(), missing }
    }
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
    pub swatch: String,
    pub name: String,
}

pub fn entry(look: Look, name: &str) -> Entry {
    Entry { swatch: swatch(look), name: name.to_string() }
}
