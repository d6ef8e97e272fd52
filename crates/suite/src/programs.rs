//! Runs test programs side by side, one on each core. Half of the cores begin with programs that start jobs, labs or engines, the
//! others with [`COMPUTING`], at a low priority: jobs spin, and a rank that waits for its core takes many times as long.
//!
//! Tests that take the machine for themselves wait for each other by `skip::turn`, also those of different programs.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crate::collected::{self, LIMIT, Program};
use crate::record::{Record, Timer};

/// Crates whose tests start no jobs, labs or engines.
const COMPUTING: [&str; 13] = [
    "chart",
    "engine",
    "experiment",
    "machine",
    "mapping",
    "offcode",
    "placement",
    "profile",
    "queue-pair",
    "record",
    "suite",
    "wasm",
    "whatif",
];

/// A test that keeps a core for itself for longer does not hold up the others.
const LONGEST_SHIELD: Duration = Duration::from_secs(120);

/// Lines of a failed test in the account.
const TOLD: usize = 8;

/// Options that have libtest report its own times of tests; not stable.
const TIMES: [&str; 3] = ["-Z", "unstable-options", "--report-time"];

/// Results that a libtest program printed.
#[derive(Debug, Default)]
pub struct Results {
    pub passed: u32,
    pub failed: u32,
    /// Tests that were ignored: those of the other tier.
    pub ignored: u32,
    /// Seconds and name of each test.
    pub times: Vec<(f64, String)>,
    /// Programs with a result; one that a signal ended has none.
    pub programs: u32,
}

impl Results {
    pub fn of(said: &str) -> Results {
        let mut results = Results::default();
        for line in said.lines() {
            if let Some(rest) = line.strip_prefix("test result: ") {
                let count = |word: &str| {
                    let part = rest.split(['.', ';']).find_map(|part| part.trim().strip_suffix(word))?;
                    part.trim().parse::<u32>().ok()
                };
                results.passed += count(" passed").unwrap_or(0);
                results.failed += count(" failed").unwrap_or(0);
                results.ignored += count(" ignored").unwrap_or(0);
                results.programs += 1;
            } else if let Some((name, outcome)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
                let seconds = outcome.split_once('<').and_then(|(_, time)| time.strip_suffix("s>")?.parse().ok());
                results.times.extend(seconds.map(|seconds| (seconds, name.to_owned())));
            }
        }
        results
    }
}

/// The outcome of a program.
struct Ended {
    results: Results,
    well: bool,
    said: String,
    /// Tests that had not ended when the program had.
    hung: Vec<String>,
    wall: f64,
    processor: f64,
}

/// Runs test programs: `words` are options, then the words of a `cargo test`. `false` where something failed.
pub fn run(record: &Record, words: &[OsString]) -> Result<bool, String> {
    let (mut under, mut arguments, mut rest) = (Vec::new(), Vec::new(), words);
    loop {
        match rest {
            [flag, after @ ..] if flag == "--ignored" => (arguments, rest) = (vec!["--ignored"], after),
            [flag, command, after @ ..] if flag == "--under" => {
                under = command.to_string_lossy().split(' ').map(OsString::from).collect();
                rest = after;
            }
            _ => break,
        }
    }
    let timer = Timer::start();
    let Some(mut programs) = collect(record, rest)? else { return Ok(false) };
    println!("built in {:.0} s ({:.0} s of processor time)", timer.wall(), timer.processor());
    // The longest programs start first: the command's integration tests, then others', then unit tests.
    programs.sort_by_key(|program| (program.name != "main", program.package != "plimsoll", program.package.clone()));
    let (computing, working): (Vec<_>, Vec<_>) = programs.into_iter().partition(|p| COMPUTING.contains(&&*p.package));
    let [computing, working] = [computing, working].map(|programs| Mutex::new(programs.into_iter()));
    let next = |queue: &Mutex<std::vec::IntoIter<Program>>| queue.lock().unwrap().next();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let all_well = Mutex::new(true);
    thread::scope(|scope| {
        for lane in 0..cores {
            let (all_well, next, computing, working, under, arguments) =
                (&all_well, &next, &computing, &working, &under[..], &arguments[..]);
            let works = lane < cores.div_ceil(2);
            scope.spawn(move || {
                let mine = if works { [working, computing] } else { [computing, working] };
                while let Some(program) = mine.into_iter().find_map(next) {
                    until_all(cores);
                    let ended = one(record, &program, under, arguments);
                    *all_well.lock().unwrap() &= tell(record, &program, &ended);
                }
            });
        }
    });
    Ok(all_well.into_inner().unwrap())
}

