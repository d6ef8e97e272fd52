//! Open MPI through NetPIPE's `NPopenmpi`: with the same sizes, perturbation and cores.
//!
//! NetPIPE reports the fastest of its trials at each size, plimsoll all of a block, which favours Open MPI.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use launch::Variables;
use launch::carriers::{Reach, named};
use launch::family::Family;
use launch::installation::Installation;
use launch::job::{Job, Place};
use launch::running::{Running, Scratch, Streams};
use machine::{Fault, Result};
use rounds::point::{Metric, Path, Pattern, PointSpec, Receiver};

/// Time for one run of all trials of one size; starting the processes takes about a second of it.
const LIMIT: Duration = Duration::from_secs(30);

/// Time of one trial; NetPIPE repeats it and keeps the fastest.
const TRIAL: Duration = Duration::from_millis(6);

/// One line of NetPIPE's output file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    pub bytes: u64,
    pub megabits_per_second: f64,
    /// Time of half a round trip, or of one message of a stream.
    pub seconds: f64,
}

/// Results of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Reference {
    /// The measured value in the unit of the pattern's metric: the mean over the perturbed sizes.
    pub value: f64,
    pub messages: u64,
    pub elapsed: Duration,
    pub notes: Vec<String>,
}

/// Flags of `NPopenmpi` for a pattern; `None` if NetPIPE has no such pattern.
pub fn flags(pattern: Pattern) -> Option<&'static [&'static str]> {
    match pattern {
        Pattern::PingPong => Some(&[]),
        // NetPIPE has no message rate, but its stream of small messages is one; a note says so.
        Pattern::Stream | Pattern::MessageRate => Some(&["-s"]),
        Pattern::StreamNoCache => Some(&["-s", "-I"]),
        Pattern::Bidirectional => Some(&["-2", "-a"]),
        Pattern::Window => None,
    }
}

/// Whether NetPIPE and its `mpirun` are found.
pub fn is_installed() -> bool {
    let found = |program: &str| {
        std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
    };
    found("NPopenmpi") && found("mpirun")
}

/// Runs NetPIPE for one point. `pace` is the last run's time per message, if there was one.
pub fn measure(spec: &PointSpec, pace: Option<f64>) -> Result<Reference> {
    measure_with(spec, pace, &Variables::new())
}

/// Does so with `variables` in the environment of the ranks.
pub fn measure_with(spec: &PointSpec, pace: Option<f64>, variables: &Variables) -> Result<Reference> {
    let Some(flags) = flags(spec.pattern) else {
        return Err(refused(
            spec,
            "NetPIPE has no such pattern",
            "choose stream, ping-pong, bidirectional or message-rate for open-mpi",
        ));
    };
    if spec.path != Path::Loopback {
        return Err(refused(
            spec,
            "mpirun starts ranks on another host by ssh, which plimsoll sets up nowhere",
            "choose --path loopback for open-mpi",
        ));
    }
    if spec.receiver != Receiver::Reads {
        return Err(refused(spec, "NetPIPE's receiver only reads", "choose --receiver reads for open-mpi"));
    }
    if spec.local_core == spec.remote_core {
        return Err(refused(spec, "both ranks would share a core", "choose two cores"));
    }
    let per_message = pace.unwrap_or_else(|| 300.0 + spec.size.0 as f64 / 2.0);
    let repeats = (TRIAL.as_nanos() as f64 / per_message).clamp(4.0, 100_000.0) as u64;
    let text = run(spec, flags, repeats, variables)?;
    weigh(spec, &rows(&text)?, repeats)
}

/// NetPIPE's output file.
fn run(spec: &PointSpec, flags: &[&str], repeats: u64, variables: &Variables) -> Result<String> {
    let subject = "stack open-mpi: NPopenmpi";
    let missing = "install openmpi-bin and netpipe-openmpi, or leave open-mpi out";
    let installation = Installation::in_path(Family::OpenMpi)
        .map_err(|fault| Fault::new("stack open-mpi: mpirun", fault.cause(), missing))?;
    let scratch = Scratch::new()?;
    let output = scratch.path().join("np.out");
    let ranks = scratch.path().join("ranks");
    let text = format!("rank 0=localhost slot={}\nrank 1=localhost slot={}\n", spec.local_core.0, spec.remote_core.0);
    fs::write(&ranks, text).map_err(|e| Fault::because("rank file", e, "free space in TMPDIR"))?;
    let mut arguments: Vec<OsString> = flags.iter().map(OsString::from).collect();
    let sizes =
        [("-l", spec.size.0), ("-u", spec.size.0 + spec.perturbation.0), ("-p", spec.perturbation.0), ("-n", repeats)];
    arguments.extend(sizes.into_iter().flat_map(|(flag, value)| [flag.into(), value.to_string().into()]));
    arguments.extend(["-o".into(), output.clone().into_os_string()]);
    let options = ["--mca", "rmaps_rank_file_physical", "1", "--rankfile", &ranks.to_string_lossy()];
    let transport = named("vader")?.variables(&installation, Reach::Host).unwrap_or_default();
    let job = Job {
        installation: &installation,
        ranks: 2,
        program: "NPopenmpi".into(),
        arguments,
        options: options.map(str::to_owned).to_vec(),
        variables: transport.into_iter().chain(variables.iter().cloned()).collect(),
        place: Place::Here,
        cores: None,
        seats: None,
        contained: true,
    };
    let mut running = Running::start(&job, scratch, Streams::Kept, None)?;
    let status = running
        .wait(LIMIT, None::<&fs::File>, |_| Ok(()))
        .map_err(|fault| Fault::new(subject, fault.cause(), fault.next()))?;
    if status.success() {
        return fs::read_to_string(&output)
            .map_err(|e| Fault::because("NetPIPE's output", e, "run NPopenmpi by hand to see why it wrote none"));
    }
    let said = running.complained();
    let line = said.lines().find(|line| line.chars().any(char::is_alphabetic)).unwrap_or("it said nothing");
    let how = status.signal().map_or_else(|| format!("{status}"), |signal| format!("signal {signal}"));
    Err(Fault::new(subject, format!("it failed ({how}): {}", line.trim()), missing))
}

