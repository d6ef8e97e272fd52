//! What the offcodes of one client take of a thread that runs those of several, and the turns that they are not given once
//! they have had their share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use linux::accounting::own_thread_time;
use linux::clock::monotonic;
use machine::Nanoseconds;
use offcode::Activity;

/// Time whose share a client may at most save for later.
const KEPT: Duration = Duration::from_millis(100);
/// So long a client's offcodes may look for something to do, in each round of turns, and not pay for it: a polling thread gives
/// such turns to everybody, all the time.
const POLL_INTERVAL: Duration = Duration::from_micros(10);

/// The client for which an offcode runs.
#[derive(Debug, Clone)]
pub struct Client {
    /// Number that tells clients apart.
    pub number: u64,
    /// Percent of a thread's time that its offcodes may take there together; `None`: all.
    pub share: Option<u32>,
    taken: Arc<AtomicU64>,
}

impl Client {
    pub fn new(number: u64, share: Option<u32>) -> Client {
        Client { number, share, taken: Arc::default() }
    }

    /// Core time that all its offcodes have taken, on all threads.
    pub fn taken(&self) -> Nanoseconds {
        Nanoseconds(self.taken.load(Ordering::Relaxed))
    }

    /// Adds core time that was counted elsewhere.
    pub fn took(&self, time: Nanoseconds) {
        self.taken.fetch_add(time.0, Ordering::Relaxed);
    }
}

/// The account of a client on one thread.
pub(super) struct Account {
    client: Client,
    /// Nanoseconds in hand; below 0 until a turn that took more is paid for.
    credit: f64,
    looked: Instant,
    /// Rest of [`POLL_INTERVAL`] in this round.
    free: Duration,
}

impl Account {
    /// An account without savings: the client gets a turn at once, and no more than that.
    pub fn new(client: &Client, now: Instant) -> Account {
        Account { client: client.clone(), credit: 0.0, looked: now, free: POLL_INTERVAL }
    }

    /// Whether the client's next turn may be given in the round of turns that began at `now`.
    pub fn has_credit(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.looked);
        if !passed.is_zero() {
            (self.looked, self.free) = (now, POLL_INTERVAL);
        }
        let Some(percent) = self.client.share else { return true };
        let share = f64::from(percent) / 100.0;
        self.credit = (self.credit + share * passed.as_nanos() as f64).min(share * KEPT.as_nanos() as f64);
        self.credit >= 0.0
    }

    /// Charges for a turn, or for another call of an offcode.
    pub fn charge(&mut self, activity: Activity, time: Duration) {
        let free = if activity == Activity::Idle { self.free.min(time) } else { Duration::ZERO };
        self.free -= free;
        let time = time - free;
        self.client.took(Nanoseconds(time.as_nanos() as u64));
        self.credit -= time.as_nanos() as f64;
    }

    pub fn is_limited(&self) -> bool {
        self.client.share.is_some()
    }

    /// Whether only this account knows the client still.
    pub fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.client.taken) == 1
    }
}

/// The clock that turns are charged by: core time where somebody is kept to a share, who must not pay for the time in which
/// others had the core. Else time, which costs a tenth to read.
pub(super) fn clock(limited: bool) -> Duration {
    Duration::from_nanos(if limited { own_thread_time() } else { monotonic() }.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns that a client gets of a thread that would give it one after the other, each of which takes `turn`, in `time`.
    fn turns(account: &mut Account, from: Instant, turn: Duration, time: Duration) -> u64 {
        let (mut now, mut given) = (from, 0);
        while now < from + time {
            match account.has_credit(now) {
                true => {
                    given += 1;
                    now += turn;
                    account.charge(Activity::Worked, turn);
                }
                false => now += Duration::from_micros(1),
            }
        }
        given
    }

    #[test]
    fn a_client_that_wants_all_gets_its_share_and_one_without_a_limit_gets_all() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        for (share, turn, expected) in [
            (None, 1_000, 1_000_000..=1_000_000),
            (Some(100), 1_000, 1_000_000..=1_000_000),
            (Some(25), 1_000, 249_000..=251_000),
            (Some(10), 50_000, 1_990..=2_010),
            // Turns that are longer than what may be kept are paid back all the same.
            (Some(10), 200_000_000, 1..=1),
            (Some(50), 200_000_000, 3..=3),
        ] {
            let mut account = Account::new(&Client::new(1, share), start);
            let given = turns(&mut account, start, Duration::from_nanos(turn), second);
            assert!(expected.contains(&given), "{share:?}, {turn} ns: {given}");
        }
    }

    #[test]
    fn what_was_not_used_is_kept_for_a_while_and_idle_turns_are_free() {
        let start = Instant::now();
        let client = Client::new(1, Some(10));
        let mut account = Account::new(&client, start);
        let mut now = start;
        for _ in 0..1_000_000 {
            assert!(account.has_credit(now));
            account.charge(Activity::Idle, Duration::from_nanos(300));
            now += Duration::from_nanos(300);
        }
        assert_eq!(client.taken(), Nanoseconds(0));
        // An hour later it has a tenth of the time that is kept, not of the hour.
        now += Duration::from_secs(3600);
        let given = turns(&mut account, now, Duration::from_micros(100), Duration::from_millis(12));
        assert!((100..=125).contains(&given), "{given}");
        // Idle turns that work nevertheless are charged, and so are many in one round.
        let before = client.taken();
        (0..100).for_each(|_| account.charge(Activity::Idle, Duration::from_micros(1)));
        assert_eq!(client.taken() - before, Nanoseconds(90_000));
        account.charge(Activity::Idle, Duration::from_secs(1));
        assert!(!account.has_credit(now + Duration::from_secs(1)));
        assert!(client.taken() > Nanoseconds(1_000_000_000));
    }
}
