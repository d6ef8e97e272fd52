//! The offcodes that one thread runs: their channels, their turns, and what keeps a failing one from harming the rest.

mod maps;
mod seat;
mod surroundings;
pub(super) mod timers;
mod timing;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use linux::doorbell::Sleep;
use linux::xdp::{Dump, SharedWords};
use machine::{Fault, Result, Site};
use offcode::{Activity, Channel, ChannelId, Specification, State};

use super::account::{self, Account, Client};
use super::body;
use super::end::{EndAt, Ends, ROOM_POLL_INTERVAL};
use super::evidence::{Counter, Evidence};
use super::{Deployment, Slot};
use crate::trace::Trace;
use seat::{Phase, Seat};

/// Takes a line of an offcode or of its site.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// The offcodes of one thread. The same set serves the application's thread, a dedicated core and an agent.
pub struct Residents {
    site: Site,
    origin: Instant,
    log: Log,
    /// Seats in ascending order of slots; removed ones leave no gap.
    seats: Vec<(u32, Seat)>,
    next: u32,
    turns: u64,
    /// Accounts of clients, by their numbers.
    accounts: BTreeMap<u64, Account>,
}

impl Residents {
    /// An empty set. Offcodes see the time since `origin`.
    pub fn new(site: Site, origin: Instant, log: Log) -> Self {
        Residents { site, origin, log, seats: Vec::new(), next: 0, turns: 0, accounts: BTreeMap::new() }
    }

    pub fn site(&self) -> &Site {
        &self.site
    }

