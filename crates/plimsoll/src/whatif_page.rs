//! The pages of `plimsoll whatif`.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;

use machine::costs::Interval;
use machine::count;
use machine::figure::{self, nanoseconds};
use machine::text::Table;
use profile::terminal::place;
use serde_json::{Value, json};
use whatif::answer::{Answer, Check, Slack, Tolerance};
use whatif::candidate::Candidate;
use whatif::gradient::Gradient;
use whatif::graph::Graph;
use whatif::lever::Lever;
use whatif::outcome::{Forecast, Widening};
use whatif::path::{Counts, OnPath, Parts, Path};
use whatif::work::Work;

use crate::critical::{Names, lines};

/// A question: one lever.
#[derive(Debug)]
pub struct Question {
    pub words: String,
    pub lever: Lever,
    pub candidate: Option<Candidate>,
}

/// A question with its answer.
#[derive(Debug)]
pub struct Asked {
    pub question: Question,
    pub answer: Answer,
    pub forecast: Forecast,
    /// The reason why it cannot be run here.
    pub refused: Option<String>,
}

#[derive(Debug)]
pub struct Page<'a> {
    pub folder: &'a str,
    pub graph: &'a Graph,
    /// The carrier of its messages.
    pub carried: &'a str,
    pub check: &'a Check,
    pub asked: &'a [Asked],
    pub tolerances: &'a [Tolerance],
    pub slack: &'a [Slack],
    pub names: &'a Names<'a>,
    /// What is otherwise than when the costs were measured.
    pub changed: Option<&'a str>,
    pub notes: &'a [String],
}

/// Source lines that are shown at most.
const LINES: usize = 10;

/// Ranks that are named at most.
const RANKS: usize = 4;

/// What the intervals are.
const CALIBRATED: &str = "\nIntervals of 90 % held as many outcomes of other recorded programs; others cover the uncertainty \
    of the costs alone. plimsoll ledger shows how often they hold here.\n";
const UNCALIBRATED: &str = "\nThe intervals cover the uncertainty of the costs, not that of the model: plimsoll ledger shows \
    how often they held.\n";

