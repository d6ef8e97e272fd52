//! One choice for all sizes and patterns of a question: the contender that loses least where it loses most; of those whose
//! losses cannot be distinguished, the one that asks least of the machine.

use std::collections::BTreeMap;

use machine::{Bytes, Minimax, Site, costs, minimax};
use rounds::comparison::{Paired, leader};
use rounds::contrast::EQUALITY;
use rounds::estimate::Estimate;
use rounds::point::{Contender, Pattern, Stack};
use rounds::sample::Sample;

use crate::findings::{Decision, Loss, PointFindings, Question};

/// Messages up to this size are short.
const SHORT: Bytes = Bytes(64);

/// The decision of each question that has a choice.
pub fn decisions(points: &[PointFindings]) -> Vec<Decision> {
    [Question::SameHost, Question::BetweenHosts].into_iter().filter_map(|question| decide(question, points)).collect()
}

/// Points of one pattern and size, side by side.
type Cases<'a> = BTreeMap<(Pattern, Bytes), Vec<&'a PointFindings>>;

fn decide(question: Question, points: &[PointFindings]) -> Option<Decision> {
    let mut cases = Cases::new();
    for point in points.iter().filter(|p| p.candidate && p.questions.contains(&question) && !p.samples.is_empty()) {
        cases.entry((point.spec.pattern, point.spec.size)).or_default().push(point);
    }
    cases.retain(|_, points| points.len() > 1);
    let (_, first) = cases.first_key_value()?;
    // The loss of a contender without measurements everywhere is unknown.
    let everywhere = |of: &Contender| cases.values().all(|points| of_contender(points, of).is_some());
    let contenders: Vec<Contender> = first.iter().map(|point| point.spec.contender()).filter(everywhere).collect();
    let losses = losses(&cases, &contenders);
    let table: Vec<Vec<costs::Interval>> =
        losses.iter().map(|losses| losses.iter().map(|loss| loss.loss.interval()).collect()).collect();
    let Minimax { choice, worst, open } = minimax(&table).filter(|_| contenders.len() > 1)?;
    let middle = |at: usize| worst[at].0.middle;
    let mut open: Vec<usize> = [vec![choice], open].concat();
    open.sort_by(|one, other| {
        let asks = demands(&contenders[*one]).cmp(&demands(&contenders[*other]));
        asks.then(middle(*one).total_cmp(&middle(*other)))
    });
    let choice = open.remove(0);
    let (held, (most, case)) = (&contenders[choice], worst[choice]);
    let at = &losses[choice][case];
    let equal = |at: &usize| worst[*at].0.high <= 1.0 + EQUALITY;
    Some(Decision {
        question,
        path: first[0].spec.path.clone(),
        choice: held.clone(),
        tie: !open.is_empty() && open.iter().chain([&choice]).all(equal),
        open: open.iter().map(|at| contenders[*at].clone()).collect(),
        loses: Estimate { middle: most.middle, low: most.low, high: most.high, samples: at.loss.samples },
        at: (at.pattern, at.size),
        gain: over_the_kernel(&cases, held),
        losses: losses.concat(),
    })
}

/// What a contender takes from the machine: a core of its own, then an interface, which needs rights.
fn demands(of: &Contender) -> (bool, bool) {
    (of.placement != Site::App, of.stack.attaches())
}

fn of_contender<'a>(points: &[&'a PointFindings], contender: &Contender) -> Option<&'a PointFindings> {
    points.iter().copied().find(|point| point.spec.contender() == *contender)
}

/// Loss of each contender in each case against the best there.
fn losses(cases: &Cases, contenders: &[Contender]) -> Vec<Vec<Loss>> {
    let mut losses = vec![Vec::new(); contenders.len()];
    for ((pattern, size), points) in cases {
        let samples: Vec<&[Sample]> = points.iter().map(|point| point.samples.as_slice()).collect();
        let Some(best) = leader(&samples, pattern.metric()).map(|best| points[best]) else { continue };
        let loss = |contender: &Contender| {
            let own = of_contender(points, contender)?;
            if own.key == best.key {
                return Some(Estimate { middle: 1.0, low: 1.0, high: 1.0, samples: own.samples.len() });
            }
            let over = Paired::performance(&best.samples, &own.samples, pattern.metric()).interval()?;
            let Estimate { middle, low, high, samples } = over;
            Some(Estimate { middle: middle.max(1.0), low: low.max(1.0), high: high.max(1.0), samples })
        };
        // Blocks that never ran side by side are not comparable.
        let Some(of_case) = contenders.iter().map(loss).collect::<Option<Vec<Estimate>>>() else { continue };
        for ((losses, contender), loss) in losses.iter_mut().zip(contenders).zip(of_case) {
            let (contender, best) = (contender.clone(), best.spec.contender());
            losses.push(Loss { contender, pattern: *pattern, size: *size, best, loss });
        }
    }
    losses
}

/// Speed-up of short messages over the kernel's TCP; `None` where they are no faster.
fn over_the_kernel(cases: &Cases, held: &Contender) -> Option<Estimate> {
    let kernel = Contender { stack: Stack::Tcp, placement: Site::App };
    let short = cases.iter().filter(|((pattern, size), _)| *pattern == Pattern::PingPong && *size <= SHORT);
    let ratios = short.filter_map(|((pattern, _), points)| {
        let (own, usual) = (of_contender(points, held)?, of_contender(points, &kernel)?);
        Some(Paired::performance(&own.samples, &usual.samples, pattern.metric()).ratios)
    });
    let gain = Paired { ratios: ratios.flatten().collect() }.interval();
    gain.filter(|gain| *held != kernel && gain.low > 1.0 + EQUALITY)
}

/// The command that uses a choice; `IFACE` stands for the interface that leads to the other hosts.
pub fn command(of: &Decision) -> String {
    let placement = match &of.choice.placement {
        Site::App => String::new(),
        site => format!(" --placement {site}"),
    };
    let stack = of.choice.stack;
    let carrier = match stack.network() {
        Some(network) if stack.attaches() => format!(" --network {network}:IFACE"),
        Some(network) => format!(" --network {network}"),
        None if stack.is_engine() => String::new(),
        None => " --carrier tcp".to_owned(),
    };
    format!("plimsoll mpirun{placement}{carrier} -n N -- PROGRAM")
}