    /// Turns since the start: the evidence that the loop runs.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    fn at(&self, slot: Slot) -> Result<usize, usize> {
        self.seats.binary_search_by_key(&slot.0, |(number, _)| *number)
    }

    fn seat(&mut self, slot: Slot) -> Result<&mut Seat> {
        let gone = |_| Fault::new(format!("slot {}", slot.0), "no offcode is there any more", "create it again");
        let at = self.at(slot).map_err(gone)?;
        Ok(&mut self.seats[at].1)
    }

    /// Keeps an offcode to its client's share of this thread.
    pub fn charge(&mut self, slot: Slot, client: &Client) -> Result<()> {
        self.seat(slot)?.client = Some(client.number);
        self.accounts.retain(|_, account| !account.is_abandoned());
        self.accounts.entry(client.number).or_insert_with(|| Account::new(client, Instant::now()));
        Ok(())
    }

    /// Calls the author's code between turns, which its client pays for.
    fn at_seat<R>(&mut self, slot: Slot, work: impl FnOnce(&mut Seat) -> Result<R>) -> Result<R> {
        let client = self.seat(slot)?.client;
        let Some(client) = client else { return work(self.seat(slot)?) };
        let begun = account::clock(true);
        let outcome = work(self.seat(slot)?);
        if let Some(account) = self.accounts.get_mut(&client) {
            account.charge(Activity::Worked, account::clock(true) - begun);
        }
        outcome
    }

    pub fn deploy(&mut self, deployment: Deployment) -> Result<Slot> {
        let offcode = guarded(&deployment.name, || body::embody(&deployment))??;
        let seat = Seat::new(offcode, deployment, self.origin, self.log.clone());
        let slot = self.next;
        self.next += 1;
        self.seats.push((slot, seat));
        Ok(Slot(slot))
    }

    pub fn initialize(&mut self, slot: Slot) -> Result<()> {
        self.at_seat(slot, Seat::initialize)
    }

    pub fn start(&mut self, slot: Slot) -> Result<()> {
        self.at_seat(slot, Seat::start)
    }

    /// Makes a channel in memory, keeps the far end here and returns the near one.
    pub fn connect(&mut self, slot: Slot, name: &str, specification: Specification) -> Result<Box<dyn Channel>> {
        self.seat(slot)?;
        let (near, far) = ports::channel::unicast(&specification)?;
        self.adopt(slot, name, Box::new(far))?;
        Ok(Box::new(near))
    }

    pub fn adopt(&mut self, slot: Slot, name: &str, end: Box<dyn Channel>) -> Result<ChannelId> {
        self.at_seat(slot, |seat| seat.adopt(name, end))
    }

    pub fn set_attribute(&mut self, slot: Slot, name: &str, value: &str) -> Result<()> {
        self.at_seat(slot, |seat| seat.set_attribute(name, value))
    }

    pub fn suspend(&mut self, slot: Slot) -> Result<State> {
        self.at_seat(slot, Seat::suspend)
    }

    pub fn restore(&mut self, slot: Slot, state: &State) -> Result<()> {
        self.at_seat(slot, |seat| seat.restore(state))
    }

    pub fn resume(&mut self, slot: Slot) -> Result<()> {
        self.seat(slot)?.resume()
    }

    pub fn ends(&mut self, slot: Slot) -> Result<Vec<EndAt>> {
        Ok(self.seat(slot)?.ends())
    }

    pub fn surrender(&mut self, slot: Slot) -> Result<Ends> {
        self.seat(slot)?.surrender()
    }

    pub fn receive(&mut self, slot: Slot, ends: &mut Ends) -> Result<()> {
        self.seat(slot)?.receive(std::mem::take(ends));
        Ok(())
    }

    /// Words that the offcode shares.
    pub fn shared(&self, slot: Slot, name: &str) -> Result<SharedWords> {
        let gone = |_| Fault::new(format!("slot {}", slot.0), "no offcode is there any more", "create it again");
        self.seats[self.at(slot).map_err(gone)?].1.shared(name)
    }

    /// What a map of the offcode holds.
    pub fn map(&mut self, slot: Slot, name: &str) -> Result<Dump> {
        self.seat(slot)?.map(name)
    }

    /// Starts or ends noting the calls that the offcode gets over its channels. `false`: it is not here.
    pub fn trace(&mut self, slot: Slot, trace: Option<Trace>) -> bool {
        self.seat(slot).map(|seat| seat.trace = trace).is_ok()
    }

    /// Whether no offcode is here.
    pub fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }

    pub fn remove(&mut self, slot: Slot) {
        if let Ok(at) = self.at(slot) {
            self.seats.remove(at).1.stop();
        }
    }

    pub fn evidence(&mut self, slot: Slot) -> Result<Evidence> {
        let turns = self.turns;
        let seat = self.seat(slot)?;
        let counter = |name: &str, value| Counter { name: name.into(), value };
        let mut counters = vec![counter("turns of the loop", turns)];
        counters.extend([counter("calls", seat.calls), counter("messages", seat.messages)]);
        counters.push(counter("turns with work", seat.worked));
        counters.extend(seat.woken().map(|woken| counter("wake-ups", woken)));
        if seat.withheld > 0 {
            counters.push(counter("turns withheld, its client's share being used up", seat.withheld));
        }
        let whereabouts = match &seat.phase {
            Phase::Failed(why) => format!("failed: {why}"),
            _ => String::new(),
        };
        let (uses, timed, received) = (seat.calls + seat.messages, seat.timing.timed(), seat.received());
        Ok(Evidence { whereabouts, counters, uses, timed, received })
    }

    /// Has whatever arrives for an offcode end the sleep that the thread is about to begin; where offcodes have turns of
    /// their own it lasts `turn` at most. `false`: something is there already.
    pub fn arm(&mut self, sleep: &mut Sleep, turn: Duration) -> bool {
        for (_, seat) in &mut self.seats {
            let Some(untold) = seat.arm(sleep) else { return false };
            if untold.turns {
                sleep.at_most(turn);
            }
            if let Some(due) = untold.due {
                sleep.at_most(due);
            }
            if untold.no_room {
                sleep.at_most(turn.min(ROOM_POLL_INTERVAL));
            }
        }
        true
    }

    /// One turn of every offcode: what has arrived on its channels, then its own work.
    #[inline]
    pub fn turn(&mut self) -> Activity {
        self.turns += 1;
        let mut activity = Activity::Idle;
        if !self.accounts.is_empty() {
            return self.charged_turn();
        }
        for (_, seat) in &mut self.seats {
            if seat.turn() == Activity::Worked {
                activity = Activity::Worked;
            }
        }
        activity
    }

    /// Polls every offcode, and charges clients for it.
    fn charged_turn(&mut self) -> Activity {
        let mut activity = Activity::Idle;
        let limited = self.accounts.values().any(Account::is_limited);
        let now = Instant::now();
        // The end of one turn is the beginning of the next.
        let mut begun = account::clock(limited);
        for (_, seat) in &mut self.seats {
            let mut account = seat.client.and_then(|client| self.accounts.get_mut(&client));
            if account.as_mut().is_some_and(|account| !account.has_credit(now)) {
                seat.withheld += 1;
                continue;
            }
            let turned = seat.turn();
            let ended = account::clock(limited);
            if let Some(account) = account {
                account.charge(turned, ended - begun);
            }
            begun = ended;
            if turned == Activity::Worked {
                activity = Activity::Worked;
            }
        }
        activity
    }
}

