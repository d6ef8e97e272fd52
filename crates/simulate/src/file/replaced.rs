//! A file with some of its keys replaced: a family of simulations.

use std::path::{Path, PathBuf};

use machine::spelling::meant;
use machine::{Fault, Result, nesting};
use serde::Deserialize;
use toml::{Table, Value};

use super::{File, Simulation, has_keys, like_those, read_named};

/// The text of a file before keys are replaced.
#[derive(Debug, Clone)]
pub struct Original {
    path: PathBuf,
    table: Table,
}

impl Original {
    /// # Errors
    /// The file cannot be read, is no regular one, or is no TOML.
    pub fn read(path: &Path) -> Result<Original> {
        let text = read_named(path, &like_those())?;
        let next = has_keys();
        let table = nesting::read(|| {
            let table = toml::from_str::<Table>(&text).map_err(|e| {
                let (line, _) = machine::fault::line_and_column(&text, e.span().map_or(0, |span| span.start));
                Fault::new(format!("{}: line {line}", path.display()), e.message(), &next)
            })?;
            match table.values().all(|value| is_flat(value, DEEPEST)) {
                true => Ok(table),
                false => Err(Fault::new(path.display().to_string(), "its tables are nested too deeply", &next)),
            }
        })?;
        Ok(Original { path: path.to_owned(), table })
    }

    /// The simulation with other values at these keys: `link.latency_us`, `machine.0.count` of one of several, `machine.count` of
    /// all of them. A value is a number, true or false, or else a text.
    ///
    /// # Errors
    /// A key does not exist; as [`Simulation::read`].
    pub fn with(&self, replaced: &[(String, String)]) -> Result<Simulation> {
        let mut whole = Value::Table(self.table.clone());
        for (key, value) in replaced {
            let (above, last) = key.rsplit_once('.').unwrap_or(("", key));
            let mut places = vec![&mut whole];
            for part in above.split('.').filter(|part| !part.is_empty()) {
                places = places.into_iter().flat_map(|place| inner(place, part)).collect();
            }
            let tables: Vec<&mut Table> = places.into_iter().flat_map(tables).collect();
            if tables.is_empty() {
                let cause = format!("there is no '{above}' in {}", self.path.display());
                return Err(Fault::new(format!("key {key}"), cause, has_keys()));
            }
            for table in tables {
                let value = typed(value, table.get(last));
                table.insert(last.to_owned(), value);
            }
        }
        let file = File::deserialize(whole).map_err(|e| {
            let keys: Vec<&str> = replaced.iter().map(|(key, _)| key.as_str()).collect();
            let subject = format!("{} with other {}", self.path.display(), keys.join(", "));
            let said = e.message().trim();
            Fault::new(subject, said, meant(said, &has_keys()))
        })?;
        let folder = self.path.parent().unwrap_or(Path::new("."));
        Simulation::of(file, folder).map_err(|fault| fault.within(self.path.display()))
    }
}

/// The deepest nesting of tables and lists; a file needs six.
const DEEPEST: usize = 16;

fn is_flat(value: &Value, left: usize) -> bool {
    match value {
        Value::Table(table) => left > 0 && table.values().all(|value| is_flat(value, left - 1)),
        Value::Array(list) => left > 0 && list.iter().all(|value| is_flat(value, left - 1)),
        _ => true,
    }
}

/// The values at `part`, a name or an index; for a name, those in all elements of a list.
fn inner<'a>(value: &'a mut Value, part: &str) -> Vec<&'a mut Value> {
    match (value, part.parse::<usize>()) {
        (Value::Array(list), Ok(at)) => list.get_mut(at).into_iter().collect(),
        (value, _) => tables(value).into_iter().filter_map(|table| table.get_mut(part)).collect(),
    }
}

/// A table, or those of a list.
fn tables(value: &mut Value) -> Vec<&mut Table> {
    match value {
        Value::Table(table) => vec![table],
        Value::Array(list) => list.iter_mut().filter_map(Value::as_table_mut).collect(),
        _ => Vec::new(),
    }
}

fn typed(value: &str, before: Option<&Value>) -> Value {
    if let Some(Value::String(_)) = before {
        return Value::String(value.to_owned());
    }
    let number = value.parse().map(Value::Integer).or_else(|_| value.parse().map(Value::Float));
    number.or_else(|_| value.parse().map(Value::Boolean)).unwrap_or_else(|_| Value::String(value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[[machine]]\nname = \"a\"\ncount = 1\nsockets = [[0, 1]]\nfull_clock_ghz = 2.0\nwatts = 50.0\n\
        [[machine]]\nname = \"b\"\ncount = 1\nsockets = [[0, 1]]\nfull_clock_ghz = 2.0\nwatts = 50.0\n\
        [link]\nlatency_us = 1.0\ngigabits_a_second = 32.0\n[protocol]\nprofile = \"psm\"\n\
        [mapping]\nranks_a_host = 1\n[program]\nname = \"ping-pong\"\nbytes = 1000\nrounds = 20\n";

    fn time(replaced: &[(&str, &str)]) -> Result<u64> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file.toml");
        std::fs::write(&path, TEXT).unwrap();
        let replaced: Vec<_> = replaced.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        Ok(Original::read(&path)?.with(&replaced)?.run()?.1.finished.total())
    }

    #[test]
    fn keys_are_replaced_as_if_the_file_had_them() {
        let of = |text: &str| Simulation::parse(text, Path::new(".")).unwrap().run().unwrap().1.finished.total();
        assert_eq!(time(&[]).unwrap(), of(TEXT));
        let slower = TEXT.replace("watts", "clock_ghz = 1.0\nwatts");
        assert_ne!(of(&slower), of(TEXT));
        assert_eq!(time(&[("machine.clock_ghz", "1")]).unwrap(), of(&slower));
        let one = TEXT.replacen("watts", "clock_ghz = 1.0\nwatts", 1);
        assert_eq!(time(&[("machine.0.clock_ghz", "1.0")]).unwrap(), of(&one));
        let other = TEXT.replace("\"psm\"", "\"verbs\"").replace("bytes = 1000", "bytes = 5000");
        assert_eq!(time(&[("protocol.profile", "verbs"), ("program.bytes", "5000")]).unwrap(), of(&other));
    }

    #[test]
    fn no_nesting_ends_the_process() {
        let key = ["a"; 70].join(".");
        let deep = format!("{TEXT}{key} = {{") + &format!("{key} = {{").repeat(69) + "b = 1" + &"}".repeat(70);
        assert!(Simulation::parse(&deep, Path::new(".")).is_err());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file.toml");
        std::fs::write(&path, deep).unwrap();
        assert!(Original::read(&path).unwrap_err().to_string().contains("nested too deeply"));
    }

    #[test]
    fn a_key_that_leads_nowhere_is_refused() {
        for (key, said) in [
            ("links.latency_us", "there is no 'links'"),
            ("link.latency", "unknown field `latency`"),
            ("link.latency_u", "Next: did you mean 'latency_us'?"),
            ("machine.7.count", "there is no 'machine.7'"),
            ("program.bytes", "invalid type"),
        ] {
            let fault = time(&[(key, "x")]).unwrap_err().to_string();
            assert!(fault.contains(said), "{fault}");
        }
    }
}
