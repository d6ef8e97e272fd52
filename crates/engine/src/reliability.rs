//! Exactly once and in order over a port that loses, duplicates and reorders: sequence numbers, selective
//! acknowledgement, retransmission, a congestion window, signs of life.

use std::collections::VecDeque;

use machine::Nanoseconds;

use crate::config::ReliabilityConfig;
use crate::request::SendKey;
use crate::spares::Spares;
use crate::stored::Stored;
use crate::window::Window;
use crate::wire::Sequencing;

/// A packet counts as lost once one sent this many after it has arrived (TCP's duplicate threshold), or one sent a
/// round trip after it.
const REORDERING: u64 = 3;
/// Packets after which a receiver acknowledges soon (an answer that leaves before carries it), and packets after which
/// it acknowledges at once.
const ACKNOWLEDGE_EVERY: u32 = 16;
const ACKNOWLEDGE_SOON: Nanoseconds = Nanoseconds(20_000);
const UNACKNOWLEDGED_MOST: u32 = 64;
/// Refusals in a row, with nothing heard between, after which a peer's process counts as gone.
const REFUSALS: u32 = 3;
/// Pacing of a path that has lost packets: so many windows leave per round trip, as with Linux's TCP, in bursts of a
/// quarter of a round trip and of at least so many packets. A queue too short for a whole window holds such a burst. A
/// driver that seldom polls makes up for it by longer bursts.
const PACE: f64 = 1.2;
const BURST_OF_ROUND_TRIP: f64 = 0.25;
const BURST_LEAST: f64 = 4.0;
/// Packets sent as probes of a silent peer at each timeout after the first.
const PROBES: usize = 4;
const FIRST_TIMEOUT: Nanoseconds = Nanoseconds(50_000_000);

struct Flight {
    stored: Stored,
    /// Length of the message-layer packet.
    length: usize,
    sent_at: Nanoseconds,
    /// Number of this transmission; each retransmission gets a new one.
    order: u64,
    again: bool,
    /// Sent again after a timeout, not because later packets had arrived.
    probes: bool,
    arrived: bool,
    lost: bool,
}

/// The packets that one acknowledgement newly covers.
#[derive(Default)]
struct News {
    packets: usize,
    /// Whether one of them was sent only once.
    sent_once: bool,
    /// The latest transmission of a probe among them.
    probe: Option<(u64, Nanoseconds)>,
}

/// The fate of a packet that arrived.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The next in order: process it, then ask [`Reliability::next_waiting`].
    InOrder,
    /// Kept until those before it come.
    Held,
    /// Seen before, or too far ahead.
    Dropped,
}

/// Action that a timeout calls for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    /// There is something to transmit now.
    Transmit,
    /// The peer has been silent for too long.
    Dead,
}

pub(crate) struct Reliability {
    config: ReliabilityConfig,
    // Sending.
    next: u32,
    /// Unacknowledged packets, numbered `next - flight.len() .. next`.
    flight: VecDeque<Flight>,
    /// Packets in flight that neither arrived nor count as lost.
    outstanding: usize,
    lost: usize,
    /// No packet before this place is lost.
    lost_from: usize,
    order: u64,
    /// The latest transmission known to have arrived, and when it was sent.
    latest_arrived: u64,
    latest_sent_at: Nanoseconds,
    window: Window,
    /// When the latest packet left, and when it would have left without bursts.
    transmitted: Nanoseconds,
    paced: Nanoseconds,
    /// Recent delay of the driver in sending packets that pacing held back, ns.
    late: f64,
    /// Losses of packets sent before this transmission are one event.
    recovery: u64,
    round_trip: Option<(f64, f64)>,
    least_round_trip: Nanoseconds,
    backoff: u32,
    retransmit_at: Option<Nanoseconds>,
    // Receiving.
    expected: u32,
    /// Packets ahead of a gap; slot i: packet `expected + 1 + i`.
    waiting: VecDeque<Option<Vec<u8>>>,
    unacknowledged: u32,
    acknowledge_at: Option<Nanoseconds>,
    acknowledge_now: bool,
    // Signs of life.
    engaged: bool,
    heard: Nanoseconds,
    /// When the driver last asked for timeouts.
    looked: Nanoseconds,
    pinged: Nanoseconds,
    ping: bool,
    refusals: u32,
}