/// How long a thread whose offcodes found nothing to do may sleep.
#[derive(Debug, Clone, Copy)]
pub struct Idle {
    since: Instant,
    turns: u32,
}

/// The rest of a thread that had nothing to do.
pub enum Rest {
    /// The next turn, without a rest.
    Turn,
    /// A short rest, from which nothing wakes it.
    Nap,
    /// A sleep, at most this long where only a turn tells whether there is something to do.
    Sleep(Duration),
}

impl Idle {
    /// Turns without work before the first nap.
    const TURNS: u32 = 2000;
    pub const NAP: Duration = Duration::from_micros(50);
    /// Idle time after which the thread sleeps: writers ring for it then.
    const AWAKE: Duration = Duration::from_millis(4);
    /// The longest sleep of a thread whose offcodes have turns of their own.
    const TURN: Duration = Duration::from_secs(10);

    /// The state of a thread that has just had something to do.
    pub fn new() -> Idle {
        Idle { since: Instant::now(), turns: 0 }
    }

    /// After a turn without work. A sleep is half the time without work: an offcode that waits for a moment of its own has its
    /// turn so much late, and no more.
    pub fn rest(&mut self) -> Rest {
        self.turns = self.turns.saturating_add(1);
        if self.turns <= Self::TURNS {
            return Rest::Turn;
        }
        let idle = self.since.elapsed();
        if idle < Self::AWAKE { Rest::Nap } else { Rest::Sleep((idle / 2).min(Self::TURN)) }
    }
}

impl Default for Idle {
    fn default() -> Self {
        Idle::new()
    }
}

impl Drop for Residents {
    fn drop(&mut self) {
        for (_, seat) in self.seats.iter_mut().rev() {
            seat.stop();
        }
    }
}

/// Runs an author's code; a panic in it becomes a fault that names the offcode.
fn guarded<R>(name: &str, work: impl FnOnce() -> R) -> Result<R> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let said = panic
            .downcast_ref::<&str>()
            .map(|s| s.to_string())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "without a message".into());
        Fault::new(format!("offcode {name}"), format!("it panicked: {said}"), "mend the offcode")
    })
}

#[cfg(test)]
mod tests {
    use linux::doorbell::Doorbell;
    use machine::Nanoseconds;
    use offcode::channel::Content;
    use offcode::manifest::{Package, Software};
    use offcode::service::TIMERS;
    use offcode::{Attributes, Context, Guid, Incoming, Manifest, Offcode, Refusal, Wake, Written};

    use super::*;
    use crate::code::Code;

    struct Idle;

    impl Offcode for Idle {
        fn interfaces(&self) -> &[Guid] {
            &[]
        }
        /// A timer, where its manifest asks for any.
        fn start(&mut self, context: &mut dyn Context) -> Result<()> {
            let soon = Nanoseconds(context.now().0 + 20_000_000);
            let _ = context.set_timer(0, Wake::at(soon));
            Ok(())
        }
        fn call(&mut self, _: Incoming<'_>, _: &mut Vec<u8>, _: &mut dyn Context) -> Result<(), Refusal> {
            Ok(())
        }
    }

    fn deployment() -> Deployment {
        let package = Package {
            guid: Guid::named("idle"),
            name: "test.idle".into(),
            version: "1".into(),
            description: String::new(),
            interfaces: Vec::new(),
            bodies: Vec::new(),
            attributes: Vec::new(),
            state: Default::default(),
        };
        let manifest = Arc::new(Manifest { package, hardware: Vec::new(), software: Default::default() });
        let code = Code::Native(Arc::new(|| Box::new(Idle)));
        Deployment {
            name: "idle".into(),
            manifest,
            code,
            attributes: Attributes::default(),
            memory: Default::default(),
        }
    }

    #[test]
    fn some_of_what_is_served_is_timed() {
        let mut residents = Residents::new(Site::App, Instant::now(), Arc::new(|_| {}));
        let slot = residents.deploy(deployment()).unwrap();
        let specification = Specification { content: Content::Messages, ..Specification::default() };
        let mut near = residents.connect(slot, "in", specification).unwrap();
        residents.initialize(slot).unwrap();
        residents.start(slot).unwrap();
        residents.turn();
        assert_eq!(residents.evidence(slot).unwrap().timed, None);
        for _ in 0..640 {
            assert_eq!(near.write(b"message").unwrap(), Written::Taken);
            residents.turn();
        }
        let evidence = residents.evidence(slot).unwrap();
        let timed = evidence.timed.unwrap();
        assert!(evidence.uses == 640 && timed.uses == 40 && timed.each() > 0.0, "{evidence:?}");
    }

