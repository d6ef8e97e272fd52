//! Finite buffers: what was sent at once over a connection, and was not yet taken out at its other end.
//!
//! A connection is an ordered pair of ranks. Its messages pass in the order in which they were sent: whole where they fit into
//! the buffer, else in quarters of it. A rendezvous does not pass it. Of the n-th parcel:
//! ```text
//! placed    = P_sender(max(sent, the room of those before it that have to make place for it))
//! delivered = max(placed, end of the parcel before it in its message) + its part of the trip
//! drained   = P_receiver(delivered)
//! room      = drained + latency
//! ```
//! `P(t)` is t where the thread is in a call or somebody else moves messages, else its next entry. The latency is the trip of
//! the smallest message without the work of its ends. A call that waits for its sends waits until they are placed; one that
//! only begins them does not. The library that drains takes in whatever comes, whether its receive is posted or not.

use std::collections::{HashMap, VecDeque};
use std::fmt;

use machine::{Bytes, Fault, Result};

use super::{Conditions, NO_LANE, Replay, UNKNOWN};
use crate::graph::{CallId, Graph, Reach};
use crate::model::Price;

/// The buffer of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Buffer {
    #[default]
    Unlimited,
    /// A buffer of at least one byte.
    Of(Bytes),
    /// A socket's buffer, behind which the sender's library keeps more bytes, which move in calls of the sender.
    Behind { socket: Bytes, library: Bytes },
}

impl fmt::Display for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Buffer::Unlimited => f.write_str("unlimited"),
            Buffer::Of(size) => write!(f, "of {size}"),
            Buffer::Behind { socket, library } => write!(f, "of {socket}, behind {library} of the library"),
        }
    }
}

impl std::str::FromStr for Buffer {
    type Err = Fault;

    /// `64KiB`, `64KiB+256KiB` with what the library keeps, `unlimited`.
    fn from_str(text: &str) -> Result<Buffer> {
        let size = |text: &str| match text.parse()? {
            Bytes(0) => Err(Fault::new("buffer 0", "nothing can pass it", "write 1 or more bytes, or unlimited")),
            size => Ok(size),
        };
        match text.split_once('+') {
            _ if text == "unlimited" => Ok(Buffer::Unlimited),
            Some((socket, library)) => Ok(Buffer::Behind { socket: size(socket)?, library: size(library)? }),
            None => size(text).map(Buffer::Of),
        }
    }
}

/// Parcels into which a message larger than the buffer is cut, per buffer.
const PARCELS: u64 = 4;

#[derive(Debug)]
pub(super) struct Buffers {
    size: u64,
    /// Bytes that the sender's library keeps in addition.
    library: u64,
    /// Latencies within hosts and between them, ps.
    latency: [i64; 2],
    /// Indices of connections by their ranks.
    places: HashMap<[u32; 2], usize>,
    connections: Vec<Connection>,
    parcels: Vec<Parcel>,
    /// Indices of unused `parcels`.
    unused: Vec<usize>,
    pub(super) held: HashMap<u32, Held>,
}

#[derive(Debug, Default)]
struct Connection {
    used: u64,
    queue: VecDeque<Queued>,
    /// Whether the sender continues with the queue at its next entry.
    deferred: bool,
}

/// A message that is not yet entirely in the buffer.
#[derive(Debug, Clone, Copy)]
struct Queued {
    message: u32,
    sent: i64,
    placed: u64,
    /// When its latest parcel left.
    gone: i64,
}

/// The beginning of what a message waited for.
#[derive(Debug, Clone, Copy)]
struct Origin {
    begun: i64,
    call: CallId,
    trips: u32,
}

#[derive(Debug, Clone, Copy)]
struct Parcel {
    stage: Stage,
    connection: usize,
    message: u32,
    /// Whether it is the last of its message.
    last: bool,
    bytes: u64,
    /// Its part of the message's price.
    price: Price,
    origin: Origin,
}

/// The next stage of a parcel.
#[derive(Debug, Clone, Copy)]
enum Stage {
    Arrives,
    Delivered,
    Room,
    /// No parcel: the sender continues with its queue.
    Entry,
}

/// A message that had to wait for room.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    /// The lane that waits until all of it is kept.
    lane: u32,
    /// When all of it was kept, by the buffer or the library.
    pub(crate) kept: i64,
    pub(crate) placed: i64,
    /// When the last thing that it waited for began, the call that began it, and the trips since.
    pub(crate) begun: i64,
    pub(crate) call: CallId,
    pub(crate) trips: u32,
}

