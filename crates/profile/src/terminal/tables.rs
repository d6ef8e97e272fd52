//! The tables of the text page.

use chart::number;
use machine::Reading;
use machine::count::{self, grouped};
use machine::text::Table;

use super::{Screen, table};
use crate::report::{
    Column, Unit, Value, cores as core, functions as function, phases as phase, power as sensor, ranks as rank,
    sites as site, sizes,
};
use crate::summary::{CoreSummary, RankSummary, SiteSummary, Split, State, Summary, ratio};
use crate::words::{bytes, percent, quantity, seconds};

/// Title, remark and table.
type Titled = (String, Option<String>, Table);

pub fn all(summary: &Summary, screen: Screen) -> Vec<Titled> {
    let tables = [
        ranks(summary, screen),
        functions(summary, screen),
        sites(summary, screen),
        sizes(summary),
        cores(summary),
        capability(summary),
        phases(summary),
        power(summary),
    ];
    tables.into_iter().flatten().chain(matrices(summary)).collect()
}

fn names<R>(columns: &[Column<R>]) -> impl Iterator<Item = &'static str> {
    columns.iter().map(|column| column.name)
}

fn cells<R>(columns: &[Column<R>], of: &R) -> impl Iterator<Item = String> {
    columns.iter().map(move |column| cell(column, of))
}

/// The cell's text; `-` for a missing value, which the title or a remark explains.
fn cell<R>(column: &Column<R>, of: &R) -> String {
    let number = |unit, value| match unit {
        Unit::Part(whole) => percent(ratio(value, whole)),
        unit => quantity(unit, value),
    };
    match (column.cell)(of) {
        Value::Nothing | Value::Group(0) => String::new(),
        Value::Text(text) => text,
        Value::Whole(value) => grouped(value),
        Value::Group(ranks) => grouped(ranks.into()),
        Value::Bytes(value) => bytes(value as f64),
        Value::Number(unit, value) => number(unit, value),
        Value::Read(unit, of) => of.value().map_or_else(|| "-".into(), |value| number(unit, *value)),
        Value::Uncounted(_) => "-".into(),
    }
}

fn ranks(summary: &Summary, screen: Screen) -> Option<Titled> {
    let all = &summary.ranks;
    let worlds = summary.job.worlds > 1;
    let sampled = all.iter().any(|rank| rank.cores.value().is_some() || rank.softirq.value().is_some());
    let told = all.iter().any(|rank| rank.caused.value().is_some());
    let watched = all.iter().any(|rank| rank.off_core().is_some());
    let mut columns = vec![rank::COMPUTE, rank::TRANSFER, rank::WAIT];
    columns.extend(watched.then_some(rank::OFF_CORE));
    columns.extend(all.iter().any(RankSummary::stalls).then_some(rank::BLOCKED));
    columns.extend([rank::UNDIVIDED, rank::CALLS, rank::MESSAGES, rank::BYTES]);
    if sampled {
        columns.extend([rank::CORES, rank::SOFTIRQ, rank::TAKEN_OFF]);
    }
    if told {
        columns.extend([rank::AWAY, rank::CAUSED]);
    }
    let row = |rank: &RankSummary| {
        let number = if worlds { format!("{}:{}", rank.world, rank.rank) } else { rank.rank.to_string() };
        let mut row = vec![number, rank.host.clone()];
        row.extend(cells(&columns, rank));
        if told {
            let whom = rank.waits_for.first().and_then(|first| all.get(first.rank));
            row.push(whom.map_or_else(String::new, |rank| rank.rank.to_string()));
        }
        let inside =
            rank.inside.as_ref().map(|inside| format!("in {} for {}", inside.function, seconds(inside.seconds)));
        let state = (rank.state != State::Finalized).then(|| super::word(rank.state, 1).to_owned());
        row.push([state, inside].into_iter().flatten().collect::<Vec<_>>().join(", "));
        row
    };
    let mut header: Vec<&str> = ["rank", "host"].into_iter().chain(names(&columns)).collect();
    header.extend(told.then_some("most for"));
    header.push("");
    // Of many ranks, the table has those that compute least and most.
    let mut order: Vec<&RankSummary> = all.iter().collect();
    let many = order.len() > screen.sites.max(16);
    let ends = screen.sites.max(16) / 2;
    if many {
        let computing = |rank: &RankSummary| ratio(rank.computing(), rank.thread_seconds);
        order.sort_by(|a, b| computing(a).total_cmp(&computing(b)));
        order.drain(ends..order.len() - ends);
    }
    let title = match many {
        true => format!("Ranks: the {ends} that compute least and the {ends} that compute most of {}", all.len()),
        false => "Ranks".into(),
    };
    let off = match all.iter().find_map(|rank| number::why_missing(&rank.stopped)).filter(|_| !watched) {
        None => "; off core: stopped, or runnable while others had its core".into(),
        Some(why) => format!("; time off the core is {why}"),
    };
    let most = all.iter().filter(|rank| rank.stalls()).filter_map(|rank| Some((rank, rank.outside.stall()?)));
    let most = most.max_by(|(_, one), (_, other)| one.0.total_cmp(&other.0));
    let off = match most {
        None => off,
        Some((rank, (_, stall))) => format!(
            "{off}; blocked: outside MPI, neither on a core nor runnable, as rank {}, which was {}",
            rank.rank,
            stall.words()
        ),
    };
    let remark = format!(
        "shares of each rank's time; transfer is what its calls take when nobody is late, wait all beyond{off}"
    );
    let how = match measured(all) {
        true => {
            "measured from the timeline; away: of the wait, for partners that had begun and then were outside of MPI; \
             caused: what others waited for this rank; most for: whom it waited for most"
        }
        false => "modelled",
    };
    (!all.is_empty()).then(|| {
        (title, Some(format!("{remark} ({how})")), table(&header, &[1, header.len() - 1], order.into_iter().map(row)))
    })
}