impl Page<'_> {
    pub fn terminal(&self, width: usize) -> String {
        let mut text = self.changed.map_or_else(String::new, |changed| format!("{changed}\n"));
        let check = self.check;
        let ranks = count::of(self.graph.hosts.len() as u64, "rank");
        let calls = count::of(self.graph.len() as u64, "call");
        let time = nanoseconds(check.recorded);
        let how = if self.graph.scheduled { "replayed" } else { "recorded" };
        let _ = writeln!(text, "{}: {ranks}, {calls}, {time} {how}, carried by {}\n", self.folder, self.carried);
        let _ = writeln!(text, "Critical path   {}", shares(&check.path.parts));
        for ((words, of), slope) in
            ["within hosts", "between hosts"].iter().zip(&check.path.counts).zip(&check.gradients)
        {
            if of.trips + of.ends + slope.right.trips > 0 {
                let _ = writeln!(text, "  {words:<14}{}", counts(of, slope));
            }
        }
        if let Some(ranks) = computing(&check.path) {
            let _ = writeln!(text, "  of the computing: {ranks}");
        }
        let more: Vec<String> = self.tolerances.iter().map(tolerance).collect();
        let _ = writeln!(text, "Tolerance       {}", more.join(", "));
        let of_classes = 100.0 * (check.of_classes - 1.0);
        if !self.graph.scheduled {
            let _ = writeln!(
                text,
                "Model           replayed with each call's residual replaced by its class's mean: {of_classes:+.1} % of the time"
            );
        }
        if check.backwards.0 > 0 {
            let most = nanoseconds(check.backwards.1 as f64 / 1e3);
            let calls = count::of(check.backwards.0, "call");
            let _ = writeln!(
                text,
                "                {calls} ended before the call that they waited for was entered, by up to {most}: the hosts' clocks differ"
            );
        }
        let _ = writeln!(text, "Slack           {}", slack(self.slack));
        text += &self.lines(width);
        text += "\nWhat if                        Time                                        Its critical path\n";
        for Asked { question, answer, forecast, refused } in self.asked {
            let parts = &answer.path.parts;
            let of = |part| percent(part, parts.total());
            let mut words = format!("{} computing, {} messages", of(parts.computing), of(parts.messages + parts.work));
            if let Forecast::Uncalibrated(_) = forecast {
                words += ", model error not measured";
            }
            if let Some(order) = answer.order {
                words += &format!(", {:+.1} % in the recorded order", 100.0 * order);
            }
            let time = forecast.effect().map_or_else(|| "cannot tell".to_owned(), |time| than(&time, forecast.level()));
            let _ = writeln!(text, "  {:<28} {time:<43} {words}", question.words);
            if let Some(why) = why(forecast) {
                let _ = writeln!(text, "  {:<28} {why}", "");
            }
            let [before, after] = answer.work;
            if before.engines != after.engines {
                let change = |to: i64, from: i64| {
                    format!("{}{}", if to < from { "-" } else { "+" }, nanoseconds((to - from).abs() as f64 / 1e3))
                };
                let (ranks, engines) = (change(after.ranks, before.ranks), change(after.engines, before.engines));
                let _ = writeln!(
                    text,
                    "  {:<28} work for messages: {ranks} on the ranks' cores, {engines} on engines'",
                    ""
                );
            }
            if let Some(refused) = refused {
                let _ = writeln!(text, "  {:<28} cannot be run here: {refused}", "");
            }
        }
        text += if self.asked.iter().any(|of| of.forecast.level().is_some()) { CALIBRATED } else { UNCALIBRATED };
        for note in self.notes {
            let _ = writeln!(text, "Note: {note}");
        }
        text
    }

    /// The source lines with most of the path.
    fn lines(&self, width: usize) -> String {
        let (whole, lines) = (self.check.path.parts.total(), lines(&self.check.path));
        let header = ["By source line", "of the path", "computing before", "trips", "calls"];
        let mut table = Table::new(header).right(1..5);
        for (spot, of) in lines.iter().take(LINES) {
            table.row([
                self.names.call(spot),
                percent(of.time, whole),
                percent(of.computing, whole),
                count::grouped(of.counts.trips),
                count::grouped(of.calls),
            ]);
        }
        let more = match lines.len().saturating_sub(LINES) {
            0 => String::new(),
            more => format!("  {more} more: --json\n"),
        };
        format!("\n{}{more}", table.text(width))
    }

    pub fn json(&self) -> Value {
        let asked = |of: &Asked| {
            json!({
                "what": of.question.words,
                "time": of.forecast.effect().unwrap_or(of.answer.time),
                "level": of.forecast.level(),
                "widened": widened(&of.forecast),
                "cannot_tell": cannot_tell(&of.forecast),
                "drawn": of.answer.time,
                "draws": of.answer.draws,
                "order": of.answer.order,
                "work_before_ns": work(&of.answer.work[0]),
                "work_after_ns": work(&of.answer.work[1]),
                "refused": of.refused,
                "path": path(&of.answer.path, self.names),
            })
        };
        json!({
            "folder": self.folder,
            "ranks": self.graph.hosts.len(),
            "calls": self.graph.len(),
            "carried": self.carried,
            "recorded_ns": self.check.recorded,
            "replayed_with_own_residuals": self.check.identity,
            "replayed_with_class_residuals": self.check.of_classes,
            "path": path(&self.check.path, self.names),
            "gradients": self.check.gradients.iter().zip(["within_hosts", "between_hosts"]).map(|(of, reach)| json!({
                "reach": reach, "right": counted(&of.right), "left": counted(&of.left), "kink": of.is_kink(),
            })).collect::<Vec<_>>(),
            "slack": self.slack.iter().map(|of| json!({
                "rank": of.rank, "computing_ns": of.computing, "longer": of.longer,
                "longer_ns": of.longer.map(|longer| longer * of.computing),
            })).collect::<Vec<_>>(),
            "tolerances": self.tolerances.iter().map(|of| json!({ "more": of.more, "latency_ns": of.latency })).collect::<Vec<_>>(),
            "asked": self.asked.iter().map(asked).collect::<Vec<_>>(),
            "machine_changed": self.changed,
            "notes": self.notes,
        })
    }
}

