//! The verdict in one sentence that a performance engineer can act on.

use machine::{Bytes, CoreId, Site};

use crate::findings::{Choice, Question, SizeRange};
use crate::point::{Contender, Path, Pattern};

/// `shared`: the core that the dedicated engine had to share, and with whom.
pub fn sentence(rows: &[SizeRange], network: &Path, shared: Option<(CoreId, &str)>) -> String {
    let mut clauses = Vec::new();
    for question in [Question::SameHost, Question::BetweenHosts] {
        let phrases: Vec<(Pattern, String)> = [Pattern::PingPong, Pattern::Stream]
            .into_iter()
            .filter_map(|pattern| Some((pattern, phrase(rows, question, pattern)?)))
            .collect();
        let head = match (question, network) {
            (Question::SameHost, _) => "within this host",
            (_, Path::Loopback) => "between hosts (loopback stood in for the network)",
            _ => "between hosts",
        };
        match phrases.as_slice() {
            [] => {}
            [(_, one), (_, two)] if one == two => clauses.push(format!("{head}, {one}")),
            several => {
                let parts = several.iter().map(|(pattern, phrase)| format!("for {}, {phrase}", aim(*pattern)));
                clauses.push(format!("{head}: {}", parts.collect::<Vec<_>>().join("; ")));
            }
        }
    }
    if clauses.is_empty() {
        return "Nothing can be said: no comparison was measured.".into();
    }
    clauses.extend(own_core(rows, shared));
    let text = clauses.join("; ");
    let mut letters = text.chars();
    let capital = letters.next().map(|c| c.to_ascii_uppercase());
    capital.into_iter().chain(letters).chain(['.']).collect()
}

fn aim(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::PingPong => "latency",
        _ => "bandwidth",
    }
}

/// A stretch of sizes as the sentence has it.
struct Stretch {
    to: Bytes,
    /// `None` where nothing can be told.
    place: Option<Contender>,
}

fn phrase(rows: &[SizeRange], question: Question, pattern: Pattern) -> Option<String> {
    let rows: Vec<&SizeRange> = rows.iter().filter(|r| r.question == question && r.pattern == pattern).collect();
    rows.first()?;
    let (stretches, absorbed) = stretches(&rows);
    let mut parts = Vec::new();
    for (nth, stretch) in stretches.iter().enumerate() {
        let place = match &stretch.place {
            Some(contender) => place(contender),
            None => "wherever else suits (cannot tell)".into(),
        };
        let reach = match (nth, stretches.len()) {
            (_, 1) => " at every size".into(),
            (n, all) if n + 1 == all => " above".into(),
            _ => format!(" up to {}", stretch.to),
        };
        parts.push(format!("{place}{reach}"));
    }
    if stretches.iter().all(|s| s.place.is_none()) {
        return Some("cannot tell where message processing should run".into());
    }
    let last = parts.pop().expect("there is a row, hence a stretch");
    let listed = if parts.is_empty() { last } else { format!("{} and {last}", parts.join(", ")) };
    let weak = if absorbed { " (where it makes a difference that can be told)" } else { "" };
    Some(format!("run message processing {listed}{weak}"))
}

/// Rows as stretches; one that cannot tell joins a neighbour whose place is among those it cannot tell apart.
fn stretches(rows: &[&SizeRange]) -> (Vec<Stretch>, bool) {
    let placed = |row: &SizeRange| match &row.choice {
        Choice::Place(contender) => Some(contender.clone()),
        Choice::CannotTell { .. } => None,
    };
    let mut absorbed = false;
    let mut stretches: Vec<Stretch> = Vec::new();
    for (nth, row) in rows.iter().enumerate() {
        let mut wanted = placed(row);
        if let Choice::CannotTell { between, .. } = &row.choice {
            let before = stretches.last().and_then(|s| s.place.clone());
            let after = rows.get(nth + 1).and_then(|next| placed(next));
            wanted = [before, after].into_iter().flatten().find(|neighbour| between.contains(neighbour));
            absorbed |= wanted.is_some();
        }
        match stretches.last_mut() {
            Some(last) if last.place == wanted => last.to = row.to,
            _ => stretches.push(Stretch { to: row.to, place: wanted }),
        }
    }
    (stretches, absorbed)
}

fn place(contender: &Contender) -> String {
    match contender.placement {
        Site::Core(_) => format!("on a core of its own ({contender})"),
        _ if contender.stack.is_engine() => format!("in the application ({contender})"),
        _ => format!("in the kernel ({})", contender.stack),
    }
}

/// Whether a core of its own pays, where that is told at all.
fn own_core(rows: &[SizeRange], shared: Option<(CoreId, &str)>) -> Option<String> {
    let own = |c: &Contender| matches!(c.placement, Site::Core(_));
    let compared = rows.iter().any(|r| r.rejected.iter().any(|x| own(&x.contender)));
    let open = rows.iter().any(|r| match &r.choice {
        Choice::Place(contender) => own(contender),
        Choice::CannotTell { between, .. } => between.iter().any(own),
    });
    if open || !compared {
        return None;
    }
    let because = shared.map_or(String::new(), |(core, whose)| format!(": its engine shares {core} with {whose}"));
    Some(format!("a core of its own does not pay on this machine{because}"))
}
