//! The pages of `plimsoll map`.

use std::fmt::Write;
use std::path::Path;

use machine::costs::Interval;
use machine::text::Table;
use machine::{count, shell};
use mapping::advice::Advice;
use mapping::problem::{ALIKE, Problem, Spot};
use mapping::reason::{Move, Reason};
use mapping::search::Found;
use profile::verdict::{Answer, Choice, Judgement};
use serde_json::{Value, json};

/// Interrupts of a host moved to another of its cores, while the ranks stay.
#[derive(Debug, Clone, PartialEq)]
pub struct Steered {
    pub host: String,
    pub from: Vec<u32>,
    pub to: u32,
    /// The time over the recorded one.
    pub time: Interval,
}

#[derive(Debug)]
pub struct Page<'a> {
    /// The program and its mapping, in words.
    pub subject: &'a str,
    /// How mappings were judged: `replayed` or `simulated`.
    pub judged: &'a str,
    pub problem: &'a Problem,
    pub found: &'a Found,
    pub moves: &'a [Move],
    pub time: Interval,
    pub steered: &'a [Steered],
    pub notes: &'a [String],
}

/// The most ranks, and cores, with a line each.
const MOST: usize = 64;

impl Page<'_> {
    pub fn advice(&self) -> Advice {
        Advice::of(self.found, self.problem, &self.time)
    }

    pub fn terminal(&self, width: usize) -> String {
        let mut text = format!("{}\n", self.subject);
        let mut cores: Vec<&Spot> = self.problem.spots.iter().filter(|spot| spot.dilation() > 1.0 + ALIKE).collect();
        cores.sort_by(|a, b| b.dilation().total_cmp(&a.dilation()));
        let mut table = Table::new(["core", "ranks can have", "softirqs", "others and clock"]).right(1..4);
        for spot in cores.iter().take(MOST) {
            let taken = [1.0 / spot.dilation(), spot.softirq, 1.0 - spot.free].map(percent);
            table.row([self.place(spot)].into_iter().chain(taken));
        }
        text += &match table.is_empty() {
            true => "\nRanks can have all of each core, within 2 %.\n".to_owned(),
            false => format!("\n{}", table.text(width)),
        };
        more(&mut text, cores.len(), "core");
        let advice = self.advice();
        if advice != Advice::Keep {
            text += "\nRank   from             to               because\n";
            for of in self.moves.iter().take(MOST) {
                let spot = |spot: u32| self.place(&self.problem.spots[spot as usize]);
                let _ =
                    writeln!(text, "{:<6} {:<16} {:<16} {}", of.rank, spot(of.from), spot(of.to), because(&of.reason));
            }
            more(&mut text, self.moves.len(), "rank");
        }
        let judged = self.judged();
        let time = over(&self.time);
        text += &match advice {
            Advice::Move => format!("\nMove these ranks: the run takes {time} ({judged})\n"),
            Advice::Keep if self.found.seats == self.problem.seats => {
                format!("\nKeep the mapping: none is better ({judged})\n")
            }
            Advice::Keep => format!("\nKeep the mapping: the best other one gains less than 1 %: {time} ({judged})\n"),
            Advice::CannotTell if self.found.time == 1.0 => {
                format!("\nCannot tell: partners come nearer, and the costs have no row by distance ({judged})\n")
            }
            Advice::CannotTell => format!("\nCannot tell: with these moves the run takes {time} ({judged})\n"),
        };
        for of in self.steered {
            let from: Vec<String> = of.from.iter().map(u32::to_string).collect();
            let _ = writeln!(
                text,
                "Or steer the interrupts of {} from core {} to core {}: {}",
                of.host,
                from.join(","),
                of.to,
                over(&of.time)
            );
        }
        for note in self.notes {
            let _ = writeln!(text, "Note: {note}");
        }
        text
    }

    /// The advice as a judgement of the profile in `folder`.
    pub fn judgement(&self, folder: &Path) -> Judgement {
        let advice = self.advice();
        let answer = match advice {
            Advice::Move => Answer::Gains,
            Advice::Keep => Answer::DoesNot,
            Advice::CannotTell => Answer::CannotTell,
        };
        let Interval { low, high, .. } = self.time;
        let why = match self.found.seats == self.problem.seats {
            true => format!("no other mapping is better ({})", self.judged()),
            false => format!("with the best other mapping the run takes {} ({})", over(&self.time), self.judged()),
        };
        let next = (advice != Advice::Keep).then(|| format!("plimsoll map {}", shell::path(folder)));
        Judgement { choice: Choice::Mapping, answer, gain: Some((1.0 - high, 1.0 - low)), why: vec![why], next }
    }

    /// The mappings that were judged, in words.
    fn judged(&self) -> String {
        let mappings = count::of(self.found.judged as u64, "mapping");
        match self.found.all {
            true => format!("all {mappings} that differ were {}", self.judged),
            false => format!("{mappings} {}", self.judged),
        }
    }

    fn place(&self, spot: &Spot) -> String {
        format!("{}:{}", self.problem.hosts[spot.host as usize], spot.core.0)
    }

    pub fn json(&self) -> Value {
        let spot = |at: u32| {
            let spot = &self.problem.spots[at as usize];
            json!({ "host": self.problem.hosts[spot.host as usize], "core": spot.core.0 })
        };
        let core = |of: &Spot| {
            json!({ "host": self.problem.hosts[of.host as usize], "core": of.core.0, "ranks_can_have": 1.0 / of.dilation(),
                "softirqs": of.softirq, "free": of.free })
        };
        json!({
            "subject": self.subject,
            "advice": self.advice().name(),
            "time": self.time,
            "judged": self.found.judged,
            "all": self.found.all,
            "cores": self.problem.spots.iter().map(core).collect::<Vec<_>>(),
            "seats": self.found.seats.iter().map(|seat| spot(*seat)).collect::<Vec<_>>(),
            "moves": self.moves.iter().map(|of| json!({
                "rank": of.rank, "from": spot(of.from), "to": spot(of.to), "because": because(&of.reason),
            })).collect::<Vec<_>>(),
            "steering": self.steered.iter().map(|of| json!({
                "host": of.host, "from": of.from, "to": of.to, "time": of.time,
            })).collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn more(text: &mut String, of: usize, noun: &str) {
    if of > MOST {
        let _ = writeln!(text, "and {}: --json has all", count::of((of - MOST) as u64, noun));
    }
}

/// `0.912x of its time (0.880 .. 0.943)`
fn over(time: &Interval) -> String {
    let Interval { low, middle, high } = time;
    match low == high {
        true => format!("{middle:.3}x of its time"),
        false => format!("{middle:.3}x of its time ({low:.3} .. {high:.3})"),
    }
}

fn because(reason: &Reason) -> String {
    match reason {
        Reason::Relieved { from, to, computing } => format!(
            "it computes {} of the run, and gets {} of a core in place of {}",
            percent(*computing),
            percent(*to),
            percent(*from)
        ),
        Reason::Slack { waiting, to } => {
            format!(
                "it waits {} of the run: it has the time for a core that leaves {}",
                percent(*waiting),
                percent(*to)
            )
        }
        Reason::Paired { partner, mean } => format!(
            "its core is as capable as that of rank {partner} on another host, with which it exchanges {:.0} KiB a message",
            mean / 1024.0
        ),
        Reason::Near { partner } => format!("it is nearer to rank {partner}"),
    }
}

#[cfg(test)]
mod tests {
    use mapping::problem::Load;

    use super::*;

    /// The report of a profile says of mappings what `plimsoll map` says.
    #[test]
    fn a_report_has_the_advice_and_the_interval_of_the_command() {
        let spot = |core| Spot { host: 0, core: machine::CoreId(core), softirq: 0.0, free: 1.0, far: false };
        let problem = Problem {
            hosts: vec!["a".into()],
            spots: vec![spot(0), spot(1)],
            ranks: vec![Load::default(); 2],
            seats: vec![0, 1],
            ..Problem::default()
        };
        let of = |seats: [u32; 2], time: Interval| {
            let found = Found { seats: seats.to_vec(), time: time.middle, judged: 2, all: true };
            let page = Page {
                subject: "",
                judged: "replayed",
                problem: &problem,
                found: &found,
                moves: &[],
                time,
                steered: &[],
                notes: &[],
            };
            (page.judgement(Path::new("run")), page.json())
        };
        for (high, answer, advice) in [(0.9, Answer::Gains, "move"), (1.1, Answer::CannotTell, "cannot tell")] {
            let (judgement, json) = of([1, 0], Interval { low: 0.7, middle: 0.8, high });
            assert_eq!((judgement.answer, json["advice"].as_str()), (answer, Some(advice)));
            assert_eq!(judgement.gain, Some((1.0 - high, 1.0 - 0.7)));
            assert_eq!(judgement.next.as_deref(), Some("plimsoll map run"));
            assert!(judgement.why[0].contains(&format!("0.800x of its time (0.700 .. {high:.3})")), "{judgement:?}");
        }
        let (kept, _) = of([0, 1], Interval::exactly(1.0));
        assert_eq!((kept.answer, kept.gain, kept.next), (Answer::DoesNot, Some((0.0, 0.0)), None));
    }
}
