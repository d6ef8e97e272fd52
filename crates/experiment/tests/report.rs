//! The renderings of a whole study: what the terminal shows, and that the page holds and hides nothing.

use crate::fixture;
use std::path::Path;

use experiment::findings::{Findings, Verdict};
use experiment::report::html;
use experiment::report::terminal::{Screen, render};

#[test]
fn the_terminal_shows_the_verdict() {
    let text = render(
        &fixture::findings(),
        Screen { width: 110, colour: false, reasons: true },
        Some(Path::new("/home/user/report.html")),
    );
    assert!(text.ends_with("\nReport: /home/user/report.html\n"));
    insta::assert_snapshot!(text);
}

#[test]
fn without_reasons_the_lines_come_first_and_the_rows_not_at_all() {
    let findings = fixture::findings();
    let text = render(&findings, Screen { width: 100, colour: false, reasons: false }, None);
    let lines = findings.verdict.lines.iter().map(|line| format!("{:<32}  {}", line.asked, line.answer));
    let verdict = lines.collect::<Vec<_>>().join("\n");
    assert!(text.contains(&verdict), "{text}");
    assert!(text.starts_with("Same host: ") && text.contains("\n  plimsoll mpirun"), "a choice comes first: {text}");
    assert!(!text.contains("Latency, ping-pong") && !text.contains("of CPU a message"), "{text}");
}

#[test]
fn text_keeps_to_the_screen_and_colour_only_adds() {
    let findings = fixture::findings();
    for width in [40, 60, 80, 200] {
        let text = render(&findings, Screen { width, colour: false, reasons: true }, None);
        // One word longer than the screen cannot be wrapped.
        for line in text.lines().filter(|line| line.split_whitespace().count() > 1) {
            let longest = line.split_whitespace().map(|w| w.chars().count()).max().unwrap_or(0);
            assert!(line.chars().count() <= width.max(longest + 6), "{width}: {line}");
        }
        let coloured = render(&findings, Screen { width, colour: true, reasons: true }, None);
        assert_ne!(coloured, text);
        let mut plain = coloured;
        for code in ["\x1b[1m", "\x1b[1;36m", "\x1b[1;33m", "\x1b[2m", "\x1b[0m"] {
            plain = plain.replace(code, "");
        }
        assert_eq!(plain, text);
    }
}

#[test]
fn hostile_names_stay_text() {
    let mut findings = fixture::findings();
    findings.title = fixture::HOSTILE.into();
    findings.verdict.lines[0].asked = fixture::HOSTILE.into();
    findings.verdict.lines[1].answer = fixture::HOSTILE.into();
    findings.verdict.warnings.push(fixture::HOSTILE.into());
    findings.verdict.ranges[0].rejected[0].why = fixture::HOSTILE.into();
    findings.points[0].spec.placement = machine::Site::Xdp(fixture::HOSTILE.into());
    findings.points[1].cpu_per_message = machine::Reading::not_permitted(fixture::HOSTILE, fixture::HOSTILE);
    let page = html::render(&findings);
    for breakout in ["<script", "<img", "onerror=alert(1)>", "evil</title>", "\u{1b}"] {
        assert!(!page.contains(breakout), "{breakout} got through");
    }
    assert_eq!(page.matches("</title>").count() - page.matches("<title").count(), 0);
    let text = render(&findings, Screen { width: 80, colour: false, reasons: true }, None);
    assert!(!text.contains('\u{1b}'), "an escape sequence got through");
}

#[test]
fn the_page_is_complete_in_itself_and_every_link_lands() {
    let findings = fixture::findings();
    let page = html::render(&findings);
    for outside in ["src=", "@import", "url(", "http://", "https://", "<script", "<link"] {
        let found = page.match_indices(outside).next().map(|(at, _)| page[at..].chars().take(80).collect::<String>());
        // The hostile name holds an escaped `src=`, which is text.
        assert!(found.as_deref().is_none_or(|f| f.starts_with("src=x onerror")), "{found:?}");
    }
    let mut links = 0;
    for (at, _) in page.match_indices("href=\"#") {
        let target = page[at + 7..].split('"').next().unwrap();
        assert!(page.contains(&format!("id=\"{target}\"")), "nothing at #{target}");
        links += 1;
    }
    assert!(links > 50, "{links} links to evidence");
    for point in &findings.points {
        assert!(page.contains(&format!("id=\"p-{}\"", point.key.0)));
    }
}

#[test]
fn what_is_missing_is_said_with_its_reason() {
    let page = html::render(&fixture::findings());
    for reason in [
        "absent: its processes are started by mpirun and are not accounted for",
        "not permitted: tracefs is root&#39;s to read. Next: run the study as root",
        "absent: nothing was chosen",
        "their intervals overlap (0.97 to 1.05) after 9 rounds",
        "of 1",
    ] {
        assert!(page.contains(reason), "{reason}");
    }
}

#[test]
fn a_study_without_a_point_still_reports() {
    let whole = fixture::findings();
    let empty = Findings {
        machine: vec![],
        verdict: Verdict {
            decisions: vec![],
            lines: vec![],
            asked: 0,
            answered: 0,
            ranges: vec![],
            sweep: vec![],
            nearness: None,
            warnings: vec![],
        },
        points: vec![],
        notes: vec![],
        ..whole
    };
    let page = html::render(&empty);
    assert!(page.contains("No point was measured.") && !page.contains("<svg class=\"chart"));
    assert!(render(&empty, Screen { width: 80, colour: false, reasons: true }, None).contains("Nothing can be said"));
}
