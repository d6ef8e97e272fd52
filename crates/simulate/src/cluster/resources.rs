//! Cores, links and servers, and what they have been busy with.

use std::collections::VecDeque;

use super::profile::Cost;
use super::{Busy, Cluster, Time};

/// ns as ps.
pub fn picoseconds(ns: f64) -> Time {
    (ns * 1000.0) as Time
}

/// What `bytes` cost a core whose work takes `dilation` times as long.
pub fn work(cost: &Cost, first: bool, bytes: u64, dilation: f64, far: f64) -> Time {
    let message = if first { cost.message } else { 0.0 };
    picoseconds(far * (message * dilation + bytes as f64 * (cost.byte * dilation + cost.fixed)))
}

/// Serves one after the other.
#[derive(Debug, Clone, Copy, Default)]
pub struct Server {
    free: Time,
}

impl Server {
    /// When `work` that came at `now` is done.
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
    /// When the rank on it has to give it to the first of the queue.
    pub slice_ends: Time,
    pub slicing: bool,
    pub queue: VecDeque<u32>,
    /// Interrupt work, or an engine's, is done first.
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
