//! The analysis as CSV.

use std::fmt::Write;

use super::{Analysis, Change};

const HEAD: &str = "what,panel,carrier,baseline,scale,clock,quantity,percent,low,high,sure,rounds,mark";

/// CSV with a row for each comparison.
pub fn csv(analysis: &Analysis) -> String {
    let mut text = String::from(HEAD);
    text.push('\n');
    let mut row = |words: [&str; 7], change: Option<Change>, mark: &str| {
        let Some(change) = change else { return };
        let words = words.map(quoted).join(",");
        let Change { middle, low, high, sure, rounds } = change;
        let _ = writeln!(text, "{words},{middle:.4},{low:.4},{high:.4},{sure},{rounds},{mark}");
    };
    for curve in &analysis.trades {
        let (panel, carrier) = (curve.place.panel.as_str(), curve.place.carrier.as_deref().unwrap_or(""));
        let scale = curve.place.scale.as_deref().unwrap_or("");
        for step in &curve.steps {
            let mark = format!("knee {}; front {}", word(&step.knee), word(&step.front));
            let words = |quantity| ["trade", panel, carrier, "", scale, step.clock.as_str(), quantity];
            row(words("performance lost"), step.lost, &mark);
            row(words("watts saved"), step.saved, &mark);
            row(words("energy more"), step.energy, &mark);
        }
    }
    for gain in &analysis.gains {
        let of = |scale: &str, clock: &str, quantity: &str| -> [String; 7] {
            ["gain", &gain.panel, &gain.carrier, &gain.baseline, scale, clock, quantity].map(str::to_owned)
        };
        for step in &gain.steps {
            let (scale, clock) = (step.scale.as_deref().unwrap_or(""), step.clock.as_deref().unwrap_or(""));
            let words = of(scale, clock, "performance gained");
            row(words.each_ref().map(String::as_str), step.performance, "");
            let words = of(scale, clock, "watts saved");
            row(words.each_ref().map(String::as_str), step.power, "");
        }
        for trend in &gain.trends {
            let quantity = format!("performance gained by {}", trend.by);
            let words = of("", trend.at.as_deref().unwrap_or(""), &quantity);
            row(words.each_ref().map(String::as_str), trend.change, "trend");
        }
    }
    text
}

/// Serialized name of a value.
fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
