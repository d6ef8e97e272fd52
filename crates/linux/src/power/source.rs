//! Sources of power: those that a user names, and those that a machine has.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use machine::availability::{Availability, Feature};
use machine::power::found::{self, Found, Search};
use machine::power::{Band, Covers, Sensor};
use machine::{Fault, Nanoseconds, Result};

use super::command::Run;
use super::csv::Csv;
use super::files::{Cray, Files, named};
use super::nvidia::Nvidia;
use super::reader::Reader;
use super::slurm::Slurm;
use super::told::{Column, Format, TimeFormat, Unit};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// All sources of the kinds below that need no arguments.
    All,
    Rapl,
    Hwmon,
    Cray,
    Nvidia,
    Slurm,
    Command(String),
    Csv(PathBuf),
}

/// The kinds that `all` searches.
const FOUND: [(&str, Kind); 5] = [
    ("rapl", Kind::Rapl),
    ("hwmon", Kind::Hwmon),
    ("cray", Kind::Cray),
    ("nvidia", Kind::Nvidia),
    ("slurm", Kind::Slurm),
];

/// A source as a user writes it: `rapl`, `command,unit=kW: ipmitool ..`, `csv,at=1,value=3:FILE`.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    pub kind: Kind,
    text: String,
    name: Option<String>,
    format: Format,
    covers: Covers,
    band: Band,
    /// The number at which a counter wraps, in micro-units.
    range: Option<u64>,
    every: Option<Duration>,
    limit: Duration,
    /// The stated offset of the sensor's clock from ours, ns.
    pub ahead: Option<i64>,
}

/// Default time between two runs of a command, and longest time of a run.
const EVERY: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(5);

/// Time over which two lines of a file are joined, while their period is unknown.
const UNKNOWN: Nanoseconds = Nanoseconds(10_000_000_000);

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl FromStr for Source {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Source> {
        let refused = |cause: String, next: &str| Fault::new(format!("power source '{text}'"), cause, next);
        let (head, rest) = match text.split_once(':') {
            Some((head, rest)) => (head, Some(rest.trim())),
            None => (text, None),
        };
        let mut options = head.split(',').map(str::trim);
        let word = options.next().unwrap_or_default();
        let found = FOUND.iter().find(|(name, _)| *name == word).map(|(_, kind)| kind.clone());
        let kind = match (word, rest.filter(|rest| !rest.is_empty()), found) {
            ("all", None, _) => Kind::All,
            ("command", Some(words), _) => Kind::Command(words.to_owned()),
            ("csv", Some(path), _) => Kind::Csv(path.into()),
            ("command" | "csv", None, _) => {
                return Err(refused(
                    format!("nothing stands behind '{word}:'"),
                    "write 'command: ipmitool dcmi power reading' or csv:FILE",
                ));
            }
            (_, None, Some(kind)) => kind,
            _ => {
                let next = "write all, rapl, hwmon, cray, nvidia, slurm, 'command: WORDS' or csv:FILE";
                return Err(refused("it is none that is known".into(), next));
            }
        };
        let mut source = Source {
            kind,
            text: text.to_owned(),
            name: None,
            format: Format {
                at: None,
                value: None,
                time: TimeFormat::Auto,
                unit: Unit::WATT,
                apart: None,
                count: None,
            },
            covers: Covers::Unstated,
            band: Band::Unstated,
            range: None,
            every: None,
            limit: LIMIT,
            ahead: None,
        };
        let mut range = None;
        for option in options {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            let is_own = matches!(source.kind, Kind::Command(_) | Kind::Csv(_));
            let seconds = |least: f64| {
                let number = value.trim_end_matches('s').parse::<f64>().ok();
                let number = number.filter(|number| number.abs() >= least && number.abs() < 1e6);
                number
                    .ok_or_else(|| refused(format!("{key}={value} is no number of seconds"), "write it like 2 or 0.5"))
            };
            match key {
                "every" if !matches!(source.kind, Kind::All | Kind::Rapl | Kind::Hwmon | Kind::Cray) => {
                    source.every = Some(Duration::from_secs_f64(seconds(0.01)?.abs()));
                }
                "timeout" if matches!(source.kind, Kind::Command(_)) => {
                    source.limit = Duration::from_secs_f64(seconds(0.01)?.abs());
                }
                "offset" if is_own => source.ahead = Some((seconds(0.0)? * 1e9) as i64),
                "name" if is_own && !value.is_empty() => source.name = Some(value.to_owned()),
                "at" if is_own => source.format.at = Some(Column::new(value)),
                "value" if is_own => source.format.value = Some(Column::new(value)),
                "time" if is_own => source.format.time = value.parse()?,
                "unit" if is_own => source.format.unit = value.parse()?,
                "range" if is_own => range = Some(value),
                "covers" if is_own => {
                    let named = Covers::WORDS.iter().find(|(_, word)| *word == value).map(|(covers, _)| *covers);
                    let next = "write node, package, cores, memory or device";
                    source.covers = named.ok_or_else(|| refused(format!("covers={value} is not known"), next))?;
                }
                "band" if is_own => {
                    source.band = match value {
                        "in" => Band::In,
                        "out" => Band::Out,
                        _ => return Err(refused(format!("band={value} is not known"), "write band=in or band=out")),
                    }
                }
                _ => {
                    let next = match is_own {
                        true => {
                            "the options are name, at, value, time, unit, range, offset, every, timeout (of commands), covers, band"
                        }
                        false => "nvidia and slurm take every=SECONDS, the others of the machine's own nothing",
                    };
                    return Err(refused(format!("'{option}' is no option of it"), next));
                }
            }
        }
        if let Some(range) = range {
            if !source.format.unit.is_energy {
                return Err(refused("a range is of counters of energy".into(), "name the unit: unit=J"));
            }
            source.range = Some(
                super::told::value(range, source.format.unit).map_err(|cause| refused(cause, "write range=65536J"))?,
            );
        }
        Ok(source)
    }
}

