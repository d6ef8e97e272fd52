//! Text for a terminal of any width: lines and table cells that break between words.

use crate::printable;

/// Columns of space between two table columns; the smaller where the table does not fit otherwise.
const GAPS: [usize; 2] = [2, 1];

/// `head` and `text` in lines of at most `width` columns, those after the first indented by `indent` spaces. Only a
/// longer word exceeds the width. Control characters are replaced.
pub fn folded(head: &str, text: &str, indent: usize, width: usize) -> String {
    let indent = if indent > width / 2 { 4 } else { indent };
    let (mut page, mut line, mut has_word) = (String::new(), printable(head), false);
    for word in text.split_whitespace().map(printable) {
        let length = word.chars().count();
        let used = line.chars().count() + usize::from(has_word);
        if used + length > width {
            if !line.trim().is_empty() {
                page += line.trim_end();
                page.push('\n');
            }
            line = " ".repeat(indent.min(width.saturating_sub(length)));
            has_word = false;
        }
        if has_word {
            line.push(' ');
        }
        line += &word;
        has_word = true;
    }
    page + line.trim_end() + "\n"
}

/// `page` with lines longer than `width` broken between words; continuations align with the line's last column, or with
/// its text. Lines with escape codes stay unchanged.
pub fn fitted(page: &str, width: usize) -> String {
    let fit = |line: &str| match line.chars().count() <= width || line.contains('\x1b') {
        true => format!("{line}\n"),
        false => fitted_line(line, width),
    };
    page.lines().map(fit).collect()
}

fn fitted_line(line: &str, width: usize) -> String {
    let indent = line.chars().take_while(|c| *c == ' ').count();
    let under = last_column(line, width * 2 / 3).unwrap_or_else(|| match line.trim_start().starts_with("- ") {
        true => indent + 2,
        false => indent,
    });
    // A line has its first word in any case.
    let behind = |lead: usize, text: &str| {
        let word = text.split(' ').next().map_or(0, |word| word.chars().count());
        " ".repeat(lead.min(width.saturating_sub(word))) + text
    };
    let (mut page, mut rest) = (String::new(), behind(indent, line.trim()));
    while rest.chars().count() > width {
        let Some(at) = last_break(&rest, width) else { break };
        page += rest[..at].trim_end();
        page.push('\n');
        rest = behind(under, rest[at..].trim());
    }
    page + rest.trim_end() + "\n"
}

/// Where the last column starts that does so within `most` columns.
fn last_column(line: &str, most: usize) -> Option<usize> {
    let chars: Vec<char> = line.chars().collect();
    let begins = |place: &usize| chars[*place] != ' ' && chars[*place - 1] == ' ' && chars[*place - 2] == ' ';
    let has_text = |place: &usize| chars[..*place].iter().any(|c| *c != ' ');
    (2..chars.len().min(most)).rev().filter(begins).find(has_text)
}

/// Byte of the last space within `width` columns that has a word before it, else of the first space beyond them.
fn last_break(line: &str, width: usize) -> Option<usize> {
    let lead = line.chars().take_while(|c| *c == ' ').count();
    let mut found = None;
    for (place, (at, _)) in line.char_indices().enumerate().filter(|(place, (_, c))| *c == ' ' && *place > lead) {
        if place > width && found.is_some() {
            break;
        }
        found = Some(at);
    }
    found
}

/// A table. Where it is too wide, cells at the left break between words; where that is not enough, each row becomes
/// lines of `name: cell`.
#[derive(Debug, Clone, Default)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    right: Vec<usize>,
}

impl Table {
    /// A table with these column names, which are not shown where all are empty.
    pub fn new<S: AsRef<str>>(header: impl IntoIterator<Item = S>) -> Table {
        Table { header: cells(header), ..Table::default() }
    }

    /// Aligns `columns` to the right, as figures are; their cells never break.
    pub fn right(mut self, columns: impl IntoIterator<Item = usize>) -> Table {
        self.right.extend(columns);
        self
    }