fn measured(ranks: &[RankSummary]) -> bool {
    ranks.iter().any(|rank| matches!(rank.split.wait, Reading::Measured(_)))
}

/// The share of wait in `whole`; a range where undivided time, which may be wait, is 5 % of `whole` or more.
fn wait_share(split: &Split, whole: f64) -> String {
    let Some(wait) = split.wait.value() else { return "-".into() };
    match ratio(split.undivided, whole) {
        unsure if unsure < 0.05 => percent(ratio(*wait, whole)),
        unsure => format!("{:.0}-{:.0} %", 100.0 * ratio(*wait, whole), 100.0 * (ratio(*wait, whole) + unsure)),
    }
}

fn functions(summary: &Summary, screen: Screen) -> Option<Titled> {
    let counted: Vec<_> = summary.functions.iter().filter(|function| function.counted).collect();
    let more = counted.len().saturating_sub(screen.sites.max(16));
    let columns = {
        use function::*;
        [NAME, GROUP, CALLS, OF_CALLS, TIME, OF_MPI, MEAN, P50, P99, MOST, BYTES]
    };
    let rows = counted
        .iter()
        .take(screen.sites.max(16))
        .map(|function| cells(&columns, *function).chain([wait_share(&function.split, function.seconds)]).collect());
    let header: Vec<&str> = names(&columns).chain([function::WAIT.name]).collect();
    let remark = "ranks: of the communicator of a collective call; wait: share of the function's time, a range or - where calls are too few to tell";
    let remark = match more {
        0 => remark.into(),
        more => format!("{remark}; {} more: --call-sites {}", count::of(more as u64, "row"), counted.len()),
    };
    (!counted.is_empty()).then(|| ("Functions, all ranks".into(), Some(remark), table(&header, &[0], rows)))
}

fn sites(summary: &Summary, screen: Screen) -> Option<Titled> {
    let all: Vec<&SiteSummary> = summary.sites.iter().filter(|site| site.counted).collect();
    let mut columns = vec![site::CALL, site::CALLS, site::TIME, site::OF_MPI];
    columns.extend(summary.critical.is_some().then_some(site::ON_PATH));
    columns.extend([site::MEAN, site::MOST, site::RANKS]);
    let fixed = if summary.critical.is_some() { 88 } else { 74 };
    let room = screen.width.saturating_sub(fixed).max(30);
    let rows = all.iter().take(screen.sites);
    let rows = rows.map(|site| cells(&columns, *site).chain([clipped(&place(site), room)]).collect());
    let header: Vec<&str> = names(&columns).chain(["where"]).collect();
    let mut why: Vec<&str> = all.iter().take(screen.sites).filter_map(|site| site.note.as_deref()).collect();
    why.sort_unstable();
    why.dedup();
    let mut remark: Vec<String> = why.into_iter().map(str::to_owned).collect();
    if all.len() > screen.sites {
        remark.push(format!("{} of {}: --call-sites N shows more", screen.sites, count::of(all.len() as u64, "site")));
    }
    let remark = (!remark.is_empty()).then(|| remark.join("; "));
    (!all.is_empty()).then(|| ("Call sites, all ranks".into(), remark, table(&header, &[0, header.len() - 1], rows)))
}

