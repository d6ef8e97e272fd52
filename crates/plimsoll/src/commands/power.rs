use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use linux::output::{self, Destination};
use linux::power::{Listing, Look, Meter, Settings, Source};
use linux::relay::Relay;
use machine::power::{Offset, total};
use machine::{Fault, Nanoseconds, Reading, Result};

use super::outputs::{Csv, Json};
use crate::power_page;

/// Says which sensors tell power here, or what a command draws: joules, mean watts, what is above idleness.
///
/// Without a COMMAND, the sensors are listed with what each covers, and each kind that is missing with the next step. With
/// one, all sources are read while it runs; its streams and exit status are its own, what it drew goes to standard error.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Where to read: all, rapl, hwmon, cray, nvidia, slurm, 'command: WORDS' that print watts, csv:FILE with times and
    /// watts; options stand before the colon [default: all]
    #[arg(long = "from", value_name = "SOURCE")]
    from: Vec<Source>,
    /// Interval of looks at the machine's own sensors; commands have every=SECONDS
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = interval)]
    interval: Nanoseconds,
    /// Time before the command, in which the idle floor is measured; 0: none
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = time)]
    idle: Nanoseconds,
    /// Before the command, keep all cores busy in a pattern, and find by it how far the clocks of commands and files are off;
    /// at most by so much
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "10s", value_parser = time)]
    fit_offset: Option<Nanoseconds>,
    #[command(flatten)]
    csv: Csv,
    #[command(flatten)]
    json: Json,
    /// List the sensors of the machine archived in DIR, or of the copy of /sys under it
    #[arg(long, value_name = "DIR", conflicts_with_all = ["command", "from"])]
    root: Option<PathBuf>,
    /// The command
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "Examples:
  plimsoll power
  plimsoll power -- mpirun -n 4 ./a
  plimsoll power --from rapl --from 'command,covers=node,band=out: ipmitool dcmi power reading' -- ./a
  plimsoll power --from csv,at=time,value=watts,offset=-0.8:/shared/pdu.csv --csv=samples.csv -- ./a
  plimsoll power --fit-offset --from csv:/shared/pdu.csv -- ./a

Options of commands and files, each as ,NAME=VALUE before the colon:
  at, value   the column of the time and of the number, from 1 or as the first line names it
  time        auto, epoch (seconds since 1970), rfc3339, now (the time of the read)
  unit        W, mW, kW, J, mJ, kJ; of a counter of energy also range=, where it begins again
  offset      seconds that its clock is ahead of this one
  every       seconds from one look to the next [default: 1]; timeout: most that a run takes [default: 5]
  name, covers (node, package, cores, memory, device), band (in, out)   what is shown of it";

fn interval(text: &str) -> Result<Nanoseconds> {
    Nanoseconds::within(text, Nanoseconds(1_000_000), Nanoseconds::of_seconds(10))
}

fn time(text: &str) -> Result<Nanoseconds> {
    Nanoseconds::within(text, Nanoseconds(0), Nanoseconds::of_seconds(3600))
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    match arguments.command.is_empty() {
        true => list(&arguments),
        false => measure(&arguments),
    }
}

fn list(arguments: &Arguments) -> Result<ExitCode> {
    let source = match &arguments.root {
        Some(root) => machine::Source::open(root)?,
        None => machine::Source::live(),
    };
    let mut listing = Listing::of(&source);
    // A named source must open: its sensor is listed, or the fault is the answer.
    let named = (!arguments.from.is_empty()).then(|| Meter::open(&arguments.from)).transpose()?;
    let of_meter = named.iter().flat_map(Meter::sensors);
    let known: Vec<_> = of_meter.filter(|sensor| !listing.sensors.contains(sensor)).collect();
    listing.sensors.extend(known);
    let page = || output::page(&power_page::listing(&listing, output::width()));
    arguments.json.tell(|| power_page::listing_json(&listing), page)?;
    Ok(ExitCode::SUCCESS)
}

