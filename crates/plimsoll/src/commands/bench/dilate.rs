//! `plimsoll bench dilate`: how much longer protocol work may take before latency and rate show it.

use std::process::ExitCode;

use bench::runner::Bench;
use bench::session::Stretched;
use machine::choice::for_polling_here;
use machine::text::Table;
use machine::{Bytes, CoreId, Dilation, Fault, Probe, Result, Site, figure};
use rounds::blocks::{self, Blocks, Plan, Series, difference};
use rounds::clocks;
use rounds::comparison::Paired;
use rounds::estimate::Estimate;
use rounds::point::{Pattern, PointSpec, Stack, StackAt};
use rounds::sample::{Runner, Sample};
use rounds::statistics::median;
use serde::Serialize;

use super::measuring::{Measuring, TwoCores};
use crate::commands::exit_code;

const SEED: u64 = 0x0051_1A11_0000_0008;
const PATTERNS: [Pattern; 2] = [Pattern::PingPong, Pattern::MessageRate];
/// Relative losses that count as noticeable.
const NOTICED: [f64; 2] = [0.02, 0.10];

/// Stretches protocol work at both ends, at app and at core:N: how much longer it may take before latency and rate show it
#[derive(clap::Args)]
pub struct Arguments {
    /// How many times as long protocol work takes, beside 1: 1.5,2,4
    #[arg(value_name = "K,..", value_delimiter = ',', required = true)]
    dilations: Vec<Dilation>,
    /// Stack: engine-shm, engine-udp, engine-afxdp[:IFACE] or engine-xdp[:IFACE]
    #[arg(long, value_name = "STACK", default_value = "engine-shm")]
    stack: StackAt,
    /// Message size
    #[arg(long, default_value = "8")]
    size: Bytes,
    /// The core of the local engine: core:N [default: a free one]
    #[arg(long, value_name = "SITE", default_value = "app", hide_default_value = true)]
    placement: Site,
    /// Core of the other end's engine, where --placement is core:N [default: a free one near its application]
    #[arg(long, value_name = "CORE")]
    peer_engine: Option<CoreId>,
    #[command(flatten)]
    cores: TwoCores,
    #[command(flatten)]
    measuring: Measuring,
}

/// A core for the engine of each end, beside those of the two applications: the named one, or free ones.
fn own_cores(
    named: &Site,
    peer: Option<CoreId>,
    (local, remote): (CoreId, CoreId),
) -> Result<Option<(CoreId, CoreId)>> {
    let free: Vec<CoreId> = for_polling_here(&linux::affinity::allowed()?)?
        .as_slice()
        .iter()
        .copied()
        .filter(|core| *core != local && *core != remote)
        .collect();
    Ok(match (named, &free[..]) {
        (Site::Core(core), _) => {
            let beside = match peer {
                Some(peer) => peer,
                None => bench::runner::peer_engine(*core, local, remote)?,
            };
            Some((*core, beside))
        }
        (_, [one, other, ..]) => Some((*one, *other)),
        _ => None,
    })
}

#[derive(Clone, Serialize)]
struct Block {
    sample: Sample,
    stretched: Option<Stretched>,
}

impl Block {
    /// The engine's work that a message waits for, ns: in half a round trip as much as this end does in a whole one.
    fn counted(&self, pattern: Pattern) -> Option<f64> {
        let messages = match pattern {
            Pattern::PingPong => self.sample.elapsed.0 as f64 / (2.0 * self.sample.value),
            _ => self.sample.elapsed.0 as f64 / 1e9 * self.sample.value,
        };
        Some(self.stretched?.busy.0 as f64 / messages)
    }

    /// The time of half a round trip, or of a message in a row of them, ns.
    fn time(&self, pattern: Pattern) -> f64 {
        if pattern == Pattern::PingPong { self.sample.value } else { 1e9 / self.sample.value }
    }
}

/// The blocks of one pattern at one placement.
#[derive(Serialize)]
struct Group {
    placement: String,
    pattern: Pattern,
    dilations: Vec<Dilation>,
    series: Vec<Series<Block>>,
}

struct Starts<'a> {
    bench: &'a mut Bench,
    specs: Vec<PointSpec>,
    order: u32,
    fault: Option<Fault>,
}

