//! A rank's tables and a job.json of anything: refused, or summed up and shown. The input is cut at its first 0x1e.
#![no_main]

use libfuzzer_sys::fuzz_target;
use profile::job::Job;
use profile::profile::Profile;
use profile::summary::Summary;
use profile::tables::Tables;
use profile::terminal::{Screen, paper, render};
use record::functions;
use record::layout::{DIRECTORY, FIRST_REGION, Header, MAGIC, VERSION};
use record::rank::Rank;
use zerocopy::{FromZeros, IntoBytes};

fuzz_target!(|bytes: &[u8]| {
    let _ = Rank::read(bytes);
    let (job, rest) = bytes.split_at(bytes.iter().position(|byte| *byte == 0x1e).unwrap_or(0));
    let job = Job::parse(&String::from_utf8_lossy(job)).unwrap_or_default();

    // The file's frame is given, so that chance need not find it: what comes is the rest of the header, entries of the
    // directory, and records.
    let mut header = Header::new_zeroed();
    (header.magic, header.version, header.functions) = (MAGIC, VERSION, functions::digest());
    let mut file = header.as_bytes().to_vec();
    let (more, rest) = rest.split_at(rest.len().min(file.len() - 24));
    file[24..24 + more.len()].copy_from_slice(more);
    let (entries, records) = rest.split_at(rest.len().min(32 * 16));
    file[12..16].copy_from_slice(&(entries.len() as u32 / 32).to_le_bytes());
    file.resize(DIRECTORY, 0);
    file.extend(entries);
    file.resize(FIRST_REGION, 0);
    file.extend(records);

    let tables = Rank::read(&file).and_then(|rank| Tables::of(rank, "input".into()));
    let summary = Summary::of(&Profile::of(job, tables.into_iter().collect()));
    assert!(!render(&summary, Screen { width: 100, colour: false, sites: 5 }).contains('\x1b'));
    assert!(!paper::render(&[summary]).is_empty());
});
