//! All blocks of a request, alternating the semantics within each round.

use std::time::Duration;

use endpoint::Driver;
use machine::{Fault, Probe, Result};
use queue_pair::Endpoint;
use rounds::blocks::{self, Blocks, Plan};
use rounds::clocks::Clocks;

use super::layer::{Layer, Message};
use super::pace::Pace;
use super::used::used;
use super::wiring::{self, Ports, Wired, World};
use super::work::Buffers;
use super::{BlockValues, Carrier, Cell, Flood, Footprint, Measured, Order, Outcome, Quantity, Request, Semantics};

/// Most messages of a peer in one pass, and of all peers together.
const EACH_MOST: u32 = 32;
const PASS_MOST: u32 = 4096;
const PASS_MOST_UDP: u32 = 512;

impl Carrier {
    /// Number of messages of a block of about 20 ms.
    pub fn messages_of_block(self) -> u64 {
        match self {
            Carrier::Memory => 100_000,
            Carrier::Shm => 60_000,
            Carrier::Udp => 8_000,
        }
    }
}

/// The kinds of blocks; some give two quantities.
const BLOCKS: [Quantity; 5] =
    [Quantity::SendWork, Quantity::ReceiveWork, Quantity::SendRate, Quantity::ReceiveRate, Quantity::HalfRoundTrip];

/// A block to run.
struct Block<'a> {
    quantity: Quantity,
    sequence: &'a [u32],
    each: u32,
    messages: u64,
    size: usize,
    request: &'a Request,
}

/// Time of a block between cores, unless its messages are fewer; on a crowded machine, where every wait is for a scheduler, a
/// block has few of them.
const BLOCK: Duration = Duration::from_millis(30);
const TRIAL_TRIPS: usize = 16;

/// How many repetitions of a trial fill a block, `most` at most.
fn fitting(most: u32, trial: &Pace) -> u32 {
    let times = BLOCK.as_secs_f64() / trial.elapsed.as_secs_f64().max(1e-9);
    (times as u32).clamp(1, most)
}

/// A world of any layer.
trait Runs {
    fn block(&mut self, block: &Block) -> Result<Vec<(Quantity, f64)>>;
    fn in_flight(&mut self) -> Result<machine::Reading<machine::Bytes>>;
    fn flood(&mut self, semantics: Semantics) -> Result<Flood>;
    fn remarks(&self) -> Vec<String>;
}

impl<L: Layer> Runs for World<L> {
    fn block(&mut self, block: &Block) -> Result<Vec<(Quantity, f64)>> {
        let Block { quantity, sequence, each, messages, size, request } = *block;
        let times = (messages / sequence.len() as u64).max(1) as u32;
        Ok(match quantity {
            Quantity::SendWork | Quantity::ReceiveWork => {
                let mut at_hub = Buffers::new(sequence.len(), size);
                let mut at_leaves = Buffers::new(sequence.len(), size);
                let mut spent = Duration::ZERO;
                // The first pass is for warming up.
                for pass in 0..=times {
                    let time = match quantity {
                        Quantity::SendWork => self.send_pass(sequence, &mut at_hub, &mut at_leaves)?,
                        _ => self.receive_pass(sequence, &mut at_hub, &mut at_leaves)?,
                    };
                    spent += if pass > 0 { time } else { Duration::ZERO };
                }
                let messages = u64::from(times) * sequence.len() as u64;
                vec![(quantity, spent.as_nanos() as f64 / messages as f64)]
            }
            Quantity::SendRate | Quantity::SendCpu => {
                let trial = self.send_rate(sequence, each, 1, size, request.cores)?;
                let times = fitting(times, &trial);
                let pace = self.send_rate(sequence, each, times, size, request.cores)?;
                vec![(Quantity::SendRate, pace.rate()), (Quantity::SendCpu, pace.cpu_per_message())]
            }
            Quantity::ReceiveRate | Quantity::ReceiveCpu => {
                let trial = self.receive_rate(sequence, each, 1, size, request.cores)?;
                let times = fitting(times, &trial);
                let pace = self.receive_rate(sequence, each, times, size, request.cores)?;
                vec![(Quantity::ReceiveRate, pace.rate()), (Quantity::ReceiveCpu, pace.cpu_per_message())]
            }
            Quantity::HalfRoundTrip => {
                let trips = |count: usize| sequence.iter().copied().cycle().take(count).collect::<Vec<u32>>();
                let trial = self.round_trips(&trips(TRIAL_TRIPS), size, request.cores)?;
                let most = (messages / 10).div_ceil(TRIAL_TRIPS as u64).max(1) as u32;
                let trips = trips(TRIAL_TRIPS * fitting(most, &trial) as usize);
                let pace = self.round_trips(&trips, size, request.cores)?;
                vec![(quantity, pace.elapsed.as_nanos() as f64 / 2.0 / trips.len() as f64)]
            }
        })
    }

    fn in_flight(&mut self) -> Result<machine::Reading<machine::Bytes>> {
        World::in_flight(self)
    }

    fn flood(&mut self, semantics: Semantics) -> Result<Flood> {
        World::flood(self, semantics)
    }

    fn remarks(&self) -> Vec<String> {
        self.hub.remarks()
    }
}

fn over<P: Wired + 'static>(ports: Ports<P>, semantics: Semantics) -> Result<(Box<dyn Runs>, Footprint)>
where
    Driver<P, Message>: Layer,
    Endpoint<P, Message>: Layer,
{
    Ok(match semantics {
        Semantics::Matched => {
            let (world, footprint) = wiring::matched(ports);
            (Box::new(world), footprint)
        }
        _ => {
            let (world, footprint) = wiring::queue_pairs(ports, semantics)?;
            (Box::new(world), footprint)
        }
    })
}

