//! The mapper over random simulated programs whose best mapping is known.
//!
//! `cargo run --release -p mapping --example random -- [PROGRAMS] [--within]`

use mapping::advice::Advice;
use mapping::proving::{Proof, prove};
use whatif::answer::in_parallel;

fn main() -> machine::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let within = words.iter().any(|word| word == "--within");
    let programs = words.iter().find_map(|word| word.parse::<u64>().ok()).unwrap_or(1000);
    let seeds: Vec<u64> = (0..programs).collect();
    let proofs = in_parallel(&seeds, |seed| prove(*seed, !within))?;
    let count = |of: &dyn Fn(&&Proof) -> bool| proofs.iter().filter(of).count();
    let share = |part: usize, of: usize| format!("{part} of {of} ({:.1} %)", 100.0 * part as f64 / of.max(1) as f64);
    let all = proofs.len();
    let balanced = count(&|proof| proof.balanced);
    let moved = count(&|proof| proof.advice == Advice::Move);
    println!("ranks may change hosts: {}", !within);
    println!("worse than the start by more than 2 %: {}", share(count(&|proof| proof.followed() > 1.02), all));
    println!(
        "within 5 % of the best mapping:        {}",
        share(count(&|proof| proof.followed() <= 1.05 * proof.best), all)
    );
    println!("the start is within 5 % of the best:   {}", share(count(&|proof| 1.0 <= 1.05 * proof.best), all));
    println!(
        "kept where nothing can be gained:      {}",
        share(count(&|proof| proof.balanced && proof.advice != Advice::Move), balanced)
    );
    println!(
        "time in the expected interval:         {}",
        share(
            count(&|proof| {
                proof.advice == Advice::Move && (proof.expected.low..=proof.expected.high).contains(&proof.found)
            }),
            moved
        )
    );
    println!(
        "advised: {moved} to move, {} to keep, {} cannot tell",
        count(&|p| p.advice == Advice::Keep),
        count(&|p| p.advice == Advice::CannotTell)
    );
    list("worse than the start", &proofs, |proof| proof.followed());
    list("farthest from the best", &proofs, |proof| proof.followed() / proof.best);
    Ok(())
}

/// The programs with the greatest figure.
fn list(what: &str, proofs: &[Proof], figure: impl Fn(&Proof) -> f64) {
    println!("{what}:");
    let mut worst: Vec<(usize, &Proof)> = proofs.iter().enumerate().filter(|(_, proof)| figure(proof) > 1.02).collect();
    worst.sort_by(|a, b| figure(b.1).total_cmp(&figure(a.1)));
    for (seed, Proof { name, advice, expected, found, best, .. }) in worst.into_iter().take(10) {
        println!(
            "  seed {seed}, {name}: {}, found {found:.3}, expected {:.3} ({:.3} .. {:.3}), best {best:.3}",
            advice.word(),
            expected.middle,
            expected.low,
            expected.high
        );
    }
}
