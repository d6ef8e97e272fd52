//! The format of `/proc/interrupts` and `/proc/softirqs`: a header of CPUs, then `LABEL: count...` rows.

use machine::CoreId;

/// One row: its label without the colon, and the rest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'a> {
    pub label: &'a str,
    rest: &'a str,
}

impl<'a> Row<'a> {
    /// The counts of the first `cores` columns; fewer where the row has fewer (`ERR:` has one).
    pub fn counts(&self, cores: usize) -> impl Iterator<Item = u64> + 'a {
        self.rest.split_ascii_whitespace().take(cores).map_while(|word| word.parse().ok())
    }

    /// The words behind the counts.
    pub fn description(&self, cores: usize) -> impl Iterator<Item = &'a str> {
        self.rest.split_ascii_whitespace().skip(self.counts(cores).count())
    }
}

/// The cores of the header, in column order; `None` if the text has no such header.
pub(super) fn cores(text: &str) -> Option<Vec<CoreId>> {
    let header = text.lines().next()?;
    let cores = header.split_ascii_whitespace().map(|word| word.strip_prefix("CPU")?.parse().ok().map(CoreId));
    cores.collect::<Option<Vec<_>>>().filter(|cores| !cores.is_empty())
}

pub(super) fn rows(text: &str) -> impl Iterator<Item = Row<'_>> {
    text.lines().skip(1).filter_map(|line| {
        let (label, rest) = line.split_once(':')?;
        Some(Row { label: label.trim(), rest })
    })
}

/// The advance of a 32-bit kernel counter, wrapped at most once.
pub(super) fn advance(from: u64, to: u64) -> u64 {
    u64::from((to as u32).wrapping_sub(from as u32))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_counter_may_wrap() {
        assert_eq!(advance(u64::from(u32::MAX) - 1, 3), 5);
        assert_eq!(advance(7, 7), 0);
    }

    proptest! {
        #[test]
        fn any_text_reads_without_panic(text in "[ -~\n]{0,200}") {
            let n = cores(&text).map_or(1, |c| c.len());
            for row in rows(&text) {
                prop_assert!(row.counts(n).count() <= n);
                let _ = row.description(n).count();
            }
        }
    }
}