/// Whether there was room for a message.
pub(super) enum Room {
    Had,
    /// There was room, at this instant.
    Came(i64),
    Waits,
}

impl Buffers {
    pub(super) fn of(graph: &Graph, conditions: &Conditions) -> Option<Box<Buffers>> {
        let (size, library) = match conditions.buffer {
            Buffer::Unlimited => return None,
            Buffer::Of(size) => (size, Bytes(0)),
            Buffer::Behind { socket, library } => (socket, library),
        };
        let latency = |reach: Reach| {
            let of_reach = graph.kinds.iter().zip(&conditions.prices.kinds).filter(|(kind, _)| kind.reach == reach);
            let each = of_reach.filter(|(kind, _)| kind.trips > 0).map(|(kind, price)| {
                price.trip / i64::from(kind.trips) - price.send - price.receive - 2 * price.engine
            });
            each.min().unwrap_or(0).max(0)
        };
        Some(Box::new(Buffers {
            size: size.0.max(1),
            library: library.0,
            latency: [latency(Reach::Host), latency(Reach::Between)],
            places: HashMap::new(),
            connections: Vec::new(),
            parcels: Vec::new(),
            unused: Vec::new(),
            held: HashMap::new(),
        }))
    }

    fn connection(&mut self, ranks: [u32; 2]) -> usize {
        let next = self.connections.len();
        let place = *self.places.entry(ranks).or_insert(next);
        if place == next {
            self.connections.push(Connection::default());
        }
        place
    }

    /// Whether all that was sent was taken out.
    pub(super) fn are_empty(&self) -> bool {
        self.connections.iter().all(|of| of.used == 0 && of.queue.is_empty())
    }

    fn keep(&mut self, parcel: Parcel) -> usize {
        match self.unused.pop() {
            Some(place) => {
                self.parcels[place] = parcel;
                place
            }
            None => {
                self.parcels.push(parcel);
                self.parcels.len() - 1
            }
        }
    }
}

/// The part of `whole` for the bytes from `from` to `to` of `bytes`.
fn part(whole: i64, from: u64, to: u64, bytes: u64) -> i64 {
    let until = |byte: u64| (i128::from(whole) * i128::from(byte) / i128::from(bytes)) as i64;
    until(to) - until(from)
}

impl Replay<'_, '_> {
    /// Whether a message that is sent at once was placed; the lane is woken when it is.
    pub(super) fn room(&mut self, place: usize, message: u32) -> Room {
        match self.buffers.as_mut().and_then(|buffers| buffers.held.get_mut(&message)) {
            None => Room::Had,
            Some(held) if held.kept == UNKNOWN => {
                held.lane = place as u32;
                Room::Waits
            }
            Some(held) if held.kept < held.placed || held.placed == UNKNOWN => Room::Came(held.kept),
            Some(held) => Room::Came(held.placed),
        }
    }

    /// Queues a message that is sent at once, and moves what there is room for.
    pub(super) fn queue(&mut self, message: u32, now: i64) {
        let graph = self.graph;
        let Some(mut buffers) = self.buffers.take() else { return };
        let of = graph.messages[message as usize];
        let ranks = [of.sender, of.receiver].map(|call| graph.lanes[graph.lane(call)].rank);
        let connection = buffers.connection(ranks);
        buffers.connections[connection].queue.push_back(Queued { message, sent: now, placed: 0, gone: i64::MIN });
        self.pump(&mut buffers, connection, now, Origin { begun: now, call: of.sender, trips: 0 });
        if buffers.connections[connection].queue.back().is_some_and(|last| last.message == message) {
            let held = Held { lane: NO_LANE, kept: UNKNOWN, placed: UNKNOWN, begun: now, call: of.sender, trips: 0 };
            buffers.held.insert(message, held);
            self.keep(&mut buffers, connection, now);
        }
        self.buffers = Some(buffers);
    }

    /// Wakes senders whose messages the library has kept entirely.
    fn keep(&mut self, buffers: &mut Buffers, connection: usize, now: i64) {
        let Buffers { library, connections, held, .. } = buffers;
        let mut left = 0;
        for Queued { message, placed, .. } in &connections[connection].queue {
            left += self.graph.kinds[self.graph.messages[*message as usize].kind as usize].bytes.max(1) - placed;
            if left > *library {
                return;
            }
            let Some(held) = held.get_mut(message).filter(|held| held.kept == UNKNOWN) else { continue };
            held.kept = now;
            match std::mem::replace(&mut held.lane, NO_LANE) {
                NO_LANE => {}
                lane => self.wake(lane),
            }
        }
    }

