//! The verdict in lines of at most a dozen words that a performance engineer can act on.

use std::collections::BTreeSet;

use machine::{Bytes, CoreId, Site};

use crate::comparison::Standing;
use crate::contrast::EQUALITY;
use crate::findings::{Choice, Interval, Line, Question, SizeRange, SweepRow};
use crate::point::{Contender, Pattern, Receiver};
use crate::sweep::{Side, side};

/// Patterns that ask for the same thing, the one that runs at every size first.
const AIMS: [&[Pattern]; 3] = [
    &[Pattern::PingPong],
    &[Pattern::Stream, Pattern::StreamNoCache, Pattern::Bidirectional, Pattern::Window],
    &[Pattern::MessageRate],
];

/// One line for each stretch of sizes with one answer; patterns, and questions, that agree share a line.
pub fn lines(rows: &[SizeRange], sweep: &[SweepRow]) -> Vec<Line> {
    let mut lines: Vec<Line> = [Question::SameHost, Question::BetweenHosts]
        .into_iter()
        .flat_map(|question| of_question(question, &rows.iter().filter(|r| r.question == question).collect::<Vec<_>>()))
        .collect();
    lines.extend(of_sweep(sweep));
    lines
}

/// What a stretch of sizes is answered with.
#[derive(Debug, Clone, PartialEq)]
struct Stretch {
    from: Bytes,
    to: Bytes,
    answer: Answer,
    gains: Vec<Gain>,
}

#[derive(Debug, Clone, PartialEq)]
enum Answer {
    At(Place),
    Either(BTreeSet<Place>),
    CannotTell(BTreeSet<Place>),
}

impl Answer {
    /// Whether one who does as `other` says does what this answer asks for.
    fn allows(&self, other: &Answer) -> bool {
        match (self, other) {
            (Answer::Either(places), Answer::At(place)) => places.contains(place),
            _ => self == other,
        }
    }
}

/// Where message processing runs; for the receiver, whether it has the protocol's core or another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Application,
    Core(CoreId),
    Kernel,
    Together,
    Apart,
}

impl Place {
    fn of(contender: &Contender) -> Place {
        match &contender.placement {
            Site::Core(core) => Place::Core(*core),
            _ if contender.stack.is_engine() => Place::Application,
            _ => Place::Kernel,
        }
    }

    fn name(self) -> String {
        match self {
            Place::Application => "application".into(),
            Place::Core(core) => core.to_string(),
            Place::Kernel => "kernel".into(),
            Place::Together => "together".into(),
            Place::Apart => "apart".into(),
        }
    }