/// `exchange.c:88 exchange < step`: the call's line, its function, and the functions that this is inlined into.
pub fn place(site: &SiteSummary) -> String {
    let file_of = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let names: Vec<String> = site.frames.iter().filter_map(|frame| frame.name.as_deref()).map(short).collect();
    let names = names.join(" < ");
    let line = site.frames.first().and_then(|frame| Some(format!("{}:{}", file_of(frame.file.as_ref()?), frame.line?)));
    match (line, names.is_empty()) {
        (Some(line), true) => line,
        (Some(line), false) => format!("{line} {names}"),
        (None, false) => format!("{names} ({})", file_of(&site.module)),
        (None, true) if site.module.is_empty() => format!("{:#x}", site.offset),
        (None, true) => format!("{}+{:#x}", file_of(&site.module), site.offset),
    }
}

/// A C++ name without its parameters, which are long in templates.
fn short(name: &str) -> String {
    let (name, offset) = name.rsplit_once("+0x").map_or((name, String::new()), |(name, at)| (name, format!("+0x{at}")));
    let mut depth = 0;
    let parameters = name.char_indices().find(|(at, c)| {
        depth += match c {
            '<' => 1,
            '>' => -1,
            _ => 0,
        };
        depth == 0 && *c == '(' && *at > 0 && !name[*at..].starts_with("(anonymous")
    });
    format!("{}{offset}", parameters.map_or(name, |(at, _)| &name[..at]))
}

fn clipped(text: &str, room: usize) -> String {
    let length = text.chars().count();
    if length <= room {
        return text.into();
    }
    let kept: String = text.chars().take(room.saturating_sub(1)).collect();
    format!("{kept}…")
}

fn sizes(summary: &Summary) -> Option<Titled> {
    let messages = summary.sizes.iter().map(|size| size.messages).fold(0, u64::saturating_add);
    let rows = summary.sizes.iter().map(|size| {
        let mut row: Vec<String> = cells(sizes::ALL, size).collect();
        if size.floor >= 2 {
            row[0] = format!("{} to {}", row[0], bytes(size.floor.saturating_mul(2) as f64));
        }
        row.insert(2, percent(ratio(size.messages as f64, messages as f64)));
        row
    });
    let mut header: Vec<&str> = names(sizes::ALL).collect();
    header.insert(2, "of messages");
    (!summary.sizes.is_empty()).then(|| ("Sizes".into(), None, table(&header, &[0], rows)))
}

fn cores(summary: &Summary) -> Option<Titled> {
    const COLUMNS: [Column<CoreSummary>; 7] =
        [core::HOST, core::CORE, core::BUSY, core::RX, core::RX_TIME, core::TX, core::INTERRUPTS];
    let rows = summary.cores.iter().map(|core| {
        let ranks = core.ranks.iter().filter_map(|place| Some(summary.ranks.get(*place)?.rank.to_string()));
        cells(&COLUMNS, core).chain([ranks.collect::<Vec<_>>().join(","), cell(&core::WAIT, core)]).collect()
    });
    let header: Vec<&str> = names(&COLUMNS).chain(["ranks", core::WAIT.name]).collect();
    let remark = "NET_RX and NET_TX: network softirqs on the core while the job ran";
    (!summary.cores.is_empty()).then(|| ("Cores against waits".into(), Some(remark.into()), table(&header, &[0], rows)))
}

/// Greatest number of cores whose capability is listed: those with least for ranks.
const LEAST: usize = 16;

fn capability(summary: &Summary) -> Option<Titled> {
    let mut cores = summary.capability.clone();
    let left_out = cores.len().saturating_sub(LEAST);
    if left_out > 0 {
        cores.sort_by(|a, b| a.range().1.total_cmp(&b.range().1));
        cores.truncate(LEAST);
    }
    let (table, notes) = super::capability::table(&cores);
    let mut remarks =
        vec!["what of each core its ranks could have: its time less what others took, by its clock".to_owned()];
    remarks.extend((left_out > 0).then(|| format!("{left_out} more had more for ranks: --json has them")));
    remarks.extend(notes);
    let matters = crate::capability::matters(&summary.capability);
    matters.then(|| ("Capability of cores".into(), Some(remarks.join("; ")), table))
}

