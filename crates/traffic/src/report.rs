//! The traffic asked for beside what was achieved, as papers and MoonGen report it: text for people, JSON for programs.

use std::fmt::Write;

use machine::count::{self, grouped};
use machine::{BitsPerSecond, Nanoseconds, Reading};
use serde::Serialize;

use crate::control::Progress;
use crate::profile::{Profile, Rate};
use crate::receiver::{Arrivals, BANDS, Gaps};
use crate::schedule::{LATE, Schedule};

/// One run of one body.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    pub body: Body,
    pub asked: Asked,
    pub sent: Sent,
    pub received: Received,
    /// `Absent` where arrivals were not timed, since no gap was asked, or fewer than two frames arrived.
    pub gaps: Reading<GapReport>,
    pub cores: Cores,
    /// Changes that made the run possible, and doubts.
    pub notes: Vec<String>,
}

/// The sender's body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Body {
    /// The site as the user named it: `app`, `core:1`, `xdp:eth0`.
    pub site: String,
    /// Evidence of the body: 'program 41, native mode, 1,000,000 runs'.
    pub proof: String,
    /// Protection of its core; 'none' is an answer.
    pub shield: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Asked {
    pub timing: String,
    pub sizes: String,
    /// Mean size in bytes, frame check sequence not counted.
    pub mean_size: f64,
    /// Frames a second; `None` where as many as possible were asked for.
    pub rate: Option<f64>,
    /// Gap in ns.
    pub gap: Option<f64>,
    pub frames: Option<u64>,
    pub duration: Option<Nanoseconds>,
}

/// The sender's counters.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sent {
    pub frames: u64,
    pub bytes: u64,
    /// Frames a second between the first and the last; `None` with fewer than two.
    pub rate: Option<f64>,
    /// Frames that left more than 1 us after their time.
    pub missed_deadlines: u64,
    /// Largest lateness of a frame.
    pub latest: Nanoseconds,
    pub errors: u64,
}

/// The receiver's counters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Received {
    pub frames: u64,
    pub bytes: u64,
    /// Frames a second between the first and the last.
    pub rate: Reading<f64>,
    /// Throughput of frames without check sequence, preamble and gap.
    pub throughput: Reading<BitsPerSecond>,
    /// Frames that were sent and never arrived.
    pub lost: u64,
    pub duplicated: u64,
    pub reordered: u64,
    /// Frames so late that it is not known whether they are duplicated or reordered.
    pub stale: u64,
}

/// Gaps between arrivals, in ns; shares from 0 to 1.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GapReport {
    pub count: u64,
    pub mean: f64,
    pub standard_deviation: f64,
    /// `(distance from the asked gap, share of gaps that keep within)`; meaningful for constant gaps only.
    pub within: Vec<(Nanoseconds, f64)>,
    pub bursts: f64,
    pub least: u64,
    /// The median, to the upper end of a bucket of the histogram, at most 3.2 % too high.
    pub p50: u64,
    pub p99: u64,
    pub p99_9: u64,
    pub most: u64,
}

/// Cost of the run: both cores, always.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cores {
    pub application: CoreLoad,
    /// The core that does the device's work: the application's own where the body runs there.
    pub device: CoreLoad,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CoreLoad {
    /// 'core 1', or 'the same core'.
    pub which: String,
    /// Busy share of the core during the run, 0 to 1.
    pub busy: Reading<f64>,
}

impl Report {
    pub fn new(
        body: Body,
        profile: &Profile,
        schedule: &Schedule,
        progress: &Progress,
        arrivals: &Arrivals,
        cores: Cores,
    ) -> Report {
        let received = Received::of(progress, arrivals);
        let mut notes = schedule.notes.clone();
        if progress.sent > 0 && arrivals.received == 0 {
            notes.push(
                "nothing arrived although the sender counted frames: frames made in the kernel are dropped where the other \
                 end of a veth pair has neither a native XDP program nor GRO"
                    .into(),
            );
        }
        if progress.sent.checked_sub(arrivals.received - arrivals.duplicated.min(arrivals.received)).is_none() {
            notes.push("more frames arrived than were sent: another sender uses the same tag".into());
        }
        let short = schedule.frames.filter(|&frames| progress.sent < frames);
        if let (Some(frames), None) = (short, profile.duration) {
            let (sent, frames) = (grouped(progress.sent), count::of(frames, "frame"));
            notes.push(format!("{sent} of {frames} left before the run was stopped"));
        }
        let paced = profile.is_paced();
        Report {
            body,
            asked: Asked {
                timing: profile.timing.to_string(),
                sizes: profile.sizes.to_string(),
                mean_size: schedule.mean_size,
                rate: paced.then(|| 1e9 / schedule.mean_gap),
                gap: paced.then_some(schedule.mean_gap),
                frames: schedule.frames,
                duration: profile.duration,
            },
            sent: Sent::of(progress),
            received,
            gaps: match &arrivals.gaps {
                Some(gaps) => Reading::Measured(GapReport::of(gaps)),
                None => untimed(progress, arrivals),
            },
            cores,
            notes,
        }
    }

