//! The verdict in lines of at most a dozen words that a performance engineer can act on.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use machine::Bytes;
use rounds::comparison::Standing;
use rounds::contrast::EQUALITY;
use rounds::estimate::Estimate;
use rounds::point::{Contender, Pattern, Receiver};

use crate::findings::{Choice, Decision, Line, Loss, Question, SizeRange, SweepRow};
use crate::stretch::{Answer, Gain, Place, Stretch, joined};
use crate::sweep::{Side, side};

/// Patterns with the same aim, the one that runs at every size first.
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

/// The first answer: one choice for all sizes, and its largest loss.
pub fn decision(of: &Decision) -> Line {
    let place = Place::of(&of.choice).name();
    let mut answer = match of.loses.middle {
        loses if loses <= 1.0 + EQUALITY => format!("{place}; nowhere behind the best"),
        loses => format!("{place}; at most {}x behind the best at any size", short(loses)),
    };
    if of.tie {
        let others: Vec<String> = of.open.iter().map(|open| Place::of(open).name()).collect();
        answer = format!("either {place} or {}; nowhere behind the best", others.join(" or "));
    } else if !of.open.is_empty() {
        answer += ", and none is shown to lose less";
    }
    if let Some(gain) = of.gain {
        let _ = write!(answer, "; {}x faster than TCP for short messages", short(gain.middle));
    }
    Line { asked: place_of(of.question).into(), answer, told: true }
}

/// The largest loss of each contender of a decision, the least first.
pub fn largest_losses(of: &Decision) -> Vec<String> {
    let mut largest: Vec<&Loss> = Vec::new();
    for loss in &of.losses {
        match largest.iter_mut().find(|known| known.contender == loss.contender) {
            Some(known) if loss.loss.middle > known.loss.middle => *known = loss,
            Some(_) => {}
            None => largest.push(loss),
        }
    }
    largest.sort_by(|one, other| one.loss.middle.total_cmp(&other.loss.middle));
    let words = |of: &&Loss| {
        let Loss { contender, pattern, size, best, loss } = of;
        let place = Place::of(contender).name();
        match loss.middle <= 1.0 {
            true => format!("{place}: nowhere behind"),
            false => {
                let (best, name) = (Place::of(best).name(), name(*pattern));
                format!("{place}: at most {} behind, {name} at {size}, where {best} is best", loss.ratio(2, "x"))
            }
        }
    };
    largest.iter().map(words).collect()
}

fn place_of(question: Question) -> &'static str {
    match question {
        Question::SameHost => "Same host",
        _ => "Between hosts",
    }
}

fn of_question(question: Question, rows: &[&SizeRange]) -> Vec<Line> {
    let place = place_of(question);
    let mut stretches = rows.iter().map(|row| stretch(row));
    let common = stretches.next().and_then(|first| stretches.try_fold(first, |all, next| all.with(&next)));
    if let Some(common) = common.filter(|_| rows.iter().any(|row| row.from != row.to)) {
        return vec![line(format!("{place}, any size"), &common)];
    }
    AIMS.iter().flat_map(|aim| of_aim(place, aim, rows)).collect()
}