/// A reader, and how it is scheduled.
pub(super) struct Opened {
    pub reader: Box<dyn Reader>,
    /// Period of its own thread; `None`: a cheap reader, which looks at the meter's period.
    pub every: Option<Duration>,
    /// Longest time of a look.
    pub limit: Duration,
    /// Time over which a gauge's samples are joined; `None`: by the rate.
    pub bridge: Option<Nanoseconds>,
    pub ahead: i64,
}

impl Opened {
    fn quick(reader: impl Reader + 'static) -> Opened {
        Opened { reader: Box::new(reader), every: None, limit: Duration::ZERO, bridge: None, ahead: 0 }
    }

    fn slow(reader: impl Reader + 'static, every: Duration, limit: Duration) -> Opened {
        let bridge = Nanoseconds((3 * every + limit).as_nanos() as u64);
        Opened { reader: Box::new(reader), every: Some(every), limit, bridge: Some(bridge), ahead: 0 }
    }
}

impl Source {
    /// All sources that a machine has by itself.
    pub fn all() -> Source {
        "all".parse().unwrap_or_else(|fault: Fault| unreachable!("{fault}"))
    }

    /// Opens its readers; for [`Kind::All`] those that exist, with faults for the others.
    pub(super) fn open(&self, root: &Path, end: &Arc<AtomicBool>) -> Result<(Vec<Opened>, Vec<Fault>)> {
        let every = self.every.unwrap_or(EVERY);
        let one = |opened| Ok((vec![opened], Vec::new()));
        match &self.kind {
            Kind::All => {
                let (mut there, mut refused) = (Vec::new(), Vec::new());
                for (_, kind) in FOUND {
                    let own = Source { kind, ..self.clone() };
                    match own.open(root, end) {
                        Ok((opened, more)) => {
                            there.extend(opened);
                            refused.extend(more);
                        }
                        Err(fault) => refused.push(fault),
                    }
                }
                Ok((there, refused))
            }
            Kind::Rapl => of_files("rapl", root, found::rapl, |found| Opened::quick(Files::new(root, found))),
            Kind::Hwmon => of_files("hwmon", root, found::hwmon, |found| Opened::quick(Files::new(root, found))),
            Kind::Cray => of_files("cray", root, found::cray, |found| Opened::quick(Cray::new(root, found))),
            Kind::Nvidia => one(Opened::slow(Nvidia::open(end.clone())?, every, LIMIT)),
            Kind::Slurm => one(Opened::slow(Slurm::open(end.clone())?, every, LIMIT)),
            Kind::Command(words) => {
                let first = first_word(words);
                let run = Run::new(self.sensor("command", &first), words, self.format.clone(), self.limit, end.clone());
                one(Opened { ahead: self.ahead.unwrap_or(0), ..Opened::slow(run, every, self.limit) })
            }
            Kind::Csv(path) => {
                let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
                let ahead = self.ahead.unwrap_or(0);
                let csv = Csv::open(self.sensor("csv", &name), path, self.format.clone(), ahead)?;
                let bridge = csv.period().map_or(UNKNOWN, |period| Nanoseconds(3 * period.0));
                let slow = Opened::slow(csv, every, LIMIT);
                one(Opened { ahead, bridge: Some(bridge), ..slow })
            }
        }
    }

