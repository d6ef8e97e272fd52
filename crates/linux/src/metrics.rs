//! Figures in the text format of Prometheus, as node_exporter's textfile collector reads it.

use std::fmt::Write;

/// The type of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A total that only grows; its name ends in `_total`.
    Counter,
    Gauge,
}

/// Figures, family by family.
#[derive(Debug, Default)]
pub struct Metrics(String);

/// The figures of one name.
pub struct Family<'a> {
    text: &'a mut String,
    name: String,
}

impl Metrics {
    /// Begins a family. Unknown figures get no line.
    pub fn family(&mut self, kind: Kind, name: &str, help: &str) -> Family<'_> {
        let word = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let help = help.replace('\\', r"\\").replace('\n', r"\n");
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {word}");
        Family { text: &mut self.0, name: name.to_owned() }
    }

    pub fn text(self) -> String {
        self.0
    }
}

impl Family<'_> {
    pub fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", label(value))).collect();
        let braces = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.text, "{}{braces} {value}", self.name);
    }
}

fn label(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}
