//! Sensors that wrap, reset, vanish and stall, replayed in files of a folder.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use machine::power::{Covers, EnergyReading};
use machine::{Nanoseconds, Reading};

use super::*;

/// A machine with two packages, their memory and cores, a closed platform, a power supply and Cray's counters.
struct Ground(tempfile::TempDir);

const RANGE: u64 = 262_143_328_850;

impl Ground {
    fn new() -> Ground {
        let ground = Ground(tempfile::tempdir().unwrap());
        for (zone, name, energy) in [
            ("intel-rapl:0", "package-0", RANGE - 1_000_000),
            ("intel-rapl:0:0", "core", 7),
            ("intel-rapl:0:1", "dram", 5),
            ("intel-rapl:1", "package-1", 100_000_000_000),
            ("intel-rapl:1:0", "dram", 6),
            ("intel-rapl-mmio:0", "package-0", 9),
        ] {
            ground.write(&format!("sys/class/powercap/{zone}/name"), name);
            ground.write(&format!("sys/class/powercap/{zone}/max_energy_range_uj"), &RANGE.to_string());
            ground.energy(zone, energy);
        }
        // A chip with temperatures only, and a power supply that gives the mean of a second.
        ground.write("sys/class/hwmon/hwmon0/name", "acpitz");
        ground.write("sys/class/hwmon/hwmon0/temp1_input", "45000");
        ground.write("sys/class/hwmon/hwmon1/name", "power_meter");
        ground.write("sys/class/hwmon/hwmon1/power1_average", "250000000");
        ground.write("sys/class/hwmon/hwmon1/power1_average_interval", "1000");
        ground.cray(1, 5_000, 1_000);
        for (file, text) in
            [("generation", "3"), ("startup", "17"), ("raw_scan_hz", "10"), ("power", "310 W"), ("cpu_power", "200 W")]
        {
            ground.write(&format!("sys/cray/pm_counters/{file}"), text);
        }
        ground
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    fn energy(&self, zone: &str, energy: u64) {
        self.write(&format!("sys/class/powercap/{zone}/energy_uj"), &energy.to_string());
    }

    fn cray(&self, freshness: u64, energy: u64, memory: u64) {
        self.write("sys/cray/pm_counters/energy", &format!("{energy} J 1795539909123456 us"));
        self.write("sys/cray/pm_counters/memory_energy", &format!("{memory} J 1795539909123456 us"));
        self.write("sys/cray/pm_counters/freshness", &freshness.to_string());
    }

    fn meter(&self, source: &str) -> Meter {
        // The period is long, so that no look comes between two writes of the test.
        let settings = Settings { root: self.root().into(), period: Nanoseconds(3_600_000_000_000), keeps_looks: true };
        Meter::with(&[source.parse().unwrap()], &settings).unwrap()
    }
}

fn joules(drawn: &EnergyReading) -> f64 {
    drawn.joules.value().unwrap_or_else(|| panic!("{drawn:?}")).0
}

/// Whether it drew so many joules within its own error, and the error is small.
fn drew(drawn: &EnergyReading, expected: f64) -> bool {
    let error = drawn.error.value().unwrap_or_else(|| panic!("{drawn:?}")).0;
    (joules(drawn) - expected).abs() <= error && error < 1.0 + expected / 2.0
}

fn of<'a>(drawn: &'a [EnergyReading], name: &str) -> &'a EnergyReading {
    drawn.iter().find(|drawn| drawn.sensor.name == name).unwrap_or_else(|| panic!("{name} is none of {drawn:?}"))
}

/// Waits longer than a millisecond for each joule that a package may draw.
fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

