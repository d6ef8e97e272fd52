//! Queue pairs in the place of the engine: the same calls over the same port, at placement `app`.

use std::time::Instant;

use engine::{Completion, Counters, LinkConfig};
use machine::{Port, Result};
use queue_pair::{Endpoint, Link, ReceiveQueues, Settings};

use crate::driver::{Admit, Buffer};
use crate::report::{AdapterTime, Report};
use crate::semantics::Semantics;
use crate::settle::Placed;

/// Depth of an endpoint's shared receive queue.
const SHARED_DEPTH: u32 = 1024;
/// Retries of 100 ms: the adapter has no core of its own, so that a peer that computes acknowledges nothing.
const RETRIES: u8 = 250;
const TIMEOUT: machine::Nanoseconds = machine::Nanoseconds(100_000_000);

pub(crate) struct QueuePairs<P, B> {
    pub end: Endpoint<P, B>,
    admit: Admit<P>,
    semantics: Semantics,
    flushed: bool,
    /// When the counting of the adapter's time began.
    metered: Option<(Instant, u64)>,
}

fn link(of: &LinkConfig) -> Link {
    match &of.reliability {
        None => Link { mtu: of.mtu, reliable: true, window: 1 << 10 },
        Some(reliability) => Link { mtu: of.mtu, reliable: false, window: reliability.window },
    }
}

impl<P: Port, B: Buffer> QueuePairs<P, B> {
    /// Queue pairs over a port that gets its peers while it is used.
    pub fn admitting(port: P, semantics: Semantics, admit: Admit<P>) -> Result<Self> {
        let receive = match semantics {
            Semantics::QueuePairShared => ReceiveQueues::Shared { depth: SHARED_DEPTH },
            Semantics::QueuePair | Semantics::Matched => Settings::default().receive,
        };
        let settings = Settings { receive, retry: RETRIES, timeout: TIMEOUT, ..Settings::default() };
        Ok(QueuePairs { end: Endpoint::open(port, &settings)?, admit, semantics, flushed: false, metered: None })
    }

    /// Takes in the port's new peers.
    #[cold]
    pub fn admit(&mut self) {
        while let Some(of) = (self.admit)(self.end.port_mut()) {
            self.end.admit(link(&of));
        }
    }

    #[inline]
    pub fn turn(&mut self) -> Result<()> {
        self.flushed = false;
        self.end.turn()?;
        if self.end.adapter().port().arrivals() > self.end.peers() {
            self.admit();
        }
        Ok(())
    }

    #[inline]
    pub fn poll(&mut self) -> Result<Option<Completion<B>>> {
        if !self.end.has_ended() {
            self.turn()?;
        }
        Ok(self.end.next_completion())
    }

    /// Starts counting the adapter's time: some 20 ns for each poll and each send.
    pub fn meter(&mut self) {
        self.end.meter(linux::clock::ticks);
        self.metered = Some((Instant::now(), linux::clock::ticks()));
    }

    fn adapter_time(&self) -> Option<AdapterTime> {
        let (since, first) = self.metered?;
        let counts = self.end.metered()?;
        let passed = linux::clock::ticks().wrapping_sub(first).max(1) as f64;
        let scale = since.elapsed().as_nanos() as f64 / passed;
        let in_time = |ticks: u64| (ticks as f64 * scale) as u64;
        Some(AdapterTime { nanoseconds: in_time(counts.adapter), idle_nanoseconds: in_time(counts.idle) })
    }

    /// Counts in the engine's terms.
    pub fn counters(&self) -> Counters {
        let seen = self.end.counters();
        let adapter = seen.adapter;
        Counters {
            packets_sent: adapter.packets_sent + adapter.acknowledgements,
            packets_received: adapter.packets_received,
            malformed: seen.malformed + adapter.malformed,
            duplicates: adapter.duplicates,
            out_of_order: adapter.out_of_sequence,
            retransmitted: adapter.retransmitted,
            acknowledgements: adapter.acknowledgements,
            unexpected_most: seen.unexpected_most,
            announced: seen.rendezvous,
            credit_waits: seen.held_back,
            ..seen.messages
        }
    }

    pub fn report(&self, placed: &Placed) -> Report {
        Report {
            process: std::process::id(),
            asked: placed.asked.to_string(),
            ran: placed.ran.to_string(),
            engine_turns: None,
            ports: Vec::new(),
            counters: self.counters(),
            semantics: self.semantics,
            adapter: self.adapter_time(),
            dilated: None,
            notes: vec![format!("semantics {}: an emulated channel adapter in the rank's own calls", self.semantics)],
        }
    }

    /// Flushes after the first send since the last poll.
    pub fn flush_first(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.flushed, true) { Ok(()) } else { self.end.flush() }
    }
}
