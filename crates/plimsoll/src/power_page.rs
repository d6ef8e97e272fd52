//! Sensors of power and their readings, as a page of text and as JSON.

use std::fmt::Write;

use linux::power::Listing;
use machine::power::{Band, Covers, EnergyReading, Sensor};
use machine::text::Table;
use machine::{Fault, Joules, Nanoseconds, Reading, Result};
use serde::Serialize;

/// Every sensor with its coverage, then missing ones with the next step.
pub fn listing(listing: &Listing, width: usize) -> String {
    let row = |sensor: &Sensor| {
        let tells = if sensor.is_counter() { "energy" } else { "power" };
        let within = sensor.within.as_ref().map_or_else(String::new, |within| format!("within {within}"));
        vec![sensor.name.clone(), covers(sensor.covers), sensor.band.to_string(), tells.to_owned(), within]
    };
    let mut page = String::new();
    match listing.sensors.is_empty() {
        true => page += "No sensor of power was found.\n",
        false => {
            let mut table = Table::new(["sensor", "covers", "measured", "tells", ""]);
            listing.sensors.iter().for_each(|sensor| table.row(row(sensor)));
            page += &table.text(width);
        }
    }
    if !listing.refused.is_empty() {
        page += "\nmissing\n";
    }
    for feature in &listing.refused {
        let _ = writeln!(page, "  {:<8} {}", feature.name, feature.availability.summary());
        if let Some(next) = feature.availability.next() {
            let _ = writeln!(page, "  {:<8} next: {next}", "");
        }
    }
    page + "\nAnything else that tells watts: --from 'command: WORDS' or --from csv:FILE; plimsoll power --help has the options.\n"
}

fn covers(covers: Covers) -> String {
    match covers {
        Covers::Unstated => "not known".to_owned(),
        covers => covers.to_string(),
    }
}

#[derive(Serialize)]
struct ListingJson<'a> {
    sensors: &'a [Sensor],
    missing: &'a [machine::availability::Feature],
}

pub fn listing_json(listing: &Listing) -> Result<String> {
    text(&ListingJson { sensors: &listing.sensors, missing: &listing.refused })
}

#[derive(Serialize)]
struct DrawnJson<'a> {
    seconds: f64,
    sensors: &'a [EnergyReading],
    rapl_packages_and_memory: &'a Reading<Joules>,
    notes: &'a [String],
}

pub fn json(
    drawn: &[EnergyReading],
    parts: &Reading<Joules>,
    elapsed: Nanoseconds,
    notes: &[String],
) -> Result<String> {
    let seconds = elapsed.0 as f64 / 1e9;
    text(&DrawnJson { seconds, sensors: drawn, rapl_packages_and_memory: parts, notes })
}

fn text(value: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(value);
    Ok(text.map_err(|e| Fault::because("the sensors as JSON", e, "report it"))? + "\n")
}

/// The readings of each sensor for a command that took `elapsed`.
pub fn page(
    drawn: &[EnergyReading],
    parts: &Reading<Joules>,
    elapsed: Nanoseconds,
    notes: &[String],
    refused: &[Fault],
    width: usize,
) -> String {
    let row = |drawn: &EnergyReading| {
        let band = match drawn.sensor.band {
            Band::Unstated => String::new(),
            band => format!(", {band}"),
        };
        vec![
            drawn.sensor.name.clone(),
            format!("{}{band}", covers(drawn.sensor.covers)),
            value(&drawn.joules),
            drawn.error.value().map_or_else(String::new, |error| format!("+- {error}")),
            value(&drawn.watts),
            value(&drawn.above),
            format!("{:.1} %", 100.0 * drawn.coverage),
        ]
    };
    let header = ["sensor", "covers", "energy", "", "mean power", "above idle", "covered"];
    let mut table = Table::new(header).right(2..7);
    drawn.iter().for_each(|drawn| table.row(row(drawn)));
    let mut page = format!("\nplimsoll power: {}\n", elapsed);
    page += &table.text(width);
    let has_parts = drawn.iter().any(|drawn| drawn.sensor.name.starts_with("rapl:"));
    let _ = match parts {
        Reading::Measured(joules) | Reading::Modelled(joules) => {
            writeln!(page, "packages and memory by RAPL: {joules}")
        }
        Reading::Absent { reason } if has_parts => writeln!(page, "packages and memory by RAPL: not known: {reason}"),
        _ => Ok(()),
    };
    for drawn in drawn {
        let name = &drawn.sensor.name;
        match &drawn.floor {
            Reading::Measured(floor) | Reading::Modelled(floor) => {
                let _ = writeln!(page, "{name}: idle floor {}, of the {}", floor.watts, floor.how);
            }
            Reading::Absent { reason } | Reading::NotPermitted { reason, .. } => {
                let _ = writeln!(page, "{name}: no idle floor: {reason}");
            }
        }
        for gap in drawn.gaps.iter().filter(|gap| gap.length().0 > elapsed.0 / 1000) {
            let _ = writeln!(page, "{name}: {} not covered: {}", gap.length(), gap.cause);
        }
        for note in &drawn.notes {
            let _ = writeln!(page, "{name}: {note}");
        }
    }
    for note in notes {
        let _ = writeln!(page, "{note}");
    }
    for fault in refused {
        let _ = writeln!(page, "{}: not read: {}", fault.subject(), fault.cause());
    }
    page
}

fn value(reading: &Reading<impl ToString>) -> String {
    reading.value().map_or_else(|| "not known".to_owned(), ToString::to_string)
}
