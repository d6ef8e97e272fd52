//! The graph of a schedule (GOAL), which nobody recorded.
//!
//! A rank's operations are no line of calls: what does not require each other may run in any order. They are covered by chains,
//! each a lane: an operation goes on where one that it requires ended last, messages that begin together begin in one call; else
//! it begins a lane. So whatever requires
//! nothing of each other runs side by side, also on one cpu; of a recorded thread, which is one chain, the lane is its calls.
//!
//! | schedule | in the graph |
//! |---|---|
//! | `calc` | a gap |
//! | `send`, `recv` | sent, posted; the k-th of a sender, receiver and tag belong together, in the order in which they may begin |
//! | `b requires a` | a message `a` is completed before `b`; in the same lane with its beginning: a blocking call |
//! | `b irequires a` | nothing within a lane |
//! | either between lanes | a gathering of two that takes no time: `a` enters, `b` waits for it |

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

use machine::{Fault, Result, count};
use timeline::Collective;

use super::builder::called;
use super::{Adding, Builder, Graph, Kind, MOST, ORDER, Reach, Step};
use crate::goal::{ANY, Kind as Sort, Operation, Schedule};

impl Graph {
    /// `per_host` ranks are on the first host, as many on the next, and so on.
    ///
    /// # Errors
    /// Operations that require each other, a message or a receive without the other end, a receive from anywhere, which only
    /// a simulation decides; more messages than a graph can have.
    pub fn of_schedule(schedule: &Schedule, per_host: u32) -> Result<Graph> {
        let plans: Vec<Plan> = (0..schedule.ranks()).map(|rank| Plan::of(schedule, rank)).collect::<Result<_>>()?;
        let (numbers, messages) = numbers(&plans)?;
        let host = |rank: u32| rank / per_host.max(1);
        let mut builder = Builder::new((0..schedule.ranks()).map(host).collect(), messages.len() as u32);
        for (number, (from, to, bytes)) in messages.into_iter().enumerate() {
            let reach = if host(from) == host(to) { Reach::Host } else { Reach::Between };
            builder.message(number as u32, Kind { bytes, reach, trips: 1 });
        }
        let mut beside = 0;
        for (plan, numbers) in plans.iter().zip(&numbers) {
            let cpus: BTreeSet<u16> = plan.operations.iter().map(|operation| operation.cpu).collect();
            beside += plan.lanes.len().saturating_sub(cpus.len()) as u64;
            plan.write(numbers, &mut builder);
        }
        if beside > 0 {
            let chains = count::of(beside, "chain");
            builder
                .note(format!("{chains} of operations share a cpu with others: each is replayed as if it had its own"));
        }
        let mut graph = builder.finish();
        graph.scheduled = true;
        Ok(graph)
    }
}

/// A rank's operations in lanes. Operations are known by their place in `operations`.
struct Plan {
    rank: u32,
    operations: Vec<Operation>,
    /// By operation: those that it requires, and whether each must be over.
    needs: Vec<Vec<(u32, bool)>>,
    /// Operations in the order in which they may begin.
    order: Vec<u32>,
    lane: Vec<u32>,
    lanes: Vec<Vec<u32>>,
    /// By cpu and required operations: the lane of messages that begin together.
    together: HashMap<(u16, Vec<(u32, bool)>), u32>,
}

impl Plan {
    fn of(schedule: &Schedule, rank: u32) -> Result<Plan> {
        let operations: Vec<Operation> = schedule.of(rank).collect();
        let first = operations.first().map_or(0, |operation| operation.number);
        let mut needs = vec![Vec::new(); operations.len()];
        let mut followers = vec![Vec::new(); operations.len()];
        for (place, operation) in operations.iter().enumerate() {
            for (all, over) in
                [(schedule.after_end(operation.number), true), (schedule.after_start(operation.number), false)]
            {
                for later in all {
                    needs[(later - first) as usize].push((place as u32, over));
                    followers[place].push(later - first);
                }
            }
        }
        needs.iter_mut().for_each(|needs: &mut Vec<(u32, bool)>| needs.sort_unstable());
        let mut left: Vec<usize> = needs.iter().map(Vec::len).collect();
        let mut ready: BinaryHeap<Reverse<u32>> =
            (0..operations.len() as u32).filter(|place| left[*place as usize] == 0).map(Reverse).collect();
        let mut plan = Plan {
            rank,
            lane: vec![u32::MAX; operations.len()],
            operations,
            needs,
            order: Vec::new(),
            lanes: Vec::new(),
            together: HashMap::new(),
        };
        while let Some(Reverse(place)) = ready.pop() {
            plan.place(place);
            for later in &followers[place as usize] {
                left[*later as usize] -= 1;
                if left[*later as usize] == 0 {
                    ready.push(Reverse(*later));
                }
            }
        }
        if plan.order.len() < plan.operations.len() {
            let cause = format!(
                "{} of rank {rank} require each other",
                count::of((plan.operations.len() - plan.order.len()) as u64, "operation")
            );
            return Err(Fault::new("the schedule", cause, "delete one of the requirements"));
        }
        Ok(plan)
    }

