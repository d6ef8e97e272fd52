//! The report in a real browser: charts with marks, no complaint, no sideways scrolling on a phone, legible by day and
//! by night.

#[allow(dead_code)]
use crate::fixture;
use chart::browser::{Browser, LEGIBLE, VISIBLE, too_faint};
use serde_json::json;

/// Where text stands on the page.
const TEXT: [&str; 19] = [
    "h1",
    "h2",
    "h3",
    ".lines dt",
    ".lines dd",
    "p.lead",
    ".meta",
    ".warnings li",
    "td",
    "th",
    "dt",
    "dd",
    "summary",
    "a",
    "figcaption",
    ".legend",
    ".notes li",
    "footer p",
    ".choice strong",
];

#[test]
#[ignore = "make check"]
fn the_report_holds_in_a_browser() {
    let mut browser = match Browser::start() {
        Ok(browser) => browser,
        Err(why) => {
            skip::test(why);
            return;
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    let findings = fixture::findings();
    std::fs::write(&file, experiment::report::html::render(&findings)).unwrap();

    let mut pictures = Vec::new();
    for (width, scheme) in [(1280, "light"), (1280, "dark"), (360, "light"), (360, "dark")] {
        browser.show_as(width, 900, scheme);
        browser.open(&format!("file://{}", file.display()));
        let at = format!("{width} px, {scheme}");

        let bare = "[...document.querySelectorAll('svg.chart:not(.strip)')].filter(c => c.checkVisibility())\
                    .filter(c => !c.querySelector('.mark, .bar')).map(c => c.textContent.slice(0, 60))";
        assert_eq!(browser.evaluate(bare), json!([]), "charts without marks at {at}");
        let shown =
            browser.evaluate("[...document.querySelectorAll('figure .chart')].filter(c => c.checkVisibility()).length");
        let figures = browser.evaluate("document.querySelectorAll('figure:has(svg.chart)').length");
        assert_eq!(shown, figures, "one rendering of each chart at {at}");
        assert!(figures.as_u64() >= Some(20), "{figures} charts at {at}");

        // A phone widens innerWidth to whatever overflows: the width asked for is what counts.
        let spread = "document.documentElement.scrollWidth";
        let wider = browser.evaluate(spread).as_u64();
        assert!(wider <= Some(width.into()), "the page scrolls sideways at {at}: {wider:?}");
        let spilt = format!(
            "[...document.querySelectorAll('main *')].filter(e => e.checkVisibility() && !e.closest('.scroll, thead')\
                     && e.getBoundingClientRect().right > {width} + 0.5).map(e => e.outerHTML.slice(0, 90))"
        );
        assert_eq!(browser.evaluate(&spilt), json!([]), "beyond the edge at {at}");
        let least = "Math.min(...[...document.querySelectorAll('.chart text')].filter(t => t.checkVisibility())\
                     .map(t => parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().a))";
        let least = browser.evaluate(least).as_f64().unwrap();
        assert!(least >= 10.0, "text of {least:.1} px in a chart at {at}");

        browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)");
        let marks: Vec<_> = (1..=6).map(|n| format!(".chart .mark.s{n}")).collect();
        let text = TEXT.iter().map(|selector| (*selector, "color", LEGIBLE));
        let drawn = [".series", ".whisker", ".base"].map(|selector| (selector, "stroke", VISIBLE));
        let drawn = drawn.into_iter().chain(marks.iter().map(|mark| (mark.as_str(), "color", VISIBLE)));
        let checks: Vec<_> = text.chain([(".chart text", "fill", LEGIBLE)]).chain(drawn).collect();
        assert_eq!(browser.evaluate(&too_faint(&checks)), json!([]), "at {at}");
        let wider = browser.evaluate(spread).as_u64();
        assert!(wider <= Some(width.into()), "opened details scroll the page sideways at {at}: {wider:?}");

        let colours = "JSON.stringify(['body', '.verdict', 'h1', '.series'].map(s => {\
                       const c = getComputedStyle(document.querySelector(s)); return [c.color, c.backgroundColor, c.stroke] }))";
        let colours = browser.evaluate(colours);
        let picture = browser.call("Page.captureScreenshot", json!({ "format": "png" }));
        pictures.push((colours, picture["data"].as_str().unwrap().to_string()));
    }
    assert_ne!(pictures[0].0, pictures[1].0, "dark differs from light");
    for (i, (_, picture)) in pictures.iter().enumerate() {
        let blank = blank_picture(&mut browser, if i < 2 { 1280 } else { 360 });
        // A page of one colour compresses to almost nothing.
        assert!(picture.len() > 8 * blank.len(), "picture {i} is blank: {} of {}", picture.len(), blank.len());
        assert!(pictures.iter().skip(i + 1).all(|(_, other)| other != picture), "picture {i} is another's");
    }
    assert_eq!(browser.complaints, Vec::<String>::new());
}

fn blank_picture(browser: &mut Browser, width: u32) -> String {
    browser.show_as(width, 900, "light");
    browser.evaluate("document.body.hidden = true");
    let picture = browser.call("Page.captureScreenshot", json!({ "format": "png" }));
    browser.evaluate("document.body.hidden = false");
    picture["data"].as_str().unwrap().to_string()
}

/// The check itself must be able to fail.
#[test]
fn the_browser_notices_errors_and_spills() {
    let mut browser = match Browser::start() {
        Ok(browser) => browser,
        Err(why) => {
            skip::test(why);
            return;
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.html");
    let bad = "<meta name=viewport content='width=device-width'><body style='background:#fff'>\
               <p style='width:700px'>x<script>console.error('broken'); throw new Error('thrown')</script>";
    std::fs::write(&file, bad).unwrap();
    browser.show_as(360, 900, "dark");
    browser.open(&format!("file://{}", file.display()));
    assert!(browser.evaluate("document.documentElement.scrollWidth").as_u64() > Some(360));
    assert_eq!(browser.evaluate("matchMedia('(prefers-color-scheme: dark)').matches"), json!(true));
    assert_eq!(browser.complaints.len(), 2, "{:?}", browser.complaints);
}
