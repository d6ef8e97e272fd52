//! How often the intervals of simulated studies cover the truth, and how often their verdicts are wrong:
//! `cargo bench -p experiment --bench coverage -- [STUDIES]`

use experiment::simulate::{simulate, table};

/// The same table every time.
const SEED: u64 = 1;

fn main() {
    let studies = std::env::args()
        .skip(1)
        .find(|word| word != "--bench")
        .and_then(|word| word.parse::<usize>().ok())
        .unwrap_or(2000);
    print!("{}", table(&simulate(studies, SEED)));
}
