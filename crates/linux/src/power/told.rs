//! Parses lines with power or energy, with or without a time.

use std::str::FromStr;

use machine::Fault;

/// The unit of the numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unit {
    /// Its size in microwatts or microjoules.
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

    /// A unit by its word; 'MW' is refused, as nothing here draws that much.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeFormat {
    /// The format that the first time has.
    Auto,
    /// Seconds since 1970, or ms, us, ns for larger numbers.
    Epoch,
    /// A form like `2026-11-24T17:05:09.25+01:00`; UTC without a zone.
    Rfc3339,
    /// Lines have no time: the time of reading counts.
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

/// A column, by its number from 1 or by its name in the first line.
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

/// The format of lines.
#[derive(Debug, Clone, PartialEq)]
pub struct Format {
    pub at: Option<Column>,
    pub value: Option<Column>,
    pub time: TimeFormat,
    pub unit: Unit,
    /// The separator of fields; `None`: by [`separator`] of each line.
    pub apart: Option<char>,
    /// The number of known fields: one more may be the rest of a number with a decimal comma.
    pub count: Option<usize>,
}

/// Nanoseconds since 1970.
pub type Epoch = i128;

/// The separator of a line's fields: semicolon, tab, bar or comma if it has one, else blanks. Commas come last, since
/// they may be decimal marks.
pub fn separator(line: &str) -> char {
    [';', '\t', '|', ','].into_iter().find(|apart| line.contains(*apart)).unwrap_or(' ')
}

/// The fields of a line; quotes protect separators.
pub fn fields(line: &str, apart: char) -> Vec<&str> {
    let mut is_quoted = false;
    let ends = |c: char| {
        is_quoted ^= c == '"';
        c == apart && !is_quoted
    };
    match apart {
        ' ' => line.split_whitespace().map(bare).collect(),
        _ => line.split(ends).map(bare).collect(),
    }
}

fn bare(field: &str) -> &str {
    field.trim().trim_matches('"').trim()
}

/// A number of power or energy, in micro-units of `unit` or of the unit behind it.
pub fn value(text: &str, unit: Unit) -> Result<u64, String> {
    let (number, unit) = parts(text, unit)?;
    let number = decimal(number).map_err(|cause| format!("'{}' {cause}", short(text.trim())))?;
    let micro = number * unit.micro;
    // No computer draws a gigawatt.
    let most = if unit.is_energy { 9e18 } else { 1e15 };
    if !(0.0..=most).contains(&micro) {
        return Err(format!("{number} is no {}", word(unit.is_energy)));
    }
    Ok(micro.round() as u64)
}

/// A number and its unit, by default `unit`.
fn parts(text: &str, unit: Unit) -> Result<(&str, Unit), String> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || "+-.,eE".contains(c))).unwrap_or(text.len());
    match text[end..].trim() {
        "" => Ok((&text[..end], unit)),
        named => match Unit::of(named) {
            Some(named) if named.is_energy == unit.is_energy => Ok((&text[..end], named)),
            _ => Err(format!("'{}' is no {}", short(text), word(unit.is_energy))),
        },
    }
}

/// The complaint about an ambiguous comma.
const COMMA: &str = "has a comma that may be a decimal mark, or one of thousands or of columns: \
                     have it print 1234.5, with semicolons between columns";

/// A printed number. `52,4` has a decimal comma; `1,234` is ambiguous and refused.
fn decimal(text: &str) -> Result<f64, &'static str> {
    let number = match text.split_once(',') {
        None => text.parse::<f64>(),
        Some((whole, rest)) => {
            let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            let may_be_thousands = rest.len() == 3 && whole.len() <= 3 && whole != "0";
            if !is_digits(whole) || !is_digits(rest) || may_be_thousands {
                return Err(COMMA);
            }
            format!("{whole}.{rest}").parse::<f64>()
        }
    };
    number.map_err(|_| "is no number")
}

pub fn time(text: &str, format: TimeFormat) -> Result<Epoch, String> {
    match format {
        TimeFormat::Epoch => epoch(text),
        TimeFormat::Rfc3339 => rfc3339(text),
        TimeFormat::Auto => epoch(text).or_else(|| rfc3339(text)),
        TimeFormat::Now => None,
    }
    .ok_or_else(|| format!("'{}' is no time", short(text)))
}

/// A time in 1973; lesser numbers are no times.
const SINCE: i128 = 100_000_000;

fn epoch(text: &str) -> Option<Epoch> {
    let text = text.trim();
    let (whole, rest) = text.split_once(['.', ',']).unwrap_or((text, ""));
    let number: i128 = whole.parse().ok().filter(|number| (SINCE..=i128::from(u64::MAX)).contains(number))?;
    // The unit follows from the size: seconds have at most 11 digits for two thousand years to come.
    let unit = match number {
        ..100_000_000_000 => 1_000_000_000,
        100_000_000_000..100_000_000_000_000 => 1_000_000,
        100_000_000_000_000..100_000_000_000_000_000 => 1_000,
        _ => 1,
    };
    Some(number * unit + fraction(rest)? * unit / 1_000_000_000)
}

