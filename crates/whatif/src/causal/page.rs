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
    if let Some(within) = &findings.within {
        let _ = writeln!(page, "{}.", within.period.words());
        let _ = writeln!(
            page,
            "Delays are on in half of {} of {} in {}.",
            count::of(within.blocks as u64, "block"),
            figure::nanoseconds(within.block),
            count::of(within.runs as u64, "run")
        );
    }
    if let Some(of) = &findings.null {
        let reads = if findings.is_null() { "read 0, as they must" } else { "do not read 0, as they must" };
        let [low, high] = [of.low, of.high].map(|ratio| 100.0 * (ratio - 1.0));
        let of = match &findings.within {
            None => format!("a run ({})", count::of(of.samples as u64, "round")),
            Some(_) => "a block".to_owned(),
        };
        let _ = writeln!(page, "Delays of no length {reads}: {low:+.2} .. {high:+.2} % of {of}.");
    }
    for slope in &findings.slopes {
        page.push('\n');
        page.push_str(&words(slope, findings));
    }
    page.push_str(&shares(findings));
    page.push_str(
        "\nThe bounds hold as far as the program does the same in the same order: then its time is convex in each cost, so that what it \
         loses by a delay is no less than what it gains by as much less cost. They are upper bounds, and no predictions of a gain.\n",
    );
    for note in &findings.notes {
        let _ = writeln!(page, "note: {note}");
    }
    page
}

fn words(slope: &Slope, findings: &Findings) -> String {
    let run = findings.elapsed;
    let (what, times) = match slope.target.factor {
        Factor::Send => ("before messages", slope.count),
        Factor::Receive => ("after receives", slope.count),
        Factor::Byte => ("for bytes sent", slope.bytes),
        Factor::Compute => ("in computing", slope.count),
    };
    let doses: Vec<String> = slope.doses.iter().map(|dose| format!("{:.1}", 100.0 * dose)).collect();
    let of = if findings.within.is_some() { "a block" } else { "a run" };
    let mut text =
        format!("{}: delays {what}, {} % of {of} in all ranks together\n", slope.target, doses.join(" and "));
    let Some(of) = slope.interval else { return text + "  cannot tell: too few rounds\n" };
    let rounds = match findings.within {
        None => format!(", {}", count::of(of.samples as u64, "round")),
        Some(_) => String::new(),
    };
    let _ = writeln!(
        text,
        "  of the time injected {:.1} % lengthened the run ({:.1} .. {:.1} %{rounds})",
        100.0 * of.middle,
        100.0 * of.low,
        100.0 * of.high
    );
    if let Some(after) = slope.near_after {
        let _ = writeln!(text, "  known to 20 % of itself, or 0.05, after {} of blocks", figure::nanoseconds(after));
    }
    if let Some((within, times)) = findings.within.as_ref().zip(slope.times_needed()) {
        let all = times * within.blocks as f64 * within.block;
        let _ = writeln!(
            text,
            "  to know it to {:.0} % takes about {} of blocks by the noise of these: --budget",
            100.0 * TOLD,
            figure::nanoseconds(all)
        );
    } else if let Some(rounds) = slope.rounds_needed() {
        let within = 100.0 * TOLD;
        let _ = writeln!(
            text,
            "  to know it to {within:.0} % takes about {rounds} rounds by the noise of these: --rounds {rounds}, and --budget"
        );
    }
    let of = slope.possible().unwrap_or(of);
    let (less, example) = example(slope.target.factor);
    match slope.target.factor {
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

/// The parts of a run on its critical path, by slopes, beside those of the ranks.
fn shares(findings: &Findings) -> String {
    let of = |slope: &Slope| Some((slope.target, slope.share?));
    let all: Vec<_> = findings.slopes.iter().filter_map(of).collect();
    if all.is_empty() {
        return String::new();
    }
    let mut text = "\nParts of a run on its critical path, by slopes (a cost 1 % higher makes a run 1 % of its part longer), and in the ranks:\n"
        .to_owned();
    for (target, share) in &all {
        let _ = writeln!(
            text,
            "  {target}: {:.1} % ({:.1} .. {:.1} %); ranks {:.1} % on average, {:.1} % at most",
            100.0 * share.on_path.middle,
            100.0 * share.on_path.low,
            100.0 * share.on_path.high,
            100.0 * share.mean,
            100.0 * share.most
        );
    }
    if all.len() > 1 {
        let sum: f64 = all.iter().map(|(_, share)| share.on_path.middle).sum();
        let in_ranks: f64 = all.iter().map(|(_, share)| share.of_all).sum();
        let half = |share: &super::Share| ((share.on_path.high - share.on_path.low) / 2.0).powi(2);
        let half = all.iter().map(|(_, share)| half(share)).sum::<f64>().sqrt();
        let _ = writeln!(
            text,
            "  sum: {:.1} % ({:.1} .. {:.1} %); ranks {:.1} %",
            100.0 * sum,
            100.0 * (sum - half),
            100.0 * (sum + half),
            100.0 * in_ranks
        );
    }
    text
}