/// Reads NetPIPE's output file: bytes, megabits a second, seconds.
pub fn rows(text: &str) -> Result<Vec<Row>> {
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| {
            let mut columns = line.split_whitespace();
            let row = (|| {
                let bytes = columns.next()?.parse().ok()?;
                let megabits_per_second = columns.next()?.parse().ok()?;
                let seconds = columns.next()?.parse().ok()?;
                Some(Row { bytes, megabits_per_second, seconds })
            })();
            row.filter(|row| row.seconds >= 0.0 && row.megabits_per_second > 0.0).ok_or_else(|| {
                Fault::new("NetPIPE's output", format!("a line of it is not a result: '{line}'"), "use NetPIPE 3.7")
            })
        })
        .collect()
}

fn weigh(spec: &PointSpec, rows: &[Row], repeats: u64) -> Result<Reference> {
    let (size, by) = (spec.size.0, spec.perturbation.0);
    // In both directions at once NetPIPE counts the bytes of both.
    let ways = if spec.pattern == Pattern::Bidirectional { 2 } else { 1 };
    let rows: Vec<_> = rows.iter().filter(|row| (row.bytes / ways).abs_diff(size) <= by).collect();
    if rows.is_empty() {
        return Err(Fault::new("NetPIPE's output", format!("it has no result at {size} bytes"), "run again"));
    }
    // The printed seconds have two digits for small messages; the rate has them all.
    let bits = |row: &Row| row.bytes as f64 * 8.0;
    let seconds: f64 = rows.iter().map(|row| bits(row) / (row.megabits_per_second * 1024.0 * 1024.0)).sum();
    let bytes: f64 = rows.iter().map(|row| row.bytes as f64).sum();
    let value = match spec.pattern.metric() {
        Metric::HalfRoundTrip => seconds / rows.len() as f64 * 1e9,
        Metric::BytesPerSecond => bytes / seconds,
        Metric::MessagesPerSecond => rows.len() as f64 / seconds,
    };
    let mut notes = vec!["NetPIPE keeps the fastest of its trials".to_owned()];
    if spec.pattern == Pattern::MessageRate {
        notes.push("its message rate is that of NetPIPE's stream, which waits for no window's acknowledgement".into());
    }
    if by > 0 && rows.len() < 3 {
        notes.push(format!("NetPIPE varies no size so small: {} of 3 sizes", rows.len()));
    }
    let there_and_back = if spec.pattern == Pattern::PingPong { 2 } else { 1 };
    let messages = repeats * there_and_back * ways * rows.len() as u64;
    let elapsed = Duration::from_secs_f64(seconds * (repeats * there_and_back) as f64);
    Ok(Reference { value, messages, elapsed, notes })
}

fn refused(spec: &PointSpec, cause: &str, next: &str) -> Fault {
    Fault::new(format!("stack {} with {}", spec.stack, spec.pattern), cause, next)
}

#[cfg(test)]
mod tests {
    use machine::{Bytes, CoreId};
    use rounds::point::Stack;

    use super::*;

    fn spec(pattern: Pattern, size: u64) -> PointSpec {
        PointSpec { perturbation: Bytes(3), ..PointSpec::plain(Stack::OpenMpi, pattern, size, (CoreId(0), CoreId(1))) }
    }

    /// Printed by NetPIPE 3.7.2 (`-2 -a -l 65536 -u 65539 -p 3`).
    const BOTH_WAYS: &str = "  131066 60608.554913   0.00001650\n  131072 77816.400742   0.00001285\n";

    #[test]
    fn both_ways_count_the_bytes_of_both() {
        let found = weigh(&spec(Pattern::Bidirectional, 65536), &rows(BOTH_WAYS).unwrap(), 20).unwrap();
        let expected = (131_066.0 + 131_072.0) / (16.50e-6 + 12.85e-6);
        assert!((found.value / expected - 1.0).abs() < 0.001, "{}", found.value);
        assert_eq!(found.messages, 80);
    }

    #[test]
    fn half_a_round_trip_is_more_exact_than_the_printed_seconds() {
        let found = weigh(&spec(Pattern::PingPong, 13), &rows("13 230.478164 0.00000043\n").unwrap(), 10).unwrap();
        assert!((found.value - 430.3).abs() < 0.1, "{}", found.value);
        assert!(found.notes.iter().any(|note| note.contains("1 of 3 sizes")));
    }

    #[test]
    fn nonsense_and_absence_are_faults() {
        assert!(rows("mpirun: error\n").is_err());
        assert!(rows("8 nan 0.1\n").is_err());
        assert!(weigh(&spec(Pattern::PingPong, 64), &rows("8 10.6 0.00000576\n").unwrap(), 10).is_err());
    }
}