/// The digits behind a decimal point, in billionths.
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
    let (second, rest) = parts.next().map(|s| s.split_once(['.', ',']).unwrap_or((s, ""))).unwrap_or(("0", ""));
    let second: i128 = second.parse().ok()?;
    let is_time = (0..24).contains(&hour) && (0..60).contains(&minute) && (0..=60).contains(&second);
    if !is_time || !(1..=12).contains(&month) || !(1..=31).contains(&day) || !(1970..=9999).contains(&year) {
        return None;
    }
    // Days since 1970 in the Gregorian calendar, with years that begin in March.
    let (y, m) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = y * 365 + y / 4 - y / 100 + y / 400 + (m * 306 + 5) / 10 + day - 1 - 719_468;
    let seconds = days * 86_400 + (hour * 60 + minute - ahead) * 60 + second;
    Some(seconds * 1_000_000_000 + fraction(rest)?)
}

/// Whether a calendar time lacks a zone.
pub fn lacks_zone(text: &str) -> bool {
    let clock = text.trim().split_once(['T', 't', ' ']);
    clock.is_some_and(|(_, clock)| !clock.contains(['Z', 'z', '+', '-']))
}

/// Parses a command's output: by columns where these are named; else the only line's number, with or without a time, or
/// the first number with a unit behind it.
pub fn output(text: &str, format: &Format) -> Result<(Option<Epoch>, u64), String> {
    let lines = text.trim_start_matches(MARK).lines().map(str::trim).filter(|line| !line.is_empty());
    if format.value.is_some() || format.at.is_some() {
        // The last valid line counts, since headings are above.
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
            // `42 W` is not a time with a number.
            let (at, micro) = (time(at, format.time).ok()?, value(number, format.unit).ok()?);
            Some(Ok((Some(at), micro)))
        }
        _ => None,
    };
    if let [line] = lines[..] {
        if let Some(told) = of(&fields(line, separator(line))) {
            return told;
        }
        // A single number with a comma between two digits.
        if let [only] = words(line)[..] {
            return value(only, format.unit).map(|micro| (None, micro));
        }
    }
    match lines.iter().find_map(|line| with_unit(line, format.unit.is_energy)) {
        Some(told) => told.map(|micro| (None, micro)),
        None => Err(match lines.first() {
            None => "it printed nothing".to_owned(),
            Some(line) => format!("'{}' has no number with a unit of {}", short(line), word(format.unit.is_energy)),
        }),
    }
}

/// The byte order mark that some programs write first.
pub const MARK: char = '\u{feff}';

fn word(is_energy: bool) -> &'static str {
    if is_energy { "energy" } else { "power" }
}

/// The words of a line. A comma between two digits may be part of a number, and does not separate.
fn words(line: &str) -> Vec<&str> {
    let is_digit = |at: Option<usize>| at.and_then(|at| line.as_bytes().get(at)).is_some_and(u8::is_ascii_digit);
    let mut words = Vec::new();
    let mut begin = 0;
    for (at, mark) in line.match_indices([' ', '\t', '|', ',', ';']) {
        if mark == "," && is_digit(at.checked_sub(1)) && is_digit(Some(at + 1)) {
            continue;
        }
        words.push(&line[begin..at]);
        begin = at + 1;
    }
    words.push(&line[begin..]);
    words.retain(|word| !word.is_empty());
    words
}

/// The first number of a line with a unit behind it, as in `Instantaneous power reading:  220 Watts`.
fn with_unit(line: &str, is_energy: bool) -> Option<Result<u64, String>> {
    let words = words(line);
    let is_one = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    let unit = Unit { micro: 1e6, is_energy };
    (0..words.len()).filter(|at| is_one(words[*at])).find_map(|at| {
        let alone = words[at].ends_with(|c: char| c.is_ascii_alphabetic());
        let both = if alone { words[at].to_owned() } else { format!("{} {}", words[at], words.get(at + 1)?) };
        let told = value(&both, unit);
        // A number with an ambiguous comma is not skipped in favour of a later one.
        let is_in_doubt = || words[at].contains(',') && parts(&both, unit).is_ok();
        (told.is_ok() || is_in_doubt()).then_some(told)
    })
}

/// The time and the number of a line, by numbered columns.
pub fn columns(line: &str, format: &Format) -> Result<(Option<Epoch>, u64), String> {
    let row = Row::of(line, format);
    let micro = row.value()?;
    Ok((row.time()?, micro))
}

/// A line split into columns.
pub struct Row<'a> {
    line: &'a str,
    apart: char,
    fields: Vec<&'a str>,
    format: &'a Format,
}

