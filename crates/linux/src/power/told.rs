//! A line that tells power or energy, with or without its time.

use std::str::FromStr;

use machine::Fault;

/// The unit of the numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unit {
    /// Microwatts or microjoules.
    pub micro: f64,
    pub is_energy: bool,
}

const UNITS: [(&str, Unit); 11] = [
    ("W", Unit { micro: 1e6, is_energy: false }),
    ("watts", Unit { micro: 1e6, is_energy: false }),
    ("watt", Unit { micro: 1e6, is_energy: false }),
    ("mW", Unit { micro: 1e3, is_energy: false }),
    ("uW", Unit { micro: 1.0, is_energy: false }),
    ("kW", Unit { micro: 1e9, is_energy: false }),
    ("J", Unit { micro: 1e6, is_energy: true }),
    ("joules", Unit { micro: 1e6, is_energy: true }),
    ("mJ", Unit { micro: 1e3, is_energy: true }),
    ("uJ", Unit { micro: 1.0, is_energy: true }),
    ("kJ", Unit { micro: 1e9, is_energy: true }),
];

impl Unit {
    pub const WATT: Unit = UNITS[0].1;

    /// By a word; 'MW' is none, since nothing here draws that.
    fn of(word: &str) -> Option<Unit> {
        let long = |name: &str| name.len() > 2 && name.eq_ignore_ascii_case(word);
        UNITS.iter().find(|(name, _)| *name == word || long(name)).map(|(_, unit)| *unit)
    }
}

impl FromStr for Unit {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Unit, Fault> {
        Unit::of(text).ok_or_else(|| {
            Fault::new(format!("unit '{text}'"), "it is none of power or energy", "write W, mW, kW, J, mJ or kJ")
        })
    }
}

/// How times are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeFormat {
    /// As the first one is.
    Auto,
    /// Seconds since 1970, or ms, us, ns where the number is that large.
    Epoch,
    /// `2026-11-24T17:05:09.25+01:00`; without a zone it is UTC.
    Rfc3339,
    /// No time is written: it is that of the read.
    Now,
}

impl FromStr for TimeFormat {
    type Err = Fault;

    fn from_str(text: &str) -> Result<TimeFormat, Fault> {
        Ok(match text {
            "auto" => TimeFormat::Auto,
            "epoch" => TimeFormat::Epoch,
            "rfc3339" => TimeFormat::Rfc3339,
            "now" => TimeFormat::Now,
            _ => {
                return Err(Fault::new(
                    format!("time format '{text}'"),
                    "it is not known",
                    "write auto, epoch (seconds since 1970), rfc3339, or now (the time of the read)",
                ));
            }
        })
    }
}

/// A column by its number from 1, or by its name in the first line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Column {
    Number(usize),
    Name(String),
}

impl Column {
    pub fn new(text: &str) -> Column {
        match text.parse() {
            Ok(number) if number > 0 => Column::Number(number),
            _ => Column::Name(text.to_owned()),
        }
    }
}

/// How lines are read.
#[derive(Debug, Clone, PartialEq)]
pub struct Format {
    pub at: Option<Column>,
    pub value: Option<Column>,
    pub time: TimeFormat,
    pub unit: Unit,
}

/// Nanoseconds since 1970.
pub type Epoch = i128;

/// The fields of a line: apart by commas, semicolons, tabs or bars where it has one, else by blanks.
pub fn fields(line: &str) -> Vec<&str> {
    let apart = [',', ';', '\t', '|'].into_iter().find(|apart| line.contains(*apart));
    match apart {
        Some(apart) => line.split(apart).map(bare).collect(),
        None => line.split_whitespace().map(bare).collect(),
    }
}

fn bare(field: &str) -> &str {
    field.trim().trim_matches('"').trim()
}

/// A number of power or energy in micro-units of `unit`, or of the unit behind it.
pub fn value(text: &str, unit: Unit) -> Result<u64, String> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || "+-.eE".contains(c))).unwrap_or(text.len());
    let (number, word) = (&text[..end], text[end..].trim());
    let unit = match word {
        "" => unit,
        word => match Unit::of(word) {
            Some(named) if named.is_energy == unit.is_energy => named,
            _ => return Err(format!("'{}' is no {}", short(text), if unit.is_energy { "energy" } else { "power" })),
        },
    };
    let number: f64 = number.parse().map_err(|_| format!("'{}' is no number", short(text)))?;
    let micro = number * unit.micro;
    // What draws a gigawatt is no computer, and less than nothing is drawn by none.
    let most = if unit.is_energy { 9e18 } else { 1e15 };
    if !(0.0..=most).contains(&micro) {
        return Err(format!("{number} is no {}", if unit.is_energy { "energy" } else { "power" }));
    }
    Ok(micro.round() as u64)
}