fn phases(summary: &Summary) -> Option<Titled> {
    let worlds = summary.job.worlds > 1;
    let rows = summary.phases.iter().take(20).map(|phase| {
        let level = if worlds { format!("{}:{}", phase.world, phase.level) } else { phase.level.to_string() };
        [level].into_iter().chain(cells(phase::ALL, phase)).collect()
    });
    let more = summary.phases.len().saturating_sub(20);
    let remark = (more > 0).then(|| format!("{more} more: --json has them"));
    let header: Vec<&str> = ["MPI_Pcontrol"].into_iter().chain(names(phase::ALL)).collect();
    let table = table(&header, &[], rows);
    (!summary.phases.is_empty()).then(|| ("Phases".into(), remark, table))
}

fn power(summary: &Summary) -> Option<Titled> {
    const MOST: usize = 24;
    let several = summary.job.hosts.len() > 1;
    let rows = summary.power.iter().flat_map(|sensor| sensor.spans.iter().map(move |span| (sensor, span)));
    let rows: Vec<_> = rows
        .map(|(sensor, span)| {
            let phase = span.phase.and_then(|place| summary.phases.get(place));
            let sensor = if several { format!("{} {}", sensor.host, sensor.sensor) } else { sensor.sensor.clone() };
            let time = phase.map_or_else(|| span.what.clone(), |phase| format!("phase {}", phase.level));
            [sensor, time].into_iter().chain(cells(sensor::ALL, span)).collect::<Vec<_>>()
        })
        .collect();
    let mut remarks = vec!["floor: the lowest second of the recording".to_owned()];
    let missing = summary.power.iter().flat_map(|sensor| sensor.spans.iter().take(1).map(move |span| (sensor, span)));
    let missing = missing.filter_map(|(sensor, span)| Some(format!("{}: {}", sensor.sensor, span.gaps.first()?)));
    remarks.extend(missing.take(3));
    remarks.extend((rows.len() > MOST).then(|| format!("{} more times: --json has them", rows.len() - MOST)));
    let header: Vec<&str> = ["sensor", "time"].into_iter().chain(names(sensor::ALL)).collect();
    let table = table(&header, &[0, 1], rows.into_iter().take(MOST));
    (!summary.power.is_empty()).then(|| ("Power".into(), Some(remarks.join("; ")), table))
}

/// Greatest number of blocks of ranks across the matrix, so that it fits on a screen.
const BLOCKS: u32 = 12;

fn matrices(summary: &Summary) -> impl Iterator<Item = Titled> + '_ {
    let with_something = summary.matrices.iter().enumerate().filter(|(_, matrix)| !matrix.cells.is_empty());
    with_something.map(|(world, matrix)| {
        let block = matrix.ranks.max(1).div_ceil(BLOCKS);
        let blocks = matrix.ranks.max(1).div_ceil(block) as usize;
        let mut sums = vec![vec![0u64; blocks]; blocks];
        for [from, to, _, sent, _, moved] in &matrix.cells {
            let place = |rank: &u64| usize::try_from(rank / u64::from(block)).unwrap_or(usize::MAX);
            if let Some(cell) = sums.get_mut(place(from)).and_then(|row| row.get_mut(place(to))) {
                *cell = cell.saturating_add(*sent).saturating_add(*moved);
            }
        }
        let label = |place: usize| {
            let (place, block) = (place as u64, u64::from(block));
            let (first, last) = (place * block, ((place + 1) * block).min(matrix.ranks.into()).max(1) - 1);
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        };
        let rows = sums.iter().enumerate().map(|(from, row)| {
            let cells = row.iter().map(|sum| if *sum == 0 { "·".into() } else { bytes(*sum as f64) });
            [label(from)].into_iter().chain(cells).collect()
        });
        let labels: Vec<String> = (0..blocks).map(label).collect();
        let header: Vec<&str> = ["from \\ to"].into_iter().chain(labels.iter().map(String::as_str)).collect();
        let of = if summary.matrices.len() > 1 { format!(", world {world}") } else { String::new() };
        (format!("Bytes from rank to rank{of}"), None, table(&header, &[], rows))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_cpp_lose_their_parameters_and_nothing_else() {
        for (name, shown) in [
            ("main", "main"),
            ("LAMMPS_NS::Comm::forward(int)+0x34d", "LAMMPS_NS::Comm::forward+0x34d"),
            ("std::function<void (int)>::operator()(int) const", "std::function<void (int)>::operator"),
            ("(anonymous namespace)::send(long)", "(anonymous namespace)::send"),
            ("gmx::(anonymous namespace)::send(long)", "gmx::(anonymous namespace)::send"),
        ] {
            assert_eq!(short(name), shown);
        }
    }
}
