//! Programs over plimsoll's own engine in the simulator: `cargo bench -p simulate --bench engines -- ...`
//!
//! ```text
//! (nothing)       to how many ranks a host placement core:N scales, by the size of messages and the credit
//! --measured      half round trips and streams as predicted, beside the rows of plimsoll calibrate on this machine
//! --memory RANKS  what ranks take: such a halo with so many ranks, and as many ranks that do nothing
//! ```
//!
//! Costs are this machine's (`XDG_STATE_HOME` names another folder of them).

use machine::costs::{ENGINE, Interval, Item, store};
use machine::fault::{Fault, Result};
use machine::{Bytes, Costs, SiteKind, count};
use simulate::engines::{Outcome, Placement, Settings, simulate};
use simulate::programs::{Halo, Lazy, Phases, PingPong};
use simulate::{Kind, Operation};

const HOSTS: u32 = 4;
const NETWORK: &str = "udp";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let known = store::live()?;
    if let Some(note) = known.note {
        println!("{note}");
    }
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => scaling(&known.costs),
        ["--measured"] => measured(&known.costs),
        ["--memory", ranks] => {
            let ranks = ranks.parse().map_err(|error| Fault::because(ranks, error, "give a number of ranks"))?;
            memory(&known.costs, ranks)
        }
        _ => Err(Fault::new("arguments", "they are none of this example's", "see the top of its source")),
    }
}

fn halo(ranks: u32, bytes: u64, steps: u32) -> Halo {
    let extents = Halo::extents(ranks, 2);
    Halo { extents, steps, bytes, computing: 100_000, uneven: 5_000, seed: 1, sum: false }
}

const PER_HOST: [u32; 5] = [2, 4, 8, 16, 32];
const STEPS: u32 = 10;
/// The greatest time of a step, over that with the fewest ranks a host, with which placement `core` counts as scaling.
const SCALES: f64 = 1.25;

fn scaling(costs: &Costs) -> Result<()> {
    println!(
        "A 2-D halo that computes for 100 us a step, {HOSTS} hosts, {NETWORK}: us a step at app, at core (load of the"
    );
    println!("busiest engine core, messages announced) with 2, 4, 8, 16 and 32 ranks a host\n");
    let mib = 1 << 20;
    let rows = [(64, mib), (1 << 10, mib), (4 << 10, mib), (4 << 10, 64 << 10), (16 << 10, mib), (64 << 10, mib)];
    for (bytes, credit) in rows {
        let (mut cells, mut steps) = (Vec::new(), Vec::new());
        for per_host in PER_HOST {
            let run = |placement| {
                let mut settings = Settings::of(costs, placement, per_host, NETWORK, 0.0);
                for carrier in [&mut settings.within, &mut settings.between] {
                    carrier.link.credit_bytes = Bytes(credit);
                }
                simulate(&mut Lazy::of(halo(HOSTS * per_host, bytes, STEPS)), &settings)
            };
            let (app, core) = (run(Placement::App)?, run(Placement::Core)?);
            let step = |outcome: &Outcome| outcome.total() as f64 / 1e6 / f64::from(STEPS);
            let announced = core.count(|counters| counters.announced);
            steps.push(step(&core));
            cells.push(format!("{:.0}, {:.0} ({:.0} %, {announced})", step(&app), step(&core), 100.0 * core.load()));
        }
        let most = steps.iter().take_while(|step| **step <= SCALES * steps[0]).count();
        let until = match PER_HOST.get(most) {
            None => format!("core scales to {} ranks a host and perhaps more", PER_HOST[most - 1]),
            Some(next) => format!("core scales to {} ranks a host, not to {next}", PER_HOST[most - 1]),
        };
        println!("border {}, credit {}: {until}\n    {}", Bytes(bytes), Bytes(credit), cells.join("; "));
    }
    Ok(())
}

/// Windows of messages from rank 0 to rank 1, as `plimsoll calibrate` measures a stream.
struct Stream {
    bytes: u64,
    windows: u32,
}

const WINDOW: usize = 64;

impl Phases for Stream {
    fn ranks(&self) -> u32 {
        2
    }

