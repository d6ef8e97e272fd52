//! The findings as text.

use std::fmt::Write;

use machine::text::{Table, folded};
use machine::{BytesPerSecond, CoreId, count, figure};
use rounds::estimate::Estimate;
use rounds::statistics::median;

use super::{Block, Exchange, Findings, Mapping, Measured, Pattern, SIZES, Task, Times};

pub fn page(findings: &Findings, width: usize) -> String {
    let [one, other] = findings.cores;
    let what = format!(
        "Two ranks on two hosts of a lab, rank 0 on {one} and rank 1 on {other}, {} over the kernel's TCP; a host's receive work is \
         steered to one core. Measured; paper 002, figures 2 to 5, 7 and 11.",
        findings.library
    );
    let mut page = folded("", &what, 0, width) + "\n";
    let mut table = Table::new(["mapping", "receive work of a and b", &format!("softirqs on {one}")]);
    for Measured { mapping, steered: [a, b], series } in &findings.mappings {
        let on = median(&series.values(|block| block.received_on(one)));
        let share = on.map_or_else(|| "not counted".into(), |share| format!("{:.0} % of the time", 100.0 * share));
        table.row([mapping.name(), &format!("{a}, {b}"), &share]);
    }
    page += &table.text(width);
    for (pattern, title) in [(Pattern::Stream, "stream"), (Pattern::PingPong, "ping-pong, half a round trip")] {
        let header = [title, "both off", "both on over it", "one on, one off over it"];
        let mut table = Table::new(header).right([1, 2, 3]);
        for works in [false, true] {
            for size in SIZES {
                let task = Task { pattern, works, size };
                let off = findings.median(Mapping::Off, |block| block.of(&task));
                let off = off.map_or_else(
                    || "-".into(),
                    |off| match pattern {
                        Pattern::Stream => BytesPerSecond(1e6 * off.middle).to_string(),
                        Pattern::PingPong => figure::nanoseconds(off.middle),
                    },
                );
                let over = |mapping| times(findings.over(mapping, Mapping::Off, |block: &Block| block.of(&task)));
                let name = format!("{size}, the receiver {}", if works { "works" } else { "reads" });
                let (on, mismatched) = (over(Mapping::On), over(Mapping::Mismatched));
                table.row([name, off, on, mismatched]);
            }
        }
        page += &format!("\n{}", table.text(width));
    }
    findings.imbalances.iter().for_each(|imbalance| page += &exchange(findings, *imbalance, width));
    page + &notes(findings)
}

fn exchange(findings: &Findings, imbalance: f64, width: usize) -> String {
    let mut page = format!(
        "\nexchange of {}, rank 0 computes {:.0} % more: the times of a step\n",
        findings.exchanged,
        100.0 * imbalance
    );
    let mut table = Table::new(["mapping", "rank", "computes", "MPI_Send", "MPI_Wait", "step"]).right(1..6);
    for mapping in Mapping::ALL {
        for rank in [0, 1] {
            let part = |of: fn(&Times) -> f64| {
                let value = |block: &Block| Some(of(&block.exchange(imbalance)?.ranks[rank]));
                median(&findings.of(mapping).values(value)).map_or_else(|| "-".into(), figure::nanoseconds)
            };
            let name = if rank == 0 { mapping.name() } else { "" };
            let parts = [part(|of| of.computing), part(|of| of.sending), part(|of| of.waiting), part(Times::total)];
            table.row([name.to_owned(), rank.to_string()].into_iter().chain(parts));
        }
    }
    page += &table.text(width);
    let mean = |of: fn(&Times) -> f64| {
        move |block: &Block| block.exchange(imbalance).map(|exchange: &Exchange| exchange.mean(of))
    };
    for matched in [Mapping::On, Mapping::Off] {
        let over = |of| times(findings.over(Mapping::Mismatched, matched, mean(of)));
        let _ = writeln!(
            page,
            "  one on, one off over {}: communication {}, step {}",
            matched.name(),
            over(Times::communication),
            over(Times::total)
        );
    }
    page
}

fn times(value: Option<Estimate>) -> String {
    value.map_or_else(|| "not measured".into(), |value| value.ratio(2, "x"))
}

