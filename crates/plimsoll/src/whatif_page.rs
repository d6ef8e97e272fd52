//! What `plimsoll whatif` prints.

use std::fmt::Write;

use chart::number::nanoseconds;
use machine::costs::Interval;
use machine::count;
use serde_json::{Value, json};
use whatif::answer::{Answer, Check, Tolerance};
use whatif::gradient::Gradient;
use whatif::graph::Graph;
use whatif::model::Ways;
use whatif::path::{Counts, Parts, Path};

use crate::commands::whatif::Question;

/// A question with its answer.
#[derive(Debug)]
pub struct Asked {
    pub question: Question,
    pub answer: Answer,
    /// Why it cannot be run here.
    pub refused: Option<String>,
}

#[derive(Debug)]
pub struct Page<'a> {
    pub folder: &'a str,
    pub graph: &'a Graph,
    pub ways: &'a Ways,
    pub check: &'a Check,
    pub asked: &'a [Asked],
    pub tolerances: &'a [Tolerance],
    pub notes: &'a [String],
}

/// Beyond this share of the critical path that no model explains, small changes mean little.
const MUCH: f64 = 0.3;

impl Page<'_> {
    fn carried(&self) -> String {
        let between = self.graph.kinds.iter().any(|kind| kind.reach == whatif::graph::Reach::Between);
        if between { self.ways.between.to_string() } else { self.ways.within.to_string() }
    }

    pub fn terminal(&self) -> String {
        let mut text = String::new();
        let check = self.check;
        let ranks = count::of(self.graph.hosts.len() as u64, "rank");
        let calls = count::of(self.graph.len() as u64, "call");
        let time = nanoseconds(check.recorded);
        let how = if self.graph.scheduled { "replayed" } else { "recorded" };
        let _ = writeln!(text, "{}: {ranks}, {calls}, {time} {how}, carried by {}\n", self.folder, self.carried());
        let _ = writeln!(text, "Critical path   {}", shares(&check.path.parts));
        for ((words, of), slope) in
            ["within hosts", "between hosts"].iter().zip(&check.path.counts).zip(&check.gradients)
        {
            if of.trips + of.ends + slope.right.trips > 0 {
                let _ = writeln!(text, "  {words:<14}{}", counts(of, slope));
            }
        }
        let rank = check.path.computing.iter().max_by_key(|(_, time)| **time);
        if let Some((rank, computing)) = rank.filter(|_| check.path.computing.len() > 1) {
            let share = percent(*computing, check.path.parts.total());
            let _ = writeln!(text, "  most computing of rank {rank}: {share} of the time");
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
                "                {calls} ended before what they waited for began, by up to {most}: the hosts' clocks differ"
            );
        }
        text += "\nWhat if                        Time                                     Its critical path\n";
        for Asked { question, answer, refused } in self.asked {
            let parts = &answer.path.parts;
            let of = |part| percent(part, parts.total());
            let mut words = format!("{} computing, {} messages", of(parts.computing), of(parts.messages + parts.work));
            if parts.unknown_share() > MUCH {
                words += ", much not modelled";
            }
            let _ = writeln!(text, "  {:<28} {:<40} {words}", question.words, than(&answer.time));
            if let Some(refused) = refused {
                let _ = writeln!(text, "  {:<28} cannot be run here: {refused}", "");
            }
        }
        text += "\nThe intervals cover the uncertainty of the costs, not that of the model: plimsoll ledger shows how often they held.\n";
        for note in self.notes {
            let _ = writeln!(text, "Note: {note}");
        }
        text
    }

    pub fn json(&self) -> Value {
        let asked = |of: &Asked| {
            json!({
                "what": of.question.words,
                "time": of.answer.time,
                "draws": of.answer.draws,
                "refused": of.refused,
                "path": path(&of.answer.path),
            })
        };
        json!({
            "folder": self.folder,
            "ranks": self.graph.hosts.len(),
            "calls": self.graph.len(),
            "carried": self.carried(),
            "recorded_ns": self.check.recorded,
            "replayed_with_own_residuals": self.check.identity,
            "replayed_with_class_residuals": self.check.of_classes,
            "path": path(&self.check.path),
            "gradients": self.check.gradients.iter().zip(["within_hosts", "between_hosts"]).map(|(of, reach)| json!({
                "reach": reach, "right": counted(&of.right), "left": counted(&of.left), "kink": of.is_kink(),
            })).collect::<Vec<_>>(),
            "tolerances": self.tolerances.iter().map(|of| json!({ "more": of.more, "latency_ns": of.latency })).collect::<Vec<_>>(),
            "asked": self.asked.iter().map(asked).collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }
}

pub fn path(path: &Path) -> Value {
    let Parts { computing, work, messages, opaque, unexplained, overexplained } = path.parts;
    let ns = |ps: i64| ps as f64 / 1e3;
    let calls = path.calls.iter().map(|((function, bits), (calls, time))| {
        let name = record::functions::function(record::functions::FunctionId(*function)).map_or("", |of| of.name);
        json!({ "function": format!("MPI_{name}"), "bytes_below": 1u128 << bits, "calls": calls, "ns": ns(*time) })
    });
    json!({
        "computing_ns": ns(computing), "work_ns": ns(work), "messages_ns": ns(messages), "opaque_ns": ns(opaque),
        "unexplained_ns": ns(unexplained), "overexplained_ns": ns(overexplained),
        "within_hosts": counted(&path.counts[0]), "between_hosts": counted(&path.counts[1]),
        "computing_of_ranks_ns": path.computing.iter().map(|(rank, time)| (rank.to_string(), ns(*time))).collect::<std::collections::BTreeMap<_, _>>(),
        "calls": calls.collect::<Vec<_>>(),
    })
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

/// Trips on the path, and what latency costs: where several paths are equally long, another time for more than for less.
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
    chart::number::scaled(bytes as f64, &[(1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB")])
}

fn tolerance(of: &Tolerance) -> String {
    let more = 100.0 * of.more;
    match of.latency {
        Some(latency) => format!("{more:.0} % more time at {} more a trip", nanoseconds(latency)),
        None => format!("{more:.0} % more time at no latency whatever"),
    }
}

/// `0.83x (0.71 .. 0.95)`: of the recorded time.
pub fn than(time: &Interval) -> String {
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
    format!("{middle:.3}x ({low:.3} .. {high:.3}) {says}")
}

/// A command as a shell takes it.
pub fn shell(command: &[String]) -> String {
    shlex::try_join(command.iter().map(String::as_str)).unwrap_or_else(|_| command.join(" "))
}