fn world(carrier: Carrier, peers: u32, semantics: Semantics) -> Result<(Box<dyn Runs>, Footprint)> {
    match carrier {
        Carrier::Memory => over(wiring::memory(peers), semantics),
        Carrier::Shm => over(wiring::shm(peers)?, semantics),
        Carrier::Udp => over(wiring::udp(peers)?, semantics),
    }
}

fn check(request: &Request) -> Result<()> {
    let refuse = |what: String, cause: &str, next: &str| Err(Fault::new(what, cause, next));
    if request.semantics.is_empty() || request.peers.is_empty() || request.orders.is_empty() {
        return refuse("semantics".into(), "nothing is asked for", "name semantics, numbers of peers and an order");
    }
    if let Some(peers) = request.peers.iter().find(|peers| !(1..=4096).contains(*peers)) {
        return refuse(format!("{peers} peers"), "not from 1 to 4096", "choose a number within");
    }
    if request.size == 0 || request.size > 1024 {
        let size = request.size;
        return refuse(
            format!("messages of {size} B"),
            "small messages are compared, of 1 B to 1 KiB",
            "choose a size within",
        );
    }
    [request.cores.0, request.cores.1].into_iter().try_for_each(linux::affinity::check)
}

/// Worlds with the same peers, for blocks of one order and kind side by side.
struct Beside<'a> {
    request: &'a Request,
    worlds: &'a mut [(Semantics, Box<dyn Runs>)],
    peers: u32,
    order: Order,
    kind: Quantity,
    messages: u64,
    each: u32,
    stop: &'a dyn Fn() -> bool,
}

impl Blocks for Beside<'_> {
    type Block = BlockValues;

    fn block(&mut self, nth: usize, round: u32) -> Result<BlockValues> {
        let Beside { request, kind, messages, each, .. } = *self;
        let sequence = self.order.sequence(self.peers, each, u64::from(round));
        let block = Block { quantity: kind, sequence: &sequence, each, messages, size: request.size, request };
        Ok(BlockValues { values: self.worlds[nth].1.block(&block)? })
    }

    fn probe(&mut self, _: usize) -> Option<Probe> {
        let (hub, leaves) = self.request.cores;
        self.kind.between_cores().then(|| ports::probe::between(hub, leaves).ok()).flatten()
    }

    fn clocks(&mut self, _: usize) -> Clocks {
        let (hub, leaves) = self.request.cores;
        Clocks::of(linux::accounting::effective_clocks([hub, leaves]))
    }

    fn stopped(&self) -> bool {
        (self.stop)()
    }
}

/// Measures the request, until `stop` says so.
///
/// # Errors
/// A port cannot be opened for so many peers, a core does not exist, or every block failed.
pub fn measure(request: &Request, messages: u64, stop: &dyn Fn() -> bool) -> Result<Outcome> {
    check(request)?;
    let mut outcome = Outcome {
        carrier: request.carrier,
        size: request.size,
        rounds: request.rounds,
        cores: request.cores,
        cells: Vec::new(),
        footprints: Vec::new(),
        used: Vec::new(),
        floods: Vec::new(),
        notes: Vec::new(),
    };
    let plan = Plan { groups: vec![request.semantics.len()], rounds: request.rounds, seed: 4 };
    'peers: for &peers in &request.peers {
        match used(peers) {
            Ok(used) => outcome.used.push(used),
            Err(fault) => outcome.notes.push(format!("over shm, {peers} peers: {fault}")),
        }
        let mut worlds = Vec::new();
        for &semantics in &request.semantics {
            let (mut world, mut footprint) = world(request.carrier, peers, semantics)?;
            if request.carrier == Carrier::Memory {
                footprint.grown(world.in_flight()?);
            }
            outcome.footprints.push(footprint);
            worlds.push((semantics, world));
        }
        let most = if request.carrier == Carrier::Udp { PASS_MOST_UDP } else { PASS_MOST };
        let each = (most / peers).clamp(1, EACH_MOST);
        for (&order, kind) in request.orders.iter().flat_map(|order| BLOCKS.map(|kind| (order, kind))) {
            let mut beside = Beside { request, worlds: &mut worlds, peers, order, kind, messages, each, stop };
            let (series, whole) = blocks::conduct(&mut beside, &plan, |_, all| {
                all[1..].iter().any(|other| all[0].over(other, |gave| gave.of(kind)).is_open())
            });
            let measured = request.semantics.iter().zip(series);
            let measured = measured.map(|(&semantics, series)| Measured { semantics, series }).collect();
            outcome.cells.push(Cell { peers, order, measured });
            if !whole {
                break 'peers;
            }
        }
        for (semantics, world) in &worlds {
            let failed = outcome.cells.iter().filter(|cell| cell.peers == peers).flat_map(|cell| &cell.measured);
            let failed = failed.filter(|of| of.semantics == *semantics).flat_map(|of| of.series.failures.clone());
            let said: Vec<String> = failed.chain(world.remarks()).collect();
            outcome.notes.extend(said.into_iter().map(|remark| format!("{semantics}, {peers} peers: {remark}")));
        }
    }
    let failure = outcome.cells.iter().flat_map(|cell| &cell.measured).find_map(|of| of.series.failures.first());
    if let (0, Some(failure)) = (outcome.blocks(), failure) {
        let next = "compare over another port (--port), or fewer peers";
        return Err(Fault::new("comparison of semantics", format!("every block failed: {failure}"), next));
    }
    for &semantics in &request.semantics {
        outcome.floods.push(over(wiring::memory(2), semantics)?.0.flood(semantics)?);
    }
    Ok(outcome)
}
