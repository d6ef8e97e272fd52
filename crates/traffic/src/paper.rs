//! Paper 003's Tables 1 and 2 for this machine: user space against offloaded, and what a busy neighbour does to each.

use std::fmt::Write;
use std::sync::Arc;

use linux::lab::Lab;
use linux::shield::Wanted;
use machine::{CoreId, Fault, Nanoseconds, Probe, Result, XdpMode, count};
use rounds::blocks::{self, Blocks, Plan, Series};
use rounds::bound::{Bound, Verdict};
use rounds::estimate::Estimate;
use rounds::statistics::{median, median_interval};
use runtime::site::residents::Log;

use crate::body::{Transmit, Waiting};
use crate::frame::Flow;
use crate::profile::{Profile, Rate, Sizes, Timing};
use crate::report::Report;
use crate::session::{Place, Session};
use crate::wire::Wire;

/// The sizes of Table 1, in bytes, here without the frame check sequence.
pub const SIZES: [u16; 7] = [64, 80, 96, 192, 384, 768, 1514];
/// The gap of Table 2 for 64 bytes.
pub const GAP: Nanoseconds = Nanoseconds(34_000);
/// Hogs that a sleeper cannot outrun: at its wake-up the kernel gives it one's place, not all of theirs.
const CROWD: usize = 4;
const RATE_RUN: Nanoseconds = Nanoseconds(250_000_000);
const GAP_RUN: Nanoseconds = Nanoseconds(500_000_000);

/// The busy neighbour of the generator, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Neighbour {
    Nobody,
    OnApplication,
    CrowdOnApplication,
    OnDevice,
}

/// A run of the paper's measurements.
pub struct Paper<'a> {
    pub lab: &'a Arc<Lab>,
    pub flow: Flow,
    pub application: CoreId,
    pub device: CoreId,
    /// Most rounds that the ratios rest on.
    pub rounds: u32,
    pub log: Log,
}