    /// A further row.
    pub fn row<S: AsRef<str>>(&mut self, row: impl IntoIterator<Item = S>) {
        let mut row = cells(row);
        row.resize(self.header.len(), String::new());
        self.rows.push(row);
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table in lines of at most `width` columns; only a longer word exceeds them.
    pub fn text(&self, width: usize) -> String {
        let columns = |gap: usize| self.widths(width, gap).map(|widths| self.columns(&widths, gap));
        let lines = GAPS.into_iter().find_map(columns).unwrap_or_else(|| self.stacked(width));
        lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
    }

    fn shown(&self) -> impl Iterator<Item = &Vec<String>> {
        let named = self.header.iter().any(|name| !name.is_empty());
        std::iter::once(&self.header).filter(move |_| named).chain(&self.rows)
    }

    /// The width of each column; `None` where they do not fit side by side.
    fn widths(&self, width: usize, gap: usize) -> Option<Vec<usize>> {
        let most = |of: fn(&str) -> usize, column: usize| self.shown().map(|row| of(&row[column])).max().unwrap_or(0);
        let least = |column: usize| {
            let cells = self.rows.iter().filter(|_| self.right.contains(&column));
            let unbroken = cells.map(|row| widest_line(&row[column])).max().unwrap_or(0);
            unbroken.max(most(widest_word, column))
        };
        let mut widths: Vec<usize> = (0..self.header.len()).map(|column| most(widest_line, column)).collect();
        let least: Vec<usize> = (0..self.header.len()).map(least).collect();
        let between = 1 + gap * self.header.len().saturating_sub(1);
        while widths.iter().sum::<usize>() + between > width {
            let breakable = (0..widths.len()).filter(|column| widths[*column] > least[*column]);
            let widest = breakable.max_by_key(|column| widths[*column])?;
            widths[widest] -= 1;
        }
        Some(widths)
    }

    fn columns(&self, widths: &[usize], gap: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for row in self.shown() {
            let broken: Vec<Vec<String>> = row.iter().zip(widths).map(|(cell, width)| broken(cell, *width)).collect();
            for place in 0..broken.iter().map(Vec::len).max().unwrap_or(0) {
                let mut line = String::from(" ");
                for (column, (cell, width)) in broken.iter().zip(widths).enumerate() {
                    let (cell, width) = (cell.get(place).map_or("", String::as_str), *width);
                    line += &match self.right.contains(&column) {
                        true => format!("{cell:>width$}"),
                        false => format!("{cell:<width$}"),
                    };
                    line += &" ".repeat(gap);
                }
                lines.push(line);
            }
        }
        lines
    }

    fn stacked(&self, width: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for row in &self.rows {
            let named = row.iter().zip(&self.header).filter(|(cell, _)| !cell.trim().is_empty());
            for (place, (cell, name)) in named.enumerate() {
                let lead = if place == 0 { " " } else { "   " };
                let head = if name.is_empty() { lead.to_owned() } else { format!("{lead}{name}: ") };
                lines.extend(folded(&head, cell, lead.len() + 2, width).lines().map(str::to_owned));
            }
        }
        lines
    }
}

fn cells<S: AsRef<str>>(row: impl IntoIterator<Item = S>) -> Vec<String> {
    let lines = |cell: S| cell.as_ref().split('\n').map(printable).collect::<Vec<_>>().join("\n");
    row.into_iter().map(lines).collect()
}

fn widest_line(cell: &str) -> usize {
    cell.lines().map(|line| line.trim_end().chars().count()).max().unwrap_or(0)
}

/// Width of the widest word; the first word of a line counts with its indentation.
fn widest_word(cell: &str) -> usize {
    let of_line = |line: &str| {
        let indent = line.chars().take_while(|c| *c == ' ').count();
        indent + line.split_whitespace().map(|word| word.chars().count()).max().unwrap_or(0)
    };
    cell.lines().map(of_line).max().unwrap_or(0)
}

/// The lines of a cell, none longer than `width`.
fn broken(cell: &str, width: usize) -> Vec<String> {
    let lines = cell.lines().flat_map(|line| match line.trim_end().chars().count() <= width {
        true => vec![line.trim_end().to_owned()],
        false => {
            let indent = line.chars().take_while(|c| *c == ' ').count();
            let lead = " ".repeat(indent);
            folded(&lead, line, indent, width).lines().map(str::to_owned).collect()
        }
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn measured() -> Table {
        let mut table = Table::new(["size", "stack", "median", "over the first", "why"]).right([0, 2, 3]);
        table.row(["8 B", "engine over shm in the application", "142.4 ns", "1", "nothing slows it"]);
        table.row(["64 KiB", "tcp", "12.1 us", "85.0 (80.2 .. 91.3)", "the kernel copies the bytes twice"]);
        table
    }

    #[test]
    fn a_table_stands_side_by_side_breaks_its_words_or_becomes_a_list() {
        let wide = measured().text(200);
        assert_eq!(wide.lines().count(), 3, "{wide}");
        assert!(wide.starts_with("   size  stack "), "{wide}");
        let middle = measured().text(80);
        assert!(middle.lines().count() > 3 && middle.contains("85.0 (80.2 .. 91.3)"), "{middle}");
        let narrow = measured().text(40);
        assert!(narrow.starts_with(" size: 8 B\n   stack: engine over shm in the\n     application\n"), "{narrow}");
        assert!(narrow.contains("\n   over the first: 85.0 (80.2 .. 91.3)\n"), "{narrow}");
    }

    #[test]
    fn what_follows_a_long_line_stands_under_its_last_column() {
        let line = "  3      it computes 12 % of the run, and gets all of a core in place of the half of one\n";
        assert_eq!(
            fitted(line, 40),
            "  3      it computes 12 % of the run,\n         and gets all of a core in place\n         of the half of one\n"
        );
        assert_eq!(fitted("- one two three\nx\n", 9), "- one two\n  three\nx\n");
        let coloured = "\x1b[1mlonger than ten\x1b[0m\n";
        assert_eq!(fitted(coloured, 10), coloured);
    }

    #[test]
    fn a_name_cannot_drive_the_terminal() {
        let mut table = Table::new(["a\x0bb"]);
        table.row(["c\rd\x1b[2J\ne\u{85}"]);
        let text = table.text(80) + &folded("\x1b", "a \x1b[2J b", 0, 80);
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    }

    /// No line is longer than `width`, but for one word; and no word is lost or cut.
    fn fits(text: &str, words: &str, width: usize) -> Result<(), TestCaseError> {
        for line in text.lines() {
            let alone = line.split_whitespace().count() == 1 && line.trim().chars().count() > width;
            prop_assert!(line.chars().count() <= width || alone, "{:?} at {}", line, width);
        }
        let all = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        prop_assert_eq!(all(text), all(words));
        Ok(())
    }

    proptest! {
        #[test]
        fn text_of_any_words_fits_any_width(words in "([a-z]{1,30} ?){1,40}", indent in 0usize..50, width in 10usize..120) {
            fits(&folded("", &words, indent, width), &words, width)?;
            fits(&fitted(&(" ".repeat(indent) + &words), width), &words, width)?;
        }

        #[test]
        fn tables_of_any_words_fit_any_width(
            rows in prop::collection::vec(prop::collection::vec("([a-z]{1,12} ){0,6}", 4), 0..5), width in 40usize..120
        ) {
            let mut table = Table::new(["one", "two", "", "four words of name"]).right([1]);
            rows.iter().for_each(|row| table.row(row));
            for line in table.text(width).lines() {
                prop_assert!(line.chars().count() <= width, "{:?} at {}", line, width);
            }
        }
    }
}