    /// Appends the operation to a lane whose last one it requires, or whose last one is a message of the same requirements;
    /// else begins a new lane.
    fn place(&mut self, place: u32) {
        let at = place as usize;
        let last = |lane: u32| self.lanes[lane as usize].last().copied();
        let ends = |(other, over): &(u32, bool)| {
            let lane = self.lane[*other as usize];
            (last(lane) == Some(*other)).then_some((*over, *other, lane))
        };
        let follows = self.needs[at].iter().filter_map(ends).max().map(|(.., lane)| lane);
        let Operation { kind, cpu, .. } = self.operations[at];
        let key = (cpu, self.needs[at].clone());
        let beside = || {
            let lane = *self.together.get(&key).filter(|_| kind != Sort::Compute)?;
            let other = last(lane)? as usize;
            let same = self.operations[other].kind != Sort::Compute && self.needs[other] == self.needs[at];
            same.then_some(lane)
        };
        let lane = follows.or_else(beside).unwrap_or(self.lanes.len() as u32);
        if lane as usize == self.lanes.len() {
            self.lanes.push(Vec::new());
        }
        if kind != Sort::Compute {
            self.together.insert(key, lane);
        }
        self.lane[at] = lane;
        self.lanes[lane as usize].push(place);
        self.order.push(place);
    }

    fn write(&self, numbers: &[u32], builder: &mut Builder) {
        let around = Around::of(self, builder);
        let message = |place: u32| Some(numbers[place as usize]).filter(|number| *number != u32::MAX);
        let done = |place: u32| {
            let sends = self.operations[place as usize].kind == Sort::Send;
            message(place).map(|number| if sends { Step::Sent(number) } else { Step::Received(number) })
        };
        for lane in &self.lanes {
            let mut lane_of = Writing::new(builder, self.rank);
            for place in lane {
                let at = *place as usize;
                around.awaited[at].iter().for_each(|member| lane_of.wait(*member));
                around.completed[at].iter().filter_map(|other| done(*other)).for_each(|step| lane_of.complete(step));
                around.before[at].iter().for_each(|root| lane_of.begin(Step::Enter(*root)));
                match (self.operations[at].kind, message(*place)) {
                    (Sort::Send, Some(number)) => lane_of.begin(Step::Send(number)),
                    (Sort::Receive, Some(number)) => lane_of.begin(Step::Post(number)),
                    _ => lane_of.compute(self.operations[at].amount),
                }
                around.after[at].iter().for_each(|root| lane_of.begin(Step::Enter(*root)));
            }
            let open = lane.iter().filter(|place| around.open[**place as usize]);
            open.filter_map(|place| done(*place)).for_each(|step| lane_of.complete(step));
            lane_of.end();
        }
        // Messages that several lanes wait for are completed in lanes of their own.
        for (place, began, roots) in &around.apart {
            let mut lane_of = Writing::new(builder, self.rank);
            began.iter().for_each(|member| lane_of.wait(*member));
            done(*place).into_iter().for_each(|step| lane_of.complete(step));
            roots.iter().for_each(|root| lane_of.begin(Step::Enter(*root)));
            lane_of.end();
        }
    }
}

/// By operation: gatherings and completions around it, so that it waits for what it requires.
struct Around {
    awaited: Vec<Vec<u32>>,
    /// Messages that are completed before the operation.
    completed: Vec<Vec<u32>>,
    before: Vec<Vec<u32>>,
    after: Vec<Vec<u32>>,
    /// Messages that nothing requires: completed at the end of their lanes.
    open: Vec<bool>,
    /// Messages that are completed in lanes of their own: the gathering these wait for first, and those they enter then.
    apart: Vec<(u32, Option<u32>, Vec<u32>)>,
}

impl Around {
    fn of(plan: &Plan, builder: &mut Builder) -> Around {
        let none = || vec![Vec::new(); plan.operations.len()];
        let mut around = Around {
            awaited: none(),
            completed: none(),
            before: none(),
            after: none(),
            open: plan.operations.iter().map(|operation| operation.kind != Sort::Compute).collect(),
            apart: Vec::new(),
        };
        // By operation: the first operations of each lane that require it to have started, and to be over.
        let mut firsts: Vec<[Vec<u32>; 2]> = vec![Default::default(); plan.operations.len()];
        for place in &plan.order {
            for (other, over) in &plan.needs[*place as usize] {
                let first = &mut firsts[*other as usize][usize::from(*over)];
                let lane = plan.lane[*place as usize];
                if first.iter().all(|known| plan.lane[*known as usize] != lane) {
                    first.push(*place);
                }
            }
        }
        let mut order = || builder.gathering(2, Collective::FromRoot, 0, ORDER);
        for (place, [started, over]) in firsts.iter().enumerate() {
            let elsewhere = |other: &&u32| plan.lane[**other as usize] != plan.lane[place];
            for other in started.iter().filter(elsewhere) {
                let root = order();
                around.before[place].push(root);
                around.awaited[*other as usize].push(root + 1);
            }
            let kind = plan.operations[place].kind;
            if kind == Sort::Compute {
                for other in over.iter().filter(elsewhere) {
                    let root = order();
                    around.after[place].push(root);
                    around.awaited[*other as usize].push(root + 1);
                }
                continue;
            }
            around.open[place] &= over.is_empty();
            // An eager send is over at once, but only after it began.
            let began = |around: &mut Around, root: u32| {
                around.after[place].push(root);
                root + 1
            };
            match over[..] {
                [] => {}
                [only] => {
                    around.completed[only as usize].push(place as u32);
                    if kind == Sort::Send && elsewhere(&&only) {
                        let member = began(&mut around, order());
                        around.awaited[only as usize].push(member);
                    }
                }
                _ => {
                    let member = (kind == Sort::Send).then(|| began(&mut around, order()));
                    let roots: Vec<u32> = over.iter().map(|_| order()).collect();
                    for (other, root) in over.iter().zip(&roots) {
                        around.awaited[*other as usize].push(root + 1);
                    }
                    around.apart.push((place as u32, member, roots));
                }
            }
        }
        around
    }
}