/// Waits while a test of a program in another lane keeps a core for itself by a cpuset: a program that starts meanwhile has one core
/// less, and leaves out what needs it.
fn until_all(cores: usize) {
    let began = Instant::now();
    while thread::available_parallelism().map_or(1, usize::from) < cores && began.elapsed() < LONGEST_SHIELD {
        thread::sleep(Duration::from_millis(20));
    }
}

/// Builds the programs and has cargo tell how it would start each; `None` where the build fails.
fn collect(record: &Record, words: &[OsString]) -> Result<Option<Vec<Program>>, String> {
    let notes = record.scratch("programs");
    fs::create_dir_all(&notes).map_err(|error| format!("{}: {error}", notes.display()))?;
    let own = env::current_exe().map_err(|error| error.to_string())?;
    let runner = format!("target.'cfg(all())'.runner = [{own:?}, {:?}, {notes:?}]", collected::MODE);
    let mut cargo = Command::new(&words[0]);
    cargo.args(&words[1..]).arg("--config").arg(runner).stdout(Stdio::null());
    Ok(if crate::well(&mut cargo)? { Some(collected::read(&notes)?) } else { None })
}

fn one(record: &Record, program: &Program, under: &[OsString], arguments: &[&str]) -> Ended {
    let [output, times] = ["output", "times"].map(|kind| record.scratch(&format!("{}.{kind}", program.file)));
    let began = Instant::now();
    // Computing programs run at low priority, in the time that the others leave.
    let under = match COMPUTING.contains(&&*program.package) {
        true => &[&["nice".into(), "-n".into(), "10".into()], under].concat()[..],
        false => under,
    };
    let mut command = program.command(under, &[arguments, &TIMES].concat());
    command.envs(record.environment("tests")).env("TIMES", &times).env("RUSTC_BOOTSTRAP", "1");
    // libtest names threads after tests, which skips are told by, only where it starts several.
    if env::var_os("RUST_TEST_THREADS").is_none() {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        command.env("RUST_TEST_THREADS", cores.max(2).to_string());
    }
    let file = File::create(&output).expect("the run's folder can be written");
    let both = file.try_clone().expect("a descriptor is free");
    let status = command.stdin(Stdio::null()).stdout(file).stderr(both).status();
    let said = String::from_utf8_lossy(&fs::read(&output).unwrap_or_default()).into_owned();
    let results = Results::of(&said);
    let well = status.is_ok_and(|status| status.success()) && results.programs > 0;
    let hung = if began.elapsed() > LIMIT { not_ended(program, under, arguments, &said) } else { Vec::new() };
    let processor = processor(&fs::read_to_string(&times).unwrap_or_default());
    Ended { results, well, said, hung, wall: began.elapsed().as_secs_f64(), processor }
}

/// Processor seconds from the output of `times`: the second line, `0m1.23s 0m0.45s`, is that of children.
fn processor(times: &str) -> f64 {
    let one = |text: &str| {
        let (minutes, seconds) = text.trim_end_matches('s').split_once('m')?;
        Some(60.0 * minutes.parse::<f64>().ok()? + seconds.parse::<f64>().ok()?)
    };
    times.lines().nth(1).unwrap_or_default().split(' ').filter_map(one).sum()
}

fn not_ended(program: &Program, under: &[OsString], arguments: &[&str], said: &str) -> Vec<String> {
    let listed = program.command(under, &[arguments, &["--list"]].concat()).env("TIMES", "/dev/null").output();
    let listed = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let ended: BTreeSet<&str> =
        said.lines().filter_map(|line| Some(line.strip_prefix("test ")?.split_once(" ... ")?.0)).collect();
    let all = listed.lines().filter_map(|line| line.strip_suffix(": test"));
    all.filter(|name| !ended.contains(name)).map(str::to_owned).collect()
}