impl Reliability {
    pub fn new(config: ReliabilityConfig) -> Self {
        let first = config.first_sequence();
        Reliability {
            window: Window::new(config.window),
            config,
            next: first,
            flight: VecDeque::new(),
            outstanding: 0,
            lost: 0,
            lost_from: 0,
            order: 0,
            latest_arrived: 0,
            latest_sent_at: Nanoseconds(0),
            transmitted: Nanoseconds(0),
            paced: Nanoseconds(0),
            late: 0.0,
            recovery: 0,
            round_trip: None,
            least_round_trip: Nanoseconds(0),
            backoff: 0,
            retransmit_at: None,
            expected: first,
            waiting: VecDeque::new(),
            unacknowledged: 0,
            acknowledge_at: None,
            acknowledge_now: false,
            engaged: false,
            heard: Nanoseconds(0),
            looked: Nanoseconds(0),
            pinged: Nanoseconds(0),
            ping: false,
            refusals: 0,
        }
    }

    pub fn session(&self) -> u32 {
        self.config.session
    }

    /// Whether everything sent has arrived, and the peer was told of everything that arrived here.
    pub fn is_quiet(&self) -> bool {
        self.flight.is_empty() && self.acknowledge_at.is_none() && !self.acknowledge_now
    }

    /// Whether a new packet may leave now.
    pub fn may_send(&self, now: Nanoseconds) -> bool {
        self.lost == 0
            && self.has_room()
            && self.flight.len() < self.config.window as usize
            && self.held_until().is_none_or(|at| at <= now)
    }

    fn has_room(&self) -> bool {
        (self.outstanding as f64) < self.window.packets()
    }

    /// Interval of packets, and how far a burst may be ahead of it, ns; `None` on a path that has lost nothing.
    fn pace(&self) -> Option<(f64, f64)> {
        if !self.window.has_lost() {
            return None;
        }
        let (round_trip, _) = self.round_trip?;
        let each = round_trip / (PACE * self.window.packets());
        let late = self.late.min(round_trip);
        Some((each, (BURST_OF_ROUND_TRIP * round_trip).max(BURST_LEAST * each).max(late)))
    }

    /// When the next packet may leave.
    fn held_until(&self) -> Option<Nanoseconds> {
        let (_, ahead) = self.pace()?;
        Some(Nanoseconds(self.paced.0.saturating_sub(ahead as u64)))
    }

    /// The packet to retransmit next: its index for [`Reliability::resend`], and its length.
    pub fn to_resend(&self, now: Nanoseconds) -> Option<(usize, usize)> {
        if self.lost == 0 {
            return None;
        }
        let place = self.lost_from + self.flight.range(self.lost_from..).position(|packet| packet.lost)?;
        // The oldest may always go: while it is missing, the peer cannot acknowledge packets far beyond it.
        if place > 0 && (!self.has_room() || self.held_until().is_some_and(|at| at > now)) {
            return None;
        }
        Some((place, self.flight[place].length))
    }

    /// How to make the packet in flight at `place` again, and its length.
    pub fn stored(&self, place: usize) -> (&Stored, usize) {
        let packet = &self.flight[place];
        (&packet.stored, packet.length)
    }

    pub fn resend(&mut self, now: Nanoseconds, place: usize) -> Sequencing {
        let order = self.transmission(now);
        let sequence = self.oldest().wrapping_add(place as u32);
        let packet = &mut self.flight[place];
        packet.lost = false;
        packet.again = true;
        packet.sent_at = now;
        packet.order = order;
        self.lost -= 1;
        self.lost_from = place + 1;
        self.outstanding += 1;
        self.ping |= self.flight[place].stored.ends_a_message() || self.waits_soon();
        self.header(sequence, true)
    }

    pub fn send(&mut self, now: Nanoseconds, stored: Stored, length: usize) -> Sequencing {
        let order = self.transmission(now);
        let sequence = self.next;
        self.ping |= stored.ends_a_message();
        self.flight.push_back(Flight {
            stored,
            length,
            sent_at: now,
            order,
            again: false,
            probes: false,
            arrived: false,
            lost: false,
        });
        self.next = self.next.wrapping_add(1);
        self.outstanding += 1;
        self.ping |= self.waits_soon();
        self.header(sequence, true)
    }