impl Blocks for Starts<'_> {
    type Block = Block;

    fn block(&mut self, point: usize, round: u32) -> Result<Block> {
        self.order += 1;
        let measured = self.bench.run_block(&self.specs[point], round, self.order);
        match measured {
            Ok(sample) => Ok(Block { sample, stretched: self.bench.stretched() }),
            Err(fault) => {
                let said = Fault::new("block", fault.cause().to_owned(), "measure it again");
                self.fault = (!linux::signal::interrupted()).then_some(fault);
                Err(said)
            }
        }
    }

    /// The bench probes beside each block, and the sample holds it.
    fn probe(&mut self, _: usize) -> Option<Probe> {
        None
    }

    fn stopped(&self) -> bool {
        self.fault.is_some() || linux::signal::interrupted()
    }
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let Arguments {
        mut dilations,
        stack: StackAt { stack, interface },
        size,
        placement,
        peer_engine,
        cores,
        measuring,
    } = arguments;
    let (local_core, remote_core) = cores.chosen()?;
    let own = own_cores(&placement, peer_engine, (local_core, remote_core))?;
    if !stack.is_engine() {
        return Err(Fault::new(
            format!("stack {stack}"),
            "its protocol work is the kernel's, which plimsoll cannot stretch",
            "choose engine-shm, engine-udp, engine-afxdp or engine-xdp",
        ));
    }
    if !dilations.iter().any(|dilation| dilation.is_none()) {
        dilations.push(Dilation::NONE);
    }
    dilations.sort_unstable();
    dilations.dedup();
    if dilations.len() < 2 {
        return Err(Fault::new("dilations", "they name nothing to hold against 1", "write them like 1.5,2,4"));
    }
    linux::signal::watch()?;
    let placements = [Some((Site::App, None)), own.map(|(core, peer)| (Site::Core(core), Some(peer)))];
    let mut groups = Vec::new();
    let mut specs = Vec::new();
    for (placement, peer_engine) in placements.into_iter().flatten() {
        for pattern in PATTERNS {
            let point = |dilation: &Dilation| PointSpec {
                placement: placement.clone(),
                peer_engine,
                interface: interface.clone(),
                dilation: Some(*dilation).filter(|dilation| !dilation.is_none()),
                ..PointSpec::plain(stack, pattern, size.0, (local_core, remote_core))
            };
            specs.extend(dilations.iter().map(point));
            let series = Vec::new();
            groups.push(Group { placement: placement.to_string(), pattern, dilations: dilations.clone(), series });
        }
    }
    let plan = Plan { groups: vec![dilations.len(); groups.len()], rounds: measuring.rounds, seed: SEED };
    let mut bench = Bench::new(machine::here::program()?);
    let mut starts = Starts { bench: &mut bench, specs, order: 0, fault: None };
    let (all, _) = blocks::conduct(&mut starts, &plan, |_, _| true);
    let fault = starts.fault.take();
    bench.close();
    let mut all = all.into_iter();
    for group in &mut groups {
        group.series = all.by_ref().take(dilations.len()).collect();
    }
    measuring.print(&groups, || Ok(page(&groups, stack, size, own.is_some(), linux::output::width())))?;
    fault.map_or(Ok(exit_code()), Err)
}

fn page(groups: &[Group], stack: Stack, size: Bytes, has_own: bool, width: usize) -> String {
    let mut page = format!(
        "{stack}, {size}: protocol work that takes k times as long, at both ends (dilated k; no clock: only the engine's own work \
         is stretched)\n"
    );
    for group in groups {
        page += &table(group, width);
    }
    let mut notes = Vec::new();
    if !has_own {
        notes.push(
            "core:N: left out, since no two cores are free beside the applications'; name one with --placement core:N"
                .into(),
        );
    }
    let samples = || groups.iter().flat_map(|group| &group.series).flat_map(|series| &series.blocks);
    notes.extend(clocks::said(samples().map(|taken| &taken.block.sample.clocks)));
    for note in samples().flat_map(|taken| &taken.block.sample.notes) {
        if !notes.contains(note) {
            notes.push(note.clone());
        }
    }
    for note in notes {
        page += &format!("  {note}\n");
    }
    page
}

fn samples(series: &Series<Block>) -> Vec<Sample> {
    series.blocks.iter().map(|taken| taken.block.sample.clone()).collect()
}

