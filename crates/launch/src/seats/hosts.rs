//! Checks of seats that this host can make: whether a seat is on this host, and whether its cores exist.

use machine::seat::{Seats, is_host_name};
use machine::{Fault, Result};

use crate::allocation;

/// Checks that every seat exists, as far as this host can see.
pub(crate) fn check(seats: &Seats) -> Result<()> {
    if seats.0.is_empty() {
        return Err(Fault::new("seats", "there are none", "give one to each rank"));
    }
    let of_cpuset = linux::affinity::reachable()?;
    for (rank, seat) in seats.0.iter().enumerate() {
        // Host names of a profile are the hosts' own, with any characters.
        if !is_host_name(&seat.host) {
            let cause = format!("its seat is on '{}', which is no name of a host", seat.host);
            return Err(Fault::new(format!("rank {rank}"), cause, "name hosts as their launcher knows them"));
        }
        if seat.cores.is_empty() {
            return Err(Fault::new(
                format!("rank {rank}"),
                format!("its seat on {} has no core", seat.host),
                "name one",
            ));
        }
        let beyond = seat.cores.difference(&of_cpuset);
        if is_here(&seat.host) && !beyond.is_empty() {
            let cause = format!("core {beyond} is not among the cores {of_cpuset} that this job has on {}", seat.host);
            return Err(Fault::new(format!("rank {rank}"), cause, "choose among these, or ask for more cores"));
        }
    }
    Ok(())
}

/// Whether a launcher's name for a host means this host.
pub(crate) fn is_here(host: &str) -> bool {
    host == "localhost" || allocation::is_host(host, &crate::this_host())
}

pub(crate) fn is_here_alone(seats: &Seats) -> bool {
    matches!(seats.hosts()[..], [host] if is_here(host))
}
