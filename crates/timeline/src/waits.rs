//! Who waited for whom, computed from the times at which both came.
//!
//! The names are those of Scalasca's wait states: a receive waits for a late sender, a send that cannot be buffered for a
//! late receiver, a collective operation for the last that enters (everyone to everyone), for its root (from the root), or
//! as its root for everyone (to the root).
//!
//! One state is not Scalasca's: a message whose two halves have begun is held by a partner that is *away*, outside of MPI,
//! where no library without a helper moves data. That is counted from when both halves have begun, as far as the partner
//! came back before the call was over: had the message arrived without it, the call would not have lasted so long. In a
//! call that completes several operations the partner may be away from one that was over already.
//!
//! A partner that has begun may also be *kept off* its core: stopped, or runnable while others have it, in MPI or not.
//! Samples show that for ranks that were off for long. Such time of the calling rank itself is neither wait nor work of
//! its call; while it is stopped it waits for nobody.

use std::collections::BTreeMap;
use std::ops::Range;

use record::functions::{Class, FunctionId, counted, function};

use super::absence::SHORTEST;
use super::roles::{Collective, Role, part_of};
use super::walk::{Kind, Operation, Step};
use super::{Communicator, Rank, Timeline};

/// Times, in seconds, of the calls of one function at groups of one size.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FunctionWaits {
    pub calls: u64,
    /// Time in the calls.
    pub seconds: f64,
    /// Waiting for a sender that had not begun.
    pub late_sender: f64,
    /// Waiting for a receiver that had not begun.
    pub late_receiver: f64,
    /// Waiting for others to enter a collective operation.
    pub collective: f64,
    /// Waiting for a partner that had begun its half and was outside of MPI.
    pub away: f64,
    /// Waiting for a partner that had begun its half, or entered, and was off its core.
    pub kept_off: f64,
    /// Time in which the calling thread, waiting for nobody, was off its own core.
    pub off_core: f64,
    /// Time in calls whose waiting cannot be seen: their other end is not in the timeline, or they only test.
    pub undivided: f64,
}

impl FunctionWaits {
    pub fn wait(&self) -> f64 {
        self.late_sender + self.late_receiver + self.collective + self.away + self.kept_off
    }

    /// The rest: the calls' own work.
    pub fn transfer(&self) -> f64 {
        (self.seconds - self.wait() - self.off_core - self.undivided).max(0.0)
    }

