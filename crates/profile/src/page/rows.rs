//! Rows of horizontal bars with a text beside each bar.

use std::fmt::Write;

use chart::escape;

use super::part::Part;
use super::plot::rectangle;

/// A bar of several parts.
pub struct Bar {
    pub parts: Vec<(Part, f64)>,
    /// Text beside the bar.
    pub text: String,
    pub title: String,
    /// Whether `text` stands in place of the bar, which has no value.
    pub missing: bool,
}

pub struct Row {
    pub name: String,
    /// A note in smaller type, below the name.
    pub note: String,
    pub bars: Vec<Bar>,
}

/// Rows with a bar for each of `heads`, `(name, end of the scale)`. Each column has its own scale from 0, by default to its
/// greatest bar.
pub fn html(label: &str, heads: &[(&str, Option<f64>)], rows: &[Row]) -> String {
    let most = |column: usize| {
        let sums = rows.iter().filter_map(|row| Some(row.bars.get(column)?.parts.iter().map(|p| p.1).sum::<f64>()));
        heads[column].1.unwrap_or_else(|| sums.fold(0.0, f64::max))
    };
    let tops: Vec<f64> = (0..heads.len()).map(most).collect();
    let mut out =
        format!("<table class=\"rows of-{}\"><caption>{}</caption><thead><tr><td></td>", heads.len(), escape(label));
    for (head, _) in heads {
        let _ = write!(out, "<th scope=\"col\">{}</th>", escape(head));
    }
    out.push_str("</tr></thead><tbody>");
    for row in rows {
        let _ = write!(out, "<tr><th scope=\"row\">{}", escape(&row.name));
        if !row.note.is_empty() {
            let _ = write!(out, "<small>{}</small>", escape(&row.note));
        }
        out.push_str("</th>");
        for (bar, top) in row.bars.iter().zip(&tops) {
            let _ = write!(out, "<td title=\"{}\">", escape(&bar.title));
            if bar.missing {
                let _ = write!(out, "<span class=\"missing\">{}</span></td>", escape(&bar.text));
                continue;
            }
            out.push_str(
                "<span class=\"bar-of\"><svg viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\">",
            );
            let mut at = 0.0;
            for (part, value) in bar.parts.iter().filter(|(_, value)| *value > 0.0 && *top > 0.0) {
                // A value above 0 is visible, however small.
                let wide = (value / top * 1000.0).clamp(2.0, 1000.0);
                rectangle(&mut out, part.class, (at, 0.0), (wide, 10.0), "");
                at += wide;
            }
            let _ = write!(out, "</svg></span><span class=\"beside\">{}</span></td>", escape(&bar.text));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table>");
    out
}