#[test]
fn packages_go_round_and_begin_again() {
    let ground = Ground::new();
    let mut meter = ground.meter("rapl");
    let names: Vec<String> = meter.sensors().into_iter().map(|sensor| sensor.name).collect();
    assert_eq!(
        names,
        ["rapl:package-0", "rapl:package-0/core", "rapl:package-0/dram", "rapl:package-1", "rapl:package-1/dram"]
    );
    meter.begin();
    pause();
    ground.energy("intel-rapl:0", 2_000_000);
    ground.energy("intel-rapl:0:0", 2_000_007);
    ground.energy("intel-rapl:0:1", 500_005);
    ground.energy("intel-rapl:1", 100_004_000_000);
    ground.energy("intel-rapl:1:0", 500_006);
    let drawn = meter.end();
    assert!(drew(of(&drawn, "rapl:package-0"), 3.0), "it went round: {drawn:?}");
    assert!(drew(of(&drawn, "rapl:package-1"), 4.0), "{drawn:?}");
    let Reading::Measured(total) = machine::power::total(&drawn, "rapl:") else { panic!("{drawn:?}") };
    assert!((total.0 - 8.0).abs() < 0.5, "cores are of the package, memory is not: {total}");

    // The module is loaded anew: the counters of one package fall from the middle of their range.
    meter.begin();
    pause();
    ground.energy("intel-rapl:1", 1_000);
    let drawn = meter.end();
    let reset = of(&drawn, "rapl:package-1");
    assert_eq!(reset.joules, Reading::absent("the counter began again"));
    assert!(reset.coverage < 0.01, "{reset:?}");
    assert!(matches!(machine::power::total(&drawn, "rapl:"), Reading::Absent { .. }));

    // The file vanishes and comes back: nothing is known from the last look before to the first after.
    meter.begin();
    pause();
    fs::remove_dir_all(ground.root().join("sys/class/powercap/intel-rapl:0")).unwrap();
    ground.energy("intel-rapl:1", 2_000_000);
    let drawn = meter.end();
    let gone = of(&drawn, "rapl:package-0");
    assert!(gone.joules.value().is_none() && gone.gaps[0].cause.contains("energy_uj"), "{gone:?}");
    assert!(of(&drawn, "rapl:package-1").joules.value().is_some(), "the others go on");
    ground.energy("intel-rapl:0", 2_500_000);
    meter.begin();
    pause();
    ground.energy("intel-rapl:0", 3_000_000);
    assert!(drew(of(&meter.end(), "rapl:package-0"), 0.5));
}

#[test]
fn numbers_that_are_none_are_a_sensor_that_stopped() {
    let ground = Ground::new();
    let mut meter = ground.meter("rapl");
    meter.begin();
    pause();
    ground.write("sys/class/powercap/intel-rapl:0/energy_uj", "");
    let drawn = meter.end();
    let cause = &of(&drawn, "rapl:package-0").gaps[0].cause;
    assert!(cause.contains("no number"), "{cause}");
    let looks = meter.drain();
    assert!(looks.iter().any(|(place, look)| *place == 0 && matches!(look, Look::Stopped { .. })), "{looks:?}");
    assert!(meter.drain().is_empty());
}

#[test]
fn a_power_supply_tells_and_a_thermal_zone_does_not() {
    let ground = Ground::new();
    let mut meter = ground.meter("hwmon");
    let sensors = meter.sensors();
    assert_eq!(sensors.len(), 1, "{sensors:?}");
    assert_eq!((sensors[0].name.as_str(), sensors[0].covers), ("hwmon:power_meter:power1", Covers::Node));
    meter.begin();
    pause();
    let from = crate::clock::monotonic();
    meter.settle(from);
    // The mean of a second is dated to its middle, so the last half second is not known yet.
    let past = Nanoseconds(from.0 - 510_000_000);
    let drawn = &meter.between(past, Nanoseconds(past.0 + 5_000_000))[0];
    assert!(drawn.watts.value().is_some_and(|watts| (watts.0 - 250.0).abs() < 1e-6), "{drawn:?}");
}

#[test]
fn a_meter_that_failed_and_a_counter_that_stands_have_no_reading() {
    let ground = Ground::new();
    ground.write("sys/class/hwmon/hwmon1/power1_average", "4294967295000");
    for (source, name, cause) in
        [("hwmon", "hwmon:power_meter:power1", "it told 4.295 MW"), ("rapl", "rapl:package-1/dram", "did not move in")]
    {
        let mut meter = ground.meter(source);
        meter.measure_floor(Duration::from_millis(1));
        meter.begin();
        pause();
        let drawn = meter.end();
        let drawn = of(&drawn, name);
        for reading in [drawn.joules.clone().map(|joules| joules.0), drawn.floor.clone().map(|floor| floor.watts.0)] {
            let is_said = matches!(&reading, Reading::Absent { reason } if reason.contains(cause));
            assert!(is_said, "{reading:?} of {drawn:?}");
        }
    }
}

