//! Seats: the cores that the ranks of a bench run on.

use machine::{CoreId, Fault, Result};

use super::contender::{Hosts, Seats};

/// Most cores that are probed to find a near and a far pair; a core of every complex of a large host is among them.
const MOST_PROBED: usize = 64;

/// A pair is far if its latency is this many times that of the nearest.
const FAR: f64 = 1.7;

/// The first core with the one nearest to it and, if distances differ, with the one farthest away.
pub fn pairs(allowed: &[CoreId]) -> Result<Vec<(CoreId, CoreId)>> {
    let &[first, second, ref rest @ ..] = allowed else {
        let cause = format!("two ranks that poll need two cores, this process has {}", allowed.len());
        return Err(Fault::new("plimsoll bench mpi", cause, "give it more cores (taskset, cpuset)"));
    };
    if rest.is_empty() {
        return Ok(vec![(first, second)]);
    }
    let step = allowed.len().div_ceil(MOST_PROBED);
    let probed = allowed[1..].iter().step_by(step).filter_map(|&core| {
        let found = ports::probe::between(first, core).ok()?;
        Some((found.half_round_trip_ps, core))
    });
    Ok(apart(first, probed.collect()).unwrap_or_else(|| vec![(first, second)]))
}

fn apart(first: CoreId, probed: Vec<(u64, CoreId)>) -> Option<Vec<(CoreId, CoreId)>> {
    let nearest = probed.iter().min()?;
    let farthest = probed.iter().max()?;
    let mut pairs = vec![(first, nearest.1)];
    if farthest.0 as f64 > FAR * nearest.0 as f64 {
        pairs.push((first, farthest.1));
    }
    Some(pairs)
}

/// Paper 002's places: receive processing of both hosts on `protocol`, and on that core the receiver, the sender or, if there
/// is a third core, neither.
pub fn around(protocol: CoreId, allowed: &[CoreId]) -> Result<Vec<Seats>> {
    linux::affinity::check(protocol)?;
    let others: Vec<CoreId> = allowed.iter().copied().filter(|core| *core != protocol).collect();
    let Some(&other) = others.first() else {
        let next = "give it more cores (taskset, cpuset)";
        return Err(Fault::new("plimsoll bench mpi", "two ranks that poll need two cores", next));
    };
    let mut cores = vec![(other, protocol), (protocol, other)];
    cores.extend(others.get(1).map(|&third| (other, third)));
    Ok(cores.into_iter().map(|cores| Seats { hosts: Hosts::Lab, cores, protocol_core: Some(protocol) }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_far_pair_is_measured_where_there_is_one() {
        let [zero, one, two, three] = [0, 1, 2, 3].map(CoreId);
        let probed = vec![(60_000, one), (50_000, two), (140_000, three)];
        assert_eq!(apart(zero, probed).unwrap(), [(zero, two), (zero, three)]);
        assert_eq!(apart(zero, vec![(60_000, one), (70_000, two)]).unwrap(), [(zero, one)]);
        assert_eq!(apart(zero, vec![]), None);
        assert!(pairs(&[zero]).unwrap_err().to_string().contains("this process has 1"));
    }

    #[test]
    fn the_receiver_is_on_the_protocols_core_and_off_it() {
        let protocol = linux::affinity::allowed().unwrap()[0];
        let (far, third) = (CoreId(901), CoreId(902));
        let cores =
            |allowed: &[CoreId]| -> Vec<_> { around(protocol, allowed).unwrap().iter().map(|s| s.cores).collect() };
        assert_eq!(cores(&[protocol, far]), [(far, protocol), (protocol, far)]);
        assert_eq!(cores(&[protocol, far, third]), [(far, protocol), (protocol, far), (far, third)]);
        assert!(around(protocol, &[protocol]).is_err());
    }
}