fn table(group: &Group, width: usize) -> String {
    let Group { placement, pattern, dilations, series } = group;
    let what = if *pattern == Pattern::PingPong { "half round trip" } else { "time a message" };
    let header = ["dilated", what, "performance over that at 1", "protocol work counted"];
    let mut table = Table::new(header).right([0, 1]);
    let first = samples(&series[0]);
    for (dilation, of) in dilations.iter().zip(series) {
        let Some(middle) = median(&of.values(|block| Some(block.time(*pattern)))) else {
            let why = of.failures.last().map_or("not measured", String::as_str);
            table.row([dilation.to_string().as_str(), "-", why, ""]);
            continue;
        };
        let over = match dilation.is_none() {
            true => "1".to_owned(),
            false => ratio(Paired::performance(&samples(of), &first, pattern.metric()).interval()),
        };
        let counted = median(&of.values(|block| block.counted(*pattern)));
        let counted = counted.map_or("not counted".to_owned(), figure::nanoseconds);
        table.row([dilation.to_string(), figure::nanoseconds(middle), over, counted]);
    }
    let mut page = format!("\n{placement}, {pattern}\n{}", table.text(width));
    let fits = fits(group);
    let (slope, rest): (Vec<f64>, Vec<f64>) = fits.iter().copied().unzip();
    let (Some(slope), Some(rest)) = (difference(&slope), difference(&rest)) else {
        return page + "    too few rounds for a slope: --rounds 7\n";
    };
    let counted: Vec<f64> = series.iter().flat_map(|of| of.values(|block| block.counted(*pattern))).collect();
    page += &format!(
        "    {what} = {} ({}) + k x {} ({})",
        figure::nanoseconds(rest.middle),
        rest.range(figure::nanoseconds),
        figure::nanoseconds(slope.middle),
        slope.range(figure::nanoseconds)
    );
    if let Some(counted) = median(&counted) {
        let whose = if *pattern == Pattern::PingPong { "" } else { " at the end that sends" };
        page += &format!("; protocol work counted{whose}: {}", figure::nanoseconds(counted));
        if slope.low > 0.0 {
            page += &format!(", {:.2} of the slope", counted / slope.middle);
        }
    }
    page.push('\n');
    if slope.low <= 0.0 {
        return page
            + "    noticed: cannot tell, the rounds differ too much; give more (--rounds 30), on cores that nothing else uses\n";
    }
    let base = rest.middle + slope.middle;
    let at = |share: f64| format!("{:.0} % longer at k = {:.2}", 100.0 * share, 1.0 + share * base / slope.middle);
    page + &format!("    noticed: {}\n", NOTICED.map(at).join(", "))
}

fn ratio(interval: Option<Estimate>) -> String {
    interval.map_or("cannot tell".into(), |of| of.ratio(3, ""))
}

/// The slope over k and the value at k = 0, for each round in which all ran at one clock, by least squares.
fn fits(group: &Group) -> Vec<(f64, f64)> {
    let beside = |of: &Series<Block>, round: u32| of.blocks.iter().find(|taken| taken.round == round).cloned();
    let of_round = |round: u32| -> Option<(f64, f64)> {
        let blocks: Vec<_> = group.series.iter().map(|of| beside(of, round)).collect::<Option<_>>()?;
        let samples = || blocks.iter().map(|taken| &taken.block.sample);
        let near = rounds::nearness::at_one_place(samples().filter_map(|sample| sample.probe));
        if !near || !clocks::at_one_clock(samples().map(|sample| &sample.clocks)) {
            return None;
        }
        let times = blocks.iter().map(|taken| taken.block.time(group.pattern));
        line(&group.dilations.iter().map(|dilation| dilation.factor()).zip(times).collect::<Vec<_>>())
    };
    let last = group.series[0].blocks.iter().map(|taken| taken.round).max();
    last.map_or(Vec::new(), |last| (0..=last).filter_map(of_round).collect())
}

/// The slope of the least-squares line, and its value at 0.
fn line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let n = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    let slope = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>() / spread;
    (spread > 0.0).then_some((slope, y - slope * x))
}

#[cfg(test)]
mod tests {
    use rounds::random::Random;

    use super::*;

    /// Half a round trip of the closed form: wire + k x protocol.
    #[test]
    fn the_closed_form_is_found_again() {
        let mut random = Random::new(7);
        for _ in 0..1_000 {
            let (wire, protocol) = (1e6 * random.unit(), 1.0 + 1e5 * random.unit());
            let ks: Vec<f64> =
                (0..2 + (6.0 * random.unit()) as usize).map(|nth| 1.0 + nth as f64 * (0.1 + random.unit())).collect();
            let points: Vec<_> = ks.iter().map(|k| (*k, wire + k * protocol)).collect();
            let (slope, rest) = line(&points).unwrap();
            let near = |found: f64, is: f64| (found - is).abs() < 1e-6 * (wire + 100.0 * protocol);
            assert!(near(slope, protocol) && near(rest, wire), "{slope} {rest} of {points:?}");
        }
    }

    #[test]
    fn one_k_has_no_slope() {
        assert_eq!(line(&[(2.0, 5.0), (2.0, 6.0)]), None);
    }
}
