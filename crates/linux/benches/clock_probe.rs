//! Cost of a probe of the effective clock, and the spread of probes of one core: `cargo bench -p linux --bench clock_probe`

use std::time::Instant;

use linux::accounting::{clock_under_load, effective_clock};
use linux::affinity;
use machine::{Hertz, Result};

const PROBES: usize = 2_000;

fn main() -> Result<()> {
    for core in affinity::allowed()? {
        let warm = clock_under_load(core, None);
        let _pinned = affinity::pin(core)?;
        let (mut took, mut clocks) = (Vec::with_capacity(PROBES), Vec::with_capacity(PROBES));
        for _ in 0..PROBES {
            let begun = Instant::now();
            let clock = effective_clock();
            took.push(begun.elapsed().as_nanos() as f64 / 1e3);
            clocks.extend(clock.value().map(|clock| clock.0 as f64));
        }
        if clocks.is_empty() {
            println!("{core}: {warm:?}");
            continue;
        }
        took.sort_by(f64::total_cmp);
        clocks.sort_by(f64::total_cmp);
        let at = |sorted: &[f64], share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize];
        let middle = at(&clocks, 0.5);
        let off = clocks.iter().filter(|clock| (*clock / middle - 1.0).abs() > 0.03).count();
        println!(
            "{core}: a probe takes {:.1} us (median; 99 of 100 take {:.1} us or less); effective clock {}, from {:+.2} % to \
             {:+.2} % of it in 98 of 100 probes; {off} of {} probes are more than 3 % off",
            at(&took, 0.5),
            at(&took, 0.99),
            Hertz(middle as u64),
            100.0 * (at(&clocks, 0.01) / middle - 1.0),
            100.0 * (at(&clocks, 0.99) / middle - 1.0),
            clocks.len()
        );
    }
    Ok(())
}