    /// Nothing else ends the sleep: one that does not know of the timer lasts for ever.
    #[test]
    fn a_timer_ends_the_sleep_of_the_thread() {
        let mut residents = Residents::new(Site::App, Instant::now(), Arc::new(|_| {}));
        let mut asks = deployment();
        let software = Software { environment: vec![TIMERS], peers: Vec::new() };
        asks.manifest = Arc::new(Manifest { software, ..(*asks.manifest).clone() });
        let slot = residents.deploy(asks).unwrap();
        residents.initialize(slot).unwrap();
        residents.start(slot).unwrap();
        let bell = Doorbell::new().unwrap();
        while residents.turn() == Activity::Idle {
            let mut sleep = bell.sleep();
            if residents.arm(&mut sleep, Duration::MAX) {
                sleep.begin();
            }
        }
    }

    /// Takes a while whenever it gets a turn, and says that there is more to do.
    struct Busy;

    impl Offcode for Busy {
        fn interfaces(&self) -> &[Guid] {
            &[]
        }

        fn call(&mut self, _: Incoming<'_>, _: &mut Vec<u8>, _: &mut dyn Context) -> Result<(), Refusal> {
            Ok(())
        }

        fn turn(&mut self, _: &mut dyn Context) -> Activity {
            let begun = Instant::now();
            while begun.elapsed() < std::time::Duration::from_micros(50) {}
            Activity::Worked
        }
    }

    fn counted(residents: &mut Residents, slot: Slot, name: &str) -> u64 {
        let evidence = residents.evidence(slot).unwrap();
        evidence.counters.iter().find(|counter| counter.name.starts_with(name)).map_or(0, |counter| counter.value)
    }

    #[test]
    fn a_client_that_wants_all_is_kept_to_its_share_and_another_misses_no_turn() {
        let mut residents = Residents::new(Site::App, Instant::now(), Arc::new(|_| {}));
        let (greedy, modest) = (Client::new(1, Some(1)), Client::new(2, Some(20)));
        let code = Code::Native(Arc::new(|| Box::new(Busy)));
        // As many offcodes as it likes: the share is that of all of them.
        let theirs = ["one", "two", "three"].map(|name| {
            let slot = residents.deploy(Deployment { name: name.into(), code: code.clone(), ..deployment() }).unwrap();
            residents.charge(slot, &greedy).unwrap();
            slot
        });
        let slot = residents.deploy(deployment()).unwrap();
        residents.charge(slot, &modest).unwrap();
        let specification = Specification { content: Content::Messages, ..Specification::default() };
        let mut near = residents.connect(slot, "in", specification).unwrap();
        for slot in theirs.into_iter().chain([slot]) {
            residents.initialize(slot).unwrap();
            residents.start(slot).unwrap();
        }
        // Turns from a message of the one that asks for little until it is read.
        let mut waited = Vec::new();
        for n in 0..200 {
            for _ in 0..200 {
                residents.turn();
            }
            assert_eq!(near.write(b"message").unwrap(), Written::Taken);
            let before = residents.turns();
            while residents.evidence(slot).unwrap().uses == n {
                residents.turn();
            }
            waited.push(residents.turns() - before);
        }
        waited.sort_unstable();
        assert_eq!(waited[waited.len() / 2], 1, "its usual message is read in the turn after it: {waited:?}");
        let turns =
            |residents: &mut Residents, name| theirs.map(|slot| counted(residents, slot, name)).iter().sum::<u64>();
        let (given, withheld) = (turns(&mut residents, "turns with work"), turns(&mut residents, "turns withheld"));
        assert_eq!(given + withheld, 3 * residents.turns());
        assert!(given > 0 && withheld > given, "{given} turns given, {withheld} withheld");
        assert!(greedy.taken() > Nanoseconds(0));
    }

    #[test]
    fn offcodes_that_were_removed_leave_nothing() {
        let deployment = deployment();
        let mut residents = Residents::new(Site::App, Instant::now(), Arc::new(|_| {}));
        let kept = residents.deploy(deployment.clone()).unwrap();
        for n in 1..10_000 {
            let slot = residents.deploy(deployment.clone()).unwrap();
            assert_eq!(slot, Slot(n), "slots are never used again");
            residents.remove(slot);
            residents.remove(slot);
        }
        assert_eq!(residents.seats.len(), 1);
        assert!(residents.seats.capacity() < 100);
        residents.initialize(kept).unwrap();
        assert!(residents.initialize(Slot(5)).is_err());
    }
}