/// Rows that agree with those of the aim's main pattern share its lines; others have lines of their own.
fn of_aim(place: &str, aim: &[Pattern], rows: &[&SizeRange]) -> Vec<Line> {
    let mut main: Option<(Pattern, Vec<Stretch>)> = None;
    let mut apart = Vec::new();
    for &pattern in aim {
        let own: Vec<Stretch> = rows.iter().filter(|row| row.pattern == pattern).map(|row| stretch(row)).collect();
        let Some((_, stretches)) = main.as_mut() else {
            main = (!own.is_empty()).then(|| (pattern, joined(own)));
            continue;
        };
        let all = own.len();
        let mut other = Vec::new();
        for row in own {
            let mut met: Vec<&mut Stretch> =
                stretches.iter_mut().filter(|s| row.from <= s.to && s.from <= row.to).collect();
            let agrees = met.iter().all(|s| row.agrees(s));
            match met.first_mut() {
                Some(first) if agrees => {
                    first.allowed.retain(|place| row.allowed.contains(place));
                    first.rows.extend(row.rows);
                }
                _ => other.push(row),
            }
        }
        let whole = other.len() == all;
        apart.extend(of_track(&format!("{place}, {}", name(pattern)), &joined(other), whole));
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

fn stretch(row: &SizeRange) -> Stretch {
    let places = |of: &[Contender]| of.iter().map(Place::of).collect::<BTreeSet<Place>>();
    let between = places(row.choice.contenders());
    let answer = match &row.choice {
        Choice::Place(contender) => Answer::At(Place::of(contender)),
        Choice::Either(_) | Choice::Alike { .. } => Answer::Either(between.clone()),
        Choice::CannotTell { .. } => Answer::CannotTell(between.clone()),
    };
    let allowed = between.into_iter().chain(places(&row.ties)).collect();
    Stretch { from: row.from, to: row.to, allowed, rows: vec![(answer, gain(row))] }
}

fn gain(row: &SizeRange) -> Option<Gain> {
    match (&row.saving, &row.gain) {
        (Some(saving), _) => Some(Gain::Cheaper(saving.middle)),
        (None, Some(gain)) if gain.low > 1.0 + EQUALITY => Some(Gain::Faster(gain.middle)),
        (None, Some(_)) => Some(Gain::NoSlower),
        (None, None) => None,
    }
}

fn line(asked: String, stretch: &Stretch) -> Line {
    let found = stretch.answer();
    let answer = match &found {
        Answer::At(place) => place.name() + &gained(&stretch.gains(*place)),
        Answer::Either(places) => match names(places).as_slice() {
            [one, other] => format!("either, {one} or {other}"),
            more => format!("any of {}", more.join(", ")),
        },
        Answer::CannotTell(places) => match names(places).as_slice() {
            [one, other] => format!("cannot tell {one} from {other}"),
            more => format!("cannot tell {}", more.join(", ")),
        },
    };
    Line { asked, answer, told: !matches!(found, Answer::CannotTell(_)) }
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

/// A pattern in one word.
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

/// The receiving process's best core while one core does the protocol's work: that core, or another.
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
    let answers = |stretches: &[Stretch]| stretches.iter().map(|s| (s.from, s.to, s.answer())).collect::<Vec<_>>();
    match tracks.as_slice() {
        [(_, reads), (_, works)] if answers(reads) == answers(works) => {
            let both =
                reads.iter().zip(works).map(|(r, w)| Stretch { rows: [&r.rows[..], &w.rows].concat(), ..r.clone() });
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
    let by = |row: &&SweepRow| row.gain.map(|gain: Estimate| gain.middle);
    let best = others.iter().max_by(|a, b| by(a).unwrap_or(0.0).total_cmp(&by(b).unwrap_or(0.0)))?;
    let gain = by(best)?;
    let standings: Vec<Standing> = others.iter().filter_map(|row| row.standing).collect();
    let both = || BTreeSet::from([Place::Together, Place::Apart]);
    let gained = |faster: bool, by| Some(if faster { Gain::Faster(by) } else { Gain::NoSlower });
    let (answer, gains) = match best.standing.and_then(|best| side(best, &standings)) {
        Some(Side::Apart) => (Answer::At(Place::Apart), gained(best.standing == Some(Standing::Better), gain)),
        Some(Side::Together) => {
            (Answer::At(Place::Together), gained(best.standing == Some(Standing::Worse), 1.0 / gain))
        }
        Some(Side::Either) => (Answer::Either(both()), None),
        None => (Answer::CannotTell(both()), None),
    };
    let allowed = if let Answer::At(place) = answer { BTreeSet::from([place]) } else { both() };
    Some(Stretch { from: size, to: size, allowed, rows: vec![(answer, gains)] })
}

#[cfg(test)]
mod tests {
    use machine::{CoreId, Reading, Site};

    use super::*;
    use rounds::point::{Path, PointKey, Stack};

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

    fn interval(middle: f64) -> Estimate {
        Estimate { middle, low: middle, high: middle, samples: 8 }
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
            ties: vec![],
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
                        // With a second pattern of another answer, each line names its pattern.
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
        assert_eq!(said(&all), ["Same host, any size: shm, 4.1–30x faster"]);
        let no_slower = host(Pattern::PingPong, (128, 1 << 20), &engine, 1.0);
        assert_eq!(said(std::slice::from_ref(&no_slower)), ["Same host, any size: shm, no slower"]);
        let faster = host(Pattern::PingPong, (2, 64), &engine, 1.4);
        assert_eq!(said(&[faster, no_slower]), ["Same host, any size: shm, up to 1.40x faster"]);
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
                "Same host, latency, to 16 KiB: shm, 1.40x faster",
                "Same host, latency, from 64 KiB: TCP, 2.1x faster",
                "Same host, bandwidth, any size: TCP, 1.20x faster",
                "Same host, bidirectional, any size: shm, 1.10x faster",
                "Same host, windowed at 4 KiB: shm, 1.30x faster",
                "Same host, message-rate at 8 B: either, shm or TCP",
            ]
        );
    }

    #[test]
    fn neighbours_whose_order_is_not_told_apart_share_a_line() {
        let [udp, afxdp, tcp] = [Stack::EngineUdp, Stack::EngineAfxdp, Stack::Tcp].map(|of| contender(of, Site::App));
        let between = |pattern, sizes, choice: &Choice, gain| row(Question::BetweenHosts, pattern, sizes, choice, gain);
        let short = between(Pattern::PingPong, (2, 512), &Choice::Place(udp.clone()), 1.4);
        let open = Choice::CannotTell { between: vec![afxdp.clone(), udp.clone()], why: String::new() };
        let middle = between(Pattern::PingPong, (4 << 10, 4 << 10), &open, 1.0);
        let long = between(Pattern::PingPong, (64 << 10, 1 << 20), &Choice::Place(afxdp.clone()), 1.2);
        let tied = SizeRange { ties: vec![udp.clone()], ..long.clone() };
        assert_eq!(
            said(&[short.clone(), middle.clone(), tied]),
            ["Between hosts, any size: UDP, up to 1.40x faster"],
            "UDP is told to be worse nowhere"
        );
        assert_eq!(
            said(&[short.clone(), middle, long.clone()]),
            [
                "Between hosts, latency, to 4 KiB: UDP, up to 1.40x faster",
                "Between hosts, latency, from 64 KiB: AF_XDP, 1.20x faster"
            ]
        );
        // Two that overlap in one place only.
        let [one, other] = [[&udp, &tcp], [&tcp, &afxdp]].map(|of| Choice::Either(of.map(Contender::clone).to_vec()));
        let rows =
            [between(Pattern::PingPong, (2, 512), &one, 1.0), between(Pattern::PingPong, (4096, 8192), &other, 1.0)];
        assert_eq!(said(&rows), ["Between hosts, any size: TCP"]);
        let apart = between(Pattern::PingPong, (1 << 10, 2 << 10), &Choice::Place(tcp), 3.0);
        assert_eq!(said(&[short, apart, long]).len(), 3);
    }

    #[test]
    fn a_decision_names_the_choice_and_what_it_loses() {
        let [udp, afxdp] = [Stack::EngineUdp, Stack::EngineAfxdp].map(|of| contender(of, Site::App));
        let loss = |of: &Contender, size, loss| Loss {
            contender: of.clone(),
            pattern: Pattern::PingPong,
            size: Bytes(size),
            best: if of == &udp { afxdp.clone() } else { udp.clone() },
            loss: interval(loss),
        };
        let found = Decision {
            question: Question::BetweenHosts,
            path: Path::Lab,
            choice: afxdp.clone(),
            open: vec![],
            tie: false,
            loses: interval(1.2),
            at: (Pattern::PingPong, Bytes(8)),
            gain: Some(interval(3.1)),
            losses: vec![loss(&udp, 8, 1.9), loss(&udp, 64, 1.0), loss(&afxdp, 8, 1.0), loss(&afxdp, 64, 1.2)],
        };
        let said = |of: &Decision| decision(of).to_string();
        let loses = "at most 1.20x behind the best at any size; 3.1x faster than TCP for short messages";
        assert_eq!(said(&found), format!("Between hosts: AF_XDP; {loses}"));
        let open = Decision { open: vec![udp.clone()], ..found.clone() };
        let unsure = loses.replace(";", ", and none is shown to lose less;");
        assert_eq!(said(&open), format!("Between hosts: AF_XDP; {unsure}"));
        let tie = Decision { tie: true, loses: interval(1.0), gain: None, ..open };
        assert_eq!(said(&tie), "Between hosts: either AF_XDP or UDP; nowhere behind the best");
        assert_eq!(
            largest_losses(&found),
            [
                "AF_XDP: at most 1.20x (all digits hold) behind, latency at 64 B, where UDP is best",
                "UDP: at most 1.90x (all digits hold) behind, latency at 8 B, where AF_XDP is best"
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
