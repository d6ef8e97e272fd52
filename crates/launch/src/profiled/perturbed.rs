//! Hosts of a job's ranks, which the ranks need to tell messages between hosts from messages within one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use machine::{Fault, Result};
use record::blocks::Schedule;
use record::folder;
use record::layout::words;
use record::rank::Rank;

/// Writes the host of each rank, from an earlier profile of the job, where the perturbation `what` needs it.
///
/// # Errors
/// There is no earlier profile, or a rank is missing in it.
pub fn place(what: &Schedule, earlier: Option<&Path>, profile: &Path) -> Result<()> {
    let next = "profile the program once without --perturb, and name that profile's folder: --hosts-of DIR";
    let subject = || format!("perturbation '{what}'");
    let Some(earlier) = earlier.filter(|_| what.by_host()) else {
        let cause = "which rank is on which host is not known before they run";
        return if what.by_host() { Err(Fault::new(subject(), cause, next)) } else { Ok(()) };
    };
    let entries = fs::read_dir(earlier.join(folder::RANKS));
    let entries = entries.map_err(|e| Fault::because(earlier.display().to_string(), e, next))?;
    let (mut hosts, mut size) = (BTreeMap::new(), 0);
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|suffix| suffix == folder::RANK_SUFFIX) {
            let header = Rank::header(&path)?;
            size = size.max(header.size);
            hosts.insert(header.rank, words(&header.host));
        }
    }
    if hosts.is_empty() || hosts.len() != size as usize {
        let cause = format!("it has {} of {size} ranks", hosts.len());
        return Err(Fault::new(earlier.display().to_string(), cause, next));
    }
    let text: String = hosts.into_iter().map(|(rank, host)| format!("{rank} {host}\n")).collect();
    let file = folder::placed_file(profile);
    fs::write(&file, text)
        .map_err(|e| Fault::unwritable(file.display().to_string(), e, "choose another folder with -o"))
}
