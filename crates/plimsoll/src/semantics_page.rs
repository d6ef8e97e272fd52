//! The result of a comparison of semantics as a page of text.

use std::collections::BTreeMap;

use machine::text::{Table, folded};
use machine::{Bytes, Reading, count, figure};
use rounds::nearness;
use rounds::statistics::median_interval;
use semantics::{Carrier, Footprint, Outcome, Quantity, Semantics, Used};

/// The most memory of an idle peer of the engine, at [`MANY`] peers.
const IDLE_MOST: Bytes = Bytes(4 << 10);
const MANY: u32 = 1000;

pub fn page(outcome: &Outcome, semantics: &[Semantics], width: usize) -> String {
    let Outcome { carrier, size, rounds, cores, .. } = outcome;
    let mut page = format!(
        "{size} B messages over {carrier}, at most {}, cores {} and {}; median (95 % interval)\n",
        count::of((*rounds).into(), "round"),
        cores.0.0,
        cores.1.0
    );
    for quantity in Quantity::ALL {
        let table = quantities(outcome, semantics, quantity);
        if !table.is_empty() {
            page += &format!("\n{}\n{}", title(quantity), table.text(width));
        }
    }
    if !outcome.footprints.is_empty() {
        page += &format!("\nmemory for a peer, the port's apart\n{}", footprints(&outcome.footprints).text(width));
    }
    if !outcome.used.is_empty() {
        page += &format!("\na used peer over shm, both ends in one process\n{}", used(&outcome.used).text(width));
    }
    if !outcome.floods.is_empty() {
        page += &format!(
            "\nan unexpected flood: 40000 messages of 1000 B from one peer, over memory\n{}",
            floods(outcome).text(width)
        );
    }
    page += "\nnotes\n";
    for note in notes(outcome) {
        page += &format!("  {note}\n");
    }
    page
}

/// How much of the papers' gains the semantics alone explain, by the work of a message at most peers. `asked` is how much dearer
/// the two runs of paper 004 make the protocol's work ([`claims::open::scaling`]). Empty where that was not measured.
pub fn explained(outcome: &Outcome, asked: machine::costs::Interval, width: usize) -> String {
    let dearer = |quantity: Quantity| {
        let place = outcome.places(quantity).into_iter().max_by_key(|(peers, _)| *peers)?;
        let over = outcome.over(Semantics::Matched, Semantics::QueuePair, place, quantity)?.interval()?;
        Some((place.0, over))
    };
    let (Some((peers, send)), Some((_, receive))) = (dearer(Quantity::SendWork), dearer(Quantity::ReceiveWork)) else {
        return String::new();
    };
    let share = |ratio: f64| 100.0 * ratio.max(1.0).ln() / asked.middle.ln();
    let [low, high] = [send.low.min(receive.low), send.high.max(receive.high)].map(share);
    let said = folded(
        "",
        &format!(
            "Which of the papers' gains do the semantics explain? With {}, queue pairs make the work of a message {:.2} times as \
             much ({:.2} .. {:.2}) where it is sent and {:.2} times ({:.2} .. {:.2}) where it is received, host and card together. \
             The two runs of paper 004 ask for {:.2} times (plimsoll claims open): the semantics are {low:.0} to {high:.0} % of \
             that, by logarithms, at most, since a card does part of the work; the rest is one engine for all cores of a node. \
             Paper 000's gains of offload (A15 to A17) they do not explain: they make offload dearer.",
            count::of(peers.into(), "peer"),
            send.middle,
            send.low,
            send.high,
            receive.middle,
            receive.low,
            receive.high,
            asked.middle
        ),
        0,
        width,
    );
    format!("\n{said}")
}

fn title(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::SendWork => "work to send a message, nobody waiting",
        Quantity::ReceiveWork => "work to receive a message, nobody waiting",
        Quantity::ReceiveRate => "rate from all peers, which another core drives",
        Quantity::SendRate => "rate to all peers, which another core drives",
        Quantity::ReceiveCpu => "CPU time a message while receiving at that rate, waiting included",
        Quantity::SendCpu => "CPU time a message while sending at that rate, waiting included",
        Quantity::HalfRoundTrip => "half a round trip, peer after peer",
    }
}

fn in_words(quantity: Quantity, value: f64) -> String {
    match quantity {
        Quantity::ReceiveRate | Quantity::SendRate => bench::mpi::pattern::rate(value),
        _ => figure::nanoseconds(value),
    }
}

