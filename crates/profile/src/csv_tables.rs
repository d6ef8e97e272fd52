//! A profile as tables for other programs: one CSV file each, units in the header.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use machine::{Fault, Result};

use crate::printable::printable;
use crate::report::{self, Column, Value};
use crate::summary::{FunctionSummary, Summary};

/// The file's name, columns and rows.
type Table = (&'static str, Vec<&'static str>, Vec<Vec<String>>);

/// Writes the tables to `folder`, which is created where it is missing; returns the files. A missing value is an empty
/// field; `plimsoll report DIR --json` has the reason.
///
/// # Errors
/// The folder or a file cannot be written.
pub fn write(summary: &Summary, folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |path: &Path, error: io::Error| {
        Fault::unwritable(path.display().to_string(), error, "name a folder that you may write to with --csv")
    };
    fs::create_dir_all(folder).map_err(|e| failed(folder, e))?;
    let mut files = Vec::new();
    for (name, header, rows) in tables(summary) {
        let path = folder.join(format!("{name}.csv"));
        let mut file = fs::File::create(&path).map_err(|e| failed(&path, e))?;
        file.write_all(&lines(header, rows)).map_err(|e| failed(&path, e))?;
        files.push(path);
    }
    Ok(files)
}

fn lines(header: Vec<&'static str>, rows: Vec<Vec<String>>) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let header = header.into_iter().map(str::to_owned).collect();
    for record in std::iter::once(header).chain(rows) {
        let fields = record.iter().map(|field| printable(field));
        writer.write_record(fields).expect("rows are as long as the header, and memory takes them");
    }
    writer.into_inner().expect("memory takes all")
}

fn tables(summary: &Summary) -> Vec<Table> {
    let of_function = |f: &FunctionSummary| f.sizes.iter().map(|of| (f.name.clone(), f.group, of.clone())).collect();
    let sizes: Vec<report::OfSize> = summary.functions.iter().flat_map::<Vec<_>, _>(of_function).collect();
    let worlds = summary.matrices.iter().enumerate();
    let pairs: Vec<_> = worlds.flat_map(|(world, of)| of.cells.iter().map(move |cell| (world, *cell))).collect();
    vec![
        table("ranks", report::ranks::ALL, &summary.ranks),
        table("functions", report::functions::ALL, &summary.functions),
        table("function-sizes", report::function_sizes::ALL, &sizes),
        table("sizes", report::sizes::ALL, &summary.sizes),
        table("matrix", report::matrix::ALL, &pairs),
        table("sites", report::sites::ALL, &summary.sites),
        table("cores", report::cores::ALL, &summary.cores),
    ]
}

fn table<R>(name: &'static str, columns: &[Column<R>], rows: &[R]) -> Table {
    let columns = || columns.iter().filter(|column| !column.field.is_empty());
    let row = |of: &R| columns().map(|column| field((column.cell)(of))).collect();
    (name, columns().map(|column| column.field).collect(), rows.iter().map(row).collect())
}

/// A value with all its digits; an empty field for a missing one.
fn field(value: Value) -> String {
    match value {
        Value::Nothing => String::new(),
        Value::Text(text) => text,
        Value::Whole(value) | Value::Bytes(value) => value.to_string(),
        Value::Group(ranks) => ranks.to_string(),
        Value::Number(_, value) | Value::Uncounted(value) => value.to_string(),
        Value::Read(_, of) => of.value().map_or_else(String::new, f64::to_string),
    }
}
