//! One direction of a simulated link: a token bucket's rate, a queue, a delay, loss.

use std::collections::VecDeque;

/// Delay on the way, ns.
const DELAY: u64 = 30_000;

pub struct Link {
    bytes_per_ns: f64,
    queue: u64,
    loss: f64,
    random: u64,
    free_at: u64,
    /// Packets on the way: arrival time, stream, packet.
    on_the_way: VecDeque<(u64, usize, Vec<u8>)>,
}

impl Link {
    pub fn new(megabits: f64, queue: u64, loss: f64, seed: u64) -> Link {
        let bytes_per_ns = megabits / 8e3;
        Link { bytes_per_ns, queue, loss, random: seed, free_at: 0, on_the_way: VecDeque::new() }
    }

    fn chance(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn put(&mut self, now: u64, stream: usize, packet: Vec<u8>) {
        let starts = self.free_at.max(now);
        if starts - now > self.queue {
            return;
        }
        // With the Ethernet, IP and UDP headers.
        self.free_at = starts + ((packet.len() + 66) as f64 / self.bytes_per_ns) as u64;
        if self.chance() >= self.loss {
            self.on_the_way.push_back((self.free_at + DELAY, stream, packet));
        }
    }

    /// The next packet that has arrived by `now`, with its stream.
    pub fn take(&mut self, now: u64) -> Option<(usize, Vec<u8>)> {
        self.on_the_way
            .front()
            .is_some_and(|(at, ..)| *at <= now)
            .then(|| self.on_the_way.pop_front())?
            .map(|(_, s, p)| (s, p))
    }
}