    /// Moves what there is room for; `origin` made the room.
    fn pump(&mut self, buffers: &mut Buffers, connection: usize, now: i64, origin: Origin) {
        let graph = self.graph;
        while let Some(first) = buffers.connections[connection].queue.front() {
            let Queued { message, sent, placed, gone } = *first;
            let of = graph.messages[message as usize];
            let kind = graph.kinds[of.kind as usize];
            let whole = kind.bytes.max(1);
            let most = if whole <= buffers.size { whole } else { buffers.size.div_ceil(PARCELS) };
            let end = whole.min(placed + most);
            if buffers.connections[connection].used + end - placed > buffers.size {
                return;
            }
            if let Some((entered, call)) = self.next_in_call(graph.lane(of.sender), now) {
                if !std::mem::replace(&mut buffers.connections[connection].deferred, true) {
                    let origin = Origin { begun: entered, call, trips: 0 };
                    let (stage, price) = (Stage::Entry, Price::default());
                    let next = Parcel { stage, connection, message, last: false, bytes: 0, price, origin };
                    self.later(graph.messages.len() + buffers.keep(next), entered);
                }
                return;
            }
            let (at, waited) = (now.max(sent), now > sent);
            let origin = if waited { origin } else { Origin { begun: sent, call: of.sender, trips: 0 } };
            let price = self.price(message);
            let latency = buffers.latency[kind.reach as usize].min(price.trip);
            let part = |of: i64| part(of, placed, end, whole);
            let price =
                Price { trip: part(price.trip - latency), engine: part(price.engine), link: part(price.link), ..price };
            let [from, _] = self.hosts(message);
            let gone =
                gone.max(self.servers.depart(from, at, &price)) + (price.trip - 2 * price.engine - price.link).max(0);
            let last = end == whole;
            let is_served = price.engine > 0 || price.link > 0;
            let stage = if is_served { Stage::Arrives } else { Stage::Delivered };
            if last && matches!(stage, Stage::Delivered) {
                self.settle(message, gone + latency);
            }
            let parcel = Parcel { stage, connection, message, last, bytes: end - placed, price, origin };
            self.later(graph.messages.len() + buffers.keep(parcel), gone + latency);
            let of = &mut buffers.connections[connection];
            of.used += end - placed;
            if !last {
                of.queue[0] = Queued { message, sent, placed: end, gone };
                self.keep(buffers, connection, at);
                continue;
            }
            of.queue.pop_front();
            let before = buffers.held.remove(&message);
            if waited {
                let Origin { begun, call, trips } = origin;
                let kept = before.map(|before| before.kept).filter(|kept| *kept != UNKNOWN).unwrap_or(at);
                buffers.held.insert(message, Held { lane: NO_LANE, kept, placed: at, begun, call, trips });
            }
            if let Some(Held { lane, .. }) = before.filter(|before| before.lane != NO_LANE) {
                self.wake(lane);
            }
            self.keep(buffers, connection, at);
        }
    }

    /// The next stage of a parcel.
    pub(super) fn parcel(&mut self, place: usize, now: i64) {
        let graph = self.graph;
        let Some(mut buffers) = self.buffers.take() else { return };
        let Parcel { stage, connection, message, last, bytes, price, origin } = buffers.parcels[place];
        match stage {
            Stage::Arrives => {
                let [_, to] = self.hosts(message);
                let got = self.servers.arrive(to, now, &price);
                if last {
                    self.settle(message, got);
                }
                buffers.parcels[place].stage = Stage::Delivered;
                self.later(graph.messages.len() + place, got);
            }
            Stage::Delivered => {
                let of = graph.messages[message as usize];
                let once = Origin { trips: origin.trips + 1, ..origin };
                let next = self.next_in_call(graph.lane(of.receiver), now);
                let (drained, origin) =
                    next.map_or((now, once), |(entered, call)| (entered, Origin { begun: entered, call, trips: 0 }));
                let reach = graph.kinds[of.kind as usize].reach;
                buffers.parcels[place].stage = Stage::Room;
                buffers.parcels[place].origin = Origin { trips: origin.trips + 1, ..origin };
                self.later(graph.messages.len() + place, drained + buffers.latency[reach as usize]);
            }
            Stage::Room => {
                buffers.unused.push(place);
                buffers.connections[connection].used -= bytes;
                self.pump(&mut buffers, connection, now, origin);
            }
            Stage::Entry => {
                buffers.unused.push(place);
                buffers.connections[connection].deferred = false;
                self.pump(&mut buffers, connection, now, origin);
            }
        }
        self.buffers = Some(buffers);
    }
}
