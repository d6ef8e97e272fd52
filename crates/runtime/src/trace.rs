//! The calls of one offcode while somebody watches it, wherever they pass: out of band at the switchboard, over channels of
//! calls where the offcode is served. Nobody watches: there is no trace, and whoever would note a call finds none.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use attach::watched::{self, Calls, Outcome};
use machine::Nanoseconds;
use machine::bounds::CALLS_TRACED;
use offcode::Manifest;
use offcode::call::Header;

const KEPT: usize = CALLS_TRACED.each.count();
/// Longest sentence of a refusal that is kept, in characters.
const SENTENCE: usize = 200;

/// The calls of an offcode that is watched; all that note them share one.
#[derive(Clone, Default)]
pub struct Trace(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    calls: VecDeque<Noted>,
    next: u64,
}

struct Noted {
    number: u64,
    time: Nanoseconds,
    begun: Begun,
    outcome: Outcome,
    took: Option<Nanoseconds>,
}

/// A call that has come.
#[derive(Debug, Clone)]
pub(crate) struct Begun {
    since: Instant,
    from: String,
    interface: u64,
    method: u16,
    bytes: u64,
}

impl Begun {
    pub fn now(from: String, header: &Header, arguments: usize) -> Begun {
        let Header { interface, method, .. } = *header;
        Begun { since: Instant::now(), from, interface, method, bytes: arguments as u64 }
    }
}

impl Trace {
    pub(crate) fn note(&self, begun: Begun, outcome: Outcome) {
        let took = begun.since.elapsed();
        let outcome = match outcome {
            Outcome::Refused(why) => Outcome::Refused(why.chars().take(SENTENCE).collect()),
            outcome => outcome,
        };
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(took);
        let took = (outcome != Outcome::OneWay).then_some(Nanoseconds(took.as_nanos() as u64));
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = kept.next;
        kept.next += 1;
        if kept.calls.len() == KEPT {
            kept.calls.pop_front();
        }
        kept.calls.push_back(Noted { number, time: Nanoseconds(time.as_nanos() as u64), begun, outcome, took });
    }

    /// Calls from number `from` on, of an offcode with this manifest.
    pub(crate) fn since(&self, from: Option<u64>, manifest: &Manifest) -> Calls {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = kept.calls.iter().filter(|call| from.is_some_and(|from| call.number >= from));
        let calls = wanted.map(|call| watched::Call {
            number: call.number,
            time: call.time,
            from: call.begun.from.clone(),
            method: method(manifest, &call.begun),
            bytes: call.begun.bytes,
            outcome: call.outcome.clone(),
            took: call.took,
        });
        Calls { calls: calls.collect(), next: kept.next, unseen: None }
    }
}

/// The watch over an offcode.
pub(crate) struct Watch {
    pub trace: Trace,
    /// When somebody last asked for its calls.
    pub asked: Instant,
}

fn method(manifest: &Manifest, call: &Begun) -> String {
    let Begun { interface, method, .. } = call;
    let known = manifest.package.interfaces.iter().find(|one| one.guid.short() == *interface);
    let Some(known) = known else { return format!("{interface:016x}.{method}") };
    known
        .methods
        .get(usize::from(*method))
        .map_or_else(|| format!("{}.{method}", known.name), |named| format!("{}.{named}", known.name))
}

#[cfg(test)]
mod tests {
    use offcode::call::Kind;

    use super::*;

    #[test]
    fn what_nobody_asks_for_is_bounded() {
        let trace = Trace::default();
        let header = Header { interface: 0, method: 0, kind: Kind::Call, route: 0, id: 0 };
        for _ in 0..KEPT + 10 {
            trace.note(Begun::now("one".into(), &header, 0), Outcome::Refused("why".repeat(SENTENCE)));
        }
        let kept = trace.0.lock().unwrap();
        assert_eq!((kept.calls.len(), kept.calls[0].number, kept.next), (KEPT, 10, KEPT as u64 + 10));
        assert!(matches!(&kept.calls[0].outcome, Outcome::Refused(why) if why.len() == SENTENCE));
    }
}