impl Paper<'_> {
    /// Measures everything, about two minutes, and tells `say` each part as it is done.
    pub fn run(&self, mut say: impl FnMut(&str) -> Result<()>) -> Result<()> {
        say(&format!(
            "Application on {}, device on {}. Sizes without the frame check sequence; all counted at the receiver.\n\n",
            self.application, self.device
        ))?;
        say(&self.rates()?)?;
        say(&self.table("Table 1: user space (sendto, sleeping between frames)", &self.naive(), Wanted::Nothing)?)?;
        for (name, place) in
            [("AF_XDP on a core of its own", self.core()), ("XDP, frames made in the kernel", self.hook())]
        {
            say(&self.table(&format!("Table 2: offloaded: {name}"), &place, Wanted::Nothing)?)?;
            say(&self.table(&format!("Table 2: offloaded: {name}, its core protected"), &place, Wanted::Best)?)?;
        }
        say(&self.deviations(Neighbour::OnApplication, "one hog")?)?;
        say(&self.deviations(Neighbour::CrowdOnApplication, "four hogs")?)
    }

    fn naive(&self) -> Place {
        Place::App { waiting: Waiting::RelativeSleep, transmit: Transmit::SendTo }
    }

    fn core(&self) -> Place {
        Place::Core { core: self.device, shield: Wanted::Nothing }
    }

    fn hook(&self) -> Place {
        Place::Xdp { core: self.device, shield: Wanted::Nothing }
    }

    fn once(&self, place: Place, timing: Timing, size: u16, neighbour: Neighbour) -> Result<Report> {
        let mut profile = Profile::new(self.flow.clone(), timing, Sizes::Fixed(size));
        profile.duration = Some(if timing == Timing::Flood { RATE_RUN } else { GAP_RUN });
        let hogs = match neighbour {
            Neighbour::Nobody => None,
            Neighbour::OnApplication => Some((self.application, 1)),
            Neighbour::CrowdOnApplication => Some((self.application, CROWD)),
            Neighbour::OnDevice => Some((self.device, 1)),
        };
        let session = Session {
            wire: Wire::Lab(self.lab.clone()),
            guarded: false,
            profile: &profile,
            place,
            application: self.application,
            hogs,
            receiver: XdpMode::Native,
            log: self.log.clone(),
        };
        let report = session.run()?;
        if linux::signal::interrupted() {
            return Err(ended());
        }
        Ok(report)
    }

    fn paced(&self, place: Place, size: u16, neighbour: Neighbour) -> Result<Report> {
        self.once(place, Timing::Constant(Rate::Packets(1e9 / GAP.0 as f64)), size, neighbour)
    }

    /// Rates at full speed, 64 bytes, in rounds.
    fn rates(&self) -> Result<String> {
        let app = |transmit| Place::App { waiting: Waiting::Spin, transmit };
        let bodies = [
            ("sendto", app(Transmit::SendTo)),
            ("sendmmsg", app(Transmit::SendMany)),
            ("UDP GSO", app(Transmit::Segments)),
            ("AF_XDP", self.core()),
            ("XDP", self.hook()),
        ];
        let targets = [
            Target { words: "XDP over sendto", one: 4, other: 0, bound: Bound::AtLeast(20.0) },
            Target { words: "XDP over AF_XDP", one: 4, other: 3, bound: Bound::AtLeast(8.0) },
        ];
        let rate = |place: Place| {
            let report = self.once(place, Timing::Flood, SIZES[0], Neighbour::Nobody)?;
            match report.received.rate.value() {
                Some(rate) => Ok(Paced { value: *rate, mean_gap: None }),
                None => Err(Fault::new("its rate", "the receiver could not count", "run it again")),
            }
        };
        let (rounds, all) = self.rounds(&bodies, &targets, &rate)?;
        let mut text = format!("64 B at full rate, median (95 % interval), {rounds}\n");
        for ((name, _), series) in bodies.iter().zip(&all) {
            match median_interval(&series.values(|paced| Some(paced.value))) {
                Some(i) => {
                    let ends = i.range(|rate| format!("{:.3}", rate / 1e6));
                    let _ = writeln!(text, "  {name:<9}{:>8.3} Mpps ({ends})", i.middle / 1e6);
                }
                None => text += &format!("  {name:<9} not measured\n"),
            }
        }
        Ok(text + &judged(&targets, &all) + "\n")
    }

    /// Standard deviations of the gap at 34 us beside hogs on the application's core, in rounds.
    fn deviations(&self, neighbour: Neighbour, hogs: &str) -> Result<String> {
        let shielded = Place::Core { core: self.device, shield: Wanted::Best };
        let hook = Place::Xdp { core: self.device, shield: Wanted::Best };
        let bodies = [("naive sleeper", self.naive()), ("AF_XDP, shielded", shielded), ("XDP, shielded", hook)];
        let targets = [
            Target { words: "naive over AF_XDP", one: 0, other: 1, bound: Bound::AtLeast(50.0) },
            Target { words: "naive over XDP", one: 0, other: 2, bound: Bound::AtLeast(50.0) },
        ];
        let gaps = |place: Place| {
            let report = self.paced(place, SIZES[0], neighbour)?;
            match report.gaps.value() {
                Some(gaps) => Ok(Paced { value: gaps.standard_deviation, mean_gap: Some(gaps.mean) }),
                None => Err(Fault::new("its gaps", "the receiver could not time them", "run it again")),
            }
        };
        let (rounds, all) = self.rounds(&bodies, &targets, &gaps)?;
        let gap = GAP.0 / 1000;
        let mut text = format!("64 B every {gap} us with {hogs} on the application's core, medians, {rounds}\n");
        for ((name, _), series) in bodies.iter().zip(&all) {
            let middle = |value: fn(&Paced) -> Option<f64>| median(&series.values(value)).map(|ns| ns / 1e3);
            match middle(|paced| paced.mean_gap).zip(middle(|paced| Some(paced.value))) {
                Some((gap, deviation)) => {
                    let _ = writeln!(text, "  {name:<18} gap {gap:>9.2} us, deviation {deviation:>9.2} us");
                }
                None => text += &format!("  {name:<18} not measured\n"),
            }
        }
        Ok(text + &judged(&targets, &all) + "\n")
    }

    /// Measures bodies in rounds, until the targets are decided.
    fn rounds(
        &self,
        bodies: &[(&str, Place)],
        targets: &[Target],
        block: &dyn Fn(Place) -> Result<Paced>,
    ) -> Result<(String, Vec<Series<Paced>>)> {
        let plan = Plan { groups: vec![bodies.len()], rounds: self.rounds, seed: 3 };
        let (all, whole) = blocks::conduct(&mut Bodies { paper: self, bodies, block }, &plan, |_, all| {
            targets.iter().any(|target| target.judge(all).1 == Verdict::CannotTell)
        });
        if !whole {
            return Err(ended());
        }
        let done = all.iter().map(|series| series.blocks.len()).max().unwrap_or(0);
        Ok((format!("{done} of {}", count::of(self.rounds.into(), "round")), all))
    }

    fn table(&self, title: &str, place: &Place, shield: Wanted) -> Result<String> {
        let place = match *place {
            Place::Core { core, .. } => Place::Core { core, shield },
            Place::Xdp { core, .. } => Place::Xdp { core, shield },
            app => app,
        };
        let device = !matches!(place, Place::App { .. });
        let mut text = format!("{title}\n");
        let mut head = format!("{:>6} {:>11}  {:>24}  {:>9}", "Size", "Full rate", "Gap at 34 us, idle", "CPU");
        let mut columns = vec![Neighbour::Nobody, Neighbour::OnApplication];
        head += &format!("  {:>24}  {:>9}", "hog on the application's", "CPU");
        if device {
            columns.push(Neighbour::OnDevice);
            head += &format!("  {:>24}  {:>9}", "hog on the device's", "CPU");
        }
        let units = columns.iter().fold(format!("{:>6} {:>11}", "B", "Mb/s"), |line, _| {
            line + &format!("  {:>24}  {:>9}", "us, mean +- deviation", "app/dev %")
        });
        let _ = writeln!(text, "{head}\n{units}");
        let mut by = String::new();
        for size in SIZES {
            let flood = match place {
                Place::App { .. } => Place::App { waiting: Waiting::Spin, transmit: Transmit::SendTo },
                other => other,
            };
            let full = self.once(flood, Timing::Flood, size, Neighbour::Nobody)?;
            let throughput = full.received.throughput.value();
            let throughput = throughput.map_or("unknown".into(), |bits| format!("{:.1}", bits.0 / 1e6));
            let _ = write!(text, "{size:>6} {throughput:>11}");
            for neighbour in &columns {
                let report = self.paced(place, size, *neighbour)?;
                let gap = match report.gaps.value() {
                    Some(gaps) => format!("{:.2} +- {:.2}", gaps.mean / 1e3, gaps.standard_deviation / 1e3),
                    None => "unknown".into(),
                };
                let share = |reading: &machine::Reading<f64>| {
                    reading.value().map_or("?".into(), |busy| format!("{:.0}", 100.0 * busy))
                };
                let cores = &report.cores;
                let cpu = format!("{}/{}", share(&cores.application.busy), share(&cores.device.busy));
                let _ = write!(text, "  {gap:>24}  {cpu:>9}");
                by = report.body.shield;
            }
            text.push('\n');
        }
        let _ = writeln!(text, "  its core is kept by: {by}\n");
        Ok(text)
    }
}

