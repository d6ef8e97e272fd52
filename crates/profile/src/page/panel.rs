//! A drawing of the page with its heading, its legend and what is to be said of it.

/// What a colour stands for.
pub struct Key {
    /// CSS classes of its swatch.
    pub class: &'static str,
    pub name: String,
}

#[derive(Default)]
pub struct Panel {
    pub title: String,
    pub legend: Vec<Key>,
    /// HTML, escaped.
    pub body: String,
    pub caption: String,
    /// What is not drawn, and why.
    pub missing: Vec<String>,
    /// Takes the width of the page.
    pub wide: bool,
    /// As high as two beside it.
    pub tall: bool,
}

/// A stretch of the page.
pub struct Section {
    pub id: &'static str,
    pub title: &'static str,
    pub lead: String,
    pub panels: Vec<Panel>,
}

/// What a bar or column is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub class: &'static str,
    pub name: &'static str,
}

impl Part {
    pub fn key(self) -> Key {
        Key { class: self.class, name: self.name.into() }
    }
}

pub const COMPUTE: Part = Part { class: "fill s6", name: "compute" };
pub const TRANSFER: Part = Part { class: "fill s1", name: "transfer" };
pub const WAIT: Part = Part { class: "fill s3", name: "wait" };
pub const OFF_CORE: Part = Part { class: "fill s5", name: "off its core" };
pub const UNDIVIDED: Part = Part { class: "fill s4 hollow", name: "in MPI, too few calls to divide" };