#[test]
fn a_platform_is_not_added_and_a_counter_without_a_range_never_goes_round() {
    let ground = Ground::new();
    let zone = |zone: &str, file: &str| ground.root().join(format!("sys/class/powercap/{zone}/{file}"));
    fs::remove_file(zone("intel-rapl:1", "max_energy_range_uj")).unwrap();
    ground.write("sys/class/powercap/intel-rapl:1:0/max_energy_range_uj", "0");
    ground.write("sys/class/powercap/intel-rapl:2/name", "psys");
    ground.write("sys/class/powercap/intel-rapl:2/max_energy_range_uj", &RANGE.to_string());
    ground.energy("intel-rapl:2", 1_000);
    // A value above the stated range.
    ground.energy("intel-rapl:0:1", RANGE + 500);
    let mut meter = ground.meter("rapl");
    meter.begin();
    pause();
    for (zone, energy) in [
        ("intel-rapl:0", 2_000_000),
        ("intel-rapl:0:1", RANGE + 500_500),
        ("intel-rapl:1", 3_000_000),
        ("intel-rapl:1:0", 250_006),
        ("intel-rapl:2", 9_001_000),
    ] {
        ground.energy(zone, energy);
    }
    let drawn = meter.end();
    let psys = of(&drawn, "rapl:psys");
    assert!((joules(psys) - 9.0).abs() <= 4.5 && psys.sensor.covers == Covers::Node, "{drawn:?}");
    assert!(drew(of(&drawn, "rapl:package-0/dram"), 0.5) && drew(of(&drawn, "rapl:package-1/dram"), 0.25), "{drawn:?}");
    assert_eq!(of(&drawn, "rapl:package-1").joules, Reading::absent("the counter began again"));
    let parts: Vec<EnergyReading> =
        drawn.iter().filter(|drawn| drawn.sensor.name != "rapl:package-1").cloned().collect();
    let Reading::Measured(total) = machine::power::total(&parts, "rapl:") else { panic!("{drawn:?}") };
    assert!((total.0 - 3.75).abs() < 0.5, "the platform has the others in its own: {total}");

    meter.begin();
    pause();
    ground.energy("intel-rapl:0:1", 100_000);
    let drawn = meter.end();
    let fallen = of(&drawn, "rapl:package-0/dram");
    assert!(
        fallen.joules.value().is_none_or(|joules| (0.0..1.0).contains(&joules.0)),
        "none is below nothing: {fallen:?}"
    );
}

#[test]
fn files_that_are_there_and_tell_nothing_are_named() {
    for (text, said) in [("", "holds ''"), ("-1200000", "holds '-1200000'"), ("n/a", "holds 'n/a'")] {
        let ground = Ground::new();
        ground.write("sys/class/hwmon/hwmon1/power1_average", text);
        ground.write("sys/class/powercap/intel-rapl:0:1/energy_uj", text);
        let list = Listing::of(&machine::Source::open(ground.root()).unwrap());
        let of =
            |kind: &str| list.refused.iter().find(|feature| feature.name == kind).unwrap_or_else(|| panic!("{list:?}"));
        for (kind, file) in [("hwmon", "hwmon1/power1_average"), ("rapl", "intel-rapl:0:1/energy_uj")] {
            let why = of(kind).availability.explanation();
            assert!(why.contains(file) && why.contains(said), "{why}");
            assert!(of(kind).availability.next().is_some_and(|next| next.contains("firmware")), "{list:?}");
        }
        assert!(list.sensors.iter().any(|sensor| sensor.name == "rapl:package-0"), "the others are there: {list:?}");
    }
    // Reading a folder fails for another reason than lack of rights, as a driver's file may.
    let ground = Ground::new();
    for supply in ["hwmon1/power1_average", "hwmon1/power2_input"] {
        let _ = fs::remove_file(ground.root().join("sys/class/hwmon").join(supply));
        fs::create_dir(ground.root().join("sys/class/hwmon").join(supply)).unwrap();
    }
    let settings = Settings { root: ground.root().into(), ..Settings::default() };
    let fault = Meter::with(&["hwmon".parse().unwrap()], &settings).err().expect("there is no number");
    assert!(fault.cause().contains("power1_average: errno21; 1 more like it"), "{fault}");
}

