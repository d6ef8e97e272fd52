//! Valid ODFs damaged at random: nothing panics, nothing takes long, and what is still read is valid by the schema.

use offcode::odf;

use super::EXAMPLE;
use super::schema::Schema;

/// What damage is made of: what means something in XML or in an ODF.
const PIECES: &[&str] = &[
    "<",
    ">",
    "/",
    "\"",
    "'",
    "&",
    ";",
    "=",
    " ",
    "\n",
    "\t",
    "<!--",
    "-->",
    "--",
    "<![CDATA[",
    "]]>",
    "<?x",
    "?>",
    "<?xml",
    "&#0;",
    "&#10;",
    "&amp;",
    "&x;",
    "<!DOCTYPE odf>",
    "xmlns=\"u\"",
    "a:",
    "é",
    "\u{feff}",
    "\u{fffe}",
    "\u{0}",
    "0",
    "-",
    ".",
    "..",
    "00000000000",
    "4",
    "KiB",
    "app",
    "xdp",
    "native",
    "<app memory=\"1\"/>",
    "<method name=\"m\"/>",
    "</odf>",
    "<odf version=\"1\">",
    "odf.xml",
];

/// xorshift64*, so that a seed is all that it takes to see a failure again.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }
}

fn damaged(seed: u64) -> Vec<u8> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut text = EXAMPLE.as_bytes().to_vec();
    for _ in 0..1 + random.below(3) {
        let at = random.below(text.len() + 1);
        let until = (at + random.below(24)).min(text.len());
        let piece = PIECES[random.below(PIECES.len())];
        match random.below(7) {
            0 => drop(text.drain(at..until)),
            1 => drop(text.splice(at..at, piece.bytes())),
            2 => drop(text.splice(at..until, piece.bytes())),
            3 if at < text.len() => text[at] = random.below(256) as u8,
            4 => text.truncate(at),
            5 => {
                let copy = text[at..until].to_vec();
                let to = random.below(text.len() + 1);
                text.splice(to..to, copy);
            }
            // Whole lines are what an author loses or doubles.
            _ => {
                let mut lines: Vec<Vec<u8>> = text.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
                if lines.len() > 1 {
                    let (from, to) = (random.below(lines.len()), random.below(lines.len()));
                    let line = lines[from].clone();
                    if random.below(2) == 0 {
                        lines.remove(from);
                    }
                    lines.insert(to.min(lines.len()), line);
                }
                text = lines.concat();
            }
        }
    }
    text
}

#[test]
fn damage_is_refused_or_read_and_never_panics() {
    check(0..4_000);
}

#[test]
#[ignore = "make check"]
fn more_damage_is_refused_or_read_and_never_panics() {
    check(4_000..20_000);
}

fn check(seeds: std::ops::Range<u64>) {
    let first = std::env::var("PLIMSOLL_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = first.map_or(seeds, |seed: u64| seed..seed + 1);
    let mut read = Vec::new();
    for seed in seeds {
        let text = damaged(seed);
        match std::panic::catch_unwind(|| odf::read(&text)) {
            Ok(Ok(manifest)) => {
                let written = odf::write(&manifest).unwrap_or_else(|fault| panic!("PLIMSOLL_SEED={seed}: {fault}"));
                assert_eq!(odf::read(written.as_bytes()).unwrap(), manifest, "PLIMSOLL_SEED={seed}");
                read.push((seed, text));
            }
            Ok(Err(problems)) => {
                let (lines, page) = (text.split(|b| *b == b'\n').count(), problems.render("odf.xml", true));
                assert!(problems.list().iter().all(|problem| problem.line <= lines), "PLIMSOLL_SEED={seed}: {page}");
            }
            Err(_) => panic!("PLIMSOLL_SEED={seed} panics"),
        }
    }
    assert!(first.is_some() || read.len() > 100, "the damage is too great to tell anything: {}", read.len());
    let Some(schema) = Schema::here() else { return };
    let verdicts = schema.check(read.iter().map(|(_, text)| &text[..]));
    for ((seed, text), valid) in read.iter().zip(verdicts) {
        assert!(valid, "PLIMSOLL_SEED={seed}: read, but not valid:\n{}", String::from_utf8_lossy(text));
    }
}

#[test]
fn the_longest_files_are_read_in_bounded_steps() {
    let longest = odf::LARGEST.0 as usize;
    let fill = |unit: &str| {
        EXAMPLE.replacen("<method name=\"admit\"/>", &unit.repeat((longest - EXAMPLE.len()) / unit.len()), 1)
    };
    for unit in [
        "<method name=\"m\"/>",
        "<method/>",
        "<m a=\"\"/>",
        "&amp;",
        "&",
        "<",
        "<!---->",
        "<a>",
        "a=\"\" ",
        "<m a='",
        "é",
        "\n",
        "]]>",
    ] {
        // One line of all of it, too: an excerpt is cut.
        match odf::read(fill(unit).as_bytes()) {
            Ok(_) => assert!(matches!(unit, "<!---->" | "\n"), "{unit}"),
            Err(problems) => assert!(problems.render("odf.xml", false).len() < 100_000, "{unit}"),
        }
    }
    let attributes = (0..20_000).map(|i| format!("a{i}=\"\" ")).collect::<String>();
    let many = EXAMPLE.replacen("<software>", &format!("<software {attributes}>"), 1);
    assert!(many.len() < longest);
    assert!(odf::read(many.as_bytes()).unwrap_err().to_string().contains("attributes"));
    let half = longest / 2 - EXAMPLE.len();
    let value = EXAMPLE.replacen("port &lt; 1024", &"&".repeat(half), 1);
    assert_eq!(odf::read(value.as_bytes()).unwrap_err().count(), half);
    // Targets that no body is for, and bodies for none.
    let targets = EXAMPLE.replacen("<hardware>", &format!("<hardware>{}", "<tc/>".repeat(half / 5)), 1);
    let bodies = targets.replacen("    <native", &format!("{}    <native", "<wasm/>".repeat(half / 7)), 1);
    assert!(bodies.len() < longest && odf::read(bodies.as_bytes()).unwrap_err().count() > half / 5);
}
