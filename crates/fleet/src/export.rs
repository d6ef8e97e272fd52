//! All jobs of a store as Parquet, a folder a day, for who would ask what the sums do not tell.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use machine::{Fault, Result};
use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use rusqlite::Row;
use rusqlite::types::Value;

use crate::history::{DAY, day_name};
use crate::store::Store;
use crate::summary::{End, Lever, Unjudged, word};

/// Jobs of a file.
const PART: usize = 100_000;

#[derive(Clone, Copy)]
enum Kind {
    /// Milliseconds since 1970.
    Moment,
    Whole,
    Real,
    Text,
}

/// Columns that are as the store has them; the first is the job's beginning.
const STORED: [(&str, &str, Kind); 14] = [
    ("started", "j.started * 1000", Kind::Moment),
    ("seconds", "j.seconds", Kind::Real),
    ("program", "p.name", Kind::Text),
    ("version", "NULLIF(p.hash, '')", Kind::Text),
    ("partition", "w.text", Kind::Text),
    ("group", "g.text", Kind::Text),
    ("user", "j.user", Kind::Whole),
    ("nodes", "j.nodes", Kind::Whole),
    ("cores", "j.cores", Kind::Whole),
    ("ranks", "j.ranks", Kind::Whole),
    ("ranks_lost", "j.lost", Kind::Whole),
    ("mpi_share", "j.mpi", Kind::Real),
    ("wait_share", "j.wait", Kind::Real),
    ("core_seconds", "j.seconds * j.cores", Kind::Real),
];

/// Names and kinds of all columns.
fn columns() -> Vec<(String, Kind)> {
    let words = ["end", "unjudged"].map(|name| (name.to_owned(), Kind::Text));
    let gains = Lever::ALL
        .into_iter()
        .flat_map(|lever| ["least", "most"].map(|end| (format!("{}_saves_{end}", word(lever)), Kind::Real)));
    let stored = STORED.iter().map(|(name, _, kind)| ((*name).to_owned(), *kind));
    stored.chain(words).chain(gains).collect()
}

/// Writes all jobs to `folder`/day=YYYY-MM-DD/part-N.parquet, and returns their number. A file appears when it is whole.
///
/// # Errors
/// The folder has files, or cannot be written; the store cannot be read.
pub fn export(store: &Store, folder: &Path) -> Result<u64> {
    let unwritten = |e: io::Error| Fault::unwritable(folder.display().to_string(), e, "name another folder");
    fs::create_dir_all(folder).map_err(unwritten)?;
    if fs::read_dir(folder).map_err(unwritten)?.next().is_some() {
        let next = "name a new folder: what was exported before is not written over";
        return Err(Fault::new(folder.display().to_string(), "it has files", next));
    }
    let mut failed = None;
    let mut jobs = 0;
    store.try_to(|c| {
        let stored = STORED.map(|(_, sql, _)| sql).join(", ");
        let mut rows = c.prepare(&format!(
            "SELECT {stored}, j.ended, j.unjudged, j.gains FROM job j JOIN program p ON p.id = j.program
             JOIN word w ON w.id = j.partition JOIN word g ON g.id = j.grp ORDER BY j.started, j.id"
        ))?;
        let mut rows = rows.query([])?;
        let mut part = Part { folder: folder.to_owned(), day: 0, number: 0, rows: Vec::new() };
        while let Some(row) = rows.next()? {
            let values = values(row)?;
            let Value::Integer(started) = values[0] else { continue };
            let day = started as u64 / 1_000 / DAY;
            if (day != part.day || part.rows.len() == PART)
                && let Err(error) = part.write_and_begin(day)
            {
                failed = Some(error);
                return Ok(());
            }
            part.rows.push(values);
            jobs += 1;
        }
        failed = part.write_and_begin(0).err();
        Ok(())
    })?;
    failed.map_or(Ok(jobs), |error| Err(unwritten(error)))
}

