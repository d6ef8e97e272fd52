//! The report in a real browser: charts with marks, no complaint, no sideways scrolling on a phone, legible by day and
//! by night.

#[allow(dead_code)]
mod fixture;
#[path = "fixture/browser.rs"]
mod headless;

use serde_json::json;

/// Text and marks that are hard to read against what lies behind them (WCAG 2.1: 4.5 for text, 3 for graphics).
const TOO_FAINT: &str = r#"(() => {
  const parse = c => c.match(/[\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => [r, g, b]
    .map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const ratio = (a, b) => {
    const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
    return (x + .05) / (y + .05);
  };
  const faint = [];
  const check = (selector, property, least) => {
    const found = [...document.querySelectorAll(selector)].filter(e => e.checkVisibility());
    if (!found.length) faint.push(selector + ': nothing to check');
    for (const e of found) {
      const r = ratio(parse(getComputedStyle(e)[property]), behind(e));
      if (r < least) { faint.push(`${selector} ${property} ${r.toFixed(2)} ${e.textContent.slice(0, 40)}`); break; }
    }
  };
  for (const s of ['h1', 'h2', 'h3', 'p.lead', '.meta', '.warnings li', 'td', 'th', 'dt', 'dd', 'summary', 'a', 'figcaption', '.legend', '.notes li', 'footer p'])
    check(s, 'color', 4.5);
  check('.chart text', 'fill', 4.5);
  check('.series', 'stroke', 3);
  check('.whisker', 'stroke', 3);
  check('.base', 'stroke', 3);
  for (const n of [1, 2, 3, 4, 5, 6]) check('.chart .mark.s' + n, 'color', 3);
  return faint;
})()"#;

#[test]
fn the_report_holds_in_a_browser() {
    let mut browser = match headless::Browser::start() {
        Ok(browser) => browser,
        Err(why) => {
            eprintln!("SKIPPED: {why}");
            return;
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    let findings = fixture::findings();
    std::fs::write(&file, study::report::html::render(&findings).unwrap()).unwrap();

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
        assert_eq!(browser.evaluate(TOO_FAINT), json!([]), "at {at}");
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

fn blank_picture(browser: &mut headless::Browser, width: u32) -> String {
    browser.show_as(width, 900, "light");
    browser.evaluate("document.body.hidden = true");
    let picture = browser.call("Page.captureScreenshot", json!({ "format": "png" }));
    browser.evaluate("document.body.hidden = false");
    picture["data"].as_str().unwrap().to_string()
}

/// The check itself must be able to fail.
#[test]
fn the_browser_notices_errors_and_spills() {
    let mut browser = match headless::Browser::start() {
        Ok(browser) => browser,
        Err(why) => {
            eprintln!("SKIPPED: {why}");
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
