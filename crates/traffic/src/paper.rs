//! Paper 003's Tables 1 and 2 for this machine: user space against offloaded, and what a busy neighbour does to each.

use std::fmt::Write;
use std::sync::Arc;

use linux::lab::Lab;
use linux::shield::Wanted;
use machine::{CoreId, Fault, Nanoseconds, Result, XdpMode, count};
use runtime::site::residents::Log;

use crate::body::{Transmit, Waiting};
use crate::frame::Flow;
use crate::profile::{Profile, Rate, Sizes, Timing};
use crate::report::Report;
use crate::session::{Place, Session};

/// The sizes of Table 1, in bytes, here without the frame check sequence.
pub const SIZES: [u16; 7] = [64, 80, 96, 192, 384, 768, 1514];
/// Table 2's gap for 64 bytes.
pub const GAP: Nanoseconds = Nanoseconds(34_000);
/// Hogs that a sleeper cannot outrun: at its wake-up the kernel gives it one's place, not all of theirs.
const CROWD: usize = 4;
const RATE_RUN: Nanoseconds = Nanoseconds(250_000_000);
const GAP_RUN: Nanoseconds = Nanoseconds(500_000_000);

/// Who is busy beside the generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Neighbour {
    Nobody,
    OnApplication,
    CrowdOnApplication,
    OnDevice,
}

/// What is measured, and on what.
pub struct Paper<'a> {
    pub lab: &'a Arc<Lab>,
    pub flow: Flow,
    pub application: CoreId,
    pub device: CoreId,
    /// Rounds of each run that the ratios rest on.
    pub rounds: usize,
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

    fn interleaved(&self) -> String {
        count::of(self.rounds as u64, "interleaved round")
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
            lab: self.lab,
            profile: &profile,
            place,
            application: self.application,
            hogs,
            receiver: XdpMode::Native,
            log: self.log.clone(),
        };
        let report = session.run()?;
        if linux::signal::interrupted() {
            let cause = "a signal ended it; the tables above are whole, the one under way is not shown";
            return Err(Fault::new("traffic --paper", cause, "run it again for the rest"));
        }
        Ok(report)
    }

    fn paced(&self, place: Place, size: u16, neighbour: Neighbour) -> Result<Report> {
        self.once(place, Timing::Constant(Rate::Packets(1e9 / GAP.0 as f64)), size, neighbour)
    }

    /// Rates at full speed, 64 bytes, interleaved.
    fn rates(&self) -> Result<String> {
        let app = |transmit| Place::App { waiting: Waiting::Spin, transmit };
        let bodies = [
            ("sendto", app(Transmit::SendTo)),
            ("sendmmsg", app(Transmit::SendMany)),
            ("UDP GSO", app(Transmit::Segments)),
            ("AF_XDP", self.core()),
            ("XDP", self.hook()),
        ];
        let mut rates = vec![Vec::new(); bodies.len()];
        for _ in 0..self.rounds {
            for ((_, place), rates) in bodies.iter().zip(&mut rates) {
                let report = self.once(*place, Timing::Flood, SIZES[0], Neighbour::Nobody)?;
                rates.push(report.received.rate.value().copied().unwrap_or(0.0));
            }
        }
        let mut text = format!("64 B at full rate, median of {} (least to most)\n", self.interleaved());
        for ((name, _), own) in bodies.iter().zip(&rates) {
            let _ = writeln!(text, "  {name:<9}{:>8.3} Mpps", median(own) / 1e6);
        }
        let hook = &rates[4];
        text += &ratio_line("XDP over sendto", hook, &rates[0], "target 20x");
        text += &ratio_line("XDP over AF_XDP", hook, &rates[3], "target 8x");
        text.push('\n');
        Ok(text)
    }

    /// Standard deviations of the gap at 34 us beside hogs on the application's core, interleaved.
    fn deviations(&self, neighbour: Neighbour, hogs: &str) -> Result<String> {
        let shielded = Place::Core { core: self.device, shield: Wanted::Best };
        let hook = Place::Xdp { core: self.device, shield: Wanted::Best };
        let bodies = [("naive sleeper", self.naive()), ("AF_XDP, shielded", shielded), ("XDP, shielded", hook)];
        let (mut deviations, mut means) = (vec![Vec::new(); 3], vec![Vec::new(); 3]);
        for _ in 0..self.rounds {
            for (n, (_, place)) in bodies.iter().enumerate() {
                let report = self.paced(*place, SIZES[0], neighbour)?;
                if let Some(gaps) = report.gaps.value() {
                    deviations[n].push(gaps.standard_deviation);
                    means[n].push(gaps.mean);
                }
            }
        }
        let mut text = format!(
            "64 B every {} us with {hogs} on the application's core, median of {} (least to most)\n",
            GAP.0 / 1000,
            self.interleaved()
        );
        for (n, (name, _)) in bodies.iter().enumerate() {
            let _ = writeln!(
                text,
                "  {name:<18} gap {:>9.2} us, deviation {:>9.2} us",
                median(&means[n]) / 1e3,
                median(&deviations[n]) / 1e3
            );
        }
        text += &ratio_line("naive over AF_XDP", &deviations[0], &deviations[1], "target 50x");
        text += &ratio_line("naive over XDP", &deviations[0], &deviations[2], "target 50x");
        text.push('\n');
        Ok(text)
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

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// The ratio round by round, so that drift of the machine cancels.
fn ratio_line(name: &str, over: &[f64], under: &[f64], target: &str) -> String {
    let ratios: Vec<f64> = over.iter().zip(under).map(|(over, under)| over / under).collect();
    let (least, most) = ratios.iter().fold((f64::INFINITY, 0.0_f64), |(a, b), &r| (a.min(r), b.max(r)));
    format!("  {name}: {:.1}x ({least:.1} to {most:.1}), {target}\n", median(&ratios))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_found_and_ratios_are_taken_round_by_round() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
        assert!(median(&[]).is_nan());
        assert_eq!(ratio_line("a", &[10.0, 40.0, 30.0], &[1.0, 2.0, 10.0], "t"), "  a: 10.0x (3.0 to 20.0), t\n");
    }
}