/// A time as `format` says.
pub fn time(text: &str, format: TimeFormat) -> Result<Epoch, String> {
    match format {
        TimeFormat::Epoch => epoch(text),
        TimeFormat::Rfc3339 => rfc3339(text),
        TimeFormat::Auto => epoch(text).or_else(|| rfc3339(text)),
        TimeFormat::Now => None,
    }
    .ok_or_else(|| format!("'{}' is no time", short(text)))
}

/// Of 1973: a lesser number is no time.
const SINCE: i128 = 100_000_000;

fn epoch(text: &str) -> Option<Epoch> {
    let text = text.trim();
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let number: i128 = whole.parse().ok().filter(|number| (SINCE..=i128::from(u64::MAX)).contains(number))?;
    // By size: seconds have at most 11 digits for two thousand years to come.
    let unit = match number {
        ..100_000_000_000 => 1_000_000_000,
        100_000_000_000..100_000_000_000_000 => 1_000_000,
        100_000_000_000_000..100_000_000_000_000_000 => 1_000,
        _ => 1,
    };
    Some(number * unit + fraction(rest)? * unit / 1_000_000_000)
}

/// The digits behind a point in billionths.
fn fraction(digits: &str) -> Option<i128> {
    if !digits.chars().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let digits = &digits[..digits.len().min(9)];
    format!("{digits:0<9}").parse().ok()
}

fn rfc3339(text: &str) -> Option<Epoch> {
    let text = text.trim();
    let (date, clock) = text.split_once(['T', 't', ' '])?;
    let mut numbers = date.split('-').map(|number| number.parse::<i128>().ok());
    let (year, month, day) = (numbers.next()??, numbers.next()??, numbers.next()??);
    let zone_at = clock.find(['Z', 'z', '+', '-', ' ']).unwrap_or(clock.len());
    let (clock, zone) = (&clock[..zone_at], clock[zone_at..].trim());
    let minutes = |text: &str| {
        let (hours, minutes) = text.split_once(':').unwrap_or_else(|| text.split_at(text.len().min(2)));
        Some(hours.parse::<i128>().ok()? * 60 + if minutes.is_empty() { 0 } else { minutes.parse::<i128>().ok()? })
    };
    let ahead = match zone.as_bytes().first() {
        None | Some(b'Z' | b'z') => 0,
        Some(b'+') => minutes(&zone[1..])?,
        Some(b'-') => -minutes(&zone[1..])?,
        _ => return None,
    };
    let mut parts = clock.split(':');
    let (hour, minute): (i128, i128) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let (second, rest) = parts.next().map(|s| s.split_once('.').unwrap_or((s, ""))).unwrap_or(("0", ""));
    let second: i128 = second.parse().ok()?;
    let is_time = (0..24).contains(&hour) && (0..60).contains(&minute) && (0..=60).contains(&second);
    if !is_time || !(1..=12).contains(&month) || !(1..=31).contains(&day) || !(1970..=9999).contains(&year) {
        return None;
    }
    // Days since 1970 of the Gregorian calendar, in years that begin in March.
    let (y, m) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = y * 365 + y / 4 - y / 100 + y / 400 + (m * 306 + 5) / 10 + day - 1 - 719_468;
    let seconds = days * 86_400 + (hour * 60 + minute - ahead) * 60 + second;
    Some(seconds * 1_000_000_000 + fraction(rest)?)
}

/// What a command printed: in its columns where these are named; else the first number with a unit behind it, or the only
/// line's number, or its time and number.
pub fn output(text: &str, format: &Format) -> Result<(Option<Epoch>, u64), String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    if format.value.is_some() || format.at.is_some() {
        // The last line that holds them: headings stand above.
        let mut worst = "it printed nothing".to_owned();
        for line in lines.rev() {
            match columns(line, format) {
                Ok(told) => return Ok(told),
                Err(cause) => worst = cause,
            }
        }
        return Err(worst);
    }
    let lines: Vec<&str> = lines.collect();
    let of = |fields: &[&str]| match fields {
        [only] => Some(value(only, format.unit).map(|micro| (None, micro))),
        [at, number] if format.time != TimeFormat::Now => {
            // `42 W` is no time with a number.
            let (at, micro) = (time(at, format.time).ok()?, value(number, format.unit).ok()?);
            Some(Ok((Some(at), micro)))
        }
        _ => None,
    };
    if let [line] = lines[..]
        && let Some(told) = of(&fields(line))
    {
        return told;
    }
    let with_unit = lines.iter().find_map(|line| with_unit(line, format.unit.is_energy));
    with_unit.map(|micro| (None, micro)).ok_or_else(|| match lines.first() {
        None => "it printed nothing".to_owned(),
        Some(line) => format!("'{}' has no number with a unit of {}", short(line), word(format.unit.is_energy)),
    })
}

