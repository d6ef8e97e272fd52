//! Parts of bars, columns and blocks, with their colours.

use chart::Entry;

/// A part of a bar, column or block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub class: &'static str,
    pub name: &'static str,
}

impl Part {
    /// The part's entry in a legend.
    pub fn key(self) -> Entry {
        Entry { swatch: format!("<i class=\"key {}\"></i>", self.class), name: self.name.into() }
    }
}

pub const COMPUTE: Part = Part { class: "fill s6", name: "compute" };
pub const TRANSFER: Part = Part { class: "fill s1", name: "transfer" };
pub const WAIT: Part = Part { class: "fill s3", name: "wait" };
pub const OFF_CORE: Part = Part { class: "fill s5", name: "off its core" };
pub const BLOCKED: Part = Part { class: "fill s2", name: "blocked outside MPI" };
pub const UNDIVIDED: Part = Part { class: "fill s4 hollow", name: "in MPI, too few calls to divide" };