impl<'a> Row<'a> {
    pub fn of(line: &'a str, format: &'a Format) -> Row<'a> {
        let apart = format.apart.unwrap_or_else(|| separator(line));
        Row { line, apart, fields: fields(line, apart), format }
    }

    /// The text of its time; empty without one.
    pub fn clock(&self) -> &'a str {
        self.format.at.as_ref().and_then(|column| self.field(column).ok()).unwrap_or_default()
    }

    /// Its time; `None` without one.
    pub fn time(&self) -> Result<Option<Epoch>, String> {
        match &self.format.at {
            Some(column) if self.format.time != TimeFormat::Now => {
                time(self.field(column)?, self.format.time).map(Some)
            }
            _ => Ok(None),
        }
    }

    pub fn value(&self) -> Result<u64, String> {
        let usual = Column::Number(1 + usize::from(self.format.at.is_some()));
        let column = self.format.value.as_ref().unwrap_or(&usual);
        let told = self.field(column)?;
        if self.is_cut(column) {
            return Err(format!("'{}' {COMMA}", short(self.line)));
        }
        match self.apart {
            // A spreadsheet's format where the comma is the decimal mark.
            ';' => value(&told.replace(',', "."), self.format.unit),
            _ => value(told, self.format.unit),
        }
    }

    /// Whether a comma-separated line has one field too many, right behind the number, as a decimal comma causes.
    fn is_cut(&self, column: &Column) -> bool {
        let Column::Number(number) = column else { return false };
        let behind = self.fields.get(*number).is_some_and(|next| next.starts_with(|c: char| c.is_ascii_digit()));
        self.apart == ',' && behind && self.format.count.is_some_and(|count| self.fields.len() > count)
    }

    fn field(&self, column: &Column) -> Result<&'a str, String> {
        match column {
            Column::Number(number) => {
                let field = self.fields.get(number - 1).copied();
                field.ok_or_else(|| format!("'{}' has no column {number}", short(self.line)))
            }
            Column::Name(name) => Err(format!("no first line names a column '{name}'")),
        }
    }
}

/// The begin of a line, for messages.
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

    const PLAIN: Format =
        Format { at: None, value: None, time: TimeFormat::Auto, unit: Unit::WATT, apart: None, count: None };

    #[test]
    fn times_are_read_as_they_are_written() {
        let of = |text| time(text, TimeFormat::Auto).unwrap();
        // The seconds are those of `date --date=... +%s`.
        assert_eq!(of("2026-11-24T17:05:09Z"), 1_795_539_909_000_000_000);
        assert_eq!(of("2026-11-24 18:05:09.25+01:00"), 1_795_539_909_250_000_000);
        assert_eq!(of("2000-02-29T23:59:60-0030"), 951_870_600_000_000_000);
        assert_eq!(of("1795539909.5"), 1_795_539_909_500_000_000);
        assert_eq!(of("1795539909500"), 1_795_539_909_500_000_000);
        assert_eq!(of("1795539909,5"), 1_795_539_909_500_000_000);
        assert_eq!(of("2026-11-24 17:05:09,25"), 1_795_539_909_250_000_000);
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
    fn a_comma_is_a_decimal_mark_or_refused() {
        for (text, micro) in [
            ("52,4 W\n", 52_400_000),
            ("52,4\n", 52_400_000),
            ("52,4W", 52_400_000),
            ("power 0,125 kW", 125_000_000),
            ("Power: 220 Watts, 3 A", 220_000_000),
            ("load, 12, power,220 W", 220_000_000),
            ("PSU1 | 220,5 Watts", 220_500_000),
        ] {
            assert_eq!(output(text, &PLAIN), Ok((None, micro)), "{text}");
        }
        for text in
            ["Power: 1,234 Watts", "1,234", "1,234.5 W", "1,234,567 mW", "3,52,4 W", "Power: 1,234 W, most 60 W"]
        {
            let told = output(text, &PLAIN);
            assert!(told.as_ref().is_err_and(|cause| cause.contains("a comma")), "{text}: {told:?}");
        }
        // Numbers with another unit are skipped, with a comma or without.
        assert_eq!(output("0,1 A 220 W", &PLAIN), Ok((None, 220_000_000)));
    }

    #[test]
    fn columns_are_apart_by_what_else_they_have_than_commas() {
        let format = Format { at: Some(Column::Number(1)), value: Some(Column::Number(2)), ..PLAIN };
        let at = Some(1_795_539_909_000_000_000);
        for (line, micro) in [
            ("1795539909;100,5", 100_500_000),
            ("1795539909;1,234", 1_234_000),
            ("1795539909\t100,5", 100_500_000),
            ("1795539909,\"100,5\",ok", 100_500_000),
            ("1795539909,100,ok", 100_000_000),
        ] {
            assert_eq!(columns(line, &format), Ok((at, micro)), "{line}");
        }
        assert!(columns("1795539909\t1,234", &format).is_err(), "of a tab's columns that is not known");
        let two = Format { count: Some(2), ..format };
        assert!(columns("1795539909,100,5", &two).is_err());
        assert_eq!(columns("1795539909,100,", &two), Ok((at, 100_000_000)));
    }

    #[test]
    fn columns_are_counted_from_one() {
        let format = Format { at: Some(Column::Number(3)), value: Some(Column::Number(1)), ..PLAIN };
        assert_eq!(output("power;x;time\n7.5;x;1795539909", &format), Ok((Some(1_795_539_909_000_000_000), 7_500_000)));
        assert!(output("7.5;x", &format).is_err());
    }
}