fn word(is_energy: bool) -> &'static str {
    if is_energy { "energy" } else { "power" }
}

/// The first number of a line with a unit behind it, as in `Instantaneous power reading:  220 Watts`.
fn with_unit(line: &str, is_energy: bool) -> Option<u64> {
    let words: Vec<&str> = line.split([' ', '\t', '|', ',', ';']).filter(|word| !word.is_empty()).collect();
    let is_one = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    let unit = Unit { micro: 1e6, is_energy };
    (0..words.len()).filter(|at| is_one(words[*at])).find_map(|at| {
        let alone = words[at].ends_with(|c: char| c.is_ascii_alphabetic());
        let both = if alone { words[at].to_owned() } else { format!("{} {}", words[at], words.get(at + 1)?) };
        value(&both, unit).ok()
    })
}

/// The time and number of a line by columns that are numbers.
pub fn columns(line: &str, format: &Format) -> Result<(Option<Epoch>, u64), String> {
    let fields = fields(line);
    let field = |column: &Column| match column {
        Column::Number(number) => {
            fields.get(number - 1).copied().ok_or_else(|| format!("'{}' has no column {number}", short(line)))
        }
        Column::Name(name) => Err(format!("no first line names a column '{name}'")),
    };
    let micro = value(
        field(format.value.as_ref().unwrap_or(&Column::Number(1 + usize::from(format.at.is_some()))))?,
        format.unit,
    )?;
    let at = match &format.at {
        Some(column) if format.time != TimeFormat::Now => Some(time(field(column)?, format.time)?),
        _ => None,
    };
    Ok((at, micro))
}

/// Enough of a line to know it by.
fn short(text: &str) -> String {
    let mut short: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(40).collect();
    if text.chars().count() > 40 {
        short.push_str("..");
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Format = Format { at: None, value: None, time: TimeFormat::Auto, unit: Unit::WATT };

    #[test]
    fn times_are_read_as_they_are_written() {
        let of = |text| time(text, TimeFormat::Auto).unwrap();
        // The seconds are those of `date --date=... +%s`.
        assert_eq!(of("2026-11-24T17:05:09Z"), 1_795_539_909_000_000_000);
        assert_eq!(of("2026-11-24 18:05:09.25+01:00"), 1_795_539_909_250_000_000);
        assert_eq!(of("2000-02-29T23:59:60-0030"), 951_870_600_000_000_000);
        assert_eq!(of("1795539909.5"), 1_795_539_909_500_000_000);
        assert_eq!(of("1795539909500"), 1_795_539_909_500_000_000);
        assert_eq!(of("1795539909500000000"), 1_795_539_909_500_000_000);
        for text in ["", "now", "12:00", "2026-13-01T00:00:00Z", "2026-11-24T25:00:00Z", "-5", "42.5", "1.x", "NaN"] {
            assert!(time(text, TimeFormat::Auto).is_err(), "{text}");
        }
    }

    #[test]
    fn commands_are_understood_without_columns() {
        let ipmitool = "\n    Instantaneous power reading:                   220 Watts\n    Minimum during sampling period:     10 Watts\n";
        for (text, micro) in [
            (ipmitool, 220_000_000),
            ("PSU1 Power In    | 65h | ok  | 10.1 | 220 Watts\n", 220_000_000),
            ("42.5\n", 42_500_000),
            ("42.5 W", 42_500_000),
            ("1.2kW", 1_200_000_000),
            ("power: 900 mW", 900_000),
        ] {
            assert_eq!(output(text, &PLAIN), Ok((None, micro)), "{text}");
        }
        assert_eq!(output("1795539909, 5", &PLAIN), Ok((Some(1_795_539_909_000_000_000), 5_000_000)));
        for rubbish in ["", "n/a", "-3", "NaN", "inf", "error: no device 3", "1e30", "3 apples", "12 J"] {
            assert!(output(rubbish, &PLAIN).is_err(), "{rubbish}");
        }
    }

    #[test]
    fn columns_are_counted_from_one() {
        let format = Format { at: Some(Column::Number(3)), value: Some(Column::Number(1)), ..PLAIN };
        assert_eq!(output("power;x;time\n7.5;x;1795539909", &format), Ok((Some(1_795_539_909_000_000_000), 7_500_000)));
        assert!(output("7.5;x", &format).is_err());
    }
}