pub fn path(path: &Path, names: &Names) -> Value {
    let Parts { computing, work, messages, opaque, unexplained, overexplained } = path.parts;
    let ns = |ps: i64| ps as f64 / 1e3;
    let with = |mut keys: Value, on_path: &OnPath| {
        let counts = on_path.counts;
        let figures = json!({
            "calls": on_path.calls, "ns": ns(on_path.time), "computing_ns": ns(on_path.computing),
            "trips": counts.trips, "bytes": counts.bytes, "ends": counts.ends,
        });
        if let (Value::Object(keys), Value::Object(figures)) = (&mut keys, figures) {
            keys.extend(figures);
        }
        keys
    };
    let by_size = path.by(|spot| (spot.function, spot.bits));
    let calls = by_size.iter().map(|((function, bits), of)| {
        with(json!({ "function": profile::sites::name(*function), "bytes_below": 1u128 << bits }), of)
    });
    let lines = lines(path);
    let sites = lines.iter().map(|(spot, of)| {
        let site = names.site(spot.site);
        let frame = site.and_then(|site| site.frames.first());
        let keys = json!({
            "function": profile::sites::name(spot.function),
            "place": site.map(place),
            "caller": frame.and_then(|frame| frame.name.clone()),
            "file": frame.and_then(|frame| frame.file.clone()),
            "line": frame.and_then(|frame| frame.line),
        });
        with(keys, of)
    });
    let ranks = path.by(|spot| spot.rank);
    let cores = path.by(|spot| names.core(spot.rank));
    json!({
        "computing_ns": ns(computing), "work_ns": ns(work), "messages_ns": ns(messages), "opaque_ns": ns(opaque),
        "unexplained_ns": ns(unexplained), "overexplained_ns": ns(overexplained),
        "within_hosts": counted(&path.counts[0]), "between_hosts": counted(&path.counts[1]),
        "computing_of_ranks_ns": ranks.iter().map(|(rank, of)| (rank.to_string(), ns(of.computing))).collect::<BTreeMap<_, _>>(),
        "calls": calls.collect::<Vec<_>>(),
        "sites": sites.collect::<Vec<_>>(),
        "ranks": ranks.iter().map(|(rank, of)| with(json!({ "rank": rank }), of)).collect::<Vec<_>>(),
        "cores": cores
            .iter()
            .filter_map(|(core, of)| core.map(|(host, core)| with(json!({ "host": host, "core": core }), of)))
            .collect::<Vec<_>>(),
    })
}

fn work(work: &Work) -> Value {
    let ns = |ps: i64| ps as f64 / 1e3;
    json!({ "ranks": ns(work.ranks), "engines": ns(work.engines), "links": ns(work.links) })
}

fn counted(of: &Counts) -> Value {
    json!({ "trips": of.trips, "bytes": of.bytes, "ends": of.ends })
}

fn percent(part: i64, whole: i64) -> String {
    format!("{:.0} %", 100.0 * part as f64 / whole.max(1) as f64)
}

/// `computing 71 %, messages 12 %, ..`
pub fn shares(parts: &Parts) -> String {
    let whole = parts.total();
    let all = [
        ("computing", parts.computing),
        ("messages", parts.messages),
        ("calls' work", parts.work),
        ("as measured", parts.opaque),
        ("unexplained", parts.unexplained),
        ("over-explained", parts.overexplained),
    ];
    let shown: Vec<String> = all
        .iter()
        .filter(|(_, part)| part.abs() * 200 > whole)
        .map(|(words, part)| format!("{words} {}", percent(*part, whole)))
        .collect();
    shown.join(", ")
}

/// `rank 0 75 %, rank 1 25 %`: shares of the computing on the path; `None`: one rank computes all of it.
fn computing(path: &Path) -> Option<String> {
    let by_rank = path.by(|spot| spot.rank).into_iter().map(|(rank, of)| (rank, of.computing));
    let mut ranks: Vec<(u32, i64)> = by_rank.filter(|(_, time)| *time > 0).collect();
    if ranks.len() < 2 {
        return None;
    }
    ranks.sort_by_key(|(rank, time)| (Reverse(*time), *rank));
    let sum = |of: &[(u32, i64)]| of.iter().map(|(_, time)| time).sum::<i64>();
    let whole = sum(&ranks);
    let (named, others) = ranks.split_at(RANKS.min(ranks.len()));
    let mut shown: Vec<String> =
        named.iter().map(|(rank, time)| format!("rank {rank} {}", percent(*time, whole))).collect();
    if !others.is_empty() {
        shown.push(format!("{} {}", count::of(others.len() as u64, "other rank"), percent(sum(others), whole)));
    }
    Some(shown.join(", "))
}

/// Trips on the path, and the effect of latency: where several paths are equally long, that of more differs from that of less.
fn counts(counts: &Counts, slope: &Gradient) -> String {
    let trips = count::of(counts.trips, "trip");
    let [right, left] = [slope.right.trips, slope.left.trips].map(|trips| nanoseconds(trips as f64));
    let mut text =
        format!("{trips} one after the other, {} in them: 1 ns more latency costs {right}", bytes(counts.bytes));
    if slope.right.trips != slope.left.trips {
        let _ = write!(text, ", 1 ns less saves {left} (a kink: paths equally long)");
    }
    text
}