/// The table of a quantity; empty where it was not measured.
fn quantities(outcome: &Outcome, semantics: &[Semantics], quantity: Quantity) -> Table {
    let mut header: Vec<String> = vec!["peers".into(), "order".into()];
    header.extend(semantics.iter().map(|one| one.to_string()));
    // The factor by which the first is better than each of the others.
    header.extend(semantics.iter().skip(1).map(|other| format!("{} over {other}", semantics[0])));
    let figures = 2..header.len();
    let mut table = Table::new(header).right([0]).right(figures);
    for (peers, order) in outcome.places(quantity) {
        let mut row = vec![peers.to_string(), order.to_string()];
        for &one in semantics {
            row.push(match median_interval(&outcome.values(one, (peers, order), quantity)) {
                Some(i) => {
                    format!("{} ({})", in_words(quantity, i.middle), i.range(|value| in_words(quantity, value)))
                }
                None => "-".into(),
            });
        }
        for &other in semantics.iter().skip(1) {
            let over = outcome.over(semantics[0], other, (peers, order), quantity);
            row.push(match over.and_then(|over| over.interval()) {
                Some(i) => i.ratio(2, "x"),
                None => "-".into(),
            });
        }
        table.row(row);
    }
    table
}

fn reading(reading: &Reading<Bytes>) -> String {
    match reading {
        Reading::Measured(bytes) | Reading::Modelled(bytes) => whole(*bytes),
        Reading::Absent { .. } | Reading::NotPermitted { .. } => "-".into(),
    }
}

/// Exact below 10 KiB, since the limit of 4 KiB is compared.
fn whole(bytes: Bytes) -> String {
    if bytes.0 < 10 << 10 { format!("{} B", bytes.0) } else { figure::digits(bytes.0 as f64 / 1024.0) + " KiB" }
}

fn footprints(footprints: &[Footprint]) -> Table {
    let header =
        ["peers", "semantics", "computed", "idle, at the allocator", "idle, pages", "with 8 x 1000 B under way"];
    let mut table = Table::new(header).right([0, 2, 3, 4, 5]);
    for Footprint { semantics, peers, computed, idle, resident, active } in footprints {
        table.row([
            peers.to_string(),
            semantics.to_string(),
            whole(*computed),
            reading(idle),
            reading(resident),
            reading(active),
        ]);
    }
    table
}

fn used(used: &[Used]) -> Table {
    let header = [
        "peers",
        "memory shared after 8 B each way",
        "after 1 MiB each way",
        "at the allocators of both",
        "descriptors kept, all peers",
    ];
    let mut table = Table::new(header).right(1..5);
    for Used { peers, shared, shared_long, heap, descriptors } in used {
        let descriptors = descriptors.value().map_or("-".into(), u64::to_string);
        table.row([peers.to_string(), reading(shared), reading(shared_long), reading(heap), descriptors]);
    }
    table
}

fn floods(outcome: &Outcome) -> Table {
    let header =
        ["semantics", "held by the receiver", "payload", "memory grown", "to hold one", "to receive one later"];
    let mut table = Table::new(header).right(1..6);
    for flood in &outcome.floods {
        table.row([
            flood.semantics.to_string(),
            flood.held.to_string(),
            whole(flood.held_bytes),
            reading(&flood.grown),
            figure::nanoseconds(flood.hold),
            figure::nanoseconds(flood.claim),
        ]);
    }
    table
}

fn notes(outcome: &Outcome) -> Vec<String> {
    let mut notes = Vec::new();
    let blocks = outcome.cells.iter().flat_map(|cell| &cell.measured).flat_map(|of| &of.series.blocks);
    let probes = blocks.flat_map(|taken| taken.probes).flatten().map(|probe| (outcome.cores, probe));
    notes.extend(nearness::said(probes).into_iter().map(|said| format!("probe beside each block: {said}")));
    // Notes on one semantics share a line.
    let mut last: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for note in &outcome.notes {
        if let Some((whose, what)) = note.split_once(": ") {
            last.entry(whose).or_default().push(what);
        }
    }
    notes.extend(last.into_iter().map(|(whose, what)| format!("{whose}: {}", what.join("; "))));
    let page = machine::page("docs/claims.md");
    notes.push(format!("emulated: the channel adapter's part of queue pairs runs on the hub's core; {page}"));
    if outcome.carrier == Carrier::Shm {
        notes.push("over shm every look at the port passes all peers' rings, whatever the semantics".into());
    }
    let many = |f: &&Footprint| f.semantics == Semantics::Matched && f.peers == MANY;
    if let Some(footprint) = outcome.footprints.iter().find(many) {
        notes.push(match footprint.idle.value() {
            Some(idle) => {
                let verdict = if *idle < IDLE_MOST { "met" } else { "missed" };
                format!(
                    "an idle peer of the engine at {MANY} peers takes {} of the {} allowed: {verdict}",
                    whole(*idle),
                    IDLE_MOST
                )
            }
            None => format!("an idle peer of the engine: {}, computed", whole(footprint.computed)),
        });
    }
    notes
}
