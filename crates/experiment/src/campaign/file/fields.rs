//! A TOML table whose entries are taken one by one, each with its place in the file; entries that remain are refused.

use std::ops::Range;

use machine::fault::line_and_column;
pub use machine::spelling::choose;
use machine::spelling::nearest;
use machine::{Fault, Result};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A study file.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// Name of the file in faults.
    pub name: &'a str,
    pub text: &'a str,
}

impl<'a> Source<'a> {
    /// # Errors
    /// The text is no TOML.
    pub fn fields(self) -> Result<Fields<'a>> {
        let table = DeTable::parse(self.text).map_err(|error| {
            let next = "write it as TOML: name = \"value\", [table], [[list of tables]]";
            self.fault(error.span().unwrap_or(0..0), error.message().replace('\n', " "), next)
        })?;
        Ok(Fields::of(self, 0..0, table.into_inner()))
    }

    /// A fault at a place in the file: `study.toml:14:9: ...`.
    pub fn fault(&self, at: Range<usize>, cause: impl Into<String>, next: impl Into<String>) -> Fault {
        let (line, column) = line_and_column(self.text, at.start);
        Fault::new(format!("{}:{line}:{column}", self.name), cause, next)
    }
}

/// A table with the entries that were not yet taken.
#[derive(Debug)]
pub struct Fields<'a> {
    source: Source<'a>,
    pub at: Range<usize>,
    left: Vec<(Spanned<String>, Spanned<DeValue<'a>>)>,
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    fn of(source: Source<'a>, at: Range<usize>, table: DeTable<'a>) -> Fields<'a> {
        let mut left: Vec<_> = table
            .into_iter()
            .map(|(key, value)| (Spanned::new(key.span(), key.into_inner().into_owned()), value))
            .collect();
        // In the order of the file.
        left.sort_by_key(|(key, _)| key.span().start);
        Fields { source, at, left, known: Vec::new() }
    }

    /// Takes the entry of a key, if there is one.
    pub fn take(&mut self, key: &'static str) -> Option<Entry<'a>> {
        self.known.push(key);
        let place = self.left.iter().position(|(name, _)| name.get_ref() == key)?;
        let (_, value) = self.left.remove(place);
        Some(Entry { source: self.source, at: value.span(), value: value.into_inner() })
    }

    /// # Errors
    /// The table has no such key.
    pub fn need(&mut self, key: &'static str, next: &str) -> Result<Entry<'a>> {
        if let Some(entry) = self.take(key) {
            return Ok(entry);
        }
        // Valid keys that are taken later also remain; none of them resembles this one.
        let misspelt = self.left.iter().find(|(name, _)| nearest(name.get_ref(), &[key]).is_some());
        Err(match misspelt {
            Some((name, _)) => {
                let cause = format!("there is no key '{}' here", name.get_ref());
                self.source.fault(name.span(), cause, choose(name.get_ref(), &[key]))
            }
            None => self.source.fault(self.at.clone(), format!("it has no {key}"), next),
        })
    }

    /// All entries of a table with free keys, in the order of the file.
    pub fn all(self) -> impl Iterator<Item = (Spanned<String>, Entry<'a>)> {
        let source = self.source;
        self.left
            .into_iter()
            .map(move |(key, value)| (key, Entry { source, at: value.span(), value: value.into_inner() }))
    }

    /// # Errors
    /// An entry remains.
    pub fn end(self) -> Result<()> {
        let Some((key, _)) = self.left.first() else { return Ok(()) };
        let cause = format!("there is no key '{}' here", key.get_ref());
        Err(self.source.fault(key.span(), cause, choose(key.get_ref(), &self.known)))
    }
}

/// A value with its place.
#[derive(Debug)]
pub struct Entry<'a> {
    pub source: Source<'a>,
    pub at: Range<usize>,
    value: DeValue<'a>,
}

impl<'a> Entry<'a> {
    pub fn fault(&self, cause: impl Into<String>, next: impl Into<String>) -> Fault {
        self.source.fault(self.at.clone(), cause, next)
    }

    fn is_no(&self, wanted: &str) -> Fault {
        self.fault(format!("{} is no {wanted}", kind(&self.value)), format!("write a {wanted}"))
    }

    pub fn text(&self) -> Result<&str> {
        self.value.as_str().ok_or_else(|| self.is_no("text in quotes"))
    }

    /// A text without control characters, which can be printed on a terminal.
    pub fn name(&self) -> Result<&str> {
        let text = self.text()?;
        match text.contains(char::is_control) {
            false => Ok(text),
            true => Err(self.fault("it has a control character", "leave that out")),
        }
    }

    pub fn flag(&self) -> Result<bool> {
        self.value.as_bool().ok_or_else(|| self.is_no("true or false"))
    }

    /// A whole number within bounds.
    pub fn whole(&self, bounds: Range<u64>) -> Result<u64> {
        let found = self.integer().and_then(|number| u64::try_from(number).ok());
        found.filter(|number| bounds.contains(number)).ok_or_else(|| {
            let wanted = format!("whole number from {} to {}", bounds.start, bounds.end - 1);
            self.is_no(&wanted)
        })
    }

    pub fn number(&self) -> Result<f64> {
        let float = self.value.as_float().and_then(|float| float.as_str().parse().ok());
        float.or_else(|| self.integer().map(|number| number as f64)).ok_or_else(|| self.is_no("number"))
    }

    pub fn integer(&self) -> Option<i64> {
        self.value.as_integer().and_then(|number| i64::from_str_radix(number.as_str(), number.radix()).ok())
    }

    /// A text, number or truth value as text.
    pub fn word(&self) -> Option<String> {
        match &self.value {
            DeValue::String(text) => Some(text.clone().into_owned()),
            DeValue::Integer(_) => self.integer().map(|number| number.to_string()),
            DeValue::Float(float) => Some(float.as_str().to_owned()),
            DeValue::Boolean(flag) => Some(flag.to_string()),
            _ => None,
        }
    }

    pub fn is_list(&self) -> bool {
        self.value.is_array()
    }

    pub fn list(self) -> Result<Vec<Entry<'a>>> {
        let source = self.source;
        match self.value {
            DeValue::Array(values) => Ok(values
                .into_iter()
                .map(|value| Entry { source, at: value.span(), value: value.into_inner() })
                .collect()),
            _ => Err(self.is_no("list in brackets")),
        }
    }

    pub fn table(self) -> Result<Fields<'a>> {
        match self.value {
            DeValue::Table(table) => Ok(Fields::of(self.source, self.at, table)),
            _ => Err(self.is_no("table")),
        }
    }

    /// `[[key]]` or `[key]`: several tables, or one.
    pub fn tables(self) -> Result<Vec<Fields<'a>>> {
        if self.is_list() { self.list()?.into_iter().map(Entry::table).collect() } else { Ok(vec![self.table()?]) }
    }
}

fn kind(value: &DeValue) -> String {
    match value {
        DeValue::String(text) => format!("\"{text}\""),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(date) => date.to_string(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}
