//! Charts as SVG text: hand-set, themed by CSS classes, readable at two widths.

mod bars;
mod lines;
mod ruler;
mod scale;
mod strip;
mod svg;

pub use bars::{BarChart, Cell, Group};
pub use lines::{LineChart, Series, Threshold};
pub use ruler::{Ruler, Segment, Track};
pub use scale::{Axis, Scale};
pub use strip::strip;
pub use svg::{Frame, Look, Mark, Shape, swatch, untold_swatch};