#[test]
fn a_controller_that_renews_nothing_is_told() {
    let ground = Ground::new();
    let mut meter = ground.meter("cray");
    let names: Vec<String> = meter.sensors().into_iter().map(|sensor| sensor.name).collect();
    assert_eq!(names, ["cray:cpu", "cray:node", "cray:memory"]);
    meter.begin();
    pause();
    ground.write("sys/cray/pm_counters/generation", "4");
    ground.cray(2, 5_009, 1_001);
    let drawn = meter.end();
    let node = of(&drawn, "cray:node");
    assert!((joules(node) - 9.0).abs() <= 9.0 * 0.5, "{node:?}");
    assert_eq!(of(&drawn, "cray:memory").sensor.within.as_deref(), Some("cray:node"));
    assert_eq!(meter.notes(), ["the node's power cap was set (generation 3, then 4)"]);

    // The controller is restarted: its counts are lost.
    meter.begin();
    pause();
    ground.write("sys/cray/pm_counters/startup", "18");
    ground.cray(3, 5_010, 1_001);
    let drawn = meter.end();
    let (begins, node) = (meter.between(Nanoseconds(0), crate::clock::monotonic()), of(&drawn, "cray:node"));
    assert!(of(&begins, "cray:node").gaps.iter().any(|gap| gap.cause.contains("started again")), "{node:?}");

    // The freshness stands still: first no news, after a second a sensor that stopped.
    std::thread::sleep(Duration::from_millis(1_100));
    let now = crate::clock::monotonic();
    meter.settle(now);
    let stale = meter.between(Nanoseconds(now.0 - 500_000_000), now);
    let stale = of(&stale, "cray:node");
    assert!(stale.joules.value().is_none() && stale.gaps[0].cause.contains("freshness stands at 3"), "{stale:?}");
}

#[test]
fn what_is_not_there_is_refused_with_a_next_step() {
    let empty = tempfile::tempdir().unwrap();
    fs::create_dir(empty.path().join("sys")).unwrap();
    let settings = Settings { root: empty.path().into(), ..Settings::default() };
    for source in ["rapl", "hwmon", "cray"] {
        let fault = Meter::with(&[source.parse().unwrap()], &settings).err().expect(source);
        assert!(!fault.next().is_empty() && fault.subject().contains(source), "{fault}");
    }
    assert!(Meter::open(&[]).is_err());
}

fn command(words: &str) -> machine::Result<Meter> {
    Meter::open(&[format!("command,every=0.05,timeout=0.5:{words}").parse().unwrap()])
}

#[test]
fn a_command_tells_until_it_prints_rubbish() {
    let folder = tempfile::tempdir().unwrap();
    let told = folder.path().join("told");
    fs::write(&told, "power 200 W").unwrap();
    let mut meter = command(&format!("cat {}", told.display())).unwrap();
    meter.begin();
    std::thread::sleep(Duration::from_millis(200));
    let drawn = &meter.end()[0];
    assert_eq!(drawn.sensor.name, "command:cat");
    let watts = drawn.watts.value().unwrap().0;
    assert!((watts - 200.0).abs() < 1e-6 && drawn.is_whole(), "{drawn:?}");

    meter.begin();
    fs::write(&told, "sensor not ready").unwrap();
    // A look may have been in progress.
    meter.settle(crate::clock::monotonic());
    let from = crate::clock::monotonic();
    meter.settle(from);
    let drawn = &meter.between(from, crate::clock::monotonic())[0];
    assert!(drawn.joules.value().is_none(), "{drawn:?}");
    assert!(drawn.gaps[0].cause.contains("sensor not ready"), "{drawn:?}");
}

