//! Cost of reading power: the share of a core that sampling takes at 10 Hz and 1 kHz, over the files of a big node, and
//! computing the energy of intervals over a million samples. `cargo bench -p linux --bench power`

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use linux::power::{Meter, Settings};
use machine::power::{Band, Covers, Measure, Sensor, Track};
use machine::{Fault, Nanoseconds, Result};

fn write(root: &Path, path: &str, text: &str) -> Result<()> {
    let path = root.join(path);
    let made = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, format!("{text}\n")));
    made.map_err(|e| Fault::because(path.display().to_string(), e, "name a folder that you may write to by TMPDIR"))
}

/// Two packages with cores and memory, eight power supplies with two channels each, eight GPUs, Cray's counters.
fn node(root: &Path) -> Result<()> {
    for package in 0..2 {
        for (zone, name) in [("", format!("package-{package}")), (":0", "core".into()), (":1", "dram".into())] {
            let folder = format!("sys/class/powercap/intel-rapl:{package}{zone}");
            write(root, &format!("{folder}/name"), &name)?;
            write(root, &format!("{folder}/max_energy_range_uj"), "262143328850")?;
            write(root, &format!("{folder}/energy_uj"), "100000000000")?;
        }
    }
    for chip in 0..16 {
        let folder = format!("sys/class/hwmon/hwmon{chip}");
        write(root, &format!("{folder}/name"), if chip < 8 { "pmbus" } else { "amdgpu" })?;
        for channel in 1..=2 {
            write(root, &format!("{folder}/power{channel}_input"), "250000000")?;
        }
    }
    for file in ["energy", "cpu_energy", "memory_energy", "accel0_energy", "accel1_energy"] {
        write(root, &format!("sys/cray/pm_counters/{file}"), "5000 J 1795539909123456 us")?;
    }
    for file in ["generation", "startup", "freshness"] {
        write(root, &format!("sys/cray/pm_counters/{file}"), "1")?;
    }
    write(root, "proc/stat", "cpu 1 1 1 1 1 1 1 1")
}

fn sampling(root: &Path) -> Result<()> {
    let sources = ["rapl".parse()?, "hwmon".parse()?, "cray".parse()?];
    for (rate, period) in [("10 Hz", 100_000_000), ("1 kHz", 1_000_000)] {
        let settings = Settings { root: root.to_owned(), period: Nanoseconds(period), keeps_looks: false };
        let mut meter = Meter::with(&sources, &settings)?;
        meter.begin();
        let (begun, cost) = (Instant::now(), meter.cost());
        std::thread::sleep(Duration::from_secs(5));
        let share = (meter.cost() - cost).0 as f64 / begun.elapsed().as_nanos() as f64;
        println!("{} sensors at {rate}: {:.3} % of a core", meter.sensors().len(), 100.0 * share);
    }
    Ok(())
}

fn integration() {
    const SAMPLES: u64 = 1_000_000;
    let kinds = [
        ("gauge", Measure::Gauge),
        ("counter", Measure::Counter { range: Some(262_143_328_850), step: 62, lag: Nanoseconds(1_000_000) }),
    ];
    for (kind, measure) in kinds {
        let sensor = Sensor { name: kind.into(), covers: Covers::Package, band: Band::In, measure, within: None };
        let begun = Instant::now();
        let mut track = Track::new(&sensor, Nanoseconds(1_000_000_000));
        for nth in 0..SAMPLES {
            let micro = match measure {
                Measure::Gauge => 200_000_000 + nth * 7919 % 50_000_000,
                Measure::Counter { .. } => nth * 20_000_000 % 262_143_328_850,
            };
            track.push(Nanoseconds(nth * 100_000_000), micro);
        }
        let taken = begun.elapsed();
        let begun = Instant::now();
        const INTERVALS: u64 = 100_000;
        let mut joules = 0.0;
        for nth in 0..INTERVALS {
            let from = nth * 999_983 % SAMPLES * 100_000_000;
            joules += track.between(Nanoseconds(from), Nanoseconds(from + 33_333_333_333)).joules.0;
        }
        let each = begun.elapsed() / INTERVALS as u32;
        println!(
            "{kind}: {SAMPLES} samples taken in {taken:.2?}, an interval of them in {each:.2?} ({joules:.0} J in all)"
        );
    }
}

fn main() -> std::process::ExitCode {
    let root = std::env::temp_dir().join(format!("plimsoll-power-{}", std::process::id()));
    let done = node(&root).and_then(|()| sampling(&root));
    let _ = fs::remove_dir_all(&root);
    integration();
    match done {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("{fault}");
            std::process::ExitCode::FAILURE
        }
    }
}
