//! A checkup as a page of text.

use machine::text::folded;

use crate::check::{Check, State};
use crate::{Checkup, Section};

const NAME: usize = 18;
const WORD: usize = 14;

impl Checkup {
    /// The page in `width` columns.
    pub fn page(&self, width: usize) -> String {
        let mut page = folded("", &self.machine, 0, width);
        for Section { title, checks } in &self.sections {
            page += &format!("\n{title}\n");
            for check in checks {
                let head = format!("  {:<NAME$}{:<WORD$}", check.name, check.state.name());
                page += &folded(&head, &text(check), head.chars().count(), width);
            }
        }
        let all = self.sections.iter().flat_map(|section| &section.checks);
        let usable = all.clone().filter(|check| check.state == State::Yes).count();
        let sum = format!("{usable} of {} can be used. `plimsoll machine` describes the machine.", all.count());
        page + "\n" + &folded("", &sum, 0, width)
    }
}

fn text(check: &Check) -> String {
    let Check { found, gives, cost, .. } = check;
    match &check.next {
        None => format!("{gives} ({found})"),
        Some(next) => format!("{found}. Costs: {cost}. Next: {next}"),
    }
}