/// A job in the order of [`columns`].
fn values(row: &Row) -> rusqlite::Result<Vec<Value>> {
    let mut values: Vec<Value> = (0..STORED.len()).map(|place| row.get(place)).collect::<Result<_, _>>()?;
    let end: usize = row.get(STORED.len())?;
    let unjudged: Option<usize> = row.get(STORED.len() + 1)?;
    let word = |text: Option<&str>| text.map_or(Value::Null, |text| Value::Text(text.to_owned()));
    values.push(word(End::ALL.get(end).map(|end| end.name())));
    values.push(word(unjudged.and_then(|why| Unjudged::ALL.get(why)).map(|why| why.name())));
    let gains: Vec<u8> = row.get(STORED.len() + 2)?;
    let gains = gains.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four bytes")));
    let gains = gains.map(|gain| if gain.is_nan() { Value::Null } else { Value::Real(f64::from(gain)) });
    values.extend(gains.chain(std::iter::repeat(Value::Null)).take(2 * Lever::ALL.len()));
    Ok(values)
}

/// Jobs of a day that are not written yet.
struct Part {
    folder: PathBuf,
    day: u64,
    number: usize,
    rows: Vec<Vec<Value>>,
}

impl Part {
    /// Writes the jobs, if there are any, and goes on with those of `day`.
    fn write_and_begin(&mut self, day: u64) -> io::Result<()> {
        if !self.rows.is_empty() {
            let folder = self.folder.join(format!("day={}", day_name(self.day)));
            fs::create_dir_all(&folder)?;
            let file = folder.join(format!("part-{}.parquet", self.number));
            let beside = file.with_extension("new");
            write(File::create_new(&beside)?, &self.rows).map_err(io::Error::other)?;
            fs::rename(beside, file)?;
            self.rows.clear();
        }
        self.number = if day == self.day { self.number + 1 } else { 0 };
        self.day = day;
        Ok(())
    }
}

fn write(file: File, rows: &[Vec<Value>]) -> Result<(), ParquetError> {
    let columns = columns();
    let field = |(name, kind): &(String, Kind)| {
        let moment = LogicalType::timestamp(true, TimeUnit::MILLIS);
        let (physical, logical) = match kind {
            Kind::Moment => (Physical::INT64, Some(moment)),
            Kind::Whole => (Physical::INT64, None),
            Kind::Real => (Physical::DOUBLE, None),
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let field = Type::primitive_type_builder(name, physical).with_logical_type(logical);
        Ok(field.with_repetition(Repetition::OPTIONAL).build()?.into())
    };
    let fields = columns.iter().map(field).collect::<Result<_, ParquetError>>()?;
    let schema = Type::group_type_builder("job").with_fields(fields).build()?;
    let mut writer = SerializedFileWriter::new(file, schema.into(), Default::default())?;
    let mut group = writer.next_row_group()?;
    for (place, (_, kind)) in columns.iter().enumerate() {
        let column = || rows.iter().map(|row| &row[place]);
        let known: Vec<i16> = column().map(|value| i16::from(*value != Value::Null)).collect();
        let mut out = group.next_column()?.expect("the schema has as many columns");
        match kind {
            Kind::Moment | Kind::Whole => {
                let of = |value: &Value| if let Value::Integer(whole) = value { Some(*whole) } else { None };
                out.typed::<Int64Type>().write_batch(&column().filter_map(of).collect::<Vec<_>>(), Some(&known), None)
            }
            Kind::Real => {
                let of = |value: &Value| if let Value::Real(real) = value { Some(*real) } else { None };
                out.typed::<DoubleType>().write_batch(&column().filter_map(of).collect::<Vec<_>>(), Some(&known), None)
            }
            Kind::Text => {
                let of =
                    |value: &Value| if let Value::Text(text) = value { Some(ByteArray::from(&text[..])) } else { None };
                out.typed::<ByteArrayType>().write_batch(
                    &column().filter_map(of).collect::<Vec<_>>(),
                    Some(&known),
                    None,
                )
            }
        }?;
        out.close()?;
    }
    group.close()?;
    writer.close()?;
    Ok(())
}
