//! A timer as a descriptor that is readable once the time has come.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use machine::{Fault, Result};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

#[derive(Debug)]
pub struct Timer(OwnedFd);

impl Timer {
    /// A timer that is not set.
    pub fn open() -> Result<Timer> {
        timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)
            .map(Timer)
            .map_err(|e| Fault::because("timer", std::io::Error::from(e), "raise the limit on open files (ulimit -n)"))
    }

    /// Sets it: it is not readable until `after` has passed.
    pub fn set(&self, after: Duration) {
        // Zero would stop the timer.
        let after = after.max(Duration::from_nanos(1));
        let it_value = Timespec { tv_sec: after.as_secs() as i64, tv_nsec: i64::from(after.subsec_nanos()) };
        let once = Itimerspec { it_interval: Timespec::default(), it_value };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once).expect("a timer takes any time");
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    #[test]
    fn a_timer_is_readable_once_its_time_has_come_and_not_after_it_is_set_anew() {
        let timer = Timer::open().unwrap();
        let readable = |limit: Option<&Timespec>| poll(&mut [PollFd::new(&timer, PollFlags::IN)], limit).unwrap() == 1;
        let now = Some(&Timespec { tv_sec: 0, tv_nsec: 0 });
        assert!(!readable(now));
        timer.set(Duration::ZERO);
        assert!(readable(None) && readable(now), "it stays readable");
        timer.set(Duration::from_secs(3600));
        assert!(!readable(now));
    }
}
