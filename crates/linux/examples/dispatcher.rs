//! What a stage of a hook takes, for 1 to 8 programs that do nothing: `cargo run --release -p linux --example dispatcher`
//!
//! Beside it libxdp's own dispatcher, where its object is installed (Debian: libxdp1), with as many of its stubs, which
//! programs of type EXT would replace by a jump. `LIBXDP_OBJECT` names another object. Needs root.

use linux::affinity;
use linux::xdp::{Loader, Object, Program, Stage, TIMED_OF, built, link};
use machine::Result;

const STAGES: usize = 8;
const ROUNDS: usize = 15;
const RUNS: u32 = 300_000;
const THEIRS: &str = "/usr/lib/x86_64-linux-gnu/bpf/xdp-dispatcher.o";
const PASS: u32 = 1 << 2;

fn main() -> Result<()> {
    let _pinned = affinity::allowed()?.last().map(|core| affinity::pin(*core)).transpose()?;
    let idle = Object::load("idle", built("idle program", bpf::IDLE)?)?;
    let ours = |stages: usize, timed_of: u32| -> Result<Program> {
        let stage = |place| Stage { object: &idle, program: "idle", place, chains: PASS };
        Ok(link(&(0..stages).map(stage).collect::<Vec<_>>(), timed_of, None)?.0)
    };
    let file = std::env::var("LIBXDP_OBJECT").unwrap_or_else(|_| THEIRS.into());
    let theirs = std::fs::read(&file);
    let mut libxdp = Vec::new();
    match &theirs {
        Ok(code) => {
            for stages in 1..=STAGES {
                libxdp.push(Loader::new("xdp-dispatcher", code).variable("conf", &configuration(stages)).load()?);
            }
        }
        Err(error) => println!("libxdp's dispatcher is left out: {file}: {error}"),
    }
    let counting = (1..=STAGES).map(|stages| ours(stages, TIMED_OF)).collect::<Result<Vec<_>>>()?;
    let timing = (1..=STAGES).map(|stages| ours(stages, 1)).collect::<Result<Vec<_>>>()?;

    // In turn, so that what else the machine does falls on all of them.
    let frame = [0u8; 64];
    let mut taken = [[f64::INFINITY; 3]; STAGES];
    let mut alone = f64::INFINITY;
    for _ in 0..ROUNDS {
        alone = alone.min(time(idle.program("idle")?, &frame)?);
        for (n, best) in taken.iter_mut().enumerate() {
            best[0] = best[0].min(time(&counting[n], &frame)?);
            best[1] = best[1].min(time(&timing[n], &frame)?);
            if let Some(object) = libxdp.get(n) {
                best[2] = best[2].min(time(object.program("xdp_dispatcher")?, &frame)?);
            }
        }
    }
    println!("ns a frame, the least of {ROUNDS} rounds of {RUNS} runs; the program alone takes {alone:.0} ns");
    println!(
        "{:>8} {:>22} {:>18} {:>22}",
        "programs", "one of 64 runs timed", "every run timed", "libxdp's, with stubs"
    );
    for (n, best) in taken.iter().enumerate() {
        let shown = |ns: f64| if ns.is_finite() { format!("{ns:.0}") } else { "-".into() };
        println!("{:>8} {:>22} {:>18} {:>22}", n + 1, shown(best[0]), shown(best[1]), shown(best[2]));
    }
    let each = |which: usize| (taken[STAGES - 1][which] - taken[0][which]) / (STAGES - 1) as f64;
    println!(
        "a further stage: {:.1} ns; timed each time {:.1} ns; a further stub of libxdp's: {:.1} ns",
        each(0),
        each(1),
        each(2)
    );
    Ok(())
}

fn time(program: &Program, frame: &[u8]) -> Result<f64> {
    Ok(program.time_frames(frame, RUNS)?.0 as f64)
}

/// `struct xdp_dispatcher_config` of version 2: every verdict of a stub leads on.
fn configuration(stages: usize) -> Vec<u8> {
    let actions = [u32::MAX; 10].into_iter().chain([50; 10]).chain([0; 10]);
    [236, 2, stages as u8, 0].into_iter().chain(actions.flat_map(u32::to_ne_bytes)).collect()
}