    /// One object; field names as here, quantities in ns, bytes, bits/s and shares from 0 to 1.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_else(|e| format!("{{\"error\": \"{e}\"}}"))
    }

    /// Lines of `name  value`.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "{name:<18}{value}");
        };
        let Report { body, asked, sent, received, cores, .. } = self;
        line("sender", format!("{}: {}; core kept by: {}", body.site, body.proof, body.shield));
        line("asked", format!("{}, {}", asked.timing, asked.sizes));
        let rate = |rate: f64| Rate::Packets(rate).to_string();
        let achieved = match received.rate.value() {
            Some(achieved) => {
                let share = asked
                    .rate
                    .map_or(String::new(), |wanted| format!(", {:.2} % of the asked", 100.0 * achieved / wanted));
                format!("{}{share}", rate(*achieved))
            }
            None => unknown(&received.rate),
        };
        line("rate received", achieved);
        line("rate sent", sent.rate.map_or("unknown: fewer than two frames".into(), rate));
        line(
            "throughput",
            received.throughput.value().map_or_else(|| unknown(&received.throughput), ToString::to_string),
        );
        line(
            "frames",
            format!(
                "{} sent, {} received, {} lost, {} duplicated, {} reordered",
                grouped(sent.frames),
                grouped(received.frames),
                grouped(received.lost),
                grouped(received.duplicated),
                grouped(received.reordered)
            ),
        );
        if received.stale > 0 {
            line("", format!("{} more than 1024 numbers late: duplicated or reordered", grouped(received.stale)));
        }
        match (self.gaps.value(), asked.gap) {
            (Some(gaps), wanted) => {
                let wanted = wanted.map_or(String::new(), |gap| format!(" (asked {})", microseconds(gap)));
                line(
                    "gap",
                    format!("{} +- {}{wanted}", microseconds(gaps.mean), microseconds(gaps.standard_deviation)),
                );
                let within: Vec<_> =
                    gaps.within.iter().map(|(band, share)| format!("{band} {:.1} %", 100.0 * share)).collect();
                line("within", within.join(", "));
                line("bursts", format!("{:.1} %", 100.0 * gaps.bursts));
                let at = [("p50", gaps.p50), ("p99", gaps.p99), ("p99.9", gaps.p99_9), ("max", gaps.most)];
                let at: Vec<_> = at.iter().map(|(name, gap)| format!("{name} {}", microseconds(*gap as f64))).collect();
                line("", at.join(", "));
            }
            (None, _) => line("gap", unknown(&self.gaps)),
        }
        let late = match asked.gap {
            Some(_) => format!("{} by more than {LATE}, the latest by {}", grouped(sent.missed_deadlines), sent.latest),
            None => "none was set".into(),
        };
        line("missed deadlines", late);
        if sent.errors > 0 {
            line("send errors", format!("{}, tried again", grouped(sent.errors)));
        }
        line("application's CPU", cores.application.text());
        line("device's CPU", cores.device.text());
        for note in &self.notes {
            line("note", note.clone());
        }
        text
    }
}

/// Several runs side by side, a line each, the first column left-aligned.
pub fn table(reports: &[Report]) -> String {
    let head = [
        "site",
        "size B",
        "rate",
        "throughput",
        "gap us",
        "+- us",
        "in 1 us",
        "p99.9 us",
        "missed",
        "lost",
        "app CPU",
        "device CPU",
    ];
    let mut rows = vec![head.map(String::from)];
    rows.extend(reports.iter().map(|report| {
        let gaps = report.gaps.value();
        let gap = |of: fn(&GapReport) -> f64| gaps.map_or("-".into(), |gaps| format!("{:.2}", of(gaps) / 1e3));
        let load =
            |core: &CoreLoad| core.busy.value().map_or("unknown".into(), |busy| format!("{:.0} %", 100.0 * busy));
        [
            report.body.site.clone(),
            format!("{:.0}", report.asked.mean_size),
            report.received.rate.value().map_or("unknown".into(), |rate| Rate::Packets(*rate).to_string()),
            report.received.throughput.value().map_or("unknown".into(), ToString::to_string),
            gap(|gaps| gaps.mean),
            gap(|gaps| gaps.standard_deviation),
            gaps.and_then(|gaps| gaps.within.last()).map_or("-".into(), |(_, share)| format!("{:.1} %", 100.0 * share)),
            gap(|gaps| gaps.p99_9 as f64),
            grouped(report.sent.missed_deadlines),
            grouped(report.received.lost),
            load(&report.cores.application),
            load(&report.cores.device),
        ]
    }));
    let widths: Vec<usize> =
        (0..head.len()).map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  "));
    }
    text
}