fn bytes(bytes: u64) -> String {
    figure::scaled(bytes as f64, &[(1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB")])
}

fn tolerance(of: &Tolerance) -> String {
    let more = 100.0 * of.more;
    match of.latency {
        Some(latency) => format!("{more:.0} % more time at {} more a trip", nanoseconds(latency)),
        None => format!("{more:.0} % more time at no latency whatever"),
    }
}

/// The ranks with the least slack in computing, and the one with the most.
fn slack(of: &[Slack]) -> String {
    let mut of: Vec<&Slack> = of.iter().collect();
    of.sort_by(|one, other| {
        one.longer
            .unwrap_or(f64::INFINITY)
            .total_cmp(&other.longer.unwrap_or(f64::INFINITY))
            .then(one.rank.cmp(&other.rank))
    });
    let one = |of: &&Slack| match of.longer {
        Some(longer) => format!("rank {} {:.1} %", of.rank, 100.0 * longer),
        None => format!("rank {} as long as it likes", of.rank),
    };
    let tight: Vec<String> = of.iter().take(3).map(one).collect();
    let loose = of.last().filter(|_| of.len() > 3).map(|of| format!("; most of all {}", one(of))).unwrap_or_default();
    format!("for 1 % more time computing may take longer by: {}{loose}", tight.join(", "))
}

/// `0.83x (90 %: 0.71 .. 0.95)`: a time over the recorded one, and the share of outcomes in its interval, if it is known.
pub fn than(time: &Interval, level: Option<f64>) -> String {
    let Interval { low, middle, high } = time;
    let says = if (0.9995..1.0005).contains(low) && (0.9995..1.0005).contains(high) {
        "the same"
    } else if *high < 1.0 {
        "faster"
    } else if *low > 1.0 {
        "slower"
    } else {
        "cannot tell"
    };
    let level = level.map_or_else(String::new, |level| format!("{:.0} %: ", 100.0 * level));
    match low == high {
        true => format!("{middle:.3}x {says}"),
        false => format!("{middle:.3}x ({level}{low:.3} .. {high:.3}) {says}"),
    }
}

/// What makes the interval of a forecast wide, or why there is none.
fn why(forecast: &Forecast) -> Option<String> {
    match forecast {
        Forecast::Unchanged { .. } | Forecast::Uncalibrated(_) => None,
        Forecast::CannotTell { reason, next } => Some(format!("{reason}; {next}")),
        Forecast::Within { widened, .. } => {
            let one = |of: &Widening| format!("{} ({:.1}x)", of.cause.words(of.value), of.factor);
            let all: Vec<String> = widened.iter().map(one).collect();
            (!all.is_empty()).then(|| format!("wider by: {}", all.join(", ")))
        }
    }
}

fn widened(forecast: &Forecast) -> Value {
    let Forecast::Within { widened, .. } = forecast else { return Value::Null };
    widened.iter().map(|of| json!({ "cause": of.cause.words(of.value), "factor": of.factor })).collect()
}

fn cannot_tell(forecast: &Forecast) -> Value {
    match forecast {
        Forecast::CannotTell { reason, next } => json!({ "reason": reason, "next": next }),
        _ => Value::Null,
    }
}

/// A command as a shell takes it.
pub fn shell(command: &[String]) -> String {
    shlex::try_join(command.iter().map(String::as_str)).unwrap_or_else(|_| command.join(" "))
}

#[cfg(test)]
mod tests {
    use whatif::path::Spot;

    use super::*;

    /// Computing in a planted ratio, with noise in the calls of the path.
    #[test]
    fn a_planted_ratio_of_computing_is_shown() {
        let path = |times: &[i64]| {
            let mut path = Path::default();
            let function = record::functions::named("Send").unwrap().id;
            for (rank, computing) in (0..).zip(times) {
                let noisy = OnPath { computing: *computing, time: 2_000, ..OnPath::default() };
                path.spots.insert(Spot { rank, site: 0, function, bits: 4 }, noisy);
            }
            computing(&path)
        };
        assert_eq!(path(&[3_000, 1_000]).as_deref(), Some("rank 0 75 %, rank 1 25 %"));
        assert_eq!(
            path(&[10, 10, 60, 10, 5, 5]).unwrap(),
            "rank 2 60 %, rank 0 10 %, rank 1 10 %, rank 3 10 %, 2 other ranks 10 %"
        );
        assert_eq!((path(&[3_000]), path(&[0, 7])), (None, None));
    }
}
