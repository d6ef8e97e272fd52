//! Decides how a placement is carried out: where the engine runs, and what is done about a core that others need too.

use std::sync::OnceLock;

use linux::affinity;
use linux::contention::{self, Excluded};
use machine::topology::Topology;
use machine::{CoreId, Fault, Result, Site};

/// Placement of an endpoint's engine: the one asked for, the one that runs, and measures against contention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    pub asked: Site,
    pub ran: Site,
    /// Whether the engine shares its core and yields whenever it is idle.
    pub yields: bool,
    /// Measures taken, a sentence each.
    pub notes: Vec<String>,
}

/// Number of cores that processes like this one may use on this host, whatever it is bound to.
pub(crate) fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| affinity::reachable().map_or(usize::MAX, |cores| cores.iter().count()))
}

/// Checks `site` and settles who may use its core for `whom`, the engine or a site of offcodes. `claimed` are cores that the
/// caller knows to be busy, such as its peer's.
pub fn settle(site: &Site, whom: &str, claimed: &[CoreId]) -> Result<(Placed, Option<Excluded>)> {
    let mut placed = Placed { asked: site.clone(), ran: site.clone(), yields: false, notes: Vec::new() };
    let core = match site {
        Site::App => return Ok((placed, None)),
        Site::Core(core) => *core,
        Site::Xdp(_) | Site::Tc(..) | Site::Agent(_) => {
            return Err(Fault::new(
                format!("placement {site}"),
                "the message engine runs at app or core:N only",
                "choose app or core:N",
            ));
        }
    };
    affinity::check(core).map_err(|fault| fault.within(format!("placement {site}")))?;
    let mut rivals = Vec::new();
    let mut excluded = None;
    let mine = affinity::current()?;
    if mine == [core] {
        rivals.push("the application".to_string());
    } else if mine.contains(&core) {
        excluded = Some(contention::exclude(core)?);
        placed.notes.push(format!("the application was moved off {core}, which {whom} has"));
    }
    let threads = Topology::live()?.cpu(core).map(|cpu| cpu.threads.clone()).unwrap_or_default();
    if !mine.contains(&core) && mine.iter().all(|thread| threads.contains(*thread)) {
        placed.notes.push(format!("the application has the other thread of {core}: it and {whom} slow each other"));
    }
    if claimed.contains(&core) {
        rivals.push("the peer".to_string());
    }
    for occupant in contention::pinned_to(core)? {
        let rival = format!("a thread of {}", occupant.name);
        if !rivals.contains(&rival) {
            rivals.push(rival);
        }
    }
    if !rivals.is_empty() {
        placed.yields = true;
        placed.notes.push(format!("{whom} shares {core} with {} and yields to it when idle", rivals.join(", ")));
    }
    Ok((placed, excluded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_name_whom_the_core_is_for() {
        let core = affinity::current().unwrap()[0];
        let (placed, _excluded) = settle(&Site::Core(core), "site it", &[core]).unwrap();
        let shared = placed.notes.last().unwrap();
        assert!(shared.starts_with("site it shares core ") && shared.contains("the peer"), "{shared}");
        assert!(placed.yields && !placed.notes.iter().any(|note| note.contains("engine")), "{:?}", placed.notes);
    }
}