fn measure(arguments: &Arguments) -> Result<ExitCode> {
    let relay = Relay::open()?;
    let sources = match arguments.from.is_empty() {
        true => vec![Source::all()],
        false => arguments.from.clone(),
    };
    let settings =
        Settings { period: arguments.interval, keeps_looks: arguments.csv.csv.is_some(), ..Settings::default() };
    let mut meter = Meter::with(&sources, &settings)?;
    let mut samples = arguments.csv.csv.as_ref().map(|to| Samples::create(to, &meter)).transpose()?;
    let mut ended = 0;
    if let Some(most) = arguments.fit_offset {
        eprintln!("plimsoll: all cores are kept busy in a pattern, to find the sensors' clocks by it");
        for (name, offset) in meter.fit_offsets(most, &|| false)? {
            eprintln!("plimsoll: {name}: {}", told(&offset));
        }
    }
    if arguments.idle.0 > 0 {
        meter.measure_floor(arguments.idle.duration());
    }
    let mut command = Command::new(&arguments.command[0]);
    command.args(&arguments.command[1..]);
    relay.release(&mut command);
    let cost = meter.cost();
    meter.begin();
    let begun = linux::clock::monotonic();
    let mut child = command.spawn().map_err(|e| {
        Fault::because(format!("command {}", arguments.command[0].display()), e, "check its name and that it may run")
    })?;
    let status = relay.wait(&mut child)?;
    let elapsed = linux::clock::monotonic() - begun;
    let drawn = meter.end();
    let share = (meter.cost() - cost).0 as f64 / (elapsed.0 as f64).max(1.0);
    if let Some(samples) = &mut samples {
        ended = samples.add(meter.drain())?;
    }
    let parts = total(&drawn, "rapl:");
    let page = || {
        let refused = if arguments.from.is_empty() { meter.refused() } else { &[] };
        eprint!("{}", power_page::page(&drawn, &parts, elapsed, &meter.notes(), refused, output::width()));
        eprintln!("looking took {:.2} % of a core", 100.0 * share);
        Ok(())
    };
    arguments.json.tell(|| power_page::json(&drawn, &parts, elapsed, &meter.notes()), page)?;
    if let (Some(Destination::File(path)), true) = (&arguments.csv.csv, ended > 0) {
        eprintln!("{ended} samples are in {}", path.display());
    }
    Ok(ExitCode::from(launch::exit::exit_code(status)))
}

fn told(offset: &Reading<Offset>) -> String {
    match offset {
        Reading::Measured(offset) | Reading::Modelled(offset) => format!(
            "its clock is {:+.2} s ahead within {:.2} s; {} under the load, {} without",
            offset.ahead as f64 / 1e9,
            offset.within.0 as f64 / 1e9,
            offset.on,
            offset.off
        ),
        Reading::Absent { reason } | Reading::NotPermitted { reason, .. } => {
            format!("its clock was not found: {reason}")
        }
    }
}

fn unwritten(error: io::Error) -> Fault {
    Fault::unwritable("samples", error, "name another file: --csv=FILE")
}

/// A file of all samples: nanoseconds of CLOCK_MONOTONIC, sensor, value, unit, and the reason for a missing value.
struct Samples {
    file: BufWriter<Box<dyn Write>>,
    sensors: Vec<machine::power::Sensor>,
}

impl Samples {
    fn create(to: &Destination, meter: &Meter) -> Result<Samples> {
        let file: Box<dyn Write> = match to {
            Destination::Stdout => Box::new(io::stdout()),
            Destination::File(path) => Box::new(File::create(path).map_err(unwritten)?),
        };
        let mut file = BufWriter::new(file);
        writeln!(file, "monotonic_ns,sensor,value,unit,stopped").map_err(unwritten)?;
        Ok(Samples { file, sensors: meter.sensors() })
    }

    /// Writes the readings; returns their number.
    fn add(&mut self, looks: Vec<(usize, Look)>) -> Result<usize> {
        let count = looks.len();
        for (place, look) in looks {
            let sensor = &self.sensors[place];
            let name = sensor.name.replace([',', '"'], " ");
            match look {
                Look::Value { at, micro } => {
                    let unit = if sensor.is_counter() { "J" } else { "W" };
                    writeln!(self.file, "{},{name},{}.{:06},{unit},", at.0, micro / 1_000_000, micro % 1_000_000)
                }
                Look::Stopped { at, cause } => {
                    writeln!(self.file, "{},{name},,,\"{}\"", at.0, cause.replace('"', "'").replace('\n', " "))
                }
            }
            .map_err(unwritten)?;
        }
        self.file.flush().map_err(unwritten)?;
        Ok(count)
    }
}