    fn phase(&self, rank: u32, number: u32, operations: &mut Vec<Operation>) -> bool {
        let kind = if rank == 0 { Kind::Send } else { Kind::Receive };
        let one = Operation { kind, amount: self.bytes, peer: 1 - rank, tag: 0, number: 0, cpu: 0, nic: 0 };
        operations.extend(std::iter::repeat_n(one, if number < self.windows { WINDOW } else { 0 }));
        number < self.windows
    }
}

/// Predictions beside measured rows. Sizes from which the costs were solved are among them: the smallest, the largest of
/// one packet, and the largest of 16.
fn measured(costs: &Costs) -> Result<()> {
    let cell = |predicted: f64, measured: Interval| {
        let fits = if (measured.low..=measured.high).contains(&predicted) { "inside" } else { "outside" };
        format!(
            "{:>9.3} {:>9.3} ({:.3} .. {:.3}) {fits}",
            predicted / 1e3,
            measured.middle / 1e3,
            measured.low / 1e3,
            measured.high / 1e3
        )
    };
    for way in costs.ways().filter(|way| way.carrier == ENGINE) {
        println!("{way}: us predicted, measured: half a round trip; a message of a stream");
        let placement = if way.placement == SiteKind::Core { Placement::Core } else { Placement::App };
        let per_host = if way.network.is_some() { 1 } else { 2 };
        let settings = Settings::of(costs, placement, per_host, way.network.as_deref().unwrap_or(NETWORK), 0.0);
        for row in costs.rows().iter().filter(|row| row.item == Item::HalfTrip(way.clone())) {
            let (Some(size), Some(trip)) = (row.size, row.cost.value()) else { continue };
            let rounds = 20;
            // Enough windows for the network's window to have grown.
            let windows = ((1 << 18) / size.0.max(1)).clamp(2, 60) as u32;
            let outcome = simulate(&mut Lazy::of(PingPong { bytes: size.0, rounds }), &settings)?;
            let half = outcome.ranks[0] as f64 / f64::from(2 * rounds) / 1e3;
            let stream = |windows| simulate(&mut Lazy::of(Stream { bytes: size.0, windows }), &settings);
            // The difference between twice as many windows and these.
            let (few, many) = (stream(windows)?.total(), stream(2 * windows)?.total());
            let each = (many - few) as f64 / (f64::from(windows) * WINDOW as f64) / 1e3;
            let row = costs.rows().iter().find(|row| row.item == Item::Message(way.clone()) && row.size == Some(size));
            let beside =
                row.and_then(|row| row.cost.value()).map_or("was not measured".to_owned(), |one| cell(each, *one));
            println!("{:>9}  {}; {beside}", size.to_string(), cell(half, *trip));
        }
    }
    Ok(())
}

fn memory(costs: &Costs, ranks: u32) -> Result<()> {
    println!(
        "a rank that talks to nobody, its engine included: {} bytes; each of its peers: {} bytes more",
        Outcome::IDLE_RANK,
        Outcome::PEER
    );
    let settings = Settings::of(costs, Placement::App, 16, NETWORK, 0.0);
    let resident = || -> Result<u64> {
        let path = "/proc/self/status";
        let text = std::fs::read_to_string(path).map_err(|error| Fault::because(path, error, "mount /proc"))?;
        let kb =
            text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        Ok(1024 * kb.unwrap_or(0))
    };
    let begun = resident()?;
    let idle = simulate(&mut Lazy::of(Idle(ranks)), &settings)?;
    println!(
        "{} idle ranks: {} bytes each by the kernel's account",
        idle.ranks.len(),
        (resident()? - begun) / u64::from(ranks)
    );
    let outcome = simulate(&mut Lazy::of(halo(ranks, 4096, 3)), &settings)?;
    let each = (resident()? - begun) / u64::from(ranks);
    let messages = count::grouped(outcome.messages);
    println!(
        "a halo of 4 peers a rank and {messages} messages of 4 KiB, what is in progress included: {each} bytes a rank"
    );
    Ok(())
}

struct Idle(u32);

impl Phases for Idle {
    fn ranks(&self) -> u32 {
        self.0
    }

    fn phase(&self, _: u32, _: u32, _: &mut Vec<Operation>) -> bool {
        false
    }
}