/// A lane being written: begins that follow each other at once, and the completions after them, are one call.
struct Writing<'b> {
    builder: &'b mut Builder,
    gap: i64,
    begins: Vec<Step>,
    completes: Vec<Step>,
}

impl<'b> Writing<'b> {
    fn new(builder: &'b mut Builder, rank: u32) -> Self {
        builder.lane(rank, 0);
        Writing { builder, gap: 0, begins: Vec::new(), completes: Vec::new() }
    }

    fn begin(&mut self, step: Step) {
        if !self.completes.is_empty() {
            self.call();
        }
        self.begins.push(step);
    }

    fn complete(&mut self, step: Step) {
        self.completes.push(step);
    }

    fn wait(&mut self, member: u32) {
        self.begins.push(Step::Enter(member));
        self.completes.push(Step::Leave(member));
    }

    fn compute(&mut self, ns: u64) {
        if !self.begins.is_empty() || !self.completes.is_empty() {
            self.call();
        }
        self.gap = self.gap.saturating_add(i64::try_from(ns).unwrap_or(i64::MAX));
    }

    fn call(&mut self) {
        self.begins.append(&mut self.completes);
        let gap = std::mem::take(&mut self.gap);
        let adding = Adding { function: called(&self.begins), gap, inside: 0, opaque: false };
        self.builder.call(adding, &self.begins);
        self.begins.clear();
    }

    fn end(mut self) {
        self.call();
    }
}

/// A message's sender, receiver and bytes.
type Ends = (u32, u32, u64);

/// By rank and operation: the number of its message, or `u32::MAX`; and the messages, by number.
fn numbers(plans: &[Plan]) -> Result<(Vec<Vec<u32>>, Vec<Ends>)> {
    // By sender, receiver and tag: rank and operation of the sends, and of the receives.
    type Open = [Vec<(u32, u32)>; 2];
    let mut open: HashMap<(u32, u32, u32), Open> = HashMap::new();
    for plan in plans {
        for place in &plan.order {
            let operation = plan.operations[*place as usize];
            let sends = match operation.kind {
                Sort::Compute => continue,
                _ if operation.peer == ANY || operation.tag == ANY => {
                    let cause =
                        format!("rank {} receives from any rank or any tag: who that is only time decides", plan.rank);
                    return Err(Fault::new(
                        "the schedule",
                        cause,
                        "name the rank and the tag, or simulate it with --loggops",
                    ));
                }
                kind => kind == Sort::Send,
            };
            let (from, to) = if sends { (plan.rank, operation.peer) } else { (operation.peer, plan.rank) };
            open.entry((from, to, operation.tag)).or_default()[usize::from(!sends)].push((plan.rank, *place));
        }
    }
    let mut numbers: Vec<Vec<u32>> = plans.iter().map(|plan| vec![u32::MAX; plan.operations.len()]).collect();
    let mut messages = Vec::new();
    let mut keys: Vec<_> = open.into_iter().collect();
    keys.sort_unstable_by_key(|(key, _)| *key);
    for ((from, to, tag), [sends, receives]) in keys {
        if sends.len() != receives.len() {
            let cause = format!(
                "from rank {from} to rank {to} with tag {tag} go {}, of which {} received",
                count::of(sends.len() as u64, "message"),
                count::either(receives.len() as u64, "1 is", &format!("{} are", receives.len()))
            );
            return Err(Fault::new("the schedule", cause, "write a recv for each send"));
        }
        for (send, receive) in sends.into_iter().zip(receives) {
            for (rank, place) in [send, receive] {
                numbers[rank as usize][place as usize] = messages.len() as u32;
            }
            messages.push((from, to, plans[from as usize].operations[send.1 as usize].amount));
        }
    }
    if messages.len() >= MOST as usize {
        let cause = format!("it has {} messages, more than {MOST}", messages.len());
        return Err(Fault::new("the schedule", cause, "split it"));
    }
    Ok((numbers, messages))
}

#[cfg(test)]
mod tests;