    /// Whether the window is full, and too small for the receiver to acknowledge it unasked.
    fn waits_soon(&self) -> bool {
        self.window.packets() < f64::from(UNACKNOWLEDGED_MOST) && !self.has_room()
    }

    fn transmission(&mut self, now: Nanoseconds) -> u64 {
        self.engage(now);
        self.retransmit_at.get_or_insert(now + self.timeout());
        self.transmitted = now;
        if let Some((each, _)) = self.pace() {
            self.paced = self.paced.max(now) + Nanoseconds(each as u64);
        }
        self.order += 1;
        self.order
    }

    /// Keeps copies, made by `copy`, of the packets in flight with bytes of `send`, whose buffer goes away.
    pub fn keep(&mut self, send: SendKey, spares: &mut Spares, mut copy: impl FnMut(&Stored, &mut [u8])) {
        for packet in self.flight.iter_mut().rev().filter(|packet| packet.stored.in_buffer_of() == Some(send)) {
            let is_first = matches!(packet.stored, Stored::Eager { offset: 0, .. });
            // A packet that has arrived is not sent again.
            let length = if packet.arrived { 0 } else { packet.length };
            packet.stored = Stored::Copy(spares.filled(length, |into| copy(&packet.stored, into)));
            if is_first {
                break;
            }
        }
    }

    /// Starts counting the peer's silence.
    pub fn engage(&mut self, now: Nanoseconds) {
        if !self.engaged {
            self.engaged = true;
            self.heard = now;
            self.looked = now;
            self.pinged = now;
        }
    }

    pub fn is_engaged(&self) -> bool {
        self.engaged
    }

    fn acknowledge_by(&mut self, at: Nanoseconds) {
        self.acknowledge_at = Some(self.acknowledge_at.map_or(at, |already| already.min(at)));
    }

    /// Whether an acknowledgement should leave even without a packet to carry it.
    pub fn must_acknowledge(&self, now: Nanoseconds) -> bool {
        self.acknowledge_now
            || self.ping
            || self.unacknowledged >= UNACKNOWLEDGED_MOST
            || self.acknowledge_at.is_some_and(|at| at <= now)
    }

    pub fn acknowledge(&mut self) -> Sequencing {
        self.header(self.next, false)
    }

    fn header(&mut self, sequence: u32, carries: bool) -> Sequencing {
        let mut beyond = 0;
        for (i, packet) in self.waiting.iter().take(64).enumerate() {
            beyond |= u64::from(packet.is_some()) << i;
        }
        self.unacknowledged = 0;
        self.acknowledge_at = None;
        self.acknowledge_now = false;
        let ping = std::mem::take(&mut self.ping);
        let (session, expected) = (self.config.session, self.expected);
        Sequencing { session, sequence, expected, beyond, carries, ping, acknowledged: false }
    }

    fn oldest(&self) -> u32 {
        self.next.wrapping_sub(self.flight.len() as u32)
    }

    fn timeout(&self) -> Nanoseconds {
        let base = self.usual_timeout().0.max(self.config.timeout_least.0);
        Nanoseconds((base << self.backoff.min(10)).min(self.config.timeout_most.0))
    }

    fn usual_timeout(&self) -> Nanoseconds {
        match self.round_trip {
            Some((mean, deviation)) => Nanoseconds((mean + 4.0 * deviation) as u64),
            None => FIRST_TIMEOUT,
        }
    }

