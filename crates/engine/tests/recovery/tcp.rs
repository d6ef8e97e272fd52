//! A competing stream on a link shared with the engine: congestion control as in kernel TCP where round trips are short
//! (RFC 9438, section 4.3, the Reno-friendly region), with HyStart (section 4.10), selective acknowledgement (RFC 6675)
//! and an acknowledgement for every second packet.

use std::collections::VecDeque;

use super::link::Link;
use super::{End, MTU};

const FIRST_WINDOW: f64 = 10.0;
const SHRINKAGE: f64 = 0.7;
const GROWTH: f64 = 3.0 * (1.0 - SHRINKAGE) / (1.0 + SHRINKAGE);
const DUPLICATES: u64 = 3;
const TIMEOUT: u64 = 200_000_000;

struct Flight {
    number: u64,
    sent_at: u64,
    lost: bool,
}

pub struct Sender {
    window: f64,
    threshold: f64,
    next: u64,
    flight: VecDeque<Flight>,
    lost: usize,
    highest: u64,
    recovery: u64,
    least_round_trip: u64,
    heard: u64,
}

impl Sender {
    pub fn new() -> Sender {
        Sender {
            window: FIRST_WINDOW,
            threshold: f64::INFINITY,
            next: 0,
            flight: VecDeque::new(),
            lost: 0,
            highest: 0,
            recovery: 0,
            least_round_trip: u64::MAX,
            heard: 0,
        }
    }

    fn grow(&mut self, round_trip: u64) {
        if self.window >= self.threshold {
            self.window += GROWTH / self.window;
            return;
        }
        self.window += 1.0;
        let late = (self.least_round_trip / 8).clamp(4_000_000, 16_000_000);
        if self.window >= 16.0 && round_trip > self.least_round_trip + late {
            self.threshold = self.window;
        }
    }

    fn shrink(&mut self, to: f64) {
        self.recovery = self.next;
        self.window = to;
        self.threshold = (self.window * SHRINKAGE).max(2.0);
    }

    fn give_up(&mut self, of: impl Fn(&Flight) -> bool) -> bool {
        let mut first = false;
        for packet in self.flight.iter_mut().filter(|packet| !packet.lost && of(packet)) {
            packet.lost = true;
            self.lost += 1;
            first |= packet.number >= self.recovery;
        }
        first
    }
}

impl End for Sender {
    /// An acknowledgement: when the last of its packets was sent, then their numbers.
    fn handle(&mut self, now: u64, packet: &[u8]) {
        let words: Vec<u64> = packet.chunks(8).map(|word| u64::from_le_bytes(word.try_into().expect("8"))).collect();
        let (sent_at, numbers) = words.split_first().expect("it has a time");
        let round_trip = now - sent_at;
        self.least_round_trip = self.least_round_trip.min(round_trip);
        self.heard = now;
        for number in numbers {
            self.highest = self.highest.max(*number);
            let Some(at) = self.flight.iter().position(|packet| packet.number == *number) else { continue };
            self.lost -= usize::from(self.flight.remove(at).is_some_and(|packet| packet.lost));
            self.grow(round_trip);
        }
        let highest = self.highest;
        if self.give_up(|packet| packet.number + DUPLICATES <= highest && packet.sent_at < *sent_at) {
            self.window = (self.window * SHRINKAGE).max(2.0);
            self.shrink(self.window);
            self.threshold = self.window;
        }
    }

    fn turn(&mut self, now: u64, stream: usize, to: &mut Link) {
        if now > self.heard + TIMEOUT && !self.flight.is_empty() {
            self.give_up(|_| true);
            self.threshold = (self.window * SHRINKAGE).max(2.0);
            (self.window, self.recovery, self.heard) = (1.0, self.next, now);
        }
        while ((self.flight.len() - self.lost) as f64) < self.window {
            let number = match self.flight.iter_mut().find(|packet| packet.lost) {
                Some(packet) => {
                    (packet.lost, packet.sent_at) = (false, now);
                    self.lost -= 1;
                    packet.number
                }
                None => {
                    self.flight.push_back(Flight { number: self.next, sent_at: now, lost: false });
                    self.next += 1;
                    self.next - 1
                }
            };
            let mut packet = vec![0; MTU];
            packet[..8].copy_from_slice(&number.to_le_bytes());
            packet[8..16].copy_from_slice(&now.to_le_bytes());
            to.put(now, stream, packet);
        }
    }

    fn received(&mut self) -> u64 {
        0
    }
}

/// How long one packet waits for a second to be acknowledged with.
const DELAYED: u64 = 40_000_000;

#[derive(Default)]
pub struct Receiver {
    received: u64,
    /// Number of the next packet in order.
    next: u64,
    /// When the last packet was sent, the unacknowledged numbers, and when they must be acknowledged.
    sent_at: u64,
    numbers: Vec<u64>,
    due: u64,
}

impl End for Receiver {
    fn handle(&mut self, now: u64, packet: &[u8]) {
        let word = |at: usize| u64::from_le_bytes(packet[at..at + 8].try_into().expect("8"));
        self.received += packet.len() as u64;
        let number = word(0);
        // Out of order: the sender is to learn of it at once.
        let at_once = number != self.next || self.numbers.len() % 2 == 1;
        self.due = if at_once { now } else { now + DELAYED };
        self.next = self.next.max(number + 1);
        self.numbers.push(number);
        self.sent_at = word(8);
    }

    fn turn(&mut self, now: u64, stream: usize, to: &mut Link) {
        let waits = if self.due > now { self.numbers.len() % 2 } else { 0 };
        let told: Vec<u64> = self.numbers.drain(..self.numbers.len() - waits).collect();
        for two in told.chunks(2) {
            let words = [self.sent_at].into_iter().chain(two.iter().copied());
            to.put(now, stream, words.flat_map(u64::to_le_bytes).collect());
        }
    }

    fn received(&mut self) -> u64 {
        std::mem::take(&mut self.received)
    }
}