impl Sent {
    fn of(progress: &Progress) -> Sent {
        Sent {
            frames: progress.sent,
            bytes: progress.bytes,
            rate: per_second(progress.sent, progress.first, progress.last),
            missed_deadlines: progress.missed,
            latest: progress.latest,
            errors: progress.errors,
        }
    }
}

impl Received {
    fn of(progress: &Progress, arrivals: &Arrivals) -> Received {
        let different = arrivals.received.saturating_sub(arrivals.duplicated + arrivals.stale);
        let rate = match arrivals.rate() {
            Some(rate) => Reading::Measured(rate),
            None => untimed(progress, arrivals),
        };
        let mean_size = arrivals.bytes as f64 / arrivals.received.max(1) as f64;
        Received {
            frames: arrivals.received,
            bytes: arrivals.bytes,
            throughput: rate.clone().map(|rate| BitsPerSecond(rate * mean_size * 8.0)),
            rate,
            lost: progress.sent.saturating_sub(different),
            duplicated: arrivals.duplicated,
            reordered: arrivals.reordered,
            stale: arrivals.stale,
        }
    }
}

/// The reason why arrivals have no times, and what the sender has instead.
fn untimed<T>(progress: &Progress, arrivals: &Arrivals) -> Reading<T> {
    let sent = match per_second(progress.sent, progress.first, progress.last) {
        Some(rate) => format!("; one frame left every {} on average", microseconds(1e9 / rate)),
        None => String::new(),
    };
    Reading::absent(match arrivals.received {
        0 | 1 => "fewer than two frames arrived".to_owned(),
        _ if arrivals.last.0 > 0 => "all frames arrived at one time".to_owned(),
        _ => format!("arrivals are timed only where a rate or gap is asked (--rate, --gap){sent}"),
    })
}

fn per_second(frames: u64, first: Nanoseconds, last: Nanoseconds) -> Option<f64> {
    let time = last.0.checked_sub(first.0).filter(|&time| time > 0)?;
    (frames > 1).then(|| (frames - 1) as f64 * 1e9 / time as f64)
}

impl GapReport {
    fn of(gaps: &Gaps) -> GapReport {
        let share = |count: u64| count as f64 / gaps.count as f64;
        GapReport {
            count: gaps.count,
            mean: gaps.mean,
            standard_deviation: gaps.deviation,
            within: BANDS.iter().zip(gaps.within).map(|(&band, count)| (Nanoseconds(band), share(count))).collect(),
            bursts: share(gaps.bursts),
            least: gaps.least,
            p50: gaps.percentile(0.5),
            p99: gaps.percentile(0.99),
            p99_9: gaps.percentile(0.999),
            most: gaps.most,
        }
    }
}

impl CoreLoad {
    fn text(&self) -> String {
        match self.busy.value() {
            Some(busy) => format!("{:.1} % of {}", 100.0 * busy, self.which),
            None => unknown(&self.busy),
        }
    }
}

fn unknown<T>(reading: &Reading<T>) -> String {
    match reading {
        Reading::Absent { reason } => format!("unknown: {reason}"),
        Reading::NotPermitted { reason, next } => format!("not permitted: {reason}. Next: {next}"),
        Reading::Measured(_) | Reading::Modelled(_) => String::new(),
    }
}