    /// Takes in the acknowledgement part of a header; `release` gets each packet that need not be kept any longer, in
    /// order.
    pub fn acknowledged(&mut self, now: Nanoseconds, header: &Sequencing, mut release: impl FnMut(Stored)) {
        self.engage(now);
        self.heard = now;
        self.refusals = 0;
        if header.ping {
            // Not before the driver next reads the clock: an answer to this very packet may carry it.
            self.acknowledge_by(now + Nanoseconds(1));
        }
        let oldest = self.oldest();
        let advanced = header.expected.wrapping_sub(oldest) as usize;
        if advanced > self.flight.len() {
            return;
        }
        let mut news = News::default();
        let mut sample = None;
        for _ in 0..advanced {
            let packet = self.flight.pop_front().expect("counted");
            if !packet.arrived {
                if packet.lost {
                    self.lost -= 1;
                } else {
                    self.outstanding -= 1;
                }
                self.note_arrival(now, &mut news, (packet.order, packet.sent_at), (packet.again, packet.probes));
                if !packet.again {
                    sample = Some(now - packet.sent_at.min(now));
                }
            }
            release(packet.stored);
        }
        self.lost_from = self.lost_from.saturating_sub(advanced);
        let mut bits = header.beyond;
        while bits != 0 {
            let place = bits.trailing_zeros() as usize + 1;
            bits &= bits - 1;
            let Some(packet) = self.flight.get_mut(place) else { break };
            if !packet.arrived {
                packet.arrived = true;
                if std::mem::take(&mut packet.lost) {
                    self.lost -= 1;
                } else {
                    self.outstanding -= 1;
                }
                let (sent, again) = ((packet.order, packet.sent_at), (packet.again, packet.probes));
                self.note_arrival(now, &mut news, sent, again);
            }
        }
        if let Some(sample) = sample {
            self.learn_round_trip(sample);
        }
        if news.packets > 0 {
            if let Some((order, sent_at)) = news.probe.filter(|_| !news.sent_once) {
                self.arrived_last(order, sent_at);
            }
            self.backoff = 0;
            self.window.grow(news.packets);
            self.find_losses();
        }
        if advanced > 0 || news.packets > 0 {
            self.retransmit_at = (!self.flight.is_empty()).then(|| now + self.timeout());
        }
    }

    /// The transmission that this arrival proves. Of a packet sent twice the first copy may be what arrived: if the
    /// second cannot have made the round trip yet, it proves nothing (RFC 8985, section 6.2, step 2). Nor does a probe whose
    /// acknowledgement covers packets sent once as well: the peer had not been scheduled, and packets that it has not read yet
    /// are not lost (RFC 5682, section 3.1).
    fn note_arrival(
        &mut self,
        now: Nanoseconds,
        news: &mut News,
        (order, sent_at): (u64, Nanoseconds),
        (again, probes): (bool, bool),
    ) {
        news.packets += 1;
        news.sent_once |= !again;
        if again && now < sent_at + self.least_round_trip {
            return;
        }
        if probes {
            news.probe = news.probe.max(Some((order, sent_at)));
        } else {
            self.arrived_last(order, sent_at);
        }
    }

    fn arrived_last(&mut self, order: u64, sent_at: Nanoseconds) {
        if order > self.latest_arrived {
            (self.latest_arrived, self.latest_sent_at) = (order, sent_at);
        }
    }

    fn learn_round_trip(&mut self, sample: Nanoseconds) {
        if self.round_trip.is_none() || sample < self.least_round_trip {
            self.least_round_trip = sample;
        }
        self.late -= self.late / 256.0;
        let sample = sample.0 as f64;
        self.round_trip = Some(match self.round_trip {
            None => (sample, sample / 2.0),
            Some((mean, deviation)) => {
                (mean + (sample - mean) / 8.0, deviation + ((sample - mean).abs() - deviation) / 4.0)
            }
        });
    }

    fn find_losses(&mut self) {
        let latest = self.latest_arrived;
        let patience = self.usual_timeout();
        let mut newest_lost = 0;
        // A later packet always has a later first transmission, so the search ends at the first one sent too recently
        // that was never retransmitted.
        for (place, packet) in self.flight.iter_mut().enumerate() {
            let overtaken = packet.order + REORDERING <= latest
                || (packet.order < latest && packet.sent_at + patience <= self.latest_sent_at);
            if !overtaken && !packet.again {
                break;
            }
            if overtaken && !packet.arrived && !packet.lost {
                packet.lost = true;
                packet.probes = false;
                self.lost += 1;
                self.lost_from = self.lost_from.min(place);
                self.outstanding -= 1;
                newest_lost = newest_lost.max(packet.order);
            }
        }
        if newest_lost > self.recovery {
            self.recovery = self.order;
            self.window.shrink();
        }
    }

