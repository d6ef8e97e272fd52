//! The findings of a causal experiment as a page of text.

use std::fmt::Write;

use machine::{count, figure};

use super::{Factor, Findings, Slope, TOLD};

/// Nanoseconds less for a message or a byte in each row's example, with its name.
fn example(factor: Factor) -> (f64, &'static str) {
    match factor {
        Factor::Send | Factor::Receive => (100.0, "100 ns less for each"),
        Factor::Byte => (0.01, "0.01 ns less for each"),
        Factor::Compute => (0.0, ""),
    }
}

/// The page.
pub fn render(findings: &Findings) -> String {
    let run = findings.elapsed;
    let mut page = format!("A run takes {} between MPI_Init and MPI_Finalize.\n", figure::nanoseconds(run));
    if let Some(of) = &findings.null {
        let reads = if findings.is_null() { "read 0, as they must" } else { "do not read 0, as they must" };
        let [low, high] = [of.low, of.high].map(|ratio| 100.0 * (ratio - 1.0));
        let rounds = count::of(of.samples as u64, "round");
        let _ = writeln!(page, "Delays of no length {reads}: {low:+.2} .. {high:+.2} % of a run ({rounds}).");
    }
    for slope in &findings.slopes {
        page.push('\n');
        page.push_str(&words(slope, run));
    }
    page.push_str(
        "\nThe bounds hold as far as the program does the same in the same order: then its time is convex in each cost, so that what it \
         loses by a delay is no less than what it gains by as much less cost. They are upper bounds, and no predictions of a gain.\n",
    );
    for note in &findings.notes {
        let _ = writeln!(page, "note: {note}");
    }
    page
}

fn words(slope: &Slope, run: f64) -> String {
    let (what, times) = match slope.factor {
        Factor::Send => ("before messages", slope.count),
        Factor::Receive => ("after receives", slope.count),
        Factor::Byte => ("for bytes sent", slope.bytes),
        Factor::Compute => ("in computing", slope.count),
    };
    let [one, two] = slope.doses.map(|dose| 100.0 * dose);
    let mut text = format!("{}: delays {what}, {one:.1} and {two:.1} % of a run in all ranks together\n", slope.factor);
    let Some(of) = slope.interval else { return text + "  cannot tell: too few rounds\n" };
    let _ = writeln!(
        text,
        "  of the time injected {:.1} % lengthened the run ({:.1} .. {:.1} %, {})",
        100.0 * of.middle,
        100.0 * of.low,
        100.0 * of.high,
        count::of(of.samples as u64, "round")
    );
    if let Some(rounds) = slope.rounds_needed() {
        let within = 100.0 * TOLD;
        let _ = writeln!(
            text,
            "  to know it to {within:.0} % takes about {rounds} rounds by the noise of these: --rounds {rounds}, and --budget"
        );
    }
    let of = slope.possible().unwrap_or(of);
    let (less, example) = example(slope.factor);
    match slope.factor {
        Factor::Compute => {
            let _ = writeln!(
                text,
                "  a second less computing in one rank gains at most {} on average over the ranks",
                figure::nanoseconds(1e9 * of.high)
            );
        }
        factor => {
            let name = if factor == Factor::Byte { "bytes" } else { "messages" };
            let _ = writeln!(
                text,
                "  as if {:.0} of {times:.0} {name} were on the critical path ({:.0} .. {:.0})",
                of.middle * times,
                of.low * times,
                of.high * times
            );
            let bound = slope.bound(less).unwrap_or_default();
            let _ = writeln!(
                text,
                "  {example} gains at most {}, {:.2} % of a run",
                figure::nanoseconds(bound),
                100.0 * bound / run
            );
        }
    }
    text
}
