//! Cost of a stage of a hook, for 1 to 8 programs that do nothing: `cargo bench -p linux --bench dispatcher`
//!
//! For comparison libxdp's own dispatcher, where its object is installed (Debian: libxdp1), with as many of its stubs,
//! which programs of type EXT would replace by a jump. `LIBXDP_OBJECT` names another object. Needs root.

use linux::affinity;
use linux::xdp::{Loader, Object, Point, Program, Stage, TIMED_OF, built, link};
use machine::site::Direction;
use machine::{Result, XdpMode};

const STAGES: usize = 8;
const ROUNDS: usize = 15;
const RUNS: u32 = 300_000;
const THEIRS: &str = "/usr/lib/x86_64-linux-gnu/bpf/xdp-dispatcher.o";

fn main() -> Result<()> {
    let _pinned = affinity::allowed()?.last().map(|core| affinity::pin(*core)).transpose()?;
    let idle = Object::load("idle", built("idle program", bpf::IDLE)?)?;
    let at = |point: Point, timed_of: u32| -> Result<Vec<Program>> {
        let program = if matches!(point, Point::Tc(_)) { "idle_packet" } else { "idle" };
        let stage = |place| Stage { object: &idle, program, place, chains: point.usual_chains() };
        let all: Vec<Stage> = (0..STAGES).map(stage).collect();
        (1..=STAGES).map(|stages| Ok(link(point, &all[..stages], timed_of, None)?.0)).collect()
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
    let native = Point::Xdp(XdpMode::Native);
    let ours = [at(native, TIMED_OF)?, at(native, 1)?, at(Point::Tc(Direction::Ingress), TIMED_OF)?];

    // They alternate, so that disturbances affect all equally.
    let frame = [0u8; 64];
    let mut taken = [[f64::INFINITY; 4]; STAGES];
    let mut alone = f64::INFINITY;
    for _ in 0..ROUNDS {
        alone = alone.min(time(idle.program("idle")?, &frame)?);
        for (n, best) in taken.iter_mut().enumerate() {
            for (best, programs) in best.iter_mut().zip(&ours) {
                *best = best.min(time(&programs[n], &frame)?);
            }
            if let Some(object) = libxdp.get(n) {
                best[3] = best[3].min(time(object.program("xdp_dispatcher")?, &frame)?);
            }
        }
    }
    println!("ns a frame, the least of {ROUNDS} rounds of {RUNS} runs; the program alone takes {alone:.0} ns");
    println!(
        "{:>8} {:>22} {:>18} {:>22} {:>22}",
        "programs", "one of 64 runs timed", "every run timed", "one of 64, tc hook", "libxdp's, with stubs"
    );
    for (n, best) in taken.iter().enumerate() {
        let shown = |ns: f64| if ns.is_finite() { format!("{ns:.0}") } else { "-".into() };
        let [often, always, tc, libxdp] = best.map(shown);
        println!("{:>8} {often:>22} {always:>18} {tc:>22} {libxdp:>22}", n + 1);
    }
    let each = |which: usize| (taken[STAGES - 1][which] - taken[0][which]) / (STAGES - 1) as f64;
    println!(
        "a further stage: {:.1} ns; timed each time {:.1} ns; at a tc hook {:.1} ns; a further stub of libxdp's: {:.1} ns",
        each(0),
        each(1),
        each(2),
        each(3)
    );
    Ok(())
}

fn time(program: &Program, frame: &[u8]) -> Result<f64> {
    Ok(program.time_frames(frame, RUNS)?.0 as f64)
}

/// `struct xdp_dispatcher_config` of version 2, in which every verdict of a stub runs the next.
fn configuration(stages: usize) -> Vec<u8> {
    let actions = [u32::MAX; 10].into_iter().chain([50; 10]).chain([0; 10]);
    [236, 2, stages as u8, 0].into_iter().chain(actions.flat_map(u32::to_ne_bytes)).collect()
}
