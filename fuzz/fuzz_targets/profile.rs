//! A rank's tables and a job.json of anything: refused, or summed up and shown. The input is cut at its first 0x1e.
#![no_main]

use libfuzzer_sys::fuzz_target;
use profile::job::Job;
use profile::profile::Profile;
use profile::summary::Summary;
use profile::tables::Tables;
use profile::terminal::{Screen, paper, render};
use record::functions;
use record::layout::{DIRECTORY, FIRST_REGION, Header, MAGIC, PAGE, Region, VERSION};
use record::rank::Rank;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

fuzz_target!(|bytes: &[u8]| {
    let _ = Rank::read(bytes);
    let (job, rest) = bytes.split_at(bytes.iter().position(|byte| *byte == 0x1e).unwrap_or(0));
    let job = Job::parse(&String::from_utf8_lossy(job)).unwrap_or_default();

    // The file's frame and its seals are given, so that chance need not find them: what comes is the rest of the header,
    // entries of the directory, and the first records.
    const ENTRY: usize = size_of::<Region>();
    let mut header = Header::new_zeroed();
    let (more, rest) = rest.split_at(rest.len().min(size_of::<Header>()));
    header.as_mut_bytes()[..more.len()].copy_from_slice(more);
    (header.magic, header.version, header.functions) = (MAGIC, VERSION, functions::digest());
    let (entries, records) = rest.split_at(rest.len().min(ENTRY * 16));
    let entries = entries.chunks_exact(ENTRY).flat_map(Region::read_from_bytes).take_while(|entry| entry.kind != 0);
    let entries: Vec<Region> = entries.map(Region::sealed).collect();
    header.regions = entries.len() as u64;
    header.dropped_again = header.dropped;
    header.seal = header.own_seal();
    let mut file = header.as_bytes().to_vec();
    file.resize(DIRECTORY, 0);
    file.extend(entries.as_bytes());
    file.resize(FIRST_REGION, 0);
    file.extend(records);
    file.resize(FIRST_REGION + 64 * PAGE, 0);

    let tables = Rank::read(&file).and_then(|rank| Tables::of(rank, "input".into()));
    let summary = Summary::of(&Profile::of(job, tables.into_iter().collect()));
    assert!(!render(&summary, Screen { width: 100, colour: false, sites: 5 }).contains('\x1b'));
    assert!(!paper::render(&[summary]).is_empty());
});
