//! The findings as text.

use machine::count;
use machine::text::{Table, folded};
use rounds::bound::{Bound, Verdict};
use rounds::estimate::Estimate;

use super::{Arm, Findings, GAINED, KEPT, Measured};

pub fn page(findings: &Findings, width: usize) -> String {
    let [one, other] = findings.cores;
    let what = format!(
        "Steps a second of two profiled ranks, {}, rank 0 on {one} beside a hog, rank 1 with slack on {other}; in turns, {}. \
         What is compared begins {} after the daemon.",
        findings.library,
        count::of(findings.rounds.into(), "round"),
        findings.settling
    );
    let mut page = folded("", &what, 0, width) + "\n";
    let [gained, kept] = [GAINED, KEPT].map(|least| format!("at least {:.0} %", 100.0 * least));
    let header = ["work of the ranks", "as started", "exchanged", "with the daemon"].map(str::to_owned);
    let header = header.into_iter().chain([format!("gained, {gained}"), format!("kept, {kept}")]);
    let mut table = Table::new(header).right(1..4);
    for measured in &findings.cases {
        let rate = |arm| measured.rate(arm).map_or("-".into(), |rate| format!("{:.0}", rate.middle));
        let rates = Arm::ALL.map(rate);
        let gained = match measured.gained() {
            Some(gained) => told(gained, GAINED),
            None => match measured.best_over_start() {
                Some(over) => format!("nothing is to be gained: best {} of the start", over.ratio(2, "x")),
                None => Verdict::NotMeasured.to_string(),
            },
        };
        let kept = measured.kept().map_or(Verdict::NotMeasured.to_string(), |kept| told(kept, KEPT));
        let [started, exchanged, daemon] = rates;
        table.row([measured.case.to_string(), started, exchanged, daemon, gained, kept]);
    }
    page += &table.text(width);
    page += "\nnotes\n  gained: of what the better fixed mapping gains; kept: of the steps as started, from the daemon's start on\n";
    for measured in &findings.cases {
        page += &format!("  {}: {}\n", measured.case, moves(measured));
        measured.arms.iter().flat_map(|arm| &arm.failures).for_each(|failure| page += &format!("  {failure}\n"));
    }
    page
}

/// A share with its interval, and whether it is at least `least`.
fn told(share: Estimate, least: f64) -> String {
    let verdict = Bound::AtLeast(least).judge(Some(share));
    let percent = |share: f64| format!("{:.0}", 100.0 * share);
    format!("{} % ({}): {verdict}", percent(share.middle), share.range(percent))
}

fn moves(measured: &Measured) -> String {
    let (seconds, moved, undone, all) = measured.moves();
    let first = seconds.map_or(String::new(), |seconds| format!(", first after {seconds:.1} s in the median"));
    format!("moved in {moved} of {all} blocks{first}; taken back in {undone}")
}

#[cfg(test)]
mod tests {
    use machine::{CoreId, Nanoseconds};
    use rounds::blocks::{Series, Taken};

    use super::super::{Block, CASES};
    use super::*;
    use crate::slack::job::Watched;

    /// Blocks at these steps a second.
    fn series(rate: f64, daemon: Option<Watched>) -> Series<Block> {
        let taken = |round: u32| {
            let rate = rate * (1.0 + f64::from(round) / 1000.0);
            Taken {
                round,
                probes: [None; 2],
                clocks: Default::default(),
                block: Block { rate, daemon: daemon.clone() },
            }
        };
        Series { blocks: (0..10).map(taken).collect(), failures: vec![] }
    }

    fn measured(rates: [f64; 3], whole: f64, moved: Option<f64>) -> Measured {
        let daemon = Some(Watched { whole, moved, undone: false });
        let [started, exchanged, watched] = rates;
        let arms = vec![series(started, None), series(exchanged, None), series(watched, daemon)];
        Measured { case: CASES[0], arms }
    }

    #[test]
    fn gains_losses_and_nothing_to_gain_are_told_apart() {
        let of = |cases| Findings {
            library: "Open MPI".into(),
            rounds: 10,
            cores: [CoreId(0), CoreId(1)],
            settling: Nanoseconds::of_seconds(10),
            cases: vec![cases],
        };
        let page_of = |rates, whole, moved| page(&of(measured(rates, whole, moved)), 400);
        let well = page_of([50.0, 90.0, 85.0], 80.0, Some(5.0));
        assert!(well.contains("88 % (") && well.matches(": met").count() == 2, "{well}");
        assert!(well.contains(": moved in 10 of 10 blocks, first after 5.0 s"), "{well}");
        let little = page_of([50.0, 90.0, 60.0], 45.0, Some(5.0));
        assert!(little.matches(": missed").count() == 2, "{little}");
        let none = page_of([50.0, 40.0, 50.0], 50.0, None);
        assert!(none.contains("nothing is to be gained") && none.contains("moved in 0 of 10 blocks;"), "{none}");
    }
}
