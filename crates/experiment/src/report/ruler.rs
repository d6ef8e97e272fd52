//! The verdict as a ruler: the choice along the sizes.

use chart::{Frame, Placed, Scale, Svg, fitting};

/// A range of sizes with one choice, drawn from `from` to `to`.
#[derive(Debug, Clone)]
pub struct Segment {
    pub from: f64,
    pub to: f64,
    /// Colour class of the choice; `None` without a choice.
    pub class: Option<String>,
    pub name: String,
    pub title: String,
}

/// One line of the ruler.
#[derive(Debug, Clone)]
pub struct Track {
    pub name: String,
    pub segments: Vec<Segment>,
}

pub struct Ruler<'a> {
    pub id: &'a str,
    pub title: &'a str,
    pub description: &'a str,
    pub tracks: &'a [Track],
    pub write: fn(f64) -> String,
}

const ROW: f64 = 56.0;

impl Ruler<'_> {
    pub fn svg(&self, frame: Frame) -> Option<String> {
        let width = if frame == Frame::WIDE { 1000.0 } else { frame.width };
        let frame = Frame { width, height: ROW * self.tracks.len() as f64 + 24.0, ..frame };
        let segments = || self.tracks.iter().flat_map(|t| &t.segments);
        let ends = segments().flat_map(|s| [s.from, s.to]);
        let x = Placed::over(Scale::Log2, ends, (2.0, width - 2.0))?;
        let mut svg = Svg::new(frame, self.id, self.title, self.description);
        let bottom = ROW * self.tracks.len() as f64;
        for tick in x.ticks(60.0) {
            svg.line("grid", (x.at(tick), 0.0), (x.at(tick), bottom));
            svg.text("tick", "middle", (x.at(tick).clamp(16.0, width - 22.0), bottom + 16.0), &(self.write)(tick));
        }
        for (i, track) in self.tracks.iter().enumerate() {
            let top = ROW * i as f64;
            svg.text("track", "start", (2.0, top + 15.0), &fitting(&track.name, width - 4.0).unwrap_or_default());
            for segment in &track.segments {
                let (left, right) = (x.at(segment.from) + 1.0, x.at(segment.to) - 1.0);
                let class = segment.class.as_deref().unwrap_or("untold");
                svg.rectangle(&format!("segment mark {class}"), (left, top + 22.0), right - left, 26.0, &segment.title);
                svg.rectangle(&format!("cap {class}"), (left, top + 22.0), 3.0, 26.0, &segment.title);
                if let Some(name) = fitting(&segment.name, right - left - 16.0) {
                    svg.text("inside", "start", (left + 9.0, top + 39.0), &name);
                }
            }
        }
        Some(svg.finish())
    }
}

/// Legend swatch of ranges without a choice.
pub fn untold_swatch() -> &'static str {
    "<svg class=\"swatch\" viewBox=\"0 0 30 14\" width=\"30\" height=\"14\" aria-hidden=\"true\">\
     <rect class=\"segment untold\" x=\"1\" y=\"1\" width=\"28\" height=\"12\"/></svg>"
}