/// Names of failed tests, each with a line of its panic, or else of its output; of a program that a signal ended, its last lines.
pub fn failures<'a>(said: &'a str, hung: &'a [String]) -> Vec<(&'a str, &'a str)> {
    let mut failures = Vec::new();
    for block in said.split("\n---- ").skip(1) {
        let Some((test, rest)) = block.split_once(" stdout ----\n") else { continue };
        let ends = ["\nstack backtrace:", "\nfailures:"].into_iter().filter_map(|end| rest.find(end));
        let lines: Vec<&str> =
            rest[..ends.min().unwrap_or(rest.len())].lines().filter(|line| !line.is_empty()).collect();
        let panic = lines.iter().position(|line| line.contains("' panicked at ") || line.contains(") panicked at "));
        failures.extend(lines[panic.unwrap_or(0)..].iter().take(TOLD).map(|line| (test, *line)));
    }
    failures.extend(hung.iter().map(|test| (&**test, "it had not ended")));
    if failures.is_empty() {
        let last = said.lines().rev().take(TOLD).collect::<Vec<_>>();
        failures.extend(last.into_iter().rev().map(|line| ("(no test failed)", line)));
    }
    failures
}

/// Prints and notes the outcome of a program; whether all is well.
fn tell(record: &Record, program: &Program, ended: &Ended) -> bool {
    let Ended { results, well, said, hung, wall, processor } = ended;
    let name = format!("{} {}", program.package, program.name);
    let failed = if *well { 0 } else { results.failed.max(1) };
    let state = if *well { "ok    " } else { "FAILED" };
    if results.passed + failed > 0 {
        println!("{state} {name:40} {:4} passed {wall:7.1} s {processor:7.1} s of processor time", results.passed);
    }
    if !well {
        // Lines of tests that passed or did not run are left out.
        let is_well = |line: &&str| line.starts_with("test ") && !line.contains(" ... FAILED");
        said.lines().filter(|line| !is_well(line)).for_each(|line| println!("    {line}"));
        for (test, line) in failures(said, hung) {
            record.note("failures", &format!("{}::{test}\t{line}", program.package));
        }
    }
    if !hung.is_empty() {
        println!("    it was ended after {} s; these tests had not ended: {}", LIMIT.as_secs(), hung.join(" "));
    }
    record.results("tests", results.passed, failed);
    record.note("waiting", &results.ignored.to_string());
    record.note("programs", &format!("{wall:.1}\t{processor:.1}\t{name}\t{}", results.passed + failed));
    results.times.iter().for_each(|(seconds, test)| {
        record.note("times", &format!("{seconds:.2}\t{}::{test}", program.package));
    });
    *well
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_is_read() {
        let said = "\nrunning 3 tests\ntest a::b ... ok <0.012s>\ntest c ... FAILED <1.500s>\ntest d ... ignored, make check\n\
                    noise\ntest result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.5s\n";
        let results = Results::of(said);
        assert_eq!((results.passed, results.failed, results.ignored, results.programs), (1, 1, 1, 1));
        assert_eq!(results.times, [(0.012, "a::b".to_owned()), (1.5, "c".to_owned())]);
        assert_eq!(Results::of("running 3 tests\n").programs, 0);
    }

    #[test]
    fn failures_are_told_without_their_backtraces() {
        let said = "\nfailures:\n\n---- a::b stdout ----\nit says\n\nthread 'a::b' panicked at x.rs:1:\nno\nstack backtrace:\n   \
                    0: main\n\n---- c stdout ----\nError: full\n\n\nfailures:\n    a::b\n    c\n\ntest result: FAILED.\n";
        let told = [("a::b", "thread 'a::b' panicked at x.rs:1:"), ("a::b", "no"), ("c", "Error: full")];
        assert_eq!(failures(said, &[]), told);
        assert_eq!(failures("x\nkilled", &[]), [("(no test failed)", "x"), ("(no test failed)", "killed")]);
    }

    #[test]
    fn processor_time_is_that_of_children() {
        assert_eq!(processor("0m0.010s 0m0.020s\n1m2.500s 0m0.500s\n"), 63.0);
        assert_eq!(processor(""), 0.0);
    }
}