    pub fn add(&mut self, other: &FunctionWaits) {
        self.calls += other.calls;
        self.seconds += other.seconds;
        self.late_sender += other.late_sender;
        self.late_receiver += other.late_receiver;
        self.collective += other.collective;
        self.away += other.away;
        self.kept_off += other.kept_off;
        self.off_core += other.off_core;
        self.undivided += other.undivided;
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct RankWaits {
    /// Waits by function and number of ranks of the communicator (0 for functions that are not collective).
    pub functions: BTreeMap<(FunctionId, u32), FunctionWaits>,
    /// Seconds that it waited for each other rank, by index in [`Timeline::ranks`].
    pub for_whom: BTreeMap<usize, f64>,
}

impl RankWaits {
    /// The sum over all functions but MPI_Init and MPI_Finalize.
    pub fn total(&self) -> FunctionWaits {
        let mut total = FunctionWaits::default();
        for ((id, _), waits) in &self.functions {
            if counted(*id) {
                total.add(waits);
            }
        }
        total
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Waits {
    /// Waits of each rank, by index in [`Timeline::ranks`].
    pub ranks: Vec<RankWaits>,
    /// Messages that were received before they were sent, by these clocks, and by how many ns at most: a lower bound of
    /// the clocks' disagreement.
    pub backwards: u64,
    pub most_backwards: i64,
}

impl Waits {
    /// Seconds that others waited for each rank, by index in [`Timeline::ranks`].
    pub fn caused(&self) -> Vec<f64> {
        let mut caused = vec![0.0; self.ranks.len()];
        for (place, seconds) in self.ranks.iter().flat_map(|rank| &rank.for_whom) {
            caused[*place] += seconds;
        }
        caused
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    LateSender,
    LateReceiver,
    Collective,
}

impl State {
    pub fn words(self) -> &'static str {
        match self {
            State::LateSender => "late sender",
            State::LateReceiver => "late receiver",
            State::Collective => "wait at collective",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// Waiting until the partner came, ns.
    pub nanoseconds: i64,
    /// Waiting after that, ns, while the partner was outside of MPI again.
    pub away: i64,
    /// Waiting after that, ns, while the partner, or another member of a collective operation, was off its core.
    pub kept_off: i64,
    pub state: State,
    /// Index in [`Timeline::ranks`] of the partner.
    pub whom: Option<usize>,
    /// Index in [`Timeline::ranks`] of the rank that was off its core.
    pub kept_by: Option<usize>,
    /// The time in ns by which the call ended before the partner came, which only disagreeing clocks can cause.
    backwards: i64,
}

impl Wait {
    pub fn all(&self) -> i64 {
        self.nanoseconds + self.away + self.kept_off
    }

    /// The wait with `before` ns less until the partner came, and at most `after` ns from then on.
    fn less(self, before: i64, after: i64) -> Wait {
        let kept_off = self.kept_off.min(after);
        let away = self.away.min(after - kept_off);
        Wait { nanoseconds: self.nanoseconds - before, kept_off, away, ..self }
    }
}

impl Timeline {
    pub fn waits(&self) -> Waits {
        let mut waits = Waits::default();
        for place in 0..self.ranks.len() {
            let mut own = RankWaits::default();
            let mut walk = self.walk(place);
            while let Some(step) = walk.step() {
                self.judge(place, &step, &mut own, &mut waits);
            }
            waits.ranks.push(own);
        }
        waits
    }

    /// The longest wait in a call of the rank at `place`. The second value says whether all of its possible waits are known.
    pub fn wait_of(&self, place: usize, step: &Step) -> (Option<Wait>, bool) {
        let rank = &self.ranks[place];
        let mut longest: Option<Wait> = None;
        let mut seen = tells(step);
        let operations = step.completed.iter().map(|operation| (operation, false));
        for (operation, probe) in operations.chain(step.probed.iter().map(|operation| (operation, true))) {
            if operation.peer < 0 && !matches!(operation.kind, Kind::Collective { .. }) {
                seen &= operation.peer == record::trace::peer::NULL;
                continue;
            }
            let Some((until, state, whom)) = self.held_until(rank, operation, probe) else {
                seen = false;
                continue;
            };
            // A send that ends before its receiver comes was buffered, and waited for nobody.
            if state == State::LateReceiver && until > step.left {
                continue;
            }
            let nanoseconds = until.min(step.left).saturating_sub(step.entered).max(0);
            let begun = until.max(step.entered);
            let may_hold = !probe && begun < step.left && !is_over_before(operation, step);
            let (kept_off, kept_by) =
                if may_hold { self.kept_off(place, operation, whom, begun, step) } else { (0, None) };
            let away = if may_hold { self.away(operation, whom, begun, step) } else { 0 };
            let backwards = until.saturating_sub(step.left);
            let wait = Wait { nanoseconds, away, kept_off, state, whom, kept_by, backwards };
            if wait.all() > 0 && longest.is_none_or(|longest| wait.all() > longest.all()) {
                longest = Some(wait);
            }
        }
        (longest, seen)
    }

    /// How long the partner of a message was outside of MPI, after both had begun, and could have come back.
    fn away(&self, operation: &Operation, whom: Option<usize>, from: i64, step: &Step) -> i64 {
        let (Some(whom), Kind::Send | Kind::Receive) = (whom, operation.kind) else { return 0 };
        self.absences[whom].within(from, step.left, |from, to| self.off_core(whom, from, to))
    }

    /// How long the partner of an operation was off its core after all had begun, and which rank that was; in a
    /// collective operation the rank that was off longest.
    fn kept_off(
        &self,
        place: usize,
        operation: &Operation,
        whom: Option<usize>,
        from: i64,
        step: &Step,
    ) -> (i64, Option<usize>) {
        // A call that ends while the partner is still off did not need it.
        let beyond = step.left + SHORTEST;
        let is_needless = |other: usize| 100 * self.off_core(other, from, beyond) >= 99 * (beyond - from);
        let off = |other: usize| match is_needless(other) {
            true => (0, None),
            false => (self.off_core(other, from, step.left), Some(other)),
        };
        let Kind::Collective { who, .. } = operation.kind else { return whom.map_or((0, None), off) };
        let rank = &self.ranks[place];
        let needed = operation.communicator.and_then(|id| {
            let communicator = &self.communicators[id as usize];
            Some((communicator, needed(who, communicator, operation.peer, communicator.place_of(rank.rank)?)?))
        });
        let Some((communicator, needed)) = needed else { return (0, None) };
        let is_member = |other: &Rank| {
            other.world == communicator.world
                && communicator.place_of(other.rank).is_some_and(|member| needed.contains(&member))
        };
        let others = self.ever_off.iter().copied().filter(|other| *other != place && is_member(&self.ranks[*other]));
        others.map(off).filter(|(long, _)| *long > 0).max_by_key(|(long, _)| *long).unwrap_or((0, None))
    }

    /// How long no thread of a rank had a core, as far as is known, ns.
    fn off_core(&self, place: usize, from: i64, to: i64) -> i64 {
        self.ranks[place].off_core.as_ref().map_or(0, |off| off.of_rank(from, to))
    }

    fn judge(&self, place: usize, step: &Step, own: &mut RankWaits, waits: &mut Waits) {
        let rank = &self.ranks[place];
        let seconds = (step.left - step.entered) as f64 / 1e9;
        let sum = own.functions.entry((step.event.call.function, self.group(rank, step))).or_default();
        sum.calls += 1;
        sum.seconds += seconds;
        let (wait, seen) = self.wait_of(place, step);
        let alone = step.entered + wait.map_or(0, |wait| wait.nanoseconds);
        let stopped = |from, to| rank.off_core.as_ref().map_or(0, |off| off.stopped(step.thread, from, to));
        let before = stopped(step.entered, alone);
        let wait = wait.map(|wait| wait.less(before, step.left - alone - stopped(alone, step.left)));
        let waited = wait.map_or(0.0, |wait| wait.all() as f64 / 1e9);
        let off = before + rank.off_core.as_ref().map_or(0, |off| off.of_thread(step.thread, alone, step.left));
        let off = (off as f64 / 1e9).min(seconds - waited);
        sum.off_core += off;
        if let Some(wait) = wait {
            let until = wait.nanoseconds as f64 / 1e9;
            sum.away += wait.away as f64 / 1e9;
            sum.kept_off += wait.kept_off as f64 / 1e9;
            match wait.state {
                State::LateSender => sum.late_sender += until,
                State::LateReceiver => sum.late_receiver += until,
                State::Collective => sum.collective += until,
            }
            let apart = wait.kept_off as f64 / 1e9;
            for (whom, seconds) in [(wait.whom, waited - apart), (wait.kept_by, apart)] {
                if let Some(whom) = whom.filter(|_| seconds > 0.0) {
                    *own.for_whom.entry(whom).or_default() += seconds;
                }
            }
            if wait.state == State::LateSender && wait.nanoseconds > 0 && wait.backwards > 0 {
                waits.backwards += 1;
                waits.most_backwards = waits.most_backwards.max(wait.backwards);
            }
        }
        if !seen {
            sum.undivided += seconds - waited - off;
        }
    }

    /// When the last partner came that an operation of `rank` needed, and which rank that was.
    fn held_until(&self, rank: &Rank, operation: &Operation, probe: bool) -> Option<(i64, State, Option<usize>)> {
        let peer = || self.place(rank.world, operation.peer as u32);
        let Kind::Collective { who, .. } = operation.kind else {
            return if probe {
                let send = self.matches.probed(rank.rank, operation)?;
                Some((send.posted, State::LateSender, peer()))
            } else {
                let partner = self.matches.partner(rank.rank, operation)?;
                let state = if operation.kind == Kind::Send { State::LateReceiver } else { State::LateSender };
                Some((partner.posted, state, peer()))
            };
        };
        let instance = self.matches.instance(operation)?;
        let communicator = &self.communicators[operation.communicator? as usize];
        let own = communicator.place_of(rank.rank)?;
        let nobody = Some((i64::MIN, State::Collective, None));
        let needed = needed(who, communicator, operation.peer, own)?;
        if needed.is_empty() {
            return nobody;
        }
        let (member, entry) = instance.last(needed)?;
        if member == own {
            return nobody;
        }
        Some((entry, State::Collective, self.place(communicator.world, communicator.members[member])))
    }

    /// Number of ranks of a collective call's communicator; 0 for other calls.
    fn group(&self, rank: &Rank, step: &Step) -> u32 {
        let class = function(step.event.call.function).map(|f| f.class);
        let is_init = matches!(class, Some(Class::Request))
            && matches!(part_of(step.event.call.function).role, Role::Collective(_));
        if !matches!(class, Some(Class::Collective | Class::Neighbour)) && !is_init {
            return 0;
        }
        let communicator = rank.communicators.get(&step.event.call.communicator);
        communicator.map_or(0, |id| self.communicators[*id as usize].members.len() as u32)
    }
}

/// The members that member `own` waits for in a collective operation with this root; `None`: not known.
fn needed(who: Collective, communicator: &Communicator, root: i32, own: usize) -> Option<Range<usize>> {
    let everyone = 0..communicator.members.len();
    let root = || communicator.place_of(u32::try_from(root).ok()?);
    match who {
        Collective::All => Some(everyone),
        Collective::FromRoot => root().map(|root| if root == own { 0..0 } else { root..root + 1 }),
        Collective::ToRoot => root().map(|root| if root == own { everyone } else { 0..0 }),
        Collective::Prefix => Some(0..own + 1),
        Collective::Neighbours => None,
    }
}

/// Whether the operation may be over before its call: sends of calls that also complete a receive.
fn is_over_before(operation: &Operation, step: &Step) -> bool {
    operation.kind == Kind::Send && step.completed.iter().any(|other| other.kind == Kind::Receive)
}

/// Whether all waiting of a call shows in its operations.
fn tells(step: &Step) -> bool {
    let id = step.event.call.function;
    let part = part_of(id);
    match part.role {
        // Repeated tests are waiting too, but the timeline cannot say how much of it was needed.
        Role::Complete => function(id).is_some_and(|f| f.name.starts_with("Wait")),
        Role::Probe | Role::Take => function(id).is_some_and(|f| !f.name.starts_with('I')),
        Role::Other => !function(id)
            .is_some_and(|f| matches!(f.class, Class::OneSided | Class::Synchronization | Class::Management)),
        _ => true,
    }
}
