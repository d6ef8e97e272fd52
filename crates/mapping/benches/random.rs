//! The mapper over random simulated programs whose best mapping is known.
//!
//! `cargo bench -p mapping --bench random -- [PROGRAMS] [FIRST SEED] [--within]`; with `--calibrate` what replays miss of programs
//! of other seeds, which [`mapping::replay_error`] holds.

use machine::costs::Interval;
use mapping::advice::Advice;
use mapping::proving::{Proof, prove};
use mapping::replay_error::{BETWEEN_HOSTS, BETWEEN_PACKAGES, LEAST, ReplayError};
use whatif::answer::in_parallel;

/// The first seed of the programs for `--calibrate`, by which nothing is judged.
const CALIBRATED: u64 = 10_000;

/// The most programs of a list.
const LISTED: usize = 20;

fn main() -> machine::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let has = |word: &str| words.iter().any(|of| of == word);
    let (within, calibrates) = (has("--within"), has("--calibrate"));
    let numbers: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let programs = numbers.first().copied().unwrap_or(1000);
    let first = numbers.get(1).copied().unwrap_or(if calibrates { CALIBRATED } else { 0 });
    let seeds: Vec<u64> = (first..first + programs).collect();
    let proofs = in_parallel(&seeds, |seed| prove(*seed, !within))?;
    println!("seeds from {first}, ranks may change hosts: {}", !within);
    if calibrates {
        calibrated("between packages", &proofs, BETWEEN_PACKAGES);
        calibrated("between hosts", &proofs, BETWEEN_HOSTS);
    }
    let count = |of: &dyn Fn(&&Proof) -> bool| proofs.iter().filter(of).count();
    let (all, balanced) = (proofs.len(), count(&|proof| proof.balanced));
    println!("the start is within 5 % of the best:   {}", share(count(&|proof| 1.0 <= 1.05 * proof.best), all));
    println!(
        "kept where nothing can be gained:      {}",
        share(count(&|proof| proof.balanced && proof.advice != Advice::Move), balanced)
    );
    advised("as advised", &proofs, |proof| (proof.advice, proof.expected));
    advised("by the draws alone", &proofs, |proof| proof.drawn);
    let told = |proof: &&Proof| proof.found != 1.0;
    let (all_told, inside) = (count(&told), count(&|proof| told(proof) && proof.expected.holds(proof.found)));
    println!("other mappings that were found, in their expected interval: {}", share(inside, all_told));
    list("worse than the start", first, &proofs, |proof| proof.followed());
    list("farthest from the best", first, &proofs, |proof| proof.followed() / proof.best);
    Ok(())
}

fn share(part: usize, of: usize) -> String {
    format!("{part} of {of} ({:.1} %)", 100.0 * part as f64 / of.max(1) as f64)
}

/// Prints how the advice for programs came out under a rule.
fn advised(rule: &str, proofs: &[Proof], of: impl Fn(&Proof) -> (Advice, Interval)) {
    let moved = |proof: &Proof| of(proof).0 == Advice::Move;
    let followed = |proof: &Proof| if moved(proof) { proof.found } else { 1.0 };
    let count = |that: &dyn Fn(&&Proof) -> bool| proofs.iter().filter(that).count();
    // The geometric mean over all programs.
    let gain = |time: &dyn Fn(&Proof) -> f64| -proofs.iter().map(|proof| time(proof).ln()).sum::<f64>();
    let expected = |proof: &Proof| (of(proof).1.low..=of(proof).1.high).contains(&proof.found);
    let (moves, keeps) = (count(&|proof| moved(proof)), count(&|proof| of(proof).0 == Advice::Keep));
    println!("{rule}: {moves} to move, {keeps} to keep, {} cannot tell", proofs.len() - moves - keeps);
    println!(
        "  worse than the start by more than 2 %: {}",
        share(count(&|proof| followed(proof) > 1.02), proofs.len())
    );
    println!(
        "  within 5 % of the best mapping:        {}",
        share(count(&|proof| followed(proof) <= 1.05 * proof.best), proofs.len())
    );
    let tried = |proof: &Proof| if of(proof).0 == Advice::CannotTell { proof.found.min(1.0) } else { followed(proof) };
    println!(
        "  the same where a try decides what advice cannot tell: {}",
        share(count(&|proof| tried(proof) <= 1.05 * proof.best), proofs.len())
    );
    println!(
        "  time in the expected interval:         {}",
        share(count(&|proof| moved(proof) && expected(proof)), moves)
    );
    println!(
        "  gained of what all found would gain:   {:.0} %, of what the best would: {:.0} %",
        100.0 * gain(&followed) / gain(&|proof| proof.found),
        100.0 * gain(&followed) / gain(&|proof| proof.best)
    );
}

/// Prints what replays missed of mappings that promise a gain, and what advice would lose by the error that is assumed.
fn calibrated(what: &str, proofs: &[Proof], held: ReplayError) {
    let promises = proofs.iter().filter(|proof| proof.drawn.0 != Advice::Keep && proof.error == Some(held));
    let promises: Vec<&Proof> = promises.collect();
    let missed = |proof: &&Proof| (proof.found / proof.drawn.1.middle).ln() / proof.scale;
    let mut missed: Vec<f64> = promises.iter().map(missed).collect();
    missed.sort_by(f64::total_cmp);
    if missed.is_empty() {
        return println!("{what}: none");
    }
    // The rank of a quantile among one value more than there are, as of a prediction interval.
    let low = missed[(((missed.len() + 1) as f64 * LEAST) as usize).clamp(1, missed.len()) - 1];
    println!("{what}: {} mappings, low {low:.2}, held is {:.2}", missed.len(), held.low);
    for high in [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0] {
        let moves = |proof: &&&Proof| {
            let expected = ReplayError { high, ..held }.over(proof.drawn.1, proof.scale);
            proof.drawn.0 == Advice::Move && expected.high < 1.0
        };
        let lost = promises.iter().filter(moves).filter(|proof| proof.found > 1.02).count();
        println!("  high {high}: {} to move, {lost} over 2 % worse", promises.iter().filter(moves).count());
    }
}

/// The programs with the greatest figure: what came of the mapping that was found and of the best, each with what replays foresaw.
fn list(what: &str, first: u64, proofs: &[Proof], figure: impl Fn(&Proof) -> f64) {
    println!("{what}:");
    let mut worst: Vec<(u64, &Proof)> = (first..).zip(proofs).filter(|(_, proof)| figure(proof) > 1.02).collect();
    worst.sort_by(|a, b| figure(b.1).total_cmp(&figure(a.1)));
    for (seed, of) in worst.into_iter().take(LISTED) {
        let Interval { low, high, .. } = of.expected;
        let judged = format!("{}{}", if of.judged.1 { "all " } else { "" }, of.judged.0);
        println!(
            "  seed {seed}, {}: {}; found {:.3}, foreseen {:.3} ({low:.3} .. {high:.3}); best {:.3}, foreseen {:.3}; {judged} judged",
            of.name,
            of.advice.name(),
            of.found,
            of.foreseen,
            of.best,
            of.best_foreseen,
        );
    }
}
