//! A stretch from the middle of a recording, for what needs no more of it.

use super::{Adding, Builder, CallId, Graph, Lane, Step};

/// Parts of the run by which a stretch is chosen.
const PARTS: usize = 1024;

/// A part of a lane.
struct Part {
    lane: Lane,
    /// The gap before its first call, as far as it is in the stretch, ns.
    gap: i64,
}

/// The number of an element that is not in the stretch.
const OUT: u32 = u32::MAX;

impl Graph {
    /// The beginning of the first lane and the end of the last call, ns.
    pub fn span(&self) -> (i64, i64) {
        let begun = self.lanes.iter().map(|lane| lane.begun).min().unwrap_or(0);
        let mut end = begun;
        for lane in &self.lanes {
            self.walk(lane, |_, _, exit| end = end.max(exit));
        }
        (begun, end)
    }

    /// About `most` calls from the middle of the run; `None`: it has no more of them, or begins and ends at once.
    ///
    /// What a call of the stretch has to do with calls outside is left out. A call of which nothing else is left takes the
    /// time that it was recorded to take.
    pub fn excerpt(&self, most: usize) -> Option<Graph> {
        let (begun, end) = self.span();
        if self.len() <= most || self.scheduled || end <= begun {
            return None;
        }
        let (from, until) = self.stretch(most, begun, end);
        let part = |lane: &Lane| {
            let mut part = Part { lane: Lane { first: lane.end, end: lane.end, begun: from, ..*lane }, gap: 0 };
            self.walk(lane, |call, entry, exit| {
                if entry >= from && part.lane.first == lane.end {
                    part.gap = self.calls.gap.get(call).min(entry - from);
                    (part.lane.first, part.lane.begun) = (call, entry - part.gap);
                }
                if exit > until && part.lane.end == lane.end {
                    part.lane.end = call;
                }
            });
            part.lane.end = part.lane.end.max(part.lane.first);
            part
        };
        let parts: Vec<Part> = self.lanes.iter().map(part).collect();
        Some(self.of_parts(&parts))
    }

    /// Passes each call of a lane with its entry and its exit, ns.
    fn walk(&self, lane: &Lane, mut take: impl FnMut(CallId, i64, i64)) {
        let mut now = lane.begun;
        for call in lane.first..lane.end {
            let entry = now + self.calls.gap.get(call);
            now = entry + self.calls.inside.get(call);
            take(call, entry, now);
        }
    }

    /// The time in which about `most` calls end, with as many before as after.
    fn stretch(&self, most: usize, begun: i64, end: i64) -> (i64, i64) {
        let mut ended = [0usize; PARTS];
        let part = |at: i64| ((at - begun) as i128 * PARTS as i128 / (end - begun + 1) as i128) as usize;
        for lane in &self.lanes {
            self.walk(lane, |_, _, exit| ended[part(exit)] += 1);
        }
        let before = (self.len() - most) / 2;
        let at = |calls: usize, sum: &mut usize, place: &mut usize| {
            while *place < PARTS && *sum + ended[*place] <= calls {
                *sum += ended[*place];
                *place += 1;
            }
            // Within a part calls end evenly.
            let within = (calls - *sum) as f64 / ended.get(*place).copied().unwrap_or(1).max(1) as f64;
            begun + ((end - begun) as f64 * (*place as f64 + within) / PARTS as f64) as i64
        };
        let (mut sum, mut place) = (0, 0);
        let from = at(before, &mut sum, &mut place);
        (from, at(before + most, &mut sum, &mut place))
    }

    /// The graph of these parts of its lanes.
    fn of_parts(&self, parts: &[Part]) -> Graph {
        let mut messages = vec![OUT; self.messages.len()];
        let mut gatherings = vec![OUT; self.gatherings.len()];
        let mut begun = vec![0u8; self.messages.len()];
        let mut entered = vec![0u32; self.gatherings.len()];
        for step in parts.iter().flat_map(|part| part.lane.first..part.lane.end).flat_map(|call| self.steps(call)) {
            match step {
                Step::Send(message) | Step::Post(message) => begun[message as usize] += 1,
                Step::Enter(member) => entered[self.gathering(member) as usize] += 1,
                _ => {}
            }
        }
        let mut number = 0;
        for (message, both) in messages.iter_mut().zip(&begun) {
            if *both == 2 {
                (*message, number) = (number, number + 1);
            }
        }
        let mut builder = Builder::new(self.hosts.clone(), number);
        for (message, place) in self.messages.iter().zip(&messages).filter(|(_, place)| **place != OUT) {
            builder.message(*place, self.kinds[message.kind as usize]);
        }
        for ((of, place), came) in self.gatherings.iter().zip(&mut gatherings).zip(entered) {
            if came > 0 && came == of.members {
                *place = builder.gathering(of.members, of.who, of.root, self.kinds[of.kind as usize]);
            }
        }
        let member = |member: u32| {
            let gathering = self.gathering(member) as usize;
            (gatherings[gathering] != OUT).then(|| gatherings[gathering] + member - self.gatherings[gathering].first)
        };
        let message = |message: u32| Some(messages[message as usize]).filter(|place| *place != OUT);
        let kept = |step: Step| match step {
            Step::Send(of) => message(of).map(Step::Send),
            Step::Post(of) => message(of).map(Step::Post),
            Step::Sent(of) => message(of).map(Step::Sent),
            Step::Received(of) => message(of).map(Step::Received),
            Step::Enter(of) => member(of).map(Step::Enter),
            Step::Leave(of) => member(of).map(Step::Leave),
        };
        let mut steps = Vec::new();
        for Part { lane, gap: first_gap } in parts {
            builder.lane(lane.rank, lane.begun);
            builder.recorded(lane.recording);
            for call in lane.first..lane.end {
                steps.clear();
                steps.extend(self.steps(call).filter_map(kept));
                let class = self.class(call);
                let opaque = class.opaque || steps.is_empty() && self.steps(call).next().is_some();
                let gap = if call == lane.first { *first_gap } else { self.calls.gap.get(call) };
                let inside = self.calls.inside.get(call);
                builder.call(Adding { function: class.function, gap, inside, opaque }, &steps);
                builder.made_at(self.calls.site[call as usize]);
            }
        }
        builder.finish()
    }
}
