//! The hosts and cores that the ranks of a job shall run on.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::cpuset::CpuSet;
use crate::fault::{Fault, Result};

/// The place of one rank.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Seat {
    /// The host, by the name that its launcher knows.
    pub host: String,
    /// The logical CPUs that the rank's threads may run on.
    pub cores: CpuSet,
}

/// The seats of all ranks, by rank. Displayed, and read, as one line a rank: `RANK HOST CORES`, like `3 node1 0-3,8`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seats(pub Vec<Seat>);

/// Whether launchers take `text` for one host: an address, or letters, digits, `.`, `-` and `_` that begin with a
/// letter or digit. Anything else could be an option to them or to ssh, or several hosts.
pub fn is_host_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    (begins && text.len() < 256 && text.bytes().all(plain)) || text.parse::<IpAddr>().is_ok()
}

impl Seats {
    /// Each host once, in the order of its first rank.
    pub fn hosts(&self) -> Vec<&str> {
        let mut hosts: Vec<&str> = Vec::new();
        for Seat { host, .. } in &self.0 {
            if !hosts.contains(&host.as_str()) {
                hosts.push(host);
            }
        }
        hosts
    }

    /// The cores of a host's ranks, in the order of the ranks.
    pub fn of<'a>(&'a self, host: &'a str) -> impl Iterator<Item = &'a CpuSet> + 'a {
        self.0.iter().filter(move |seat| seat.host == host).map(|seat| &seat.cores)
    }

    /// Reads one line: a rank and its seat.
    pub fn line_of(text: &str) -> Option<(u32, Seat)> {
        let mut words = text.split_whitespace();
        let (rank, host, cores) = (words.next()?, words.next()?, words.next()?);
        let digits = rank.bytes().all(|byte| byte.is_ascii_digit());
        let seat = Seat { host: host.to_owned(), cores: CpuSet::from_list(cores)? };
        (digits && is_host_name(host) && words.next().is_none()).then_some((rank.parse().ok()?, seat))
    }
}

impl fmt::Display for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.cores)
    }
}

impl fmt::Display for Seats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(rank, Seat { host, cores })| writeln!(f, "{rank} {host} {cores}"))
    }
}

impl FromStr for Seats {
    type Err = Fault;

    /// Reads one line a rank, in any order; empty lines and what follows a `#` are skipped.
    fn from_str(text: &str) -> Result<Seats> {
        let mut all: Vec<(u32, usize, Seat)> = Vec::new();
        for (nth, line) in text.lines().enumerate() {
            let said = line.split('#').next().unwrap_or_default().trim();
            if said.is_empty() {
                continue;
            }
            let read = Seats::line_of(said).filter(|(_, seat)| !seat.cores.is_empty());
            let (rank, seat) = read.ok_or_else(|| {
                let next = "write rank, host and cores, like '3 node1 0-3,8'";
                Fault::new(format!("seats, line {}", nth + 1), format!("'{said}' is no seat"), next)
            })?;
            all.push((rank, nth + 1, seat));
        }
        all.sort_by_key(|(rank, ..)| *rank);
        let next = "give each rank from 0 on one line";
        for (expected, (rank, line, _)) in all.iter().enumerate() {
            if *rank as usize != expected {
                let cause = match all[..expected].last() {
                    Some((before, earlier, _)) if before == rank => format!("line {earlier} has rank {rank} too"),
                    _ => format!("it has rank {rank}, and no line has rank {expected}"),
                };
                return Err(Fault::new(format!("seats, line {line}"), cause, next));
            }
        }
        Ok(Seats(all.into_iter().map(|(.., seat)| seat).collect()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::site::CoreId;

    #[test]
    fn lines_are_read_in_any_order_and_faults_name_theirs() {
        let seats: Seats = "# the mapper's\n1 b 0-3,8 # apart\n\n0 a 2\n2 b 1\n".parse().unwrap();
        assert_eq!(seats.to_string(), "0 a 2\n1 b 0-3,8\n2 b 1\n");
        assert_eq!(seats.hosts(), ["a", "b"]);
        assert_eq!(seats.of("b").map(ToString::to_string).collect::<Vec<_>>(), ["0-3,8", "1"]);
        for (text, expected) in [
            ("0 a 1\n1 a", "seats, line 2: '1 a' is no seat"),
            ("0 a 1 2", "seats, line 1: '0 a 1 2' is no seat"),
            ("0 a ,", "seats, line 1: '0 a ,' is no seat"),
            ("+0 a 1", "seats, line 1"),
            ("0 -oProxyCommand=x 1", "seats, line 1: '0 -oProxyCommand=x 1' is no seat"),
            ("0 a:9,b 1", "seats, line 1: '0 a:9,b 1' is no seat"),
            ("1 a 0\n0 a 0\n1 b 0", "seats, line 3: line 1 has rank 1 too"),
            ("0 a 0\n2 a 0", "seats, line 2: it has rank 2, and no line has rank 1"),
        ] {
            let fault = text.parse::<Seats>().unwrap_err().to_string();
            assert!(fault.starts_with(expected), "{text}: {fault}");
        }
        assert_eq!("".parse::<Seats>().unwrap(), Seats::default());
    }

    #[test]
    fn names_of_hosts_are_no_options_and_no_lists() {
        for name in ["n1", "1st_node.a-b.example", "192.0.2.7", "fe80::1", "localhost"] {
            assert!(is_host_name(name), "{name}");
        }
        for other in ["", "-n1", "_", ".", "a b", "a,b", "a:2", "a=b", "a;b", "a\nb", "n[1-2]", "ä", &"a".repeat(256)]
        {
            assert!(!is_host_name(other), "{other}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            seats in prop::collection::vec(("[a-z][a-z0-9.-]{0,12}", prop::collection::btree_set(0u32..2048, 1..20)), 0..20)
        ) {
            let seat = |(host, cores): (String, std::collections::BTreeSet<u32>)| {
                Seat { host, cores: cores.into_iter().map(CoreId).collect() }
            };
            let seats = Seats(seats.into_iter().map(seat).collect());
            prop_assert_eq!(seats.to_string().parse::<Seats>().unwrap(), seats);
        }

        #[test]
        fn no_text_is_too_odd(text in "([0-9+]{0,3}[ \t]{0,2}[a-z#]{0,2} [0-9,:/-]{0,6}\n?){0,6}|.{0,60}") {
            if let Ok(seats) = text.parse::<Seats>() {
                prop_assert!(seats.0.iter().all(|seat| !seat.cores.is_empty() && !seat.host.is_empty()));
                prop_assert_eq!(seats.to_string().parse::<Seats>().unwrap(), seats);
            }
        }
    }
}