    /// Judges the packet after `header`. A held one is copied.
    pub fn arrived(&mut self, now: Nanoseconds, header: &Sequencing, packet: &[u8], spares: &mut Spares) -> Arrival {
        let ahead = header.sequence.wrapping_sub(self.expected);
        if header.acknowledged && ahead == 0 {
            self.expected = self.expected.wrapping_add(1);
            self.unacknowledged = 0;
            self.acknowledge_at = None;
            return Arrival::InOrder;
        }
        self.unacknowledged += 1;
        if self.unacknowledged == 1 {
            self.acknowledge_by(now + self.config.acknowledge_after);
        } else if self.unacknowledged == ACKNOWLEDGE_EVERY {
            self.acknowledge_by(now + ACKNOWLEDGE_SOON);
        }
        if ahead == 0 {
            self.expected = self.expected.wrapping_add(1);
            return Arrival::InOrder;
        }
        // A gap or a duplicate: the sender should hear of it now.
        self.acknowledge_now = true;
        if ahead > self.config.window {
            return Arrival::Dropped;
        }
        let place = ahead as usize - 1;
        if self.waiting.len() <= place {
            self.waiting.resize_with(place + 1, || None);
        }
        match &mut self.waiting[place] {
            Some(_) => Arrival::Dropped,
            empty => {
                *empty = Some(spares.copy_of(packet));
                Arrival::Held
            }
        }
    }

    /// The next held packet whose turn has come. Call it after each packet processed in order, until `None`.
    pub fn next_waiting(&mut self) -> Option<Vec<u8>> {
        // The slot of the packet just processed has gone with it: what was `expected + 1 + i` is now `expected + i`.
        let packet = self.waiting.pop_front()?;
        match packet {
            Some(packet) => {
                self.expected = self.expected.wrapping_add(1);
                Some(packet)
            }
            None => None,
        }
    }

    /// Takes in that a host refused our packet.
    pub fn refused(&mut self) -> Due {
        self.refusals += 1;
        if self.refusals >= REFUSALS { Due::Dead } else { Due::Nothing }
    }

    #[inline]
    pub fn next_timeout(&self) -> Option<Nanoseconds> {
        if !self.engaged {
            return None;
        }
        let ping = self.pinged.max(self.heard) + self.config.ping_after;
        let silence = self.heard + self.config.silence_limit;
        let signs = ping.min(silence);
        let held = self.held_until().filter(|at| *at > self.transmitted.max(self.looked));
        Some([self.retransmit_at, self.acknowledge_at, held].into_iter().flatten().fold(signs, Nanoseconds::min))
    }

    pub fn handle_timeout(&mut self, now: Nanoseconds) -> Due {
        let mut due = Due::Nothing;
        if !self.engaged {
            return due;
        }
        // Nothing could be heard while nobody polled: a process that computed or was stopped for a minute must not take
        // its own absence for the peer's.
        let away = now.0.saturating_sub(self.looked.0).saturating_sub(2 * self.config.ping_after.0);
        self.heard = Nanoseconds(self.heard.0 + away).min(now.max(self.heard));
        let looked = std::mem::replace(&mut self.looked, now);
        if now >= self.heard + self.config.silence_limit {
            return Due::Dead;
        }
        if let Some(at) = self.held_until().filter(|at| *at > looked.max(self.transmitted) && *at <= now) {
            self.late = self.late.max((now - at).0 as f64);
            due = Due::Transmit;
        }
        if self.retransmit_at.is_some_and(|at| at <= now) {
            // The oldest go again as probes, at first a single one: a peer that merely computes costs few packets. Once
            // a probe has arrived, packets sent before it that have not are known to be lost.
            let probes = if self.backoff == 0 { 1 } else { PROBES };
            let oldest = self.flight.iter_mut().enumerate().filter(|(_, packet)| !packet.arrived && !packet.lost);
            for (place, packet) in oldest.take(probes) {
                packet.lost = true;
                packet.probes = true;
                self.lost += 1;
                self.lost_from = self.lost_from.min(place);
                self.outstanding -= 1;
            }
            self.backoff += 1;
            self.retransmit_at = Some(now + self.timeout());
            due = Due::Transmit;
        }
        if now >= self.pinged.max(self.heard) + self.config.ping_after {
            self.ping = true;
            self.pinged = now;
            due = Due::Transmit;
        }
        if self.acknowledge_at.is_some_and(|at| at <= now) {
            due = Due::Transmit;
        }
        due
    }
}
