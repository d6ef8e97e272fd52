//! The page of a profile in a real browser: no complaint, no sideways scrolling on a phone, legible by day and by night,
//! and a script that sorts, zooms and reads out.

use crate::fixture;
use chart::browser::{Browser, LEGIBLE, VISIBLE, too_faint};
use serde_json::json;

const TEXT: [&str; 17] = [
    "h1",
    "h2",
    "h3",
    "p.lead",
    ".meta",
    "td",
    "th",
    "dt",
    "dd",
    "summary",
    "figcaption",
    ".legend li",
    ".notes li",
    "footer p",
    ".plot span",
    ".tiles span",
    ".answer strong",
];

fn browser() -> Option<Browser> {
    Browser::start().map_err(skip::test).ok()
}

#[test]
#[ignore = "make check"]
fn the_page_holds_in_a_browser() {
    let Some(mut browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (name, summary) in [
        ("traced", fixture::traced(20)),
        ("one", fixture::summary(1)),
        ("many", fixture::summary(1000)),
        ("blind", fixture::without_sensors(4)),
        ("hostile", fixture::hostile()),
        ("empty", fixture::empty()),
    ] {
        let file = folder.path().join(format!("{name}.html"));
        std::fs::write(&file, profile::page::render(&summary)).unwrap();
        let mut colours = Vec::new();
        for (width, scheme) in [(1280, "light"), (1280, "dark"), (360, "light"), (360, "dark")] {
            browser.show_as(width, 900, scheme);
            browser.open(&format!("file://{}", file.display()));
            let at = format!("{name} at {width} px, {scheme}");
            browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)");
            let wider = browser.evaluate("document.documentElement.scrollWidth").as_u64();
            assert!(wider <= Some(width.into()), "{at} scrolls sideways: {wider:?}");
            let spilt = format!(
                "[...document.querySelectorAll('main *')].filter(e => e.checkVisibility() && !e.closest('.scroll, svg')\
                 && e.getBoundingClientRect().right > {width} + 0.5).map(e => e.outerHTML.slice(0, 90))"
            );
            assert_eq!(browser.evaluate(&spilt), json!([]), "beyond the edge: {at}");
            // Words of an axis that lie on one another cannot be read.
            let crowded = "[...document.querySelectorAll('.xs, .ys')].filter(axis => {\
                const boxes = [...axis.children].filter(e => e.checkVisibility()).map(e => e.getBoundingClientRect());\
                return boxes.some((a, i) => boxes.some((b, j) => i < j && a.left < b.right && b.left < a.right\
                && a.top < b.bottom - 1 && b.top < a.bottom - 1)) }).map(axis => axis.parentElement.id + axis.className)";
            assert_eq!(browser.evaluate(crowded), json!([]), "crowded axes: {at}");
            if name == "traced" {
                let text = TEXT.into_iter().map(|selector| (selector, "color", LEGIBLE));
                let drawn = ["s1", "s3", "s4", "s5", "s6"].map(|colour| format!("rect.fill.{colour}"));
                let drawn = drawn.iter().map(|selector| (selector.as_str(), "color", VISIBLE));
                let checks: Vec<_> = text.chain(drawn).collect();
                assert_eq!(browser.evaluate(&too_faint(&checks)), json!([]), "{at}");
            }
            let seen = "JSON.stringify(['body', '.verdict', 'h1'].map(s => {\
                        const c = getComputedStyle(document.querySelector(s)); return [c.color, c.backgroundColor] }))";
            colours.push(browser.evaluate(seen));
        }
        assert_ne!(colours[0], colours[1], "dark differs from light");
        assert_ne!(browser.evaluate("document.title"), json!("owned"));
    }
    assert_eq!(browser.complaints, Vec::<String>::new());
}

#[test]
fn the_script_sorts_zooms_and_reads_out() {
    let Some(mut browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.html");
    std::fs::write(&file, profile::page::render(&fixture::traced(12))).unwrap();
    browser.show_as(1280, 900, "light");
    browser.open(&format!("file://{}", file.display()));

    let first = "document.querySelector('#sites tbody th').textContent";
    assert!(browser.evaluate(first).as_str().unwrap().contains("exchange_halo"));
    let head = "[...document.querySelectorAll('#sites thead th')].find(h => h.textContent === 'Time')";
    browser.evaluate(&format!("{head}.querySelector('button').click()"));
    assert_eq!(browser.evaluate(&format!("{head}.ariaSort")), json!("descending"));
    browser.evaluate(&format!("{head}.querySelector('button').click()"));
    assert_eq!(browser.evaluate(&format!("{head}.ariaSort")), json!("ascending"));
    assert!(!browser.evaluate(first).as_str().unwrap().contains("exchange_halo"), "the least time is first now");
    // A reading that is not there stays last, whichever way it is sorted.
    let head = "[...document.querySelectorAll('#functions thead th')].find(h => h.textContent === 'Wait')";
    for _ in 0..2 {
        browser.evaluate(&format!("{head}.querySelector('button').click()"));
        let last = browser.evaluate("document.querySelector('#functions tbody tr:last-child th').textContent");
        assert!(last.as_str().unwrap().contains("MPI_Init"), "{last}");
    }

    let view = "document.querySelector('#timeline .area').getAttribute('viewBox')";
    let whole = browser.evaluate(view);
    let ticks = browser.evaluate("document.querySelector('#timeline .xs').textContent");
    browser.evaluate("document.querySelector('.zoom button').click()");
    assert_ne!(browser.evaluate(view), whole);
    assert_ne!(browser.evaluate("document.querySelector('#timeline .xs').textContent"), ticks);
    browser.evaluate("document.querySelector('.zoom button:last-of-type').click()");
    assert_eq!(browser.evaluate(view), whole);
    let point = |plot: &str| {
        format!(
            "(() => {{ const a = document.querySelector('#{plot} .area'); const b = a.getBoundingClientRect();\
             a.dispatchEvent(new PointerEvent('pointermove', {{ clientX: b.left + b.width * 0.45, clientY: b.top + 2 }}));\
             return document.querySelector('#{plot} ~ .readout').textContent }})()"
        )
    };
    let said = browser.evaluate(&point("timeline"));
    assert_eq!(said, json!("rank 0, 3.23 s: MPI_Wait for 1.1 ms"));
    let said = browser.evaluate(&point("mpi-over-time"));
    assert!(said.as_str().unwrap().starts_with("rank 0, ") && said.as_str().unwrap().ends_with(" % in MPI"), "{said}");

    let shown = "getComputedStyle(document.querySelector('#matrix-0 rect.b8')).fillOpacity";
    let by_bytes = browser.evaluate(shown);
    browser.evaluate("document.querySelector('.by-calls').click()");
    assert_ne!(browser.evaluate(shown), by_bytes, "shaded by messages now");
    assert_eq!(browser.complaints, Vec::<String>::new());
}
