//! The solver against HiGHS given 5 s (`--seconds` for more, where the machine is busy), on seeded families of layouts.
//!
//! `cargo bench -p placement --bench against_highs [-- FAMILY... --seeds N --prove STEPS --seconds N --no-highs --large]`.
//! Our figures come from `solve` with the default effort, its reasons included, one thread. HiGHS gets the same layout as
//! a mixed integer program in MPS through Python's `highspy`: `python3 -m venv V && V/bin/pip install highspy`, then
//! `PLIMSOLL_PYTHON=V/bin/python3`. Without it its columns say absent.

#[path = "against_highs/families.rs"]
mod families;
#[path = "against_highs/program.rs"]
mod program;

use std::time::Instant;

use families::{FAMILIES, Size, family};
use placement::{Effort, Layout, Plan, Proof, prove, solve};

fn main() {
    let mut seeds = 2;
    let mut prove = 0u64;
    let mut limit = 5.0;
    let mut wanted: Vec<String> = Vec::new();
    let mut with_highs = true;
    let mut repeats = 3;
    let mut sizes = vec![Size { units: 50, sites: 8 }, Size { units: 200, sites: 16 }];
    let mut steps = Effort::default().steps;
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    while let Some(arg) = args.next() {
        let number = |value: Option<String>| value.and_then(|v| v.parse::<u64>().ok()).expect("a number");
        match arg.as_str() {
            "--seeds" => seeds = number(args.next()),
            "--seconds" => limit = number(args.next()) as f64,
            "--prove" => prove = number(args.next()),
            "--steps" => steps = number(args.next()),
            "--no-highs" => with_highs = false,
            "--once" => repeats = 1,
            "--small" => sizes.truncate(1),
            "--large" => sizes.drain(..1).for_each(drop),
            name if FAMILIES.contains(&name) => wanted.push(name.into()),
            other => panic!("'{other}': give {}", FAMILIES.join(", ")),
        }
    }
    if wanted.is_empty() {
        wanted = FAMILIES.iter().map(|f| f.to_string()).collect();
    }
    let python = if with_highs { program::python() } else { Err("not asked".into()) };
    if let Err(why) = &python {
        println!("HiGHS: absent ({why})");
    }
    println!(
        "{:<7} {:<12} {:>4} {:>12} {:>7} {:>7} {:>12} {:>12} {:>7} {:>8} {:>12} {:>8}",
        "size",
        "family",
        "seed",
        "ours",
        "ms",
        "cpu ms",
        "HiGHS",
        "its bound",
        "cpu s",
        "ours/its",
        "our bound",
        "proof s"
    );
    for size in &sizes {
        for name in &wanted {
            for seed in 1..=seeds {
                let layout = family(name, *size, seed);
                let effort = Effort { steps, ..Effort::default() };
                let mut times = Vec::new();
                let mut plan = None;
                for _ in 0..repeats {
                    let (start, before) = (Instant::now(), processor_ms());
                    plan = Some(solve(&layout, &effort));
                    times.push((start.elapsed().as_secs_f64() * 1e3, processor_ms() - before));
                }
                times.sort_by(|a, b| a.1.total_cmp(&b.1));
                let (wall, processor) = times[times.len() / 2];
                let label = format!("{}x{}", size.units, size.sites);
                let plan = match plan.expect("three runs") {
                    Ok(plan) => plan,
                    Err(unsolved) => {
                        println!("{label:<7} {name:<12} {seed:>4} {unsolved}");
                        continue;
                    }
                };
                let ours = plan.cost.total;
                let (cost, bound, spent, ratio) = match &python {
                    Err(_) => ("absent".into(), "absent".into(), "".into(), "".into()),
                    Ok(python) => match program::highs(python, &layout, limit) {
                        Ok(answer) => {
                            let cost = answer.cost.map_or("none".into(), |c| format!("{c:.6}"));
                            let ratio = answer.cost.map_or("".into(), |c| format!("{:.5}", ours / c));
                            (cost, format!("{:.6}", answer.bound), format!("{:.1}", answer.seconds), ratio)
                        }
                        Err(why) => (why, "".into(), "".into(), "".into()),
                    },
                };
                let (lower, seconds) = proof(&layout, &plan, prove);
                println!(
                    "{label:<7} {name:<12} {seed:>4} {ours:>12.6} {wall:>7.1} {processor:>7.1} {cost:>12} {bound:>12} {spent:>7} {ratio:>8} {lower:>12} {seconds:>8}"
                );
            }
        }
    }
}

/// Our own bound with `steps` of effort, and the seconds it took; nothing with 0 steps.
fn proof(layout: &Layout, plan: &Plan, steps: u64) -> (String, String) {
    if steps == 0 {
        return (String::new(), String::new());
    }
    let start = Instant::now();
    let proof = prove(layout, plan, &Effort { steps, ..Effort::default() });
    let seconds = format!("{:.2}", start.elapsed().as_secs_f64());
    let lower = match proof {
        Proof::Optimal => "optimal".into(),
        Proof::Gap { lower_bound, .. } => format!("{lower_bound:.6}"),
        Proof::Cheaper { cost, lower_bound, .. } => format!("{lower_bound:.6} better {:.6}", cost.total),
    };
    (lower, seconds)
}

/// What this thread ran on a processor so far; on a busy machine the clock says more.
fn processor_ms() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).map_or(f64::NAN, |ns| ns * 1e-6)
}