fn notes(findings: &Findings) -> String {
    let mut page = format!(
        "\nnotes\n  at most {}, mappings in turns; ratios within a round, with 95 % intervals\n",
        count::of(findings.rounds.into(), "round")
    );
    let probes = findings.mappings.iter().flat_map(|of| &of.series.blocks).flat_map(|taken| taken.probes).flatten();
    let probes: Vec<f64> = probes.map(|probe| probe.nanoseconds()).collect();
    if let Some(middle) = median(&probes) {
        let (low, high) = probes.iter().fold((f64::INFINITY, 0.0_f64), |(a, b), probe| (a.min(*probe), b.max(*probe)));
        let _ = writeln!(page, "  {middle:.0} ns one way between the cores beside the starts ({low:.0} .. {high:.0})");
    }
    let CoreId(other) = findings.cores[1];
    let _ = writeln!(
        page,
        "  not shown: both hosts are on the same cores, so that the other host's sender runs on core {other} and no core is without a \
         rank; a core of the protocol's socket without the protocol (the paper's core 2), and another socket, need four cores",
    );
    let failures = findings.mappings.iter().flat_map(|of| &of.series.failures);
    for line in findings.notes.iter().chain(failures) {
        let _ = writeln!(page, "  {line}");
    }
    page
}

#[cfg(test)]
mod tests {
    use machine::accounting::{CoreCost, Softirq};
    use machine::{Bytes, Nanoseconds, Probe, Reading};
    use rounds::blocks::{Series, Taken};

    use super::*;

    /// Blocks in which rank 0's core bears `share` of the receive work and steps are slower by the factor `slow`.
    fn series(share: f64, slow: f64) -> Series<Block> {
        let cost = |core, share: f64| CoreCost {
            core: CoreId(core),
            net_rx: Reading::Measured(Softirq { count: 9, time: Nanoseconds((1e6 * share) as u64) }),
            net_tx: Reading::absent("not counted"),
            interrupts: Reading::absent("not counted"),
        };
        let block = |round: u32| {
            let noise = 1.0 + f64::from(round) / 100.0;
            let task = |pattern, works, size| (Task { pattern, works, size }, 1e4 * noise / slow);
            let patterns = [Pattern::Stream, Pattern::PingPong].into_iter();
            let tasks = patterns.flat_map(|of| [false, true].map(|works| SIZES.map(|size| task(of, works, size))));
            let rank = |computing: f64| Times { computing, sending: 1e5 * slow * noise, waiting: 3e5 * slow * noise };
            Block {
                values: tasks.flatten().collect(),
                exchanges: vec![Exchange { imbalance: 0.3, ranks: [rank(1.3e6), rank(1e6)] }],
                cores: vec![cost(0, share), cost(1, 1.0 - share)],
            }
        };
        let probes = [Some(Probe { half_round_trip_ps: 60_000 }); 2];
        let taken = |round| Taken { round, probes, clocks: Default::default(), block: block(round) };
        Series { blocks: (0..5).map(taken).collect(), failures: Vec::new() }
    }

    fn findings() -> Findings {
        let of = |mapping, steered: [u32; 2], share, slow| Measured {
            mapping,
            steered: steered.map(CoreId),
            series: series(share, slow),
        };
        let mut mappings = vec![
            of(Mapping::On, [0, 1], 0.5, 1.1),
            of(Mapping::Off, [1, 0], 0.5, 1.0),
            of(Mapping::Mismatched, [0, 0], 0.98, 2.0),
        ];
        mappings[2].series.failures.push("ranks: it said nothing. Next: see".into());
        Findings {
            library: "Open MPI 4.1.4".into(),
            rounds: 5,
            cores: [CoreId(0), CoreId(1)],
            imbalances: vec![0.3],
            exchanged: Bytes(256 << 10),
            mappings,
            notes: vec!["a note".into()],
        }
    }

    #[test]
    fn a_page_reads_as_it_did() {
        insta::assert_snapshot!(page(&findings(), 130));
    }

    #[test]
    fn a_page_breaks_between_words_at_any_width() {
        for width in [40, 80, 200] {
            let page = machine::text::fitted(&page(&findings(), width), width);
            assert!(page.lines().all(|line| line.chars().count() <= width), "{width}: {page}");
        }
    }

    #[test]
    fn a_mapping_that_gave_no_block_is_not_measured() {
        let mut findings = findings();
        findings.mappings[2].series.blocks.clear();
        let page = page(&findings, 130);
        assert!(page.contains("not measured") && page.contains("not counted"), "{page}");
    }
}