/// The figures that a run is judged by: a rate in frames a second, or the deviation of a gap in nanoseconds.
#[derive(Clone)]
struct Paced {
    value: f64,
    /// Mean gap in nanoseconds.
    mean_gap: Option<f64>,
}

struct Bodies<'a> {
    paper: &'a Paper<'a>,
    bodies: &'a [(&'a str, Place)],
    block: &'a dyn Fn(Place) -> Result<Paced>,
}

impl Blocks for Bodies<'_> {
    type Block = Paced;

    fn block(&mut self, body: usize, _: u32) -> Result<Paced> {
        let (name, place) = self.bodies[body];
        (self.block)(place).map_err(|fault| fault.within(name))
    }

    fn probe(&mut self, _: usize) -> Option<Probe> {
        ports::probe::between(self.paper.application, self.paper.device).ok()
    }

    fn stopped(&self) -> bool {
        linux::signal::interrupted()
    }
}

/// A ratio of two bodies that is held to a bound.
struct Target {
    words: &'static str,
    one: usize,
    other: usize,
    bound: Bound,
}

impl Target {
    fn judge(&self, all: &[Series<Paced>]) -> (Option<Estimate>, Verdict) {
        let ratio = all[self.one].over(&all[self.other], |paced| Some(paced.value)).interval();
        (ratio, self.bound.judge(ratio))
    }
}

/// A line for each target, and for each body that failed.
fn judged(targets: &[Target], all: &[Series<Paced>]) -> String {
    let line = |target: &Target| {
        let (ratio, verdict) = target.judge(all);
        let ratio = ratio.map_or("-".to_owned(), |i| i.ratio(1, "x"));
        format!("  {}: {ratio}, {}: {verdict}\n", target.words, target.bound)
    };
    let failures = all.iter().flat_map(|series| &series.failures).map(|failure| format!("  {failure}\n"));
    targets.iter().map(line).chain(failures).collect()
}

fn ended() -> Fault {
    let cause = "a signal ended it; the tables above are whole, the one under way is not shown";
    Fault::new("traffic --paper", cause, "run it again for the rest")
}

#[cfg(test)]
mod tests {
    use rounds::blocks::Taken;

    use super::*;

    #[test]
    fn ratios_are_taken_round_by_round_and_held_to_their_targets() {
        let series = |values: &[f64]| {
            let paced = |value: &f64| Paced { value: *value, mean_gap: None };
            let taken = |(round, value)| Taken {
                round: round as u32,
                probes: [None; 2],
                clocks: Default::default(),
                block: paced(value),
            };
            Series { blocks: values.iter().enumerate().map(taken).collect(), failures: vec!["why".to_owned()] }
        };
        let all = [series(&[10.0, 40.0, 20.0, 31.0, 10.0, 20.0]), series(&[1.0, 4.0, 2.0, 3.0, 1.0, 2.0])];
        let target = |bound| Target { words: "a over b", one: 0, other: 1, bound: Bound::AtLeast(bound) };
        assert_eq!([5.0, 20.0].map(|bound| target(bound).judge(&all).1), [Verdict::Met, Verdict::Missed]);
        let text = judged(&[target(5.0)], &all);
        assert!(
            text.starts_with("  a over b: 10.1x (") && text.ends_with("at least 5.0x: met\n  why\n  why\n"),
            "{text}"
        );
    }
}
