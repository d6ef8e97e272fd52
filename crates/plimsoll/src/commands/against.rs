//! `plimsoll whatif DIR --against DIR2`: what a recording says of another one, whose time is known.

use std::path::Path;

use chart::number::nanoseconds;
use machine::costs::Interval;
use serde_json::{Value, json};
use whatif::answer::Against;

use crate::critical::Names;
use crate::whatif_page::{path, shares};

/// What is printed of a prediction that came out.
#[derive(Debug)]
pub struct Page<'a> {
    pub folder: &'a str,
    pub other: &'a Path,
    /// What carried each.
    pub carried: [String; 2],
    pub against: &'a Against,
    /// Of the other.
    pub names: &'a Names<'a>,
    pub notes: &'a [String],
}

impl Page<'_> {
    pub fn terminal(&self) -> String {
        let Against { recorded, predicted, unchanged, mapped, unseen, path } = self.against;
        let [from, to] = &self.carried;
        let figures = |Interval { low, middle, high }: &Interval| format!("{middle:.3}x ({low:.3} .. {high:.3})");
        let mut text = format!(
            "{}: {} recorded, carried by {to}\n\nPredicted       {} of it: calls as in {}, carried by {from}; computing as recorded\n",
            self.other.display(),
            nanoseconds(*recorded),
            figures(predicted),
            self.folder,
        );
        if let Some(mapped) = mapped {
            text += &format!("Mapped          {} of it: computing too as in {}\n", figures(mapped), self.folder);
        }
        text += &format!("Unchanged       {unchanged:.3}x of it: what {} itself took\n", self.folder);
        text += &format!("Critical path   {}\n", shares(&path.parts));
        if *unseen > 0.0 {
            text += &format!(
                "Not seen        {:.1} % of its calls are of a kind that {} has not (function, size, reach): the nearest size stands in\n",
                100.0 * unseen,
                self.folder
            );
        }
        self.notes.iter().for_each(|note| text += &format!("Note: {note}\n"));
        text
    }

    pub fn json(&self) -> Value {
        let Against { recorded, predicted, unchanged, mapped, unseen, path: critical } = self.against;
        json!({
            "folder": self.folder, "against": self.other, "carried": self.carried, "recorded_ns": recorded,
            "predicted": predicted, "whole_mapped": mapped, "unchanged": unchanged, "unseen_calls": unseen, "path": path(critical, self.names),
            "notes": self.notes,
        })
    }
}