    fn sensor(&self, kind: &str, what: &str) -> Sensor {
        let name = self.name.clone().unwrap_or_else(|| format!("{kind}:{what}"));
        named(name, self.covers, self.band, self.format.unit.is_energy, self.range)
    }
}

/// The first word of a command, without its folder.
fn first_word(words: &str) -> String {
    let first = words.split_whitespace().next().unwrap_or_default();
    first.rsplit('/').next().unwrap_or(first).to_owned()
}

type Opening = Result<(Vec<Opened>, Vec<Fault>)>;

fn of_files(
    name: &str,
    root: &Path,
    search: impl Fn(&machine::Source) -> Search,
    open: impl Fn(&[Found]) -> Opened,
) -> Opening {
    let source = if root == Path::new("/") { machine::Source::live() } else { machine::Source::open(root)? };
    let search = search(&source);
    let refused = search.refused.as_ref().map(|why| {
        let next = why.next().unwrap_or("name another source").to_owned();
        Fault::new(name, why.explanation(), next)
    });
    match (search.found.is_empty(), refused) {
        (true, Some(fault)) => Err(fault),
        (_, refused) => Ok((vec![open(&search.found)], refused.into_iter().collect())),
    }
}

/// The sensors that a machine has, and those that it lacks.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    pub sensors: Vec<Sensor>,
    pub refused: Vec<Feature>,
}

impl Listing {
    /// Lists the sensors; of an archive or a copy, only those in files.
    pub fn of(source: &machine::Source) -> Listing {
        let mut listing = Listing::default();
        for (name, search) in
            [("rapl", found::rapl(source)), ("hwmon", found::hwmon(source)), ("cray", found::cray(source))]
        {
            listing.sensors.extend(search.found.into_iter().map(|found| found.sensor));
            listing.refused.extend(search.refused.map(|why| Feature::new(name, why)));
        }
        if source.is_live() {
            let end = Arc::new(AtomicBool::new(false));
            listing.take("nvidia", Nvidia::open(end.clone()));
            listing.take("slurm", Slurm::open(end));
        }
        listing
    }

    fn take(&mut self, name: &str, opened: Result<impl Reader>) {
        match opened {
            Ok(reader) => self.sensors.extend(reader.sensors().iter().cloned()),
            Err(fault) => self.refused.push(Feature::new(name, Availability::absent(fault.cause(), fault.next()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_read_as_they_are_written() {
        let of = |text: &str| text.parse::<Source>().unwrap();
        assert_eq!(of("rapl").kind, Kind::Rapl);
        assert_eq!(of("command: ipmitool -H a:b power").kind, Kind::Command("ipmitool -H a:b power".into()));
        let csv = of("csv,at=time,value=3,unit=kW,offset=-1.5,covers=node,band=out:/tmp/a,b:c.csv");
        assert_eq!(csv.kind, Kind::Csv("/tmp/a,b:c.csv".into()));
        assert_eq!((csv.ahead, csv.covers, csv.band), (Some(-1_500_000_000), Covers::Node, Band::Out));
        assert_eq!(csv.format.at, Some(Column::Name("time".into())));
        assert_eq!(of("command,unit=kJ,range=1.5:x").range, Some(1_500_000_000));
        for text in [
            "",
            "rapl:x",
            "rapl,every=1",
            "command",
            "command:",
            "csv,unit=MW:x",
            "csv,every=x:f",
            "command,range=5:x",
            "watts",
            "csv,time=noon:x",
        ] {
            assert!(text.parse::<Source>().is_err(), "{text}");
        }
    }
}
