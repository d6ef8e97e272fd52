//! Cores, links and servers, and their busy time.

use std::collections::VecDeque;

use super::profile::Cost;
use super::{Busy, Cluster, Time};

/// Picoseconds of nanoseconds.
pub fn picoseconds(ns: f64) -> Time {
    (ns * 1000.0) as Time
}

/// The time of `bytes` on a core whose work takes `dilation` times as long.
pub fn work(cost: &Cost, first: bool, bytes: u64, dilation: f64, far: f64) -> Time {
    let message = if first { cost.message } else { 0.0 };
    picoseconds(far * (message * dilation + bytes as f64 * (cost.byte * dilation + cost.fixed)))
}

/// A server of one request after the other.
#[derive(Debug, Clone, Copy, Default)]
pub struct Server {
    free: Time,
}

impl Server {
    /// The end of `work` that came at `now`.
    pub fn serve(&mut self, now: Time, work: Time) -> Time {
        self.free = self.free.max(now).saturating_add(work);
        self.free
    }

    pub fn free(&self) -> Time {
        self.free
    }
}

/// A core and the ranks that want it.
#[derive(Debug, Clone, Default)]
pub struct Seats {
    pub on: Option<u32>,
    /// The end of the slice of the running rank, if others wait.
    pub slice_ends: Time,
    pub slicing: bool,
    pub queue: VecDeque<u32>,
    /// Interrupt work, or an engine's, which has priority.
    pub protocol: Server,
    pub busy: Busy,
}

/// A host.
#[derive(Debug, Clone)]
pub struct Resources {
    pub cores: Vec<Seats>,
    pub device: Server,
    pub device_busy: Time,
    pub out: Server,
    pub into: Server,
}

impl Resources {
    pub fn of(cluster: &Cluster) -> Vec<Resources> {
        let host = |cores: usize| Resources {
            cores: vec![Seats::default(); cores],
            device: Server::default(),
            device_busy: 0,
            out: Server::default(),
            into: Server::default(),
        };
        cluster.hosts.iter().map(|of| host(of.cores.len())).collect()
    }
}