#[test]
fn a_command_that_stalls_is_ended_with_what_it_started() {
    let folder = tempfile::tempdir().unwrap();
    let (stall, pid) = (folder.path().join("stall"), folder.path().join("pid"));
    let words = format!(
        "if [ -e {0} ]; then echo $$ >> {1}; sleep 1000; sleep 1; fi; echo 5 W",
        stall.display(),
        pid.display()
    );
    let mut meter = command(&words).unwrap();
    meter.begin();
    fs::write(&stall, "").unwrap();
    meter.settle(crate::clock::monotonic());
    let from = crate::clock::monotonic();
    meter.settle(from);
    let drawn = &meter.between(from, crate::clock::monotonic())[0];
    assert!(drawn.gaps[0].cause.contains("did not end in 0.5 s"), "{drawn:?}");
    let begun = Instant::now();
    drop(meter);
    assert!(begun.elapsed() < Duration::from_secs(100), "it waited for the command");
    let started = fs::read_to_string(pid).unwrap();
    assert!(started.lines().count() > 0);
    for pid in started.lines() {
        assert!(!Path::new("/proc").join(pid).exists(), "the command was left running");
    }
}

#[test]
fn a_command_that_never_tells_is_refused() {
    for (words, cause) in
        [("echo n/a", "'n/a'"), ("exit 3", "exit status: 3"), ("echo broken >&2; false", "broken"), ("yes 1 W", "KiB")]
    {
        let fault = command(words).err().unwrap_or_else(|| panic!("{words}"));
        assert!(fault.cause().contains(cause), "{fault}");
    }
}

#[test]
fn a_command_prints_numbers_as_in_no_language() {
    assert!(command("test \"$LC_ALL\" = C && echo 5 W").is_ok());
    let fault = command("echo 'Power: 1,234 Watts'").err().expect("it is 1.234 W or 1234 W");
    assert!(fault.cause().contains("a comma"), "{fault}");
}

#[test]
fn a_file_that_is_written_is_followed() {
    use std::io::Write;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("watts.csv");
    let now = || rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let seconds = || now().tv_sec as f64 + now().tv_nsec as f64 / 1e9;
    let mut file = fs::File::create(&path).unwrap();
    writeln!(file, "# a remark\nwhen,volts,kW").unwrap();
    let start = seconds();
    for nth in 0..20 {
        writeln!(file, "{:.4},12,0.3", start - 4.0 + 0.2 * f64::from(nth)).unwrap();
    }
    let source = format!("csv,at=when,value=kW,unit=kW,offset=2,covers=node,band=out,name=meter:{}", path.display());
    let mut meter = Meter::open(&[source.parse().unwrap()]).unwrap();
    // Its clock is 2 s ahead of ours: the samples are 6 s to 2.2 s old.
    let then = crate::clock::monotonic();
    let back = |seconds: f64| Nanoseconds(then.0 - (seconds * 1e9) as u64);
    let drawn = &meter.between(back(5.0), back(3.0))[0];
    assert!((joules(drawn) - 600.0).abs() < 1e-6 && drawn.is_whole(), "{drawn:?}");
    assert_eq!((drawn.sensor.name.as_str(), drawn.sensor.covers), ("meter", Covers::Node));
    assert!(drawn.notes[0].contains("+2.000 s ahead, as was stated"), "{drawn:?}");
    meter.begin();
    // A line in two parts, and one without a value.
    write!(file, "{:.4},12,0.", seconds() + 2.0).unwrap();
    meter.settle(crate::clock::monotonic());
    writeln!(file, "5\n{:.4},12,off", seconds() + 2.1).unwrap();
    let drawn = &meter.end()[0];
    assert!(drawn.gaps.iter().any(|gap| gap.cause.contains("off")), "{drawn:?}");

    for (options, cause) in
        [(",value=4", "no line gives"), (",at=noon", "no column 'noon'"), (",time=now", "in the file")]
    {
        let source = format!("csv{options}:{}", path.display());
        let fault = Meter::open(&[source.parse().unwrap()]).err().unwrap_or_else(|| panic!("{options}"));
        assert!(fault.cause().contains(cause), "{fault}");
    }
}