fn microseconds(ns: f64) -> String {
    format!("{:.2} us", ns / 1e3)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::control::State;
    use crate::frame::tests::flow;
    use crate::profile::{Sizes, Timing};
    use crate::receiver::{Expected, word};

    fn report(sent: u64, words: &[(usize, u64)], timing: bool) -> Report {
        let constant = Timing::Constant(Rate::Packets(1e6));
        let profile = Profile { frames: Some(1000), ..Profile::new(flow(false), constant, Sizes::Fixed(60)) };
        let schedule = Schedule::of(&profile).unwrap();
        let progress = Progress {
            state: State::Finished,
            sent,
            bytes: 60 * sent,
            missed: 3,
            errors: 0,
            latest: Nanoseconds(2500),
            first: Nanoseconds(1000),
            last: Nanoseconds(1000 + 1000 * (sent - 1)),
            turns: sent,
        };
        let mut queue = vec![0; word::WORDS];
        words.iter().for_each(|&(at, value)| queue[at] = value);
        let queue: Vec<AtomicU64> = queue.into_iter().map(AtomicU64::new).collect();
        let expected =
            Expected { tag: 1, port: 1, target: Nanoseconds(1000), burst: Nanoseconds(10), timing, pass: false };
        let arrivals = Arrivals::of(std::iter::once(&queue[..]), &expected);
        let body = Body { site: "core:1".into(), proof: "1000 frames by AF_XDP".into(), shield: "cpuset".into() };
        let cores = Cores {
            application: CoreLoad { which: "core 0".into(), busy: Reading::Measured(0.021) },
            device: CoreLoad { which: "core 1".into(), busy: Reading::not_permitted("no root", "be root") },
        };
        Report::new(body, &profile, &schedule, &progress, &arrivals, cores)
    }

    /// 998 of 1000 frames: two lost (one of them the last), one duplicated; all gaps 1000 ns but one of 3000.
    fn some() -> Report {
        let words = [
            (word::RECEIVED, 999),
            (word::DUPLICATED, 1),
            (word::BYTES, 999 * 60),
            (word::NEXT, 999),
            (word::FIRST_NS, 5),
            (word::LAST_NS, 5 + 997 * 1000 + 3000),
            (word::GAPS, 998),
            (word::GAP_MIN_NS, 1000),
            (word::GAP_MAX_NS, 3000),
            (word::SQUARES_LOW, 4_000_000),
            (word::WITHIN_64, 997),
            (word::HISTOGRAM + 5 * 32 + 30, 997),
            (word::HISTOGRAM + 7 * 32 + 14, 1),
        ];
        report(1000, &words, true)
    }

    #[test]
    fn the_text_says_asked_and_achieved_and_both_cores() {
        let expected = "\
sender            core:1: 1000 frames by AF_XDP; core kept by: cpuset
asked             1.000 Mpps, constant gaps, 60 B
rate received     998.00 kpps, 99.80 % of the asked
rate sent         1.000 Mpps
throughput        479.0 Mbit/s
frames            1,000 sent, 999 received, 2 lost, 1 duplicated, 0 reordered
gap               1.00 us +- 0.06 us (asked 1.00 us)
within            64 ns 99.9 %, 128 ns 99.9 %, 256 ns 99.9 %, 512 ns 99.9 %, 1 us 99.9 %
bursts            0.0 %
                  p50 1.01 us, p99 1.01 us, p99.9 3.00 us, max 3.00 us
missed deadlines  3 by more than 1 us, the latest by 2.5 us
application's CPU 2.1 % of core 0
device's CPU      not permitted: no root. Next: be root
";
        assert_eq!(some().text(), expected);
    }

    #[test]
    fn json_has_every_figure_and_no_zero_for_what_is_unknown() {
        let value: serde_json::Value = serde_json::from_str(&some().json()).unwrap();
        assert_eq!(value["received"]["lost"], 2);
        assert_eq!(value["gaps"]["measured"]["count"], 998);
        assert_eq!(value["gaps"]["measured"]["most"], 3000);
        assert_eq!(value["cores"]["device"]["busy"]["not_permitted"]["next"], "be root");
        assert_eq!(value["asked"]["gap"], 1000.0);
        let untimed = report(1000, &[(word::RECEIVED, 1000), (word::NEXT, 1000)], false);
        let value: serde_json::Value = serde_json::from_str(&untimed.json()).unwrap();
        assert!(value["received"]["rate"]["absent"]["reason"].is_string() && value["gaps"]["absent"].is_object());
        let gap = untimed.text().lines().find(|line| line.starts_with("gap ")).unwrap().to_owned();
        assert!(
            gap.contains("only where a rate or gap is asked") && gap.ends_with("every 1.00 us on average"),
            "{gap}"
        );
    }

    #[test]
    fn frames_that_never_arrive_are_not_success() {
        let report = report(1000, &[], true);
        assert_eq!((report.received.frames, report.received.lost), (0, 1000));
        assert!(
            report.notes[0].starts_with("nothing arrived")
                && report.text().contains("note              nothing arrived")
        );
        assert!(report.text().contains("rate received     unknown: "));
    }

    #[test]
    fn runs_stand_side_by_side() {
        let text = table(&[some(), some()]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{text}");
        assert!(lines[1].contains("998.00 kpps") && lines[1].ends_with("unknown"), "{text}");
    }
}