    fn adverb(self) -> String {
        match self {
            Place::Application | Place::Kernel => format!("in the {}", self.name()),
            Place::Core(_) => format!("on {}", self.name()),
            Place::Together | Place::Apart => self.name(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Gain {
    Faster(f64),
    Cheaper(f64),
    /// As fast or faster.
    NoSlower,
}

fn of_question(question: Question, rows: &[&SizeRange]) -> Vec<Line> {
    let place = match question {
        Question::SameHost => "Same host",
        _ => "Between hosts",
    };
    let common = rows.iter().map(|row| answer(row)).find(|a| rows.iter().all(|row| answer(row).allows(a)));
    if let (Some(answer), Some(first)) = (common, rows.iter().find(|row| row.from != row.to)) {
        let gains = rows.iter().filter_map(|row| gain(row)).collect();
        return vec![line(format!("{place}, any size"), &Stretch { answer, gains, ..stretch(first) })];
    }
    AIMS.iter().flat_map(|aim| of_aim(place, aim, rows)).collect()
}

/// Rows that agree with those of the aim's main pattern share its lines; others have lines of their own.
fn of_aim(place: &str, aim: &[Pattern], rows: &[&SizeRange]) -> Vec<Line> {
    let mut main: Option<(Pattern, Vec<Stretch>)> = None;
    let mut apart = Vec::new();
    for &pattern in aim {
        let own: Vec<&SizeRange> = rows.iter().copied().filter(|row| row.pattern == pattern).collect();
        let Some((_, stretches)) = main.as_mut() else {
            main = (!own.is_empty()).then(|| (pattern, joined(own.into_iter().map(stretch))));
            continue;
        };
        let all = own.len();
        let mut other = Vec::new();
        for row in own {
            let mut met = stretches.iter_mut().filter(|s| row.from <= s.to && s.from <= row.to).collect::<Vec<_>>();
            let agrees = met.iter().all(|s| answer(row).allows(&s.answer));
            match met.first_mut() {
                Some(first) if agrees => first.gains.extend(gain(row)),
                _ => other.push(row),
            }
        }
        let whole = other.len() == all;
        let stretches = joined(other.into_iter().map(stretch));
        apart.extend(of_track(&format!("{place}, {}", name(pattern)), &stretches, whole));
    }
    let main = main.map(|(pattern, stretches)| of_track(&format!("{place}, {}", name(pattern)), &stretches, true));
    main.into_iter().flatten().chain(apart).collect()
}

/// A line for each stretch; `whole` where the stretches hold every size that was measured.
fn of_track(asked: &str, stretches: &[Stretch], whole: bool) -> Vec<Line> {
    let reach = |nth: usize, s: &Stretch| match (nth, stretches.len()) {
        _ if s.from == s.to => format!(" at {}", s.to),
        _ if !whole => format!(", {}–{}", s.from, s.to),
        (_, 1) => ", any size".into(),
        (0, _) => format!(", to {}", s.to),
        (nth, all) if nth + 1 == all => format!(", from {}", s.from),
        _ => format!(", {}–{}", s.from, s.to),
    };
    stretches.iter().enumerate().map(|(nth, s)| line(format!("{asked}{}", reach(nth, s)), s)).collect()
}

/// A stretch in which either place does joins the one before or after it whose place is among the two.
fn joined(stretches: impl Iterator<Item = Stretch>) -> Vec<Stretch> {
    let mut joined: Vec<Stretch> = Vec::new();
    for mut next in stretches {
        match joined.last_mut() {
            Some(last) if next.answer.allows(&last.answer) => {
                last.to = next.to;
                last.gains.append(&mut next.gains);
            }
            Some(last) if last.answer.allows(&next.answer) => *last = Stretch { from: last.from, ..next },
            _ => joined.push(next),
        }
    }
    joined
}

fn stretch(row: &SizeRange) -> Stretch {
    Stretch { from: row.from, to: row.to, answer: answer(row), gains: gain(row).into_iter().collect() }
}

fn answer(row: &SizeRange) -> Answer {
    let places = || row.choice.contenders().iter().map(Place::of).collect();
    match &row.choice {
        Choice::Place(contender) => Answer::At(Place::of(contender)),
        Choice::Either(_) => Answer::Either(places()),
        Choice::CannotTell { .. } => Answer::CannotTell(places()),
    }
}

fn gain(row: &SizeRange) -> Option<Gain> {
    match (&row.saving, &row.gain) {
        (Some(saving), _) => Some(Gain::Cheaper(saving.median)),
        (None, Some(gain)) if gain.low > 1.0 + EQUALITY => Some(Gain::Faster(gain.median)),
        (None, Some(_)) => Some(Gain::NoSlower),
        (None, None) => None,
    }
}

fn line(asked: String, stretch: &Stretch) -> Line {
    let answer = match &stretch.answer {
        Answer::At(place) => place.adverb() + &gained(&stretch.gains),
        Answer::Either(places) => match names(places).as_slice() {
            [one, other] => format!("either, {one} or {other}"),
            _ => "all alike".into(),
        },
        Answer::CannotTell(places) => match names(places).as_slice() {
            [one, other] => format!("cannot tell {one} from {other}"),
            _ => "cannot tell".into(),
        },
    };
    Line { asked, answer, told: !matches!(stretch.answer, Answer::CannotTell(_)) }
}

fn names(places: &BTreeSet<Place>) -> Vec<String> {
    places.iter().map(|place| place.name()).collect()
}

/// `, 1.4–30x faster`: from the least to the most of the rows behind a line; nothing where there is nothing to beat.
fn gained(gains: &[Gain]) -> String {
    let of = |by: fn(&Gain) -> Option<f64>| gains.iter().filter_map(by).collect::<Vec<_>>();
    let faster = of(|gain| if let Gain::Faster(by) = gain { Some(*by) } else { None });
    let cheaper = of(|gain| if let Gain::Cheaper(by) = gain { Some(*by) } else { None });
    let no_slower = gains.contains(&Gain::NoSlower);
    match (faster.as_slice(), cheaper.as_slice()) {
        ([], []) if no_slower => ", no slower".into(),
        ([], []) => String::new(),
        ([], cheaper) => format!(", {} cheaper", times(cheaper)),
        (faster, _) if no_slower => format!(", up to {}x faster", short(most(faster))),
        (faster, _) => format!(", {} faster", times(faster)),
    }
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

fn times(values: &[f64]) -> String {
    let least = short(values.iter().copied().fold(f64::INFINITY, f64::min));
    let most = short(most(values));
    if least == most { format!("{least}x") } else { format!("{least}–{most}x") }
}

fn short(value: f64) -> String {
    match value {
        v if v < 1.995 => format!("{v:.2}"),
        v if v < 9.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

/// One word.
fn name(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::PingPong => "latency",
        Pattern::Stream => "bandwidth",
        Pattern::StreamNoCache => "uncached",
        Pattern::Bidirectional => "bidirectional",
        Pattern::Window => "windowed",
        Pattern::MessageRate => "message-rate",
    }
}

/// Where the receiving process should be while one core does the protocol's work: on that core, or on another.
fn of_sweep(rows: &[SweepRow]) -> Vec<Line> {
    let mut tracks: Vec<(Receiver, Vec<Stretch>)> = Vec::new();
    for receiver in Receiver::ALL {
        let of = || rows.iter().filter(move |r| r.receiver == receiver);
        let sizes: BTreeSet<Bytes> = of().map(|r| r.size).collect();
        let at = |size| of().filter(|r| r.size == size && r.gain.is_some()).collect::<Vec<_>>();
        let stretches: Vec<Stretch> = joined(sizes.into_iter().filter_map(|size| beside_or_away(size, &at(size))));
        if !stretches.is_empty() {
            tracks.push((receiver, stretches));
        }
    }
    let answers =
        |stretches: &[Stretch]| stretches.iter().map(|s| (s.from, s.to, s.answer.clone())).collect::<Vec<_>>();
    match tracks.as_slice() {
        [(_, reads), (_, works)] if answers(reads) == answers(works) => {
            let both =
                reads.iter().zip(works).map(|(r, w)| Stretch { gains: [&r.gains[..], &w.gains].concat(), ..r.clone() });
            of_track("Protocol core and receiver", &both.collect::<Vec<_>>(), true)
        }
        apart => apart
            .iter()
            .flat_map(|(receiver, stretches)| {
                of_track(&format!("Protocol core, receiver {}", doing(*receiver)), stretches, true)
            })
            .collect(),
    }
}

fn doing(receiver: Receiver) -> &'static str {
    match receiver {
        Receiver::Reads => "reading",
        Receiver::Works => "working",
    }
}

/// `others`: the rows of one size whose process was not on the protocol's core.
fn beside_or_away(size: Bytes, others: &[&SweepRow]) -> Option<Stretch> {
    let by = |row: &&SweepRow| row.gain.map(|gain: Interval| gain.median);
    let best = others.iter().max_by(|a, b| by(a).unwrap_or(0.0).total_cmp(&by(b).unwrap_or(0.0)))?;
    let gain = by(best)?;
    let standings: Vec<Standing> = others.iter().filter_map(|row| row.standing).collect();
    let both = || BTreeSet::from([Place::Together, Place::Apart]);
    let gained = |faster: bool, by| vec![if faster { Gain::Faster(by) } else { Gain::NoSlower }];
    let (answer, gains) = match best.standing.and_then(|best| side(best, &standings)) {
        Some(Side::Apart) => (Answer::At(Place::Apart), gained(best.standing == Some(Standing::Better), gain)),
        Some(Side::Together) => {
            (Answer::At(Place::Together), gained(best.standing == Some(Standing::Worse), 1.0 / gain))
        }
        Some(Side::Either) => (Answer::Either(both()), vec![]),
        None => (Answer::CannotTell(both()), vec![]),
    };
    Some(Stretch { from: size, to: size, answer, gains })
}

#[cfg(test)]
mod tests {
    use machine::Reading;

    use super::*;
    use crate::point::{Path, PointKey, Stack};

    const SIZES: [u64; 5] = [2, 512, 16 << 10, 256 << 10, 1 << 20];

    fn contender(stack: Stack, placement: Site) -> Contender {
        Contender { stack, placement }
    }

    fn choices() -> Vec<Choice> {
        let three = [
            contender(Stack::EngineUdp, Site::App),
            contender(Stack::EngineUdp, Site::Core(CoreId(127))),
            contender(Stack::Tcp, Site::App),
        ];
        let mut choices: Vec<Choice> = three.iter().cloned().map(Choice::Place).collect();
        let pairs = [[0, 1], [0, 2], [1, 2]].map(|pair| pair.map(|nth| three[nth].clone()).to_vec());
        for between in pairs.into_iter().chain([three.to_vec()]) {
            choices.push(Choice::Either(between.clone()));
            choices.push(Choice::CannotTell { between, why: String::new() });
        }
        choices
    }

    fn interval(median: f64) -> Interval {
        Interval { median, low: median, high: median, samples: 8 }
    }

    fn row(question: Question, pattern: Pattern, (from, to): (u64, u64), choice: &Choice, gain: f64) -> SizeRange {
        let placed = matches!(choice, Choice::Place(_));
        SizeRange {
            question,
            path: Path::Lab,
            pattern,
            from: Bytes(from),
            to: Bytes(to),
            choice: choice.clone(),
            gain: placed.then(|| interval(gain)),
            saving: (placed && gain < 1.0).then(|| interval(1.0 / gain)),
            cpu_per_message: Reading::absent("not asked"),
            rejected: vec![],
            references: vec![],
            evidence: vec![],
        }
    }

    fn swept(receiver: Receiver, size: u64, standing: Standing) -> [SweepRow; 2] {
        let base = SweepRow {
            pattern: Pattern::Stream,
            size: Bytes(size),
            receiver,
            core: CoreId(0),
            protocol_core: CoreId(0),
            value: interval(1e9),
            gain: None,
            standing: None,
            softirqs_per_message: Reading::absent("not asked"),
            softirq_share: vec![],
            evidence: PointKey(String::new()),
        };
        let gain = if standing == Standing::Worse { 0.7 } else { 1.234 };
        [base.clone(), SweepRow { core: CoreId(1), gain: Some(interval(gain)), standing: Some(standing), ..base }]
    }

    fn short(lines: &[Line]) -> usize {
        for line in lines {
            let words = line.to_string().split_whitespace().count();
            assert!(words <= 12, "{words} words: {line}");
        }
        lines.len()
    }

    #[test]
    fn a_line_has_at_most_a_dozen_words_whatever_it_says() {
        let mut seen = 0;
        for question in [Question::SameHost, Question::BetweenHosts] {
            for pattern in Pattern::ALL {
                for choice in &choices() {
                    for (other, gain) in choices().iter().zip([1.234, 0.801, 123.4].into_iter().cycle()) {
                        let [a, b, c, d, e] = SIZES;
                        let ends = [row(question, pattern, (a, e), choice, gain)];
                        let parts = [
                            row(question, pattern, (a, b), choice, gain),
                            row(question, pattern, (c, d), other, 41.6),
                            row(question, pattern, (e, e), choice, 1.02),
                        ];
                        seen += short(&lines(&ends, &[])) + short(&lines(&parts, &[]));
                        // A second pattern that says otherwise gives each its name.
                        let apart = ends.iter().cloned().chain([row(question, Pattern::PingPong, (a, a), other, gain)]);
                        seen += short(&lines(&apart.collect::<Vec<_>>(), &[]));
                    }
                }
            }
        }
        let standings = [
            Standing::Better,
            Standing::Worse,
            Standing::Equal,
            Standing::NotWorse,
            Standing::NotBetter,
            Standing::Unclear,
        ];
        for here in standings {
            for there in standings {
                let [reads, works] = [(Receiver::Reads, here), (Receiver::Works, there)].map(|(receiver, first)| {
                    [swept(receiver, 4 << 10, first), swept(receiver, 512 << 10, here)].concat()
                });
                seen += short(&lines(&[], &[reads, works].concat()));
            }
        }
        assert!(seen > 1000, "{seen} lines");
    }

    fn said(rows: &[SizeRange]) -> Vec<String> {
        lines(rows, &[]).iter().map(Line::to_string).collect()
    }

    #[test]
    fn patterns_and_sizes_that_agree_share_a_line() {
        let engine = Choice::Place(contender(Stack::EngineShm, Site::App));
        let tcp = Choice::Place(contender(Stack::Tcp, Site::App));
        let either = Choice::Either(vec![contender(Stack::EngineShm, Site::App), contender(Stack::Tcp, Site::App)]);
        let host = |pattern, sizes, choice, gain| row(Question::SameHost, pattern, sizes, choice, gain);
        let all = [
            host(Pattern::PingPong, (2, 1 << 20), &engine, 4.1),
            host(Pattern::Stream, (2, 64), &engine, 30.0),
            host(Pattern::Stream, (512, 512), &either, 1.0),
            host(Pattern::MessageRate, (8, 8), &engine, 12.0),
        ];
        assert_eq!(said(&all), ["Same host, any size: in the application, 4.1–30x faster"]);
        let no_slower = host(Pattern::PingPong, (128, 1 << 20), &engine, 1.0);
        assert_eq!(said(std::slice::from_ref(&no_slower)), ["Same host, any size: in the application, no slower"]);
        let faster = host(Pattern::PingPong, (2, 64), &engine, 1.4);
        assert_eq!(said(&[faster, no_slower]), ["Same host, any size: in the application, up to 1.40x faster"]);
        let apart = [
            host(Pattern::PingPong, (2, 16 << 10), &engine, 1.4),
            host(Pattern::PingPong, (64 << 10, 1 << 20), &tcp, 2.1),
            host(Pattern::Stream, (2, 1 << 20), &tcp, 0.99),
            host(Pattern::Window, (4 << 10, 4 << 10), &engine, 1.3),
            host(Pattern::Window, (64 << 10, 64 << 10), &tcp, 1.2),
            host(Pattern::Bidirectional, (512, 64 << 10), &engine, 1.1),
            host(Pattern::MessageRate, (8, 8), &either, 1.0),
        ];
        assert_eq!(
            said(&apart),
            [
                "Same host, latency, to 16 KiB: in the application, 1.40x faster",
                "Same host, latency, from 64 KiB: in the kernel, 2.1x faster",
                "Same host, bandwidth, any size: in the kernel, 1.20x faster",
                "Same host, bidirectional, any size: in the application, 1.10x faster",
                "Same host, windowed at 4 KiB: in the application, 1.30x faster",
                "Same host, message-rate at 8 B: either, application or kernel",
            ]
        );
    }

    #[test]
    fn receivers_that_agree_share_a_line() {
        let both = |standing| Receiver::ALL.map(|r| [swept(r, 4096, standing), swept(r, 65_536, standing)].concat());
        let said = |standing| lines(&[], &both(standing).concat()).iter().map(Line::to_string).collect::<Vec<_>>();
        assert_eq!(said(Standing::Better), ["Protocol core and receiver, any size: apart, 1.23x faster"]);
        assert_eq!(said(Standing::Worse), ["Protocol core and receiver, any size: together, 1.43x faster"]);
        assert_eq!(said(Standing::Unclear), ["Protocol core and receiver, any size: cannot tell together from apart"]);
    }
}
